//! Text form of test data: the series notation of PromQL's test scripts, with directives for the
//! times of samples.
//!
//! ```text
//! start 1700000000000      time of position 0 in milliseconds, for all later lines
//! step 30s                 time between positions, for later lines
//! shift 417ms              offset that is added to the times of later lines
//! name{label="value"} 1 2+3x4 _ _x5 stale NaN {{count:1 sum:2 buckets:[1]}}x3
//! name@st -1m-30sx9 _      start timestamps of the next line, relative to its samples
//! ```
//!
//! Invariant: the samples of a series are in time order, and staleness markers have the bit pattern
//! of Prometheus.

use crate::error::MirrorError;
use firn_model::batch::{Batch, HistogramSample};
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::units::parse_duration;
use firn_promql::script::{read_series, read_start_times};
use firn_promql::value::QueryPointValue;

/// The series of a test and their samples, parsed from the text form by [`AnswerTestData::parse`]
/// and then sent or exposed to the systems.
#[derive(Clone, Debug, Default)]
pub struct AnswerTestData {
    /// Origin of the times of queries, in milliseconds since the epoch.
    pub start_ms: TimestampMs,
    /// Each series as its label set and its samples in time order.
    pub series: Vec<(Labels, Vec<AnswerTestSample>)>,
}

/// A sample of a test series: a float or a native histogram, with its timestamp and start
/// timestamp.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerTestSample {
    /// Timestamp of the sample in milliseconds since the epoch.
    pub time: TimestampMs,
    /// Start timestamp of the sample in milliseconds, or [`START_UNKNOWN`].
    pub start_time: TimestampMs,
    /// Value of the sample: a float or a native histogram.
    pub value: QueryPointValue,
}

impl AnswerTestSample {
    /// Returns whether the sample is a float and not a native histogram.
    pub fn is_float(&self) -> bool {
        matches!(self.value, QueryPointValue::Float(_))
    }
}

impl AnswerTestData {
    /// Parses the text form. Fails with the number and the text of the first line that is
    /// malformed.
    pub fn parse(text: &str) -> Result<Self, MirrorError> {
        let mut data = AnswerTestData::default();
        let (mut step_ms, mut shift_ms) = (15_000, 0);
        let mut starts = None;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let duration = |word: &str| line.strip_prefix(word).map(duration_ms);
            let understood = if let Some(value) = line.strip_prefix("start ") {
                value.parse().ok().map(|ms| data.start_ms = ms)
            } else if let Some(value) = duration("step ") {
                value.map(|ms| step_ms = ms)
            } else if let Some(value) = duration("shift ") {
                value.map(|ms| shift_ms = ms)
            } else if let Some(read) = read_start_times(line) {
                read.ok().map(|read| starts = Some(read))
            } else {
                let first_ms = data.start_ms + shift_ms;
                let series = parse_series(line, first_ms, step_ms, starts.take());
                series.map(|series| data.series.push(series))
            };
            if understood.is_none() {
                let what = format!("line {}: cannot be read: {line}", number + 1);
                return Err(MirrorError::Usage(what));
            }
        }
        Ok(data)
    }

    /// Splits the samples into batches that each span `span_ms`, oldest first. Receivers that
    /// reject samples much older than their newest one therefore accept all of them.
    pub fn batches(&self, span_ms: i64) -> Vec<Batch> {
        let times = || self.series.iter().flat_map(|(_, s)| s).map(|s| s.time);
        let (Some(first), Some(last)) = (times().min(), times().max()) else {
            return Vec::new();
        };
        let mut batches = Vec::new();
        let mut from = first;
        while from <= last {
            let mut batch = Batch::default();
            for (labels, samples) in &self.series {
                let start = samples.partition_point(|s| s.time < from);
                let end = samples.partition_point(|s| s.time < from + span_ms);
                if start < end {
                    push_series(&mut batch, labels, &samples[start..end]);
                }
            }
            if !batch.is_empty() {
                batches.push(batch);
            }
            from += span_ms;
        }
        batches
    }
}

/// Parses the line of a series. `starts` holds the labels and the offsets of the preceding line of
/// start timestamps; both must match the series, otherwise the result is `None`.
fn parse_series(
    line: &str,
    first_ms: TimestampMs,
    step_ms: i64,
    starts: Option<(Labels, Vec<Option<i64>>)>,
) -> Option<(Labels, Vec<AnswerTestSample>)> {
    let (labels, values) = read_series(line).ok()?;
    let offsets = match starts {
        None => vec![None; values.len()],
        Some((of, offsets)) => {
            (of == labels && offsets.len() == values.len()).then_some(offsets)?
        }
    };
    let times = (0..).map(|position| first_ms + position * step_ms);
    let samples = times.zip(values).zip(offsets);
    let present = samples.filter_map(|((time, value), offset)| {
        let start_time = offset.map_or(START_UNKNOWN, |offset| time + offset);
        value.map(|value| AnswerTestSample {
            time,
            start_time,
            value,
        })
    });
    Some((labels, present.collect()))
}

/// Appends a series to `batch`, in runs of floats and runs of histograms: within one series of a
/// request, receivers append the floats before the histograms, which would break the time order.
fn push_series(batch: &mut Batch, labels: &Labels, samples: &[AnswerTestSample]) {
    for run in samples.chunk_by(|a, b| a.is_float() == b.is_float()) {
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        for sample in run {
            match &sample.value {
                QueryPointValue::Float(value) if sample.start_time == START_UNKNOWN => {
                    batch.push_float(sample.time, *value);
                }
                QueryPointValue::Float(value) => {
                    batch.push_float_with_start(sample.time, *value, sample.start_time);
                }
                QueryPointValue::Histogram(histogram) => batch.push_histogram(HistogramSample {
                    time: sample.time,
                    start_time: sample.start_time,
                    histogram: Histogram::clone(histogram),
                }),
            }
        }
        batch.end_series();
    }
}

/// Parses a duration such as `39m417ms` into milliseconds; returns `None` if it is malformed.
pub(super) fn duration_ms(text: &str) -> Option<i64> {
    let duration = parse_duration(text).ok()?;
    Some(duration.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(i64, u64)]) {
        let data = AnswerTestData::parse(text).unwrap();
        let samples: Vec<_> = data.series[0]
            .1
            .iter()
            .map(|sample| match &sample.value {
                QueryPointValue::Float(value) => (sample.time, value.to_bits()),
                QueryPointValue::Histogram(histogram) => (sample.time, histogram.sum.to_bits()),
            })
            .collect();
        assert_eq!(samples, expected, "{text}");
    }

    #[test]
    fn data_of_every_item_is_expanded() {
        let bits = f64::to_bits;
        let text = "start 1000\nstep 1s\nshift 5ms\nm{} 1 _ 2+0.5x2 _x2 -1e-3-1x1 stale 7x1 -Inf \
                    {{sum:4}}";
        let expected = [
            (1_005, bits(1.0)),
            (3_005, bits(2.0)),
            (4_005, bits(2.5)),
            (5_005, bits(3.0)),
            (8_005, bits(-0.001)),
            (9_005, bits(-1.001)),
            (10_005, 0x7ff0_0000_0000_0002),
            (11_005, bits(7.0)),
            (12_005, bits(7.0)),
            (13_005, bits(f64::NEG_INFINITY)),
            (14_005, bits(4.0)),
        ];
        check(text, &expected);
    }

    #[test]
    fn data_start_times_count_from_their_samples() {
        let text = "start 100000\nstep 10s\nm{a=\"b\"}@st -5s-10sx1 _ 0s\nm{a=\"b\"} 1 2 _ 3\n";
        let data = AnswerTestData::parse(text).unwrap();
        let samples: Vec<_> = data.series[0]
            .1
            .iter()
            .map(|s| (s.time, s.start_time))
            .collect();
        assert_eq!(
            samples,
            [(100_000, 95_000), (110_000, 95_000), (130_000, 130_000)]
        );
    }

    #[test]
    fn data_labels_are_unescaped() {
        let data = AnswerTestData::parse(r#"m{a="x\"y\n",b="z\\"} 1"#).unwrap();
        let expected = Labels::from_pairs([("__name__", "m"), ("a", "x\"y\n"), ("b", "z\\")]);
        assert_eq!(data.series[0].0, expected);
    }

    #[test]
    fn data_that_cannot_be_read_names_its_line() {
        for line in [
            "m{a=\"x\" 1",
            "m 1+x",
            "m one",
            "step often",
            "m _y",
            "m{a=\"\\q\"} 1",
            "m@st 1",
        ] {
            let e = AnswerTestData::parse(&format!("start 0\n{line}"))
                .unwrap_err()
                .to_string();
            assert_eq!(e, format!("line 2: cannot be read: {line}"));
        }
    }

    #[test]
    fn data_batches_split_by_time_and_lose_nothing() {
        let data = AnswerTestData::parse("step 10s\na 0+1x9\nshift 1s\nb 1 _x6 2").unwrap();
        let batches = data.batches(30_000);
        let sizes: Vec<_> = batches.iter().map(Batch::sample_count).collect();
        assert_eq!(sizes, [4, 3, 4, 1]);
    }
}
