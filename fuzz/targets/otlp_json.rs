//! Fuzzes OTLP requests in JSON: the message that is built from it can be decoded and does not
//! exceed the maximum length.

#![cfg_attr(fuzzing, no_main)]

use firn_wire::WireLimits;
use firn_wire::otlp::{
    OtlpDecodeOptions, OtlpDecoder, OtlpDeltaMode, OtlpTranslation, to_protobuf,
};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    const BYTES_MAX: usize = 1 << 16;
    let mut message = Vec::new();
    if to_protobuf(text, BYTES_MAX, &mut message).is_err() {
        return;
    }
    assert!(message.len() <= BYTES_MAX);
    let translation = OtlpTranslation::default();
    let reader = OtlpDecodeOptions {
        translation: &translation,
        keeps_exemplars: true,
        labels_types: false,
        info_step_ns: 150_000_000_000,
    };
    let mut decoder = OtlpDecoder::new(WireLimits::default());
    let _ = decoder.decode_within(&reader, OtlpDeltaMode::Keep, &message, None);
});
