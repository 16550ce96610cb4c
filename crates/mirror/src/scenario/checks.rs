//! What must hold when a run is over.

use super::plan::{Plan, SystemPlan};
use super::state::Loaded;
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

/// Whether no push took too long or was refused.
pub fn push_max(plan: &Plan, loaded: &Loaded) -> Check {
    let most_ms = plan.checks.push_max.as_millis() as f64;
    Check {
        name: "push_max",
        holds: loaded.failed == 0 && loaded.push_max_ms <= most_ms,
        what: format!(
            "the longest push took {} ms of {most_ms} ms, {} were refused",
            loaded.push_max_ms, loaded.failed
        ),
    }
}

/// Whether enough answers of `system` match, by the report of its comparison.
pub fn match_rate(plan: &Plan, system: &SystemPlan, report: &Value) -> Check {
    let wanted = plan.checks.match_rate;
    let rate = report["match_rate"].as_f64();
    Check {
        name: "match_rate",
        holds: rate.is_some_and(|rate| rate >= wanted),
        what: match rate {
            Some(rate) => format!(
                "{rate} % of the answers of the {} match, {wanted} % are wanted",
                system.name
            ),
            None => format!("the {} was not compared", system.name),
        },
    }
}

/// Whether `system` has every sample of the load once.
pub fn acked(system: &SystemPlan, loaded: &Loaded) -> Result<Check, MirrorError> {
    // A range leaves out its own beginning.
    let found = count(system, loaded.start_ms - 1, loaded.end_ms)?;
    Ok(Check {
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

/// Whether `system`, which was added later, has every sample behind `from_ms` that the baseline
/// has.
pub fn acked_since(
    baseline: &SystemPlan,
    system: &SystemPlan,
    from_ms: i64,
    loaded: &Loaded,
) -> Result<Check, MirrorError> {
    let (found, wanted) = match from_ms < loaded.end_ms {
        true => (
            count(system, from_ms, loaded.end_ms)?,
            count(baseline, from_ms, loaded.end_ms)?,
        ),
        false => (0, 0),
    };
    Ok(Check {
        name: "acked",
        holds: found == wanted && wanted > 0,
        what: format!(
            "the {} has {found} samples since it gets all, the {} has {wanted}",
            system.name, baseline.name
        ),
    })
}

/// Samples that a system has behind `from_ms`, up to `end_ms`, each as often as it is there.
fn count(system: &SystemPlan, from_ms: i64, end_ms: i64) -> Result<u64, MirrorError> {
    let client = Client::new(&format!("http://{}", system.address));
    let names = client.json("label/__name__/values", &[])?;
    let names = names["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let range_ms = end_ms - from_ms;
    let mut found = 0;
    for name in names {
        let answer = client.ask(&Ask::Instant {
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
