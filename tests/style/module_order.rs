//! Imports between the files of a crate: no large cycles, and only earlier modules in storage.

use crate::modules::{graphs, name};
use crate::report;
use crate::shape::Allowed;

/// Maximum number of files in a cycle: a reader can take these in as one.
const CIRCLE_FILES_MAX: usize = 4;

#[test]
fn circle_of_many_files_is_refused() {
    let mut findings = Vec::new();
    for (krate, graph) in graphs() {
        for circle in graph.circles() {
            if circle.len() > CIRCLE_FILES_MAX {
                let names: Vec<String> = circle.iter().map(|module| name(module)).collect();
                let text = format!(
                    "crates/{krate}: {} files name each other: {}",
                    circle.len(),
                    names.join(", ")
                );
                let first = names.iter().min().cloned().unwrap_or_default();
                findings.push((format!("crates/{krate}: {first}"), text));
            }
        }
    }
    report("circles", &Allowed::read().judge("circles", findings));
}

/// The modules of storage. Each may use those before it and no others.
const STORAGE: [&str; 31] = [
    "error",
    "sync",
    "failpoints",
    "ids",
    "prefetch",
    "encoding",
    "fan_out",
    "damage",
    "manifest",
    "data_dir",
    "file",
    "chunk",
    "page",
    "lookup",
    "index",
    "exemplars",
    "log",
    "catalogue",
    "block",
    "tombstones",
    "blocks",
    "import",
    "sealed",
    "snapshot",
    "head",
    "parts",
    "read",
    "maintenance",
    "append",
    "replay",
    "store",
];

/// Offline tools, which read a data folder without its store. They may use all modules.
const STORAGE_TOOLS: [&str; 3] = ["listing", "verify", "repair"];

#[test]
fn module_of_storage_that_uses_a_later_one_is_refused() {
    let graphs = graphs();
    let order: Vec<&str> = STORAGE.into_iter().chain(STORAGE_TOOLS).collect();
    let place = |module_name: &str| order.iter().position(|known| *known == module_name);
    let mut findings = Vec::new();
    for (module, uses) in &graphs["storage"].uses {
        let Some(module_name) = module.first() else {
            continue;
        };
        let Some(at) = place(module_name) else {
            findings.push(format!(
                "{}: a module without a place in the order",
                name(module)
            ));
            continue;
        };
        for used in uses.iter().filter_map(|used| used.first()) {
            if place(used).is_some_and(|of_used| of_used > at) {
                findings.push(format!("{} uses {used}, which comes later", name(module)));
            }
        }
    }
    report("modules of storage", &findings);
}
