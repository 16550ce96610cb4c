//! Any bytes as a remote-write message of both versions: what is read of it once labels are asked for, one series at
//! a time and in any order, is what is read of it at once.

#![no_main]

use firn_model::batch::Source;
use firn_wire::remote_write::{Decoded, Decoder, Reader, Version};
use firn_wire::{WireError, WireLimits, snappy};

/// What was read of a message, in words; `order` asks for the labels.
fn read(
    decoded: Result<Decoded<'_>, WireError>,
    order: impl FnOnce(u32) -> Vec<u32>,
) -> Result<String, String> {
    let mut decoded = decoded.map_err(|e| e.to_string())?;
    for series in order(decoded.batch.series_count() as u32) {
        // A failure is kept, and told below.
        let _ = decoded.read_labels(&[series]);
    }
    let batch = format!("{:?}", decoded.batch.iter().collect::<Vec<_>>());
    let refused = decoded.finish().map_err(|e| e.to_string())?;
    Ok(format!("{batch} {refused:?}"))
}

libfuzzer_sys::fuzz_target!(|message: &[u8]| {
    let limits = WireLimits {
        message_bytes_max: 1 << 16,
        batch_bytes_max: 1 << 18,
        ..WireLimits::default()
    };
    let body = snappy::compress(message);
    let (mut late, mut at_once) = (Decoder::new(limits), Decoder::new(limits));
    let mut decoder = Decoder::new(limits);
    for version in [Version::V1, Version::V2] {
        let reader = Reader {
            version,
            keeps_exemplars: true,
            labels_types: false,
        };
        let late = read(late.decode_within(reader, &body, None), |count| {
            (0..count).rev().collect()
        });
        let at_once = read(at_once.decode(reader, &body), |_| Vec::new());
        match late {
            // Which of several faults is met first is no matter.
            Err(_) => assert!(at_once.is_err(), "{at_once:?}"),
            Ok(_) => assert_eq!(late, at_once),
        }
        // Type and unit as labels go another way.
        let reader = Reader {
            labels_types: true,
            ..reader
        };
        let _ = read(decoder.decode(reader, &body), |_| Vec::new());
    }
});
