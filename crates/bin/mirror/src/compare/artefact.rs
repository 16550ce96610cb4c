//! Writes the folder of a difference: both answers, and a script that repeats the request.
//!
//! | file | content |
//! |---|---|
//! | `baseline.json`, `candidate.json` | the answers |
//! | `difference.json` | the first place at which they differ |
//! | `curl.sh` | sends the request to both systems again |
//! | `minimised.promql` | a smaller expression for which the answers still differ |
//!
//! The name of a folder is derived from the request, so that a later round overwrites it. The
//! module `folders` decides which folders are kept, and for how long.

use super::system::{ComparedSystem, FetchResult, Params};
use super::tally::ComparisonPass;
use crate::error::MirrorError;
use crate::fleet::random::mix_parts;
use crate::judge::DifferenceSpot;
use crate::judge::answer::{LabelSet, series_text};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fs;
use std::path::Path;

/// Maximum number of points per line of a chart; longer series are thinned out.
const POINTS_MAX: usize = 300;

/// The file that describes the difference. It is written last, and its age is the age of the
/// folder.
pub const DIFFERENCE: &str = "difference.json";

/// Maximum number of bytes that are kept of a body that is not JSON.
const FOREIGN_BYTES_MAX: usize = 4_096;

/// A series with its points from both systems, from which the report draws a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSketch {
    /// The labels of the series as a PromQL selector, for the legend.
    pub series: String,
    /// Times in milliseconds and values of the baseline's points.
    pub baseline: Vec<(i64, f64)>,
    /// Times in milliseconds and values of the candidate's points.
    pub candidate: Vec<(i64, f64)>,
}

impl SeriesSketch {
    /// Extracts the series in which `spot` was found. Returns `None` if neither answer has more
    /// than one point of it, because that is not enough for a line.
    pub fn from_spot(
        spot: &DifferenceSpot,
        baseline: &FetchResult,
        candidate: &FetchResult,
    ) -> Option<Self> {
        let labels = spot.labels.as_ref()?;
        let sketch = Self {
            series: series_text(labels),
            baseline: points(baseline, labels),
            candidate: points(candidate, labels),
        };
        let is_line = sketch.baseline.len().max(sketch.candidate.len()) > 1;
        is_line.then_some(sketch)
    }
}

fn points(fetched: &FetchResult, labels: &LabelSet) -> Vec<(i64, f64)> {
    let Ok(answer) = fetched.answer() else {
        return Vec::new();
    };
    let series = answer
        .series()
        .iter()
        .find(|series| series.labels == *labels);
    let points = series.map_or(&[][..], |series| &series.points);
    let every = points.len().div_ceil(POINTS_MAX).max(1);
    let thinned = points.iter().step_by(every);
    thinned
        .map(|point| (point.time_ms, point.value.number()))
        .collect()
}

/// A difference that is to be written to a folder of the report. A round creates it when answers
/// differ.
pub struct DifferenceArtefact<'a> {
    /// The pass of the round in which the difference was found.
    pub pass: ComparisonPass,
    /// The text of the query or of the lookup.
    pub question: &'a str,
    /// Baseline and candidate, in this order, for the URLs of `curl.sh`.
    pub systems: [&'a ComparedSystem; 2],
    /// Path of the requested endpoint below `/api/v1`.
    pub endpoint: &'a str,
    /// The parameters of the request, with the times at which it was sent.
    pub params: &'a Params,
    /// The responses of baseline and candidate, in this order.
    pub answers: [&'a FetchResult; 2],
    /// The first place of the most severe class at which the answers differ.
    pub spot: &'a DifferenceSpot,
    /// A smaller expression for which the answers still differ.
    pub minimised: &'a str,
}

impl DifferenceArtefact<'_> {
    /// Returns the name of the folder: the pass and a hash of the query.
    pub fn name(&self) -> String {
        let parts: Vec<u64> = self.question.bytes().map(u64::from).collect();
        format!("{}-{:016x}", self.pass.as_str(), mix_parts(&parts))
    }

    /// Writes the folder into the directory `report` and returns the total size of its files in
    /// bytes.
    pub fn write(&self, report: &Path) -> Result<u64, MirrorError> {
        let folder = report.join(self.name());
        fs::create_dir_all(&folder).map_err(MirrorError::file("create", &folder))?;
        let minimised = format!("{}\n", self.minimised);
        let mut bytes = 0;
        // `difference.json` determines the age of the folder, so it is written last.
        for (file, content) in [
            ("baseline.json", kept(self.answers[0])),
            ("candidate.json", kept(self.answers[1])),
            ("curl.sh", self.curl().into_bytes().into()),
            ("minimised.promql", minimised.into_bytes().into()),
            (DIFFERENCE, pretty(&self.difference()).into()),
        ] {
            let path = folder.join(file);
            fs::write(&path, &content).map_err(MirrorError::file("write", &path))?;
            bytes += content.len() as u64;
        }
        Ok(bytes)
    }

    fn difference(&self) -> Value {
        let spot = self.spot;
        json!({
            "pass": self.pass.as_str(),
            "question": self.question,
            "class": spot.class.as_str(),
            "what": spot.what,
            "labels": spot.labels,
            "time": spot.time_ms.map(|ms| ms as f64 / 1000.0),
            "baseline": spot.baseline,
            "candidate": spot.candidate,
        })
    }

    fn curl(&self) -> String {
        let mut out = "#!/bin/sh\n# Asks both systems again.\n".to_owned();
        for system in self.systems {
            for name in &system.header_names {
                out += &format!("# The {} also received the header {name}.\n", system.name);
            }
            let (base, query) = system.shown.split_once('?').unwrap_or((&system.shown, ""));
            let mark = if query.is_empty() { "" } else { "?" };
            let base = base.trim_end_matches('/');
            let url = format!("{base}/api/v1/{}{mark}{query}", self.endpoint);
            out += &format!("curl --silent --show-error --get {}", in_quotes(&url));
            for (name, value) in self.params {
                let pair = in_quotes(&format!("{name}={value}"));
                out += &format!(" \\\n  --data-urlencode {pair}");
            }
            out += &format!(" > {}.again.json\n", system.name);
        }
        out
    }
}

fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// Returns the body to keep: the answer itself or, for responses that are not answers, a JSON
/// object with the error and the start of the body.
fn kept(fetched: &FetchResult) -> Cow<'_, [u8]> {
    match fetched.answer() {
        Ok(_) => fetched.body.as_slice().into(),
        Err((class, text)) => {
            let start = &fetched.body[..fetched.body.len().min(FOREIGN_BYTES_MAX)];
            pretty(&json!({
                "no_answer": class.as_str(),
                "why": text,
                "body": String::from_utf8_lossy(start),
            }))
            .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_of_a_shell_hold_anything() {
        assert_eq!(in_quotes("a'b"), "'a'\\''b'");
    }
}
