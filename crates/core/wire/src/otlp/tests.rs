//! Tests whole requests: JSON as input; series, metadata and rejections as output.

use super::*;
use crate::remote_write::WriteRejectionReason;
use firn_model::exemplar::TimedExemplar;
use firn_model::histogram::{Histogram, HistogramCounts};
use firn_model::sample::is_stale;
use std::collections::BTreeSet;

/// The time 2023-11-14T22:13:20Z in nanoseconds.
const TIME: u64 = 1_700_000_000_000_000_000;

fn reader(translation: &OtlpTranslation) -> OtlpDecodeOptions<'_> {
    OtlpDecodeOptions {
        translation,
        keeps_exemplars: true,
        labels_types: false,
        info_step_ns: 150_000_000_000,
    }
}

/// Returns a request with `metrics`, of a resource with `attributes`.
fn request(attributes: &str, metrics: &str) -> String {
    format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{attributes}]}},
        "scopeMetrics":[{{"scope":{{"name":"lib","version":"1.2","attributes":[{}]}},
        "schemaUrl":"https://x/1","metrics":[{metrics}]}}]}}]}}"#,
        pair("a.b", "c"),
    )
}

fn pair(key: &str, value: &str) -> String {
    format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#)
}

fn service() -> String {
    format!(
        "{},{},{}",
        pair("service.name", "shop"),
        pair("service.namespace", "eu"),
        pair("service.instance.id", "i-1")
    )
}

fn message(json: &str) -> Vec<u8> {
    let mut message = Vec::new();
    to_protobuf(json.as_bytes(), 1 << 20, &mut message).unwrap();
    message
}

/// Decodes a request and formats one line for each series, metadata entry and rejection.
fn lines<'a>(reader: &OtlpDecodeOptions<'a>, deltas: OtlpDeltaMode<'a>, json: &str) -> Vec<String> {
    let mut decoder = OtlpDecoder::new(WireLimits::default());
    let decoded = decoder.decode_within(reader, deltas, &message(json), None);
    let mut decoded = decoded.unwrap();
    let mut lines = series_lines(&mut decoded.points);
    lines.extend(series_lines(&mut decoded.target_info));
    let decoded = decoded.points;
    for said in decoded.metadata.iter() {
        let (kind, unit) = (said.kind.name(), said.unit);
        lines.push(format!("# {} {kind} {unit:?} {:?}", said.name, said.help));
    }
    for refused in decoded.refused.iter() {
        let (refusal, count) = (refused.refusal, refused.sample_count);
        lines.push(format!("! {refusal:?} {count} {}", refused.first));
    }
    lines
}

/// Formats one line for each series.
fn series_lines(decoded: &mut DecodedWriteRequest<'_>) -> Vec<String> {
    let all: Vec<u32> = (0..decoded.batch.series_count() as u32).collect();
    firn_model::batch::BatchSource::read_labels(decoded, &all).unwrap();
    decoded.batch.assert_complete();
    let mut lines = Vec::new();
    for (i, series) in decoded.batch.iter().enumerate() {
        let mut line = series.labels.to_string();
        for (at, (time, value)) in series.times.iter().zip(series.values).enumerate() {
            let value = if is_stale(*value) {
                "stale".to_owned()
            } else {
                value.to_string()
            };
            line += &format!(" {value}@{}", time - 1_700_000_000_000);
            match series.start_times.get(at) {
                None | Some(0) => {}
                Some(start) => line += &format!(" since {}", start - 1_700_000_000_000),
            }
        }
        for sample in series.histograms {
            line += &format!(" {}", shown(&sample.histogram));
        }
        for exemplar in decoded.batch.exemplars().iter_series(i as u64) {
            line += &exemplar_shown(&exemplar);
        }
        lines.push(line);
    }
    lines
}

fn shown(histogram: &Histogram) -> String {
    let HistogramCounts::Integer {
        count,
        zero_count,
        positive,
        negative,
    } = &histogram.counts
    else {
        panic!("{histogram:?}");
    };
    format!(
        "schema {} count {count} sum {} zero {zero_count} + {positive:?} - {negative:?}",
        histogram.schema,
        if is_stale(histogram.sum) {
            "stale".to_owned()
        } else {
            histogram.sum.to_string()
        }
    )
}

fn exemplar_shown(exemplar: &TimedExemplar<'_>) -> String {
    let time = if exemplar.has_own_time {
        (exemplar.time - 1_700_000_000_000).to_string()
    } else {
        "none".to_owned()
    };
    format!(" # {} {}@{time}", exemplar.labels, exemplar.value)
}

fn check(translation: &OtlpTranslation, json: &str, want: &[&str]) {
    let reader = reader(translation);
    assert_eq!(lines(&reader, OtlpDeltaMode::Refuse, json), want, "{json}");
}

fn gauge(name: &str, rest: &str) -> String {
    format!(
        r#"{{"name":"{name}","unit":"s","description":"d","gauge":{{"dataPoints":[
        {{"timeUnixNano":"{TIME}","asDouble":1.5{rest}}}]}}}}"#
    )
}

fn sum(temporality: u32, is_monotonic: bool, points: &str) -> String {
    format!(
        r#"{{"name":"hits","sum":{{"aggregationTemporality":{temporality},
        "isMonotonic":{is_monotonic},"dataPoints":[{points}]}}}}"#
    )
}

#[test]
fn gauge_takes_the_names_that_the_strategy_gives_and_labels_of_its_resource() {
    let json = request(
        &service(),
        &gauge(
            "cpu.time",
            &format!(r#","attributes":[{},{}]"#, pair("z.y", "1"), pair("a", "")),
        ),
    );
    for (strategy, name, label) in [
        (
            TranslationStrategy::UnderscoreEscapingWithSuffixes,
            "cpu_time_seconds",
            "z_y",
        ),
        (
            TranslationStrategy::UnderscoreEscapingWithoutSuffixes,
            "cpu_time",
            "z_y",
        ),
        (
            TranslationStrategy::NoUtf8EscapingWithSuffixes,
            "cpu.time_seconds",
            "\"z.y\"",
        ),
        (TranslationStrategy::NoTranslation, "cpu.time", "\"z.y\""),
    ] {
        let translation = OtlpTranslation {
            strategy,
            ..OtlpTranslation::default()
        };
        let series = format!(
            "{{__name__=\"{name}\", instance=\"i-1\", job=\"eu/shop\", {label}=\"1\"}} 1.5@0"
        );
        let metadata = format!("# {name} gauge \"seconds\" \"d\"");
        check(&translation, &json, &[&series, &metadata]);
    }
}

#[test]
fn attributes_of_the_resource_are_promoted_and_told_by_target_info() {
    let attributes = format!("{},{}", service(), pair("host.name", "h"));
    let json = request(&attributes, &gauge("m", ""));
    let set = |keys: &[&str]| -> BTreeSet<String> { keys.iter().map(|k| (*k).into()).collect() };
    let info = r#"{__name__="target_info", host_name="h", instance="i-1", job="eu/shop"} 1@0"#;
    let said = [
        "# m_seconds gauge \"seconds\" \"d\"",
        "# target_info gauge \"\" \"Target metadata\"",
    ];
    let plain = r#"{__name__="m_seconds", instance="i-1", job="eu/shop"} 1.5@0"#;
    let promoted = r#"{__name__="m_seconds", host_name="h", instance="i-1", job="eu/shop"} 1.5@0"#;
    let all = r#"{__name__="m_seconds", host_name="h", instance="i-1", job="eu/shop", service_name="shop", service_namespace="eu"} 1.5@0"#;
    for (promotion, series) in [
        (AttributePromotion::default(), plain),
        (
            AttributePromotion::Only(set(&["host.name", "absent"])),
            promoted,
        ),
        (
            AttributePromotion::AllBut(set(&["service.instance.id"])),
            all,
        ),
    ] {
        let translation = OtlpTranslation {
            promotion,
            ..OtlpTranslation::default()
        };
        check(&translation, &json, &[series, info, said[0], said[1]]);
    }
    let keeping = OtlpTranslation {
        keeps_identifying: true,
        ..OtlpTranslation::default()
    };
    let info = r#"{__name__="target_info", host_name="h", instance="i-1", job="eu/shop", service_instance_id="i-1", service_name="shop", service_namespace="eu"} 1@0"#;
    check(&keeping, &json, &[plain, info, said[0], said[1]]);
}

#[test]
fn target_info_needs_a_name_and_something_to_tell() {
    let translation = OtlpTranslation::default();
    let said = "# m_seconds gauge \"seconds\" \"d\"";
    let nameless = request(&pair("host.name", "h"), &gauge("m", ""));
    check(
        &translation,
        &nameless,
        &[r#"{__name__="m_seconds"} 1.5@0"#, said],
    );
    let telling_nothing = request(&pair("service.name", "shop"), &gauge("m", ""));
    let series = r#"{__name__="m_seconds", job="shop"} 1.5@0"#;
    check(&translation, &telling_nothing, &[series, said]);
}

#[test]
fn target_info_of_points_far_apart_is_often_enough_and_bounded() {
    let attributes = format!("{},{}", service(), pair("host.name", "h"));
    let point = |time: u64| format!(r#"{{"timeUnixNano":"{time}","asInt":"1"}}"#);
    let points = format!("{},{}", point(TIME), point(TIME + 400_000_000_000));
    let json = request(&attributes, &sum(2, true, &points));
    let translation = OtlpTranslation::default();
    let got = lines(&reader(&translation), OtlpDeltaMode::Refuse, &json);
    let info = r#"{__name__="target_info", host_name="h", instance="i-1", job="eu/shop"} 1@0 1@150000 1@300000 1@400000"#;
    assert!(got.contains(&info.to_owned()), "{got:?}");
    // A point without a time is decades older than the others.
    let points = format!("{},{}", point(0), point(TIME));
    let json = request(&attributes, &sum(2, true, &points));
    let mut decoder = OtlpDecoder::default();
    let reader = reader(&translation);
    let read = decoder.decode_within(&reader, OtlpDeltaMode::Refuse, &message(&json), None);
    let count = read.unwrap().target_info.batch.sample_count();
    assert!((1441..=1442).contains(&count), "{count}");
}

#[test]
fn scope_is_promoted_over_everything_and_empty_parts_take_labels_away() {
    let translation = OtlpTranslation {
        promotes_scope: true,
        ..OtlpTranslation::default()
    };
    let own = format!(r#","attributes":[{}]"#, pair("otel_scope_name", "mine"));
    let json = request("", &gauge("m", &own));
    let series = r#"{__name__="m_seconds", otel_scope_a_b="c", otel_scope_name="lib", otel_scope_schema_url="https://x/1", otel_scope_version="1.2"} 1.5@0"#;
    let said = "# m_seconds gauge \"seconds\" \"d\"";
    check(&translation, &json, &[series, said]);
    let own = format!(r#","attributes":[{}]"#, pair("otel_scope_version", "mine"));
    let json = request("", &gauge("m", &own)).replace(r#""version":"1.2","#, "");
    let series = r#"{__name__="m_seconds", otel_scope_a_b="c", otel_scope_name="lib", otel_scope_schema_url="https://x/1"} 1.5@0"#;
    check(&translation, &json, &[series, said]);
}

#[test]
fn attributes_that_become_one_label_are_joined_in_order_of_their_keys() {
    let own = format!(
        r#","attributes":[{},{},{},{{"key":"n","value":{{"intValue":"7"}}}},{}]"#,
        pair("a_b", "3"),
        pair("a.b", "1"),
        pair("a-b", "2"),
        pair("__name__", "x"),
    );
    let json = request("", &gauge("m", &own));
    check(
        &OtlpTranslation::default(),
        &json,
        &[
            r#"{__name__="m_seconds", a_b="2;1;3", n="7"} 1.5@0"#,
            "# m_seconds gauge \"seconds\" \"d\"",
        ],
    );
}

#[test]
fn sums_are_counters_where_they_only_grow_and_have_exemplars_and_starts() {
    let translation = OtlpTranslation::default();
    let start = TIME - 1_000_000_000;
    let point = format!(
        r#"{{"timeUnixNano":"{TIME}","startTimeUnixNano":"{start}","asInt":"3","exemplars":[
        {{"timeUnixNano":"{TIME}","asDouble":2.5,"traceId":"0102030405060708090a0b0c0d0e0f10",
        "spanId":"0102030405060708","filteredAttributes":[{}]}}]}}"#,
        pair("user", "u"),
    );
    let exemplar = r##"{span_id="0102030405060708", trace_id="0102030405060708090a0b0c0d0e0f10", user="u"} 2.5@0"##;
    for (is_monotonic, name, kind) in [(true, "hits_total", "counter"), (false, "hits", "gauge")] {
        let json = request("", &sum(2, is_monotonic, &point));
        let series = format!(r##"{{__name__="{name}"}} 3@0 since -1000 # {exemplar}"##);
        let said = format!("# {name} {kind} \"\" \"\"");
        check(&translation, &json, &[&series, &said]);
    }
    let stale = format!(r#"{{"timeUnixNano":"{TIME}","flags":1}}"#);
    let json = request("", &sum(2, true, &stale));
    let series = r#"{__name__="hits_total"} stale@0"#;
    check(
        &translation,
        &json,
        &[series, "# hits_total counter \"\" \"\""],
    );
}

const EXPLICIT: &str = r#"{"name":"lat","histogram":{"aggregationTemporality":2,"dataPoints":[
    {"timeUnixNano":"1700000000000000000","count":"6","sum":9.5,"bucketCounts":["1","0","5"],
    "explicitBounds":[0.5,10],"exemplars":[
    {"asDouble":0.1,"traceId":"0102030405060708090a0b0c0d0e0f10"},{"asInt":"11"}]}]}}"#;

#[test]
fn explicit_histogram_is_classic_or_native_as_the_switch_says() {
    let json = request("", EXPLICIT);
    let said = "# lat histogram \"\" \"\"";
    check(
        &OtlpTranslation::default(),
        &json,
        &[
            r#"{__name__="lat_sum"} 9.5@0"#,
            r#"{__name__="lat_count"} 6@0"#,
            r##"{__name__="lat_bucket", le="0.5"} 1@0 # {trace_id="0102030405060708090a0b0c0d0e0f10"} 0.1@none"##,
            r#"{__name__="lat_bucket", le="10"} 1@0"#,
            r#"{__name__="lat_bucket", le="+Inf"} 6@0 # {} 11@none"#,
            said,
        ],
    );
    let native = OtlpTranslation {
        converts_histograms: true,
        ..OtlpTranslation::default()
    };
    let series = r##"{__name__="lat"} schema -53 count 6 sum 9.5 zero 0 + [1, -1, 5] - [] # {trace_id="0102030405060708090a0b0c0d0e0f10"} 0.1@none # {} 11@none"##;
    check(&native, &json, &[series, said]);
}

#[test]
fn exponential_histogram_is_native_with_both_signs() {
    let metric = format!(
        r#"{{"name":"e","exponentialHistogram":{{"aggregationTemporality":
        "AGGREGATION_TEMPORALITY_CUMULATIVE","dataPoints":[{{"timeUnixNano":{TIME},"count":7,
        "sum":2,"scale":9,"zeroCount":1,"zeroThreshold":0.1,
        "positive":{{"offset":-1,"bucketCounts":[1,2]}},
        "negative":{{"offset":4,"bucketCounts":["1","2"]}}}}]}}}}"#
    );
    let series = r#"{__name__="e"} schema 8 count 7 sum 2 zero 1 + [1, 1] - [3]"#;
    let said = "# e histogram \"\" \"\"";
    check(
        &OtlpTranslation::default(),
        &request("", &metric),
        &[series, said],
    );
}

#[test]
fn summary_is_its_sum_its_count_and_its_quantiles() {
    let metric = format!(
        r#"{{"name":"s","summary":{{"dataPoints":[{{"timeUnixNano":"{TIME}","count":"4","sum":8,
        "quantileValues":[{{"quantile":0.5,"value":2}},{{"quantile":1,"value":3}}]}}]}}}}"#
    );
    check(
        &OtlpTranslation::default(),
        &request("", &metric),
        &[
            r#"{__name__="s_sum"} 8@0"#,
            r#"{__name__="s_count"} 4@0"#,
            r#"{__name__="s", quantile="0.5"} 2@0"#,
            r#"{__name__="s", quantile="1"} 3@0"#,
            "# s summary \"\" \"\"",
        ],
    );
}

#[test]
fn type_and_unit_become_labels_where_asked_for() {
    let translation = OtlpTranslation::default();
    let reader = OtlpDecodeOptions {
        labels_types: true,
        ..reader(&translation)
    };
    let json = request("", &format!("{},{EXPLICIT}", gauge("m", "")));
    let got = lines(&reader, OtlpDeltaMode::Refuse, &json);
    let series = r#"{__name__="m_seconds", __type__="gauge", __unit__="seconds"} 1.5@0"#;
    assert_eq!(got[0], series);
    assert_eq!(
        got[1],
        r#"{__name__="lat_sum", __type__="histogram"} 9.5@0"#
    );
}

#[test]
fn deltas_are_refused_kept_or_added_up() {
    struct Doubled;
    impl AccumulateDeltas for Doubled {
        fn accumulate_number(
            &mut self,
            _: OtlpStreamId,
            point: &mut NumberPoint,
        ) -> Result<(), SeriesRejection> {
            point.value = PointNumber::Double(2.0 * point.value.to_float());
            Ok(())
        }
        fn accumulate_explicit(
            &mut self,
            _: OtlpStreamId,
            point: &mut ExplicitHistogramPoint,
        ) -> Result<(), SeriesRejection> {
            point.count = 100;
            Ok(())
        }
        fn accumulate_exponential(
            &mut self,
            _: OtlpStreamId,
            _: &mut ExponentialHistogramPoint,
        ) -> Result<(), SeriesRejection> {
            Err(SeriesRejection {
                refusal: WriteRejectionReason::DeltaLimit,
                message: "full".to_owned(),
            })
        }
    }
    let translation = OtlpTranslation::default();
    let reader = reader(&translation);
    let point = format!(r#"{{"timeUnixNano":"{TIME}","asInt":"3"}}"#);
    let json = request("", &sum(1, true, &point));
    for (deltas, want) in [
        (
            OtlpDeltaMode::Refuse,
            ["! Temporality 1 invalid temporality and type combination for metric \"hits\""; 1]
                .to_vec(),
        ),
        (
            OtlpDeltaMode::Keep,
            vec![
                r#"{__name__="hits_total"} 3@0"#,
                "# hits_total unknown \"\" \"\"",
            ],
        ),
        (
            OtlpDeltaMode::Accumulate(&mut Doubled),
            vec![
                r#"{__name__="hits_total"} 6@0"#,
                "# hits_total counter \"\" \"\"",
            ],
        ),
    ] {
        assert_eq!(lines(&reader, deltas, &json), want);
    }
}

#[test]
fn what_cannot_stand_is_left_out_and_named_and_the_rest_is_taken() {
    let nothing = r#"{"name":"empty"}"#;
    let bad_scale = format!(
        r#"{{"name":"e","exponentialHistogram":{{"aggregationTemporality":2,"dataPoints":[
        {{"timeUnixNano":"{TIME}","scale":-5}}]}}}}"#
    );
    let bad_label = gauge("l", &format!(r#","attributes":[{}]"#, pair("..", "x")));
    let long = gauge(
        "v",
        &format!(r#","attributes":[{}]"#, pair("k", &"x".repeat(20_000))),
    );
    let metrics = [
        nothing.to_owned(),
        bad_scale,
        bad_label,
        long,
        gauge("++", "").replace(r#""unit":"s","#, ""),
        gauge("m", ""),
    ];
    let got = lines(
        &reader(&OtlpTranslation::default()),
        OtlpDeltaMode::Refuse,
        &request("", &metrics.join(",")),
    );
    let starts = [
        r#"{__name__="m_seconds"} 1.5@0"#,
        "# m_seconds gauge",
        "! MetricType 0 could not get aggregation temporality for empty as it has unsupported",
        "! Histogram 1 cannot convert exponential to native histogram. Scale must be >= -4, was -5",
        "! LabelName 1 normalization for label name \"..\" resulted in invalid name \"__\"",
        "! LabelValueTooLong 1 label value too long: 20000 bytes, limit 16384",
        "! MetricName 1 normalization for metric \"++\" resulted in empty name",
    ];
    assert_eq!(got.len(), starts.len(), "{got:#?}");
    for (got, start) in got.iter().zip(starts) {
        assert!(got.starts_with(start), "{got}, wanted {start}");
    }
}

#[test]
fn json_of_any_spelling_says_the_same_and_what_is_no_json_is_an_error() {
    let plain = message(&request("", &gauge("m", "")));
    let spelled = request(
        "",
        &gauge("m", r#","unknown":{"deep":[1,{}]},"flags":null"#),
    )
    .replace("timeUnixNano", "time_unix_nano")
    .replace("resourceMetrics", "resource_metrics");
    assert_eq!(message(&spelled), plain);
    let deep = (0..100).fold("{}".to_owned(), |inner, _| {
        format!(r#"{{"arrayValue":{{"values":[{inner}]}}}}"#)
    });
    let deep = request(&format!(r#"{{"key":"k","value":{deep}}}"#), "");
    for (text, want) in [
        ("", "EOF"),
        ("[1]", "expected an object"),
        (r#"{"resourceMetrics":{}}"#, "invalid type: map"),
        (r#"{"resourceMetrics":[[]]}"#, "invalid type: sequence"),
        (
            r#"{"resourceMetrics":[{"resource":7}]}"#,
            "expected an object",
        ),
        (r#"{"resourceMetrics":[]} x"#, "trailing characters"),
        (&deep, "recursion limit"),
    ] {
        let read = to_protobuf(text.as_bytes(), 10_000, &mut Vec::new());
        let error = read.unwrap_err().to_string();
        assert!(error.contains(want), "{text}: {error}");
    }
    let wide = format!(r#"{{"resourceMetrics":[{}{{}}]}}"#, "{},".repeat(1000));
    let read = to_protobuf(wide.as_bytes(), 1000, &mut Vec::new());
    assert!(
        matches!(read, Err(WireError::MessageTooLarge { .. })),
        "{read:?}"
    );
}

#[test]
fn message_of_any_bytes_is_read_or_refused() {
    let whole = message(&request(
        &service(),
        &format!("{EXPLICIT},{}", gauge("m", "")),
    ));
    let translation = OtlpTranslation {
        promotes_scope: true,
        ..OtlpTranslation::default()
    };
    let reader = reader(&translation);
    let mut decoder = OtlpDecoder::default();
    let mut read = |bytes: &[u8]| {
        let read = decoder.decode_within(&reader, OtlpDeltaMode::Keep, bytes, None);
        read.map(|decoded| decoded.points.batch.series_count())
    };
    assert_eq!(read(&whole), Ok(6));
    for end in 0..whole.len() {
        let _ = read(&whole[..end]);
        for bit in [1u8, 8, 0x80] {
            let mut flipped = whole.clone();
            flipped[end] ^= bit;
            let _ = read(&flipped);
        }
    }
    // Lengths that exceed the message.
    assert!(read(b"\x0a\xff\xff\xff\xff\x7f").is_err());
}

#[test]
fn labels_of_a_resource_that_each_point_repeats_are_paid_for() {
    let limits = WireLimits {
        batch_bytes_max: 1 << 20,
        ..WireLimits::default()
    };
    let attributes = pair("service.name", &"x".repeat(10_000));
    let points = vec![r#"{"asInt":"1"}"#; 100].join(",");
    let json = request(&attributes, &sum(2, true, &points));
    let translation = OtlpTranslation::default();
    let reader = reader(&translation);
    let mut decoder = OtlpDecoder::new(limits);
    let read = decoder.decode_within(&reader, OtlpDeltaMode::Refuse, &message(&json), None);
    assert!(matches!(read, Err(WireError::TooManySamples { .. })));
}
