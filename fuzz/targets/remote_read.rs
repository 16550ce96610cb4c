//! Fuzzes remote-read requests, responses in one message, and streamed responses in pieces: memory
//! is reserved before it is used, times ascend, and the division into pieces has no influence.

#![cfg_attr(fuzzing, no_main)]

use firn_model::budget::Budget;
use firn_model::sample::TimeRange;
use firn_wire::remote_read::{ChunkFrameReader, RemoteReadSeries, decode, decode_samples};

const FRAME_BYTES_MAX: u64 = 1 << 16;

const RANGE: TimeRange = TimeRange::new(0, 1 << 40);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Checks only that decoding terminates without a panic.
    let _ = decode(bytes);
    let mut memory = Budget::new("fuzz", 1 << 22).create_reservation();
    if let Ok(series) = decode_samples(bytes, RANGE, &mut memory) {
        check(&series);
    }
    let whole = frames(bytes, bytes.len().max(1));
    let pieces = frames(bytes, 5);
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
});

fn frames(bytes: &[u8], piece: usize) -> Result<Vec<RemoteReadSeries>, String> {
    let mut memory = Budget::new("fuzz", 1 << 22).create_reservation();
    let mut reader = ChunkFrameReader::new(RANGE, FRAME_BYTES_MAX);
    for piece in bytes.chunks(piece) {
        reader.push(piece, &mut memory).map_err(|e| e.message)?;
    }
    let series = reader.finish().map_err(|e| e.message)?;
    check(&series);
    Ok(series)
}

fn check(series: &[RemoteReadSeries]) {
    for one in series {
        assert!(one.samples.is_sorted_by(|a, b| a.time < b.time));
        assert!(one.samples.iter().all(|sample| RANGE.contains(sample.time)));
    }
}
