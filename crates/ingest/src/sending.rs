//! Sending on: what the pipeline stores is kept for other receivers of remote write, and made what
//! each of them is to get.
//!
//! ```text
//! batch -> request of remote write -> kept on disk (SendOn) -> acknowledged
//!            -> Outgoing: external labels, relabelling -> the requests that a receiver gets
//! ```
//!
//! A push is kept as it came. What this process makes is a request of 1.0, or of 2.0 where it holds
//! what 1.0 has no place for. Invariant: a batch is acknowledged only when its request is kept.
//! Queues and connections are left to the caller.

mod known;
mod outgoing;
#[cfg(test)]
mod tests;

pub use known::Known;
pub use outgoing::{Kept, Outgoing, Round, Sent, Share};

use firn_model::batch::{Batch, Source};
use firn_model::error::Error;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::Ticket;
use firn_wire::remote_write::{Version, encode, encode_interned};

/// A request of remote write, and the newest time in it; the least one if it has no samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// Its body.
    pub body: Vec<u8>,
    /// What it is.
    pub version: Version,
    /// The time of its newest sample.
    pub newest: TimestampMs,
}

/// Keeps requests for other receivers.
pub trait SendOn: Send + Sync {
    /// Whether there is a receiver: asked for each batch.
    fn is_on(&self) -> bool;

    /// Keeps a request. The ticket resolves when it is durable.
    fn keep(&self, request: KeptRequest) -> Ticket;
}

/// The request that carries what `source` holds; none if that is nothing.
pub(crate) fn request_of(source: &mut dyn Source) -> Result<Option<KeptRequest>, Error> {
    let count = source.batch().series_count();
    if count == 0 {
        return Ok(None);
    }
    let all: Vec<u32> = (0..count as u32).collect();
    source.read_labels(&all)?;
    let batch = source.batch();
    let (version, body) = match fits_plain(batch) {
        true => (Version::V1, encode(batch)),
        false => {
            let nothing = MetadataBatch::default();
            (Version::V2, encode_interned(batch, &nothing))
        }
    };
    Ok(Some(KeptRequest {
        body,
        version,
        newest: newest_of(batch),
    }))
}

/// Whether a request of 1.0, which is the cheaper one to read, holds all of `batch`: it has no
/// start timestamps.
fn fits_plain(batch: &Batch) -> bool {
    batch.iter().all(|series| {
        let mut histograms = series.histograms.iter();
        series.start_times.is_empty() && histograms.all(|h| h.start_time == START_UNKNOWN)
    })
}

/// The time of the newest sample of `batch`.
pub(crate) fn newest_of(batch: &Batch) -> TimestampMs {
    let of_series = batch.iter().map(|series| {
        let floats = series.times.last().copied().unwrap_or(TimestampMs::MIN);
        let histograms = series
            .histograms
            .last()
            .map_or(TimestampMs::MIN, |h| h.time);
        floats.max(histograms)
    });
    of_series.max().unwrap_or(TimestampMs::MIN)
}
