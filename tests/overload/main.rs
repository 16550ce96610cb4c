//! Overload under a memory limit: no process dies, ingestion continues, and each excess has its
//! error.
//!
//! ```text
//! cage (a control group whose limit kills, if it can be created)
//!   server, whose firn.memory_limit is derived from the cage
//!     <- a sender that never stops        every push must be accepted
//!     <- the scenarios, one after the other, then all at once
//! ```
//!
//! The peak of resident memory must be below the limit of the cage, which is the guarantee of the
//! default of `firn.memory_limit` for a machine or a control group. `FIRN_OVERLOAD_SERIES` and
//! `FIRN_OVERLOAD_MIB` set the number of series and the size of the cage.
// A test fails by a panic, and its output is shown then.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bodies;
mod cage;
#[path = "../harness/mod.rs"]
// Each test program uses a part of the harness.
#[allow(dead_code)]
mod harness;
mod scenarios;
mod sender;

use cage::Cage;
use harness::http::Http;
use harness::server::{Server, command, spawn};
use scenarios::{Outcomes, SCENARIOS};
use sender::Sender;
use std::path::Path;
use std::time::{Duration, Instant};

/// The server's limit as a percentage of the cage: the default of `firn.memory_limit`.
const LIMIT_PERCENT: usize = 60;

/// Starts a server on a machine with `mib`: in a cage, or with an equivalent limit.
fn start(folder: &Path, mib: usize) -> (Option<Cage>, Server) {
    let cage = Cage::new(mib << 20);
    let text = match &cage {
        Some(_) => "global: {}\n".to_owned(),
        None => format!("firn: {{memory_limit: {}MiB}}\n", mib * LIMIT_PERCENT / 100),
    };
    let config = folder.join("firn.yml");
    std::fs::write(&config, text).unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--web.max-connections",
        "1024",
    ];
    let command = command(&folder.join("data"), &flags);
    let command = match &cage {
        Some(cage) => cage.around(&command),
        None => command,
    };
    let server = Server::from_child(spawn(command));
    server.wait_ready();
    (cage, server)
}

/// Returns a number from the environment, or `usual`.
fn setting(name: &str, usual: usize) -> usize {
    let text = std::env::var(name).ok();
    text.map_or(usual, |text| text.parse().expect("a number"))
}

fn check(mib: usize, series: usize) {
    let folder = tempfile::tempdir().unwrap();
    // The server is dropped before its cage, which cannot be removed while it contains a process.
    let (cage, mut server) = start(folder.path(), mib);
    println!("{series} series, {mib} MiB, caged: {}", cage.is_some());
    let load = sender::load(&server.http(), series);
    println!("loaded, {} MiB resident", resident_peak(&server) >> 20);
    let sender = Sender::start(&server, load);
    let mut outcomes = Outcomes::default();
    for scenario in SCENARIOS {
        let start = Instant::now();
        outcomes.add(scenario.run(&server, &load));
        println!(
            "{}: {:?}, peak {} MiB",
            scenario.name,
            start.elapsed(),
            resident_peak(&server) >> 20
        );
        assert!(server.try_end().is_none(), "{} killed it", scenario.name);
    }
    let start = Instant::now();
    std::thread::scope(|threads| {
        let run = |scenario: &'static scenarios::Scenario| {
            let (server, load) = (&server, &load);
            threads.spawn(move || scenario.run(server, load))
        };
        let running: Vec<_> = SCENARIOS.iter().map(run).collect();
        running
            .into_iter()
            .for_each(|one| outcomes.add(one.join().expect("a scenario does not panic")));
    });
    let peak = resident_peak(&server);
    println!(
        "all at once: {:?}, peak {} MiB",
        start.elapsed(),
        peak >> 20
    );
    assert!(server.try_end().is_none(), "all at once killed it");
    let pushed = sender.stop();
    println!("{pushed:?}\n{outcomes}");
    assert!(outcomes.surprises.is_empty(), "{outcomes}");
    outcomes.require_all_errors();
    assert_eq!(pushed.refused, Vec::<String>::new());
    assert!(pushed.new_series > 5, "no series were created: {pushed:?}");
    let longest = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });
    assert!(pushed.longest < longest, "ingestion waited: {pushed:?}");
    assert!(peak < mib << 20, "{peak} bytes resident of {mib} MiB");
    check_alive(&server.http(), &load);
}

#[test]
fn server_under_overload_in_a_group_of_256_mb_lives_ingests_and_says_what_was_too_much() {
    check(256, 10_000);
}

#[test]
fn server_under_overload_in_a_group_of_512_mb_lives_ingests_and_says_what_was_too_much() {
    let (mib, series) = ("FIRN_OVERLOAD_MIB", "FIRN_OVERLOAD_SERIES");
    check(setting(mib, 512), setting(series, 20_000));
}

/// Checks that the server still answers, and has released the memory of queries.
fn check_alive(http: &Http, load: &sender::Load) {
    let count = http.query("count({__name__=~\"load_.*\"})", load.newest_ms);
    assert_eq!(count[0]["value"][1], load.series.to_string(), "{count}");
    harness::server::wait_for("no query to run", || {
        let metrics = http.get("/metrics").body;
        metrics.contains("\nfirn_server_queries_running 0\n")
            && metrics.contains("\nfirn_server_queries_waiting 0\n")
    });
}

/// Returns the peak of resident memory without pages of the program file: the kernel reclaims those
/// when needed, and a debug build has about 60 MiB of them.
fn resident_peak(server: &Server) -> usize {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<usize>().unwrap() << 10
    };
    bytes("VmHWM:").saturating_sub(bytes("RssFile:"))
}

/// Maximum wait for an answer, because everything is slow under full load.
const PATIENCE: Duration = Duration::from_secs(120);
