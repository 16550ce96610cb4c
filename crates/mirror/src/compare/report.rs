//! The report of a run: `report.json` for machines, `report.html` to look at, `report.md` for a
//! pull request.
//!
//! Each file is written beside its name and moved there, so that a reader never sees half of one.
//! Invariant: a report is smaller than 5 MB, whatever the run found; what is left out is counted.

mod html;
mod markdown;

use super::folders::{Figures, Folders};
use super::latency::Latencies;
use super::tally::{Finding, Outcome, Pass, Tally, Vacuous};
use crate::error::MirrorError;
use crate::questions::reach::Stretch;
use firn_model::sample::TimestampMs;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Bytes of all findings in `report.json`.
const FINDINGS_BYTES_MAX: usize = 4_000_000;

/// One of the systems.
pub struct Side {
    /// Its URL.
    pub url: String,
    /// Its version, if it says one.
    pub version: Option<String>,
    /// How long its answers took.
    pub latencies: Latencies,
}

/// How the questions came together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathering {
    /// How often they were gathered.
    pub times: u64,
    /// Why they were not the last time, if they were not.
    pub failure: Option<String>,
}

/// All that a report says.
pub struct Report<'a> {
    /// The system whose answers count as right.
    pub baseline: Side,
    /// The system that was held against it.
    pub candidate: Side,
    /// When the run began.
    pub began_ms: TimestampMs,
    /// When the report was made.
    pub made_ms: TimestampMs,
    /// The data that was asked for last.
    pub stretch: Stretch,
    /// Time between two points.
    pub step_ms: i64,
    /// Distinct questions.
    pub questions: usize,
    /// How they came together.
    pub gathering: &'a Gathering,
    /// The least match rate that is a success, in percent.
    pub fail_below: f64,
    /// What became of the questions.
    pub tally: &'a Tally,
    /// Where differences are kept.
    pub folders: &'a Folders,
}

impl Report<'_> {
    /// Writes all files into `dir`.
    pub fn write(&self, dir: &Path) -> Result<(), MirrorError> {
        replace(&dir.join("report.json"), &self.json())?;
        replace(&dir.join("report.html"), &html::page(self))?;
        replace(&dir.join("report.md"), &markdown::text(self))
    }

    /// Matches in percent of what was compared; zero if nothing was.
    pub fn match_rate(&self) -> f64 {
        self.tally.match_rate().unwrap_or(0.0)
    }

    /// Whether the run is a success.
    pub fn is_success(&self) -> bool {
        self.tally
            .match_rate()
            .is_some_and(|rate| rate >= self.fail_below)
    }

    /// The matches that say little, by pass and by why; `None` if there are none.
    pub fn vacuous_text(&self) -> Option<String> {
        let of = |why: Vacuous| -> u64 {
            let passes = Pass::ALL.iter();
            passes
                .map(|pass| self.tally.vacuous(*pass)[why as usize].1)
                .sum()
        };
        let (empty, same_error) = (of(Vacuous::Empty), of(Vacuous::SameError));
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

    /// What went wrong beside the questions, and what was removed.
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

    /// The folder of a finding, as long as it is there.
    fn folder_of<'f>(&self, finding: &'f Finding) -> Option<&'f str> {
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
            "passes": Pass::ALL.iter().map(|pass| {
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
        // Findings come one a line: a tree of a hundred thousand would be slow to print.
        let head = format!("{document:#}");
        let head = head.trim_end_matches('}').trim_end();
        format!("{head},\n  \"findings\": [\n{findings}\n  ]\n}}\n")
    }

    fn vacuous_json(&self) -> Value {
        let passes = Pass::ALL.iter().map(|pass| {
            let counts = self.tally.vacuous(*pass).into_iter();
            let counts = counts.map(|(why, count)| (why.as_str().to_owned(), count.into()));
            (pass.as_str().to_owned(), Value::Object(counts.collect()))
        });
        Value::Object(passes.collect())
    }

    fn rounds_json(&self) -> Vec<Value> {
        let rounds = self.tally.rounds().iter();
        let rounds = rounds.map(|round| {
            let passes = Pass::ALL.iter().zip(&round.passes);
            let passes = passes.map(|(p, counts)| (p.as_str().to_owned(), counts_json(counts)));
            let passes: serde_json::Map<_, _> = passes.collect();
            json!({"time": seconds(round.time_ms), "passes": passes})
        });
        rounds.collect()
    }

    /// Findings as long as there is room for them, and how many there is none for.
    fn findings_json(&self) -> (String, u64) {
        let mut lines: Vec<String> = Vec::new();
        let mut room = FINDINGS_BYTES_MAX;
        let mut left_out = self.tally.left_out();
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

    fn finding_json(&self, finding: &Finding) -> Value {
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

fn side_json(side: &Side) -> Value {
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

fn counts_json(counts: &super::tally::Counts) -> Value {
    let of = |outcome: Outcome| (outcome.as_str().to_owned(), Value::from(counts.of(outcome)));
    Value::Object(Outcome::ALL.into_iter().map(of).collect())
}

fn figures_json(figures: &Figures) -> Value {
    json!({
        "count": figures.count,
        "bytes": figures.bytes,
        "removed": figures.removed,
        "not_written": figures.failed,
    })
}

/// A weight, as a whole number where it is one.
fn weight_json(weight: f64) -> Value {
    match weight.fract() == 0.0 && weight < 1e15 {
        true => Value::from(weight as u64),
        false => Value::from(weight),
    }
}

/// Writes a file as a whole in the place of another.
fn replace(path: &Path, text: &str) -> Result<(), MirrorError> {
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(MirrorError::file("write", &new))?;
    fs::rename(&new, path).map_err(MirrorError::file("replace", path))
}

/// The beginning of a text, for a table.
fn short(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A rate as people read it: never rounded up to 100.
fn percent(rate: Option<f64>) -> String {
    match rate {
        None => "–".to_owned(),
        Some(100.0) => "100 %".to_owned(),
        Some(rate) => format!("{:.3} %", (rate * 1000.0).floor() / 1000.0),
    }
}

/// Skipped questions by reason, the most frequent first.
fn skips_by_reason(tally: &Tally) -> Vec<(String, usize)> {
    let mut reasons = std::collections::BTreeMap::<String, usize>::new();
    for finding in tally.findings() {
        if finding.judged.outcome == Outcome::Skip {
            // What comes behind the colon is of one question.
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
