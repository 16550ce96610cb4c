//! The outcome of an append at a peer.
//!
//! ```text
//! stored | stored histograms | rejected samples | rejected exemplars | newest? | invalid series
//! ```
//!
//! Invariant: indexes of series are those of the frame; the client converts them to those of the
//! sender's part.

use crate::bytes::{
    MalformedFrame, PeerFrameReader, push_count, push_option, push_prefixed, push_varint,
    push_zigzag,
};
use crate::frames::append::read_labels;
use firn_model::sample::TimestampMs;
use firn_model::store::{
    AppendOutcome, ExemplarRejection, RejectedExemplars, RejectedSamples, SampleRejection,
};

/// The result of an append at a peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerAppended {
    /// The outcome, with the indexes of series in the part of the sender. Samples of
    /// `invalid_series` are not in it.
    pub outcome: AppendOutcome,
    /// The time of the newest sample of the tenant that the partition has appended in order.
    pub newest: Option<TimestampMs>,
    /// The series that were rejected when the peer decoded their labels, one entry per reason.
    pub invalid_series: Vec<PeerSeriesRejection>,
}

/// The series of an append that were rejected for the same reason when their labels were decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSeriesRejection {
    /// Number of rejected series.
    pub series_count: usize,
    /// Number of samples of these series, none of which was stored.
    pub sample_count: usize,
    /// The error text of the first one, with its labels.
    pub first: String,
}

const SAMPLE_REJECTIONS: [SampleRejection; 9] = [
    SampleRejection::OutOfOrder,
    SampleRejection::DuplicateTimestamp,
    SampleRejection::OutOfBounds,
    SampleRejection::TooOld,
    SampleRejection::TooFarInFuture,
    SampleRejection::SeriesLimit,
    SampleRejection::ActiveSeriesLimit,
    SampleRejection::NewSeriesLimit,
    SampleRejection::JobSeriesLimit,
];

const EXEMPLAR_REJECTIONS: [ExemplarRejection; 4] = [
    ExemplarRejection::OutOfOrder,
    ExemplarRejection::TooLong,
    ExemplarRejection::TooFarInFuture,
    ExemplarRejection::NoSeries,
];

/// Appends the frame of an outcome.
pub fn encode_appended(appended: &PeerAppended, into: &mut Vec<u8>) {
    let outcome = &appended.outcome;
    push_count(outcome.stored, into);
    push_count(outcome.stored_histograms, into);
    push_count(outcome.rejected.len(), into);
    for rejected in &outcome.rejected {
        let reasons = SAMPLE_REJECTIONS.iter();
        let reason = reasons.clone().position(|r| *r == rejected.rejection);
        into.push(reason.expect("all reasons are listed") as u8);
        push_count(rejected.count, into);
        push_prefixed(rejected.first_labels.as_bytes(), into);
        push_zigzag(rejected.first_time, into);
        push_count(rejected.first_series, into);
        push_option(rejected.limit, into, push_varint);
    }
    push_count(outcome.refused_exemplars.len(), into);
    for rejected in &outcome.refused_exemplars {
        let mut reasons = EXEMPLAR_REJECTIONS.iter();
        let reason = reasons.position(|r| *r == rejected.refusal);
        into.push(reason.expect("all reasons are listed") as u8);
        push_count(rejected.count, into);
        push_prefixed(rejected.first_labels.as_bytes(), into);
        push_count(rejected.first_series, into);
    }
    push_option(appended.newest, into, push_zigzag);
    push_count(appended.invalid_series.len(), into);
    for invalid in &appended.invalid_series {
        push_count(invalid.series_count, into);
        push_count(invalid.sample_count, into);
        push_prefixed(invalid.first.as_bytes(), into);
    }
}

/// Decodes the frame of an outcome.
///
/// # Errors
///
/// [`MalformedFrame`] if `bytes` are not exactly one outcome.
pub fn decode_appended(bytes: &[u8]) -> Result<PeerAppended, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    let mut appended = PeerAppended::default();
    appended.outcome.stored = reader.usize()?;
    appended.outcome.stored_histograms = reader.usize()?;
    for _ in 0..reader.count(6)? {
        let rejected = read_rejected_samples(&mut reader)?;
        appended.outcome.rejected.push(rejected);
    }
    for _ in 0..reader.count(4)? {
        let rejected = read_rejected_exemplars(&mut reader)?;
        appended.outcome.refused_exemplars.push(rejected);
    }
    appended.newest = reader.option(PeerFrameReader::zigzag)?;
    for _ in 0..reader.count(3)? {
        appended.invalid_series.push(PeerSeriesRejection {
            series_count: reader.usize()?,
            sample_count: reader.usize()?,
            first: reader.text()?.to_owned(),
        });
    }
    reader.finish()?;
    Ok(appended)
}

fn read_rejected_samples(
    reader: &mut PeerFrameReader<'_>,
) -> Result<RejectedSamples, MalformedFrame> {
    let reason = SAMPLE_REJECTIONS.get(usize::from(reader.u8()?)).copied();
    Ok(RejectedSamples {
        rejection: reason.ok_or(MalformedFrame("unknown reason of a rejected sample"))?,
        count: reader.usize()?,
        first_labels: read_labels(reader)?.to_owned(),
        first_time: reader.zigzag()?,
        first_series: reader.usize()?,
        limit: reader.option(PeerFrameReader::varint)?,
    })
}

fn read_rejected_exemplars(
    reader: &mut PeerFrameReader<'_>,
) -> Result<RejectedExemplars, MalformedFrame> {
    let reason = EXEMPLAR_REJECTIONS.get(usize::from(reader.u8()?)).copied();
    Ok(RejectedExemplars {
        refusal: reason.ok_or(MalformedFrame("unknown reason of a rejected exemplar"))?,
        count: reader.usize()?,
        first_labels: read_labels(reader)?.to_owned(),
        first_series: reader.usize()?,
    })
}
