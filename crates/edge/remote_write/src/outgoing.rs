//! Converts kept requests to the requests of one receiver: adds external labels, applies
//! relabelling, fills requests to the configured size, and splits the series into shares that may
//! be sent concurrently.
//!
//! ```text
//! kept, kept, .. --decode, external labels, relabel--> round --hash of labels--> share, share, ..
//!                                                                share = request, request, ..
//! kept, in the receiver's version and without changes --> round of its own (see `passing`)
//! ```
//!
//! Most of the cost of a request is in its labels, which are decoded, copied, hashed, encoded and
//! compressed again. A kept request that the receiver can accept unchanged is therefore forwarded
//! as it is.
//!
//! Invariant: within a round, each series is in exactly one share, with its samples in the order in
//! which they were kept; rounds are ordered as well. A receiver therefore gets each series in order
//! if shares are sent concurrently, but the requests of a share and the rounds one after the other.

mod batching;
#[cfg(test)]
mod tests;

use super::known::RemoteWriteMetadata;
use batching::PendingRound;
use firn_ingest::relabel::{self, RelabelRule};
use firn_model::batch::{Batch, SeriesSamples};
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, METRIC_NAME, push_pair};
use firn_model::metadata::MetadataBatch;
use firn_wire::remote_write::{
    MergedRequestBounds, RemoteWriteDecoder, RemoteWriteOptions, RemoteWriteVersion,
    WriteRequestContents, encode, encode_interned,
};
use hyper::body::Bytes;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Number of samples per round, unless a single request may have more. It bounds the decoded data
/// to some 8 MB. At a round trip time of 50 ms it allows 600,000 samples per second.
pub const ROUND_SAMPLES: usize = 32 << 10;

/// The changes that are applied to kept requests for one receiver, as configured in `remote_write`.
#[derive(Clone, Debug)]
pub struct OutgoingSettings {
    /// The `global.external_labels` key: labels added to series without a label of that name.
    pub external_labels: Labels,
    /// The `write_relabel_configs` key: relabelling rules applied to each series.
    pub relabel: Arc<[RelabelRule]>,
    /// The `send_native_histograms` key: whether native histograms are sent.
    pub sends_histograms: bool,
    /// The `send_exemplars` key: whether exemplars are sent.
    pub sends_exemplars: bool,
    /// The `protobuf_message` key: version of the message format.
    pub version: RemoteWriteVersion,
    /// The `max_samples_per_send` key: number of samples in a full request.
    pub request_samples: usize,
    /// The `min_shards` and `max_shards` keys: number of concurrent requests to a receiver that
    /// keeps up, and to one that is behind.
    pub shares: (usize, usize),
}

/// A request as it was kept on disk, before any conversion for a receiver.
#[derive(Clone, Debug)]
pub struct QueuedWriteRequest {
    /// Version of the message format.
    pub version: RemoteWriteVersion,
    /// Summary of the contents, if it was recorded. All samples are valid in this case.
    pub contents: Option<WriteRequestContents>,
    /// Body of the request, compressed with snappy.
    pub body: Bytes,
}

/// A request to be sent to the receiver, built from one or more kept requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// Body of the request, compressed with snappy.
    pub body: Bytes,
    /// Summary of the contents, for metrics.
    pub contents: WriteRequestContents,
    /// Boundaries between the kept requests that were combined in this one.
    pub seams: MergedRequestBounds,
}

impl OutgoingRequest {
    /// Creates a request that consists of a single kept request.
    pub(super) fn from_single_request(body: Bytes, contents: WriteRequestContents) -> Self {
        Self {
            body,
            contents,
            seams: MergedRequestBounds::None,
        }
    }
}

/// Requests that must be sent one after the other, in this order.
pub type Share = Vec<OutgoingRequest>;

/// The result of converting some consecutive kept requests: shares of requests to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingRound {
    /// Number of consecutive kept requests in this round.
    pub kept: usize,
    /// Shares, which may be sent concurrently. Empty if nothing remains for the receiver.
    pub shares: Vec<Share>,
    /// Samples that relabelling dropped or that the receiver does not accept.
    pub dropped: WriteRequestContents,
    /// Whether the round contains enough samples for a full request, or is followed by another one.
    pub is_full: bool,
}

impl OutgoingSettings {
    fn round_samples_max(&self) -> usize {
        self.request_samples.max(ROUND_SAMPLES)
    }

    /// Decodes `kept` and adds the samples that the receiver accepts to `into`.
    fn decode_into_round(
        &self,
        decoder: &mut RemoteWriteDecoder,
        kept: &QueuedWriteRequest,
        into: &mut PendingRound,
    ) -> Result<(), String> {
        let reader = RemoteWriteOptions {
            version: kept.version,
            keeps_exemplars: self.sends_exemplars,
            labels_types: false,
        };
        let decoded = decoder.decode(reader, &kept.body);
        let decoded = decoded.map_err(|e| e.to_string())?;
        into.kept += 1;
        for (number, series) in decoded.batch.iter_with_index() {
            let histograms = if self.sends_histograms {
                series.histograms
            } else {
                &[]
            };
            into.dropped.histograms += (series.histograms.len() - histograms.len()) as u64;
            let wanted = SeriesSamples {
                histograms,
                ..series
            };
            self.gather_series(decoded.batch, number, wanted, into);
        }
        let end = into.batch.series_count() as u32;
        if into.ends.last().copied().unwrap_or(0) < end {
            into.ends.push(end);
        }
        Ok(())
    }

    fn gather_series(
        &self,
        from: &Batch,
        number: u64,
        series: SeriesSamples<'_>,
        into: &mut PendingRound,
    ) {
        let exemplars = || from.exemplars().iter_series(number);
        let wants_exemplars = self.sends_exemplars && exemplars().next().is_some();
        let samples = series.times.len() + series.histograms.len();
        if series.labels.is_empty() || (samples == 0 && !wants_exemplars) {
            return;
        }
        let batch = &mut into.batch;
        if self.relabel.is_empty() {
            self.push_with_external(series.labels, batch.label_bytes());
        } else {
            let mut bytes = Vec::with_capacity(series.labels.as_bytes().len());
            self.push_with_external(series.labels, &mut bytes);
            match self.relabel_labels(LabelsRef::from_canonical(&bytes)) {
                Some(labels) => batch.label_bytes().extend_from_slice(labels.as_bytes()),
                None => {
                    into.dropped.samples += series.times.len() as u64;
                    into.dropped.histograms += series.histograms.len() as u64;
                    if wants_exemplars {
                        into.dropped.exemplars += exemplars().count() as u64;
                    }
                    return;
                }
            }
        }
        push_samples(batch, series);
        if wants_exemplars {
            exemplars().for_each(|exemplar| batch.push_exemplar(exemplar));
        }
        batch.end_series();
    }

    /// Returns whether no series changes, since there are neither external labels nor relabelling
    /// rules.
    pub(super) fn keeps_labels(&self) -> bool {
        self.external_labels.is_empty() && self.relabel.is_empty()
    }

    /// Builds a round with at most `shares_max` shares from the decoded samples.
    fn build_round(
        &self,
        gathered: PendingRound,
        shares_max: usize,
        known: &RemoteWriteMetadata,
    ) -> OutgoingRound {
        let samples = gathered.batch.sample_count();
        let count = samples.div_ceil(self.request_samples.max(1));
        let count = count.min(shares_max).max(1);
        let shares = if gathered.batch.is_empty() {
            Vec::new()
        } else {
            self.distribute_series(&gathered, count, known)
        };
        let PendingRound { kept, dropped, .. } = gathered;
        OutgoingRound {
            kept,
            shares,
            dropped,
            is_full: samples >= self.request_samples,
        }
    }

    /// Distributes the series of `gathered` over `count` shares and splits each share into
    /// requests.
    fn distribute_series(
        &self,
        gathered: &PendingRound,
        count: usize,
        known: &RemoteWriteMetadata,
    ) -> Vec<Share> {
        let PendingRound { batch, ends, .. } = gathered;
        if count == 1 && batch.sample_count() <= self.request_samples {
            let (_, starts) = ends.split_last().unwrap_or((&0, &[]));
            return vec![vec![self.encode_request(batch, starts.to_vec(), known)]];
        }
        let mut open: Vec<OpenOutgoingRequest> = Vec::new();
        open.resize_with(count, OpenOutgoingRequest::default);
        let mut shares = vec![Share::new(); count];
        let (mut of_kept, mut ends) = (0, ends.iter().peekable());
        for (number, series) in batch.iter_with_index() {
            while ends.next_if(|end| u64::from(**end) <= number).is_some() {
                of_kept += 1;
            }
            let share = share_of_series(series.labels, count);
            let (into, done) = (&mut open[share], &mut shares[share]);
            into.begin_series(of_kept);
            let into_batch = &mut into.batch;
            into_batch
                .label_bytes()
                .extend_from_slice(series.labels.as_bytes());
            push_samples(into_batch, series);
            let exemplars = batch.exemplars().iter_series(number);
            exemplars.for_each(|exemplar| into_batch.push_exemplar(exemplar));
            into_batch.end_series();
            if into_batch.sample_count() >= self.request_samples {
                let starts = std::mem::take(&mut into.starts);
                done.push(self.encode_request(&into.batch, starts, known));
                into.batch.clear();
            }
        }
        for (rest, share) in open.into_iter().zip(&mut shares) {
            if !rest.batch.is_empty() {
                share.push(self.encode_request(&rest.batch, rest.starts, known));
            }
        }
        shares.retain(|share| !share.is_empty());
        shares
    }

    /// Encodes `batch` as a request. `starts` contains the series at which further kept requests
    /// begin.
    fn encode_request(
        &self,
        batch: &Batch,
        starts: Vec<u32>,
        known: &RemoteWriteMetadata,
    ) -> OutgoingRequest {
        let body = match self.version {
            RemoteWriteVersion::V1 => encode(batch),
            RemoteWriteVersion::V2 => encode_interned(batch, &collect_metadata(batch, known)),
        };
        OutgoingRequest {
            body: body.into(),
            contents: WriteRequestContents::from_batch(batch, 0..batch.series_count()),
            seams: if starts.is_empty() {
                MergedRequestBounds::None
            } else {
                MergedRequestBounds::Series(starts)
            },
        }
    }

    /// Appends `labels`, merged with the external labels whose names they do not contain.
    fn push_with_external(&self, labels: LabelsRef<'_>, bytes: &mut Vec<u8>) {
        if self.external_labels.is_empty() {
            bytes.extend_from_slice(labels.as_bytes());
            return;
        }
        let mut external = self.external_labels.iter().peekable();
        for (name, value) in labels.iter() {
            while let Some((before, theirs)) = external.next_if(|(other, _)| *other < name) {
                push_pair(bytes, before.as_bytes(), theirs);
            }
            external.next_if(|(other, _)| *other == name);
            push_pair(bytes, name.as_bytes(), value);
        }
        for (name, value) in external {
            push_pair(bytes, name.as_bytes(), value);
        }
    }

    /// Applies relabelling to `labels`. Returns `None` if it drops the series.
    fn relabel_labels(&self, labels: LabelsRef<'_>) -> Option<Labels> {
        let mut builder = LabelsBuilder::from_labels(labels);
        let stays = relabel::apply_rules(&self.relabel, &mut builder);
        let labels = builder.build();
        (stays && !labels.is_empty()).then_some(labels)
    }
}

/// The last request of a share, which is not full yet.
#[derive(Default)]
struct OpenOutgoingRequest {
    batch: Batch,
    /// Series indexes at which the next kept request begins.
    starts: Vec<u32>,
    /// Index of the kept request to which the last series belongs.
    of_kept: usize,
}

impl OpenOutgoingRequest {
    /// Records that the next series belongs to the kept request `of_kept`.
    fn begin_series(&mut self, of_kept: usize) {
        let count = self.batch.series_count();
        if count > 0 && self.of_kept != of_kept {
            self.starts.push(count as u32);
        }
        self.of_kept = of_kept;
    }
}

/// Collects the metadata of the metrics in `batch`, once per metric name.
fn collect_metadata(batch: &Batch, known: &RemoteWriteMetadata) -> MetadataBatch {
    let mut said = MetadataBatch::default();
    if known.is_empty() {
        return said;
    }
    let mut seen = HashSet::new();
    for series in batch.iter() {
        let name = series.labels.get(METRIC_NAME);
        if seen.insert(name)
            && let Ok(name) = std::str::from_utf8(name)
            && let Some(metadata) = known.find_for_series(name)
        {
            said.push(metadata);
        }
    }
    said
}

/// Appends the samples of `series` to the current series of `batch`.
fn push_samples(batch: &mut Batch, series: SeriesSamples<'_>) {
    match series.start_times {
        [] => {
            for (time, value) in series.times.iter().zip(series.values) {
                batch.push_float(*time, *value);
            }
        }
        starts => {
            let samples = series.times.iter().zip(series.values).zip(starts);
            for ((time, value), start) in samples {
                batch.push_float_with_start(*time, *value, *start);
            }
        }
    }
    for sample in series.histograms {
        batch.push_histogram(sample.clone());
    }
}

/// Returns the share, of `count`, to which a series belongs within a round.
fn share_of_series(labels: LabelsRef<'_>, count: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    labels.as_bytes().hash(&mut hasher);
    (hasher.finish() % count as u64) as usize
}
