//! Appends of peers: from the parts of a request to the stores of partitions, and their outcomes.
//!
//! ```text
//! request -> parts, each: frame -> partition -> leads? -> batch with undecoded keys -> store
//!         -> tickets -> outcomes
//! ```
//!
//! Labels of series that a store does not find are decoded like those of remote write, with the
//! same limits. Invariants: a part fails alone; memory for the batch of one part is reserved until
//! the last part is passed to its store. The work runs on a thread that may wait if a store may
//! wait, or if the request is large.

use super::PeerServerState;
use crate::bytes::PeerFrameReader;
use crate::failure::{PeerFailure, encode_answer};
use crate::frames::append::{AppendFrame, EncodedAppend, decode_append};
use crate::frames::append_parts::{PartAnswer, encode_answers, split_parts};
use crate::frames::outcome::{PeerAppended, PeerSeriesRejection};
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

/// Requests of more bytes are decoded on a thread that may wait.
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

/// Appends the parts of a request. Returns the frame of the answer.
pub(super) async fn answer_append(
    state: Arc<PeerServerState>,
    request: Bytes,
    memory: Option<Reservation>,
) -> Vec<u8> {
    let answers = append_parts(state, request, memory).await;
    encode_answer(&answers, |answers, into| encode_answers(answers, into))
}

async fn append_parts(
    state: Arc<PeerServerState>,
    request: Bytes,
    memory: Option<Reservation>,
) -> Result<Vec<PartAnswer>, PeerFailure> {
    let frames = split_parts(&request)?.into_iter();
    let parts: Vec<_> = frames
        .map(|frame| ReceivedPart::find(&state, request.slice_ref(frame)))
        .collect();
    let waits = request.len() > INLINE_BYTES_MAX
        || parts
            .iter()
            .any(|part| part.as_ref().is_ok_and(ReceivedPart::may_wait));
    let begin = move || begin_parts(&state, parts, request.len(), memory);
    let begun = if waits {
        let begun = tokio::task::spawn_blocking(begin).await;
        let panicked = |_| Error::new(ErrorKind::Internal, "the append panicked").into();
        begun.unwrap_or_else(|e| Err(panicked(e)))
    } else {
        begin()
    }?;
    let mut answers = Vec::with_capacity(begun.len());
    for part in begun {
        answers.push(match part {
            Ok(part) => part.finish().await,
            Err(failure) => Err(failure),
        });
    }
    Ok(answers)
}

/// A part of a request, whose partition this node leads.
struct ReceivedPart {
    frame: Bytes,
    store: Arc<dyn Append>,
}

impl ReceivedPart {
    fn find(state: &PeerServerState, frame: Bytes) -> Result<Self, PeerFailure> {
        let partition = PeerFrameReader::new(&frame).u32()?;
        let count = state.options.partitions;
        if partition >= count {
            let text = format!("unknown partition {partition}, the cluster has {count}");
            return Err(PeerFailure::Rejected(text));
        }
        let store = state.service.appender(partition)?;
        Ok(Self { frame, store })
    }

    fn may_wait(&self) -> bool {
        self.store.may_wait()
    }

    /// Decodes the part, and passes it to its store after `on_decoded` was called with its batch.
    fn begin(
        self,
        batch: &mut Batch,
        on_decoded: impl FnOnce(&Batch),
    ) -> Result<BegunAppend, PeerFailure> {
        let decoded = decode_append(&self.frame, batch)?;
        on_decoded(batch);
        begin_batch(self.store, decoded, batch)
    }
}

/// An append whose batch has been passed to the store.
struct BegunAppend {
    store: Arc<dyn Append>,
    ticket: Ticket,
    tenant: TenantId,
    invalid_series: Vec<PeerSeriesRejection>,
}

impl BegunAppend {
    async fn finish(self) -> PartAnswer {
        Ok(PeerAppended {
            outcome: self.ticket.await?,
            newest: self.store.newest_time(&self.tenant),
            invalid_series: self.invalid_series,
        })
    }
}

/// Decodes the parts of a request of `request_bytes`, and passes them to their stores.
fn begin_parts(
    state: &PeerServerState,
    parts: Vec<Result<ReceivedPart, PeerFailure>>,
    request_bytes: usize,
    memory: Option<Reservation>,
) -> Result<Vec<Result<BegunAppend, PeerFailure>>, PeerFailure> {
    let mut memory = memory.unwrap_or_else(|| state.budget.create_reservation());
    let grown = memory.grow(request_bytes.saturating_mul(BATCH_FACTOR));
    grown.map_err(|e| PeerFailure::Unavailable(e.message))?;
    let mut batch = state.batches.take();
    let begin = |part: Result<ReceivedPart, PeerFailure>| {
        let account = |batch: &Batch| memory.set(request_bytes + batch.memory_bytes());
        part?.begin(&mut batch, account)
    };
    let begun = parts.into_iter().map(begin).collect();
    state.batches.put(batch);
    Ok(begun)
}

fn begin_batch(
    store: Arc<dyn Append>,
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
        store,
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
    pub async fn append_to(&self, store: Arc<dyn Append>) -> PartAnswer {
        let frame = self.frame().clone();
        let begin = move || ReceivedPart { frame, store }.begin(&mut Batch::default(), |_| ());
        let begun = tokio::task::spawn_blocking(begin).await;
        let panicked = |_| Error::new(ErrorKind::Internal, "the append panicked").into();
        let begun = begun.unwrap_or_else(|e| Err(panicked(e)))?;
        let mut appended = begun.finish().await?;
        self.restore_numbers(&mut appended.outcome)?;
        Ok(appended)
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
