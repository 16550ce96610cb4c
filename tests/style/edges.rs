//! The arrows between crates, and what may not be reached from the synchronous ones.

use crate::{report, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A crate and the crates that it may use, as in `docs/ARCHITECTURE.md`.
const EDGES: [(&str, &[&str]); 25] = [
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
    // It compiles the sources of storage.
    ("interleavings", &["model"]),
    ("promql", &["model"]),
    // Durations and sizes are parsed as the model parses them.
    ("config-schema", &["yaml", "model"]),
    ("http-client", &["yaml", "model", "config-schema", "x509"]),
    ("rules", &["yaml", "model", "gotemplate", "promql"]),
    ("bucket", &["model", "http-client"]),
    ("cluster", &["model", "storage", "bucket", "peer"]),
    ("peer", &["model", "wire", "x509"]),
    (
        "discovery",
        &["yaml", "model", "config-schema", "wire", "http-client"],
    ),
    ("aggregation", &["model", "wire"]),
    ("ingest", &["model", "wire", "http-client", "aggregation"]),
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
        ],
    ),
    (
        "config",
        &[
            "yaml",
            "model",
            "config-schema",
            "x509",
            "wire",
            "storage",
            "promql",
            "http-client",
            "rules",
            "bucket",
            "discovery",
            "aggregation",
            "ingest",
            "scrape",
            "remote-write",
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
            "peer",
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

/// The folders of `crates` with their floors: a crate uses only crates of its own folder and of
/// lower floors. The folders of one floor do not use each other.
const FLOORS: [(&str, u8); 5] = [
    ("lib", 0),
    ("core", 1),
    ("scale", 2),
    ("edge", 3),
    ("bin", 4),
];

/// The arrows to a higher floor, each with the reason why it remains.
const UPWARD_EDGES: [(&str, &str, &str); 4] = [
    ("config-schema", "model", "units of durations and sizes"),
    ("gotemplate", "model", "labels and histograms in templates"),
    (
        "http-client",
        "model",
        "error kinds, memory budgets and trace contexts",
    ),
    (
        "prometheus-tsdb",
        "model",
        "labels, samples and histograms of blocks",
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

/// The folder of each crate, by its name without the prefix.
fn folders(metadata: &Value) -> BTreeMap<String, String> {
    let packages = metadata["packages"].as_array().expect("packages");
    let folder_of = |package: &Value| {
        let name = package["name"].as_str()?.strip_prefix("firn-")?;
        let (_, path) = package["manifest_path"].as_str()?.rsplit_once("/crates/")?;
        Some((name.to_owned(), path.split('/').next()?.to_owned()))
    };
    packages.iter().filter_map(folder_of).collect()
}

#[test]
fn edge_to_a_higher_folder_is_refused() {
    let folders = folders(&metadata());
    let floor = |folder: &str| {
        let known = FLOORS.iter().find(|(name, _)| *name == folder);
        known
            .unwrap_or_else(|| panic!("crates/{folder} has no floor"))
            .1
    };
    let mut upward = BTreeSet::new();
    for (name, used) in EDGES
        .iter()
        .flat_map(|(n, uses)| uses.iter().map(move |u| (*n, *u)))
    {
        let (from, to) = (&folders[name], &folders[used]);
        if from != to && floor(from) <= floor(to) {
            upward.insert((name, used));
        }
    }
    let known: BTreeSet<_> = UPWARD_EDGES.iter().map(|(n, u, _)| (*n, *u)).collect();
    let mut findings: Vec<String> = upward
        .difference(&known)
        .map(|(n, u)| {
            format!(
                "{n} uses {u}: from crates/{} to crates/{}",
                folders[*n], folders[*u]
            )
        })
        .collect();
    let unused = known.difference(&upward);
    findings
        .extend(unused.map(|(n, u)| format!("{n} uses {u}: the exception is no longer needed")));
    report("edges between folders", &findings);
}

#[test]
fn table_of_crates_that_differs_from_the_edges_is_refused() {
    let path = root().join("docs/ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).expect("docs/ARCHITECTURE.md is readable");
    let folders = folders(&metadata());
    let rows: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `crates/")?.split_once("` | "))
        .filter_map(|(name, rest)| Some((name, rest.strip_suffix('|')?.rsplit_once('|')?.1.trim())))
        .collect();
    let mut findings = Vec::new();
    for (name, uses) in EDGES {
        let row = format!("{}/{}", folders[name], name.replace('-', "_"));
        let drawn = match rows.get(&*row) {
            None => {
                findings.push(format!("crates/{row} has no row"));
                continue;
            }
            // The binary wires all of them.
            Some(&"all") => continue,
            Some(drawn) => drawn.split(", ").filter(|name| !name.is_empty()),
        };
        let drawn: BTreeSet<String> = drawn.map(|name| name.replace('_', "-")).collect();
        let uses: BTreeSet<String> = uses.iter().map(|&name| name.to_owned()).collect();
        if drawn != uses {
            findings.push(format!(
                "crates/{row}: the row has {drawn:?}, the list {uses:?}"
            ));
        }
    }
    report("table of crates in docs/ARCHITECTURE.md", &findings);
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
