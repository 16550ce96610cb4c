//! The table and the JSON of a comparison of a cluster with a single node.

use super::nodes::NODES;
use super::{ClusterComparison, SystemCosts};
use crate::dashboard::PANELS;
use crate::table::{MIB, number};
use firn_mirror::push::PushOutcome;
use firn_mirror::quantiles::Quantiles;
use serde_json::{Value, json};
use std::fmt::Write;

/// A row of the table: name, unit, and the figure of a system.
type Row = (&'static str, &'static str, fn(&SystemCosts) -> f64);

const ROWS: [Row; 15] = [
    ("burst: CPU of the nodes per million samples", "s", |s| {
        s.cpu_seconds * 1e6 / s.samples()
    }),
    ("burst: CPU of the store per million samples", "s", |s| {
        s.store_cpu_seconds * 1e6 / s.samples()
    }),
    ("burst: resident memory of all nodes", "MiB", |s| {
        s.resident_bytes as f64 / MIB
    }),
    ("burst: bytes put in the bucket per sample", "B", |s| {
        s.put_bytes / s.samples()
    }),
    ("burst: objects put per thousand samples", "", |s| {
        s.puts * 1e3 / s.samples()
    }),
    (
        "burst: bytes in bucket or data folder per sample",
        "B",
        |s| s.disk_bytes as f64 / s.samples(),
    ),
    ("burst: push p50", "ms", |s| {
        latency_ms(&s.burst.latencies_us, 0.5)
    }),
    ("burst: push p99.9", "ms", |s| {
        latency_ms(&s.burst.latencies_us, 0.999)
    }),
    ("live: push p50", "ms", |s| {
        latency_ms(&s.quiet.latencies_us, 0.5)
    }),
    ("live: push p99", "ms", |s| {
        latency_ms(&s.quiet.latencies_us, 0.99)
    }),
    ("live: push p99.9", "ms", |s| {
        latency_ms(&s.quiet.latencies_us, 0.999)
    }),
    ("live, a node killed: push p50", "ms", |s| {
        latency_ms(&s.with_kill.latencies_us, 0.5)
    }),
    ("live, a node killed: push p99.9", "ms", |s| {
        latency_ms(&s.with_kill.latencies_us, 0.999)
    }),
    ("live, a node killed: push max", "ms", |s| {
        latency_ms(&s.with_kill.latencies_us, 1.0)
    }),
    ("live, a node killed: failed pushes", "", |s| {
        s.with_kill.failed as f64
    }),
];

fn latency_ms(latencies_us: &[u32], q: f64) -> f64 {
    match latencies_us {
        [] => f64::NAN,
        latencies_us => f64::from(Quantiles::new(latencies_us.to_vec()).quantile(q)) / 1e3,
    }
}

/// Renders the table: a column for each system and the ratio of the cluster to the single node.
pub fn markdown(compared: &ClusterComparison) -> String {
    let series: u64 = compared.loads.iter().map(|load| load.summary.series).sum();
    let mut out = format!(
        "{} nodes on {}, {series} series, {} samples in the burst.\n\n\
         | | | single node | cluster | cluster / single |\n|---|---|---:|---:|---:|\n",
        NODES.len(),
        compared.store,
        compared.cluster.burst.samples
    );
    let (single, cluster) = (&compared.single, &compared.cluster);
    for (name, unit, figure) in ROWS {
        push_row(&mut out, name, unit, [figure(single), figure(cluster)]);
    }
    let panels = single.dashboard.iter().zip(&cluster.dashboard);
    for (panel, (single, cluster)) in PANELS.iter().zip(panels) {
        push_row(
            &mut out,
            panel.name,
            "ms",
            [single.median_ms(), cluster.median_ms()],
        );
        if single.elements != cluster.elements {
            let (one, other) = (single.elements, cluster.elements);
            let _ = writeln!(out, "| not comparable: elements | | {one} | {other} | |");
        }
    }
    let mut sorted = compared.takeovers_s.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
    let longest = sorted.last().copied().unwrap_or(f64::NAN);
    push_row(
        &mut out,
        "kill -9 to accepted writes, median",
        "s",
        [f64::NAN, median],
    );
    push_row(
        &mut out,
        "kill -9 to accepted writes, longest",
        "s",
        [f64::NAN, longest],
    );
    out
}

fn push_row(out: &mut String, name: &str, unit: &str, figures: [f64; 2]) {
    let [single, cluster] = figures;
    // Without a figure of the single node, the ratio is not finite.
    let ratio = cluster / single;
    let ratio = number(if ratio.is_finite() { ratio } else { f64::NAN });
    let (single, cluster) = (number(single), number(cluster));
    let _ = writeln!(out, "| {name} | {unit} | {single} | {cluster} | {ratio} |");
}

/// Returns all figures as JSON.
pub fn json(compared: &ClusterComparison) -> Value {
    let system = |costs: &SystemCosts| {
        let figures = ROWS
            .iter()
            .map(|(name, _, figure)| ((*name).to_owned(), json!(figure(costs))));
        let panels = PANELS.iter().zip(&costs.dashboard);
        let panels = panels.map(|(p, timing)| (p.name.to_owned(), json!(timing.median_ms())));
        json!({
            "figures": Value::Object(figures.collect()),
            "dashboard_ms": Value::Object(panels.collect()),
            "failed": failures(&[&costs.burst, &costs.quiet, &costs.with_kill]),
        })
    };
    let loads: Vec<Value> = compared
        .loads
        .iter()
        .map(|load| load.summary.to_json())
        .collect();
    json!({
        "store": compared.store,
        "loads": loads,
        "single": system(&compared.single),
        "cluster": system(&compared.cluster),
        "takeovers_seconds": compared.takeovers_s,
    })
}

fn failures(outcomes: &[&PushOutcome]) -> Vec<Value> {
    let failed = |outcome: &&PushOutcome| {
        json!({ "requests": outcome.requests, "failed": outcome.failed,
            "first": outcome.first_failure })
    };
    outcomes.iter().map(failed).collect()
}
