//! Runs PromQL test scripts in the format of `promqltest` of Prometheus: loads, evaluations and
//! expectations.
//!
//! ```text
//! load 1m
//!   x{a="b"} 1+2x10
//!
//! eval instant at 5m x * 2
//!   {a="b"} 22
//! ```
//!
//! The runner is independent of the store: the caller implements [`ScriptStore`]. Every
//! `eval instant` is evaluated in several additional ways, which must return the same result; see
//! [`check`]. A failure does not end a script, and each `eval` counts once, regardless of the
//! number of evaluations.
//!
//! Invariant: no script makes the runner panic or allocate more than [`sequence::POSITIONS_MAX`]
//! values per series.

mod almost;
mod check;
mod classic;
mod command;
mod compare;
mod expectation;
mod histogram;
mod input;
mod report;
mod sequence;
#[cfg(test)]
mod tests;

use crate::value::QueryPointValue;
use crate::{Features, Options};
use command::{LoadCommand, ScriptCommand};
use firn_model::batch::{Batch, HistogramSample};
use firn_model::env::Compute;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::sample::START_UNKNOWN;
use firn_model::store::Select;
pub use histogram::format_for_rule_test;
pub use input::InputSeries;
pub use report::{ScriptFailure, ScriptFileReport, ScriptReport};
pub use sequence::StartTimes;
use sequence::{LoadSample, ScriptSampleValue};

/// The query options that the scripts of Prometheus expect.
pub const OPTIONS: Options = Options {
    features: Features::ALL,
    lookback_ms: 5 * 60_000,
    default_subquery_step_ms: 60_000,
    samples_max: 10_000,
    series_max: usize::MAX,
    counts_samples: false,
    detects_range_dependence: false,
};

/// A store for scripts. All data belongs to the anonymous tenant.
pub trait ScriptStore {
    /// Deletes all series. The runner calls this before each script and for the command `clear`.
    fn clear(&mut self) -> Result<(), Error>;

    /// Stores all samples of `batch` and makes them visible, or fails. The batch may contain a
    /// series several times; its samples are in order over all occurrences.
    fn append(&mut self, batch: &Batch) -> Result<(), Error>;

    /// Returns the interface for reading the stored series, which the runner evaluates queries on.
    fn select(&self) -> &dyn Select;
}

/// The values of a series, one per position. `None` means that there is no sample.
pub type SeriesValues = Vec<Option<QueryPointValue>>;

/// Parses a line of a load, such as `x{a="b"} 1+2x10 _ stale {{count:3}}`. Returns an error message
/// if the syntax is wrong.
pub fn read_series(line: &str) -> Result<(Labels, SeriesValues), String> {
    let (labels, values) = sequence::parse_series(line)?;
    let value = |value: Option<ScriptSampleValue>| {
        value.map(|value| match value {
            ScriptSampleValue::Float(value) => QueryPointValue::Float(value),
            ScriptSampleValue::Histogram(histogram) => {
                QueryPointValue::Histogram(histogram.value.into())
            }
        })
    };
    Ok((labels, values.into_iter().map(value).collect()))
}

/// Parses a line such as `x@st -1m _ -30s`, which contains the start timestamps of the series in
/// the next line. They are offsets from its samples in milliseconds. Returns `None` if the line has
/// a different form.
pub fn read_start_times(line: &str) -> Option<Result<StartTimes, String>> {
    sequence::parse_start_times(line)
}

/// Runs the script `text` on `store`, which is cleared first. `name` is the name of the script in
/// the report.
pub fn run(
    name: &str,
    text: &str,
    store: &mut dyn ScriptStore,
    compute: &dyn Compute,
) -> ScriptFileReport {
    let mut report = ScriptFileReport {
        name: name.to_owned(),
        ..ScriptFileReport::default()
    };
    let note = |line, text: &str, done: Result<(), String>| {
        let failure = |why| ScriptFailure {
            line,
            text: text.into(),
            why,
        };
        done.map_err(failure)
    };
    if let Err(failure) = note(1, "clear", clear(store)) {
        report.broken.push(failure);
        return report;
    }
    for read in command::parse_script(text) {
        let (is_eval, outcome) = match read {
            // Counted as an evaluation, so that the total is the number of evaluations in the
            // script.
            Err(failure) => (failure.is_eval(), Err(failure)),
            Ok(ScriptCommand::Eval(eval)) => {
                let outcome = check::check(&eval, store.select(), compute);
                (true, note(eval.line, &eval.text, outcome))
            }
            Ok(ScriptCommand::Clear { line }) => (false, note(line, "clear", clear(store))),
            Ok(ScriptCommand::Load(load)) => {
                (false, note(load.line, "load", run_load(&load, store)))
            }
        };
        match (outcome, is_eval) {
            (Ok(()), is_eval) => report.passed += usize::from(is_eval),
            (Err(failure), true) => report.failed.push(failure),
            (Err(failure), false) => report.broken.push(failure),
        }
    }
    report
}

fn clear(store: &mut dyn ScriptStore) -> Result<(), String> {
    store.clear().map_err(|e| e.message)
}

fn run_load(load: &LoadCommand, store: &mut dyn ScriptStore) -> Result<(), String> {
    let mut batch = Batch::default();
    for (labels, samples) in &load.series {
        push_series(&mut batch, labels, samples);
    }
    if load.with_custom_buckets {
        for (labels, samples) in classic::convert(&load.series)? {
            push_series(&mut batch, &labels, &samples);
        }
    }
    store.append(&batch).map_err(|e| e.message)
}

/// Adds a series to the batch in runs of floats and runs of histograms, because a single entry of a
/// batch does not retain the order between both.
fn push_series(batch: &mut Batch, labels: &Labels, samples: &[LoadSample]) {
    let is_float = |s: &LoadSample| matches!(s.value, ScriptSampleValue::Float(_));
    for run in samples.chunk_by(|a, b| is_float(a) == is_float(b)) {
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        for sample in run {
            match &sample.value {
                ScriptSampleValue::Float(value) if sample.start_time == START_UNKNOWN => {
                    batch.push_float(sample.time, *value);
                }
                ScriptSampleValue::Float(value) => {
                    batch.push_float_with_start(sample.time, *value, sample.start_time);
                }
                ScriptSampleValue::Histogram(histogram) => batch.push_histogram(HistogramSample {
                    time: sample.time,
                    start_time: sample.start_time,
                    histogram: histogram.value.clone(),
                }),
            }
        }
        batch.end_series();
    }
}
