//! Parses the sections of a scenario file: load, comparison and checks.
//!
//! Invariant: an unknown key is rejected with its line and column, so that a typo does not silently
//! select a default.

use super::{ComparePlan, FIRST, LoadPlan, ReadsPlan, ScenarioChecks};
use firn_model::units::parse_duration;
use firn_yaml::{YamlNode, YamlValue};
use std::path::{Component, PathBuf};
use std::time::Duration;

/// The parsed value, or an error text with line, column and description for the user.
pub(super) type Read<T> = Result<T, String>;

/// Flags of `firn compare` that a scenario may set, with `_` instead of `-`.
const COMPARE_FLAGS: [&str; 12] = [
    "generate",
    "seed",
    "passes",
    "match",
    "ignore_label",
    "tolerance_relative",
    "tolerance_absolute",
    "tolerance_ulps",
    "timeout",
    "answer_limit",
    "concurrency",
    "busy",
];

/// Flags of `firn load` about queries that a scenario may set.
const READ_FLAGS: [&str; 3] = ["query_rate", "query_connections", "query_timeout"];

/// Parses the section `load`, which includes the queries beside the load.
pub(super) fn load(node: &YamlNode) -> Read<LoadPlan> {
    let own = [
        "series",
        "interval",
        "duration",
        "churn",
        "churn_period",
        "seed",
    ];
    let of_reads = ["queries", "query"];
    only(node, "load", &[&own[..], &of_reads, &READ_FLAGS].concat())?;
    let word = |key: &str, default: &str| node.get(key).map_or(Ok(default.to_owned()), text);
    Ok(LoadPlan {
        series: number(needed(node, "series")?)?,
        interval: duration(needed(node, "interval")?)?,
        duration: duration(needed(node, "duration")?)?,
        churn: word("churn", "0")?,
        churn_period: word("churn_period", "15m")?,
        seed: node.get("seed").map_or(Ok(1), number)?,
        reads: reads(node)?,
    })
}

fn reads(node: &YamlNode) -> Read<Option<ReadsPlan>> {
    let queries = files(node.get("queries"))?;
    let flags = flags(node, &READ_FLAGS)?;
    let system = node.get("query").map_or(Ok(FIRST[1].to_owned()), text)?;
    if !FIRST.contains(&system.as_str()) {
        let why = format!("query is one of {}: {system:?}", FIRST.join(", "));
        return Err(node.error(why).to_string());
    }
    match (queries.is_empty(), flags.is_empty()) {
        (true, true) => Ok(None),
        (true, false) => Err(node.error("questions need queries").to_string()),
        (false, _) => Ok(Some(ReadsPlan {
            queries,
            system,
            flags,
        })),
    }
}

/// Parses the section `compare`: query files and flags of `firn compare`.
pub(super) fn compare(node: &YamlNode) -> Read<ComparePlan> {
    only(
        node,
        "compare",
        &[&["queries"][..], &COMPARE_FLAGS].concat(),
    )?;
    Ok(ComparePlan {
        queries: files(node.get("queries"))?,
        flags: flags(node, &COMPARE_FLAGS)?,
    })
}

/// Parses query files and directories, which must be inside the directory of the scenario file.
fn files(node: Option<&YamlNode>) -> Read<Vec<PathBuf>> {
    let beside = |node: &YamlNode| {
        let path = PathBuf::from(text(node)?);
        let is_normal = |part| matches!(part, Component::Normal(_));
        if path.components().all(is_normal) {
            Ok(path)
        } else {
            Err(node
                .error("a query file must be in the folder of the scenario")
                .to_string())
        }
    };
    let files = node.map_or(&[][..], YamlNode::items);
    files.iter().map(beside).collect()
}

/// Returns the flags in a mapping, with one entry for each value of a list.
fn flags(node: &YamlNode, names: &[&str]) -> Read<Vec<(String, String)>> {
    let mut found = Vec::new();
    for name in names {
        let Some(node) = node.get(name) else {
            continue;
        };
        let values = match &node.value {
            YamlValue::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        for value in values {
            found.push((format!("--{}", name.replace('_', "-")), text(value)?));
        }
    }
    Ok(found)
}

/// Parses the section `checks`. Without it, the default conditions apply.
pub(super) fn checks(node: Option<&YamlNode>) -> Read<ScenarioChecks> {
    let get = |key: &str| node.and_then(|node| node.get(key));
    let keys = [
        "match_rate",
        "acked",
        "alerts",
        "push_max",
        "read_share",
        "read_average",
        "fairness",
    ];
    if let Some(node) = node {
        only(node, "checks", &keys)?;
    }
    let ten_seconds = || Ok(Duration::from_secs(10));
    Ok(ScenarioChecks {
        match_rate: get("match_rate").map_or(Ok(100.0), number)?,
        acked: get("acked").map_or(Ok(true), number)?,
        alerts: get("alerts").map_or(Ok(false), number)?,
        push_max: get("push_max").map_or_else(ten_seconds, duration)?,
        read_share: get("read_share").map(number).transpose()?,
        read_average: get("read_average").map(duration).transpose()?,
        fairness: get("fairness").map(number).transpose()?,
    })
}

/// Rejects keys of a mapping that are not in `keys`.
pub(super) fn only(node: &YamlNode, what: &str, keys: &[&str]) -> Read<()> {
    let YamlValue::Map(entries) = &node.value else {
        return Err(node.error(format!("{what} is a mapping")).to_string());
    };
    match entries
        .iter()
        .find(|entry| !keys.contains(&entry.key.as_str()))
    {
        None => Ok(()),
        Some(entry) => {
            let keys = keys.join(", ");
            Err(format!(
                "{}: unknown key {:?} in {what}: {keys}",
                entry.place, entry.key
            ))
        }
    }
}

/// Returns the value of a required key, or an error that names the missing key.
pub(super) fn needed<'n>(node: &'n YamlNode, key: &str) -> Read<&'n YamlNode> {
    node.get(key)
        .ok_or_else(|| node.error(format!("{key} is missing")).to_string())
}

/// Returns the text of a scalar node.
pub(super) fn text(node: &YamlNode) -> Read<String> {
    let text = node.text().map(str::to_owned);
    text.ok_or_else(|| node.error("not a text").to_string())
}

fn number<T: std::str::FromStr>(node: &YamlNode) -> Read<T> {
    let text = text(node)?;
    text.parse()
        .map_err(|_| node.error(format!("not valid: {text:?}")).to_string())
}

/// Parses the duration of a scalar node.
pub(super) fn duration(node: &YamlNode) -> Read<Duration> {
    parse_duration(&text(node)?).map_err(|e| node.error(e.to_string()).to_string())
}
