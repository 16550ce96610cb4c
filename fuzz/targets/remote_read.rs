//! Any bytes as a request of remote read, as its answer in one message, and as an answer in frames that comes in
//! pieces: what is held of them is reserved, times ascend, and the pieces do not matter.

#![no_main]

use firn_model::budget::Budget;
use firn_model::sample::TimeRange;
use firn_wire::remote_read::{FrameReader, ReadSeries, decode, decode_samples};

const FRAME_BYTES_MAX: u64 = 1 << 16;

const RANGE: TimeRange = TimeRange::new(0, 1 << 40);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Only that it ends.
    let _ = decode(bytes);
    let mut memory = Budget::new("fuzz", 1 << 22).hold();
    if let Ok(series) = decode_samples(bytes, RANGE, &mut memory) {
        check(&series);
    }
    let whole = frames(bytes, bytes.len().max(1));
    let pieces = frames(bytes, 5);
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
});

fn frames(bytes: &[u8], piece: usize) -> Result<Vec<ReadSeries>, String> {
    let mut memory = Budget::new("fuzz", 1 << 22).hold();
    let mut reader = FrameReader::new(RANGE, FRAME_BYTES_MAX);
    for piece in bytes.chunks(piece) {
        reader.push(piece, &mut memory).map_err(|e| e.message)?;
    }
    let series = reader.finish().map_err(|e| e.message)?;
    check(&series);
    Ok(series)
}

fn check(series: &[ReadSeries]) {
    for one in series {
        assert!(one.samples.is_sorted_by(|a, b| a.time < b.time));
        assert!(one.samples.iter().all(|sample| RANGE.contains(sample.time)));
    }
}
