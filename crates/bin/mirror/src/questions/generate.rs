//! Generates queries for the metrics of a system: each metric is queried in the ways that are usual
//! for its type.
//!
//! Invariant: the queries depend only on the seed and on the names of metrics and labels.

use super::{QueryText, QueryWeightRange, VariableLookup};
use crate::fleet::random::FleetRandom;
use firn_model::labels::METRIC_NAME;
use std::collections::HashSet;

/// Maximum number of metrics whose label names are looked up; enough for any number of queries.
const METRICS_MAX: usize = 300;

/// Number of attempts per query to find one that is not a duplicate.
const TRIES_MAX: usize = 20;

const WINDOWS: [&str; 4] = ["1m", "2m", "5m", "10m"];
const RANGE_FUNCTIONS: [&str; 10] = [
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "last_over_time",
    "stddev_over_time",
    "delta",
    "deriv",
    "changes",
];
const COUNTER_FUNCTIONS: [&str; 4] = ["rate", "increase", "irate", "resets"];
const AGGREGATIONS: [&str; 7] = ["sum", "avg", "min", "max", "count", "stddev", "group"];
const MATH: [&str; 7] = ["abs", "ceil", "floor", "sqrt", "round", "sgn", "-"];

struct GeneratorMetric {
    name: String,
    labels: Vec<String>,
}

impl GeneratorMetric {
    fn is_counter(&self) -> bool {
        let is_part = |ending: &&str| self.name.ends_with(*ending);
        ["_total", "_count", "_sum", "_bucket"].iter().any(is_part)
    }
}

/// Generates up to `count` distinct queries for the metrics that `lookup` finds. Fails if there are
/// none or if the lookup fails.
pub fn generate(
    count: usize,
    seed: u64,
    lookup: &dyn VariableLookup,
) -> Result<Vec<QueryText>, String> {
    let mut random = FleetRandom::new(seed);
    let mut names = lookup.label_values(METRIC_NAME, None)?;
    names.retain(|name| super::parse(name).is_ok());
    if names.is_empty() {
        return Err("no metrics to generate queries from".to_owned());
    }
    while names.len() > METRICS_MAX {
        names.swap_remove(random.below(names.len() as u64) as usize);
    }
    let mut metrics = Vec::new();
    for name in names {
        let mut labels = lookup.label_names(Some(&name))?;
        let is_taken = |label: &str| label == METRIC_NAME || label == "le";
        labels.retain(|label| !is_taken(label) && super::parse(label).is_ok());
        metrics.push(GeneratorMetric { name, labels });
    }
    let mut made = HashSet::new();
    let mut texts = Vec::new();
    for _ in 0..count.saturating_mul(TRIES_MAX) {
        if texts.len() == count {
            break;
        }
        let text = question(&metrics, &mut random);
        if made.insert(text.clone()) {
            let origin = format!("generated with seed {seed}");
            texts.push(QueryText {
                text,
                origin,
                manner: QueryWeightRange::default(),
            });
        }
    }
    Ok(texts)
}

fn pick<'v, T>(from: &'v [T], random: &mut FleetRandom) -> &'v T {
    &from[random.below(from.len() as u64) as usize]
}

fn question(metrics: &[GeneratorMetric], random: &mut FleetRandom) -> String {
    let metric = pick(metrics, random);
    let inner = vector(metric, random);
    let group = group(metric, random);
    let op = pick(&AGGREGATIONS, random);
    match random.below(12) {
        0 => inner,
        1..=4 => format!("{op}{group}({inner})"),
        5 => format!("topk({}, {inner})", 1 + random.below(5)),
        6 => format!("sort_desc({op}{group}({inner}))"),
        7 => format!("quantile{group}(0.9, {inner})"),
        8 => format!("{inner} / on () group_left () {op}({inner})"),
        9 => format!("max_over_time({op}{group}({inner})[10m:1m])"),
        10 => format!("{inner} > bool {op}({inner})"),
        _ => format!("absent({inner}) or {inner}"),
    }
}

/// Returns ` by (...)`, ` without (...)` or nothing.
fn group(metric: &GeneratorMetric, random: &mut FleetRandom) -> String {
    if metric.labels.is_empty() {
        return String::new();
    }
    let label = pick(&metric.labels, random);
    match random.below(3) {
        0 => String::new(),
        1 => format!(" by ({label}) "),
        _ => format!(" without ({label}) "),
    }
}

fn vector(metric: &GeneratorMetric, random: &mut FleetRandom) -> String {
    let name = &metric.name;
    let window = pick(&WINDOWS, random);
    if name.ends_with("_bucket") && random.below(2) == 0 {
        let by = group(metric, random).replace(" by (", " by (le, ");
        let by = if by.contains("le, ") {
            by
        } else {
            " by (le) ".to_owned()
        };
        return format!("histogram_quantile(0.99, sum{by}(rate({name}[{window}])))");
    }
    if metric.is_counter() {
        return format!("{}({name}[{window}])", pick(&COUNTER_FUNCTIONS, random));
    }
    match random.below(4) {
        0 => name.clone(),
        1 => format!("{name} offset {window}"),
        2 => format!("{}({name})", pick(&MATH, random)),
        _ => format!("{}({name}[{window}])", pick(&RANGE_FUNCTIONS, random)),
    }
}
