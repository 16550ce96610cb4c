//! A log in memory that outlives the stores on it, like one in a bucket: it keeps encoded records.

use crate::log::codec::{LogRecordCoding, LogUnitDecoder, LogUnitEncoder};
use crate::sync::{Mutex, lock};
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{
    DurableCallbacks, DurableLog, LogBatch, LogDamage, LogFile, LogHealth, LogPosition,
    LogPositions, LogPressure, LogRecord, LogRecordReader,
};
use firn_model::metrics::{Collect, MetricSink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredRecord {
    coding: LogRecordCoding,
    payload: Vec<u8>,
}

/// The stored records, from position 1 on. Clones share them.
#[derive(Clone, Default)]
pub(super) struct RecordShelf(Arc<Mutex<Vec<StoredRecord>>>, Arc<AtomicU64>);

impl RecordShelf {
    /// Returns the bytes of the records after `position`.
    pub(super) fn bytes_after(&self, position: LogPosition) -> u64 {
        let records = lock(&self.0);
        let after = records.iter().skip(position.0 as usize);
        after.map(|record| record.payload.len() as u64).sum()
    }

    /// Hides the records before `to` from later writers.
    pub(super) fn trim(&self, to: LogPosition) {
        self.1.fetch_max(to.0, Ordering::Relaxed);
    }

    /// Returns the position of the first record that is not hidden.
    pub(super) fn first(&self) -> LogPosition {
        LogPosition(self.1.load(Ordering::Relaxed).max(1))
    }

    pub(super) fn records(&self) -> Vec<StoredRecord> {
        lock(&self.0).clone()
    }

    /// Opens a log for a new writer, which begins a unit.
    pub(super) fn open(&self) -> MemoryLog {
        MemoryLog {
            shelf: self.clone(),
            state: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct MemoryLogState {
    encoder: LogUnitEncoder,
    is_closed: bool,
    sealed: LogPosition,
}

/// A writer of the records of a shelf.
pub(super) struct MemoryLog {
    shelf: RecordShelf,
    state: Mutex<MemoryLogState>,
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the log is closed".to_owned())
}

impl DurableLog for MemoryLog {
    fn check_append(&self) -> Result<(), Error> {
        if lock(&self.state).is_closed {
            Err(closed())
        } else {
            Ok(())
        }
    }

    fn append(&self, batch: LogBatch, done: DurableCallbacks) {
        let mut state = lock(&self.state);
        if state.is_closed {
            drop(state);
            return done.report_outcome(Err(closed()));
        }
        let mut records = lock(&self.shelf.0);
        let position = LogPosition(records.len() as u64 + 1);
        let mut payload = Vec::new();
        let coding = state.encoder.encode(position, &batch, &mut payload);
        let coding = coding.expect("batches of tests are small");
        records.push(StoredRecord { coding, payload });
        drop(records);
        // Under the lock, so that records are reported in their order.
        done.report_outcome(Ok(position));
        drop(state);
    }

    fn write_held_records(&self) {}

    fn read_from(&self, from: LogPosition) -> Box<dyn LogRecordReader + '_> {
        let records = self.shelf.records();
        Box::new(ShelfReader {
            records: records.into_iter(),
            decoder: LogUnitDecoder::default(),
            position: LogPosition(0),
            from: from.max(self.shelf.first()),
        })
    }

    fn positions(&self) -> LogPositions {
        let last = LogPosition(lock(&self.shelf.0).len() as u64);
        LogPositions {
            first: self.shelf.first(),
            last,
            durable: last,
            growing: LogPosition(1),
            trims_from: LogPosition(u64::MAX),
        }
    }

    fn pressure(&self) -> LogPressure {
        let sealed = lock(&self.state).sealed;
        LogPressure {
            kept_bytes: self.shelf.bytes_after(LogPosition(0)),
            unsealed_bytes: self.shelf.bytes_after(sealed),
            ..LogPressure::default()
        }
    }

    fn health(&self) -> LogHealth {
        LogHealth::Sound
    }

    fn tick(&self) {}

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn begin_unit(&self) -> Result<(), Error> {
        lock(&self.state).encoder.begin_unit();
        Ok(())
    }

    fn files(&self) -> Vec<LogFile> {
        Vec::new()
    }

    fn mark_sealed(&self, to: LogPosition) {
        lock(&self.state).sealed = to.previous();
    }

    fn trim(&self, _to: LogPosition) -> Result<(), Error> {
        panic!("a log that keeps its records was trimmed");
    }

    fn close(&self) -> Result<(), Error> {
        self.abandon();
        Ok(())
    }

    fn abandon(&self) {
        lock(&self.state).is_closed = true;
    }

    fn remove_all(&self) -> Result<(), Error> {
        panic!("a log that keeps its records was removed");
    }

    fn metrics(&self) -> &dyn Collect {
        self
    }
}

impl Collect for MemoryLog {
    fn collect(&self, _sink: &mut dyn MetricSink) {}
}

/// Decodes the records of a shelf from the first one on.
struct ShelfReader {
    records: std::vec::IntoIter<StoredRecord>,
    decoder: LogUnitDecoder,
    position: LogPosition,
    from: LogPosition,
}

impl LogRecordReader for ShelfReader {
    fn next(&mut self) -> Result<Option<Result<LogRecord, LogDamage>>, Error> {
        loop {
            let Some(record) = self.records.next() else {
                return Ok(None);
            };
            self.position = self.position.next();
            let position = self.position;
            let decoded = self
                .decoder
                .decode(position, record.coding, &record.payload);
            if position < self.from {
                continue;
            }
            let damage = |e: Error| LogDamage {
                file: PathBuf::new(),
                offset: None,
                what: e.to_string(),
            };
            let record = decoded.map(|batch| LogRecord { position, batch });
            return Ok(Some(record.map_err(damage)));
        }
    }
}
