//! Metric metadata from pushes: the latest type, help and unit of each metric.
//!
//! ```text
//! remote write 1.0, 2.0, OTLP --> table --tick, if it changed--> metadata/pushed
//! start                       <--------------------------------'
//! ```
//!
//! Requests repeat the metadata of earlier ones, so that nearly always nothing changes: the metric
//! is looked up, compared, and its time updated. The metadata of scraped metrics is stored with
//! their targets.
//!
//! Invariant: the texts use at most [`BYTES_MAX`], and a metric whose metadata was pushed within
//! [`KEPT`] is never removed in favour of another one.

mod file;
#[cfg(test)]
mod tests;

use file::MetadataFile;
use firn_model::env::Disk;
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Name of the file in its folder.
pub const FILE_NAME: &str = "pushed";

/// Largest size of names and texts in bytes: enough for a hundred thousand metrics.
const BYTES_MAX: usize = 16 << 20;

/// Time for which a metric without pushes is kept when others need its space.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Shortest pause between two searches for removable metrics.
const SEARCH_PAUSE: Duration = Duration::from_secs(60);

/// Shortest pause between two writes of the file, which is always written as a whole.
const WRITE_PAUSE: Duration = Duration::from_secs(10);

/// The metadata of a metric family, as the target exposes it; absent fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FamilyMetadata {
    /// Name of the type, as in the text format.
    pub kind: &'static str,
    /// Help text; empty if there is none.
    pub help: String,
    /// Unit of the values; empty if there is none.
    pub unit: String,
}

impl From<MetricMetadata<'_>> for FamilyMetadata {
    fn from(said: MetricMetadata<'_>) -> Self {
        Self {
            kind: said.kind.name(),
            help: said.help.to_owned(),
            unit: said.unit.to_owned(),
        }
    }
}

/// The meaning of the names in a request's metadata, which depends on the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataNameKind {
    /// Names of metric families, as in remote write 1.0 and OTLP.
    Families,
    /// Names of series, as in remote write 2.0.
    Series,
}

/// The metadata of a metric, with the time of the latest push that contained it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PushedFamilyMetadata {
    kind: MetricType,
    help: Box<str>,
    unit: Box<str>,
    /// Time of the latest push that contained it, by the clock of this process.
    seen: TimestampMs,
}

impl PushedFamilyMetadata {
    fn memory_bytes(&self, name: &str) -> usize {
        size_of::<Self>() + name.len() + self.help.len() + self.unit.len()
    }

    fn is_same(&self, said: MetricMetadata<'_>) -> bool {
        self.kind == said.kind && *self.help == *said.help && *self.unit == *said.unit
    }
}

type Families = HashMap<Box<str>, PushedFamilyMetadata>;

#[derive(Debug, Default)]
struct PushedMetadataTable {
    tenants: BTreeMap<TenantId, Families>,
    bytes: usize,
    searched: TimestampMs,
    /// True if the table differs from the file.
    is_changed: bool,
}

/// The table of pushed metadata, and the file that stores it. Shared by the pipeline and the API.
#[derive(Debug, Default)]
pub struct PushedMetadata {
    table: Mutex<PushedMetadataTable>,
    /// Must be locked before the table.
    file: Mutex<Option<MetadataFile>>,
}

impl PushedMetadata {
    /// Reads the file in `dir`, and writes to it from now on. If the file cannot be read, returns
    /// an error and never overwrites it.
    pub fn open_file(&self, disk: Arc<dyn Disk>, dir: &Path, now: TimestampMs) -> io::Result<()> {
        let mut file = lock(&self.file);
        let opened = MetadataFile::open_folder(disk, dir)?;
        let mut table = lock(&self.table);
        opened.read_entries(&mut |tenant, said| {
            table.set_metadata(tenant, said, now);
        })?;
        table.is_changed = false;
        *file = Some(opened);
        Ok(())
    }

    /// Stores the metadata in a request of `tenant`; returns the number of metrics for which there
    /// was no space.
    pub(crate) fn record_metadata(
        &self,
        tenant: &TenantId,
        names: MetadataNameKind,
        said: &MetadataBatch,
        now: TimestampMs,
    ) -> usize {
        if said.is_empty() {
            return 0;
        }
        let mut table = lock(&self.table);
        let kept = said.iter().filter(|said| {
            let name = match names {
                MetadataNameKind::Families => said.name,
                MetadataNameKind::Series => family_name(said.name, said.kind),
            };
            table.set_metadata(tenant, MetricMetadata { name, ..*said }, now)
        });
        said.len() - kept.count()
    }

    /// Returns the metadata of the family `name`, or `None` if no push contained it.
    pub fn find_family(&self, tenant: &TenantId, name: &str) -> Option<FamilyMetadata> {
        let table = lock(&self.table);
        table
            .tenants
            .get(tenant)?
            .get(name)
            .map(FamilyMetadata::from)
    }

    /// Returns the type of the metric `name`; for a counter, the metadata may be under the name
    /// without `_total`.
    pub fn type_of_metric(&self, tenant: &TenantId, name: &str) -> Option<&'static str> {
        let table = lock(&self.table);
        let families = table.tenants.get(tenant)?;
        let names = [Some(name), name.strip_suffix("_total")];
        let known = names
            .into_iter()
            .flatten()
            .find_map(|name| families.get(name));
        known.map(|known| known.kind.name())
    }

    /// Calls `each` with the name and metadata of every family of the tenant, in no
    /// particular order.
    pub fn for_each_family(&self, tenant: &TenantId, mut each: impl FnMut(&str, &FamilyMetadata)) {
        let table = lock(&self.table);
        for (name, known) in table.tenants.get(tenant).into_iter().flatten() {
            each(name, &known.into());
        }
    }

    /// Returns the number of metrics with metadata, summed over all tenants.
    pub fn len(&self) -> usize {
        lock(&self.table).tenants.values().map(HashMap::len).sum()
    }

    /// Returns whether there is no metadata.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the file if the table has changed and the last write is not too recent. The caller
    /// must call this about once a second; it may block.
    pub fn write_if_due(&self, now: TimestampMs) -> io::Result<()> {
        self.write_table(|file| file.is_due(now, WRITE_PAUSE), now)
    }

    /// Writes the file if the table has changed. The caller must call this after all writes have
    /// ended; it may block.
    pub fn write_last(&self, now: TimestampMs) -> io::Result<()> {
        self.write_table(|_| true, now)
    }

    fn write_table(
        &self,
        is_due: impl Fn(&MetadataFile) -> bool,
        now: TimestampMs,
    ) -> io::Result<()> {
        let mut file = lock(&self.file);
        let Some(file) = file.as_mut().filter(|file| is_due(file)) else {
            return Ok(());
        };
        // Encoded under the lock of the table, but written without it.
        let bytes = {
            let mut table = lock(&self.table);
            if !std::mem::take(&mut table.is_changed) {
                return Ok(());
            }
            file::encode(table.tenants.iter().flat_map(|(tenant, families)| {
                families
                    .iter()
                    .map(move |(name, known)| (tenant, known.to_metadata(name)))
            }))
        };
        let written = file.replace_content(&bytes, now);
        if written.is_err() {
            lock(&self.table).is_changed = true;
        }
        written
    }
}

impl PushedFamilyMetadata {
    fn to_metadata<'a>(&'a self, name: &'a str) -> MetricMetadata<'a> {
        MetricMetadata {
            name,
            kind: self.kind,
            help: &self.help,
            unit: &self.unit,
        }
    }
}

impl From<&PushedFamilyMetadata> for FamilyMetadata {
    fn from(known: &PushedFamilyMetadata) -> Self {
        Self {
            kind: known.kind.name(),
            help: known.help.to_string(),
            unit: known.unit.to_string(),
        }
    }
}

impl PushedMetadataTable {
    /// Stores the metadata of a metric; returns false if there is no space.
    fn set_metadata(
        &mut self,
        tenant: &TenantId,
        said: MetricMetadata<'_>,
        now: TimestampMs,
    ) -> bool {
        let families = self.tenants.get_mut(tenant);
        let known = families.and_then(|families| families.get_mut(said.name));
        let mut before = 0;
        if let Some(known) = known {
            known.seen = now;
            if known.is_same(said) {
                return true;
            }
            before = known.memory_bytes(said.name);
        }
        let known = PushedFamilyMetadata {
            kind: said.kind,
            help: said.help.into(),
            unit: said.unit.into(),
            seen: now,
        };
        let bytes = known.memory_bytes(said.name);
        if self.bytes - before + bytes > BYTES_MAX && !self.make_space(before, bytes, now) {
            return false;
        }
        self.bytes = self.bytes - before + bytes;
        self.is_changed = true;
        let families = self.tenants.entry(tenant.clone()).or_default();
        families.insert(said.name.into(), known);
        true
    }

    /// Removes metrics without recent pushes, at most once a minute; returns whether that made
    /// enough space.
    fn make_space(&mut self, before: usize, bytes: usize, now: TimestampMs) -> bool {
        let pause = SEARCH_PAUSE.as_millis() as i64;
        if now.saturating_sub(self.searched) < pause {
            return false;
        }
        self.searched = now;
        let oldest = now.saturating_sub(KEPT.as_millis() as i64);
        let mut left = 0;
        for families in self.tenants.values_mut() {
            families.retain(|_, known| known.seen >= oldest);
            left += families
                .iter()
                .map(|(name, known)| known.memory_bytes(name))
                .sum::<usize>();
        }
        self.tenants.retain(|_, families| !families.is_empty());
        self.is_changed |= left < self.bytes;
        self.bytes = left;
        self.bytes - before + bytes <= BYTES_MAX
    }
}

/// Returns the family of the series `name`, by removing a suffix that series of this type have.
fn family_name(name: &str, kind: MetricType) -> &str {
    let endings: &[&str] = match kind {
        MetricType::Histogram | MetricType::GaugeHistogram => &["_bucket", "_count", "_sum"],
        MetricType::Summary => &["_count", "_sum"],
        _ => &[],
    };
    let mut stripped = endings.iter().filter_map(|end| name.strip_suffix(end));
    stripped.find(|family| !family.is_empty()).unwrap_or(name)
}
