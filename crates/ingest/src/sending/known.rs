//! Metric metadata for remote write receivers, in a table that is rebuilt periodically.

use crate::scrape::FamilyMetadata;
use firn_model::metadata::{Metadata, MetricType};
use std::collections::BTreeMap;

/// Suffixes that classic histograms, summaries and counters append to the name of their family.
const SUFFIXES: [&str; 4] = ["_total", "_bucket", "_count", "_sum"];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    kind: MetricType,
    help: Box<str>,
    unit: Box<str>,
}

/// Type, help and unit of metric families, by family name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known(BTreeMap<Box<str>, Said>);

impl Known {
    /// Adds the metadata of the family `name`, unless the table already contains that name.
    pub fn add(&mut self, name: &str, said: &FamilyMetadata) {
        if self.0.contains_key(name) {
            return;
        }
        let said = Said {
            kind: MetricType::of_name(said.kind),
            help: said.help.as_str().into(),
            unit: said.unit.as_str().into(),
        };
        self.0.insert(name.into(), said);
    }

    /// Returns the metadata of a series with the metric name `name`: that of the same name, or of
    /// its family without a suffix.
    pub fn of_series<'k>(&'k self, name: &'k str) -> Option<Metadata<'k>> {
        let families = SUFFIXES
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix));
        let mut names = std::iter::once(name).chain(families);
        let said = names.find_map(|family| self.0.get(family))?;
        Some(said.metadata(name))
    }

    /// Returns the metadata of all families, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = Metadata<'_>> {
        self.0.iter().map(|(name, said)| said.metadata(name))
    }

    /// Returns the number of families.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Said {
    fn metadata<'k>(&'k self, name: &'k str) -> Metadata<'k> {
        Metadata {
            name,
            kind: self.kind,
            help: &self.help,
            unit: &self.unit,
        }
    }
}
