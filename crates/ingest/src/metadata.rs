//! What pushes say of metrics: type, help and unit, the newest for each metric.
//!
//! ```text
//! remote write 1.0, 2.0, OTLP --> table --tick, if it changed--> metadata/pushed
//! start                       <--------------------------------'
//! ```
//!
//! A request repeats what those before it said, so that nearly always nothing changes: a metric is
//! looked up, compared, and its day noted. What scrapes say is kept with their targets.
//!
//! Invariant: the texts take [`BYTES_MAX`] at most; a metric that was said something of within
//! [`KEPT`] gives way to no other.

mod file;
#[cfg(test)]
mod tests;

use crate::scrape::FamilyMetadata;
use file::MetadataFile;
use firn_model::env::Disk;
use firn_model::metadata::{Metadata, MetadataBatch, MetricType};
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the file is called in its folder.
pub const FILE_NAME: &str = "pushed";

/// Bytes of names and texts: those of a hundred thousand metrics, as much as of one target.
const BYTES_MAX: usize = 16 << 20;

/// For how long a metric of which nothing is said stays where others need its place.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The least time between two searches for metrics that may go.
const SEARCH_PAUSE: Duration = Duration::from_secs(60);

/// The least time between two writes of the file: it is written as a whole.
const WRITE_PAUSE: Duration = Duration::from_secs(10);

/// Whose names a request brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Those of families, as remote write 1.0 and OTLP do.
    Families,
    /// Those of series, as remote write 2.0 does.
    Series,
}

/// What was said of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    kind: MetricType,
    help: Box<str>,
    unit: Box<str>,
    /// When something was said last, by the clock of this process.
    seen: TimestampMs,
}

impl Known {
    fn bytes(&self, name: &str) -> usize {
        size_of::<Self>() + name.len() + self.help.len() + self.unit.len()
    }

    fn says(&self, said: Metadata<'_>) -> bool {
        self.kind == said.kind && *self.help == *said.help && *self.unit == *said.unit
    }
}

type Families = HashMap<Box<str>, Known>;

#[derive(Debug, Default)]
struct Table {
    tenants: BTreeMap<TenantId, Families>,
    bytes: usize,
    searched: TimestampMs,
    /// Whether the file does not have it as it is.
    is_changed: bool,
}

/// What pushes said, and the file that keeps it.
#[derive(Debug, Default)]
pub struct PushedMetadata {
    table: Mutex<Table>,
    /// Locked before the table.
    file: Mutex<Option<MetadataFile>>,
}

impl PushedMetadata {
    /// Reads the file in `dir`, and writes there from here on. A file that cannot be read is an
    /// error and stays as it is: nothing is written then.
    pub fn open(&self, disk: Arc<dyn Disk>, dir: &Path, now: TimestampMs) -> io::Result<()> {
        let mut file = lock(&self.file);
        let opened = MetadataFile::open(disk, dir)?;
        let mut table = lock(&self.table);
        opened.read(&mut |tenant, said| {
            table.set(tenant, said, now);
        })?;
        table.is_changed = false;
        *file = Some(opened);
        Ok(())
    }

    /// Takes what a request of `tenant` says; returns of how many metrics nothing could be kept.
    pub(crate) fn note(
        &self,
        tenant: &TenantId,
        names: Names,
        said: &MetadataBatch,
        now: TimestampMs,
    ) -> usize {
        if said.is_empty() {
            return 0;
        }
        let mut table = lock(&self.table);
        let kept = said.iter().filter(|said| {
            let name = match names {
                Names::Families => said.name,
                Names::Series => family_of(said.name, said.kind),
            };
            table.set(tenant, Metadata { name, ..*said }, now)
        });
        said.len() - kept.count()
    }

    /// What was said of the family `name`.
    pub fn find(&self, tenant: &TenantId, name: &str) -> Option<FamilyMetadata> {
        let table = lock(&self.table);
        table
            .tenants
            .get(tenant)?
            .get(name)
            .map(FamilyMetadata::from)
    }

    /// What was said that the metric `name` is; a counter may be said by the name of its family.
    pub fn type_of(&self, tenant: &TenantId, name: &str) -> Option<&'static str> {
        let table = lock(&self.table);
        let families = table.tenants.get(tenant)?;
        let names = [Some(name), name.strip_suffix("_total")];
        let known = names
            .into_iter()
            .flatten()
            .find_map(|name| families.get(name));
        known.map(|known| known.kind.name())
    }

    /// Hands out what was said of each family, in no order.
    pub fn each(&self, tenant: &TenantId, mut each: impl FnMut(&str, &FamilyMetadata)) {
        let table = lock(&self.table);
        for (name, known) in table.tenants.get(tenant).into_iter().flatten() {
            each(name, &known.into());
        }
    }

    /// Metrics of which something was said.
    pub fn len(&self) -> usize {
        lock(&self.table).tenants.values().map(HashMap::len).sum()
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the file if something changed and it was not written just now; to be called about
    /// once a second. May block.
    pub fn tick(&self, now: TimestampMs) -> io::Result<()> {
        self.write(|file| file.is_due(now, WRITE_PAUSE), now)
    }

    /// Writes the file if something changed; to be called when all writes ended. May block.
    pub fn finish(&self, now: TimestampMs) -> io::Result<()> {
        self.write(|_| true, now)
    }

    fn write(&self, is_due: impl Fn(&MetadataFile) -> bool, now: TimestampMs) -> io::Result<()> {
        let mut file = lock(&self.file);
        let Some(file) = file.as_mut().filter(|file| is_due(file)) else {
            return Ok(());
        };
        // Encoded under the lock, written behind it.
        let bytes = {
            let mut table = lock(&self.table);
            if !std::mem::take(&mut table.is_changed) {
                return Ok(());
            }
            file::encode(table.tenants.iter().flat_map(|(tenant, families)| {
                families
                    .iter()
                    .map(move |(name, known)| (tenant, known.said(name)))
            }))
        };
        let written = file.write(&bytes, now);
        if written.is_err() {
            lock(&self.table).is_changed = true;
        }
        written
    }
}

impl Known {
    fn said<'a>(&'a self, name: &'a str) -> Metadata<'a> {
        Metadata {
            name,
            kind: self.kind,
            help: &self.help,
            unit: &self.unit,
        }
    }
}

impl From<&Known> for FamilyMetadata {
    fn from(known: &Known) -> Self {
        Self {
            kind: known.kind.name(),
            help: known.help.to_string(),
            unit: known.unit.to_string(),
        }
    }
}

impl Table {
    /// Keeps what is said, if there is room.
    fn set(&mut self, tenant: &TenantId, said: Metadata<'_>, now: TimestampMs) -> bool {
        let families = self.tenants.get_mut(tenant);
        let known = families.and_then(|families| families.get_mut(said.name));
        let mut before = 0;
        if let Some(known) = known {
            known.seen = now;
            if known.says(said) {
                return true;
            }
            before = known.bytes(said.name);
        }
        let known = Known {
            kind: said.kind,
            help: said.help.into(),
            unit: said.unit.into(),
            seen: now,
        };
        let bytes = known.bytes(said.name);
        if self.bytes - before + bytes > BYTES_MAX && !self.make_room(before, bytes, now) {
            return false;
        }
        self.bytes = self.bytes - before + bytes;
        self.is_changed = true;
        let families = self.tenants.entry(tenant.clone()).or_default();
        families.insert(said.name.into(), known);
        true
    }

    /// Lets metrics go of which nothing was said for long; whether that was enough.
    fn make_room(&mut self, before: usize, bytes: usize, now: TimestampMs) -> bool {
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
                .map(|(name, known)| known.bytes(name))
                .sum::<usize>();
        }
        self.tenants.retain(|_, families| !families.is_empty());
        self.is_changed |= left < self.bytes;
        self.bytes = left;
        self.bytes - before + bytes <= BYTES_MAX
    }
}

/// The family of the series `name`, as far as its type says how those of its series end.
fn family_of(name: &str, kind: MetricType) -> &str {
    let endings: &[&str] = match kind {
        MetricType::Histogram | MetricType::GaugeHistogram => &["_bucket", "_count", "_sum"],
        MetricType::Summary => &["_count", "_sum"],
        _ => &[],
    };
    let mut stripped = endings.iter().filter_map(|end| name.strip_suffix(end));
    stripped.find(|family| !family.is_empty()).unwrap_or(name)
}
