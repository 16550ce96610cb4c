//! Sending on: what the pipeline stores is kept for other receivers of remote write, and made what
//! each of them is to get.
//!
//! ```text
//! batch -> request of remote write -> kept on disk (SendOn) -> acknowledged
//!            -> Outgoing: external labels, relabelling -> the requests that a receiver gets
//! ```
//!
//! A push is kept as it came, unless it has samples that lie further in the future than is stored:
//! those alone are known to be refused before the store sees them, and are left out. What this
//! process makes is requests of 1.0, as large as receivers want them, or one of 2.0 where it holds
//! what 1.0 has no place for. What a request holds is kept beside it, so that it need not be read
//! to be sent on as it is.
//!
//! Invariant: a batch is acknowledged only when its requests are kept.
//! Queues and connections are left to the caller.

mod known;
mod outgoing;
mod passing;
#[cfg(test)]
mod tests;

pub use known::Known;
pub use outgoing::{Kept, Outgoing, ROUND_SAMPLES, Round, Sent, Share};

use firn_model::batch::{Batch, Source};
use firn_model::error::Error;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::Ticket;
use firn_wire::remote_write::{Contents, Version, encode_interned, encode_range};
use std::ops::Range;

/// A request of remote write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// Its body.
    pub body: Vec<u8>,
    /// What it is.
    pub version: Version,
    /// What it holds, as far as that can stand.
    pub contents: Contents,
    /// Whether all of it can, as far as it was read.
    pub is_sound: bool,
}

/// Keeps requests for other receivers.
pub trait SendOn: Send + Sync {
    /// Whether there is a receiver: asked for each batch.
    fn is_on(&self) -> bool;

    /// The most samples that a request should have which this process makes: it goes on as it is
    /// then. One at least.
    fn request_samples_max(&self) -> usize;

    /// Keeps a request, or counts it where it cannot be kept and need not be. The ticket resolves
    /// when it is durable.
    fn keep(&self, request: KeptRequest) -> Ticket;
}

/// The requests that carry what `source` holds up to `time_max`, in its order, with `samples_max`
/// samples each unless one series has more; none if that is nothing.
pub(crate) fn requests_of(
    source: &mut dyn Source,
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
    let requests = requests_of_batch(batch, samples_max);
    if !requests.iter().any(|made| made.contents.newest > time_max) {
        return Ok(requests);
    }
    let mut taken = Batch::default();
    for number in (0..count).filter(|number| !batch.is_refused(*number)) {
        taken.push_part(batch, number, &(TimestampMs::MIN..=time_max));
    }
    match taken.is_empty() {
        true => Ok(Vec::new()),
        false => Ok(requests_of_batch(&taken, samples_max)),
    }
}

/// The same of a batch of which everything has been read, and that has series.
fn requests_of_batch(batch: &Batch, samples_max: usize) -> Vec<KeptRequest> {
    let count = batch.series_count();
    if !fits_plain(batch) {
        let body = encode_interned(batch, &MetadataBatch::default());
        return vec![made(batch, 0..count, Version::V2, body)];
    }
    let (mut requests, mut start, mut samples) = (Vec::new(), 0, 0);
    for number in 0..count {
        let series = batch.series(number);
        let of_series = series.times.len() + series.histograms.len();
        if samples > 0 && samples + of_series > samples_max {
            let body = encode_range(batch, start..number);
            requests.push(made(batch, start..number, Version::V1, body));
            (start, samples) = (number, 0);
        }
        samples += of_series;
    }
    let body = encode_range(batch, start..count);
    requests.push(made(batch, start..count, Version::V1, body));
    requests
}

/// A request with these series of `batch`.
fn made(batch: &Batch, numbers: Range<usize>, version: Version, body: Vec<u8>) -> KeptRequest {
    KeptRequest {
        body,
        version,
        contents: Contents::of(batch, numbers),
        is_sound: true,
    }
}

/// Whether a request of 1.0, which is the cheaper one to read, holds all of `batch`: it has no
/// start timestamps.
fn fits_plain(batch: &Batch) -> bool {
    batch.iter().all(|series| {
        let mut histograms = series.histograms.iter();
        series.start_times.is_empty() && histograms.all(|h| h.start_time == START_UNKNOWN)
    })
}
