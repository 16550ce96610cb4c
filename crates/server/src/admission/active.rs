//! The file of active queries: what ran when the process died is logged at the next start.
//!
//! ```text
//! open: read what is left -> log it -> write zeros over the whole file, sync once
//! enter(place): write the place's slot         drop of the guard: mark the slot as free
//! ```
//!
//! Every query slot of the server has a slot in the file ([`record`]), one page of the system's
//! cache, written by one call. Nothing is synced: the cache belongs to the system and outlives the
//! process however it ends, so a query costs two short writes. A power cut may lose what was not
//! written back yet. All slots are written in full at the start, so that a disk that fills up later
//! has nothing to give, and takes what is written over them.
//!
//! Invariant: neither this file nor the lack of it fails a query or a start. What is wrong with it
//! is a warning. How many queries run is left to [`crate::admission::queue`].

mod record;

use crate::json;
use firn_model::env::{Disk, Env, File, OpenMode};
use firn_model::sample::TimestampMs;
use record::{Found, Header};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

pub(crate) use record::{Range, Record, SLOT_BYTES};

/// The file's name in the data folder: Prometheus's.
const NAME: &str = "queries.active";

/// Slots that are read of a file that says that it has more: the most that a start may cost, 64 MiB
/// of reads.
const SLOTS_READ_MAX: u64 = 16 << 10;

/// The file, while the process has it. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct ActiveQueries {
    file: Option<Arc<dyn File>>,
    /// Slots that are there; queries beyond leave no trace.
    slots: usize,
    has_failed: Arc<AtomicBool>,
}

impl ActiveQueries {
    /// Logs the queries that were active when the last process on the folder `dir` ended, and
    /// prepares the file for `slots` queries at one time. The caller owns the folder.
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

    /// No file: nothing is written down.
    pub fn none() -> Self {
        Self {
            file: None,
            slots: 0,
            has_failed: Arc::default(),
        }
    }

    /// Writes `record` into the slot of `place`, which no other query has, until the guard is
    /// dropped.
    pub(crate) fn enter(&self, place: usize, record: &Record<'_>) -> Option<Entry> {
        let file = self.file.as_ref().filter(|_| place < self.slots)?;
        let entry = Entry {
            queries: self.clone(),
            offset: record::offset_of(place as u64),
        };
        self.note(file.write_all_at(entry.offset, &record.encode()));
        Some(entry)
    }

    /// Warns of the first write that fails: the others would fail likewise.
    fn note(&self, outcome: io::Result<()>) {
        let Err(e) = outcome else { return };
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            warn!(file = NAME, error = %e, "failed to record an active query");
        }
    }
}

/// A query that is written down.
pub(crate) struct Entry {
    queries: ActiveQueries,
    offset: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(file) = &self.queries.file {
            let written = file.write_all_at(self.offset, &record::FREE);
            self.queries.note(written);
        }
    }
}

/// Opens or creates the file; returns it with the records left in it.
fn prepare(disk: &dyn Disk, dir: &Path, slots: usize) -> io::Result<(Arc<dyn File>, Vec<Found>)> {
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

/// The records in the file. Whatever is no record is passed over: it may be torn, or not ours.
fn read_left(file: &dyn File) -> io::Result<Vec<Found>> {
    let mut bytes = vec![0; SLOT_BYTES];
    let read = file.read_at(0, &mut bytes)?;
    match Header::decode(&bytes[..read]) {
        Header::Ours => {}
        // A start may have ended before it wrote anything.
        Header::Empty => return Ok(Vec::new()),
        Header::Foreign => {
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
        left.extend(Found::decode(&bytes[..read]));
    }
    Ok(left)
}

/// How far the file could be written.
struct Written {
    slots: usize,
    outcome: io::Result<()>,
}

/// Writes the header and `slots` free slots, every byte of them.
fn write_empty(file: &dyn File, slots: usize) -> Written {
    let mut written = Written {
        slots: 0,
        outcome: file.write_all_at(0, &Header::encode()),
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

fn log_unfinished(left: &Found) {
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

/// Milliseconds in the form of the API's parameters.
fn seconds(ms: TimestampMs) -> String {
    let mut text = Vec::new();
    json::push_timestamp(&mut text, ms);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests;
