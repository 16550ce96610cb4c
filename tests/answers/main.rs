//! Firn answers as Prometheus 3.14 does: every expression of the sets over `data.txt`.
//!
//! The records are made by `make answers` and never by Firn. The set `plain` is of a system without
//! feature flags, `full` of one with all of PromQL's.

// A panic is how a test fails, and what it prints is shown when it does.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../harness/mod.rs"]
// Each test program uses a part of the harness.
#[allow(dead_code)]
mod harness;

use firn_mirror::answers::data::Data;
use firn_mirror::answers::{self, Recorded};
use harness::server::Server;

fn check(flags: &[&str], file: &[u8], count_min: usize) {
    let dir = tempfile::tempdir().unwrap();
    // Without a config Firn scrapes itself, and the data is years old.
    let config = dir.path().join("prometheus.yml");
    std::fs::write(&config, "scrape_configs: []\n").unwrap();
    let config = format!("--config={}", config.display());
    let mut all_flags = vec![config.as_str()];
    all_flags.extend(flags);
    let server = Server::start(&dir.path().join("data"), &all_flags);
    let base = format!("http://{}", server.address);

    let data = Data::parse(include_str!("data.txt")).unwrap();
    answers::send(&base, &data).unwrap();
    let recorded = Recorded::unpack(file).unwrap();
    assert!(recorded.len() >= count_min, "the record is cut short");
    let failures = answers::check(&base, &recorded).unwrap();

    let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(
        failures.is_empty(),
        "{}\n{} of {} answers differ from the reference",
        lines.join("\n"),
        failures.len(),
        recorded.len()
    );
}

#[test]
fn answers_without_features_equal_those_of_the_reference() {
    check(&[], include_bytes!("plain.jsonl.gz"), 2_500);
}

#[test]
fn answers_with_all_features_equal_those_of_the_reference() {
    let features = "--enable-feature=promql-experimental-functions,promql-extended-range-selectors,\
                    promql-binop-fill-modifiers,promql-delayed-name-removal,use-start-timestamps,\
                    type-and-unit-labels";
    check(&[features], include_bytes!("full.jsonl.gz"), 3_000);
}
