//! The Debian package, the archive, the image, the Helm chart and the Compose file, built or read
//! from `deploy/` and run with the binary under test.
//!
//! Tests install packages in namespaces of their own, on a copy of this machine's files that
//! vanishes with the test. No service of this machine starts or stops.
// A test fails by a panic, and its output is shown then.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod compose;
mod container;
mod debian;
#[path = "../harness/mod.rs"]
// Each test program uses a part of the harness.
#[allow(dead_code)]
mod harness;
mod helm;
mod machine;

use firn_yaml::YamlNode;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A path in the repository.
fn root(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.canonicalize().unwrap().join(path)
}

/// A file of the repository.
fn text(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The first YAML document of a text.
fn document(text: &str) -> YamlNode {
    let parsed = firn_yaml::parse(text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
    parsed.unwrap_or_else(|| panic!("no document:\n{text}"))
}

/// The value at a path of keys; numbers are places in lists.
fn at<'a>(node: &'a YamlNode, path: &str) -> &'a YamlNode {
    path.split('.').fold(node, |node, key| {
        let item = key.parse().ok().and_then(|i: usize| node.items().get(i));
        let found = item.or_else(|| node.get(key));
        found.unwrap_or_else(|| panic!("no {key:?} of {path} in:\n{}", firn_yaml::print(node)))
    })
}

/// The text at a path of keys.
fn text_at(node: &YamlNode, path: &str) -> String {
    let found = at(node, path);
    let text = found.text();
    text.unwrap_or_else(|| panic!("no text at {path}"))
        .to_owned()
}

/// Runs a command; panics unless it succeeds.
fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command to its end.
fn output(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Whether a program is there.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The binary under test without symbols and debug information, which take most of the time of a
/// copy.
fn stripped() -> &'static Path {
    static STRIPPED: OnceLock<PathBuf> = OnceLock::new();
    STRIPPED.get_or_init(|| {
        let built = Path::new(env!("CARGO_BIN_EXE_firn"));
        let stripped = built.with_file_name("firn-stripped");
        // Another run may use the file.
        let fresh = built.with_file_name(format!("firn-stripped.{}", std::process::id()));
        succeed(
            Command::new("objcopy")
                .arg("--strip-all")
                .args([built, &fresh]),
        );
        std::fs::rename(fresh, &stripped).unwrap();
        stripped
    })
}

/// Checks a config with the binary under test.
fn check_config(file: &Path) {
    let mut check = harness::server::firn();
    succeed(check.args(["check", "config"]).arg(file));
}
