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
use crate::tsdb::bytes::Cursor;
use crate::tsdb::error::Malformed;
use crate::tsdb::sample::{Sample, Value};
use firn_model::labels::{Labels, LabelsRef, is_canonical};
use firn_model::metadata::MetricType;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};

/// One entry of a record. Series are identified by the numbers that series entries assign, which
/// precede all other entries of the series.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'r> {
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
        sample: Sample,
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
pub struct Entries<'r> {
    cursor: Cursor<'r>,
    kind: Kind,
    /// The values that differences refer to, known after the first entry.
    base: Option<Base>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Series,
    Deletions,
    Exemplars,
    Markers,
    Metadata,
    Samples { of: Of, with_starts: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Floats,
    Histograms,
    FloatHistograms,
}

#[derive(Clone, Copy, Debug)]
struct Base {
    /// The first series; in records with start timestamps the previous one.
    series: u64,
    time: TimestampMs,
    first_start: TimestampMs,
    start: TimestampMs,
}

impl<'r> Entries<'r> {
    /// Returns an iterator over the entries of `record`, which must be complete and decompressed.
    pub fn new(record: &'r [u8]) -> Self {
        let samples = |of, with_starts| Kind::Samples { of, with_starts };
        let (kind, rest) = record.split_first().unwrap_or((&0, &[]));
        let (kind, rest) = match kind {
            1 => (Kind::Series, rest),
            2 => (samples(Of::Floats, false), rest),
            3 => (Kind::Deletions, rest),
            4 => (Kind::Exemplars, rest),
            5 => (Kind::Markers, rest),
            6 => (Kind::Metadata, rest),
            7 | 9 => (samples(Of::Histograms, false), rest),
            8 | 10 => (samples(Of::FloatHistograms, false), rest),
            11 => (samples(Of::Floats, true), rest),
            12 => (samples(Of::Histograms, true), rest),
            13 => (samples(Of::FloatHistograms, true), rest),
            _ => (Kind::Series, &[][..]),
        };
        Self {
            cursor: Cursor::new(rest),
            kind,
            base: None,
        }
    }

    /// Returns whether the entries are series. A first pass over the log needs only those.
    pub fn are_series(&self) -> bool {
        self.kind == Kind::Series
    }

    fn read(&mut self) -> Result<Entry<'r>, Malformed> {
        let cursor = &mut self.cursor;
        match self.kind {
            Kind::Series => Ok(Entry::Series {
                series: cursor.be64()?,
                labels: labels(cursor)?,
            }),
            Kind::Deletions => {
                let series = cursor.be64()?;
                let min = cursor.varint()?;
                let range = TimeRange::new(min, cursor.varint()?);
                Ok(Entry::Deletion { series, range })
            }
            Kind::Markers => Ok(Entry::Mapped {
                series: cursor.be64()?,
                chunk: cursor.be64()?,
            }),
            Kind::Metadata => metadata(cursor),
            Kind::Exemplars => {
                let (series, time) = self.distances()?;
                Ok(Entry::Exemplar {
                    series,
                    time,
                    value: self.cursor.float()?,
                    labels: labels(&mut self.cursor)?,
                })
            }
            Kind::Samples { of, with_starts } => {
                let (series, time, start_time) = match with_starts {
                    true => self.with_start()?,
                    false => {
                        let (series, time) = self.distances()?;
                        (series, time, START_UNKNOWN)
                    }
                };
                let value = match of {
                    Of::Floats => Value::Float(self.cursor.float()?),
                    Of::Histograms | Of::FloatHistograms => {
                        match histogram::read(&mut self.cursor, of == Of::FloatHistograms)? {
                            Ok(histogram) => Value::Histogram(Box::new(histogram)),
                            Err(schema) => {
                                return Ok(Entry::UnknownSchema {
                                    series,
                                    time,
                                    schema,
                                });
                            }
                        }
                    }
                };
                let sample = Sample {
                    time,
                    start_time,
                    value,
                };
                Ok(Entry::Sample { series, sample })
            }
        }
    }

    /// Reads series and time as differences to those at the start of the record.
    fn distances(&mut self) -> Result<(u64, TimestampMs), Malformed> {
        let cursor = &mut self.cursor;
        let base = match self.base {
            Some(base) => base,
            None => Base {
                series: cursor.be64()?,
                time: cursor.be64()? as i64,
                first_start: START_UNKNOWN,
                start: START_UNKNOWN,
            },
        };
        self.base = Some(base);
        let series = base.series.wrapping_add_signed(cursor.varint()?);
        Ok((series, base.time.wrapping_add(cursor.varint()?)))
    }

    /// Reads series, time and start of an entry with a start timestamp.
    fn with_start(&mut self) -> Result<(u64, TimestampMs, TimestampMs), Malformed> {
        let cursor = &mut self.cursor;
        let Some(base) = &mut self.base else {
            let series = cursor.varint()? as u64;
            let time = cursor.varint()?;
            let start = cursor.varint()?;
            self.base = Some(Base {
                series,
                time,
                first_start: start,
                start,
            });
            return Ok((series, time, start));
        };
        base.series = base.series.wrapping_add_signed(cursor.varint()?);
        let time = base.time.wrapping_add(cursor.varint()?);
        base.start = match cursor.byte()? {
            0 => START_UNKNOWN,
            1 => base.start,
            _ => base.first_start.wrapping_add(cursor.varint()?),
        };
        Ok((base.series, time, base.start))
    }
}

impl<'r> Iterator for Entries<'r> {
    type Item = Result<Entry<'r>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.cursor = Cursor::new(&[]);
        }
        Some(entry)
    }
}

fn labels(cursor: &mut Cursor<'_>) -> Result<Labels, Malformed> {
    let count = cursor.count(2)?;
    let before = cursor.rest();
    let mut pairs = Vec::with_capacity(count);
    for _ in 0..count {
        pairs.push((cursor.prefixed()?, cursor.prefixed()?));
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
                return Err(Malformed::Invalid(what));
            }
        }
    }
    Ok(Labels::from_pairs(named))
}

fn metadata<'r>(cursor: &mut Cursor<'r>) -> Result<Entry<'r>, Malformed> {
    let series = cursor.uvarint()?;
    let metric_type = match cursor.byte()? {
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
    for _ in 0..cursor.count(2)? {
        match cursor.prefixed()? {
            b"UNIT" => unit = cursor.prefixed()?,
            b"HELP" => help = cursor.prefixed()?,
            _ => drop(cursor.prefixed()?),
        }
    }
    Ok(Entry::Metadata {
        series,
        metric_type,
        unit,
        help,
    })
}
