//! The crash test: after `kill -9`, every acknowledged sample is stored once and with its value.
//!
//! ```text
//! round: start -> check -> writers push and record acknowledged samples -> SIGKILL at random
//! ```
//!
//! Some rounds kill the server while it starts or stops cleanly, or let it stop. Samples of a
//! request without an answer may be stored or not, but must be unaltered. A second test lets hours
//! of data time pass, with late samples, so that blocks are cut, flushed and merged meanwhile. A
//! third one truncates the WAL of a stopped server and expects that the checker reports the loss.
//! A fourth one fails the nodes of a cluster, a fifth one also its S3 server. Two
//! more move the clock of a node, and cut links between nodes.
//!
//! `FIRN_CRASH_ROUNDS` sets the rounds (40, 30, and 5 or 3 of a cluster), `FIRN_SEED` repeats the
//! choices of a run, `FIRN_CRASH_BUCKET=s3` keeps the bucket of the fourth test in an S3 server.
//! The moments of the kills and the interleaving of the writers depend on the machine.
// A test fails by a panic, and its output is shown then.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bucket_plan;
mod clock_steps;
mod cluster;
#[path = "../harness/mod.rs"]
// Each test program uses a part of the harness.
#[allow(dead_code)]
mod harness;
mod journal;
mod one_way_links;
mod shifted_clock;
mod test_network;
mod writer;

use harness::choices::Choices;
use harness::server::{Server, firn};
use journal::{DataClock, Journal};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use writer::{Load, WRITERS, write_until_dead};

/// Default number of rounds: about a minute.
const ROUNDS: u64 = 40;

/// Default number of rounds across cuts of blocks: about a minute.
const CUT_ROUNDS: u64 = 30;

/// Milliseconds between two requests: 300 rounds of a few thousand requests are within the hour
/// that the head accepts.
const STEP_MS: i64 = 3;

/// Milliseconds between two requests if hours must pass: 1,000 requests are four hours.
const LONG_STEP_MS: i64 = 15_000;

/// Number of rounds between full checks of all acknowledged samples. Other checks cover only the
/// last round.
const FULL_CHECK_ROUNDS: u64 = 10;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

/// Returns the time half an hour ago, in milliseconds: early enough that the samples of all rounds
/// are in the past.
fn first_time() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    now.as_millis() as i64 - 30 * 60_000
}

#[test]
fn server_killed_at_any_moment_keeps_every_acked_sample() {
    let rounds = setting("FIRN_CRASH_ROUNDS").unwrap_or(ROUNDS);
    let seed = setting("FIRN_SEED").unwrap_or(first_time() as u64);
    println!("FIRN_SEED={seed} FIRN_CRASH_ROUNDS={rounds}");
    let mut choices = Choices::new(seed);
    let data = tempfile::tempdir().unwrap();
    let clock = DataClock::new(first_time(), STEP_MS);
    let mut journals = Journal::for_writers(WRITERS, &clock);
    for round in 0..rounds {
        match choices.below(10) {
            0 => kill_while_starting(data.path(), &mut choices),
            1 => kill_while_stopping(data.path(), &mut choices),
            2 => assert!(
                Server::start(data.path(), &[]).stop().success(),
                "a clean stop"
            ),
            _ => {}
        }
        let server = Server::start(data.path(), &[]);
        let is_full = round % FULL_CHECK_ROUNDS == 0;
        check(&server, &mut journals, is_full, round);
        let life = Duration::from_millis(20 + choices.below(400));
        let load = Load {
            round,
            late_ms: None,
        };
        journals = write_until_dead(server, journals, life, load);
    }
    let server = Server::start(data.path(), &[]);
    check(&server, &mut journals, true, rounds);
    let acked: usize = journals.iter().map(Journal::acked_count).sum();
    println!("{acked} samples acked and found");
    assert!(acked as u64 > rounds * 100, "the writers hardly wrote");
}

#[test]
fn server_killed_at_any_moment_keeps_every_acked_sample_across_cuts_flushes_and_merges() {
    let rounds = setting("FIRN_CRASH_ROUNDS").unwrap_or(CUT_ROUNDS);
    let seed = setting("FIRN_SEED").unwrap_or(first_time() as u64);
    println!("FIRN_SEED={seed} FIRN_CRASH_ROUNDS={rounds}");
    let mut choices = Choices::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Samples that the server scrapes from itself would be far ahead of the writers.
    let config = folder.path().join("nothing.yml");
    std::fs::write(&config, "global: {}\n").unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--storage.tsdb.retention.time",
        "1y",
    ];
    let first = first_time() - 60 * 24 * 3_600_000;
    let clock = DataClock::new(first, LONG_STEP_MS);
    let mut journals = Journal::for_writers(WRITERS, &clock);
    let mut seen = Blocks::default();
    for round in 0..rounds {
        if choices.below(8) == 0 {
            assert!(
                Server::start(&data, &flags).stop().success(),
                "a clean stop"
            );
        }
        let server = Server::start(&data, &flags);
        seen.look(&data);
        check(
            &server,
            &mut journals,
            round % FULL_CHECK_ROUNDS == 0,
            round,
        );
        let life = Duration::from_millis(50 + choices.below(1_500));
        let load = Load {
            round,
            late_ms: Some(20 * 60_000),
        };
        journals = write_until_dead(server, journals, life, load);
    }
    let server = Server::start(&data, &flags);
    check(&server, &mut journals, true, rounds);
    seen.look(&data);
    let acked: usize = journals.iter().map(Journal::acked_count).sum();
    let hours = (clock.now() - first) / 3_600_000;
    println!("{acked} samples acked and found over {hours} hours of data time, {seen:?}");
    assert!(acked as u64 > rounds * 100, "the writers hardly wrote");
    assert!(hours >= 12, "only {hours} hours passed");
    assert!(
        seen.main > 0 && seen.late > 0 && seen.merged > 0,
        "{seen:?}"
    );
}

/// Maximum number of blocks of each kind, to verify that some existed.
#[derive(Debug, Default)]
struct Blocks {
    main: usize,
    late: usize,
    merged: usize,
}

impl Blocks {
    fn look(&mut self, data: &Path) {
        let listed = firn().args(["tsdb", "list"]).arg(data).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let count = |kind: &str, level: &str| {
            let is_it = |line: &&str| {
                let mut words = line.split_whitespace().rev();
                let (of_level, of_kind) = (words.next(), words.next());
                of_kind == Some(kind) && (level.is_empty() || of_level != Some(level))
            };
            listed.lines().filter(is_it).count()
        };
        self.main = self.main.max(count("main", ""));
        self.late = self.late.max(count("late", ""));
        self.merged = self.merged.max(count("main", "1"));
    }
}

fn kill_while_starting(data: &Path, choices: &mut Choices) {
    let server = Server::start_unready(data, &[]);
    std::thread::sleep(Duration::from_millis(choices.below(50)));
    server.kill();
}

fn kill_while_stopping(data: &Path, choices: &mut Choices) {
    let server = Server::start(data, &[]);
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(choices.below(50)));
    server.kill();
}

fn check(server: &Server, journals: &mut [Journal], is_full: bool, round: u64) {
    for journal in journals {
        let findings = journal.check(&server.http(), is_full);
        assert!(
            findings.is_empty(),
            "before round {round}:\n{}",
            findings.join("\n")
        );
        journal.start_round();
    }
}

#[test]
fn log_cut_behind_the_servers_back_is_noticed_by_the_checker() {
    let data = tempfile::tempdir().unwrap();
    let journals = Journal::for_writers(1, &DataClock::new(first_time(), STEP_MS));
    let server = Server::start(data.path(), &[]);
    let life = Duration::from_millis(300);
    let load = Load {
        round: 0,
        late_ms: None,
    };
    let mut journals = write_until_dead(server, journals, life, load);
    assert!(journals[0].acked_count() > 0);
    cut_newest_segment(data.path());
    let server = Server::start(data.path(), &[]);
    let findings = journals[0].check(&server.http(), true);
    assert!(
        findings.iter().any(|f| f.starts_with("lost ")),
        "half the log is gone and the checker found {findings:?}"
    );
}

/// Truncates the newest WAL segment to half of its size.
fn cut_newest_segment(data: &Path) {
    let mut segments: Vec<_> = std::fs::read_dir(data.join("wal"))
        .expect("the log has a folder")
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    segments.sort();
    let newest = segments.last().expect("a segment");
    let file = std::fs::File::options().write(true).open(newest).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes / 2).unwrap();
}
