//! The report of a run: `report.json` for programs, `report.html` for browsers, `report.md` for a
//! pull request.
//!
//! Each file is written under another name and then renamed, so that readers never see a partial
//! file. Invariant: each file is smaller than 5 MB regardless of the findings; entries that are
//! left out are counted.

mod html;
mod markdown;

use super::folders::{DifferenceFolders, FolderStatistics};
use super::latency::LatencyHistogram;
use super::tally::{
    ComparisonFinding, ComparisonOutcome, ComparisonPass, ComparisonTally, VacuousMatchReason,
};
use crate::error::MirrorError;
use crate::questions::reach::CommonTimeRange;
use firn_model::sample::TimestampMs;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Maximum total length of the findings in `report.json`, in bytes.
const FINDINGS_BYTES_MAX: usize = 4_000_000;

/// One of the two compared systems, with the figures that a report shows about it.
pub struct ReportedSystem {
    /// URL of the system as it is shown, without any password.
    pub url: String,
    /// Version that the system reports in `status/buildinfo`, if it does.
    pub version: Option<String>,
    /// Latencies of its answers to all compared queries of the run.
    pub latencies: LatencyHistogram,
}

/// How often the queries of a run were collected, and the failure of the last attempt. The report
/// warns about outdated queries with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionStatistics {
    /// Number of times the queries were collected successfully.
    pub times: u64,
    /// Error of the last attempt, or `None` if it succeeded.
    pub failure: Option<String>,
}

/// The content of a report at the end of a round, from which all three files are rendered. It
/// borrows the results, which are not copied.
pub struct ComparisonReport<'a> {
    /// The system whose answers are considered correct.
    pub baseline: ReportedSystem,
    /// The system that is compared with the baseline.
    pub candidate: ReportedSystem,
    /// Start of the run in milliseconds since the epoch.
    pub began_ms: TimestampMs,
    /// Time of the report in milliseconds since the epoch.
    pub made_ms: TimestampMs,
    /// Time range that the last round queried, in milliseconds since the epoch.
    pub stretch: CommonTimeRange,
    /// Step of the range queries of the last round in milliseconds.
    pub step_ms: i64,
    /// Number of distinct queries in the collection of the last round.
    pub questions: usize,
    /// How often the queries were collected, and the last failure.
    pub gathering: &'a CollectionStatistics,
    /// Minimum match rate for success, in percent, from `--fail-below`.
    pub fail_below: f64,
    /// Outcomes of all queries of the run so far.
    pub tally: &'a ComparisonTally,
    /// The folders to which differences are written, for links and notes.
    pub folders: &'a DifferenceFolders,
}

impl ComparisonReport<'_> {
    /// Writes `report.json`, `report.html` and `report.md` into `dir`, replacing earlier ones one
    /// after the other. Fails with the first file that cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), MirrorError> {
        replace(&dir.join("report.json"), &self.json())?;
        replace(&dir.join("report.html"), &html::page(self))?;
        replace(&dir.join("report.md"), &markdown::text(self))
    }

    /// Returns the percentage of matches among compared queries; 0 if nothing was compared.
    pub fn match_rate(&self) -> f64 {
        self.tally.match_rate().unwrap_or(0.0)
    }

    /// Returns whether the match rate reaches `fail_below`, which determines the exit code. False
    /// if nothing was compared.
    pub fn is_success(&self) -> bool {
        self.tally
            .match_rate()
            .is_some_and(|rate| rate >= self.fail_below)
    }

    /// Describes the matches that have little significance, because both answers are empty or the
    /// same error; returns `None` if there are none.
    pub fn vacuous_text(&self) -> Option<String> {
        let of = |why: VacuousMatchReason| -> u64 {
            let passes = ComparisonPass::ALL.iter();
            passes
                .map(|pass| self.tally.vacuous(*pass)[why as usize].1)
                .sum()
        };
        let (empty, same_error) = (
            of(VacuousMatchReason::Empty),
            of(VacuousMatchReason::SameError),
        );
        (empty + same_error > 0).then(|| {
            let matches = match empty {
                1 => "match is",
                _ => "matches are",
            };
            format!(
                "{empty} {matches} of answers that are empty in both systems, {same_error} of the \
                 same error"
            )
        })
    }

    /// Returns notes about failed writes, deleted folders and failed collection of queries; empty
    /// if all went well.
    pub fn notes(&self) -> Vec<String> {
        let figures = self.folders.figures();
        let mut notes = Vec::new();
        if let Some(failure) = &figures.failure {
            let failed = figures.failed;
            let times = if failed == 1 { "time" } else { "times" };
            notes.push(format!(
                "{failed} {times} a file could not be written, last: {failure}"
            ));
        }
        if figures.removed > 0 {
            let (count, folders) = match figures.removed {
                1 => (1, "folder of differences was"),
                removed => (removed, "folders of differences were"),
            };
            notes.push(format!(
                "{count} {folders} deleted because of age or the size limit"
            ));
        }
        if let Some(failure) = &self.gathering.failure {
            notes.push(format!("the queries could not be reloaded: {failure}"));
        }
        notes
    }

    /// Returns the name of the folder of a finding if the folder still exists.
    fn folder_of<'f>(&self, finding: &'f ComparisonFinding) -> Option<&'f str> {
        let folder = finding.judged.folder.as_deref();
        folder.filter(|folder| self.folders.has(folder))
    }

    fn json(&self) -> String {
        let (findings, left_out) = self.findings_json();
        let document = json!({
            "match_rate": self.match_rate(),
            "weighted_match_rate": self.tally.weighted_match_rate().unwrap_or(0.0),
            "fail_below": self.fail_below,
            "success": self.is_success(),
            "baseline": side_json(&self.baseline),
            "candidate": side_json(&self.candidate),
            "began": seconds(self.began_ms),
            "made": seconds(self.made_ms),
            "start": seconds(self.stretch.start_ms),
            "end": seconds(self.stretch.end_ms),
            "step": seconds(self.step_ms),
            "questions": self.questions,
            "gathered": self.gathering.times,
            "passes": ComparisonPass::ALL.iter().map(|pass| {
                (pass.as_str().to_owned(), counts_json(&self.tally.counts(*pass)))
            }).collect::<serde_json::Map<_, _>>(),
            "classes": self.tally.classes().iter().map(|(class, count)| {
                (class.as_str().to_owned(), Value::from(*count))
            }).collect::<serde_json::Map<_, _>>(),
            "vacuous": self.vacuous_json(),
            "folders": figures_json(&self.folders.figures()),
            "notes": self.notes(),
            "rounds": self.rounds_json(),
            "findings_left_out": left_out,
        });
        // Findings are printed one per line: pretty-printing a tree of a hundred thousand would be
        // slow.
        let head = format!("{document:#}");
        let head = head.trim_end_matches('}').trim_end();
        format!("{head},\n  \"findings\": [\n{findings}\n  ]\n}}\n")
    }

    fn vacuous_json(&self) -> Value {
        let passes = ComparisonPass::ALL.iter().map(|pass| {
            let counts = self.tally.vacuous(*pass).into_iter();
            let counts = counts.map(|(why, count)| (why.as_str().to_owned(), count.into()));
            (pass.as_str().to_owned(), Value::Object(counts.collect()))
        });
        Value::Object(passes.collect())
    }

    fn rounds_json(&self) -> Vec<Value> {
        let rounds = self.tally.rounds().iter();
        let rounds = rounds.map(|round| {
            let passes = ComparisonPass::ALL.iter().zip(&round.passes);
            let passes = passes.map(|(p, counts)| (p.as_str().to_owned(), counts_json(counts)));
            let passes: serde_json::Map<_, _> = passes.collect();
            json!({"time": seconds(round.time_ms), "passes": passes})
        });
        rounds.collect()
    }

    /// Returns the findings that fit into [`FINDINGS_BYTES_MAX`] as JSON lines, and the number of
    /// those that do not.
    fn findings_json(&self) -> (String, u64) {
        let mut lines: Vec<String> = Vec::new();
        let mut room = FINDINGS_BYTES_MAX;
        let mut left_out = self.tally.omitted_findings();
        for finding in self.tally.findings() {
            let line = format!("    {}", self.finding_json(finding));
            match room.checked_sub(line.len() + 2) {
                Some(rest) => {
                    room = rest;
                    lines.push(line);
                }
                None => left_out += 1,
            }
        }
        (lines.join(",\n"), left_out)
    }

    fn finding_json(&self, finding: &ComparisonFinding) -> Value {
        let judged = &finding.judged;
        let classes: Vec<&str> = judged.classes.iter().map(|class| class.as_str()).collect();
        json!({
            "pass": judged.pass.as_str(),
            "question": judged.question,
            "outcome": judged.outcome.as_str(),
            "classes": classes,
            "reason": judged.reason,
            "folder": self.folder_of(finding),
            "origin": judged.origin,
            "weight": weight_json(judged.weight),
            "times": finding.times,
        })
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

fn side_json(side: &ReportedSystem) -> Value {
    let latencies = &side.latencies;
    json!({
        "url": side.url,
        "version": side.version,
        "answers": latencies.count(),
        "latency_ms": {
            "p50": latencies.quantile_ms(0.5),
            "p99": latencies.quantile_ms(0.99),
            "p99.9": latencies.quantile_ms(0.999),
            "max": latencies.max_ms(),
        },
    })
}

fn counts_json(counts: &super::tally::OutcomeCounts) -> Value {
    let of = |outcome: ComparisonOutcome| {
        (
            outcome.as_str().to_owned(),
            Value::from(counts.count_of(outcome)),
        )
    };
    Value::Object(ComparisonOutcome::ALL.into_iter().map(of).collect())
}

fn figures_json(figures: &FolderStatistics) -> Value {
    json!({
        "count": figures.count,
        "bytes": figures.bytes,
        "removed": figures.removed,
        "not_written": figures.failed,
    })
}

/// Converts a weight to JSON, as an integer if it is a whole number.
fn weight_json(weight: f64) -> Value {
    if weight.fract() == 0.0 && weight < 1e15 {
        Value::from(weight as u64)
    } else {
        Value::from(weight)
    }
}

/// Replaces a file atomically: writes the new content beside it and renames it. Nothing is synced
/// to disk.
fn replace(path: &Path, text: &str) -> Result<(), MirrorError> {
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(MirrorError::file("write", &new))?;
    fs::rename(&new, path).map_err(MirrorError::file("replace", path))
}

/// Truncates `text` to `chars` characters, for a cell of a table.
fn short(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Formats a rate for people. A rate below 100 is never rounded up to 100.
fn percent(rate: Option<f64>) -> String {
    match rate {
        None => "–".to_owned(),
        Some(100.0) => "100 %".to_owned(),
        Some(rate) => format!("{:.3} %", (rate * 1000.0).floor() / 1000.0),
    }
}

/// Returns the reasons of skipped queries and their counts, most frequent first. Reasons are
/// truncated at the first colon.
fn skips_by_reason(tally: &ComparisonTally) -> Vec<(String, usize)> {
    let mut reasons = std::collections::BTreeMap::<String, usize>::new();
    for finding in tally.findings() {
        if finding.judged.outcome == ComparisonOutcome::Skip {
            // The text after the colon is specific to one query.
            let reason = finding.judged.reason.split(": ").next();
            let reason = short(reason.unwrap_or_default(), 160);
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons
}

#[cfg(test)]
mod tests;
