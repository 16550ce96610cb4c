//! Fuzzes remote-write messages of both versions: labels that are decoded later, one series at a
//! time and in any order, equal those decoded immediately. A message that is extended by labels in
//! its encoded form contains the same series with these labels.

#![cfg_attr(fuzzing, no_main)]

use firn_model::batch::BatchSource;
use firn_model::labels::Labels;
use firn_wire::remote_write::{
    DecodedWriteRequest, ExtraLabels, RemoteWriteDecoder, RemoteWriteOptions, RemoteWriteVersion,
};
use firn_wire::{WireError, WireLimits, snappy};

/// Decodes a message and formats it as text; `order` returns the order in which labels are decoded.
fn read(
    decoded: Result<DecodedWriteRequest<'_>, WireError>,
    order: impl FnOnce(u32) -> Vec<u32>,
) -> Result<String, String> {
    let mut decoded = decoded.map_err(|e| e.to_string())?;
    for series in order(decoded.batch.series_count() as u32) {
        // A failure is stored and returned by `finish` below.
        let _ = decoded.read_labels(&[series]);
    }
    let batch = format!("{:?}", decoded.batch.iter().collect::<Vec<_>>());
    let refused = decoded.finish().map_err(|e| e.to_string())?;
    Ok(format!("{batch} {refused:?}"))
}

/// Checks that a label can be added to the encoded form of a message of version 1.0.
fn extend(message: &[u8], body: &[u8], limits: WireLimits) {
    let extra = Labels::from_pairs([("m", "x")]);
    let Some(extended) = ExtraLabels::new(extra.as_ref()).extend(message) else {
        return;
    };
    assert!(
        extended.len() <= 3 * message.len(),
        "more memory than the message allows"
    );
    let (mut before, mut after) = (
        RemoteWriteDecoder::new(limits),
        RemoteWriteDecoder::new(limits),
    );
    let extended = snappy::compress(&extended);
    let reader = RemoteWriteOptions::default();
    let (Ok(before), Ok(after)) = (before.decode(reader, body), after.decode(reader, &extended))
    else {
        return;
    };
    assert_eq!(before.batch.series_count(), after.batch.series_count());
    for (before, after) in before.batch.iter().zip(after.batch.iter()) {
        let kept = before.labels.get("m");
        let want = if kept.is_empty() { b"x" } else { kept };
        assert_eq!(after.labels.get("m"), want);
        assert_eq!(after.times, before.times);
    }
}

libfuzzer_sys::fuzz_target!(|message: &[u8]| {
    let limits = WireLimits {
        message_bytes_max: 1 << 16,
        batch_bytes_max: 1 << 18,
        ..WireLimits::default()
    };
    let body = snappy::compress(message);
    extend(message, &body, limits);
    let (mut late, mut at_once) = (
        RemoteWriteDecoder::new(limits),
        RemoteWriteDecoder::new(limits),
    );
    let mut decoder = RemoteWriteDecoder::new(limits);
    for version in [RemoteWriteVersion::V1, RemoteWriteVersion::V2] {
        let reader = RemoteWriteOptions {
            version,
            keeps_exemplars: true,
            labels_types: false,
        };
        let late = read(late.decode_within(reader, &body, None), |count| {
            (0..count).rev().collect()
        });
        let at_once = read(at_once.decode(reader, &body), |_| Vec::new());
        match late {
            // With several faults, it does not matter which one is found first.
            Err(_) => assert!(at_once.is_err(), "{at_once:?}"),
            Ok(_) => assert_eq!(late, at_once),
        }
        // Type and unit labels are decoded in another way.
        let reader = RemoteWriteOptions {
            labels_types: true,
            ..reader
        };
        let _ = read(decoder.decode(reader, &body), |_| Vec::new());
    }
});
