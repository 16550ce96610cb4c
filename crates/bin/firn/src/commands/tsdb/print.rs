//! Output of `firn tsdb verify` and `repair`, as text and as JSON.

use crate::file_time::time;
use firn_model::rounded::{format_bytes, format_count, format_count_with_noun};
use firn_model::sample::TimeRange;
use firn_storage::verify::{VerifyFinding, VerifyRemark, VerifyReport};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Formats a report as text: one line per damage and per remark, and a summary.
pub fn text(folder: &Path, report: &VerifyReport, took: Duration) -> String {
    let mut out = lines(folder, report);
    out += &format!(
        "{}: {}, {}, {}, {}, {} in pages, {} in {}, {} in the log, {}, read in {:.1} s\n",
        match report.findings.len() {
            0 => "whole".to_owned(),
            1 => "1 damage".to_owned(),
            count => format!("{count} damages"),
        },
        format_count_with_noun(report.files, "file", "files"),
        format_bytes(report.bytes),
        format_count_with_noun(report.pages, "page", "pages"),
        format_count_with_noun(report.series, "series", "series"),
        format_count_with_noun(report.page_samples, "sample", "samples"),
        format_count(report.block_samples),
        format_count_with_noun(report.blocks, "block", "blocks"),
        format_count(report.log_samples),
        format_count_with_noun(report.exemplars, "exemplar", "exemplars"),
        took.as_secs_f64(),
    );
    out
}

fn lines(folder: &Path, report: &VerifyReport) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        out += &line(folder, finding);
        out.push('\n');
    }
    for VerifyRemark { file, what } in &report.remarks {
        out += &format!("note: {}: {what}\n", name(folder, file));
    }
    out
}

fn line(folder: &Path, finding: &VerifyFinding) -> String {
    let damage = &finding.damage;
    let mut line = name(folder, &damage.file);
    if let Some(offset) = damage.offset {
        line += &format!(" at {offset}");
    }
    line += &format!(": {}: {}", damage.kind.as_str(), damage.what);
    let series = finding.series.filter(|series| *series > 0);
    match (damage.samples, series) {
        (Some(0), _) => line += "; no sample is lost",
        (Some(1), Some(series)) => line += &format!("; 1 sample of {series} series is lost"),
        (Some(samples), Some(series)) => {
            line += &format!("; {samples} samples of {series} series are lost");
        }
        (Some(1), None) => line += "; 1 sample is lost",
        (Some(samples), None) => line += &format!("; {samples} samples are lost"),
        (None, Some(series)) => line += &format!("; {series} series are affected"),
        (None, None) => {}
    }
    if damage.samples != Some(0)
        && let Some(range) = damage.range
    {
        line += &format!(", from {} to {}", time(range.min), time(range.max));
    }
    if finding.in_log > 0 && damage.samples != Some(0) {
        line += &format!("; {} of them are still in the log", in_log(finding));
    }
    line
}

/// Returns the samples that the WAL still has. It may contain samples twice, so that the number is
/// limited to the damaged samples.
fn in_log(finding: &VerifyFinding) -> u64 {
    finding
        .in_log
        .min(finding.damage.samples.unwrap_or(u64::MAX))
}

fn name(folder: &Path, file: &Path) -> String {
    let name = file.strip_prefix(folder).unwrap_or(file);
    name.display().to_string()
}

/// Formats a report as a JSON object on one line.
pub fn json(folder: &Path, report: &VerifyReport, took: Duration) -> String {
    let range = |range: Option<TimeRange>| -> (Value, Value) {
        range.map_or((Value::Null, Value::Null), |r| (r.min.into(), r.max.into()))
    };
    let damage = |finding: &VerifyFinding| {
        let (from, to) = range(finding.damage.range);
        json!({
            "kind": finding.damage.kind.as_str(),
            "file": name(folder, &finding.damage.file),
            "offset": finding.damage.offset,
            "what": finding.damage.what,
            "samples": finding.damage.samples,
            "series": finding.series,
            "from": from,
            "to": to,
            "inLog": in_log(finding),
        })
    };
    let remark =
        |remark: &VerifyRemark| json!({"file": name(folder, &remark.file), "what": remark.what});
    let object = json!({
        "whole": report.is_whole(),
        "files": report.files,
        "bytes": report.bytes,
        "pages": report.pages,
        "series": report.series,
        "pageSamples": report.page_samples,
        "blocks": report.blocks,
        "blockSamples": report.block_samples,
        "logSamples": report.log_samples,
        "exemplars": report.exemplars,
        "seconds": took.as_secs_f64(),
        "damages": report.findings.iter().map(damage).collect::<Vec<_>>(),
        "notes": report.remarks.iter().map(remark).collect::<Vec<_>>(),
    });
    format!("{object}\n")
}
