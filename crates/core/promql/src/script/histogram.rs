//! Native histograms in the notation of scripts:
//! `{{schema:1 count:3 sum:4.5 buckets:[1 2] offset:-1}}`.
//!
//! A list of buckets becomes a single span that includes empty buckets. Comparisons consider only
//! non-empty buckets.

use super::almost::almost_equal;
use crate::go_format::format_g;
use crate::number::parse_signed;
use firn_model::histogram::float::FloatHistogram;
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};

/// A histogram, and whether the script specifies its counter reset hint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScriptHistogram {
    pub(super) value: Histogram,
    /// True if `counter_reset_hint` was written. Only then is the hint compared.
    pub(super) hint_written: bool,
}

/// Parses a histogram `{{...}}` at the beginning of `text`. Returns it with the remaining text.
pub(super) fn parse_histogram(text: &str) -> Result<(ScriptHistogram, &str), String> {
    let inner = text.strip_prefix("{{").and_then(|t| t.split_once("}}"));
    let Some((inner, rest)) = inner else {
        return Err("histogram must stand between {{ and }}".into());
    };
    Ok((from_description(inner)?, rest))
}

fn from_description(inner: &str) -> Result<ScriptHistogram, String> {
    let mut described = HistogramDescription::default();
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
        described.set_key(key, value)?;
        rest = after.trim_start();
    }
    Ok(described.build())
}

/// The values of all keys of a histogram, with the defaults of missing keys.
#[derive(Default)]
struct HistogramDescription {
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

impl HistogramDescription {
    fn set_key(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "schema" => self.schema = parse_integer(key, value)?,
            "sum" => self.sum = parse_number(key, value)?,
            "count" => self.count = parse_number(key, value)?,
            "z_bucket" => self.zero_count = parse_number(key, value)?,
            "z_bucket_w" => self.zero_threshold = parse_unsigned(key, value)?,
            "buckets" => self.positive = parse_numbers(key, value)?,
            "offset" => self.positive_offset = parse_integer(key, value)?,
            "n_buckets" => self.negative = parse_numbers(key, value)?,
            "n_offset" => self.negative_offset = parse_integer(key, value)?,
            "custom_values" => self.custom_values = parse_numbers(key, value)?,
            "counter_reset_hint" => self.reset_hint = Some(parse_reset_hint(value)?),
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
                counts: HistogramCounts::Float {
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

pub(super) fn one_span(offset: i32, length: usize) -> Vec<BucketSpan> {
    // A line of a script never contains 2^32 numbers.
    let length = length as u32;
    if length == 0 {
        Vec::new()
    } else {
        vec![BucketSpan { offset, length }]
    }
}

fn parse_integer(key: &str, value: &str) -> Result<i32, String> {
    value
        .parse()
        .map_err(|_| format!("histogram: {key} is not an integer: {value}"))
}

fn parse_number(key: &str, value: &str) -> Result<f64, String> {
    parse_signed(value).map_err(|why| format!("histogram: {key} is not a number: {why}: {value}"))
}

fn parse_unsigned(key: &str, value: &str) -> Result<f64, String> {
    if value.starts_with('-') {
        Err(format!("histogram: {key} is negative: {value}"))
    } else {
        parse_number(key, value)
    }
}

fn parse_numbers(key: &str, value: &str) -> Result<Vec<f64>, String> {
    let inner = value.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
    let Some(inner) = inner else {
        return Err(format!("histogram: {key} is not a list: {value}"));
    };
    inner
        .split_whitespace()
        .map(|item| parse_number(key, item))
        .collect()
}

fn parse_reset_hint(value: &str) -> Result<ResetHint, String> {
    match value {
        "unknown" => Ok(ResetHint::Unknown),
        "reset" => Ok(ResetHint::Reset),
        "not_reset" => Ok(ResetHint::NotReset),
        "gauge" => Ok(ResetHint::Gauge),
        _ => Err(format!("histogram: unknown counter_reset_hint {value}")),
    }
}

impl ScriptHistogram {
    /// Returns this histogram plus or minus `other`, whose resolution must be at least as high.
    pub(super) fn plus(&self, other: &Self, sign: char) -> Result<Self, String> {
        let (schema, finer) = (self.value.schema, other.value.schema);
        if schema > finer {
            return Err(format!(
                "histograms: cannot merge from schema {finer} to {schema}"
            ));
        }
        let mut sum = FloatHistogram::from(&self.value);
        let other = FloatHistogram::from(&other.value);
        let joined = match sign {
            '-' => sum.subtract(&other),
            _ => sum.add(&other),
        };
        joined.map_err(|_| "histograms: custom and exponential buckets cannot be merged")?;
        Ok(Self {
            hint_written: self.hint_written,
            value: sum.into(),
        })
    }

    /// Returns whether `found` equals this histogram; counts and sums are compared approximately.
    pub(super) fn matches(&self, found: &Histogram) -> bool {
        let expected = &self.value;
        let (a, b) = (FloatHistogram::from(expected), FloatHistogram::from(found));
        let sides = a.non_empty_buckets().into_iter().zip(b.non_empty_buckets());
        expected.schema == found.schema
            && expected.zero_threshold == found.zero_threshold
            && expected.custom_values == found.custom_values
            && almost_equal(a.sum, b.sum)
            && almost_equal(a.count, b.count)
            && almost_equal(a.zero_count, b.zero_count)
            && sides.into_iter().all(|(a, b)| same_buckets(&a, &b))
            && (!self.hint_written || expected.reset_hint == found.reset_hint)
    }
}

fn same_buckets(a: &[(i32, f64)], b: &[(i32, f64)]) -> bool {
    let same = |((i, m), (j, n)): (&(i32, f64), &(i32, f64))| i == j && almost_equal(*m, *n);
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Formats a histogram in the notation of scripts, for error messages.
pub(super) fn describe(histogram: &Histogram) -> String {
    let parts = FloatHistogram::from(histogram);
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
    for (name, buckets) in ["buckets", "n_buckets"]
        .into_iter()
        .zip(parts.non_empty_buckets())
    {
        if !buckets.is_empty() {
            out.push_str(&format!(" {name}:{buckets:?}"));
        }
    }
    format!("{out} counter_reset_hint:{:?}}}}}", histogram.reset_hint)
}

/// Formats a histogram like the rule tests of Prometheus: zeros and unknown values are omitted.
pub fn format_for_rule_test(histogram: &Histogram) -> String {
    let parts = FloatHistogram::from(histogram);
    let number = |value| format_g(value, None);
    let list = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|v| number(*v)).collect();
        format!("[{}]", values.join(" "))
    };
    let mut out = Vec::new();
    if histogram.schema != 0 {
        out.push(format!("schema:{}", histogram.schema));
    }
    let numbers = [
        ("count", parts.count),
        ("sum", histogram.sum),
        ("z_bucket", parts.zero_count),
        ("z_bucket_w", histogram.zero_threshold),
    ];
    let numbers = numbers.into_iter().filter(|(_, value)| *value != 0.0);
    out.extend(numbers.map(|(key, value)| format!("{key}:{}", number(value))));
    if histogram.schema == CUSTOM_BUCKETS_SCHEMA {
        out.push(format!("custom_values:{}", list(&histogram.custom_values)));
    }
    match histogram.reset_hint {
        ResetHint::Unknown => {}
        ResetHint::Reset => out.push("counter_reset_hint:reset".into()),
        ResetHint::NotReset => out.push("counter_reset_hint:not_reset".into()),
        ResetHint::Gauge => out.push("counter_reset_hint:gauge".into()),
    }
    let keys = [("offset", "buckets"), ("n_offset", "n_buckets")];
    for ((offset, buckets), populated) in keys.into_iter().zip(parts.non_empty_buckets()) {
        let (Some((first, _)), Some((last, _))) = (populated.first(), populated.last()) else {
            continue;
        };
        if *first != 0 {
            out.push(format!("{offset}:{first}"));
        }
        let mut counts = vec![0.0; last.abs_diff(*first) as usize + 1];
        for (index, count) in &populated {
            counts[index.abs_diff(*first) as usize] = *count;
        }
        out.push(format!("{buckets}:{}", list(&counts)));
    }
    format!("{{{{{}}}}}", out.join(" "))
}
