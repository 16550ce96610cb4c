//! Renders the figures as a Markdown table and as JSON.

use crate::churn::{self, Steadiness};
use crate::dashboard::PANELS;
use crate::scenario::{Ingest, Load, Measured, Plan};
use crate::system::{ALL, Kind, System};
use serde_json::{Value, json};
use std::fmt::Write;

/// A row of the table with one figure per system, in the order of the columns.
pub struct Row {
    /// The measured quantity, as the label of the row.
    pub name: String,
    /// Unit of the figures in the row.
    pub unit: &'static str,
    /// Figure of each measured system; NaN if it has none.
    pub figures: Vec<f64>,
    /// Minimum and maximum of the repetitions of each system, if there are repetitions.
    pub spreads: Vec<(f64, f64)>,
}

/// Number of bytes per MiB.
pub const MIB: f64 = 1_048_576.0;

/// Renders the table of a dashboard run: one column per system, then the ratios of Firn to each
/// other system.
pub fn markdown(plan: &Plan, measured: &[Measured], missing: &[(Kind, String)]) -> String {
    let mut out = format!("{}\n{}", describe(plan), missing_lines(missing));
    for (i, panel) in PANELS.iter().enumerate() {
        let sizes = measured.iter().map(|m| m.dashboard[i].elements);
        let sizes: Vec<String> = sizes.map(|n| n.to_string()).collect();
        if sizes.iter().any(|n| *n != sizes[0]) {
            let sizes = sizes.join(", ");
            let _ = writeln!(out, "Not comparable: {}: {sizes} elements", panel.name);
        }
    }
    let systems: Vec<&System> = measured.iter().map(|m| &m.system).collect();
    out + &draw(&systems, &rows(measured))
}

/// Renders the table of a churn run, with one column per system and the ratios of Firn to others.
pub fn churn_markdown(load: &Load, measured: &[Steadiness], missing: &[(Kind, String)]) -> String {
    let summary = &load.summary;
    let mut out = format!(
        "Churn: {} series at a time, {} in all, {} samples of {:.1} h. Asked all the while: \
         {}, {} min.\n",
        summary.series,
        summary.series_created,
        summary.samples,
        (summary.end_ms - summary.start_ms) as f64 / 3_600_000.0,
        churn::EXPRESSION,
        churn::SPAN_MS / 60_000
    );
    out.push_str(&missing_lines(missing));
    let systems: Vec<&System> = measured.iter().map(|m| &m.system).collect();
    out + &draw(&systems, &churn_rows(measured))
}

/// Returns a line for each system that was not measured, with the reason.
pub fn missing_lines(missing: &[(Kind, String)]) -> String {
    let line = |(kind, why): &(Kind, String)| format!("Not measured: {}: {why}\n", kind.name());
    missing.iter().map(line).collect()
}

/// Renders the figures of runs over the churn load, with one column per heading.
pub fn columns(headings: &[&str], measured: &[Steadiness]) -> String {
    let headings: Vec<String> = headings.iter().map(|h| (*h).to_owned()).collect();
    draw_columns(&headings, &[], &churn_rows(measured))
}

/// Renders one column per system, then the ratios of Firn to each other system.
pub fn draw(systems: &[&System], rows: &[Row]) -> String {
    let kinds = ALL.into_iter();
    let kinds: Vec<Kind> = kinds
        .filter(|k| systems.iter().any(|s| s.kind == *k))
        .collect();
    let peers: &[Kind] = match kinds.first() {
        Some(Kind::Firn) => &kinds[1..],
        _ => &[],
    };
    let columns = systems
        .iter()
        .map(|s| format!("{} {}", s.kind.name(), s.version));
    let ratios = peers.iter().map(|k| format!("Firn / {}", k.name()));
    let header: Vec<String> = columns.chain(ratios).collect();
    draw_columns(&header, peers, rows)
}

fn draw_columns(header: &[String], peers: &[Kind], rows: &[Row]) -> String {
    let mut out = format!("\n| | | {} |\n", header.join(" | "));
    let _ = writeln!(out, "|---|---|{}", "---:|".repeat(header.len()));
    for row in rows {
        out.push_str(&line(row, peers));
        out.push('\n');
    }
    out
}

fn churn_rows(measured: &[Steadiness]) -> Vec<Row> {
    let row = |name: &str, unit: &'static str, of: &dyn Fn(&Steadiness) -> f64| Row {
        name: name.to_owned(),
        unit,
        figures: measured.iter().map(of).collect(),
        spreads: Vec::new(),
    };
    let samples = |m: &Steadiness| (m.report.outcome.samples as f64).max(1.0);
    vec![
        row("CPU per million samples, queries included", "s", &|m| {
            m.cpu_seconds * 1e6 / samples(m)
        }),
        row("time to send", "s", &|m| m.report.elapsed.as_secs_f64()),
        row("bytes written per sample", "B", &|m| {
            m.written_bytes as f64 / samples(m)
        }),
        row("memory, median", "MiB", &|m| m.resident_bytes(0.5) / MIB),
        row("memory, peak", "MiB", &|m| m.resident_bytes(1.0) / MIB),
        row("memory, peak / median", "", &|m| {
            m.resident_bytes(1.0) / m.resident_bytes(0.5)
        }),
        row("push p50", "ms", &|m| m.push_ms(0.5)),
        row("push p99", "ms", &|m| m.push_ms(0.99)),
        row("push p99.9", "ms", &|m| m.push_ms(0.999)),
        row("push max", "ms", &|m| m.push_ms(1.0)),
        row("push p99.9 / p50", "", &|m| {
            m.push_ms(0.999) / m.push_ms(0.5)
        }),
        row("query p50", "ms", &|m| m.query_ms(0.5)),
        row("query p99", "ms", &|m| m.query_ms(0.99)),
        row("query max", "ms", &|m| m.query_ms(1.0)),
    ]
}

fn describe(plan: &Plan) -> String {
    let of = |l: &firn_mirror::prepared::PreparedLoadSummary| {
        format!(
            "{} series, {} samples each {} s apart",
            l.series,
            l.samples / l.series.max(1),
            l.interval_ms as f64 / 1000.0
        )
    };
    format!(
        "Fleet: {}. New series: {}. {} connections. Dashboard: {} min, {} turns each.",
        of(&plan.fleet.summary),
        of(&plan.creation.summary),
        plan.fleet.summary.senders,
        plan.dashboard_ms as f64 / 60_000.0,
        plan.turns
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

/// Formats a number with three significant digits, and without a fraction from 100 on.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => "–".to_owned(),
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
    for (scenario, ingest) in [("fleet", fleet as Part), ("new series", creation as Part)] {
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
                f64::from(i.report.latencies_us().quantile(q)) / 1000.0
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

fn creation(measured: &Measured) -> &Ingest {
    &measured.creation
}

/// Returns all figures as JSON, including those that the table leaves out.
pub fn json(plan: &Plan, measured: &[Measured]) -> Value {
    let systems: Vec<Value> = measured
        .iter()
        .map(|m| {
            json!({
                "system": m.system.kind.name(),
                "version": m.system.version,
                "fleet": ingest_json(&m.fleet),
                "new_series": ingest_json(&m.creation),
                "lost_in_crash": m.lost_in_crash,
                "dashboard": dashboard_json(m),
            })
        })
        .collect();
    json!({
        "fleet": plan.fleet.summary.to_json(),
        "new_series": plan.creation.summary.to_json(),
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
