//! Requests for remote-write receivers: encodes stored samples as requests, which a queue keeps.
//!
//! ```text
//! batch -> remote write request -> kept on disk (ReceiverQueue) -> acknowledged
//! ```
//!
//! A pushed request is kept unchanged, unless it contains samples that are too far in the future to
//! be stored. Only those are certain to be rejected before the store has processed them, so they
//! are removed. Requests that this process builds use version 1.0 and the preferred size of the
//! receivers, or version 2.0 if 1.0 cannot represent a part of the batch. A summary of its contents
//! is kept beside each request, so that a request can be forwarded unchanged without decoding it.
//!
//! Invariant: a batch is acknowledged only after its requests have been kept. The queue, the
//! conversion for each receiver and the connections are left to the crate `firn-remote-write`.

use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::Ticket;
use firn_wire::remote_write::{
    RemoteWriteVersion, WriteRequestContents, encode_interned, encode_range,
};
use std::ops::Range;

/// A remote write request to be kept for the receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// Body of the request, compressed with snappy.
    pub body: Vec<u8>,
    /// Version of the message format.
    pub version: RemoteWriteVersion,
    /// Summary of the valid samples in the request.
    pub contents: WriteRequestContents,
    /// Whether the complete contents are valid, as far as they have been decoded.
    pub is_sound: bool,
}

/// Storage of requests for remote write receivers, implemented by the binary with its queue on
/// disk.
pub trait ReceiverQueue: Send + Sync {
    /// Returns whether there is a receiver. Called for each batch.
    fn is_on(&self) -> bool;

    /// Returns the preferred maximum number of samples (at least one) of a request that this
    /// process builds. Requests of this size can be forwarded unchanged.
    fn request_samples_max(&self) -> usize;

    /// Keeps a request, or only counts it if it cannot be kept and need not be. The returned ticket
    /// resolves when the request is durable.
    fn keep_request(&self, request: KeptRequest) -> Ticket;
}

/// Encodes the samples of `source` up to `time_max` as requests, in the order of the batch. A
/// request has at most `samples_max` samples, unless a single series has more. Returns an empty
/// list if there are no samples.
pub fn encode_requests(
    source: &mut dyn BatchSource,
    samples_max: usize,
    time_max: TimestampMs,
) -> Result<Vec<KeptRequest>, Error> {
    let count = source.batch().series_count();
    if count == 0 {
        return Ok(Vec::new());
    }
    let all: Vec<u32> = (0..count as u32).collect();
    source.read_labels(&all)?;
    let batch = source.batch();
    let requests = encode_batch_requests(batch, samples_max);
    if !requests.iter().any(|made| made.contents.newest > time_max) {
        return Ok(requests);
    }
    let mut taken = Batch::default();
    for number in (0..count).filter(|number| !batch.is_refused(*number)) {
        taken.push_part(batch, number, &(TimestampMs::MIN..=time_max));
    }
    if taken.is_empty() {
        Ok(Vec::new())
    } else {
        Ok(encode_batch_requests(&taken, samples_max))
    }
}

/// Encodes a batch as requests, like [`encode_requests`] without a time limit. The batch must have
/// labels and at least one series.
fn encode_batch_requests(batch: &Batch, samples_max: usize) -> Vec<KeptRequest> {
    let count = batch.series_count();
    if !fits_version_one(batch) {
        let body = encode_interned(batch, &MetadataBatch::default());
        return vec![build_request(batch, 0..count, RemoteWriteVersion::V2, body)];
    }
    let (mut requests, mut start, mut samples) = (Vec::new(), 0, 0);
    for number in 0..count {
        let series = batch.series(number);
        let of_series = series.times.len() + series.histograms.len();
        if samples > 0 && samples + of_series > samples_max {
            let body = encode_range(batch, start..number);
            requests.push(build_request(
                batch,
                start..number,
                RemoteWriteVersion::V1,
                body,
            ));
            (start, samples) = (number, 0);
        }
        samples += of_series;
    }
    let body = encode_range(batch, start..count);
    requests.push(build_request(
        batch,
        start..count,
        RemoteWriteVersion::V1,
        body,
    ));
    requests
}

/// Builds a request from the encoded `body` of the series `numbers` of `batch`.
fn build_request(
    batch: &Batch,
    numbers: Range<usize>,
    version: RemoteWriteVersion,
    body: Vec<u8>,
) -> KeptRequest {
    KeptRequest {
        body,
        version,
        contents: WriteRequestContents::from_batch(batch, numbers),
        is_sound: true,
    }
}

/// Returns whether a message of version 1.0, which is cheaper to decode, can represent all of
/// `batch`. It has no start timestamps.
fn fits_version_one(batch: &Batch) -> bool {
    batch.iter().all(|series| {
        let mut histograms = series.histograms.iter();
        series.start_times.is_empty() && histograms.all(|h| h.start_time == START_UNKNOWN)
    })
}
