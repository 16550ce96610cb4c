//! Payloads of the log as the store makes them of the fleet: `docs/format/log-record.md`.
//!
//! It knows as much of the codes as plain batches need: no new series, runs only of slots and
//! times.

use super::fleet::{BATCH, Request, fleet};

const PODS: usize = 256;
const ROUNDS: usize = 20;

/// The payloads of all rounds, and how many rows they have.
pub fn payloads() -> (Vec<Vec<u8>>, usize) {
    let fleet = fleet(PODS);
    let mut payloads = Vec::new();
    for round in 0..ROUNDS {
        for (number, members) in fleet.chunks(BATCH).enumerate() {
            let mut request = Request::default();
            request.fill(members, number * BATCH, round);
            let rows = (0..members.len()).filter_map(|i| request.batch.sole_float(i));
            payloads.push(payload(number * BATCH, rows.collect()));
        }
    }
    (payloads, fleet.len() * ROUNDS)
}

fn payload(first_slot: usize, rows: Vec<(i64, f64)>) -> Vec<u8> {
    let (mut slots, mut times, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let (mut slot_state, mut time_state) = (Steps::default(), Steps::default());
    let mut before = (0u8, 0i64, 0u64);
    for (i, (time, value)) in rows.iter().enumerate() {
        push_time(&mut slots, &mut slot_state, (first_slot + i) as i64);
        push_time(&mut times, &mut time_state, *time);
        push_value(&mut values, &mut before, *value);
    }
    let mut out = vec![1, 0, 0];
    push_uvarint(&mut out, rows.len());
    for column in [slots, times, values] {
        push_uvarint(&mut out, column.len());
        out.extend(column);
    }
    out.extend([0, 0]);
    out
}

/// The number before, its distance to the one before that, and repeats of that so far.
#[derive(Default)]
struct Steps {
    number: i64,
    delta: i64,
    repeats: u8,
}

fn push_time(out: &mut Vec<u8>, state: &mut Steps, number: i64) {
    let delta = number - state.number;
    let change = zigzag(delta - state.delta);
    (state.number, state.delta) = (number, delta);
    match (change, out.last_mut()) {
        (0, Some(run)) if (1..32).contains(&state.repeats) => {
            *run += 1;
            state.repeats += 1;
        }
        (0, _) => {
            out.push(0xc0);
            state.repeats = 1;
        }
        _ => {
            push_long(out, 0xf0, change);
            state.repeats = 0;
        }
    }
}

/// `before` is scale, integer and bits of the value before.
fn push_value(out: &mut Vec<u8>, before: &mut (u8, i64, u64), value: f64) {
    let scaled = [(0, value), (3, value * 1_000.0)];
    let exact = |(_, v): &(u8, f64)| v.round() == *v && v.abs() < 1e15;
    if let Some((scale, int)) = scaled.into_iter().find(exact) {
        if scale != before.0 {
            out.extend([0xf0, scale]);
            (before.0, before.1) = (scale, 0);
        }
        push_long(out, 0xe0, zigzag(int as i64 - before.1));
        before.1 = int as i64;
    } else {
        push_long(out, 0xe8, value.to_bits() ^ before.2);
    }
    before.2 = value.to_bits();
}

/// A code with a number of one to eight bytes.
fn push_long(out: &mut Vec<u8>, code: u8, number: u64) {
    let bytes = (8 - (number | 1).leading_zeros() as usize / 8).max(1);
    out.push(code + bytes as u8 - 1);
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

fn push_uvarint(out: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
