//! Renders the report of a load test as HTML: goals, quantiles and resource usage over time, in a
//! single file without external resources.

use super::report::{LoadReport, MeasuredSystem};
use super::watch::ResourceUsage;
use crate::page::chart::{ChartLine, draw};
use crate::page::{STYLE, escape, time_text};
use crate::quantiles::Quantiles;
use std::collections::BTreeMap;

/// Number of intervals of the load for which latency quantiles are drawn.
const PARTS: i64 = 60;

/// Number of bytes per MiB.
const MIB: f64 = 1_048_576.0;

/// Renders the complete page, from the goals down to the charts.
pub fn page(report: &LoadReport) -> String {
    let class = if report.missed().is_none() {
        "good"
    } else {
        "bad"
    };
    let verdict = match (report.judged.is_empty(), report.missed().is_none()) {
        (true, _) => "no goals were set",
        (false, true) => "all goals are met",
        (false, false) => "a goal is missed",
    };
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>firn load: {verdict}</title><style>{STYLE}</style></head><body>\n\
         <h1>Load test</h1>\n<p class=\"rate {class}\">{verdict}</p>\n\
         <p>{} series of {} targets at a time, {} series in all, a sample every {} s, from \
         {}.</p>\n",
        report.load.series,
        report.load.targets,
        report.load.series_created,
        report.load.interval_ms as f64 / 1000.0,
        time_text(report.load.start_ms),
    );
    out += &goals(report);
    out += &systems(report);
    for (title, unit, lines) in [
        (
            "Resident memory",
            "MiB",
            costs(report, |l| l.resident.map(|b| b / MIB)),
        ),
        (
            "Heap in use",
            "MiB",
            costs(report, |l| l.heap.map(|b| b / MIB)),
        ),
        ("CPU", "cores", rates(report, |l| l.cpu)),
        (
            "Written to disk",
            "MiB/s",
            rates(report, |l| l.written.map(|b| b / MIB)),
        ),
        ("Writes, p99", "ms", push_times(report)),
        (
            "Query latency since due time, p99",
            "ms",
            read_times(report),
        ),
    ] {
        out += &drawing(title, unit, lines);
    }
    out + "</body></html>\n"
}

fn drawing(title: &str, unit: &str, lines: Vec<(&str, Vec<(i64, f64)>)>) -> String {
    let lines: Vec<ChartLine<'_>> = lines
        .into_iter()
        .filter(|(_, points)| !points.is_empty())
        .map(|(name, points)| ChartLine {
            name,
            points,
            is_dashed: name == "unqueried",
        })
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("<h2>{title} ({unit})</h2>\n{}\n", draw(&lines, 0.0, 0.0))
    }
}

fn goals(report: &LoadReport) -> String {
    if report.judged.is_empty() {
        return String::new();
    }
    let mut out = "<h2>Goals</h2>\n<table>".to_owned();
    for judged in &report.judged {
        let (class, word) = if judged.is_met {
            ("good", "met")
        } else {
            ("bad", "missed")
        };
        out += &format!(
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"{class}\">{word}</td></tr>\n",
            escape(&judged.goal),
            escape(&judged.reached)
        );
    }
    out + "</table>\n"
}

fn systems(report: &LoadReport) -> String {
    let mut out = "<h2>Systems</h2>\n<table><tr><th></th><th class=\"n\">samples</th>\
                   <th class=\"n\">failed</th><th class=\"n\">p50</th><th class=\"n\">p99</th>\
                   <th class=\"n\">p99.9</th><th class=\"n\">max</th><th class=\"n\">CPU s</th>\
                   <th class=\"n\">written MiB</th></tr>\n"
        .to_owned();
    for measured in report.measured() {
        let times = Quantiles::new(measured.outcome.latencies_us.clone());
        let ms = |us: u32| f64::from(us) / 1e3;
        out += &format!(
            "<tr><th>{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td>",
            measured.name, measured.outcome.samples, measured.outcome.failed
        );
        for us in [
            times.quantile(0.5),
            times.quantile(0.99),
            times.quantile(0.999),
            times.max(),
        ] {
            out += &format!("<td class=\"n\">{:.1} ms</td>", ms(us));
        }
        let cpu = grown(measured.looks, |l| l.cpu);
        let written = grown(measured.looks, |l| l.written.map(|b| b / MIB));
        for figure in [cpu, written] {
            let text = figure.map_or("-".to_owned(), |figure| format!("{figure:.1}"));
            out += &format!("<td class=\"n\">{text}</td>");
        }
        out += "</tr>\n";
    }
    out + "</table>\n"
}

/// Returns the increase of a counter between the first and the last observation that contain it.
pub(super) fn grown(
    looks: &[ResourceUsage],
    of: impl Fn(&ResourceUsage) -> Option<f64>,
) -> Option<f64> {
    let values: Vec<f64> = looks.iter().filter_map(of).collect();
    Some(values.last()? - values.first()?)
}

fn costs(
    report: &LoadReport,
    of: fn(&ResourceUsage) -> Option<f64>,
) -> Vec<(&'static str, Vec<(i64, f64)>)> {
    let points = |m: &MeasuredSystem<'_>| {
        m.looks
            .iter()
            .filter_map(|l| Some((l.time_ms, of(l)?)))
            .collect()
    };
    report
        .measured()
        .iter()
        .map(|m| (m.name, points(m)))
        .collect()
}

/// Returns the per-second rates of a counter between consecutive observations, at the time of the
/// later one.
fn rates(
    report: &LoadReport,
    of: fn(&ResourceUsage) -> Option<f64>,
) -> Vec<(&'static str, Vec<(i64, f64)>)> {
    let mut all = costs(report, of);
    for (_, points) in &mut all {
        let rates = points.windows(2).filter(|pair| pair[1].0 > pair[0].0);
        let rates = rates.map(|pair| {
            let seconds = (pair[1].0 - pair[0].0) as f64 / 1e3;
            (pair[1].0, (pair[1].1 - pair[0].1) / seconds)
        });
        *points = rates.collect();
    }
    all
}

fn push_times(report: &LoadReport) -> Vec<(&'static str, Vec<(i64, f64)>)> {
    let measured = report.measured();
    let lines = measured
        .iter()
        .map(|m| (m.name, tails(&m.outcome.due_ms, &m.outcome.latencies_us)));
    lines.collect()
}

fn read_times(report: &LoadReport) -> Vec<(&'static str, Vec<(i64, f64)>)> {
    let total = report.asked.as_ref().map(|asked| asked.total());
    let line = total.map(|total| ("queried", tails(&total.due_ms, &total.latencies_us)));
    line.into_iter().collect()
}

/// Returns the 99th percentile of each interval in milliseconds, at the start of the interval.
fn tails(due_ms: &[i64], latencies_us: &[u32]) -> Vec<(i64, f64)> {
    let (Some(first), Some(last)) = (due_ms.iter().min(), due_ms.iter().max()) else {
        return Vec::new();
    };
    let part_ms = ((last - first) / PARTS).max(1_000);
    let mut parts: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
    for (due, us) in due_ms.iter().zip(latencies_us) {
        parts.entry((due - first) / part_ms).or_default().push(*us);
    }
    let tail = |(part, times): (i64, Vec<u32>)| {
        let at = first + part * part_ms;
        (at, f64::from(Quantiles::new(times).quantile(0.99)) / 1e3)
    };
    parts.into_iter().map(tail).collect()
}
