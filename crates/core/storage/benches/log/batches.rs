//! The WAL batches that the store creates for the fleet, without new series.

use super::fleet::{BATCH, Request, fleet};
use firn_model::log::{DecimalHint, FloatRow, LogBatch};

const PODS: usize = 256;
const ROUNDS: usize = 20;

/// Returns the batches of all rounds and their number of rows.
pub fn batches() -> (Vec<LogBatch>, usize) {
    let fleet = fleet(PODS);
    let mut batches = Vec::new();
    for round in 0..ROUNDS {
        for (number, members) in fleet.chunks(BATCH).enumerate() {
            let mut request = Request::default();
            request.fill(members, number * BATCH, round);
            let mut batch = LogBatch::default();
            for i in 0..members.len() {
                if let Some((time, value)) = request.batch.single_float(i) {
                    let row = FloatRow {
                        slot: (number * BATCH + i) as u64,
                        time,
                        start: 0,
                        value,
                    };
                    batch.floats.push(row, hint(value));
                }
            }
            batches.push(batch);
        }
    }
    (batches, fleet.len() * ROUNDS)
}

/// Returns the hint for whole numbers, for thousandths or for other values.
fn hint(value: f64) -> DecimalHint {
    let is_whole = |v: f64| v.round() == v && v.abs() < 1e15;
    match (is_whole(value), is_whole(value * 1_000.0)) {
        (true, _) => DecimalHint(0),
        (_, true) => DecimalHint(3),
        _ => DecimalHint::NONE,
    }
}
