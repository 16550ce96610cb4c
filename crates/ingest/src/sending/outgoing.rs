//! From kept requests to those that one receiver gets: external labels, relabelling, requests that
//! are full, and shares of the series that may travel side by side.
//!
//! ```text
//! kept, kept, .. --decode, external labels, relabel--> round --hash of labels--> share, share, ..
//!                                                                share = request, request, ..
//! kept, full, of the receiver's version, nothing to change in it --> round of itself
//! ```
//!
//! Most of what a request costs is its labels: read, copied, hashed, written and compressed again.
//! A request that the receiver may have as it was kept goes so, unless the receiver is behind and
//! gets shares side by side (`make bench BENCH=--doors`: half of what sending on costs).
//!
//! Invariant: a series is in one share of a round, its samples in the order in which they were
//! kept; rounds follow each other. So a receiver that takes the shares side by side, the requests
//! of a share one by one and the rounds one by one sees each series in order.

use super::known::Known;
use crate::relabel::{self, Rule};
use firn_model::batch::{Batch, SeriesSamples};
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, METRIC_NAME, push_pair};
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimestampMs;
use firn_wire::WireLimits;
use firn_wire::remote_write::{Decoder, Reader, Version, encode, encode_interned};
use hyper::body::Bytes;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Samples of a round, unless one request may have more: what is decoded at a time, some 8 MB.
/// At 50 ms a round trip it is 600,000 samples a second.
const ROUND_SAMPLES: usize = 32 << 10;

/// What one receiver is to get of each request.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// `global.external_labels`: for series that have no such label.
    pub external_labels: Labels,
    /// `write_relabel_configs`
    pub relabel: Arc<[Rule]>,
    /// `send_native_histograms`
    pub sends_histograms: bool,
    /// `send_exemplars`
    pub sends_exemplars: bool,
    /// `protobuf_message`
    pub version: Version,
    /// `max_samples_per_send`: a request is full with so many.
    pub request_samples: usize,
    /// `max_shards`: requests that may be under way at once.
    pub shares_max: usize,
}

/// A request as it was kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What it is.
    pub version: Version,
    /// Its body.
    pub body: Bytes,
}

/// A request for the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Its body.
    pub body: Bytes,
    /// Float samples in it.
    pub samples: u64,
    /// Histograms in it.
    pub histograms: u64,
    /// Exemplars in it.
    pub exemplars: u64,
    /// The time of its newest sample.
    pub newest: TimestampMs,
}

/// Requests of which one must follow the other.
pub type Share = Vec<Sent>;

/// What some kept requests became.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Kept requests in it, in their order.
    pub kept: usize,
    /// Shares without an order among them; none if the receiver gets nothing.
    pub shares: Vec<Share>,
    /// Samples that relabelling dropped, or that the receiver does not want.
    pub dropped: u64,
    /// Whether it has as many samples as a request may.
    pub is_full: bool,
}

/// What is read of kept requests until a round has enough.
#[derive(Default)]
struct Gathered {
    kept: usize,
    batch: Batch,
    dropped: u64,
}

impl Outgoing {
    /// Makes rounds of `kept`; `Err` stands for one that cannot be read, and why. A request of 2.0
    /// says what is `known` of its metrics. A receiver that `is_behind` gets shares side by side.
    pub fn rounds(
        &self,
        kept: &[Kept],
        (known, is_behind): (&Known, bool),
        limits: &WireLimits,
    ) -> Vec<Result<Round, String>> {
        let mut rounds = Vec::new();
        let mut decoder = Decoder::new(*limits);
        let mut gathered = Gathered::default();
        for one in kept {
            if !is_behind
                && gathered.kept == 0
                && let Some(sent) = self.as_kept(&mut decoder, one, known)
            {
                rounds.push(Ok(Round::of(sent)));
                continue;
            }
            match self.gather(&mut decoder, one, &mut gathered) {
                Ok(()) if gathered.batch.sample_count() >= self.round_samples() => {
                    rounds.push(Ok(self.round(&mut gathered, known)));
                }
                Ok(()) => {}
                Err(why) => {
                    if gathered.kept > 0 {
                        rounds.push(Ok(self.round(&mut gathered, known)));
                    }
                    rounds.push(Err(why));
                }
            }
        }
        if gathered.kept > 0 {
            rounds.push(Ok(self.round(&mut gathered, known)));
        }
        rounds
    }

    /// The request as it was kept, if the receiver may get it so: it has as many samples as one
    /// should have, and nothing that the receiver does not want. Labels are not read.
    fn as_kept(&self, decoder: &mut Decoder, kept: &Kept, known: &Known) -> Option<Sent> {
        if !self.is_plain() || kept.version != self.version {
            return None;
        }
        let reader = Reader {
            version: kept.version,
            keeps_exemplars: true,
            labels_types: false,
        };
        let decoded = decoder.decode_within(reader, &kept.body, None).ok()?;
        let sent = contents_of(decoded.batch, kept.body.clone());
        let samples = decoded.batch.sample_count();
        let is_full = (self.request_samples.div_ceil(2)..=self.request_samples).contains(&samples);
        let is_sound = decoded.refused.is_empty() && decoded.refused_exemplars.is_empty();
        let is_wanted = (self.sends_histograms || sent.histograms == 0)
            && (self.sends_exemplars || sent.exemplars == 0)
            // Where metadata is wanted it travels in 2.0, and in requests of its own in 1.0.
            && (decoded.metadata.is_empty() || self.version == Version::V2 && !known.is_empty());
        (is_full && is_sound && is_wanted).then_some(sent)
    }

    fn round_samples(&self) -> usize {
        self.request_samples.max(ROUND_SAMPLES)
    }

    /// Adds what the receiver is to get of `kept`.
    fn gather(
        &self,
        decoder: &mut Decoder,
        kept: &Kept,
        into: &mut Gathered,
    ) -> Result<(), String> {
        let reader = Reader {
            version: kept.version,
            keeps_exemplars: self.sends_exemplars,
            labels_types: false,
        };
        let decoded = decoder.decode(reader, &kept.body);
        let decoded = decoded.map_err(|e| e.to_string())?;
        into.kept += 1;
        for (number, series) in decoded.batch.numbered() {
            let histograms = match self.sends_histograms {
                true => series.histograms,
                false => &[],
            };
            into.dropped += (series.histograms.len() - histograms.len()) as u64;
            let wanted = SeriesSamples {
                histograms,
                ..series
            };
            self.gather_series(decoded.batch, number, wanted, into);
        }
        Ok(())
    }

    fn gather_series(
        &self,
        from: &Batch,
        number: u64,
        series: SeriesSamples<'_>,
        into: &mut Gathered,
    ) {
        let exemplars = || from.exemplars().of_series(number);
        let wants_exemplars = self.sends_exemplars && exemplars().next().is_some();
        let samples = series.times.len() + series.histograms.len();
        if series.labels.is_empty() || (samples == 0 && !wants_exemplars) {
            return;
        }
        let batch = &mut into.batch;
        match self.is_plain() {
            true => batch
                .label_bytes()
                .extend_from_slice(series.labels.as_bytes()),
            false => match self.relabelled(self.with_external(series.labels)) {
                Some(labels) => batch.label_bytes().extend_from_slice(labels.as_bytes()),
                None => {
                    into.dropped += samples as u64;
                    return;
                }
            },
        }
        push_samples(batch, series);
        if wants_exemplars {
            exemplars().for_each(|exemplar| batch.push_exemplar(exemplar));
        }
        batch.end_series();
    }

    fn is_plain(&self) -> bool {
        self.external_labels.is_empty() && self.relabel.is_empty()
    }

    /// Makes a round of what was gathered, which is empty then.
    fn round(&self, gathered: &mut Gathered, known: &Known) -> Round {
        let Gathered {
            kept,
            batch,
            dropped,
        } = std::mem::take(gathered);
        let samples = batch.sample_count();
        let count = samples.div_ceil(self.request_samples.max(1));
        let count = count.min(self.shares_max).max(1);
        let shares = match batch.is_empty() {
            true => Vec::new(),
            false => self.shares(&batch, count, known),
        };
        Round {
            kept,
            shares,
            dropped,
            is_full: samples >= self.request_samples,
        }
    }

    /// Spreads the series of `batch` over `count` shares.
    fn shares(&self, batch: &Batch, count: usize, known: &Known) -> Vec<Share> {
        if count == 1 && batch.sample_count() <= self.request_samples {
            return vec![vec![self.request(batch, known)]];
        }
        let mut open = vec![Batch::default(); count];
        let mut shares = vec![Share::new(); count];
        for (number, series) in batch.numbered() {
            let share = share_of(series.labels, count);
            let (into, done) = (&mut open[share], &mut shares[share]);
            into.label_bytes()
                .extend_from_slice(series.labels.as_bytes());
            push_samples(into, series);
            let exemplars = batch.exemplars().of_series(number);
            exemplars.for_each(|exemplar| into.push_exemplar(exemplar));
            into.end_series();
            if into.sample_count() >= self.request_samples {
                done.push(self.request(into, known));
                into.clear();
            }
        }
        for (rest, share) in open.iter().zip(&mut shares) {
            if !rest.is_empty() {
                share.push(self.request(rest, known));
            }
        }
        shares.retain(|share| !share.is_empty());
        shares
    }

    fn request(&self, batch: &Batch, known: &Known) -> Sent {
        let body = match self.version {
            Version::V1 => encode(batch),
            Version::V2 => encode_interned(batch, &said_of(batch, known)),
        };
        contents_of(batch, body.into())
    }

    /// `labels`, and the external ones that it has not.
    fn with_external(&self, labels: LabelsRef<'_>) -> Labels {
        let mut bytes = Vec::with_capacity(labels.as_bytes().len());
        let mut external = self.external_labels.iter().peekable();
        for (name, value) in labels.iter() {
            while let Some((before, theirs)) = external.next_if(|(other, _)| *other < name) {
                push_pair(&mut bytes, before.as_bytes(), theirs);
            }
            external.next_if(|(other, _)| *other == name);
            push_pair(&mut bytes, name.as_bytes(), value);
        }
        for (name, value) in external {
            push_pair(&mut bytes, name.as_bytes(), value);
        }
        LabelsRef::from_canonical(&bytes).to_owned()
    }

    /// What relabelling makes of `labels`; none if it drops the series.
    fn relabelled(&self, labels: Labels) -> Option<Labels> {
        if self.relabel.is_empty() {
            return Some(labels);
        }
        let mut builder = LabelsBuilder::from_labels(labels.as_ref());
        let stays = relabel::apply(&self.relabel, &mut builder);
        let labels = builder.build();
        (stays && !labels.is_empty()).then_some(labels)
    }
}

impl Round {
    /// A round of one request, as it was kept.
    fn of(sent: Sent) -> Self {
        Self {
            kept: 1,
            shares: vec![vec![sent]],
            dropped: 0,
            is_full: true,
        }
    }
}

/// The request with this body, which holds `batch`.
fn contents_of(batch: &Batch, body: Bytes) -> Sent {
    let histograms: usize = batch.iter().map(|series| series.histograms.len()).sum();
    Sent {
        body,
        samples: (batch.sample_count() - histograms) as u64,
        histograms: histograms as u64,
        exemplars: batch.exemplars().len() as u64,
        newest: super::newest_of(batch),
    }
}

/// What is known of the metrics of `batch`.
fn said_of(batch: &Batch, known: &Known) -> MetadataBatch {
    let mut said = MetadataBatch::default();
    if known.is_empty() {
        return said;
    }
    let mut seen = HashSet::new();
    for series in batch.iter() {
        let name = series.labels.get(METRIC_NAME);
        if seen.insert(name)
            && let Ok(name) = std::str::from_utf8(name)
            && let Some(metadata) = known.of_series(name)
        {
            said.push(metadata);
        }
    }
    said
}

/// Adds the samples of `series` to the series under way.
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

/// The share of `count` that a series belongs to, within a round.
fn share_of(labels: LabelsRef<'_>, count: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    labels.as_bytes().hash(&mut hasher);
    (hasher.finish() % count as u64) as usize
}
