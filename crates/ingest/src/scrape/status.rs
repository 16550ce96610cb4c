//! What the API tells about a target: its health and the metadata of its metrics.

use firn_model::metadata::{Metadata, MetricType};
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Scrapes for which metadata is kept after its metric has gone. Prometheus's number.
const METADATA_SCRAPES: u64 = 10;

/// Bytes of the metadata of one target. The largest exporters have 200 KB.
const METADATA_BYTES_MAX: usize = 16 << 20;

/// Whether the last scrape was good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// There was none.
    #[default]
    Unknown,
    /// It was.
    Up,
    /// It was not.
    Down,
}

impl Health {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Unknown => "unknown",
            Health::Up => "up",
            Health::Down => "down",
        }
    }
}

/// The last scrape of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastScrape {
    /// Whether it was good.
    pub health: Health,
    /// Why not; empty if it was.
    pub error: String,
    /// What a good scrape lost on its way into the store; empty if nothing.
    pub warning: String,
    /// When it began, if there was one.
    pub time: Option<TimestampMs>,
    /// How long it took.
    pub duration: Duration,
}

/// What a target says about a metric family.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FamilyMetadata {
    /// Its type.
    pub kind: &'static str,
    /// A sentence for people.
    pub help: String,
    /// The unit of its values.
    pub unit: String,
}

impl From<Metadata<'_>> for FamilyMetadata {
    fn from(said: Metadata<'_>) -> Self {
        Self {
            kind: said.kind.name(),
            help: said.help.to_owned(),
            unit: said.unit.to_owned(),
        }
    }
}

#[derive(Debug)]
struct Family {
    metadata: FamilyMetadata,
    /// The scrape that saw it last.
    seen: u64,
}

/// Metadata by the name of the family.
#[derive(Debug, Default)]
pub(super) struct MetadataTable {
    families: BTreeMap<String, Family>,
    bytes: usize,
}

impl MetadataTable {
    /// Takes what scrape `seen` says about `name`, unless the table is full.
    pub(super) fn set(&mut self, name: &[u8], seen: u64, change: impl FnOnce(&mut FamilyMetadata)) {
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
            self.bytes += name.len() + size_of::<Family>();
            let family = Family { metadata, seen };
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

    /// Forgets what has not been seen for long before scrape `now`.
    pub(super) fn forget(&mut self, now: u64) {
        let bytes = &mut self.bytes;
        self.families.retain(|name, family| {
            let keeps = now - family.seen <= METADATA_SCRAPES;
            if !keeps {
                *bytes -= name.len() + size_of::<Family>() + text_bytes(&family.metadata);
            }
            keeps
        });
    }
}

fn text_bytes(metadata: &FamilyMetadata) -> usize {
    metadata.help.len() + metadata.unit.len()
}

/// What is known about a target; shared by its task and the API.
#[derive(Debug, Default)]
pub struct TargetStatus {
    last: Mutex<LastScrape>,
    metadata: Mutex<MetadataTable>,
}

impl TargetStatus {
    /// The last scrape.
    pub fn last(&self) -> LastScrape {
        lock(&self.last).clone()
    }

    /// Metadata of the family `name`.
    pub fn metadata_of(&self, name: &str) -> Option<FamilyMetadata> {
        let table = lock(&self.metadata);
        table
            .families
            .get(name)
            .map(|family| family.metadata.clone())
    }

    /// Hands out the metadata of each family, in the order of their names.
    pub fn each_metadata(&self, mut each: impl FnMut(&str, &FamilyMetadata)) {
        for (name, family) in &lock(&self.metadata).families {
            each(name, &family.metadata);
        }
    }

    pub(super) fn set_last(&self, last: LastScrape) {
        *lock(&self.last) = last;
    }

    pub(super) fn set_warning(&self, warning: String) {
        lock(&self.last).warning = warning;
    }

    pub(super) fn metadata(&self) -> MutexGuard<'_, MetadataTable> {
        lock(&self.metadata)
    }
}
