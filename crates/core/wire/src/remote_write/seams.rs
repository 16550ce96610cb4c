//! Splits requests that were merged from several, and removes old samples from a request.
//!
//! ```text
//! body body body --joined--> request --apart--> body body body
//! series of several, mixed --> request --apart--> the series of each, a request each
//! ```
//!
//! A receiver that rejects a merged request because of one sender's sample rejects the samples of
//! all other senders in it. Code that merges requests therefore records the seams, which costs a
//! few bytes; a request is decoded only after it was rejected. Invariant: the parts together
//! contain the parts of the request, in the same order.

use super::{
    RemoteWriteDecoder, RemoteWriteOptions, RemoteWriteVersion, WriteRequestContents,
    encode_interned, encode_range,
};
use crate::error::WireError;
use crate::limits::WireLimits;
use crate::snappy;
use firn_model::batch::Batch;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimestampMs;
use std::ops::Range;

/// The boundaries between the original bodies in a merged request, recorded by the code that merged
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MergedRequestBounds {
    /// No boundaries: the request has a single origin.
    #[default]
    None,
    /// The request is the concatenation of these bodies.
    Bodies(Vec<MergedBody>),
    /// The series from each of these numbers on, in ascending order, have another origin than those
    /// before.
    Series(Vec<u32>),
}

/// One of the bodies in a concatenated request, with the sizes that are needed to split it again.
/// The order of the list is that of the bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedBody {
    /// Uncompressed size of its message in bytes.
    pub message_bytes: usize,
    /// Size of its snappy block without the header, in bytes.
    pub element_bytes: usize,
    /// Counts and time range of its contents.
    pub contents: WriteRequestContents,
}

/// A complete request body, with the counts of its contents.
type Part = (Vec<u8>, WriteRequestContents);

impl MergedRequestBounds {
    /// Returns whether the request has a single origin and cannot be split.
    pub fn is_none(&self) -> bool {
        match self {
            Self::None => true,
            Self::Bodies(bodies) => bodies.len() < 2,
            Self::Series(starts) => starts.is_empty(),
        }
    }

    /// Splits `body`, a request of `version` with these seams, into its parts in order. Fails if
    /// the body cannot be decoded.
    pub fn split_body(
        &self,
        version: RemoteWriteVersion,
        body: &[u8],
        limits: &WireLimits,
    ) -> Result<Vec<Part>, WireError> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Bodies(bodies) => {
                let blocks = bodies
                    .iter()
                    .map(|one| (one.message_bytes, one.element_bytes));
                let parts = snappy::split_joined(body, blocks)?.into_iter();
                Ok(parts.zip(bodies.iter().map(|one| one.contents)).collect())
            }
            Self::Series(starts) => {
                let mut decoder = RemoteWriteDecoder::new(*limits);
                let decoded = decoder.decode(full_options(version), body)?;
                let end = decoded.batch.series_count();
                let starts = starts.iter().map(|start| (*start as usize).min(end));
                let ends = starts.clone().chain([end]);
                let ranges = [0].into_iter().chain(starts).zip(ends);
                let ranges = ranges.filter(|(start, end)| start < end);
                let (batch, said) = (&*decoded.batch, decoded.metadata);
                let one = |(start, end)| encode_part(version, batch, start..end, said);
                Ok(ranges.map(one).collect())
            }
        }
    }
}

/// Returns the samples of `body`, a request of `version` with `seams`, that are not older than
/// `time_min`, as a request with its own seams; `None` if there are none. Fails if the body cannot
/// be decoded.
pub fn encode_since(
    time_min: TimestampMs,
    version: RemoteWriteVersion,
    body: &[u8],
    seams: &MergedRequestBounds,
    limits: &WireLimits,
) -> Result<Option<(Part, MergedRequestBounds)>, WireError> {
    let times = time_min..=TimestampMs::MAX;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let bodies: Vec<&[u8]> = if seams.is_none() {
        vec![body]
    } else {
        let apart = seams.split_body(version, body, limits)?;
        parts.extend(apart.into_iter().map(|(part, _)| part));
        parts.iter().map(Vec::as_slice).collect()
    };
    let mut decoder = RemoteWriteDecoder::new(*limits);
    let (mut batch, mut said) = (Batch::default(), MetadataBatch::default());
    let mut starts = Vec::new();
    for body in bodies {
        let decoded = decoder.decode(full_options(version), body)?;
        let start = batch.series_count();
        for number in 0..decoded.batch.series_count() {
            batch.push_part(decoded.batch, number, &times);
        }
        decoded
            .metadata
            .iter()
            .for_each(|metadata| said.push(metadata));
        if start > 0 && batch.series_count() > start {
            starts.push(start as u32);
        }
    }
    if batch.series_count() == 0 {
        return Ok(None);
    }
    let all = 0..batch.series_count();
    Ok(Some((
        encode_part(version, &batch, all, &said),
        MergedRequestBounds::Series(starts),
    )))
}

/// Returns options that decode everything in a request of this version.
fn full_options(version: RemoteWriteVersion) -> RemoteWriteOptions {
    RemoteWriteOptions {
        version,
        keeps_exemplars: true,
        labels_types: false,
    }
}

/// Encodes a request of this version with the series that have these numbers, and counts its
/// contents.
fn encode_part(
    version: RemoteWriteVersion,
    batch: &Batch,
    numbers: Range<usize>,
    said: &MetadataBatch,
) -> Part {
    let contents = WriteRequestContents::from_batch(batch, numbers.clone());
    let body = match version {
        RemoteWriteVersion::V1 => encode_range(batch, numbers),
        RemoteWriteVersion::V2 => {
            let mut series = Batch::default();
            for number in numbers {
                series.push_part(batch, number, &(TimestampMs::MIN..=TimestampMs::MAX));
            }
            encode_interned(&series, said)
        }
    };
    (body, contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote_write::encode;
    use firn_model::labels::{Labels, METRIC_NAME};

    /// Returns a batch with one sample of each series at each timestamp.
    fn batch(series: &[&str], times: &[TimestampMs]) -> Batch {
        let mut batch = Batch::default();
        let samples: Vec<_> = times.iter().map(|time| (*time, 1.0)).collect();
        for name in series {
            let labels = Labels::from_pairs([(METRIC_NAME, *name)]);
            batch.push_series(labels.as_ref(), &samples);
        }
        batch
    }

    /// Returns `name time time` for each series.
    fn shown(version: RemoteWriteVersion, body: &[u8]) -> Vec<String> {
        let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
        let decoded = decoder.decode(full_options(version), body).unwrap();
        let series = decoded.batch.iter().map(|series| {
            let name = String::from_utf8_lossy(series.labels.get(METRIC_NAME)).into_owned();
            let times = series.times.iter();
            times.fold(name, |line, time| format!("{line} {time}"))
        });
        series.collect()
    }

    fn joined(bodies: &[Vec<u8>]) -> (Vec<u8>, MergedRequestBounds) {
        let slices = bodies.iter().map(Vec::as_slice);
        let body = snappy::join_blocks(slices, 1 << 20).unwrap();
        let one = |body: &Vec<u8>| {
            let (message_bytes, element_bytes) = snappy::block_bytes(body, 1 << 20).unwrap();
            MergedBody {
                message_bytes,
                element_bytes,
                contents: WriteRequestContents::default(),
            }
        };
        (
            body,
            MergedRequestBounds::Bodies(bodies.iter().map(one).collect()),
        )
    }

    #[test]
    fn request_of_joined_bodies_comes_apart_into_their_very_bytes() {
        let bodies = [
            encode(&batch(&["a", "b"], &[1])),
            encode(&batch(&["a"], &[2, 3])),
            encode(&batch(&["c"], &[1])),
        ];
        let (body, seams) = joined(&bodies);
        let parts = seams.split_body(RemoteWriteVersion::V1, &body, &WireLimits::default());
        let parts: Vec<Vec<u8>> = parts.unwrap().into_iter().map(|(body, _)| body).collect();
        assert_eq!(parts, bodies);
        // A truncated body does not match these seams.
        let cut = seams.split_body(
            RemoteWriteVersion::V1,
            &body[..body.len() - 1],
            &WireLimits::default(),
        );
        assert_eq!(cut, Err(WireError::SnappyCorrupt));
    }

    #[test]
    fn request_of_mixed_series_comes_apart_by_their_bodies() {
        let whole = batch(&["a", "b", "c", "d"], &[1, 2]);
        let seams = MergedRequestBounds::Series(vec![1, 3]);
        for version in [RemoteWriteVersion::V1, RemoteWriteVersion::V2] {
            let body = match version {
                RemoteWriteVersion::V1 => encode(&whole),
                RemoteWriteVersion::V2 => encode_interned(&whole, &MetadataBatch::default()),
            };
            let parts = seams
                .split_body(version, &body, &WireLimits::default())
                .unwrap();
            let lines: Vec<_> = parts.iter().map(|(body, _)| shown(version, body)).collect();
            assert_eq!(
                lines,
                [vec!["a 1 2"], vec!["b 1 2", "c 1 2"], vec!["d 1 2"]]
            );
            let samples: Vec<u64> = parts.iter().map(|(_, c)| c.samples).collect();
            assert_eq!(samples, [2, 4, 2]);
        }
    }

    #[test]
    fn request_since_a_time_has_no_older_sample_and_keeps_its_seams() {
        let limits = WireLimits::default();
        let bodies = [
            encode(&batch(&["a"], &[1, 5])),
            encode(&batch(&["b"], &[1])),
            encode(&batch(&["c", "d"], &[4])),
        ];
        let (body, seams) = joined(&bodies);
        let left = encode_since(4, RemoteWriteVersion::V1, &body, &seams, &limits).unwrap();
        let ((left, contents), seams) = left.unwrap();
        assert_eq!(shown(RemoteWriteVersion::V1, &left), ["a 5", "c 4", "d 4"]);
        assert_eq!(
            (contents.samples, contents.oldest, contents.newest),
            (3, 4, 5)
        );
        assert_eq!(seams, MergedRequestBounds::Series(vec![1]));
        assert_eq!(
            encode_since(
                6,
                RemoteWriteVersion::V1,
                &body,
                &MergedRequestBounds::None,
                &limits
            ),
            Ok(None)
        );
    }
}
