//! Bodies of remote write that are large and many, in a control group of little memory.
//!
//! Every series is new and nearly all label, which is what takes most memory: the body, the
//! message, the labels read, the block for the log, and what the head keeps.

use crate::cage::Cage;
use crate::harness::http::{Answer, Http};
use crate::harness::server::{Server, command, spawn};
use crate::harness::write::{Series, body};
use crate::{LIMIT_PERCENT, PATIENCE, resident_peak};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Senders of large bodies.
const SENDERS: usize = 20;

/// Bytes of the bodies that each of them sends, one after the other.
const BODY_BYTES: [usize; 4] = [30_000_000, 5_000_000, 1_500_000, 300_000];

/// Labels of a series, and bytes of their values.
const LABELS: usize = 9;
const VALUE_BYTES: usize = 14_000;

/// Series of an ordinary push.
const ORDINARY_SERIES: usize = 2_000;

/// A server whose machine has `mib`: a cage around it, or a limit as if there were one.
fn start(folder: &Path, mib: usize) -> (Option<Cage>, Server) {
    let cage = Cage::new(mib << 20);
    let limit = mib * LIMIT_PERCENT / 100;
    let text = match &cage {
        Some(_) => "global: {}\n".to_owned(),
        None => format!("firn: {{memory_limit: {limit}MiB}}\n"),
    };
    let config = folder.join("firn.yml");
    std::fs::write(&config, text).unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let command = command(&folder.join("data"), &flags);
    let command = match &cage {
        Some(cage) => cage.around(&command),
        None => command,
    };
    let server = Server::from_child(spawn(command));
    server.wait_ready();
    (cage, server)
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a clock after 1970").as_millis() as i64
}

/// A body of about `bytes` that compresses to nothing less; another one for each seed.
fn large(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b"abcdefghijklmnopqrstuvwxyzABCDEF"[(state >> 32) as usize % 32]
    };
    let one = |letter: &mut dyn FnMut() -> u8| {
        let mut series = Series::new(&[("__name__", "wide")], &[(now_ms(), 1.0)]);
        for label in 0..LABELS {
            let value = (0..VALUE_BYTES).map(|_| letter()).collect();
            series
                .labels
                .push((format!("label_{label}").into_bytes(), value));
        }
        series
    };
    let count = (bytes / (LABELS * VALUE_BYTES)).max(1);
    let all: Vec<Series> = (0..count).map(|_| one(&mut letter)).collect();
    body(&all)
}

/// New samples of the same series each time.
fn ordinary() -> Vec<u8> {
    let now = now_ms();
    let one = |number: usize| {
        let number = format!("{number:05}");
        let labels = [("__name__", "ordinary"), ("number", number.as_str())];
        Series::new(&labels, &[(now, 1.0)])
    };
    body(&(0..ORDINARY_SERIES).map(one).collect::<Vec<_>>())
}

/// Whether a body of `bytes` may be answered so: taken, over a limit that the answer names, or not
/// now. A server reads on what it refuses for half a second, and the longest may take longer.
fn is_expected(bytes: usize, answer: &Answer) -> bool {
    match answer.status {
        204 | 503 => true,
        400 | 413 => answer.body.contains("limit"),
        0 => bytes == BODY_BYTES[0],
        _ => false,
    }
}

/// Sends ordinary pushes until told to stop; returns how many there were, those that were not
/// taken, and the longest.
fn push_on(http: &Http, stopping: &AtomicBool) -> (usize, Vec<Answer>, Duration) {
    let (mut count, mut refused, mut longest) = (0, Vec::new(), Duration::ZERO);
    while !stopping.load(Ordering::Relaxed) {
        let start = Instant::now();
        let answer = http.write(&ordinary());
        longest = longest.max(start.elapsed());
        count += 1;
        if answer.status != 204 {
            refused.push(answer);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    (count, refused, longest)
}

/// Sends all bodies at one time; returns the answers.
fn send_at_once(http: &Http, bodies: &[Vec<u8>]) -> Vec<Answer> {
    std::thread::scope(|threads| {
        let sending: Vec<_> = bodies
            .iter()
            .map(|body| threads.spawn(move || http.write(body)))
            .collect();
        let answers = sending.into_iter().map(|one| one.join());
        answers
            .map(|answer| answer.expect("a sender does not panic"))
            .collect()
    })
}

fn check(mib: usize) {
    let folder = tempfile::tempdir().unwrap();
    // The server goes before its cage, which cannot be removed with somebody in it.
    let (cage, mut server) = start(folder.path(), mib);
    let http = Http::patient(&server.address, PATIENCE);
    assert_eq!(http.write(&ordinary()).status, 204);
    let stopping = AtomicBool::new(false);
    let mut statuses: BTreeMap<(usize, u16), usize> = BTreeMap::new();
    let mut surprises = Vec::new();
    let (count, refused, longest) = std::thread::scope(|threads| {
        let pushing = threads.spawn(|| push_on(&http, &stopping));
        for bytes in BODY_BYTES {
            let bodies: Vec<Vec<u8>> = (0..SENDERS)
                .map(|sender| large((sender * BODY_BYTES[0] + bytes) as u64, bytes))
                .collect();
            for answer in send_at_once(&http, &bodies) {
                *statuses.entry((bytes, answer.status)).or_default() += 1;
                if !is_expected(bytes, &answer) {
                    surprises.push((bytes, answer));
                }
            }
        }
        stopping.store(true, Ordering::Relaxed);
        pushing.join().expect("the sender does not panic")
    });
    let peak = resident_peak(&server);
    println!(
        "{mib} MiB, caged: {}: {statuses:?}; {count} ordinary pushes, longest {longest:?}; \
         peak {} MiB",
        cage.is_some(),
        peak >> 20
    );
    assert!(server.try_end().is_none(), "large bodies killed it");
    assert!(peak < mib << 20, "{peak} bytes resident of {mib} MiB");
    assert_eq!(surprises, []);
    assert_eq!(refused, []);
    assert!(count > 5, "{count} ordinary pushes");
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    // A body that fits is taken, and what was pushed is there.
    let small = statuses.get(&(BODY_BYTES[3], 204)).copied();
    let partly = statuses.get(&(BODY_BYTES[3], 400)).copied();
    assert!(small.or(partly).is_some(), "{statuses:?}");
    let found = http.query("count(ordinary)", now_ms());
    assert_eq!(found[0]["value"][1], ORDINARY_SERIES.to_string(), "{found}");
}

#[test]
fn large_bodies_in_a_group_of_256_mb_leave_ordinary_pushes_alone() {
    check(256);
}

#[test]
fn large_bodies_in_a_group_of_512_mb_leave_ordinary_pushes_alone() {
    check(512);
}
