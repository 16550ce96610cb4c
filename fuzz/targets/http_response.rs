//! Fuzzes HTTP/1 responses: a response that arrives byte by byte has the same status and body as
//! one that arrives at once, and its body is part of the input.

#![cfg_attr(fuzzing, no_main)]
// The modules belong to the HTTP client, and the fuzzer uses only a part of them.
#![allow(dead_code)]

#[path = "../../crates/lib/http_client/src/framing.rs"]
mod framing;
#[path = "../../crates/lib/http_client/src/response_head.rs"]
mod response_head;

use bytes::BytesMut;
use framing::{BodyPart, BodyReader};
use response_head::{ResponseHead, find_head_length};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, bytes.len().max(1));
    let slow = read(bytes, 1);
    assert_eq!(whole.clone().ok(), slow.ok());
    if let Ok((_, body)) = whole {
        assert!(body.len() <= bytes.len());
    }
});

/// Reads one response from a connection that delivers `piece_bytes` at a time and then ends.
/// Returns the status and the body.
fn read(bytes: &[u8], piece_bytes: usize) -> Result<(u16, Vec<u8>), String> {
    let mut pieces = bytes.chunks(piece_bytes);
    let (mut received, mut scanned) = (BytesMut::new(), 0);
    let head_bytes = loop {
        if let Some(length) = find_head_length(&received, &mut scanned) {
            break length;
        }
        received.extend_from_slice(pieces.next().ok_or("unexpected EOF")?);
    };
    let head = ResponseHead::parse(&received.split_to(head_bytes))?;
    let mut reader = BodyReader::new(head.framing);
    let mut body = Vec::new();
    loop {
        match (reader.next_part(&mut received)?, pieces.len()) {
            (BodyPart::Data(data), _) => body.extend_from_slice(&data),
            (BodyPart::End, _) => break,
            (BodyPart::Missing, 0) => {
                reader.handle_connection_end()?;
                break;
            }
            (BodyPart::Missing, _) => received.extend(pieces.next().into_iter().flatten()),
        }
    }
    Ok((head.status.as_u16(), body))
}
