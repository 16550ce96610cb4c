//! The arrows between crates, and what may not be reached from the synchronous ones.

use crate::{report, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A crate and the crates that it may use, as in `docs/ARCHITECTURE.md`.
const EDGES: [(&str, &[&str]); 23] = [
    ("goregex", &[]),
    ("yaml", &[]),
    ("model", &["goregex"]),
    ("gotemplate", &["goregex", "model"]),
    ("x509", &[]),
    // Its series have the labels, samples and histograms of the model. Types of its own would need
    // conversions in each of its users.
    ("prometheus-tsdb", &["model"]),
    ("wire", &["model", "prometheus-tsdb"]),
    ("storage", &["model"]),
    ("promql", &["model"]),
    // Durations and sizes are parsed as the model parses them.
    ("config-schema", &["yaml", "model"]),
    ("http-client", &["yaml", "model", "config-schema", "x509"]),
    ("rules", &["yaml", "model", "gotemplate", "promql"]),
    ("bucket", &["model", "http-client"]),
    ("cluster", &["model", "storage", "bucket"]),
    (
        "discovery",
        &["yaml", "model", "config-schema", "wire", "http-client"],
    ),
    ("aggregation", &["model", "wire"]),
    (
        "ingest",
        &["model", "wire", "http-client", "discovery", "aggregation"],
    ),
    (
        "scrape",
        &["model", "wire", "http-client", "discovery", "ingest"],
    ),
    ("remote-write", &["model", "wire", "http-client", "ingest"]),
    (
        "server",
        &[
            "yaml",
            "model",
            "gotemplate",
            "x509",
            "wire",
            "promql",
            "rules",
            "ingest",
            "scrape",
        ],
    ),
    (
        "config",
        &[
            "yaml",
            "model",
            "config-schema",
            "wire",
            "storage",
            "promql",
            "http-client",
            "rules",
            "discovery",
            "aggregation",
            "ingest",
            "scrape",
            "remote-write",
            "server",
        ],
    ),
    ("mirror", &["yaml", "model", "wire", "promql"]),
    (
        "firn",
        &[
            "yaml",
            "model",
            "prometheus-tsdb",
            "wire",
            "storage",
            "promql",
            "http-client",
            "rules",
            "bucket",
            "cluster",
            "discovery",
            "aggregation",
            "ingest",
            "scrape",
            "remote-write",
            "server",
            "config",
            "mirror",
        ],
    ),
];

/// Crates in which nothing is asynchronous.
const SYNC: [&str; 7] = [
    "model",
    "wire",
    "storage",
    "promql",
    "rules",
    "x509",
    "aggregation",
];

/// What would bring a runtime or sockets to a synchronous crate.
const RUNTIMES: [&str; 8] = [
    "tokio",
    "async-std",
    "smol",
    "mio",
    "hyper",
    "axum",
    "reqwest",
    "futures-executor",
];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// For each package id: its name and the ids that it needs when it ships.
fn graph(metadata: &Value) -> BTreeMap<String, (String, Vec<String>)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeMap<String, String> = packages
        .iter()
        .map(|p| (text(&p["id"]), text(&p["name"])))
        .collect();
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let ships = |dep: &Value| {
        let kinds = dep["dep_kinds"].as_array().expect("kinds of a dependency");
        kinds.iter().any(|k| k["kind"].is_null())
    };
    let edge = |node: &Value| {
        let deps = node["deps"].as_array().expect("dependencies");
        deps.iter()
            .filter(|d| ships(d))
            .map(|d| text(&d["pkg"]))
            .collect()
    };
    nodes
        .iter()
        .map(|n| (text(&n["id"]), (names[&text(&n["id"])].clone(), edge(n))))
        .collect()
}

#[test]
fn edge_not_drawn_is_refused() {
    let graph = graph(&metadata());
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, deps) in graph.values() {
        let Some(krate) = name.strip_prefix("firn-") else {
            continue;
        };
        seen.insert(krate);
        let Some((_, allowed)) = EDGES.iter().find(|(r, _)| *r == krate) else {
            findings.push(format!(
                "crates/{krate}: a crate that ARCHITECTURE.md does not draw"
            ));
            continue;
        };
        for dep in deps {
            if let Some(used) = graph[dep].0.strip_prefix("firn-")
                && !allowed.contains(&used)
            {
                findings.push(format!(
                    "crates/{krate} uses {used}: this arrow is not drawn"
                ));
            }
        }
    }
    let missing = EDGES.iter().filter(|(r, _)| !seen.contains(r));
    findings.extend(missing.map(|(r, _)| format!("crates/{r} is drawn but does not exist")));
    report("edges between crates", &findings);
}

#[test]
fn runtime_in_a_synchronous_crate_is_refused() {
    let graph = graph(&metadata());
    let mut findings = Vec::new();
    for krate in SYNC {
        let id = graph
            .iter()
            .find(|(_, (n, _))| *n == format!("firn-{krate}"))
            .map(|(id, _)| id);
        let mut open = vec![id.unwrap_or_else(|| panic!("no crate {krate}")).clone()];
        let mut closed = BTreeSet::new();
        while let Some(id) = open.pop() {
            let (name, deps) = &graph[&id];
            if RUNTIMES.contains(&name.as_str()) {
                findings.push(format!("crates/{krate} reaches {name}"));
            }
            open.extend(deps.iter().filter(|d| closed.insert((*d).clone())).cloned());
        }
    }
    report("runtimes in synchronous crates", &findings);
}

#[test]
fn crypto_provider_beside_ring_is_refused() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let names = lock.lines().filter_map(|line| line.strip_prefix("name = "));
    let found = names.map(|name| name.trim_matches('"'));
    let found = found.filter(|name| name.starts_with("aws-lc") || *name == "openssl-sys");
    let findings: Vec<String> = found
        .map(|name| format!("{name} is in Cargo.lock: take the feature `ring` of what brings it"))
        .collect();
    report("crypto providers", &findings);
}
