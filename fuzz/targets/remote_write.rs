//! Any bytes as a remote-write message: reading them with guesses, which are checked, gives what
//! reading them carefully gives.

#![no_main]

use firn_model::batch::Source;
use firn_wire::remote_write::{Decoded, Decoder};
use firn_wire::{WireError, WireLimits, snappy};

/// What was read of a message, in words.
fn read(decoded: Result<Decoded<'_>, WireError>) -> Option<Result<String, String>> {
    let mut decoded = match decoded {
        Ok(decoded) => decoded,
        Err(e) => return Some(Err(e.to_string())),
    };
    let all: Vec<u32> = (0..decoded.batch.series_count() as u32).collect();
    // A failure is kept, and told below.
    let _ = decoded.read_labels(&all);
    if decoded.is_misread() {
        return None;
    }
    let batch = format!("{:?}", decoded.batch.iter().collect::<Vec<_>>());
    let refused = decoded.finish();
    Some(
        refused
            .map(|r| format!("{batch} {r:?}"))
            .map_err(|e| e.to_string()),
    )
}

libfuzzer_sys::fuzz_target!(|message: &[u8]| {
    let limits = WireLimits {
        message_bytes_max: 1 << 16,
        batch_bytes_max: 1 << 18,
        ..WireLimits::default()
    };
    let body = snappy::compress(message);
    let (mut guessing, mut careful) = (Decoder::new(limits), Decoder::new(limits));
    for decoder in [&mut guessing, &mut careful] {
        decoder.keep_exemplars(true);
    }
    let guessed = read(guessing.decode_within(&body, None));
    let again = read(careful.decode_again(&body, None));
    let again = again.expect("a careful reading has no guesses");
    match guessed {
        // Which of several faults is met first is no matter.
        Some(Err(_)) => assert!(again.is_err(), "{again:?}"),
        Some(guessed) => assert_eq!(guessed, again),
        None => {}
    }
});
