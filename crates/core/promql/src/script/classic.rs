//! Converts classic histograms to native histograms with custom buckets, for `load_with_nhcb`.
//!
//! Series whose names end in `_bucket`, `_count` and `_sum` form a histogram if their names without
//! the ending and their labels without `le` are equal. Each timestamp gives one native histogram.

use super::histogram::{ScriptHistogram, one_span};
use super::sequence::{LoadSample, ScriptSampleValue};
use crate::number::parse_signed;
use firn_model::histogram::{CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint};
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use std::collections::BTreeMap;

/// The label with the upper bound of a bucket.
const BOUND: &str = "le";

/// A classic histogram at one timestamp, collected from several series.
#[derive(Default)]
struct ScriptClassicHistogram {
    /// Upper bounds and cumulative counts of the buckets, in any order.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

/// The part of a classic histogram that a series contains.
enum ClassicHistogramPart {
    Bucket(f64),
    Count,
    Sum,
}

/// Converts the classic histograms among `series` to native histograms. Fails if the counts of
/// buckets are not cumulative or do not match the total count.
pub(super) fn convert(
    series: &[(Labels, Vec<LoadSample>)],
) -> Result<Vec<(Labels, Vec<LoadSample>)>, String> {
    let mut histograms: BTreeMap<Labels, BTreeMap<TimestampMs, ScriptClassicHistogram>> =
        BTreeMap::new();
    for (labels, samples) in series {
        let Some((base, part)) = split(labels) else {
            continue;
        };
        let by_time = histograms.entry(base).or_default();
        for sample in samples {
            let ScriptSampleValue::Float(value) = sample.value else {
                continue;
            };
            let classic = by_time.entry(sample.time).or_default();
            match part {
                ClassicHistogramPart::Bucket(bound) => classic.buckets.push((bound, value)),
                ClassicHistogramPart::Count => classic.count = Some(value),
                ClassicHistogramPart::Sum => classic.sum = value,
            }
        }
    }
    let mut out = Vec::new();
    for (labels, by_time) in histograms {
        let mut samples = Vec::with_capacity(by_time.len());
        for (time, classic) in by_time {
            let value = classic
                .into_native()
                .map_err(|why| format!("{labels}: {why}"))?;
            let value = ScriptHistogram {
                value,
                hint_written: false,
            };
            let value = ScriptSampleValue::Histogram(value);
            samples.push(LoadSample {
                time,
                start_time: START_UNKNOWN,
                value,
            });
        }
        out.push((labels, samples));
    }
    Ok(out)
}

/// Splits the labels of a series into those of the whole histogram and the part that the series
/// contains. Returns `None` if the series does not belong to a classic histogram.
fn split(labels: &Labels) -> Option<(Labels, ClassicHistogramPart)> {
    let name = labels.get(METRIC_NAME);
    let (base, part) = if let Some(base) = name.strip_suffix(b"_bucket") {
        let bound = std::str::from_utf8(labels.get(BOUND)).ok()?;
        let value = parse_signed(bound).ok().filter(|v| !v.is_nan())?;
        (base, ClassicHistogramPart::Bucket(value))
    } else if let Some(base) = name.strip_suffix(b"_count") {
        (base, ClassicHistogramPart::Count)
    } else {
        (name.strip_suffix(b"_sum")?, ClassicHistogramPart::Sum)
    };
    let mut builder = LabelsBuilder::from_labels(labels.as_ref());
    builder.set(METRIC_NAME, base).remove(BOUND);
    Some((builder.build(), part))
}

impl ScriptClassicHistogram {
    fn into_native(self) -> Result<Histogram, String> {
        let mut buckets = self.buckets;
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets.dedup_by(|later, earlier| later.0 == earlier.0);
        let last = buckets.last().copied();
        let count = self
            .count
            .or(last.map(|(_, count)| count))
            .unwrap_or_default();
        if last.is_none_or(|(bound, _)| bound != f64::INFINITY) {
            buckets.push((f64::INFINITY, count));
        }
        let mut counts = Vec::with_capacity(buckets.len());
        let mut below = 0.0;
        for (bound, cumulative) in &buckets {
            if *cumulative < below {
                return Err(format!(
                    "count is not cumulative: {cumulative} < {below} at {bound}"
                ));
            }
            counts.push(cumulative - below);
            below = *cumulative;
        }
        if below != count {
            return Err(format!(
                "count mismatch: {count} observations, {below} in buckets"
            ));
        }
        buckets.pop();
        Ok(Histogram {
            reset_hint: ResetHint::Unknown,
            schema: CUSTOM_BUCKETS_SCHEMA,
            zero_threshold: 0.0,
            sum: self.sum,
            positive_spans: one_span(0, counts.len()),
            negative_spans: Vec::new(),
            counts: HistogramCounts::Float {
                count,
                zero_count: 0.0,
                positive: counts,
                negative: Vec::new(),
            },
            custom_values: buckets.into_iter().map(|(bound, _)| bound).collect(),
        })
    }
}
