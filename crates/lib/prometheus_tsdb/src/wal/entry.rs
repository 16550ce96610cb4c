//! Decodes WAL records (`tsdb/record/record.go`): series, samples of all kinds, exemplars,
//! deletions, metadata, and markers for samples that were moved to `chunks_head`.
//!
//! ```text
//! record      = kind u8 | entries
//! 1 series    { series u64 | labels uvarint | { name | value }* }*
//! 2 samples   series u64 | time u64 | { series varint | time varint | value u64 }*, as differences
//! 3 deletions { series u64 | first time varint | last time varint }*
//! 4 exemplars like samples, each followed by labels
//! 5 markers   { series u64 | chunk u64 }*
//! 6 metadata  { series uvarint | type u8 | fields uvarint | { name | value }* }*
//! 7, 9        histograms, 8, 10 float histograms: like samples
//! 11..=13     samples, histograms, float histograms with start timestamps: the first with series,
//!             time and start varint; then series as difference to the previous one, time as
//!             difference to the first, and for the start: none (0), unchanged (1), or the
//!             difference to the first (2)
//! ```

use super::histogram;
use crate::bytes::TsdbByteCursor;
use crate::error::MalformedTsdbBytes;
use crate::sample::{TsdbSample, TsdbSampleValue};
use firn_model::labels::{Labels, LabelsRef, is_canonical};
use firn_model::metadata::MetricType;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};

/// One entry of a record. Series are identified by the numbers that series entries assign, which
/// precede all other entries of the series.
#[derive(Clone, Debug, PartialEq)]
pub enum WalEntry<'r> {
    /// A series and the number that later entries refer to.
    Series {
        /// Number of the series.
        series: u64,
        /// Labels of the series.
        labels: Labels,
    },
    /// A sample of either type, with its timestamps.
    Sample {
        /// Number of its series.
        series: u64,
        /// The sample with its timestamp and start timestamp.
        sample: TsdbSample,
    },
    /// A histogram with an unknown schema, which upstream leaves out too.
    UnknownSchema {
        /// Number of its series.
        series: u64,
        /// Timestamp in milliseconds.
        time: TimestampMs,
        /// The unknown schema, for the report.
        schema: i32,
    },
    /// An exemplar of a series, with its own labels.
    Exemplar {
        /// Number of its series.
        series: u64,
        /// Labels of the exemplar, for example the trace id.
        labels: Labels,
        /// Timestamp in milliseconds.
        time: TimestampMs,
        /// The observed value.
        value: f64,
    },
    /// A deletion of samples of a series.
    Deletion {
        /// Number of the series.
        series: u64,
        /// Time range of the deleted samples; all of time if the series is deleted.
        range: TimeRange,
    },
    /// A marker: the out-of-order samples of a series so far are in `chunks_head`.
    Mapped {
        /// Number of the series.
        series: u64,
        /// Reference of the last chunk that was written.
        chunk: u64,
    },
    /// The metadata of a series, which replaces earlier metadata.
    Metadata {
        /// Number of the series.
        series: u64,
        /// Type of the metric.
        metric_type: MetricType,
        /// Unit of the metric; empty if there is none.
        unit: &'r [u8],
        /// Help text of the metric; empty if there is none.
        help: &'r [u8],
    },
}

/// Iterator over the entries of a record. Ends after the first error; records of unknown kinds are
/// empty.
#[derive(Clone, Debug)]
pub struct WalEntries<'r> {
    cursor: TsdbByteCursor<'r>,
    kind: WalRecordKind,
    /// The values that differences refer to, known after the first entry.
    base: Option<WalDeltaBase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalRecordKind {
    Series,
    Deletions,
    Exemplars,
    Markers,
    Metadata,
    Samples {
        of: WalSampleKind,
        with_starts: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalSampleKind {
    Floats,
    Histograms,
    FloatHistograms,
}

#[derive(Clone, Copy, Debug)]
struct WalDeltaBase {
    /// The first series; in records with start timestamps the previous one.
    series: u64,
    time: TimestampMs,
    first_start: TimestampMs,
    start: TimestampMs,
}

impl<'r> WalEntries<'r> {
    /// Returns an iterator over the entries of `record`, which must be complete and decompressed.
    pub fn new(record: &'r [u8]) -> Self {
        let samples = |of, with_starts| WalRecordKind::Samples { of, with_starts };
        let (kind, rest) = record.split_first().unwrap_or((&0, &[]));
        let (kind, rest) = match kind {
            1 => (WalRecordKind::Series, rest),
            2 => (samples(WalSampleKind::Floats, false), rest),
            3 => (WalRecordKind::Deletions, rest),
            4 => (WalRecordKind::Exemplars, rest),
            5 => (WalRecordKind::Markers, rest),
            6 => (WalRecordKind::Metadata, rest),
            7 | 9 => (samples(WalSampleKind::Histograms, false), rest),
            8 | 10 => (samples(WalSampleKind::FloatHistograms, false), rest),
            11 => (samples(WalSampleKind::Floats, true), rest),
            12 => (samples(WalSampleKind::Histograms, true), rest),
            13 => (samples(WalSampleKind::FloatHistograms, true), rest),
            _ => (WalRecordKind::Series, &[][..]),
        };
        Self {
            cursor: TsdbByteCursor::new(rest),
            kind,
            base: None,
        }
    }

    /// Returns whether the entries are series. A first pass over the log needs only those.
    pub fn has_series_entries(&self) -> bool {
        self.kind == WalRecordKind::Series
    }

    fn read(&mut self) -> Result<WalEntry<'r>, MalformedTsdbBytes> {
        let cursor = &mut self.cursor;
        match self.kind {
            WalRecordKind::Series => Ok(WalEntry::Series {
                series: cursor.read_be64()?,
                labels: read_labels(cursor)?,
            }),
            WalRecordKind::Deletions => {
                let series = cursor.read_be64()?;
                let min = cursor.read_varint()?;
                let range = TimeRange::new(min, cursor.read_varint()?);
                Ok(WalEntry::Deletion { series, range })
            }
            WalRecordKind::Markers => Ok(WalEntry::Mapped {
                series: cursor.read_be64()?,
                chunk: cursor.read_be64()?,
            }),
            WalRecordKind::Metadata => read_metadata(cursor),
            WalRecordKind::Exemplars => {
                let (series, time) = self.read_differences()?;
                Ok(WalEntry::Exemplar {
                    series,
                    time,
                    value: self.cursor.read_float()?,
                    labels: read_labels(&mut self.cursor)?,
                })
            }
            WalRecordKind::Samples { of, with_starts } => {
                let (series, time, start_time) = if with_starts {
                    self.read_with_start()?
                } else {
                    let (series, time) = self.read_differences()?;
                    (series, time, START_UNKNOWN)
                };
                let value = match of {
                    WalSampleKind::Floats => TsdbSampleValue::Float(self.cursor.read_float()?),
                    WalSampleKind::Histograms | WalSampleKind::FloatHistograms => {
                        match histogram::read(
                            &mut self.cursor,
                            of == WalSampleKind::FloatHistograms,
                        )? {
                            Ok(histogram) => TsdbSampleValue::Histogram(Box::new(histogram)),
                            Err(schema) => {
                                return Ok(WalEntry::UnknownSchema {
                                    series,
                                    time,
                                    schema,
                                });
                            }
                        }
                    }
                };
                let sample = TsdbSample {
                    time,
                    start_time,
                    value,
                };
                Ok(WalEntry::Sample { series, sample })
            }
        }
    }

    /// Reads series and time as differences to those at the start of the record.
    fn read_differences(&mut self) -> Result<(u64, TimestampMs), MalformedTsdbBytes> {
        let cursor = &mut self.cursor;
        let base = match self.base {
            Some(base) => base,
            None => WalDeltaBase {
                series: cursor.read_be64()?,
                time: cursor.read_be64()? as i64,
                first_start: START_UNKNOWN,
                start: START_UNKNOWN,
            },
        };
        self.base = Some(base);
        let series = base.series.wrapping_add_signed(cursor.read_varint()?);
        Ok((series, base.time.wrapping_add(cursor.read_varint()?)))
    }

    /// Reads series, time and start of an entry with a start timestamp.
    fn read_with_start(&mut self) -> Result<(u64, TimestampMs, TimestampMs), MalformedTsdbBytes> {
        let cursor = &mut self.cursor;
        let Some(base) = &mut self.base else {
            let series = cursor.read_varint()? as u64;
            let time = cursor.read_varint()?;
            let start = cursor.read_varint()?;
            self.base = Some(WalDeltaBase {
                series,
                time,
                first_start: start,
                start,
            });
            return Ok((series, time, start));
        };
        base.series = base.series.wrapping_add_signed(cursor.read_varint()?);
        let time = base.time.wrapping_add(cursor.read_varint()?);
        base.start = match cursor.read_byte()? {
            0 => START_UNKNOWN,
            1 => base.start,
            _ => base.first_start.wrapping_add(cursor.read_varint()?),
        };
        Ok((base.series, time, base.start))
    }
}

impl<'r> Iterator for WalEntries<'r> {
    type Item = Result<WalEntry<'r>, MalformedTsdbBytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.cursor = TsdbByteCursor::new(&[]);
        }
        Some(entry)
    }
}

fn read_labels(cursor: &mut TsdbByteCursor<'_>) -> Result<Labels, MalformedTsdbBytes> {
    let count = cursor.read_count(2)?;
    let before = cursor.rest();
    let mut pairs = Vec::with_capacity(count);
    for _ in 0..count {
        pairs.push((cursor.read_prefixed()?, cursor.read_prefixed()?));
    }
    // A label set is stored in canonical form, unless an old version accepted an invalid one.
    let bytes = before.get(..before.len() - cursor.rest().len());
    if let Some(bytes) = bytes.filter(|bytes| is_canonical(bytes)) {
        return Ok(LabelsRef::from_canonical(bytes).to_owned());
    }
    let mut named = Vec::with_capacity(count);
    for (name, value) in pairs {
        match std::str::from_utf8(name) {
            Ok(name) if !name.is_empty() => named.push((name, value)),
            _ => {
                let what = "a label has a name that is empty or not UTF-8";
                return Err(MalformedTsdbBytes::Invalid(what));
            }
        }
    }
    Ok(Labels::from_pairs(named))
}

fn read_metadata<'r>(cursor: &mut TsdbByteCursor<'r>) -> Result<WalEntry<'r>, MalformedTsdbBytes> {
    let series = cursor.read_uvarint()?;
    let metric_type = match cursor.read_byte()? {
        1 => MetricType::Counter,
        2 => MetricType::Gauge,
        3 => MetricType::Histogram,
        4 => MetricType::GaugeHistogram,
        5 => MetricType::Summary,
        6 => MetricType::Info,
        7 => MetricType::Stateset,
        _ => MetricType::Unknown,
    };
    let (mut unit, mut help): (&[u8], &[u8]) = (&[], &[]);
    for _ in 0..cursor.read_count(2)? {
        match cursor.read_prefixed()? {
            b"UNIT" => unit = cursor.read_prefixed()?,
            b"HELP" => help = cursor.read_prefixed()?,
            _ => drop(cursor.read_prefixed()?),
        }
    }
    Ok(WalEntry::Metadata {
        series,
        metric_type,
        unit,
        help,
    })
}
