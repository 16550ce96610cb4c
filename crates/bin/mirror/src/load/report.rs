//! Report of a load as JSON and as an HTML page: writes, queries, goals and resource usage.

use super::options::NAMES;
use super::page::{grown, page};
use super::trial::asking::{QueryLoadOutcomes, QueryOutcomes};
use super::trial::goals::{GoalResult, LoadGoals, fairness};
use super::watch::ResourceUsage;
use crate::error::MirrorError;
use crate::prepared::PreparedLoadSummary;
use crate::push::PushOutcome;
use crate::quantiles::Quantiles;
use crate::questions::SkippedQuery;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The results of a load after it was sent, from which the text, the JSON and the page are
/// rendered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Summary of the generated load. Fields that are unknown in advance are zero.
    pub load: PreparedLoadSummary,
    /// Outcome of the writes to the queried system.
    pub outcome: PushOutcome,
    /// Time from the first request to the last response.
    pub elapsed: Duration,
    /// Outcome of the writes to the second system, if there is one.
    pub unqueried: Option<PushOutcome>,
    /// Observations of each system's resource usage, in the order of systems; empty unless
    /// requested.
    pub looks: Vec<Vec<ResourceUsage>>,
    /// Outcomes of the queries, if any were sent beside the writes.
    pub asked: Option<QueryLoadOutcomes>,
    /// Texts of the queries, in the order of the plan.
    pub questions: Vec<String>,
    /// Dashboard expressions that could not be queried, with the reasons.
    pub left_out: Vec<SkippedQuery>,
    /// Results of the goals; empty if they were not checked.
    pub judged: Vec<GoalResult>,
}

/// The writes and the resource usage of one system under load, borrowed from a [`LoadReport`].
#[derive(Clone, Copy, Debug)]
pub struct MeasuredSystem<'a> {
    /// Name of the system: `queried` or `unqueried`.
    pub name: &'static str,
    /// Outcome of the writes to this system.
    pub outcome: &'a PushOutcome,
    /// Observations of its resource usage, in the order of time.
    pub looks: &'a [ResourceUsage],
}

impl LoadReport {
    /// Returns the systems of the load, the queried one first, with their outcomes and
    /// observations.
    pub fn measured(&self) -> Vec<MeasuredSystem<'_>> {
        let outcomes = [Some(&self.outcome), self.unqueried.as_ref()];
        let outcomes = NAMES.into_iter().zip(outcomes).enumerate();
        let measured = outcomes.filter_map(|(place, (name, outcome))| {
            Some(MeasuredSystem {
                name,
                outcome: outcome?,
                looks: self.looks.get(place).map_or(&[][..], Vec::as_slice),
            })
        });
        measured.collect()
    }

    /// Checks the goals for the queried system, and those for writes for the second one as well.
    pub fn check_goals(&self, goals: &LoadGoals) -> Vec<GoalResult> {
        let mut judged = goals.check_goals(&self.outcome, self.asked.as_ref());
        let second = self.unqueried.iter();
        judged.extend(
            second
                .flat_map(|outcome| goals.check_goals(outcome, None))
                .map(|j| GoalResult {
                    goal: format!("{}, unqueried", j.goal),
                    ..j
                }),
        );
        judged
    }

    /// Writes `report.json` and `report.html` into `dir`, which is created if necessary.
    pub fn write(&self, dir: &Path) -> Result<(), MirrorError> {
        std::fs::create_dir_all(dir).map_err(MirrorError::file("create", dir))?;
        let mut json = self.to_json();
        let looks = self.measured().into_iter().map(|measured| {
            let looks: Vec<Value> = measured.looks.iter().map(ResourceUsage::to_json).collect();
            (measured.name.to_owned(), Value::from(looks))
        });
        json["series"] = Value::Object(looks.collect());
        for (name, text) in [
            ("report.json", format!("{json:#}\n")),
            ("report.html", page(self)),
        ] {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(MirrorError::file("write", &path))?;
        }
        Ok(())
    }

    /// True if no write was accepted and no query was sent.
    pub fn has_nothing(&self) -> bool {
        let second = self.unqueried.as_ref().map_or(0, |outcome| outcome.samples);
        self.outcome.samples == 0 && second == 0 && self.asked.is_none()
    }

    /// Returns the quantiles of the latencies of writes in microseconds.
    pub fn latencies_us(&self) -> Quantiles {
        Quantiles::new(self.outcome.latencies_us.clone())
    }

    /// Returns the delays from the due times of writes to their responses in microseconds; empty
    /// unless the load was paced by the wall clock.
    pub fn delays_us(&self) -> Quantiles {
        Quantiles::new(self.outcome.delays_us.clone())
    }

    /// Returns the missed goals as one text for the error message, or `None` if all were met.
    pub fn missed(&self) -> Option<String> {
        let missed = self.judged.iter().filter(|judged| !judged.is_met);
        let texts: Vec<String> = missed
            .map(|j| format!("{}: {}", j.goal, j.reached))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Returns the report as JSON, as `firn load --json` prints it.
    pub fn to_json(&self) -> Value {
        let seconds = self.elapsed.as_secs_f64();
        let mut report = json!({
            "load": self.load.to_json(),
            "samples": self.outcome.samples,
            "requests": self.outcome.requests,
            "failed": self.outcome.failed,
            "first_failure": self.outcome.first_failure,
            "seconds": seconds,
            "samples_per_second": self.outcome.samples as f64 / seconds.max(1e-9),
            "push_ms": times(&self.latencies_us()),
        });
        if !self.outcome.delays_us.is_empty() {
            report["push_since_due_ms"] = times(&self.delays_us());
        }
        if let Some(unqueried) = &self.unqueried {
            report["unqueried"] = json!({
                "samples": unqueried.samples,
                "requests": unqueried.requests,
                "failed": unqueried.failed,
                "first_failure": unqueried.first_failure,
                "push_ms": times(&Quantiles::new(unqueried.latencies_us.clone())),
            });
        }
        if !self.looks.is_empty() {
            let cost = |m: MeasuredSystem<'_>| {
                let highest = m
                    .looks
                    .iter()
                    .filter_map(|l| l.resident)
                    .fold(0.0, f64::max);
                let cost = json!({
                    "cpu_seconds": grown(m.looks, |l| l.cpu),
                    "written_bytes": grown(m.looks, |l| l.written),
                    "resident_bytes_max": highest,
                });
                (m.name.to_owned(), cost)
            };
            report["costs"] = Value::Object(self.measured().into_iter().map(cost).collect());
        }
        if let Some(asked) = &self.asked {
            report["reads"] = outcomes(&asked.total());
            report["reads"]["fairness"] = json!(fairness(asked));
            let one = |(question, asked): (&usize, &QueryOutcomes)| {
                let mut one = outcomes(asked);
                one["query"] = json!(self.questions.get(*question));
                one
            };
            let left_out = self.left_out.iter().map(|unasked| {
                json!({"query": unasked.text, "reason": unasked.reason, "origin": unasked.origin})
            });
            report["reads"]["left_out"] = left_out.collect();
            report["reads"]["questions"] = asked.by_question.iter().map(one).collect();
        }
        if !self.judged.is_empty() {
            report["goals"] = self.judged.iter().map(GoalResult::to_json).collect();
        }
        report
    }
}

fn times(times: &Quantiles) -> Value {
    let ms = |us: u32| f64::from(us) / 1000.0;
    json!({
        "p50": ms(times.quantile(0.5)),
        "p99": ms(times.quantile(0.99)),
        "p99.9": ms(times.quantile(0.999)),
        "max": ms(times.max()),
    })
}

fn outcomes(asked: &QueryOutcomes) -> Value {
    json!({
        "due": asked.count(),
        "failed": asked.failed,
        "first_failure": asked.first_failure,
        "average_ms": asked.average_seconds() * 1e3,
        "since_due_ms": times(&asked.latencies()),
    })
}
