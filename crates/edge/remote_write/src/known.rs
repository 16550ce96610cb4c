//! Metric metadata for remote write receivers, in a table that is rebuilt periodically.

use firn_ingest::metadata::FamilyMetadata;
use firn_model::metadata::{MetricMetadata, MetricType};
use std::collections::BTreeMap;

/// Suffixes that classic histograms, summaries and counters append to the name of their family.
const SUFFIXES: [&str; 4] = ["_total", "_bucket", "_count", "_sum"];

#[derive(Clone, Debug, PartialEq, Eq)]
struct RemoteWriteMetadataEntry {
    kind: MetricType,
    help: Box<str>,
    unit: Box<str>,
}

/// Type, help and unit of metric families, by family name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteWriteMetadata(BTreeMap<Box<str>, RemoteWriteMetadataEntry>);

impl RemoteWriteMetadata {
    /// Adds the metadata of the family `name`, unless the table already contains that name.
    pub fn add_family(&mut self, name: &str, said: &FamilyMetadata) {
        if self.0.contains_key(name) {
            return;
        }
        let said = RemoteWriteMetadataEntry {
            kind: MetricType::from_name(said.kind),
            help: said.help.as_str().into(),
            unit: said.unit.as_str().into(),
        };
        self.0.insert(name.into(), said);
    }

    /// Returns the metadata of a series with the metric name `name`: that of the same name, or of
    /// its family without a suffix.
    pub fn find_for_series<'k>(&'k self, name: &'k str) -> Option<MetricMetadata<'k>> {
        let families = SUFFIXES
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix));
        let mut names = std::iter::once(name).chain(families);
        let said = names.find_map(|family| self.0.get(family))?;
        Some(said.to_metadata(name))
    }

    /// Returns the metadata of all families, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = MetricMetadata<'_>> {
        self.0.iter().map(|(name, said)| said.to_metadata(name))
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

impl RemoteWriteMetadataEntry {
    fn to_metadata<'k>(&'k self, name: &'k str) -> MetricMetadata<'k> {
        MetricMetadata {
            name,
            kind: self.kind,
            help: &self.help,
            unit: &self.unit,
        }
    }
}
