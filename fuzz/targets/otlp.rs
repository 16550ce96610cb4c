//! Fuzzes OTLP requests in protobuf, with translations that take different paths: the decoded data
//! is bounded, and labels that are decoded later equal those decoded immediately.

#![no_main]

use firn_model::batch::Source;
use firn_wire::WireLimits;
use firn_wire::otlp::{Decoder, Deltas, Promotion, Reader, Strategy, Translation};

libfuzzer_sys::fuzz_target!(|message: &[u8]| {
    let limits = WireLimits {
        batch_bytes_max: 1 << 20,
        ..WireLimits::default()
    };
    let plain = Translation::default();
    let full = Translation {
        strategy: Strategy::NoUtf8EscapingWithSuffixes,
        promotion: Promotion::AllBut(Default::default()),
        keeps_identifying: true,
        converts_histograms: true,
        promotes_scope: true,
        ..plain.clone()
    };
    let mut decoder = Decoder::new(limits);
    for translation in [&plain, &full] {
        let reader = Reader {
            translation,
            keeps_exemplars: true,
            labels_types: true,
            info_step_ns: 150_000_000_000,
        };
        let mut words = Vec::new();
        for is_reversed in [false, true] {
            let read = decoder.decode_within((&reader, Deltas::Keep), message, None);
            let Ok(decoded) = read else { return };
            let (mut decoded, target_info) = (decoded.points, decoded.target_info);
            target_info.batch.assert_whole();
            let mut order: Vec<u32> = (0..decoded.batch.series_count() as u32).collect();
            if is_reversed {
                order.reverse();
            }
            for series in order {
                // A failure is stored and returned by `finish` below.
                let _ = decoded.read_labels(&[series]);
            }
            decoded.batch.assert_whole();
            words.push(format!("{:?}", decoded.batch.iter().collect::<Vec<_>>()));
            let _ = decoded.finish();
        }
        assert_eq!(words[0], words[1]);
    }
});
