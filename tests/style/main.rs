//! Tests of the rules in `docs/STYLE.md`.
//!
//! Each rule is a module. A failure contains the place and the correction. `allow.toml` contains the
//! exceptions, each with its reason; an exception that is no longer needed fails too.

mod completion;
mod edges;
mod glossary;
mod links;
mod makefile;
mod module_order;
mod modules;
mod names;
mod prose;
mod shape;
mod sources;
mod ways;
mod words;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(3)
        .expect("crates/bin/firn is three folders below the root")
        .to_path_buf()
}

/// Fails with all of `findings`, one a line.
fn report(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n{}", findings.join("\n"));
}
