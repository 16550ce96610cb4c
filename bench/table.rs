//! The figures as a Markdown table and as JSON.

use crate::dashboard::PANELS;
use crate::scenario::{Ingest, Measured, Plan};
use crate::system::{ALL, Kind};
use serde_json::{Value, json};
use std::fmt::Write;

/// A line of the table.
struct Row {
    name: String,
    unit: &'static str,
    /// The figure of each system that was measured.
    figures: Vec<f64>,
    /// The smallest and the largest repetition of each, where there are repetitions.
    spreads: Vec<(f64, f64)>,
}

const MIB: f64 = 1_048_576.0;

/// The table: a column a system, then Firn's figure as a share of each other one's.
pub fn markdown(plan: &Plan, measured: &[Measured], missing: &[(Kind, String)]) -> String {
    let mut out = String::new();
    let kinds: Vec<Kind> = ALL
        .into_iter()
        .filter(|k| measured.iter().any(|m| m.system.kind == *k))
        .collect();
    let peers: Vec<Kind> = match kinds.first() {
        Some(Kind::Firn) => kinds[1..].to_vec(),
        _ => Vec::new(),
    };
    let mut push = |line: String| {
        out.push_str(&line);
        out.push('\n');
    };
    push(describe(plan));
    for (kind, why) in missing {
        push(format!("Not measured: {}: {why}", kind.name()));
    }
    for (i, panel) in PANELS.iter().enumerate() {
        let sizes = measured.iter().map(|m| m.dashboard[i].elements);
        let sizes: Vec<String> = sizes.map(|n| n.to_string()).collect();
        if sizes.iter().any(|n| *n != sizes[0]) {
            let sizes = sizes.join(", ");
            push(format!("Not comparable: {}: {sizes} elements", panel.name));
        }
    }
    push(String::new());
    let columns = measured
        .iter()
        .map(|m| format!("{} {}", m.system.kind.name(), m.system.version));
    let ratios = peers.iter().map(|k| format!("Firn / {}", k.name()));
    let header: Vec<String> = columns.chain(ratios).collect();
    push(format!("| | | {} |", header.join(" | ")));
    push(format!("|---|---|{}", "---:|".repeat(header.len())));
    for row in rows(measured) {
        push(line(&row, &peers));
    }
    out
}

fn describe(plan: &Plan) -> String {
    let of = |l: &firn_mirror::prepared::Summary| {
        format!(
            "{} series, {} samples each {} s apart",
            l.series,
            l.samples / l.series.max(1),
            l.interval_ms as f64 / 1000.0
        )
    };
    format!(
        "Fleet: {}. Births: {}. {} connections. Dashboard: {} min, {} repetitions.",
        of(&plan.fleet.summary),
        of(&plan.births.summary),
        plan.fleet.summary.senders,
        plan.dashboard_ms as f64 / 60_000.0,
        plan.repeats
    )
}

fn line(row: &Row, peers: &[Kind]) -> String {
    let mut line = format!("| {} | {} |", row.name, row.unit);
    for (place, figure) in row.figures.iter().enumerate() {
        let _ = write!(line, " {}", number(*figure));
        if let Some((min, max)) = row.spreads.get(place) {
            let _ = write!(line, " ({}–{})", number(*min), number(*max));
        }
        line.push_str(" |");
    }
    for place in 1..=peers.len() {
        let ratio = row.figures[0] / row.figures[place];
        let text = if ratio.is_finite() {
            format!("{ratio:.3}")
        } else {
            "–".to_owned()
        };
        let _ = write!(line, " {text} |");
    }
    line
}

/// Three significant digits, and no fraction where there are more.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn rows(measured: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut push = |name: &str, unit: &'static str, of: &dyn Fn(&Measured) -> f64| {
        rows.push(Row {
            name: name.to_owned(),
            unit,
            figures: measured.iter().map(of).collect(),
            spreads: Vec::new(),
        });
    };
    for (scenario, ingest) in [("fleet", fleet as Part), ("births", births as Part)] {
        let mut part = |name: &str, unit: &'static str, of: &dyn Fn(&Ingest) -> f64| {
            push(&format!("{scenario}: {name}"), unit, &|m| of(ingest(m)));
        };
        part("CPU per million samples", "s", &Ingest::cpu_per_million);
        part("CPU in all", "s", &|i| i.cpu_seconds);
        part("time to send", "s", &|i| i.report.elapsed.as_secs_f64());
        part("resident memory", "MiB", &|i| {
            i.usage.resident_bytes as f64 / MIB
        });
        part("peak memory", "MiB", &|i| i.usage.peak_bytes as f64 / MIB);
        part("bytes written per sample", "B", &|i| {
            i.usage.written_bytes as f64 / i.samples()
        });
        part("bytes on disk per sample", "B", &|i| {
            i.disk_bytes as f64 / i.samples()
        });
        for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
            part(&format!("push {name}"), "ms", &|i| {
                f64::from(i.report.latencies_us().at(q)) / 1000.0
            });
        }
        part("ready after kill -9", "s", &|i| {
            i.ready_after_kill.as_secs_f64()
        });
        part("lost after settling and kill -9", "samples", &|i| i.lost);
    }
    push(
        "crash: acked and lost by kill -9 at once",
        "samples",
        &|m| m.lost_in_crash,
    );
    for (i, panel) in PANELS.iter().enumerate() {
        let of = |m: &Measured| m.dashboard[i].median_ms();
        let spread = |m: &Measured| m.dashboard[i].spread_ms();
        rows.push(Row {
            name: panel.name.to_owned(),
            unit: "ms, median (min–max)",
            figures: measured.iter().map(of).collect(),
            spreads: measured.iter().map(spread).collect(),
        });
    }
    rows
}

type Part = fn(&Measured) -> &Ingest;

fn fleet(measured: &Measured) -> &Ingest {
    &measured.fleet
}

fn births(measured: &Measured) -> &Ingest {
    &measured.births
}

/// All figures, those that the table leaves out included.
pub fn json(plan: &Plan, measured: &[Measured]) -> Value {
    let systems: Vec<Value> = measured
        .iter()
        .map(|m| {
            json!({
                "system": m.system.kind.name(),
                "version": m.system.version,
                "fleet": ingest_json(&m.fleet),
                "births": ingest_json(&m.births),
                "lost_in_crash": m.lost_in_crash,
                "dashboard": dashboard_json(m),
            })
        })
        .collect();
    json!({
        "fleet": plan.fleet.summary.to_json(),
        "births": plan.births.summary.to_json(),
        "crash": plan.crash.summary.to_json(),
        "dashboard_ms": plan.dashboard_ms,
        "systems": systems,
    })
}

fn ingest_json(ingest: &Ingest) -> Value {
    json!({
        "push": ingest.report.to_json(),
        "start_seconds": ingest.start.as_secs_f64(),
        "cpu_seconds": ingest.cpu_seconds,
        "cpu_seconds_per_million_samples": ingest.cpu_per_million(),
        "resident_bytes": ingest.usage.resident_bytes,
        "peak_bytes": ingest.usage.peak_bytes,
        "written_bytes": ingest.usage.written_bytes,
        "disk_bytes": ingest.disk_bytes,
        "ready_after_kill_seconds": ingest.ready_after_kill.as_secs_f64(),
        "lost": ingest.lost,
    })
}

fn dashboard_json(measured: &Measured) -> Value {
    PANELS
        .iter()
        .zip(&measured.dashboard)
        .map(|(panel, timing)| {
            json!({
                "name": panel.name,
                "elements": timing.elements,
                "min_ms": timing.spread_ms().0,
                "median_ms": timing.median_ms(),
                "max_ms": timing.spread_ms().1,
            })
        })
        .collect()
}
