//! Goals that a system under test must meet: success rates and latencies of writes and queries.
//!
//! The defaults are those of Mimir's test with a billion series.

use super::asking::QueryLoadOutcomes;
use crate::push::PushOutcome;
use serde_json::{Value, json};
use std::time::Duration;

/// The goals of a load test, each of which is checked separately, from the flags `--slo-*`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadGoals {
    /// Share of writes that must be accepted within [`LoadGoals::write_within`], from 0 to 1.
    pub write_share: f64,
    /// Maximum duration of a write that counts as in time.
    pub write_within: Duration,
    /// Share of queries that must succeed, from 0 to 1.
    pub read_share: f64,
    /// Maximum mean latency of queries since their due times.
    pub read_average: Duration,
    /// Maximum ratio between the 99th percentiles of two queries of equal cost.
    pub fairness: f64,
}

impl Default for LoadGoals {
    fn default() -> Self {
        Self {
            write_share: 0.999,
            write_within: Duration::from_secs(10),
            read_share: 0.999,
            read_average: Duration::from_secs(2),
            fairness: 4.0,
        }
    }
}

/// The result of checking a goal, which the report lists.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalResult {
    /// Description of the goal with the required value.
    pub goal: String,
    /// The value that was reached, as text in the unit of the goal.
    pub reached: String,
    /// Whether the reached value meets the goal.
    pub is_met: bool,
}

impl GoalResult {
    /// Converts the result to the JSON of the report, an entry of its list `goals`.
    pub fn to_json(&self) -> Value {
        json!({ "goal": self.goal, "reached": self.reached, "met": self.is_met })
    }
}

impl LoadGoals {
    /// Checks the goals for the outcome of the writes, and of the queries if there were any.
    pub fn check_goals(
        &self,
        outcome: &PushOutcome,
        asked: Option<&QueryLoadOutcomes>,
    ) -> Vec<GoalResult> {
        // Failed requests have no meaningful latency, so they are counted separately.
        let times = if outcome.delays_us.is_empty() {
            &outcome.latencies_us
        } else {
            &outcome.delays_us
        };
        let is_in_time = |us: &&u32| u128::from(**us) <= self.write_within.as_micros();
        let answered = times.iter().filter(is_in_time).count() as u64;
        let late_or_lost = (times.len() as u64 - answered) + outcome.failed;
        let in_time = outcome.requests.saturating_sub(late_or_lost);
        let mut judged = vec![share(
            format!("writes within {:?}", self.write_within),
            self.write_share,
            in_time,
            outcome.requests,
        )];
        if let Some(asked) = asked {
            let total = asked.total();
            let good = total.count() - total.failed;
            judged.push(share(
                "reads successful".into(),
                self.read_share,
                good,
                total.count(),
            ));
            let average = total.average_seconds();
            judged.push(GoalResult {
                goal: format!("reads take {:?} on average", self.read_average),
                reached: format!("{average:.3} s"),
                is_met: average <= self.read_average.as_secs_f64(),
            });
            judged.extend(fairness(asked).map(|ratio| GoalResult {
                goal: format!("queries of equal cost within a factor of {}", self.fairness),
                reached: format!("{ratio:.2}"),
                is_met: ratio <= self.fairness,
            }));
        }
        judged
    }
}

/// Minimum number of answers from which the 99th percentile of a query is meaningful.
const FAIR_ANSWERS_MIN: u64 = 100;

/// Maximum ratio between the medians of queries that count as equally expensive.
const EQUAL_COST: f64 = 2.0;

/// Minimum 99th percentile in microseconds: shorter latencies are not considered unfair.
const FAIR_US_MIN: u32 = 100_000;

/// Returns the largest ratio between the 99th percentiles of two queries of equal cost. If the
/// system lets one query wait behind others of its kind, it has nearly the same median but a longer
/// tail. Returns `None` if no two queries can be compared.
pub fn fairness(asked: &QueryLoadOutcomes) -> Option<f64> {
    let asked = asked.by_question.values();
    let enough = asked.filter(|outcomes| outcomes.count() >= FAIR_ANSWERS_MIN);
    let figures: Vec<(f64, f64)> = enough
        .map(|outcomes| {
            let times = outcomes.latencies();
            let tail = times.quantile(0.99).max(FAIR_US_MIN);
            (f64::from(times.quantile(0.5).max(1)), f64::from(tail))
        })
        .collect();
    let mut worst: Option<f64> = None;
    for (place, a) in figures.iter().enumerate() {
        for b in &figures[place + 1..] {
            if (a.0 / b.0).max(b.0 / a.0) <= EQUAL_COST {
                let ratio = (a.1 / b.1).max(b.1 / a.1);
                worst = Some(worst.map_or(ratio, |worst| worst.max(ratio)));
            }
        }
    }
    worst
}

/// Checks whether `good` of `all` requests reach the required share.
fn share(what: String, wanted: f64, good: u64, all: u64) -> GoalResult {
    let reached = good as f64 / all.max(1) as f64;
    GoalResult {
        goal: format!("{} % of {what}", percent(wanted)),
        reached: format!("{} %", percent(reached)),
        is_met: all > 0 && reached >= wanted,
    }
}

/// Formats a share as a percentage with at most five decimals and no trailing zeros.
fn percent(share: f64) -> String {
    let text = format!("{:.5}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::asking::QueryOutcomes;
    use super::*;

    fn check(writes: (&[u32], u64), reads: Option<(&[u32], u64)>, expected: &[(&str, bool)]) {
        let outcomes = |(latencies_us, failed): (&[u32], u64)| QueryOutcomes {
            latencies_us: latencies_us.to_vec(),
            failed,
            ..QueryOutcomes::default()
        };
        let (times, failed) = writes;
        let outcome = PushOutcome {
            requests: times.len() as u64,
            failed,
            latencies_us: times.to_vec(),
            ..PushOutcome::default()
        };
        let asked = reads.map(|reads| QueryLoadOutcomes {
            by_question: [(0, outcomes(reads))].into(),
        });
        let judged = LoadGoals::default().check_goals(&outcome, asked.as_ref());
        let got: Vec<(&str, bool)> = judged.iter().map(|j| (&*j.reached, j.is_met)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn goals_are_met_by_enough_of_what_was_sent_and_asked() {
        let fast = vec![1_000; 1_000];
        check((&fast, 0), None, &[("100 %", true)]);
        check((&fast, 1), None, &[("99.9 %", true)]);
        check((&fast, 2), None, &[("99.8 %", false)]);
        let mut slow = fast.clone();
        slow[0] = 10_000_001;
        check((&slow, 0), None, &[("99.9 %", true)]);
        check((&slow, 1), None, &[("99.8 %", false)]);
        check((&[], 0), None, &[("0 %", false)]);
        check(
            (&fast, 0),
            Some((&fast, 1)),
            &[("100 %", true), ("99.9 %", true), ("0.001 s", true)],
        );
        check(
            (&fast, 0),
            Some((&[2_000_001, 2_000_001], 1)),
            &[("100 %", true), ("50 %", false), ("2.000 s", false)],
        );
    }

    #[test]
    fn question_that_waits_behind_those_of_its_cost_is_unfair() {
        let times = |median: u32, tail: u32, count: usize| QueryOutcomes {
            latencies_us: (0..count)
                .map(|i| if i * 50 < count { tail } else { median })
                .collect(),
            ..QueryOutcomes::default()
        };
        let check = |all: &[QueryOutcomes], expected: Option<f64>| {
            let asked = QueryLoadOutcomes {
                by_question: all.iter().cloned().enumerate().collect(),
            };
            assert_eq!(fairness(&asked), expected);
        };
        let fair = times(10_000, 200_000, 100);
        check(std::slice::from_ref(&fair), None);
        check(&[fair.clone(), times(15_000, 300_000, 200)], Some(1.5));
        check(&[fair.clone(), times(15_000, 2_000_000, 200)], Some(10.0));
        // Too few answers, another cost, and tails that are too short to matter.
        check(&[fair.clone(), times(15_000, 2_000_000, 99)], None);
        check(&[fair, times(30_000, 2_000_000, 200)], None);
        check(&[times(200, 400, 100), times(300, 90_000, 100)], Some(1.0));
    }
}
