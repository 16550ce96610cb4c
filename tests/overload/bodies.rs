//! Many large remote-write bodies.
//!
//! Every series is new and consists mostly of labels, which need the most memory: the body, the
//! message, the parsed labels, the WAL record, and the labels in the head.

use crate::harness::http::{Answer, Http};
use crate::harness::server::wait_for;
use crate::harness::write::{Series, body};
use crate::sender::now_ms;

/// Number of senders of large bodies.
const SENDERS: usize = 20;

/// Sizes of the bodies that each sender sends, one after the other.
const BODY_BYTES: [usize; 4] = [30_000_000, 5_000_000, 1_500_000, 300_000];

/// Labels per series, and bytes of their values.
const LABELS: usize = 9;
const VALUE_BYTES: usize = 14_000;

/// Returns an incompressible body of about `bytes`, which differs for each seed.
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

/// Returns whether an answer to a body of `bytes` is valid: accepted, rejected with a limit in the
/// text, or temporarily rejected. A server reads the rest of a rejected body for half a second,
/// which may be too short for the largest one.
fn is_expected(bytes: usize, answer: &Answer) -> bool {
    match answer.status {
        503 => true,
        0 => bytes == BODY_BYTES[0],
        _ => is_read(answer),
    }
}

/// Returns whether the body was read to its end: its series were accepted, or exceeded a limit.
fn is_read(answer: &Answer) -> bool {
    match answer.status {
        204 => true,
        400 | 413 => answer.body.contains("limit"),
        _ => false,
    }
}

/// Sends all bodies at once and returns the answers.
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

/// Sends bodies of every size, all senders at once, and calls `note` for each answer with its
/// validity.
pub fn send(http: &Http, mut note: impl FnMut(&str, &Answer, bool)) {
    for bytes in BODY_BYTES {
        let bodies: Vec<Vec<u8>> = (0..SENDERS)
            .map(|sender| large((sender * BODY_BYTES[0] + bytes) as u64, bytes))
            .collect();
        for answer in send_at_once(http, &bodies) {
            let what = format!("body of {bytes} bytes");
            note(&what, &answer, is_expected(bytes, &answer));
        }
    }
    let fitting = large(now_ms() as u64, BODY_BYTES[3]);
    wait_for("a body that fits to be read", || {
        is_read(&http.write(&fitting))
    });
}
