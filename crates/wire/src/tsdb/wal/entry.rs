//! What records say (`tsdb/record/record.go`): series, samples of all kinds, exemplars, deletions,
//! metadata, and which samples were moved to `chunks_head`.
//!
//! ```text
//! record      = kind u8 | entries
//! 1 series    { series u64 | labels uvarint | { name | value }* }*
//! 2 samples   series u64 | time u64 | { series varint | time varint | value u64 }*, as distances
//! 3 deletions { series u64 | first time varint | last time varint }*
//! 4 exemplars as samples, each followed by labels
//! 5 markers   { series u64 | chunk u64 }*
//! 6 metadata  { series uvarint | type u8 | fields uvarint | { name | value }* }*
//! 7, 9        histograms, 8, 10 histograms of floats: as samples
//! 11..=13     samples, histograms, histograms of floats with start timestamps: the first with
//!             series, time and start varint; then series as a distance from the one before, time
//!             from the first, and of the start whether there is none (0), the one before (1), or
//!             how far it lies from the first (2)
//! ```

use super::histogram;
use crate::tsdb::bytes::Cursor;
use crate::tsdb::error::Malformed;
use crate::tsdb::sample::{Sample, Value};
use firn_model::labels::{Labels, LabelsRef, is_canonical};
use firn_model::metadata::MetricType;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};

/// One thing that a record says. Series go by the numbers that series entries gave them.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'r> {
    /// A series and its number.
    Series {
        /// The number.
        series: u64,
        /// The labels.
        labels: Labels,
    },
    /// A sample.
    Sample {
        /// The number of its series.
        series: u64,
        /// The sample.
        sample: Sample,
    },
    /// A histogram whose schema is not known, which upstream leaves out too.
    UnknownSchema {
        /// The number of its series.
        series: u64,
        /// When it was taken.
        time: TimestampMs,
        /// The schema.
        schema: i32,
    },
    /// An exemplar.
    Exemplar {
        /// The number of its series.
        series: u64,
        /// Labels of its own.
        labels: Labels,
        /// When it was taken.
        time: TimestampMs,
        /// What was observed.
        value: f64,
    },
    /// Samples of a series are deleted.
    Deletion {
        /// The number of the series.
        series: u64,
        /// The times of the samples; all of time if the series is gone.
        range: TimeRange,
    },
    /// The out-of-order samples of a series up to here lie in `chunks_head`.
    Mapped {
        /// The number of the series.
        series: u64,
        /// The chunk that was written last.
        chunk: u64,
    },
    /// What a series measures.
    Metadata {
        /// The number of the series.
        series: u64,
        /// The type of its metric.
        metric_type: MetricType,
        /// The unit, empty if none is given.
        unit: &'r [u8],
        /// The help, empty if none is given.
        help: &'r [u8],
    },
}

/// The entries of a record. Ends behind the first error; records of unknown kinds have none.
#[derive(Clone, Debug)]
pub struct Entries<'r> {
    cursor: Cursor<'r>,
    kind: Kind,
    /// What distances are from, once the first entry was read.
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
    /// The first series, or with starts the one before.
    series: u64,
    time: TimestampMs,
    first_start: TimestampMs,
    start: TimestampMs,
}

impl<'r> Entries<'r> {
    /// The entries of `record`.
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

    /// Whether the entries are series.
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

    /// Series and time as distances from those in front of all entries.
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

    /// Series, time and start of an entry that has one.
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
    // A label set is written as it is kept, but for what old versions may have let through.
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
