//! Taste as a test: what the documents say about the shape of the code, held by the build.
//!
//! Each rule is a module; each failure names the place and what to do instead. Exceptions stand in
//! `allow.toml` beside this file, each with its reason; one that is no longer needed fails too.

mod edges;
mod glossary;
mod links;
mod makefile;
mod modules;
mod names;
mod prose;
mod rooms;
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
