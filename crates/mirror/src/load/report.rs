//! What became of a load: what was sent, asked and reached, as JSON.

use super::trial::asking::{Asked, Outcomes};
use super::trial::goals::Judged;
use crate::prepared::Summary;
use crate::push::Outcome;
use crate::quantiles::Quantiles;
use serde_json::{Value, json};
use std::time::Duration;

/// A load that was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What was made; empty parts if it was not known beforehand.
    pub load: Summary,
    /// What became of it.
    pub outcome: Outcome,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// What became of the questions, if some were asked.
    pub asked: Option<Asked>,
    /// Their texts, in the order of the plan.
    pub questions: Vec<String>,
    /// Which goals were reached, if they were judged.
    pub judged: Vec<Judged>,
}

impl Report {
    /// The push latencies in microseconds.
    pub fn latencies_us(&self) -> Quantiles {
        Quantiles::new(self.outcome.latencies_us.clone())
    }

    /// From when requests were due to their answers, if the wall clock decided that.
    pub fn delays_us(&self) -> Quantiles {
        Quantiles::new(self.outcome.delays_us.clone())
    }

    /// The goals that were missed, as one text; none if none was.
    pub fn missed(&self) -> Option<String> {
        let missed = self.judged.iter().filter(|judged| !judged.is_met);
        let texts: Vec<String> = missed
            .map(|j| format!("{}: {}", j.goal, j.reached))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// The report as `firn load` prints it.
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
        if let Some(asked) = &self.asked {
            report["reads"] = outcomes(&asked.total());
            let one = |(question, asked): (&usize, &Outcomes)| {
                let mut one = outcomes(asked);
                one["query"] = json!(self.questions.get(*question));
                one
            };
            report["reads"]["questions"] = asked.by_question.iter().map(one).collect();
        }
        if !self.judged.is_empty() {
            report["goals"] = self.judged.iter().map(Judged::to_json).collect();
        }
        report
    }
}

fn times(times: &Quantiles) -> Value {
    let ms = |us: u32| f64::from(us) / 1000.0;
    json!({
        "p50": ms(times.at(0.5)),
        "p99": ms(times.at(0.99)),
        "p99.9": ms(times.at(0.999)),
        "max": ms(times.max()),
    })
}

fn outcomes(asked: &Outcomes) -> Value {
    json!({
        "due": asked.count(),
        "failed": asked.failed,
        "first_failure": asked.first_failure,
        "average_ms": asked.average_seconds() * 1e3,
        "since_due_ms": times(&asked.latencies()),
    })
}
