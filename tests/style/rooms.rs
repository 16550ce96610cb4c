//! The arrows between the files of a crate: no large circles, and storage's rooms in their order.

use crate::modules::{graphs, name};
use crate::report;
use crate::shape::Allowed;

/// A circle of so many files can be read as one.
const CIRCLE_FILES_MAX: usize = 4;

#[test]
fn circle_of_many_files_is_refused() {
    let mut findings = Vec::new();
    for (room, graph) in graphs() {
        for circle in graph.circles() {
            if circle.len() > CIRCLE_FILES_MAX {
                let names: Vec<String> = circle.iter().map(|module| name(module)).collect();
                let text = format!(
                    "crates/{room}: {} files name each other: {}",
                    circle.len(),
                    names.join(", ")
                );
                let first = names.iter().min().cloned().unwrap_or_default();
                findings.push((format!("crates/{room}: {first}"), text));
            }
        }
    }
    report("circles", &Allowed::read().judge("circles", findings));
}

/// The rooms of storage. Each may use those before it and no other.
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

/// What looks at a folder from outside of the store that it belongs to.
const STORAGE_TOOLS: [&str; 3] = ["listing", "verify", "repair"];

#[test]
fn room_of_storage_that_uses_a_later_one_is_refused() {
    let graphs = graphs();
    let order: Vec<&str> = STORAGE.into_iter().chain(STORAGE_TOOLS).collect();
    let place = |room: &str| order.iter().position(|known| *known == room);
    let mut findings = Vec::new();
    for (module, uses) in &graphs["storage"].uses {
        let Some(room) = module.first() else { continue };
        let Some(at) = place(room) else {
            findings.push(format!(
                "{}: a room without a place in the order",
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
    report("rooms of storage", &findings);
}
