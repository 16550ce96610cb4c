//! Firn's answers equal those of Prometheus 3.14 for every expression of the sets over their data.
//!
//! The answers are recorded by `make answers`, never by Firn. The set `plain` is recorded from a
//! system without feature flags, `full` from one with all feature flags of PromQL, `starts` from
//! one that also stores start timestamps.

// A test fails by a panic, and its output is shown then.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../harness/mod.rs"]
// Each test program uses a part of the harness.
#[allow(dead_code)]
mod harness;

use firn_mirror::answers::data::AnswerTestData;
use firn_mirror::answers::requests::{self, AnsweredRequest};
use firn_mirror::answers::{self, RecordedAnswer};
use harness::server::Server;
use std::path::Path;

/// Without a config Firn scrapes itself, and the data is years old.
const NO_SCRAPES: &str = "scrape_configs: []\n";

fn start(dir: &Path, config: &str, flags: &[&str]) -> Server {
    let file = dir.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let file = format!("--config={}", file.display());
    Server::start(&dir.join("data"), &[&[file.as_str()], flags].concat())
}

fn check(server: &Server, file: &[u8], count_min: usize) {
    let recorded = RecordedAnswer::unpack(file).unwrap();
    assert!(recorded.len() >= count_min, "the record is cut short");
    let base = format!("http://{}", server.address);
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

fn check_written(flags: &[&str], file: &[u8], count_min: usize) {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), NO_SCRAPES, flags);
    let data = AnswerTestData::parse(include_str!("data.txt")).unwrap();
    answers::send(&format!("http://{}", server.address), &data).unwrap();
    check(&server, file, count_min);
}

#[test]
fn answers_without_features_equal_those_of_the_reference() {
    check_written(&[], include_bytes!("plain.jsonl.gz"), 4_000);
}

#[test]
fn answers_with_all_features_equal_those_of_the_reference() {
    let features = "--enable-feature=promql-experimental-functions,promql-extended-range-selectors,\
                    promql-binop-fill-modifiers,promql-delayed-name-removal,use-start-timestamps,\
                    type-and-unit-labels";
    check_written(&[features], include_bytes!("full.jsonl.gz"), 4_000);
}

#[test]
fn requests_are_answered_to_the_letter_as_by_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let flags = [
        "--enable-feature=promql-per-step-stats,search-api,exemplar-storage",
        "--web.enable-admin-api",
    ];
    let server = start(dir.path(), NO_SCRAPES, &flags);
    let base = format!("http://{}", server.address);
    let data = AnswerTestData::parse(include_str!("data.txt")).unwrap();
    answers::send(&base, &data).unwrap();
    let answered = AnsweredRequest::unpack(include_bytes!("requests.jsonl.gz")).unwrap();
    assert!(answered.len() >= 600, "the record is cut short");
    let failures = requests::check(&base, &answered).unwrap();
    assert!(
        failures.is_empty(),
        "{}\n{} of {} answers differ from the reference",
        failures.join("\n"),
        failures.len(),
        answered.len()
    );
}

#[test]
fn requests_to_a_filled_server_are_answered_to_the_letter_as_by_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let rules = include_str!("filled-rules.yml");
    std::fs::write(dir.path().join("filled-rules.yml"), rules).unwrap();
    let server = start(dir.path(), include_str!("filled.yml"), &[]);
    let base = format!("http://{}", server.address);
    requests::wait_filled(&base).unwrap();
    let answered = AnsweredRequest::unpack(include_bytes!("filled.jsonl.gz")).unwrap();
    assert!(answered.len() >= 90, "the record is cut short");
    let failures = requests::check(&base, &answered).unwrap();
    assert!(
        failures.is_empty(),
        "{}\n{} of {} answers differ from the reference",
        failures.join("\n"),
        failures.len(),
        answered.len()
    );
}

#[test]
fn answers_about_start_timestamps_equal_those_of_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let data = AnswerTestData::parse(include_str!("starts-data.txt")).unwrap();
    let target = answers::expose("127.0.0.1:0", &data).unwrap();
    let config = include_str!("starts.yml").replace("127.0.0.1:9917", &target.address);
    let features = "--enable-feature=promql-experimental-functions,promql-extended-range-selectors,\
                    promql-binop-fill-modifiers,promql-delayed-name-removal,use-start-timestamps,\
                    st-storage";
    // Samples about the scrape itself, such as `up`, are years younger than the data.
    let retention = "--storage.tsdb.retention.time=100y";
    let server = start(dir.path(), &config, &[features, retention]);
    answers::wait_scraped(&format!("http://{}", server.address), &data).unwrap();
    check(&server, include_bytes!("starts.jsonl.gz"), 2_000);
}
