//! What must hold when a run is over.

use super::plan::{Plan, SystemPlan};
use super::run::Loaded;
use crate::api::{Ask, Client};
use crate::error::MirrorError;
use serde_json::Value;

/// A check and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Its name in the file.
    pub name: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// By which figures.
    pub what: String,
}

/// All checks of a plan, over the load and the report of the comparison.
pub fn all(plan: &Plan, loaded: &Loaded, report: &Value) -> Result<Vec<Check>, MirrorError> {
    let wanted = &plan.checks;
    let rate = report["match_rate"].as_f64().unwrap_or(0.0);
    let push_max_ms = wanted.push_max.as_millis() as f64;
    let mut checks = vec![
        Check {
            name: "match_rate",
            holds: rate >= wanted.match_rate,
            what: format!(
                "{rate} % of the answers match, {} % are wanted",
                wanted.match_rate
            ),
        },
        Check {
            name: "push_max",
            holds: loaded.failed == 0 && loaded.push_max_ms <= push_max_ms,
            what: format!(
                "the longest push took {} ms of {push_max_ms} ms, {} were refused",
                loaded.push_max_ms, loaded.failed
            ),
        },
    ];
    if wanted.acked {
        for system in [&plan.baseline, &plan.candidate] {
            let found = count(system, loaded)?;
            checks.push(Check {
                name: "acked",
                holds: found == loaded.visible && loaded.failed == 0,
                what: format!(
                    "the {} has {found} samples, {} were acknowledged, and {} staleness markers",
                    system.name,
                    loaded.visible,
                    loaded.samples.saturating_sub(loaded.visible)
                ),
            });
        }
    }
    Ok(checks)
}

/// Samples that a system has of the time of the load, each as often as it is there.
fn count(system: &SystemPlan, loaded: &Loaded) -> Result<u64, MirrorError> {
    let client = Client::new(&format!("http://{}", system.address));
    let names = client.json("label/__name__/values", &[])?;
    let names = names["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    // A range leaves out its own beginning.
    let range_ms = loaded.end_ms - loaded.start_ms + 1;
    let mut found = 0;
    for name in names {
        let answer = client.ask(&Ask::Instant {
            expression: format!("sum(count_over_time({{__name__={name:?}}}[{range_ms}ms]))"),
            time_ms: loaded.end_ms,
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
