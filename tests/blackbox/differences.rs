//! Validates `docs/differences.md`: each of its examples is played against a real server.
//!
//! Every entry of the page has a block of steps with the responses of Firn and of Prometheus.
//! Firn's responses are checked here, and those of Prometheus too if `FIRN_PROMETHEUS` is the path
//! of its binary.

mod page;
mod play;

use page::{Side, Step};
use play::Player;
use std::path::PathBuf;

/// Reads and parses the page.
fn page() -> Vec<page::Entry> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/differences.md");
    page::read(&std::fs::read_to_string(path).unwrap())
}

#[test]
fn differences_say_what_both_systems_do_and_why() {
    let entries = page();
    assert!(entries.len() >= 30, "{} entries", entries.len());
    for entry in &entries {
        let says = |side| entry.blocks.iter().any(|block| block.says(side));
        let title = &entry.title;
        assert!(says(Side::Firn), "{title}: not what Firn says");
        assert!(says(Side::Prometheus), "{title}: not what Prometheus says");
        let reason = entry.text.lines().any(|line| line.starts_with("Why: "));
        assert!(reason, "{title}: no reason");
    }
}

#[test]
fn differences_that_no_example_shows_name_tests_that_there_are() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let blocks = page().into_iter().flat_map(|entry| entry.blocks);
    for (at, step) in blocks.flat_map(|block| block.steps) {
        if let Step::Held(file, test) = step {
            let text = std::fs::read_to_string(format!("{root}/{file}"));
            let text = text.unwrap_or_else(|e| panic!("line {at} of the page: {file}: {e}"));
            let is_there = text.contains(&format!("fn {test}("));
            assert!(is_there, "line {at} of the page: no {test} in {file}");
        }
    }
}

#[test]
fn differences_hold() {
    let firn = (Side::Firn, PathBuf::from(env!("CARGO_BIN_EXE_firn")));
    let named = std::env::var_os("FIRN_PROMETHEUS");
    let prometheus = named.map(|binary| (Side::Prometheus, binary.into()));
    for (side, binary) in [firn].into_iter().chain(prometheus) {
        let mut player = Player::new(side, binary);
        for entry in page() {
            player.play(&entry);
        }
        player.end();
    }
}
