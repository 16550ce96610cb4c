//! Fuzzes OTLP requests in protobuf, with translations that take different paths: the decoded data
//! is bounded, and labels that are decoded later equal those decoded immediately.

#![cfg_attr(fuzzing, no_main)]

use firn_model::batch::BatchSource;
use firn_wire::WireLimits;
use firn_wire::otlp::{
    AttributePromotion, OtlpDecodeOptions, OtlpDecoder, OtlpDeltaMode, OtlpTranslation,
    TranslationStrategy,
};

libfuzzer_sys::fuzz_target!(|message: &[u8]| {
    let limits = WireLimits {
        batch_bytes_max: 1 << 20,
        ..WireLimits::default()
    };
    let plain = OtlpTranslation::default();
    let full = OtlpTranslation {
        strategy: TranslationStrategy::NoUtf8EscapingWithSuffixes,
        promotion: AttributePromotion::AllBut(Default::default()),
        keeps_identifying: true,
        converts_histograms: true,
        promotes_scope: true,
        ..plain.clone()
    };
    let mut decoder = OtlpDecoder::new(limits);
    for translation in [&plain, &full] {
        let reader = OtlpDecodeOptions {
            translation,
            keeps_exemplars: true,
            labels_types: true,
            info_step_ns: 150_000_000_000,
        };
        let mut words = Vec::new();
        for is_reversed in [false, true] {
            let read = decoder.decode_within(&reader, OtlpDeltaMode::Keep, message, None);
            let Ok(decoded) = read else { return };
            let (mut decoded, target_info) = (decoded.points, decoded.target_info);
            target_info.batch.assert_complete();
            let mut order: Vec<u32> = (0..decoded.batch.series_count() as u32).collect();
            if is_reversed {
                order.reverse();
            }
            for series in order {
                // A failure is stored and returned by `finish` below.
                let _ = decoded.read_labels(&[series]);
            }
            decoded.batch.assert_complete();
            words.push(format!("{:?}", decoded.batch.iter().collect::<Vec<_>>()));
            let _ = decoded.finish();
        }
        assert_eq!(words[0], words[1]);
    }
});
