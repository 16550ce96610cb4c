//! Synthesizes start times for counters without one, for `--enable-feature=st-synthesis`.
//!
//! ```text
//! first sample  -> the anchor: not stored
//! later ones    -> difference to the anchor, with its timestamp as start time
//! after a reset -> unchanged value, with a start time one millisecond before the first such sample
//! ```
//!
//! Follows upstream's `scrape/st_synthesis.go`. The type of the current family decides whether a
//! series is a counter; a series that has an anchor remains one. Invariant: the samples of an
//! anchored series ascend in time; a sample that does not is left out, and the next one becomes the
//! anchor.

use firn_model::error::Error;
use firn_model::histogram::float::FloatHistogram;
use firn_model::histogram::{Histogram, HistogramCounts, ResetHint};
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::metadata::MetricType;
use firn_model::sample::{TimestampMs, is_stale};
use firn_wire::exposition::{
    ExpositionMetadata, ExpositionSample, ExpositionValue, FamilyMetadataField,
};

/// The metric family in the latest metadata of a body, which decides whether its series are
/// counters.
#[derive(Debug, Default)]
pub(super) struct ScrapedFamily {
    name: Vec<u8>,
    kind: MetricType,
}

impl ScrapedFamily {
    /// Resets to no family.
    pub(super) fn clear(&mut self) {
        self.name.clear();
        self.kind = MetricType::Unknown;
    }

    /// Applies a metadata event. Metadata of another family clears the previous type.
    pub(super) fn apply_metadata(&mut self, metadata: &ExpositionMetadata<'_>) {
        if self.name != metadata.name {
            self.clear();
            self.name.extend_from_slice(metadata.name);
        }
        if let FamilyMetadataField::Type(kind) = metadata.field {
            self.kind = kind;
        }
    }

    /// Returns whether a series of the family is a counter, possibly of a histogram or summary.
    fn contains_counter(&self, series: &Labels) -> bool {
        let metric = series.get(METRIC_NAME);
        let ends = |suffixes: &[&str]| {
            let of_family = metric.strip_prefix(&self.name[..]);
            of_family.is_some_and(|end| suffixes.iter().any(|suffix| end == suffix.as_bytes()))
        };
        match self.kind {
            MetricType::Counter => ends(&["", "_total"]),
            MetricType::Histogram => ends(&["", "_bucket", "_sum", "_count"]),
            MetricType::Summary => ends(&["_sum", "_count"]),
            _ => false,
        }
    }
}

/// The reference point of a series, relative to which its samples are stored, kept in the series
/// cache.
#[derive(Debug)]
pub(super) struct SeriesAnchor {
    since: TimestampMs,
    newest: TimestampMs,
    level: AnchorLevel,
}

/// The newest value of a series, for the detection of resets, and the value that is subtracted.
#[derive(Debug)]
enum AnchorLevel {
    Float { newest: f64, base: f64 },
    Histogram(Box<AnchorHistograms>),
}

#[derive(Debug)]
struct AnchorHistograms {
    newest: FloatHistogram,
    /// Value to subtract; `None` after a reset.
    base: Option<FloatHistogram>,
}

impl SeriesAnchor {
    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let held = match &self.level {
            AnchorLevel::Float { .. } => 0,
            AnchorLevel::Histogram(known) => {
                let base = known.base.as_ref().map_or(0, FloatHistogram::heap_bytes);
                size_of::<AnchorHistograms>() + known.newest.heap_bytes() + base
            }
        };
        size_of::<Self>() + held
    }
}

/// The result for a sample: whether and in which form it is stored.
#[derive(Debug, PartialEq)]
pub(super) enum AnchoredSample {
    /// The sample is stored unchanged.
    Unchanged,
    /// The sample is not stored, because it is the anchor or out of order.
    LeftOut,
    /// The sample is stored with this start time and amount.
    Since(TimestampMs, AnchoredAmount),
}

/// The difference between a sample and its anchor, of the sample's type.
#[derive(Debug, PartialEq)]
pub(super) enum AnchoredAmount {
    Float(f64),
    Histogram(Histogram),
}

impl AnchoredAmount {
    /// Returns the amount as the value of a sample.
    pub(super) fn as_sample_value(&self) -> ExpositionValue<'_> {
        match self {
            Self::Float(value) => ExpositionValue::Float(*value),
            Self::Histogram(histogram) => ExpositionValue::Histogram(histogram),
        }
    }
}

/// Processes a sample without a start time, taken at `time`, of a series in `family`. Fails if it
/// is an invalid histogram.
pub(super) fn relate_to_anchor(
    anchor: &mut Option<Box<SeriesAnchor>>,
    series: &Labels,
    family: &ScrapedFamily,
    sample: &ExpositionSample<'_>,
    time: TimestampMs,
) -> Result<AnchoredSample, Error> {
    let is_marker = match sample.value {
        ExpositionValue::Float(value) => is_stale(value),
        ExpositionValue::Histogram(histogram) => {
            histogram.validate()?;
            histogram.is_stale()
        }
    };
    if is_marker || anchor.is_none() && !family.contains_counter(series) {
        return Ok(AnchoredSample::Unchanged);
    }
    let counted = match anchor {
        Some(known) if time <= known.newest => None,
        Some(known) => known.subtract_anchor(sample.value, time),
        None => {
            *anchor = Some(Box::new(SeriesAnchor::from_first_sample(
                sample.value,
                time,
            )));
            return Ok(AnchoredSample::LeftOut);
        }
    };
    if counted.is_none() {
        *anchor = None;
    }
    Ok(counted.unwrap_or(AnchoredSample::LeftOut))
}

impl SeriesAnchor {
    fn from_first_sample(value: ExpositionValue<'_>, time: TimestampMs) -> Self {
        let level = match value {
            ExpositionValue::Float(value) => AnchorLevel::Float {
                newest: value,
                base: value,
            },
            ExpositionValue::Histogram(histogram) => {
                let newest = FloatHistogram::from(histogram);
                let base = Some(newest.clone());
                AnchorLevel::Histogram(Box::new(AnchorHistograms { newest, base }))
            }
        };
        Self {
            since: time,
            newest: time,
            level,
        }
    }

    /// Returns the difference between a value and the anchor, with its start time; `None` if it is
    /// of another type.
    fn subtract_anchor(
        &mut self,
        value: ExpositionValue<'_>,
        time: TimestampMs,
    ) -> Option<AnchoredSample> {
        self.newest = time;
        // The counter was reset between two samples: the only known bound is the time of the second
        // one.
        let reset_at = time.saturating_sub(1);
        let amount = match (value, &mut self.level) {
            (ExpositionValue::Float(value), AnchorLevel::Float { newest, base }) => {
                if value < *newest {
                    (*base, self.since) = (0.0, reset_at);
                }
                *newest = value;
                AnchoredAmount::Float(value - *base)
            }
            (ExpositionValue::Histogram(stored), AnchorLevel::Histogram(known)) => {
                let now = FloatHistogram::from(stored);
                if now.is_reset_after(&known.newest) {
                    (known.base, self.since) = (None, reset_at);
                }
                let amount = match &known.base {
                    Some(base) => histogram_difference(&now, base, stored)?,
                    None => stored.clone(),
                };
                known.newest = now;
                AnchoredAmount::Histogram(amount)
            }
            _ => return None,
        };
        Some(AnchoredSample::Since(self.since, amount))
    }
}

/// Returns the difference `now - base` with the count type of `stored`, which is the same as `now`;
/// `None` if the two are incompatible.
fn histogram_difference(
    now: &FloatHistogram,
    base: &FloatHistogram,
    stored: &Histogram,
) -> Option<Histogram> {
    let mut above = now.clone();
    above.subtract(base).ok()?;
    above.compact();
    let above = Histogram::from(above);
    Some(match stored.counts {
        HistogramCounts::Integer { .. } => convert_to_integer_counts(above, stored.reset_hint),
        HistogramCounts::Float { .. } => above,
    })
}

/// Converts a histogram with whole float counts to integer counts.
fn convert_to_integer_counts(histogram: Histogram, reset_hint: ResetHint) -> Histogram {
    let floats = histogram.counts.to_floats();
    let deltas = |counts: Vec<f64>| {
        let mut before = 0;
        let delta = |count: f64| {
            let count = count as i64;
            count - std::mem::replace(&mut before, count)
        };
        counts.into_iter().map(delta).collect()
    };
    Histogram {
        reset_hint,
        counts: HistogramCounts::Integer {
            count: floats.count as u64,
            zero_count: floats.zero_count as u64,
            positive: deltas(floats.positive),
            negative: deltas(floats.negative),
        },
        ..histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::BucketSpan;

    fn family(name: &str, kind: MetricType) -> ScrapedFamily {
        let mut family = ScrapedFamily::default();
        family.apply_metadata(&ExpositionMetadata {
            name: name.as_bytes(),
            field: FamilyMetadataField::Type(kind),
        });
        family
    }

    fn sample(value: ExpositionValue<'_>) -> ExpositionSample<'_> {
        ExpositionSample {
            key: b"",
            is_expected: false,
            time: None,
            start: None,
            value,
        }
    }

    /// Checks which series of a family are counters.
    #[track_caller]
    fn check_kind(name: &str, kind: MetricType, counters: &[&str], others: &[&str]) {
        let family = family(name, kind);
        let counts =
            |metric: &&str| family.contains_counter(&Labels::from_pairs([("__name__", *metric)]));
        assert!(counters.iter().all(counts), "{counters:?} of {name}");
        assert!(!others.iter().any(counts), "{others:?} of {name}");
    }

    #[test]
    fn series_of_counters_histograms_and_summaries_count() {
        use MetricType::{Counter, Gauge, GaugeHistogram, Histogram, Summary, Unknown};
        check_kind("a", Counter, &["a", "a_total"], &["b", "a_bucket", "ab"]);
        check_kind("a_total", Counter, &["a_total"], &["a", "a_created"]);
        let classic = ["a", "a_bucket", "a_sum", "a_count"];
        check_kind("a", Histogram, &classic, &["a_total", "a_bucket_sum"]);
        check_kind("a", Summary, &["a_sum", "a_count"], &["a"]);
        for kind in [Gauge, GaugeHistogram, Unknown] {
            check_kind("a", kind, &[], &classic);
        }
        check_kind("", Counter, &[], &["a"]);
    }

    /// Processes samples of one series and compares their start times and values; `None` means left
    /// out.
    #[track_caller]
    fn check(samples: &[(TimestampMs, f64)], wanted: &[Option<(TimestampMs, f64)>]) {
        let family = family("a", MetricType::Counter);
        let series = Labels::from_pairs([("__name__", "a")]);
        let mut anchor = None;
        for ((time, value), wanted) in samples.iter().zip(wanted) {
            let sample = sample(ExpositionValue::Float(*value));
            let counted = relate_to_anchor(&mut anchor, &series, &family, &sample, *time).unwrap();
            let wanted = match wanted {
                None => AnchoredSample::LeftOut,
                Some((since, value)) => {
                    AnchoredSample::Since(*since, AnchoredAmount::Float(*value))
                }
            };
            assert_eq!(counted, wanted, "{value}@{time} of {samples:?}");
        }
    }

    #[test]
    fn floats_count_from_the_first_one_and_anew_behind_a_reset() {
        check(
            &[(10, 5.0), (20, 5.0), (30, 8.0)],
            &[None, Some((10, 0.0)), Some((10, 3.0))],
        );
        check(
            &[(10, 5.0), (20, 2.0), (30, 3.0), (40, 1.0)],
            &[None, Some((19, 2.0)), Some((19, 3.0)), Some((39, 1.0))],
        );
    }

    #[test]
    fn sample_that_is_not_newer_is_left_out_and_the_next_one_begins_anew() {
        check(
            &[(10, 5.0), (20, 6.0), (20, 7.0), (30, 8.0), (40, 9.0)],
            &[None, Some((10, 1.0)), None, None, Some((30, 1.0))],
        );
    }

    fn histogram(count: u64, deltas: &[i64]) -> Histogram {
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema: 0,
            zero_threshold: 0.0,
            sum: count as f64,
            counts: HistogramCounts::Integer {
                count,
                zero_count: 0,
                positive: deltas.to_vec(),
                negative: Vec::new(),
            },
            positive_spans: vec![BucketSpan {
                offset: 0,
                length: deltas.len() as u32,
            }],
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        }
    }

    #[test]
    fn histograms_count_bucket_by_bucket_and_anew_behind_a_reset() {
        let family = family("a", MetricType::Histogram);
        let series = Labels::from_pairs([("__name__", "a")]);
        let mut anchor = None;
        let mut count = |time, stored: &Histogram| {
            let sample = sample(ExpositionValue::Histogram(stored));
            relate_to_anchor(&mut anchor, &series, &family, &sample, time).unwrap()
        };
        let since = |time, amount| AnchoredSample::Since(time, AnchoredAmount::Histogram(amount));
        assert_eq!(count(10, &histogram(4, &[1, 2])), AnchoredSample::LeftOut);
        // Buckets 1 and 3, then 3 and 8: the differences are 2 and 5.
        let wanted = since(10, histogram(7, &[2, 3]));
        assert_eq!(count(20, &histogram(11, &[3, 5])), wanted);
        // The first bucket equals that of the anchor, and is left out.
        let mut one = histogram(7, &[7]);
        one.positive_spans[0].offset = 1;
        let reset = histogram(2, &[1, 0]);
        assert_eq!(count(30, &reset), since(29, reset.clone()));
        let behind = histogram(11, &[1, 9]);
        assert_eq!(count(40, &behind), since(29, behind.clone()));
        let mut anchor = None;
        for (stored, wanted) in [
            (histogram(4, &[1, 2]), AnchoredSample::LeftOut),
            (histogram(11, &[1, 9]), since(10, one)),
        ] {
            let sample = sample(ExpositionValue::Histogram(&stored));
            let time = if wanted == AnchoredSample::LeftOut {
                10
            } else {
                20
            };
            let counted = super::relate_to_anchor(&mut anchor, &series, &family, &sample, time);
            assert_eq!(counted.unwrap(), wanted);
        }
    }

    #[test]
    fn series_that_turns_into_a_histogram_begins_anew() {
        let family = family("a", MetricType::Histogram);
        let series = Labels::from_pairs([("__name__", "a")]);
        let mut anchor = None;
        let stored = histogram(4, &[1, 2]);
        let values = [
            (10, ExpositionValue::Float(1.0)),
            (20, ExpositionValue::Histogram(&stored)),
            (30, ExpositionValue::Histogram(&stored)),
        ];
        for (time, value) in values {
            let counted = relate_to_anchor(&mut anchor, &series, &family, &sample(value), time);
            assert_eq!(counted.unwrap(), AnchoredSample::LeftOut, "at {time}");
        }
        let counted = relate_to_anchor(
            &mut anchor,
            &series,
            &family,
            &sample(ExpositionValue::Histogram(&stored)),
            40,
        );
        assert!(matches!(counted.unwrap(), AnchoredSample::Since(30, _)));
    }
}
