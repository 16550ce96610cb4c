//! Tests the accumulation of delta streams.

use super::*;
use firn_model::env::sim;
use firn_wire::otlp::{
    ExponentialBuckets, OtlpDecodeOptions, OtlpDecoder, OtlpDeltaMode as Mode, OtlpTranslation,
    to_protobuf,
};

/// Returns a request with a delta sum of the service `service`, with points (start, time, value).
fn sums(service: &str, points: &[(u64, u64, i64)]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|(start, time, value)| {
            format!(
                r#"{{"startTimeUnixNano":"{start}","timeUnixNano":"{time}","asInt":"{value}"}}"#
            )
        })
        .collect();
    format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"x","value":{{"stringValue":
        "{service}"}}}}]}},"scopeMetrics":[{{"metrics":[{{"name":"m","sum":{{
        "aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{}]}}}}]}}]}}]}}"#,
        points.join(",")
    )
}

/// Decodes a request and compares the accumulated values and the reasons of rejections.
fn check(deltas: &DeltaStreams, json: &str, want: &[f64], refused: &[WriteRejectionReason]) {
    let translation = OtlpTranslation::default();
    let reader = OtlpDecodeOptions {
        translation: &translation,
        keeps_exemplars: false,
        labels_types: false,
        info_step_ns: 1,
    };
    let mut message = Vec::new();
    to_protobuf(json.as_bytes(), 1 << 20, &mut message).unwrap();
    let mut decoder = OtlpDecoder::default();
    let tenant = TenantId::anonymous();
    let mut adding = deltas.accumulator_for(&tenant);
    let mode = Mode::Accumulate(&mut adding);
    let decoded = decoder
        .decode_within(&reader, mode, &message, None)
        .unwrap()
        .points;
    let got: Vec<f64> = (0..decoded.batch.series_count())
        .flat_map(|i| decoded.batch.series(i).values.to_vec())
        .collect();
    assert_eq!(got, want, "{json}");
    let reasons: Vec<WriteRejectionReason> = decoded.refused.iter().map(|r| r.refusal).collect();
    assert_eq!(reasons, refused, "{json}");
}

#[test]
fn deltas_add_up_by_stream_and_a_repeated_one_is_not_added_again() {
    let sim = sim::sim_env(1);
    let deltas = DeltaStreams::new(sim.env.clock.clone(), 1 << 20);
    check(&deltas, &sums("a", &[(1, 10, 5)]), &[5.0], &[]);
    check(
        &deltas,
        &sums("a", &[(10, 20, 2), (20, 30, 1)]),
        &[7.0, 8.0],
        &[],
    );
    // Another resource is another stream.
    check(&deltas, &sums("b", &[(1, 10, 3)]), &[3.0], &[]);
    // The response was lost, and the sender retries.
    check(&deltas, &sums("a", &[(20, 30, 1)]), &[8.0], &[]);
    let late = [WriteRejectionReason::DeltaOutOfOrder];
    check(&deltas, &sums("a", &[(20, 30, 2)]), &[], &late);
    check(
        &deltas,
        &sums("a", &[(20, 25, 2), (30, 40, 1)]),
        &[9.0],
        &late,
    );
    check(
        &deltas,
        &sums("a", &[(0, 50, 2)]),
        &[],
        &[WriteRejectionReason::DeltaOlderStart],
    );
}

#[test]
fn silent_stream_begins_anew_and_one_without_room_is_refused() {
    let sim = sim::sim_env(1);
    let deltas = DeltaStreams::new(sim.env.clock.clone(), 2 * STREAM_BYTES);
    check(&deltas, &sums("a", &[(1, 10, 5)]), &[5.0], &[]);
    check(&deltas, &sums("b", &[(1, 10, 5)]), &[5.0], &[]);
    check(
        &deltas,
        &sums("c", &[(1, 10, 5)]),
        &[],
        &[WriteRejectionReason::DeltaLimit],
    );
    assert_eq!(deltas.memory_bytes(), 2 * STREAM_BYTES);
    sim.clock.advance_ms(4 * 60_000);
    check(&deltas, &sums("b", &[(10, 20, 5)]), &[10.0], &[]);
    sim.clock.advance_ms(2 * 60_000);
    check(&deltas, &sums("c", &[(1, 10, 5)]), &[5.0], &[]);
    check(&deltas, &sums("b", &[(20, 30, 5)]), &[15.0], &[]);
    sim.clock.advance_ms(6 * 60_000);
    check(&deltas, &sums("a", &[(20, 30, 5)]), &[5.0], &[]);
    assert_eq!(deltas.memory_bytes(), STREAM_BYTES);
}

fn exponential(scale: i32, offset: i32, counts: &[u64]) -> ExponentialHistogramPoint {
    ExponentialHistogramPoint {
        count: counts.iter().sum(),
        sum: Some(1.0),
        scale,
        positive: ExponentialBuckets {
            offset,
            counts: counts.to_vec(),
        },
        ..ExponentialHistogramPoint::default()
    }
}

#[test]
fn exponential_deltas_add_up_in_the_coarser_resolution() {
    for (total, new, scale, offset, counts) in [
        (
            exponential(2, 0, &[1, 2]),
            exponential(2, 1, &[5, 1]),
            2,
            0,
            vec![1, 7, 1],
        ),
        (
            exponential(3, -3, &[1, 1, 1, 1]),
            exponential(2, 0, &[4]),
            2,
            -2,
            vec![1, 2, 5],
        ),
        (
            exponential(0, 0, &[0, 0]),
            exponential(0, 7, &[0, 3, 0]),
            0,
            8,
            vec![3],
        ),
        // The buckets are 300 apart: one scale coarser leaves 151 buckets.
        (exponential(5, 0, &[1]), exponential(5, 300, &[1]), 4, 0, {
            let mut counts = vec![0; 151];
            counts[0] = 1;
            counts[150] = 1;
            counts
        }),
    ] {
        let mut sum = total.clone();
        super::exponential::add_histogram(&mut sum, new.clone());
        let got = (sum.scale, sum.positive.offset, sum.positive.counts);
        assert_eq!(got, (scale, offset, counts), "{total:?} and {new:?}");
        assert_eq!((sum.count, sum.sum), (total.count + new.count, Some(2.0)));
    }
}

#[test]
fn exponential_delta_of_a_wider_zero_moves_buckets_into_it() {
    let mut total = exponential(0, -1, &[1, 2, 3]);
    let mut new = exponential(0, 1, &[4]);
    new.zero_threshold = 2.0;
    super::exponential::add_histogram(&mut total, new);
    // (0.5, 1] and (1, 2] are now in the zero bucket.
    assert_eq!(total.zero_count, 3);
    assert_eq!(
        (total.positive.offset, &*total.positive.counts),
        (1, &[7][..])
    );
    assert!((total.zero_threshold - 2.0).abs() < 1e-12);
}

#[test]
fn exponential_deltas_of_any_numbers_take_few_buckets() {
    for (a, b) in [
        (i32::MIN, i32::MAX),
        (0, i32::MAX - 1),
        (-5_000_000, 5_000_000),
    ] {
        let mut total = exponential(i32::MAX, a, &[1]);
        super::exponential::add_histogram(&mut total, exponential(i32::MIN + 64, b, &[1]));
        super::exponential::add_histogram(&mut total, exponential(20, b, &[1]));
        assert!(
            total.positive.counts.len() < 200,
            "{}",
            total.positive.counts.len()
        );
    }
}
