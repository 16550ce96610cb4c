//! The file of active queries. Queries that were running when the process crashed are logged at the
//! next start.
//!
//! ```text
//! open: read the remaining records -> log them -> overwrite the file with zeros, sync once
//! enter(place): write the slot of the place          guard dropped: mark the slot as free
//! ```
//!
//! Every query place of the server has a slot in the file ([`record`]): one page of the system's
//! cache, written by a single call. Records are not synced, because the page cache survives the
//! process, so a query costs two short writes. A power failure may lose records. All slots are
//! written completely at the start, so that later writes need no free disk space.
//!
//! Invariant: neither the file nor its absence fails a query or a start; problems are logged as
//! warnings. The number of concurrent queries is limited by [`crate::admission::queue`].

mod record;

use crate::json;
use firn_model::env::{Disk, DiskFile, Env, OpenMode};
use firn_model::sample::TimestampMs;
use record::{ActiveFileHeader, RecoveredQuery};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

pub(crate) use record::{ActiveQueryRange, ActiveQueryRecord, SLOT_BYTES};

/// Name of the file in the data folder, the same as in Prometheus.
const NAME: &str = "queries.active";

/// Maximum number of slots that a start reads from an existing file, 64 MiB in total.
const SLOTS_READ_MAX: u64 = 16 << 10;

/// The opened file of active queries, or none if it could not be opened. Cheap to clone; clones
/// share the file.
#[derive(Clone)]
pub struct ActiveQueries {
    file: Option<Arc<dyn DiskFile>>,
    /// Number of slots in the file. Queries in higher places are not recorded.
    slots: usize,
    has_failed: Arc<AtomicBool>,
}

impl ActiveQueries {
    /// Logs the queries that were active when the previous process in `dir` ended, and prepares the
    /// file for `slots` concurrent queries. The caller must own the folder. A failure is logged,
    /// and queries are then not recorded.
    pub fn open(env: &Env, dir: &Path, slots: usize) -> Self {
        let (file, left) = match prepare(&*env.disk, dir, slots) {
            Ok(prepared) => prepared,
            Err(e) => {
                warn!(
                    file = NAME,
                    error = %e,
                    "active queries are not recorded: if a query crashes the process, the next \
                     start cannot report it"
                );
                return Self::none();
            }
        };
        for record in &left {
            log_unfinished(record);
        }
        let written = write_empty(&*file, slots);
        if let Err(e) = &written.outcome {
            warn!(
                file = NAME,
                slots = written.slots,
                error = %e,
                "not all active queries are recorded: if one crashes the process, the next start \
                 may not report it"
            );
        }
        Self {
            file: Some(file),
            slots: written.slots,
            has_failed: Arc::default(),
        }
    }

    /// Creates an instance without a file, which records nothing and never fails.
    pub fn none() -> Self {
        Self {
            file: None,
            slots: 0,
            has_failed: Arc::default(),
        }
    }

    /// Writes `record` into the slot of `place`, which must not be in use by another query. The
    /// slot is freed when the returned guard is dropped.
    pub(crate) fn enter(
        &self,
        place: usize,
        record: &ActiveQueryRecord<'_>,
    ) -> Option<ActiveQueryGuard> {
        let file = self.file.as_ref().filter(|_| place < self.slots)?;
        let entry = ActiveQueryGuard {
            queries: self.clone(),
            offset: record::offset_of(place as u64),
        };
        self.log_first_failure(file.write_all_at(entry.offset, &record.encode()));
        Some(entry)
    }

    /// Logs the first failed write. Later ones are likely to fail for the same reason.
    fn log_first_failure(&self, outcome: io::Result<()>) {
        let Err(e) = outcome else { return };
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            warn!(file = NAME, error = %e, "failed to record an active query");
        }
    }
}

/// Guard of a recorded query. Marks the slot as free when it is dropped, also after a panic.
pub(crate) struct ActiveQueryGuard {
    queries: ActiveQueries,
    offset: u64,
}

impl Drop for ActiveQueryGuard {
    fn drop(&mut self) {
        if let Some(file) = &self.queries.file {
            let written = file.write_all_at(self.offset, &record::FREE);
            self.queries.log_first_failure(written);
        }
    }
}

/// Opens or creates the file. Returns it with the records of the previous process.
fn prepare(
    disk: &dyn Disk,
    dir: &Path,
    slots: usize,
) -> io::Result<(Arc<dyn DiskFile>, Vec<RecoveredQuery>)> {
    let path = dir.join(NAME);
    let file = match disk.open(&path, OpenMode::Write) {
        Ok(file) => {
            let left = read_left(&*file)?;
            let bytes = record::offset_of(slots as u64);
            if file.len()? > bytes {
                file.set_len(bytes)?;
            }
            return Ok((file, left));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => disk.open(&path, OpenMode::CreateNew)?,
        Err(e) => return Err(e),
    };
    disk.sync_dir(dir)?;
    Ok((file, Vec::new()))
}

/// Returns the valid records in the file. Other slots are skipped: they may be torn or written by
/// other software.
fn read_left(file: &dyn DiskFile) -> io::Result<Vec<RecoveredQuery>> {
    let mut bytes = vec![0; SLOT_BYTES];
    let read = file.read_at(0, &mut bytes)?;
    match ActiveFileHeader::decode(&bytes[..read]) {
        ActiveFileHeader::Ours => {}
        // The previous start may have ended before its first write.
        ActiveFileHeader::Empty => return Ok(Vec::new()),
        ActiveFileHeader::Foreign => {
            warn!(
                file = NAME,
                "file of active queries is not readable: creating a new one"
            );
            return Ok(Vec::new());
        }
    }
    let mut left = Vec::new();
    for slot in 0..SLOTS_READ_MAX {
        let read = file.read_at(record::offset_of(slot), &mut bytes)?;
        if read == 0 {
            break;
        }
        left.extend(RecoveredQuery::decode(&bytes[..read]));
    }
    Ok(left)
}

/// Result of writing the empty slots: the number of complete slots, which remain usable, and the
/// first error.
struct SlotWriteOutcome {
    slots: usize,
    outcome: io::Result<()>,
}

/// Writes the header and `slots` free slots completely, then syncs the file.
fn write_empty(file: &dyn DiskFile, slots: usize) -> SlotWriteOutcome {
    let mut written = SlotWriteOutcome {
        slots: 0,
        outcome: file.write_all_at(0, &ActiveFileHeader::encode()),
    };
    let zeros = [0; SLOT_BYTES];
    while written.outcome.is_ok() && written.slots < slots {
        let offset = record::offset_of(written.slots as u64);
        written.outcome = file.write_all_at(offset, &zeros);
        written.slots += usize::from(written.outcome.is_ok());
    }
    if written.outcome.is_ok() {
        written.outcome = file.sync_data();
    }
    written
}

fn log_unfinished(left: &RecoveredQuery) {
    warn!(
        expression = left.expression,
        cut_bytes = left.cut_bytes,
        handler = left.handler,
        tenant = left.tenant,
        started = seconds(left.started),
        start = left.range.map(|range| seconds(range.start)),
        end = left.range.map(|range| seconds(range.end)),
        step = left.range.map(|range| seconds(range.step_ms)),
        "query was active when the process ended"
    );
}

/// Formats milliseconds as seconds with a fraction, like the parameters of the API.
fn seconds(ms: TimestampMs) -> String {
    let mut text = Vec::new();
    json::push_timestamp(&mut text, ms);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests;
