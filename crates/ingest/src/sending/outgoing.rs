//! From kept requests to those that one receiver gets: external labels, relabelling, requests that
//! are full, and shares of the series that may travel side by side.
//!
//! ```text
//! kept, kept, .. --decode, external labels, relabel--> round --hash of labels--> share, share, ..
//!                                                                share = request, request, ..
//! kept, of the receiver's version, nothing to change in it --> round of itself (see `passing`)
//! ```
//!
//! Most of what a request costs is its labels: read, copied, hashed, written and compressed again.
//! A request that the receiver may have as it was kept goes so.
//!
//! Invariant: a series is in one share of a round, its samples in the order in which they were
//! kept; rounds follow each other. So a receiver that takes the shares side by side, the requests
//! of a share one by one and the rounds one by one sees each series in order.

use super::known::Known;
use super::passing::{self, Joining, Shares};
use crate::relabel::{self, Rule};
use firn_model::batch::{Batch, SeriesSamples};
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, METRIC_NAME, push_pair};
use firn_model::metadata::MetadataBatch;
use firn_wire::WireLimits;
use firn_wire::remote_write::{Contents, Decoder, Reader, Seams, Version, encode, encode_interned};
use hyper::body::Bytes;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Samples of a round, unless one request may have more: what is decoded at a time, some 8 MB.
/// At 50 ms a round trip it is 600,000 samples a second.
pub const ROUND_SAMPLES: usize = 32 << 10;

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
    /// `min_shards` and `max_shards`: requests that are under way at once where there are so many,
    /// and for a receiver that is behind.
    pub shares: (usize, usize),
}

/// A request as it was kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What it is.
    pub version: Version,
    /// What it holds, if that was noted: all of it can stand then.
    pub contents: Option<Contents>,
    /// Its body.
    pub body: Bytes,
}

/// A request for the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Its body.
    pub body: Bytes,
    /// What it holds.
    pub contents: Contents,
    /// Where kept requests meet in it.
    pub seams: Seams,
}

impl Sent {
    /// One that is of one kept request.
    pub(super) fn whole(body: Bytes, contents: Contents) -> Self {
        Self {
            body,
            contents,
            seams: Seams::None,
        }
    }
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
    /// What relabelling dropped, or the receiver does not want.
    pub dropped: Contents,
    /// Whether it has as many samples as a request may.
    pub is_full: bool,
}

/// What is read of kept requests until a round has enough.
#[derive(Default)]
struct Gathered {
    kept: usize,
    batch: Batch,
    /// Up to which series each kept request goes that brought any.
    ends: Vec<u32>,
    dropped: Contents,
}

/// Rounds under way. Of what is to pass and what was gathered one is empty.
struct Making<'o> {
    outgoing: &'o Outgoing,
    known: &'o Known,
    /// Shares that a round may have.
    shares_max: usize,
    limits: &'o WireLimits,
    rounds: Vec<Result<Round, String>>,
    /// The next request that passes as it is.
    joining: Joining,
    /// Those before it, if the receiver is behind.
    passed: Vec<Round>,
    gathered: Gathered,
}

impl Making<'_> {
    /// Lets a body pass as it is.
    fn pass(&mut self, body: Bytes, contents: Contents) {
        self.end_gathered(true);
        let outgoing = self.outgoing;
        let may_join = outgoing.version == Version::V1;
        if !may_join || !self.joining.has_room(&contents, outgoing.request_samples) {
            self.end_joining(true);
        }
        self.joining.push(body, contents);
    }

    /// Reads a body whose samples become others, or requests of another size.
    fn gather(&mut self, decoder: &mut Decoder, kept: &Kept) {
        self.end_joining(true);
        self.end_passed();
        let gathered = self.gathered.batch.sample_count();
        let more = kept
            .contents
            .map_or(0, |contents| contents.all_samples() as usize);
        let max = self.outgoing.request_samples;
        if !self.is_wide() && gathered >= self.outgoing.half_full() && gathered + more > max {
            // One request each costs less than to cut and mix them.
            self.end_gathered(true);
        }
        match self.outgoing.gather(decoder, kept, &mut self.gathered) {
            Ok(()) => {
                let enough = match self.is_wide() {
                    true => self.outgoing.round_samples(),
                    false => max,
                };
                if self.gathered.batch.sample_count() >= enough {
                    self.end_gathered(true);
                }
            }
            Err(why) => {
                self.end_gathered(true);
                self.rounds.push(Err(why));
            }
        }
    }

    /// Whether requests go side by side.
    fn is_wide(&self) -> bool {
        self.shares_max > 1
    }

    fn finish(mut self) -> Vec<Result<Round, String>> {
        self.end_joining(false);
        self.end_passed();
        self.end_gathered(false);
        self.rounds
    }

    /// Ends the round of what was gathered, which is full if something else follows.
    fn end_gathered(&mut self, is_followed: bool) {
        if self.gathered.kept > 0 {
            let gathered = std::mem::take(&mut self.gathered);
            let mut round = self.outgoing.round(gathered, self.shares_max, self.known);
            round.is_full |= is_followed;
            self.rounds.push(Ok(round));
        }
    }

    /// Ends the request of what passes, which is full if something else follows.
    fn end_joining(&mut self, is_followed: bool) {
        for mut round in self.joining.rounds(self.outgoing, self.limits) {
            round.is_full |= is_followed;
            if !self.is_wide() {
                self.rounds.push(Ok(round));
                continue;
            }
            self.passed.push(round);
            let passed = self
                .passed
                .iter()
                .flat_map(|round| round.shares.iter().flatten());
            let samples: u64 = passed.map(|sent| sent.contents.all_samples()).sum();
            if samples >= self.outgoing.round_samples() as u64 {
                self.end_passed();
            }
        }
    }

    /// Makes shares of what passes, if the receiver is behind: of the requests as they are, or of
    /// their samples where too many requests have a series in common.
    fn end_passed(&mut self) {
        let passed = std::mem::take(&mut self.passed);
        let (version, shares_max) = (self.outgoing.version, self.shares_max);
        if passed.len() < 2 || !self.is_wide() {
            self.rounds.extend(passed.into_iter().map(Ok));
            return;
        }
        match passing::side_by_side(&passed, version, shares_max, self.limits) {
            Shares::Made(round) => self.rounds.push(Ok(round)),
            Shares::Unread => self.rounds.extend(passed.into_iter().map(Ok)),
            Shares::TooFew => {
                passed
                    .into_iter()
                    .for_each(|round| self.gather_again(round));
                self.end_gathered(true);
            }
        }
    }

    /// Reads what was to pass. A request may be made of several, which stay apart.
    fn gather_again(&mut self, round: Round) {
        let mut decoder = Decoder::new(*self.limits);
        let version = self.outgoing.version;
        let kept_before = self.gathered.kept;
        for sent in round.shares.iter().flatten() {
            let kept = |body: Bytes| Kept {
                version,
                contents: None,
                body,
            };
            let apart = sent.seams.apart((version, &sent.body), self.limits);
            let mut parts: Vec<Kept> = (apart.unwrap_or_default().into_iter())
                .map(|(body, _)| kept(body.into()))
                .collect();
            if parts.is_empty() {
                parts.push(kept(sent.body.clone()));
            }
            for part in &parts {
                let gathered = &mut self.gathered;
                if self.outgoing.gather(&mut decoder, part, gathered).is_err() {
                    // It was read a moment ago; if not, what is sent twice goes in order.
                    self.gathered.kept = kept_before;
                    self.end_gathered(true);
                    self.rounds.push(Ok(round));
                    return;
                }
            }
        }
        self.gathered.kept = kept_before + round.kept;
    }
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
        let mut making = Making {
            outgoing: self,
            known,
            shares_max: match is_behind {
                true => self.shares.1,
                false => self.shares.0,
            },
            limits,
            rounds: Vec::new(),
            joining: Joining::default(),
            passed: Vec::new(),
            gathered: Gathered::default(),
        };
        let mut decoder = Decoder::new(*limits);
        let extra = self.extra();
        for one in kept {
            let contents = self.contents_to_pass(&mut decoder, one, !known.is_empty());
            let passed = contents.and_then(|contents| {
                let body = match &extra {
                    None => one.body.clone(),
                    Some(extra) => passing::extended(&one.body, extra, limits)?,
                };
                Some((body, contents))
            });
            match passed {
                Some((body, contents)) => making.pass(body, contents),
                None => making.gather(&mut decoder, one),
            }
        }
        making.finish()
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
        into: &mut Gathered,
    ) {
        let exemplars = || from.exemplars().of_series(number);
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
            match self.relabelled(LabelsRef::from_canonical(&bytes)) {
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

    /// Whether it changes no series.
    pub(super) fn is_plain(&self) -> bool {
        self.external_labels.is_empty() && self.relabel.is_empty()
    }

    /// Makes a round of `shares_max` shares at most of what was gathered.
    fn round(&self, gathered: Gathered, shares_max: usize, known: &Known) -> Round {
        let samples = gathered.batch.sample_count();
        let count = samples.div_ceil(self.request_samples.max(1));
        let count = count.min(shares_max).max(1);
        let shares = match gathered.batch.is_empty() {
            true => Vec::new(),
            false => self.spread(&gathered, count, known),
        };
        let Gathered { kept, dropped, .. } = gathered;
        Round {
            kept,
            shares,
            dropped,
            is_full: samples >= self.request_samples,
        }
    }

    /// Spreads the series of `gathered` over `count` shares.
    fn spread(&self, gathered: &Gathered, count: usize, known: &Known) -> Vec<Share> {
        let Gathered { batch, ends, .. } = gathered;
        if count == 1 && batch.sample_count() <= self.request_samples {
            let (_, starts) = ends.split_last().unwrap_or((&0, &[]));
            return vec![vec![self.request(batch, starts.to_vec(), known)]];
        }
        let mut open: Vec<Open> = Vec::new();
        open.resize_with(count, Open::default);
        let mut shares = vec![Share::new(); count];
        let (mut of_kept, mut ends) = (0, ends.iter().peekable());
        for (number, series) in batch.numbered() {
            while ends.next_if(|end| u64::from(**end) <= number).is_some() {
                of_kept += 1;
            }
            let share = share_of(series.labels, count);
            let (into, done) = (&mut open[share], &mut shares[share]);
            into.begin(of_kept);
            let into_batch = &mut into.batch;
            into_batch
                .label_bytes()
                .extend_from_slice(series.labels.as_bytes());
            push_samples(into_batch, series);
            let exemplars = batch.exemplars().of_series(number);
            exemplars.for_each(|exemplar| into_batch.push_exemplar(exemplar));
            into_batch.end_series();
            if into_batch.sample_count() >= self.request_samples {
                let starts = std::mem::take(&mut into.starts);
                done.push(self.request(&into.batch, starts, known));
                into.batch.clear();
            }
        }
        for (rest, share) in open.into_iter().zip(&mut shares) {
            if !rest.batch.is_empty() {
                share.push(self.request(&rest.batch, rest.starts, known));
            }
        }
        shares.retain(|share| !share.is_empty());
        shares
    }

    /// A request with `batch`, in which other kept requests begin at the series `starts`.
    fn request(&self, batch: &Batch, starts: Vec<u32>, known: &Known) -> Sent {
        let body = match self.version {
            Version::V1 => encode(batch),
            Version::V2 => encode_interned(batch, &said_of(batch, known)),
        };
        Sent {
            body: body.into(),
            contents: Contents::of(batch, 0..batch.series_count()),
            seams: match starts.is_empty() {
                true => Seams::None,
                false => Seams::Series(starts),
            },
        }
    }

    /// Writes `labels`, and the external ones that it has not.
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

    /// What relabelling makes of `labels`; none if it drops the series.
    fn relabelled(&self, labels: LabelsRef<'_>) -> Option<Labels> {
        let mut builder = LabelsBuilder::from_labels(labels);
        let stays = relabel::apply(&self.relabel, &mut builder);
        let labels = builder.build();
        (stays && !labels.is_empty()).then_some(labels)
    }
}

/// A request of a share that is not full yet.
#[derive(Default)]
struct Open {
    batch: Batch,
    /// Where series begin of another kept request than those before them.
    starts: Vec<u32>,
    /// Of which kept request the last series is.
    of_kept: usize,
}

impl Open {
    /// Notes that the next series is of the kept request `of_kept`.
    fn begin(&mut self, of_kept: usize) {
        let count = self.batch.series_count();
        if count > 0 && self.of_kept != of_kept {
            self.starts.push(count as u32);
        }
        self.of_kept = of_kept;
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
