//! Fuzzes a segment of the body log: decoded frames are complete and inside the input, peeking
//! returns the same values as decoding, and an encoded frame can be decoded again.

#![cfg_attr(fuzzing, no_main)]
// The module belongs to the queue of remote write, and the fuzzer uses only a part of it.
#![allow(dead_code)]

#[path = "../../crates/edge/remote_write/src/queue/bodies/format.rs"]
mod format;

use bytes::Bytes;
use format::{BodyLogFrame, peek, peek_contents, push_frame, read_frame};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    let _ = peek_contents(&bytes);
    let mut at = 0;
    while let BodyLogFrame::Whole(time_ms, write, frame_bytes) = read_frame(&bytes, at) {
        let rest = &bytes[at..];
        assert_eq!(peek(rest), Some((frame_bytes, time_ms)));
        assert!(write.body.len() < frame_bytes && frame_bytes <= rest.len());
        let mut again = Vec::new();
        let length = push_frame(&mut again, time_ms, &write);
        let read = read_frame(&again.into(), 0);
        assert_eq!(read, BodyLogFrame::Whole(time_ms, write, length));
        at += frame_bytes;
    }
});
