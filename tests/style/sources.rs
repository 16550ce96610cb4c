//! Reads the project's Rust files as text and as syntax, without their tests.

use crate::root;
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

/// A Rust file of the project.
pub struct Source {
    /// Relative to the root, with forward slashes.
    pub path: String,
    /// All of it.
    pub text: String,
    /// Its syntax tree, once it was asked for: most tests need none, and it takes long.
    syntax: OnceCell<syn::File>,
}

impl Source {
    /// The crate, if the file is part of one: `crates/FOLDER/CRATE/...`.
    pub fn crate_name(&self) -> Option<&str> {
        let folders = self.path.strip_prefix("crates/")?;
        folders.split('/').nth(1)
    }

    /// Whether the file is part of what ships: under some `src/`, and not a file of tests.
    pub fn is_production(&self) -> bool {
        let is_test = self.path.ends_with("tests.rs") || self.path.contains("/tests/");
        self.path.contains("/src/") && !is_test
    }

    /// The lines before the test module that closes the file.
    pub fn production_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.test_module_line().unwrap_or(usize::MAX);
        self.text
            .lines()
            .enumerate()
            .map(|(i, l)| (i + 1, l))
            .take_while(move |(n, _)| *n < end)
    }

    /// Its syntax tree.
    pub fn syntax(&self) -> &syn::File {
        let parse = || {
            let parsed = syn::parse_file(&self.text);
            parsed.unwrap_or_else(|e| panic!("{}: {e}", self.path))
        };
        self.syntax.get_or_init(parse)
    }

    /// The line of `#[cfg(test)]` before the first module of tests that stands in the file.
    fn test_module_line(&self) -> Option<usize> {
        const BEFORE: &str = "\n#[cfg(test)]\nmod ";
        let is_in_file = |at: usize| {
            let name = self.text[at + BEFORE.len()..].lines().next();
            name.is_some_and(|line| line.ends_with(" {"))
        };
        let mut found = self.text.match_indices(BEFORE).map(|(at, _)| at);
        let at = found.find(|at| is_in_file(*at))?;
        Some(self.text[..=at].lines().count() + 1)
    }
}

/// Whether an item is compiled for tests alone.
pub fn is_test_only(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| {
        a.path().is_ident("test")
            || (a.path().is_ident("cfg")
                && a.parse_args::<syn::Path>()
                    .is_ok_and(|p| p.is_ident("test")))
    })
}

/// Every Rust file under `crates`, `tests`, `fuzz` and `bench`, sorted by path.
pub fn all() -> Vec<Source> {
    let mut paths = Vec::new();
    for dir in ["crates", "tests", "fuzz", "bench"] {
        collect(&root().join(dir), &mut paths);
    }
    paths.sort();
    assert!(
        paths.len() > 20,
        "only {} Rust files found under {}",
        paths.len(),
        root().display()
    );
    paths.into_iter().map(|p| read(&p)).collect()
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() && path.file_name().is_none_or(|n| n != "target") {
            collect(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn read(path: &Path) -> Source {
    let text = fs::read_to_string(path).expect("a readable source file");
    let relative = path.strip_prefix(root()).expect("below the root");
    Source {
        path: relative.to_string_lossy().replace('\\', "/"),
        text,
        syntax: OnceCell::new(),
    }
}
