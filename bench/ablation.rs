//! Ablation of sealing: the same load with each of its two switches on and off, to measure their
//! benefit.
//!
//! With jitter, the windows of neighbouring series end at different times; with background sealing,
//! blocks are sealed outside of the write path. Both are on by default and have switches only for
//! this measurement.

use crate::churn::{self, Steadiness};
use crate::scenario::Load;
use crate::system::System;
use crate::{say, table};
use serde_json::{Value, json};
use std::path::Path;

/// Heading of each variant, and the lines of its config file that switch features off.
const VARIANTS: [(&str, &str); 4] = [
    ("jitter, background", ""),
    ("background alone", "firn: {sealing_jitter: false}\n"),
    ("jitter alone", "firn: {sealing_background: false}\n"),
    (
        "neither",
        "firn: {sealing_jitter: false, sealing_background: false}\n",
    ),
];

/// Sends the load to each variant of Firn, one after the other, each with an empty data directory.
pub fn run(firn: &System, dir: &Path, load: &Load) -> Result<Vec<Steadiness>, String> {
    let mut measured = Vec::new();
    for (number, (name, settings)) in VARIANTS.iter().enumerate() {
        rustix::fs::sync();
        say(&format!("measure {name}"));
        let dir = dir.join(format!("variant-{number}"));
        measured.push(churn::run(&firn.with_settings(settings), &dir, load)?);
    }
    Ok(measured)
}

/// Renders the results as a Markdown table with one column per variant, without ratios.
pub fn markdown(load: &Load, measured: &[Steadiness]) -> String {
    let summary = &load.summary;
    let hours = (summary.end_ms - summary.start_ms) as f64 / 3_600_000.0;
    let head = format!(
        "Ablation of sealing: {} series, {} samples of {hours:.1} h. Asked all the while: {}, {} \
         min.\n",
        summary.series,
        summary.samples,
        churn::EXPRESSION,
        churn::SPAN_MS / 60_000
    );
    head + &table::columns(&VARIANTS.map(|(name, _)| name), measured)
}

/// Returns all figures as JSON, including those that the table leaves out.
pub fn json(load: &Load, measured: &[Steadiness]) -> Value {
    let variants = VARIANTS.iter().zip(measured);
    let variants: Vec<Value> = variants
        .map(|((name, _), m)| json!({"variant": name, "figures": m.to_json()}))
        .collect();
    json!({"load": load.summary.to_json(), "variants": variants})
}
