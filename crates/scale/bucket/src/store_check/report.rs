//! The report of a check: the verdict, and latencies of each step.

use super::steps::CheckFinding;
use crate::error::BucketError;
use std::fmt;
use std::time::Duration;

/// Whether a cluster may use a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreVerdict {
    /// All answers were right.
    Accepted,
    /// An answer was wrong, for the given reason. A cluster would lose data.
    Refused(String),
    /// The check could not be finished because of an error. Repeat it later.
    Unfinished(BucketError),
}

impl From<CheckFinding> for StoreVerdict {
    fn from(finding: CheckFinding) -> Self {
        match finding {
            CheckFinding::Wrong(reason) => StoreVerdict::Refused(reason),
            CheckFinding::Error(error) => StoreVerdict::Unfinished(error),
        }
    }
}

/// Operations of one step, with their latencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckStep {
    /// Name of the step, which is unique in a report.
    pub name: &'static str,
    /// Number of operations.
    pub operation_count: usize,
    /// Number of operations that ended with an error, of which creations may have taken effect.
    pub error_count: usize,
    /// Median of the latencies.
    pub p50: Duration,
    /// 99th percentile of the latencies.
    pub p99: Duration,
    /// Maximum of the latencies.
    pub max: Duration,
}

/// Result of [`crate::check_store`]. Its text is a table for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReport {
    /// Whether a cluster may use the store.
    pub verdict: StoreVerdict,
    /// The steps in their order, up to the one that ended the check.
    pub steps: Vec<CheckStep>,
    /// The prefix of all objects of the check.
    pub prefix: String,
    /// Why objects of the check may remain below the prefix, if they may.
    pub leftover: Option<BucketError>,
}

/// Latencies of a step that runs.
#[derive(Debug)]
pub(super) struct StepTimes {
    name: &'static str,
    error_count: usize,
    latencies: Vec<Duration>,
}

impl StepTimes {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            error_count: 0,
            latencies: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, latency: Duration, is_error: bool) {
        self.latencies.push(latency);
        self.error_count += usize::from(is_error);
    }

    pub(super) fn finish(mut self) -> CheckStep {
        self.latencies.sort_unstable();
        let count = self.latencies.len();
        let at = |index: usize| self.latencies.get(index).copied().unwrap_or_default();
        CheckStep {
            name: self.name,
            operation_count: count,
            error_count: self.error_count,
            p50: at(count / 2),
            p99: at(count * 99 / 100),
            max: at(count.saturating_sub(1)),
        }
    }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<14} {:>10} {:>6} {:>10} {:>10} {:>10}",
            "step", "operations", "errors", "p50", "p99", "max"
        )?;
        let ms = |duration: Duration| format!("{:.1} ms", duration.as_secs_f64() * 1000.0);
        for step in &self.steps {
            writeln!(
                f,
                "{:<14} {:>10} {:>6} {:>10} {:>10} {:>10}",
                step.name,
                step.operation_count,
                step.error_count,
                ms(step.p50),
                ms(step.p99),
                ms(step.max)
            )?;
        }
        if let Some(error) = &self.leftover {
            writeln!(f, "objects below {} may remain: {error}", self.prefix)?;
        }
        match &self.verdict {
            StoreVerdict::Accepted => write!(f, "accepted"),
            StoreVerdict::Refused(reason) => write!(f, "refused: {reason}"),
            StoreVerdict::Unfinished(error) => write!(f, "not finished: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_a_table_with_the_verdict_at_the_end() {
        let mut times = StepTimes::new("race");
        for ms in [3, 1, 2, 40] {
            times.add(Duration::from_millis(ms), ms == 40);
        }
        let report = StoreReport {
            verdict: StoreVerdict::Refused("it lies".into()),
            steps: vec![times.finish(), StepTimes::new("list").finish()],
            prefix: "check/1/".into(),
            leftover: None,
        };
        let expected = "\
step           operations errors        p50        p99        max
race                    4      1     3.0 ms    40.0 ms    40.0 ms
list                    0      0     0.0 ms     0.0 ms     0.0 ms
refused: it lies";
        assert_eq!(report.to_string(), expected);
    }
}
