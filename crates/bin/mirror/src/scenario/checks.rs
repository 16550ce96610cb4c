//! The checks at the end of a run: write latency, queries, match rate, stored samples and alerts.

use super::alerts::{self, History};
use super::plan::{ScenarioPlan, SystemPlan};
use super::state::ScenarioLoadResults;
use crate::api::{ExpressionRequest, SystemClient};
use crate::error::MirrorError;
use serde_json::Value;

/// The result of a check, which the run prints and stores at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioCheckResult {
    /// Name of the check in the scenario file.
    pub name: &'static str,
    /// Whether the check passes; a run succeeds if all do.
    pub holds: bool,
    /// Description with the measured and the required figures.
    pub what: String,
}

/// Checks that no write took too long or was rejected.
pub fn push_max(plan: &ScenarioPlan, loaded: &ScenarioLoadResults) -> ScenarioCheckResult {
    let most_ms = plan.checks.push_max.as_millis() as f64;
    ScenarioCheckResult {
        name: "push_max",
        holds: loaded.failed == 0 && loaded.push_max_ms <= most_ms,
        what: format!(
            "the longest push took {} ms of {most_ms} ms, {} were rejected",
            loaded.push_max_ms, loaded.failed
        ),
    }
}

/// Checks success rate, mean latency and fairness of the queries beside the load, as far as the
/// scenario requires it.
pub fn reads(plan: &ScenarioPlan, loaded: &ScenarioLoadResults) -> Vec<ScenarioCheckResult> {
    let checks = &plan.checks;
    let Some(reads) = loaded.reads else {
        return Vec::new();
    };
    let mut all = Vec::new();
    if let Some(wanted) = checks.read_share {
        let good = reads.due.saturating_sub(reads.failed);
        all.push(ScenarioCheckResult {
            name: "read_share",
            holds: reads.due > 0 && good as f64 >= wanted * reads.due as f64,
            what: format!("{good} of {} queries succeeded", reads.due),
        });
    }
    if let Some(wanted) = checks.read_average {
        let (taken, wanted) = (reads.average_ms, wanted.as_secs_f64() * 1e3);
        all.push(ScenarioCheckResult {
            name: "read_average",
            holds: reads.due > 0 && taken <= wanted,
            what: format!("queries took {taken:.1} ms of {wanted} ms on average"),
        });
    }
    if let Some(wanted) = checks.fairness {
        all.push(ScenarioCheckResult {
            name: "fairness",
            holds: reads.fairness.is_none_or(|ratio| ratio <= wanted),
            what: match reads.fairness {
                Some(ratio) => format!(
                    "the 99th percentiles of equal queries differ by a factor of {ratio:.2}"
                ),
                None => "no two queries of equal cost ran often enough".to_owned(),
            },
        });
    }
    all
}

/// Checks that enough answers of `system` match, according to the report of its comparison.
pub fn match_rate(plan: &ScenarioPlan, system: &SystemPlan, report: &Value) -> ScenarioCheckResult {
    let wanted = plan.checks.match_rate;
    let rate = report["match_rate"].as_f64();
    ScenarioCheckResult {
        name: "match_rate",
        holds: rate.is_some_and(|rate| rate >= wanted),
        what: match rate {
            Some(rate) => format!(
                "{rate} % of the answers of the {} match, {wanted} % are required",
                system.name
            ),
            None => format!("the {} was not compared", system.name),
        },
    }
}

/// Checks that `system` stores each sample of the load exactly once. Fails if it cannot be queried.
pub fn acked(
    system: &SystemPlan,
    loaded: &ScenarioLoadResults,
) -> Result<ScenarioCheckResult, MirrorError> {
    // A range excludes its own start.
    let found = count(system, loaded.start_ms - 1, loaded.end_ms)?;
    Ok(ScenarioCheckResult {
        name: "acked",
        holds: found == loaded.visible && loaded.failed == 0,
        what: format!(
            "the {} has {found} samples, {} were acknowledged, and {} staleness markers",
            system.name,
            loaded.visible,
            loaded.samples.saturating_sub(loaded.visible)
        ),
    })
}

/// Checks that `system`, which was added later, stores as many samples after `from_ms` as the
/// baseline.
pub fn acked_since(
    baseline: &SystemPlan,
    system: &SystemPlan,
    from_ms: i64,
    loaded: &ScenarioLoadResults,
) -> Result<ScenarioCheckResult, MirrorError> {
    let (found, wanted) = if from_ms < loaded.end_ms {
        (
            count(system, from_ms, loaded.end_ms)?,
            count(baseline, from_ms, loaded.end_ms)?,
        )
    } else {
        (0, 0)
    };
    Ok(ScenarioCheckResult {
        name: "acked",
        holds: found == wanted && wanted > 0,
        what: format!(
            "the {} has {found} samples since it receives all data, the {} has {wanted}",
            system.name, baseline.name
        ),
    })
}

/// Checks that a system has sent the alerts of the baseline: with the same occurrences, start and
/// end times, and annotations.
pub fn alerts(system: &SystemPlan, baseline: &History, sent: &History) -> ScenarioCheckResult {
    let name = &system.name;
    let difference = alerts::difference(baseline, sent);
    ScenarioCheckResult {
        name: "alerts",
        holds: difference.is_none() && !baseline.is_empty(),
        what: match difference {
            Some(difference) => format!("the alerts of the {name} differ: {difference}"),
            None => format!("the {name} has fired {} times, as the baseline", sent.len()),
        },
    }
}

/// Counts the samples that a system stores after `from_ms` up to `end_ms`, including duplicates.
fn count(system: &SystemPlan, from_ms: i64, end_ms: i64) -> Result<u64, MirrorError> {
    let client = SystemClient::new(&format!("http://{}", system.address));
    let names = client.json("label/__name__/values", &[])?;
    let names = names["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let range_ms = end_ms - from_ms;
    let mut found = 0;
    for name in names {
        let answer = client.send_query(&ExpressionRequest::Instant {
            expression: format!("sum(count_over_time({{__name__={name:?}}}[{range_ms}ms]))"),
            time_ms: end_ms,
        })?;
        if answer["status"] != "success" {
            let what = format!("cannot count the samples of {name}: {}", answer["error"]);
            let url = format!("http://{}", system.address);
            return Err(MirrorError::Answer { url, what });
        }
        let value = answer["data"]["result"][0]["value"][1].as_str();
        found += value
            .and_then(|value| value.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::plan::{ComparePlan, LoadPlan, ScenarioChecks};
    use super::super::state::ScenarioReadResults;
    use super::*;
    use std::path::PathBuf;
    use std::time::Duration;

    fn plan(checks: ScenarioChecks) -> ScenarioPlan {
        let system = |name: &str| SystemPlan {
            name: name.to_owned(),
            command: Vec::new(),
            data: PathBuf::new(),
            address: String::new(),
            ready: String::new(),
            write: String::new(),
            alerts: None,
        };
        ScenarioPlan {
            file: PathBuf::new(),
            baseline: system("baseline"),
            candidate: system("candidate"),
            nodes: Vec::new(),
            mirror: String::new(),
            load: LoadPlan {
                series: 1,
                interval: Duration::from_secs(1),
                duration: Duration::from_secs(1),
                churn: String::new(),
                churn_period: String::new(),
                seed: 1,
                reads: None,
            },
            steps: Vec::new(),
            compare: ComparePlan::default(),
            checks,
        }
    }

    #[test]
    fn questions_beside_the_load_are_held_to_what_is_named() {
        let loaded = |due, failed, average_ms, fairness| ScenarioLoadResults {
            start_ms: 0,
            end_ms: 1,
            samples: 1,
            visible: 1,
            failed: 0,
            push_max_ms: 1.0,
            reads: Some(ScenarioReadResults {
                due,
                failed,
                average_ms,
                fairness,
            }),
        };
        let named = ScenarioChecks {
            match_rate: 100.0,
            acked: true,
            alerts: false,
            push_max: Duration::from_secs(1),
            read_share: Some(0.9),
            read_average: Some(Duration::from_secs(2)),
            fairness: Some(3.0),
        };
        let none = ScenarioChecks {
            read_share: None,
            read_average: None,
            fairness: None,
            ..named.clone()
        };
        let held = |checks: &ScenarioChecks, loaded: &ScenarioLoadResults| {
            let all = reads(&plan(checks.clone()), loaded).into_iter();
            all.map(|check| check.holds).collect::<Vec<_>>()
        };
        for (loaded, expected) in [
            (loaded(10, 1, 2_000.0, Some(3.0)), [true, true, true]),
            (loaded(10, 2, 2_000.1, Some(3.1)), [false, false, false]),
            (loaded(10, 0, 1.0, None), [true, true, true]),
            // A system that received no queries has answered none.
            (loaded(0, 0, 0.0, None), [false, false, true]),
        ] {
            assert_eq!(held(&named, &loaded), expected, "{loaded:?}");
            assert!(held(&none, &loaded).is_empty());
        }
    }
}
