//! Sending on: what the pipeline stores is kept for other receivers of remote write, and made what
//! each of them is to get.
//!
//! ```text
//! batch -> request of remote write -> kept on disk (SendOn) -> acknowledged
//!            -> Outgoing: external labels, relabelling -> the requests that a receiver gets
//! ```
//!
//! A push is kept as it came. What this process makes is requests of 1.0, as large as receivers
//! want them, or one of 2.0 where it holds what 1.0 has no place for. What a request holds is kept
//! beside it, so that it need not be read to be sent on as it is.
//!
//! Invariant: a batch is acknowledged only when its requests are kept.
//! Queues and connections are left to the caller.

mod known;
mod outgoing;
mod passing;
#[cfg(test)]
mod tests;

pub use known::Known;
pub use outgoing::{Kept, Outgoing, Round, Sent, Share};

use firn_model::batch::{Batch, Source};
use firn_model::error::Error;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::Ticket;
use firn_wire::remote_write::{Version, encode_interned, encode_range};
use std::ops::Range;

/// What a request holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Float samples.
    pub samples: u64,
    /// Histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
    /// Metrics that it says something of.
    pub metadata: u64,
    /// The time of its newest sample; the least one if it has no samples.
    pub newest: TimestampMs,
}

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

    /// Keeps a request. The ticket resolves when it is durable.
    fn keep(&self, request: KeptRequest) -> Ticket;
}

/// The requests that carry what `source` holds, in its order, with `samples_max` samples each
/// unless one series has more; none if that is nothing.
pub(crate) fn requests_of(
    source: &mut dyn Source,
    samples_max: usize,
) -> Result<Vec<KeptRequest>, Error> {
    let count = source.batch().series_count();
    if count == 0 {
        return Ok(Vec::new());
    }
    let all: Vec<u32> = (0..count as u32).collect();
    source.read_labels(&all)?;
    let batch = source.batch();
    if !fits_plain(batch) {
        let body = encode_interned(batch, &MetadataBatch::default());
        return Ok(vec![made(batch, 0..count, Version::V2, body)]);
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
    Ok(requests)
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

impl Contents {
    /// What the series of `batch` with these numbers hold, as far as they stand.
    pub(crate) fn of(batch: &Batch, numbers: Range<usize>) -> Self {
        let mut contents = Self {
            newest: TimestampMs::MIN,
            ..Self::default()
        };
        let is_all = numbers == (0..batch.series_count());
        for number in numbers {
            let series = batch.series(number);
            contents.samples += series.times.len() as u64;
            contents.histograms += series.histograms.len() as u64;
            let newest = series.times.last().copied().unwrap_or(TimestampMs::MIN);
            let histogram = series.histograms.last().map_or(newest, |last| last.time);
            contents.newest = contents.newest.max(newest).max(histogram);
            if !is_all {
                let exemplars = batch.exemplars().of_series(number as u64);
                contents.exemplars += exemplars.count() as u64;
            }
        }
        if is_all {
            contents.exemplars = batch.exemplars().len() as u64;
        }
        contents
    }

    /// Samples of both kinds.
    pub(crate) fn all_samples(&self) -> u64 {
        self.samples + self.histograms
    }

    /// What this one and `other` hold together.
    fn and(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            histograms: self.histograms + other.histograms,
            exemplars: self.exemplars + other.exemplars,
            metadata: self.metadata + other.metadata,
            newest: self.newest.max(other.newest),
        }
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
