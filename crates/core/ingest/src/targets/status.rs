//! The status of a target for the API: its health and the metadata of its metrics.

use crate::metadata::FamilyMetadata;
use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Number of scrapes for which metadata is kept after its metric has vanished. Same number as in
/// Prometheus.
const METADATA_SCRAPES: u64 = 10;

/// Largest size of the metadata of one target in bytes. The largest exporters have 200 KB.
const METADATA_BYTES_MAX: usize = 16 << 20;

/// The health of a target, according to its latest scrape, as the API shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetHealth {
    /// There was no scrape of the target yet.
    #[default]
    Unknown,
    /// The latest scrape succeeded and was stored.
    Up,
    /// The latest scrape failed or could not be stored.
    Down,
}

impl TargetHealth {
    /// Returns the name of the health in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            TargetHealth::Unknown => "unknown",
            TargetHealth::Up => "up",
            TargetHealth::Down => "down",
        }
    }
}

/// The latest scrape of a target, successful or not, as the API shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastScrape {
    /// Whether the scrape succeeded, if there was one.
    pub health: TargetHealth,
    /// Error text; empty if it succeeded.
    pub error: String,
    /// Warning about samples that were lost although it succeeded; empty if there were none.
    pub warning: String,
    /// Timestamp of its start, if there was a scrape.
    pub time: Option<TimestampMs>,
    /// Duration of the scrape.
    pub duration: Duration,
}

#[derive(Debug)]
struct TargetMetadataFamily {
    metadata: FamilyMetadata,
    /// Number of the latest scrape that contained it.
    seen: u64,
}

/// The metadata of a target by family name, limited in size and dropped some scrapes after its
/// metric.
#[derive(Debug, Default)]
pub struct TargetMetadataTable {
    families: BTreeMap<String, TargetMetadataFamily>,
    bytes: usize,
}

impl TargetMetadataTable {
    /// Updates the metadata of the family `name` with `change` during scrape `seen`, unless the
    /// table is full.
    pub fn update_family(
        &mut self,
        name: &[u8],
        seen: u64,
        change: impl FnOnce(&mut FamilyMetadata),
    ) {
        let Ok(name) = std::str::from_utf8(name) else {
            return;
        };
        if !self.families.contains_key(name) {
            if self.bytes > METADATA_BYTES_MAX {
                return;
            }
            let metadata = FamilyMetadata {
                kind: MetricType::Unknown.name(),
                ..FamilyMetadata::default()
            };
            self.bytes += name.len() + size_of::<TargetMetadataFamily>();
            let family = TargetMetadataFamily { metadata, seen };
            self.families.insert(name.to_owned(), family);
        }
        if let Some(family) = self.families.get_mut(name) {
            self.bytes -= text_bytes(&family.metadata);
            change(&mut family.metadata);
            if self.bytes > METADATA_BYTES_MAX {
                family.metadata.help.clear();
                family.metadata.unit.clear();
            }
            self.bytes += text_bytes(&family.metadata);
            family.seen = seen;
        }
    }

    /// Removes families that have been missing for [`METADATA_SCRAPES`] before scrape `now`.
    pub fn remove_missing_families(&mut self, now: u64) {
        let bytes = &mut self.bytes;
        self.families.retain(|name, family| {
            let keeps = now - family.seen <= METADATA_SCRAPES;
            if !keeps {
                *bytes -=
                    name.len() + size_of::<TargetMetadataFamily>() + text_bytes(&family.metadata);
            }
            keeps
        });
    }
}

fn text_bytes(metadata: &FamilyMetadata) -> usize {
    metadata.help.len() + metadata.unit.len()
}

/// The status of a target, written by its task and read by the API. It outlives neither its target
/// nor a restart.
#[derive(Debug, Default)]
pub struct TargetStatus {
    last: Mutex<LastScrape>,
    metadata: Mutex<TargetMetadataTable>,
}

impl TargetStatus {
    /// Returns the latest scrape.
    pub fn last_scrape(&self) -> LastScrape {
        lock(&self.last).clone()
    }

    /// Returns the metadata of the family `name`. Returns `None` if the target does not expose it.
    pub fn find_metadata(&self, name: &str) -> Option<FamilyMetadata> {
        let table = lock(&self.metadata);
        table
            .families
            .get(name)
            .map(|family| family.metadata.clone())
    }

    /// Calls `each` with the metadata of each family, sorted by name.
    pub fn for_each_metadata(&self, mut each: impl FnMut(&str, &FamilyMetadata)) {
        for (name, family) in &lock(&self.metadata).families {
            each(name, &family.metadata);
        }
    }

    /// Replaces the latest scrape.
    pub fn set_last(&self, last: LastScrape) {
        *lock(&self.last) = last;
    }

    /// Replaces the warning of the latest scrape.
    pub fn set_warning(&self, warning: String) {
        lock(&self.last).warning = warning;
    }

    /// Returns the metadata for an update. The API waits until the guard is dropped.
    pub fn lock_metadata(&self) -> MutexGuard<'_, TargetMetadataTable> {
        lock(&self.metadata)
    }
}
