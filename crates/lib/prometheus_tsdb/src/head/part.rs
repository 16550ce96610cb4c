//! Collects one part of the series of a head in memory.

use super::series::{CollectedHeadSeries, HeadExemplar, HeadMetadata};
use crate::chunk::TsdbSampleKind;
use crate::head_chunks::HeadChunk;
use crate::sample::{TsdbSample, TsdbSampleValue, stale_histogram};
use crate::wal::WalEntry;
use firn_model::histogram::{HistogramCounts, ResetHint};
use firn_model::labels::{Labels, LabelsRef};
use firn_model::sample::{TimeRange, TimestampMs, is_stale};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Memory of a series in bytes, without labels and samples: its lists and its entries in both maps.
const SERIES_BYTES: usize = 512;

/// Memory of each additional number of a series in bytes.
const NUMBER_BYTES: usize = 48;

/// A part of all series: those whose label hash has the remainder `residue` modulo `modulus`.
/// Shares do not depend on the order of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeriesHashShare {
    pub modulus: u64,
    pub residue: u64,
}

impl SeriesHashShare {
    /// The share of all series.
    pub const ALL: SeriesHashShare = SeriesHashShare {
        modulus: 1,
        residue: 0,
    };

    /// Splits the share into two. Each series belongs to exactly one of them.
    pub fn halves(self) -> [SeriesHashShare; 2] {
        let modulus = self.modulus * 2;
        [self.residue, self.residue + self.modulus]
            .map(|residue| SeriesHashShare { modulus, residue })
    }

    /// Returns whether a series belongs to the share. The labels alone decide about it.
    pub fn has(self, labels: LabelsRef<'_>) -> bool {
        hash(labels.as_bytes()) % self.modulus == self.residue
    }
}

/// Returns an FNV-1a hash with mixed bits, so that the lowest ones are well distributed.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

/// The error that the series of a share do not fit into memory, after which the share is split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeadPartFull {
    /// Labels of the largest series, if the share contains only one.
    pub only: Option<Labels>,
}

/// The chunks of a series number that were found in `chunks_head`.
#[derive(Clone, Debug, Default)]
struct HeadSeriesChunks {
    in_order: Vec<HeadChunk>,
    late: Vec<HeadChunk>,
}

/// The series of a share that were collected so far, with their samples and chunks.
#[derive(Debug)]
pub(super) struct HeadPart {
    share: SeriesHashShare,
    min_valid_time: TimestampMs,
    limit: usize,
    bytes: usize,
    series: Vec<CollectedHeadSeries>,
    by_labels: BTreeMap<Labels, usize>,
    by_number: FxHashMap<u64, usize>,
    /// Chunks of `chunks_head` that no series has taken yet, by series number.
    chunks: FxHashMap<u64, HeadSeriesChunks>,
    /// Reference of the last chunk that was read, of any series.
    last_chunk: u64,
}

impl HeadPart {
    pub fn new(share: SeriesHashShare, min_valid_time: TimestampMs, limit: usize) -> Self {
        Self {
            share,
            min_valid_time,
            limit,
            bytes: 0,
            series: Vec::new(),
            by_labels: BTreeMap::new(),
            by_number: FxHashMap::default(),
            chunks: FxHashMap::default(),
            last_chunk: 0,
        }
    }

    fn charge_memory(&mut self, bytes: usize) -> Result<(), HeadPartFull> {
        self.bytes += bytes;
        if self.bytes <= self.limit {
            return Ok(());
        }
        let only = match &self.series[..] {
            [only] => Some(only.labels.clone()),
            _ => None,
        };
        Err(HeadPartFull { only })
    }

    /// Records that a series number belongs to the share, before chunks are read. Fails if the
    /// memory limit is reached.
    pub fn expect_series(&mut self, number: u64, labels: &Labels) -> Result<(), HeadPartFull> {
        if !self.share.has(labels.as_ref()) {
            return Ok(());
        }
        self.chunks.entry(number).or_default();
        self.charge_memory(NUMBER_BYTES)
    }

    /// Adds a chunk. In-order chunks before the end of the blocks are left out, as in upstream.
    /// Fails if the memory limit is reached.
    pub fn add_chunk(&mut self, chunk: HeadChunk) -> Result<(), HeadPartFull> {
        self.last_chunk = chunk.reference;
        let is_old = !chunk.is_out_of_order && chunk.range.max < self.min_valid_time;
        let Some(chunks) = self.chunks.get_mut(&chunk.series) else {
            return Ok(());
        };
        if is_old || chunk.encoding.is_none() {
            return Ok(());
        }
        if chunk.is_out_of_order {
            chunks.late.push(chunk)
        } else {
            chunks.in_order.push(chunk)
        }
        self.charge_memory(size_of::<HeadChunk>())
    }

    /// Returns the time ranges of the previous in-order chunk of the series and of `chunk`, if they
    /// overlap.
    pub fn find_overlap(&self, chunk: &HeadChunk) -> Option<(TimeRange, TimeRange)> {
        let before = self.chunks.get(&chunk.series)?.in_order.last()?;
        let overlaps = !chunk.is_out_of_order && before.range.max >= chunk.range.min;
        overlaps.then_some((before.range, chunk.range))
    }

    /// Adds an entry of the WAL; entries of series outside of the share are ignored. Fails if the
    /// memory limit is reached.
    pub fn add(&mut self, entry: WalEntry<'_>) -> Result<(), HeadPartFull> {
        match entry {
            WalEntry::Series { series, labels } => self.add_series(series, labels),
            WalEntry::Sample { series, sample } => self.add_sample(series, sample),
            WalEntry::Exemplar {
                series,
                labels,
                time,
                value,
            } => self.add_exemplar(
                series,
                HeadExemplar {
                    labels,
                    time,
                    value,
                },
            ),
            WalEntry::Deletion { series, range } => self.delete(series, range),
            WalEntry::Metadata {
                series,
                metric_type,
                unit,
                help,
            } => {
                let metadata = HeadMetadata {
                    metric_type,
                    unit: unit.to_vec(),
                    help: help.to_vec(),
                };
                let bytes = size_of::<HeadMetadata>() + unit.len() + help.len();
                match self.series_of(series) {
                    Some(series) => {
                        series.metadata = Some(metadata);
                        self.charge_memory(bytes)
                    }
                    None => Ok(()),
                }
            }
            WalEntry::Mapped { .. } | WalEntry::UnknownSchema { .. } => Ok(()),
        }
    }

    /// Adds an entry of the out-of-order log, with samples that are in no chunk yet. Fails if the
    /// memory limit is reached.
    pub fn add_late(&mut self, entry: WalEntry<'_>) -> Result<(), HeadPartFull> {
        let last_chunk = self.last_chunk;
        match entry {
            WalEntry::Sample { series, mut sample } => {
                normalize_sample(&mut sample, TsdbSampleKind::Float);
                let bytes = sample.memory_bytes();
                match self.series_of(series) {
                    Some(series) => {
                        series.late.push(sample);
                        self.charge_memory(bytes)
                    }
                    None => Ok(()),
                }
            }
            // A missing chunk was lost with the end of its file; the log still contains its
            // samples.
            WalEntry::Mapped { series, chunk } if chunk <= last_chunk => {
                if let Some(series) = self.series_of(series) {
                    series.late.clear();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn series_of(&mut self, number: u64) -> Option<&mut CollectedHeadSeries> {
        let place = self.by_number.get(&number)?;
        self.series.get_mut(*place).filter(|series| !series.is_gone)
    }

    /// Adds a series. A series that exists already, under any number, starts anew: its in-order
    /// samples are in blocks, and its chunks are those of the new number.
    fn add_series(&mut self, number: u64, labels: Labels) -> Result<(), HeadPartFull> {
        if !self.share.has(labels.as_ref()) {
            return Ok(());
        }
        let chunks = self.chunks.get(&number).cloned().unwrap_or_default();
        let place = match self.by_labels.get(&labels) {
            Some(place) => *place,
            None => {
                let bytes = SERIES_BYTES + labels.as_bytes().len();
                self.series.push(CollectedHeadSeries::new(labels.clone()));
                self.by_labels.insert(labels, self.series.len() - 1);
                self.charge_memory(bytes)?;
                self.series.len() - 1
            }
        };
        self.by_number.insert(number, place);
        if let Some(series) = self.series.get_mut(place) {
            series.samples.clear();
            series.late.clear();
            series.chunks = chunks.in_order;
            series.late_chunks = chunks.late;
        }
        self.charge_memory(NUMBER_BYTES)
    }

    fn add_sample(&mut self, number: u64, mut sample: TsdbSample) -> Result<(), HeadPartFull> {
        let min_valid_time = self.min_valid_time;
        let Some(series) = self.series_of(number) else {
            return Ok(());
        };
        let is_new = series.newest().is_none_or(|newest| newest < sample.time);
        if sample.time < min_valid_time || !is_new {
            return Ok(());
        }
        normalize_sample(&mut sample, series.newest_kind());
        let bytes = sample.memory_bytes();
        series.samples.push(sample);
        self.charge_memory(bytes)
    }

    fn add_exemplar(&mut self, number: u64, exemplar: HeadExemplar) -> Result<(), HeadPartFull> {
        let min_valid_time = self.min_valid_time;
        let Some(series) = self.series_of(number) else {
            return Ok(());
        };
        let repeats = |last: &HeadExemplar| {
            last.time > exemplar.time
                || last.time == exemplar.time
                    && last.value.to_bits() == exemplar.value.to_bits()
                    && last.labels == exemplar.labels
        };
        if exemplar.time < min_valid_time || series.exemplars.last().is_some_and(repeats) {
            return Ok(());
        }
        let bytes = size_of::<HeadExemplar>() + exemplar.labels.as_bytes().len();
        series.exemplars.push(exemplar);
        self.charge_memory(bytes)
    }

    fn delete(&mut self, number: u64, range: TimeRange) -> Result<(), HeadPartFull> {
        let min_valid_time = self.min_valid_time;
        let Some(series) = self.series_of(number) else {
            return Ok(());
        };
        if range == TimeRange::ALL {
            series.is_gone = true;
            let labels = series.labels.clone();
            self.by_labels.remove(&labels);
        } else if range.max >= min_valid_time {
            series.deleted.add(range);
            return self.charge_memory(size_of::<TimeRange>());
        }
        Ok(())
    }

    /// Returns the series that have samples, sorted by labels. Deleted series are left out.
    pub fn finish(self) -> Vec<CollectedHeadSeries> {
        let mut all = self.series;
        all.retain(|series| !series.is_gone && !series.is_empty());
        all.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        all
    }
}

/// Changes a sample to the form that its chunk gives it, after a sample of the kind `before`.
fn normalize_sample(sample: &mut TsdbSample, before: TsdbSampleKind) {
    match &mut sample.value {
        // A histogram series ends with a histogram.
        TsdbSampleValue::Float(value) if is_stale(*value) && before != TsdbSampleKind::Float => {
            let stale = stale_histogram(*value, before == TsdbSampleKind::FloatHistogram);
            sample.value = TsdbSampleValue::Histogram(Box::new(stale));
        }
        TsdbSampleValue::Float(_) => {}
        TsdbSampleValue::Histogram(histogram) if histogram.is_stale() => {
            let is_float = matches!(histogram.counts, HistogramCounts::Float { .. });
            **histogram = stale_histogram(histogram.sum, is_float);
        }
        // The reset hint may refer to a previous sample that was left out.
        TsdbSampleValue::Histogram(histogram) if histogram.reset_hint == ResetHint::NotReset => {
            histogram.reset_hint = ResetHint::Unknown;
        }
        TsdbSampleValue::Histogram(_) => {}
    }
}
