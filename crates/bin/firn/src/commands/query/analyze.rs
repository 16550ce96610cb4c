//! The command `firn query analyze`: counts the buckets of histograms in use. Output and texts are
//! those of promtool.

use super::{QueryCommandError, client, now, print, seconds};
use crate::commands::arguments::texts;
use crate::commands::client::CommandClient;
use clap::ArgMatches;
use firn_model::units::format_go_duration;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write;
use std::time::Duration;

const HEADER: &str = "Bucket stats for each histogram series over time
------------------------------------------------
First the min, avg, and max number of populated buckets, followed by the total
number of buckets (only if different from the max number of populated buckets
which is typical for classic but not native histograms).";

const FOOTER: &str = "Aggregated bucket stats
-----------------------
Each line shows min/avg/max over the series above.";

/// Queries the histograms of a job and returns the output of `firn query analyze`.
pub(super) fn analyze(
    client: &CommandClient,
    matches: &ArgMatches,
) -> Result<String, QueryCommandError> {
    let text = |id| matches.get_one::<String>(id).map(String::as_str);
    let kind = text("type").unwrap_or_default();
    if kind != "histogram" {
        return Err(QueryCommandError::Other(format!(
            "analyze type is {kind}, must be 'histogram'"
        )));
    }
    let end = seconds(text("time"), "time")?.unwrap_or_else(now);
    let span = matches.get_one::<Duration>("duration").copied();
    let span = i64::try_from(span.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX);
    let mut out = format!("{HEADER}\n\n");
    let (mut native, mut classic) = (
        HistogramUsageSummary::default(),
        HistogramUsageSummary::default(),
    );
    for selector in texts(matches, "match") {
        let query = format!("{selector}[{}]", format_go_duration(span));
        let params = vec![("query", query), ("time", end.to_string())];
        let data = client::post(client, "/api/v1/query", &params)?;
        if data["resultType"] != "matrix" {
            let what = "query of buckets resulted in non-Matrix";
            return Err(QueryCommandError::Other(what.to_owned()));
        }
        let mut families: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for series in data["result"].as_array().into_iter().flatten() {
            if series["values"].as_array().is_none_or(Vec::is_empty) {
                if let Some(stats) = native_statistics(series) {
                    let name = print::metric(&series["metric"]);
                    let _ = writeln!(out, "- {name} (native): {stats}");
                    native.add(&stats);
                }
            } else if let Some(name) = family_of(&series["metric"]) {
                families.entry(name).or_default().push(series);
            }
        }
        for (name, buckets) in families {
            if let Some(stats) = classic_statistics(buckets)? {
                let _ = writeln!(out, "- {name} (classic): {stats}");
                classic.add(&stats);
            }
        }
    }
    let _ = writeln!(out, "\n{FOOTER}");
    for (name, summary) in [("Native", native), ("Classic", classic)] {
        if summary.populated_min.count > 0 {
            let _ = writeln!(out, "\n{name} {summary}");
        }
    }
    Ok(out)
}

/// Returns the name of the histogram that a bucket series belongs to, with the labels that its
/// series share.
fn family_of(metric: &Value) -> Option<String> {
    let mut labels = metric.as_object()?.clone();
    let name = labels.remove("__name__")?.as_str()?.to_owned();
    labels.remove("le")?;
    name.ends_with("_bucket")
        .then(|| name + &print::label_set(&Value::Object(labels), &[]))
}

/// Number of buckets in use over the samples of a histogram, and its total number of buckets,
/// whether used or not.
struct HistogramBucketStatistics {
    min: usize,
    max: usize,
    total: usize,
    avg: f64,
}

impl HistogramBucketStatistics {
    /// Computes the statistics of a histogram. Returns `None` for fewer than two samples.
    fn from_histogram(counts: &[usize], total: usize) -> Option<Self> {
        let sum: usize = counts.iter().sum();
        (counts.len() > 1).then(|| Self {
            min: counts.iter().copied().min().unwrap_or(0),
            max: counts.iter().copied().max().unwrap_or(0),
            total,
            avg: sum as f64 / counts.len() as f64,
        })
    }
}

impl fmt::Display for HistogramBucketStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:.3}/{}", self.min, self.avg, self.max)?;
        if self.max == self.total {
            Ok(())
        } else {
            write!(f, "/{}", self.total)
        }
    }
}

fn native_statistics(series: &Value) -> Option<HistogramBucketStatistics> {
    let mut all = BTreeSet::new();
    let mut counts = Vec::new();
    for sample in series["histograms"].as_array()? {
        let buckets = sample[1]["buckets"].as_array();
        let buckets = buckets.map_or(&[][..], Vec::as_slice);
        let bounds = buckets
            .iter()
            .map(|b| format!("{} {} {}", b[0], b[1], b[2]));
        all.extend(bounds);
        counts.push(buckets.len());
    }
    HistogramBucketStatistics::from_histogram(&counts, all.len())
}

fn classic_statistics(
    mut buckets: Vec<&Value>,
) -> Result<Option<HistogramBucketStatistics>, QueryCommandError> {
    let bound = |series: &Value| {
        let le = series["metric"]["le"].as_str().unwrap_or_default();
        le.parse::<f64>().unwrap_or(0.0)
    };
    buckets.sort_by(|a, b| bound(a).total_cmp(&bound(b)));
    let samples = |series: &Value| series["values"].as_array().map_or(0, Vec::len);
    let mut counts = Vec::new();
    for at in 0..buckets.first().map_or(0, |first| samples(first)) {
        let mut populated = 0;
        let mut below = (None, 0.0);
        for series in &buckets {
            // If a bucket has no sample at this position, neither have the buckets above it.
            let Some(pair) = series["values"].get(at) else {
                break;
            };
            let time = pair[0].as_f64();
            if below.0.is_some() && below.0 != Some(time) {
                let what = "matrix result is not time aligned";
                return Err(QueryCommandError::Other(what.to_owned()));
            }
            let value = pair[1].as_str().unwrap_or_default();
            let value = value.parse::<f64>().unwrap_or(0.0);
            populated += usize::from((value - below.1) as i64 != 0);
            below = (Some(time), value);
        }
        counts.push(populated);
    }
    Ok(HistogramBucketStatistics::from_histogram(
        &counts,
        buckets.len(),
    ))
}

/// Minimum, maximum and average of a number over all histograms that were added.
#[derive(Default)]
struct BucketCountSpread {
    min: usize,
    max: usize,
    count: usize,
    avg: f64,
}

impl BucketCountSpread {
    fn add(&mut self, number: usize) {
        self.min = match self.count {
            0 => number,
            _ => self.min.min(number),
        };
        self.max = self.max.max(number);
        self.count += 1;
        self.avg += (number as f64 - self.avg) / self.count as f64;
    }
}

impl fmt::Display for BucketCountSpread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:.3}/{}", self.min, self.avg, self.max)
    }
}

/// Summary of all histograms of a kind: distributions of used and total buckets.
#[derive(Default)]
struct HistogramUsageSummary {
    populated_min: BucketCountSpread,
    populated_avg: BucketCountSpread,
    populated_max: BucketCountSpread,
    total: BucketCountSpread,
}

impl HistogramUsageSummary {
    fn add(&mut self, stats: &HistogramBucketStatistics) {
        self.populated_min.add(stats.min);
        self.populated_avg.add(stats.avg as usize);
        self.populated_max.add(stats.max);
        self.total.add(stats.total);
    }
}

impl fmt::Display for HistogramUsageSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "histogram series ({} in total):\n- min populated: {}\n- avg populated: {}\n- max \
             populated: {}",
            self.populated_min.count, self.populated_min, self.populated_avg, self.populated_max
        )?;
        let (max, total) = (&self.populated_max, &self.total);
        if (max.min, max.max, max.avg) == (total.min, total.max, total.avg) {
            Ok(())
        } else {
            write!(f, "\n- total: {total}")
        }
    }
}
