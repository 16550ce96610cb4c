//! The state of a cluster as tables for a terminal.
//!
//! Invariant: a report is computed from the response alone. A field that is absent or of another
//! type is shown as `-`, so that a newer or older node is readable.

use firn_model::units::{format_duration, format_size};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The text of a field that is absent.
const ABSENT: &str = "-";

/// Number of milliseconds in an hour, from which on ages are shown without seconds.
const HOUR_MS: i64 = 3_600_000;

/// The state of a cluster as text, and its judgement.
#[derive(Debug)]
pub(super) struct StatusReport {
    /// Tables of nodes and partitions, and a line for each fault. Without a line break at the end.
    pub(super) text: String,
    /// True if the bucket and all partitions have no fault, all partitions have a leader, and all
    /// nodes answer.
    pub(super) is_sound: bool,
}

impl StatusReport {
    /// Creates the report of the `data` in a response of `/api/v1/status/cluster`. Fails if the
    /// server is not a node of a cluster.
    pub(super) fn from_data(data: &Value) -> Result<Self, String> {
        if data["enabled"] != true {
            let text = "this server is not a node of a cluster: firn.cluster is not set";
            return Err(text.to_owned());
        }
        let faults = find_faults(data);
        let parts = [
            heading(data),
            node_table(data),
            partition_summary(data),
            partition_table(data),
            faults.join("\n"),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Ok(Self {
            text: parts.join("\n\n"),
            is_sound: faults.is_empty(),
        })
    }
}

fn heading(data: &Value) -> String {
    let cluster = match text_of(&data["cluster"]) {
        name if name == ABSENT => "cluster not joined yet".to_owned(),
        name => format!("cluster {name}"),
    };
    let draining = if data["draining"] == true {
        ", draining"
    } else {
        ""
    };
    let node = text_of(&data["node"]);
    let version = text_of(&data["version"]);
    format!("{cluster}, seen by node {node} ({version}{draining})")
}

fn node_table(data: &Value) -> String {
    let heads = ["NODE", "ADDRESS", "VERSION", "STATE", "SEEN", "LEADS"];
    let rows = items(&data["nodes"]).iter().map(|node| {
        let is_own = !node["name"].is_null() && node["name"] == data["node"];
        let seen = if is_own {
            "this node".to_owned()
        } else {
            last_seen(node)
        };
        [
            text_of(&node["name"]),
            text_of(&node["address"]),
            text_of(&node["version"]),
            text_of(&node["state"]),
            seen,
            text_of(&node["partitionsLed"]),
        ]
    });
    format_table(heads, rows)
}

fn last_seen(node: &Value) -> String {
    match node["seenSecondsAgo"].as_f64() {
        Some(seconds) => format!("{} ago", format_age((seconds * 1e3) as i64)),
        None => "never".to_owned(),
    }
}

/// Returns the number of partitions in each state, for example `3 partitions: 2 leading, 1
/// replaying`.
fn partition_summary(data: &Value) -> String {
    let partitions = items(&data["partitions"]);
    let mut counts = BTreeMap::<String, usize>::new();
    for partition in partitions {
        *counts.entry(text_of(&partition["state"])).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    match partitions.len() {
        0 => "no partitions yet".to_owned(),
        1 => format!("1 partition: {}", counts.join(", ")),
        all => format!("{all} partitions: {}", counts.join(", ")),
    }
}

fn partition_table(data: &Value) -> String {
    let heads = [
        "PARTITION",
        "LEADER",
        "STATE",
        "EPOCH",
        "RECORDS",
        "SERIES",
        "LOG",
        "BLOCKS END",
        "COMMIT",
    ];
    let now = data["time"].as_i64();
    let age = |time: &Value| match (now, time.as_i64()) {
        (Some(now), Some(time)) => format!("{} ago", format_age(now.saturating_sub(time))),
        _ => ABSENT.to_owned(),
    };
    let rows = items(&data["partitions"]).iter().map(|partition| {
        let log = partition["logBytes"].as_u64();
        [
            text_of(&partition["partition"]),
            text_of(&partition["leader"]),
            text_of(&partition["state"]),
            text_of(&partition["epoch"]),
            text_of(&partition["position"]),
            text_of(&partition["series"]),
            log.map_or_else(|| ABSENT.to_owned(), format_bytes),
            age(&partition["cutTime"]),
            age(&partition["lastCommitTime"]),
        ]
    });
    if items(&data["partitions"]).is_empty() {
        return String::new();
    }
    format_table(heads, rows)
}

/// Returns a line for each reason why the cluster is not sound.
fn find_faults(data: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if data["fault"].is_string() {
        faults.push(text_of(&data["fault"]));
    }
    for node in items(&data["nodes"]) {
        if node["state"] == "silent" {
            let (name, address) = (text_of(&node["name"]), text_of(&node["address"]));
            let seen = last_seen(node);
            faults.push(format!(
                "node {name} ({address}) does not answer, last seen: {seen}"
            ));
        }
    }
    if items(&data["partitions"]).is_empty() {
        faults.push("this node has not joined the cluster yet".to_owned());
    }
    for partition in items(&data["partitions"]) {
        let number = text_of(&partition["partition"]);
        if partition["leader"].is_null() {
            faults.push(format!("partition {number} has no leader"));
        }
        // With another leader, the fault is that of a leadership that ended here.
        if partition["fault"].is_string() && partition["state"] != "following" {
            let fault = text_of(&partition["fault"]);
            faults.push(format!("partition {number}: {fault}"));
        }
    }
    faults
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a text or a number for a cell. Control characters are removed.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => {
            text.chars().filter(|c| !c.is_control()).collect()
        }
        Value::Number(number) => number.to_string(),
        _ => ABSENT.to_owned(),
    }
}

/// Formats an age in its two largest units, for example `3m10s` or `2d5h`.
fn format_age(ms: i64) -> String {
    let unit_ms = match ms {
        ..HOUR_MS => 1_000,
        HOUR_MS..86_400_000 => 60_000,
        _ => HOUR_MS,
    };
    let ms = (ms.max(0) / unit_ms * unit_ms).unsigned_abs();
    format_duration(Duration::from_millis(ms))
}

/// Formats a size in its largest unit, for example `12MiB`.
fn format_bytes(bytes: u64) -> String {
    let unit = 1 << (bytes.max(1).ilog2() / 10 * 10);
    format_size(bytes / unit * unit)
}

/// Formats rows below their heads in columns of equal width, two spaces apart.
fn format_table<const N: usize>(
    heads: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut lines = vec![heads.map(str::to_owned)];
    lines.extend(rows);
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let lines: Vec<String> = lines
        .iter()
        .map(|line| {
            let cells = line.iter().zip(widths);
            let text: String = cells
                .map(|(cell, width)| format!("{cell:width$}  "))
                .collect();
            text.trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn report_shows_nodes_partitions_and_faults() {
        let data = json!({
            "enabled": true, "cluster": "0f", "node": "a", "version": "0.1.0", "draining": true,
            "time": 10_000_000, "fault": "no format",
            "nodes": [
                { "name": "a", "address": "h:1", "version": "0.1.0", "state": "draining",
                  "partitionsLed": 1 },
                { "name": "b", "address": "h:2", "version": "0.1.0", "state": "silent",
                  "seenSecondsAgo": 190.4, "partitionsLed": 0 },
            ],
            "partitions": [
                { "partition": 0, "leader": "a", "epoch": 3, "state": "leading", "position": 42,
                  "series": 7, "cutTime": 1_000_000,
                  "lastCommitTime": 9_990_000, "logBytes": 13_000_000, "fault": "the bucket\n" },
                { "partition": 1, "epoch": 0, "state": "unowned", "position": 0 },
            ],
        });
        let report = StatusReport::from_data(&data).unwrap();
        let want = "\
cluster 0f, seen by node a (0.1.0, draining)

NODE  ADDRESS  VERSION  STATE     SEEN       LEADS
a     h:1      0.1.0    draining  this node  1
b     h:2      0.1.0    silent    3m10s ago  0

2 partitions: 1 leading, 1 unowned

PARTITION  LEADER  STATE    EPOCH  RECORDS  SERIES  LOG    BLOCKS END  COMMIT
0          a       leading  3      42       7       12MiB  2h30m ago   10s ago
1          -       unowned  0      0        -       -      -           -

no format
node b (h:2) does not answer, last seen: 3m10s ago
partition 0: the bucket
partition 1 has no leader";
        assert_eq!(report.text, want);
        assert!(!report.is_sound);
    }

    #[test]
    fn report_judges_the_cluster() {
        let led = json!({ "partition": 0, "leader": "a", "state": "following" });
        let fault = |state| json!({ "leader": "a", "state": state, "fault": "took over" });
        let (replaced, stopped) = (fault("following"), fault("leading"));
        let cases = [
            (json!({ "enabled": true, "partitions": [led] }), Some(true)),
            (
                json!({ "enabled": true, "partitions": [replaced] }),
                Some(true),
            ),
            (
                json!({ "enabled": true, "partitions": [stopped] }),
                Some(false),
            ),
            (json!({ "enabled": true, "partitions": [{}] }), Some(false)),
            (json!({ "enabled": true }), Some(false)),
            (
                json!({ "enabled": true, "nodes": 1, "partitions": "x" }),
                Some(false),
            ),
            (json!({ "enabled": false }), None),
            (json!([]), None),
        ];
        for (data, want) in cases {
            let found = StatusReport::from_data(&data).map(|report| report.is_sound);
            assert_eq!(found.ok(), want, "{data}");
        }
    }

    #[test]
    fn ages_and_sizes_have_few_digits() {
        for (ms, want) in [
            (-5, "0s"),
            (999, "0s"),
            (61_500, "1m1s"),
            (3_599_999, "59m59s"),
            (3_661_000, "1h1m"),
            (90_061_000, "1d1h"),
            (i64::MAX, "106751991167d7h"),
        ] {
            assert_eq!(format_age(ms), want, "{ms}");
        }
        for (bytes, want) in [
            (0, "0B"),
            (1_023, "1023B"),
            (1_536, "1KiB"),
            (5 << 30, "5GiB"),
        ] {
            assert_eq!(format_bytes(bytes), want, "{bytes}");
        }
    }
}
