//! Native histograms as scripts write them: `{{schema:1 count:3 sum:4.5 buckets:[1 2] offset:-1}}`.
//!
//! A list of buckets becomes one span, zeros included, so that comparing and adding go bucket by
//! bucket; what is compared are the buckets that hold something.

use super::almost::almost_equal;
use crate::parser::parse_number;
use firn_model::histogram::{Counts, Histogram, ResetHint, Span};
use std::collections::BTreeMap;

/// A histogram and whether the script says something about counter resets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScriptHistogram {
    pub(super) value: Histogram,
    /// Whether `counter_reset_hint` was written; the hint is compared only then.
    pub(super) hint_written: bool,
}

/// Buckets by index; those that hold nothing may be left out.
type Buckets = BTreeMap<i64, f64>;

/// Reads `{{...}}` at the beginning of `text`; returns what follows it.
pub(super) fn parse_histogram(text: &str) -> Result<(ScriptHistogram, &str), String> {
    let inner = text.strip_prefix("{{").and_then(|t| t.split_once("}}"));
    let Some((inner, rest)) = inner else {
        return Err("histogram must stand between {{ and }}".into());
    };
    Ok((from_description(inner)?, rest))
}

fn from_description(inner: &str) -> Result<ScriptHistogram, String> {
    let mut described = Description::default();
    let mut rest = inner.trim_start();
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let Some((key, value)) = rest.split_once(':') else {
            return Err(format!("histogram: expected key:value, got {rest}"));
        };
        let end = if value.starts_with('[') {
            value.find(']').map(|i| i + 1)
        } else {
            value.find(char::is_whitespace)
        };
        let (value, after) = value.split_at(end.unwrap_or(value.len()));
        if keys.contains(&key) {
            return Err(format!("histogram: duplicate key {key}"));
        }
        keys.push(key);
        described.set(key, value)?;
        rest = after.trim_start();
    }
    Ok(described.build())
}

/// What the keys said.
#[derive(Default)]
struct Description {
    schema: i32,
    sum: f64,
    count: f64,
    zero_count: f64,
    zero_threshold: f64,
    positive: Vec<f64>,
    positive_offset: i32,
    negative: Vec<f64>,
    negative_offset: i32,
    custom_values: Vec<f64>,
    reset_hint: Option<ResetHint>,
}

impl Description {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "schema" => self.schema = integer(key, value)?,
            "sum" => self.sum = number(key, value)?,
            "count" => self.count = number(key, value)?,
            "z_bucket" => self.zero_count = number(key, value)?,
            "z_bucket_w" => self.zero_threshold = number(key, value)?,
            "buckets" => self.positive = numbers(key, value)?,
            "offset" => self.positive_offset = integer(key, value)?,
            "n_buckets" => self.negative = numbers(key, value)?,
            "n_offset" => self.negative_offset = integer(key, value)?,
            "custom_values" => self.custom_values = numbers(key, value)?,
            "counter_reset_hint" => self.reset_hint = Some(hint(value)?),
            _ => return Err(format!("histogram: unknown key {key}")),
        }
        Ok(())
    }

    fn build(self) -> ScriptHistogram {
        ScriptHistogram {
            hint_written: self.reset_hint.is_some(),
            value: Histogram {
                reset_hint: self.reset_hint.unwrap_or_default(),
                schema: self.schema,
                zero_threshold: self.zero_threshold,
                sum: self.sum,
                positive_spans: one_span(self.positive_offset, self.positive.len()),
                negative_spans: one_span(self.negative_offset, self.negative.len()),
                counts: Counts::Float {
                    count: self.count,
                    zero_count: self.zero_count,
                    positive: self.positive,
                    negative: self.negative,
                },
                custom_values: self.custom_values,
            },
        }
    }
}

pub(super) fn one_span(offset: i32, length: usize) -> Vec<Span> {
    // A line of a script never holds 2^32 numbers.
    let length = length as u32;
    if length == 0 {
        Vec::new()
    } else {
        vec![Span { offset, length }]
    }
}

fn integer(key: &str, value: &str) -> Result<i32, String> {
    value
        .parse()
        .map_err(|_| format!("histogram: {key} is not an integer: {value}"))
}

fn number(key: &str, value: &str) -> Result<f64, String> {
    let unsigned = value.strip_prefix(['+', '-']).unwrap_or(value);
    let read = parse_number(unsigned)
        .map_err(|why| format!("histogram: {key} is not a number: {why}: {value}"))?;
    Ok(if value.starts_with('-') { -read } else { read })
}

fn numbers(key: &str, value: &str) -> Result<Vec<f64>, String> {
    let inner = value.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
    let Some(inner) = inner else {
        return Err(format!("histogram: {key} is not a list: {value}"));
    };
    inner
        .split_whitespace()
        .map(|item| number(key, item))
        .collect()
}

fn hint(value: &str) -> Result<ResetHint, String> {
    match value {
        "unknown" => Ok(ResetHint::Unknown),
        "reset" => Ok(ResetHint::Reset),
        "not_reset" => Ok(ResetHint::NotReset),
        "gauge" => Ok(ResetHint::Gauge),
        _ => Err(format!("histogram: unknown counter_reset_hint {value}")),
    }
}

impl ScriptHistogram {
    /// This histogram plus or minus `other`. Both have the same zero threshold and custom bounds,
    /// and `other` is at least as fine.
    pub(super) fn plus(&self, other: &Self, sign: char) -> Result<Self, String> {
        let (a, b) = (Parts::of(&self.value), Parts::of(&other.value));
        if self.value.schema > other.value.schema {
            return Err(format!(
                "histograms: cannot merge from schema {} to {}",
                other.value.schema, self.value.schema
            ));
        }
        if self.value.zero_threshold != other.value.zero_threshold
            || self.value.custom_values != other.value.custom_values
        {
            return Err("histograms: zero thresholds and custom bounds must be equal".into());
        }
        let factor = if sign == '-' { -1.0 } else { 1.0 };
        let coarser_by = (other.value.schema - self.value.schema) as u32;
        let add = |into: Buckets, from: &Buckets| {
            let mut sum = into;
            for (index, count) in from {
                // A coarser bucket covers 2^n finer ones; bucket 0 ends at 1 in every schema.
                let index = ((index - 1) >> coarser_by.min(62)) + 1;
                *sum.entry(index).or_default() += factor * count;
            }
            sum
        };
        let (positive_spans, positive) = dense(&add(a.positive, &b.positive))?;
        let (negative_spans, negative) = dense(&add(a.negative, &b.negative))?;
        Ok(Self {
            hint_written: self.hint_written,
            value: Histogram {
                reset_hint: merged_hint(self.value.reset_hint, other.value.reset_hint),
                sum: self.value.sum + factor * other.value.sum,
                counts: Counts::Float {
                    count: a.count + factor * b.count,
                    zero_count: a.zero_count + factor * b.zero_count,
                    positive,
                    negative,
                },
                positive_spans,
                negative_spans,
                ..self.value.clone()
            },
        })
    }

    /// Whether `found` is this histogram, number by number almost.
    pub(super) fn matches(&self, found: &Histogram) -> bool {
        let expected = &self.value;
        let (a, b) = (Parts::of(expected), Parts::of(found));
        expected.schema == found.schema
            && expected.zero_threshold == found.zero_threshold
            && expected.custom_values == found.custom_values
            && almost_equal(expected.sum, found.sum)
            && almost_equal(a.count, b.count)
            && almost_equal(a.zero_count, b.zero_count)
            && same_buckets(&a.positive, &b.positive)
            && same_buckets(&a.negative, &b.negative)
            && (!self.hint_written || expected.reset_hint == found.reset_hint)
    }
}

/// A sum of a gauge and something else is a gauge; of what does not fit together nothing is known.
fn merged_hint(a: ResetHint, b: ResetHint) -> ResetHint {
    match (a, b) {
        _ if a == b => a,
        (ResetHint::Gauge, _) | (_, ResetHint::Gauge) => ResetHint::Gauge,
        _ => ResetHint::Unknown,
    }
}

fn same_buckets(a: &Buckets, b: &Buckets) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|((i, m), (j, n))| i == j && almost_equal(*m, *n))
}

/// The buckets as one span from the first to the last, zeros between them.
fn dense(buckets: &Buckets) -> Result<(Vec<Span>, Vec<f64>), String> {
    let (Some((first, _)), Some((last, _))) = (buckets.first_key_value(), buckets.last_key_value())
    else {
        return Ok((Vec::new(), Vec::new()));
    };
    // Wider than a script writes on a line, and small enough to fill with zeros.
    let (first, last) = (*first, *last);
    if last - first > 100_000 {
        return Err(format!(
            "histograms: buckets too far apart: {first} and {last}"
        ));
    }
    let counts: Vec<f64> = (first..=last)
        .map(|i| buckets.get(&i).copied().unwrap_or_default())
        .collect();
    Ok((one_span(first as i32, counts.len()), counts))
}

/// The counts of a histogram as floats, buckets by index without the empty ones.
struct Parts {
    count: f64,
    zero_count: f64,
    positive: Buckets,
    negative: Buckets,
}

impl Parts {
    fn of(histogram: &Histogram) -> Self {
        let spans = (&histogram.positive_spans, &histogram.negative_spans);
        match &histogram.counts {
            Counts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => Self {
                count: *count,
                zero_count: *zero_count,
                positive: by_index(spans.0, positive.iter().copied()),
                negative: by_index(spans.1, negative.iter().copied()),
            },
            Counts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => Self {
                count: *count as f64,
                zero_count: *zero_count as f64,
                positive: by_index(spans.0, absolute(positive)),
                negative: by_index(spans.1, absolute(negative)),
            },
        }
    }
}

fn absolute(deltas: &[i64]) -> impl Iterator<Item = f64> {
    deltas.iter().scan(0i64, |count, delta| {
        *count = count.saturating_add(*delta);
        Some(*count as f64)
    })
}

fn by_index(spans: &[Span], counts: impl Iterator<Item = f64>) -> Buckets {
    let mut index = 0i64;
    let indexes = spans.iter().flat_map(|span| {
        let start = index + i64::from(span.offset);
        index = start + i64::from(span.length);
        start..index
    });
    indexes
        .zip(counts)
        .filter(|(_, count)| *count != 0.0)
        .collect()
}

/// A histogram in the notation of scripts, for messages.
pub(super) fn describe(histogram: &Histogram) -> String {
    let parts = Parts::of(histogram);
    let mut out = format!(
        "{{{{schema:{} count:{} sum:{}",
        histogram.schema, parts.count, histogram.sum
    );
    if parts.zero_count != 0.0 || histogram.zero_threshold != 0.0 {
        let (count, width) = (parts.zero_count, histogram.zero_threshold);
        out.push_str(&format!(" z_bucket:{count} z_bucket_w:{width}"));
    }
    if !histogram.custom_values.is_empty() {
        out.push_str(&format!(" custom_values:{:?}", histogram.custom_values));
    }
    for (name, buckets) in [("buckets", &parts.positive), ("n_buckets", &parts.negative)] {
        if !buckets.is_empty() {
            out.push_str(&format!(" {name}:{buckets:?}"));
        }
    }
    format!("{out} counter_reset_hint:{:?}}}}}", histogram.reset_hint)
}
