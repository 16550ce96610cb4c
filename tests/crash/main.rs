//! The crash test: what was acknowledged is there after `kill -9`, once and with its value.
//!
//! ```text
//! round: start -> check -> writers push and keep what was acked -> SIGKILL at a random moment
//! ```
//!
//! Some rounds kill the server while it starts, or while it stops cleanly, or let it stop. A
//! request without an answer may be stored or not, but what is stored of it is unaltered. A second
//! test cuts the log behind the server's back and expects the same checker to notice.
//!
//! `FIRN_CRASH_ROUNDS` sets the rounds (40), `FIRN_SEED` repeats a run's choices; the moments of
//! the kills and the interleaving of the writers are the machine's.
// A panic is how a test fails, and what it prints is shown when it does.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../harness/mod.rs"]
mod harness;
mod journal;
mod writer;

use harness::server::Server;
use journal::Journal;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use writer::{Choices, WRITERS, write_until_dead};

/// Rounds without `FIRN_CRASH_ROUNDS`: about a minute.
const ROUNDS: u64 = 40;

/// Every so many rounds all that was ever acked is checked, not only the last round's.
const FULL_CHECK_ROUNDS: u64 = 10;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

/// Half an hour ago, in milliseconds: old enough that the samples of all rounds lie before now.
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
    let mut journals = Journal::for_writers(WRITERS, first_time());
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
        journals = write_until_dead(server, journals, life, round);
    }
    let server = Server::start(data.path(), &[]);
    check(&server, &mut journals, true, rounds);
    let acked: usize = journals.iter().map(Journal::acked_count).sum();
    println!("{acked} samples acked and found");
    assert!(acked as u64 > rounds * 100, "the writers hardly wrote");
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
    let journals = Journal::for_writers(1, first_time());
    let server = Server::start(data.path(), &[]);
    let life = Duration::from_millis(300);
    let mut journals = write_until_dead(server, journals, life, 0);
    assert!(journals[0].acked_count() > 0);
    cut_newest_segment(data.path());
    let server = Server::start(data.path(), &[]);
    let findings = journals[0].check(&server.http(), true);
    assert!(
        findings.iter().any(|f| f.starts_with("lost ")),
        "half the log is gone and the checker found {findings:?}"
    );
}

/// Cuts the newest file of the log in half.
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
