//! Appends of peers: from the frame to the store of a partition, and its outcome.
//!
//! ```text
//! frame -> partition -> leads? -> batch with undecoded keys -> store -> ticket -> outcome
//! ```
//!
//! Labels of series that the store does not find are decoded like those of remote write, with the
//! same limits. Invariant: the memory of a batch is reserved until its append returns. The work
//! runs on a thread that may wait if the store may wait, or if the frame is large.

use super::PeerServerState;
use crate::bytes::PeerFrameReader;
use crate::failure::{PeerFailure, encode_answer};
use crate::frames::append::{AppendFrame, EncodedAppend, decode_append};
use crate::frames::outcome::{PeerAppended, PeerSeriesRejection, encode_appended};
use bytes::Bytes;
use firn_model::batch::{Batch, BatchSource};
use firn_model::budget::Reservation;
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{Fingerprint, HashKeys};
use firn_model::store::{Append, Ticket};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_wire::WireLimits;
use firn_wire::remote_write::DecodedWriteRequest;
use std::sync::{Arc, Mutex};

/// Frames of more bytes are decoded on a thread that may wait.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// Memory for a batch beyond its frame, in sizes of the frame. Frames of floats need less.
const BATCH_FACTOR: usize = 2;

/// Maximum number of idle batches, and of bytes of each.
const IDLE_MAX: usize = 8;
const IDLE_BYTES_MAX: usize = 4 << 20;

/// Batches whose memory the next appends use.
#[derive(Default)]
pub(super) struct IdleBatches(Mutex<Vec<Batch>>);

impl IdleBatches {
    fn take(&self) -> Batch {
        lock(&self.0).pop().unwrap_or_default()
    }

    fn put(&self, mut batch: Batch) {
        batch.clear();
        let mut idle = lock(&self.0);
        if idle.len() < IDLE_MAX && batch.memory_bytes() <= IDLE_BYTES_MAX {
            idle.push(batch);
        }
    }
}

/// Appends the batch of a frame. Returns the frame of the answer.
pub(super) async fn answer_append(
    state: Arc<PeerServerState>,
    frame: Bytes,
    memory: Option<Reservation>,
) -> Vec<u8> {
    let appended = append_frame(state, frame, memory).await;
    encode_answer(&appended, encode_appended)
}

async fn append_frame(
    state: Arc<PeerServerState>,
    frame: Bytes,
    memory: Option<Reservation>,
) -> Result<PeerAppended, PeerFailure> {
    let partition = PeerFrameReader::new(&frame).u32()?;
    let count = state.options.partitions;
    if partition >= count {
        let text = format!("unknown partition {partition}, the cluster has {count}");
        return Err(PeerFailure::Rejected(text));
    }
    let appender = state.service.appender(partition)?;
    let waits = frame.len() > INLINE_BYTES_MAX || appender.may_wait();
    let store = appender.clone();
    let begin = move || begin_append(&state, &*store, &frame, memory);
    let begun = if waits {
        let begun = tokio::task::spawn_blocking(begin).await;
        let panicked = |_| Error::new(ErrorKind::Internal, "the append panicked").into();
        begun.unwrap_or_else(|e| Err(panicked(e)))
    } else {
        begin()
    }?;
    let outcome = begun.ticket.await?;
    Ok(PeerAppended {
        outcome,
        newest: appender.newest_time(&begun.tenant),
        invalid_series: begun.invalid_series,
    })
}

/// An append whose batch has been passed to the store.
struct BegunAppend {
    ticket: Ticket,
    tenant: TenantId,
    invalid_series: Vec<PeerSeriesRejection>,
}

fn begin_append(
    state: &PeerServerState,
    store: &dyn Append,
    frame: &[u8],
    memory: Option<Reservation>,
) -> Result<BegunAppend, PeerFailure> {
    let mut memory = memory.unwrap_or_else(|| state.budget.create_reservation());
    let grown = memory.grow(frame.len().saturating_mul(BATCH_FACTOR));
    grown.map_err(|e| PeerFailure::Unavailable(e.message))?;
    let mut batch = state.batches.take();
    let begun = match decode_append(frame, &mut batch) {
        Ok(decoded) => {
            memory.set(frame.len() + batch.memory_bytes());
            begin_batch(store, decoded, &mut batch)
        }
        Err(malformed) => Err(malformed.into()),
    };
    state.batches.put(batch);
    begun
}

fn begin_batch(
    store: &dyn Append,
    frame: AppendFrame,
    batch: &mut Batch,
) -> Result<BegunAppend, PeerFailure> {
    let limits = WireLimits::default();
    let mut source = PeerBatchSource {
        request: DecodedWriteRequest::of_keys(batch, &limits),
        frame,
    };
    let (tenant, bounds) = (source.frame.tenant.clone(), source.frame.bounds);
    let ticket = store.append_from(&tenant, &mut source, bounds);
    let refused = source.request.finish();
    let refused = refused.map_err(|e| PeerFailure::Failed(e.into()))?;
    let invalid = refused.iter().map(|refused| PeerSeriesRejection {
        series_count: refused.series_count,
        sample_count: refused.sample_count,
        first: refused.first.clone(),
    });
    Ok(BegunAppend {
        ticket,
        tenant,
        invalid_series: invalid.collect(),
    })
}

impl EncodedAppend {
    /// Appends the part to a store of this process, for a node that became the leader after it
    /// had encoded the part. The outcome is that of an append at a peer.
    ///
    /// # Errors
    ///
    /// The error of the store, as [`PeerFailure::Failed`].
    pub async fn append_to(&self, store: Arc<dyn Append>) -> Result<PeerAppended, PeerFailure> {
        let (frame, appender) = (self.frame().clone(), store.clone());
        let begin = move || -> Result<BegunAppend, PeerFailure> {
            let mut batch = Batch::default();
            let decoded = decode_append(&frame, &mut batch)?;
            begin_batch(&*appender, decoded, &mut batch)
        };
        let begun = tokio::task::spawn_blocking(begin).await;
        let panicked = |_| Error::new(ErrorKind::Internal, "the append panicked").into();
        let begun = begun.unwrap_or_else(|e| Err(panicked(e)))?;
        let mut outcome = begun.ticket.await?;
        self.restore_numbers(&mut outcome)?;
        Ok(PeerAppended {
            outcome,
            newest: store.newest_time(&begun.tenant),
            invalid_series: begun.invalid_series,
        })
    }
}

/// The batch of a frame as a source: keys of remote write with known fingerprints.
struct PeerBatchSource<'d> {
    request: DecodedWriteRequest<'d>,
    frame: AppendFrame,
}

impl BatchSource for PeerBatchSource<'_> {
    fn batch(&self) -> &Batch {
        self.request.batch()
    }

    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error> {
        self.request.read_labels(series)
    }

    /// Returns the fingerprints of the frame, unless the store has other hash keys. Debug builds
    /// check those of undecoded keys.
    fn fingerprints(&self, keys: &HashKeys) -> Option<&[Fingerprint]> {
        if !self.frame.has_hash_keys(keys) {
            return None;
        }
        let batch = self.request.batch();
        let is_of_key = |(series, print): (usize, &Fingerprint)| {
            let key = batch.key(series);
            key.is_none_or(|key| keys.fingerprint(key) == *print)
        };
        debug_assert!(
            self.frame.prints.iter().enumerate().all(is_of_key),
            "fingerprints of a frame differ from its keys"
        );
        Some(&self.frame.prints)
    }

    fn remove_series(&mut self, series: &[u32]) -> Option<Batch> {
        let mut removed = series.iter().peekable();
        let mut index = 0;
        self.frame.prints.retain(|_| {
            let is_removed = removed.next_if(|removed| **removed == index).is_some();
            index += 1;
            !is_removed
        });
        self.request.remove_series(series)
    }
}
