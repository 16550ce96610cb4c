//! Tests that responses are byte-identical when rendered in pieces of any size.

use super::*;
use firn_model::budget::Budget;
use firn_model::histogram::{Histogram, HistogramCounts, ResetHint};
use firn_model::labels::Labels;
use std::sync::Arc;

/// Renders `make()` in pieces of many sizes and compares each result with `want`.
fn check(make: impl Fn() -> QueryResponse, want: &str) {
    for bytes_max in [1, 2, 7, 30, 100, 1000, usize::MAX] {
        let mut answer = make();
        let mut got = Vec::new();
        loop {
            let mut piece = Vec::new();
            let more = answer.produce(&mut piece, bytes_max);
            got.extend_from_slice(&piece);
            if !more {
                break;
            }
        }
        assert_eq!(
            String::from_utf8(got).unwrap(),
            want,
            "pieces of {bytes_max}"
        );
    }
}

fn nothing() -> Reservation {
    Budget::new("query", 0).create_reservation()
}

fn answer(value: &QueryValue, time: EvalTime) -> QueryResponse {
    QueryResponse::new(
        value.clone(),
        time,
        Vec::new(),
        ResponseAnnotations::default(),
        nothing(),
    )
}

fn up(instance: &str) -> Labels {
    Labels::from_pairs([("__name__", "up"), ("instance", instance)])
}

fn histogram() -> Arc<Histogram> {
    Arc::new(Histogram {
        reset_hint: ResetHint::Gauge,
        schema: 0,
        zero_threshold: 0.0,
        sum: 1.5,
        counts: HistogramCounts::Float {
            count: 2.0,
            zero_count: 0.0,
            positive: Vec::new(),
            negative: Vec::new(),
        },
        positive_spans: Vec::new(),
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    })
}

#[test]
fn answer_of_scalar_and_string_is_upstreams() {
    let at = EvalTime::Instant(1_500);
    check(
        || answer(&QueryValue::Scalar(1_500, 1e22), at),
        concat!(
            r#"{"status":"success","data":{"resultType":"scalar","#,
            r#""result":[1.5,"10000000000000000000000"]}}"#
        ),
    );
    check(
        || answer(&QueryValue::String(1_000, b"a<b".to_vec()), at),
        r#"{"status":"success","data":{"resultType":"string","result":[1,"a\u003cb"]}}"#,
    );
}

#[test]
fn answer_of_vector_writes_floats_and_histograms() {
    let element = |instance, value| VectorElement {
        labels: up(instance),
        time: 1_435_781_451_781,
        value,
    };
    let value = QueryValue::Vector(vec![
        element("a<\"b", QueryPointValue::Float(f64::INFINITY)),
        element("c", QueryPointValue::Histogram(histogram())),
    ]);
    check(
        || answer(&value, EvalTime::Instant(1_435_781_451_781)),
        concat!(
            r#"{"status":"success","data":{"resultType":"vector","result":["#,
            r#"{"metric":{"__name__":"up","instance":"a<\"b"},"value":[1435781451.781,"+Inf"]},"#,
            r#"{"metric":{"__name__":"up","instance":"c"},"#,
            r#""histogram":[1435781451.781,{"count":"2","sum":"1.5"}]}]}}"#
        ),
    );
}

#[test]
fn answer_of_matrix_shares_step_timestamps() {
    let series = |instance, floats: &[(i64, f64)], histograms: &[i64]| MatrixSeries {
        labels: up(instance),
        floats: floats.to_vec(),
        histograms: histograms.iter().map(|time| (*time, histogram())).collect(),
    };
    let value = QueryValue::Matrix(vec![
        series("a", &[(1_000, 1.0), (1_500, 0.5), (2_000, -1.0)], &[]),
        series("b", &[(1_500, 2.0), (1_777, 3.0)], &[2_000, 2_500]),
        series("c", &[], &[1_000]),
    ]);
    let range = EvalTime::range(1_000, 2_999, 500);
    let want = concat!(
        r#"{"status":"success","data":{"resultType":"matrix","result":["#,
        r#"{"metric":{"__name__":"up","instance":"a"},"#,
        r#""values":[[1,"1"],[1.500,"0.5"],[2,"-1"]]},"#,
        r#"{"metric":{"__name__":"up","instance":"b"},"#,
        r#""values":[[1.500,"2"],[1.777,"3"]],"#,
        r#""histograms":[[2,{"count":"2","sum":"1.5"}],[2.500,{"count":"2","sum":"1.5"}]]},"#,
        r#"{"metric":{"__name__":"up","instance":"c"},"#,
        r#""histograms":[[1,{"count":"2","sum":"1.5"}]]}]}}"#
    );
    check(|| answer(&value, range), want);
    check(|| answer(&value, EvalTime::Instant(0)), want);
    check(
        || answer(&QueryValue::Matrix(Vec::new()), range),
        r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
    );
}

#[test]
fn answer_with_annotations_lists_ten_of_a_kind() {
    let annotations = ResponseAnnotations {
        warnings: vec!["a & b".into()],
        infos: (0..12).map(|i| format!("i{i}")).collect(),
    };
    let stats = br#"{"samples":{}}"#.to_vec();
    check(
        || {
            QueryResponse::new(
                QueryValue::Vector(Vec::new()),
                EvalTime::Instant(0),
                vec![("stats", stats.clone())],
                annotations.clone(),
                nothing(),
            )
        },
        concat!(
            r#"{"status":"success","data":{"resultType":"vector","result":[],"#,
            r#""stats":{"samples":{}}},"warnings":["a \u0026 b"],"#,
            r#""infos":["i0","i1","i2","i3","i4","i5","i6","i7","i8","i9","#,
            r#""2 more info annotations omitted"]}"#
        ),
    );
}

#[test]
fn list_in_pieces_has_every_element_once() {
    for bytes_max in [1, 10, usize::MAX] {
        let mut annotations = ResponseAnnotations::default();
        annotations.add_truncated();
        let mut list = ListDocument::new(3, annotations, |out: &mut Vec<u8>, i| {
            push_html_string(out, format!("v{i}").as_bytes());
        });
        let mut got = Vec::new();
        loop {
            let mut piece = Vec::new();
            let more = list.produce(&mut piece, bytes_max);
            got.extend_from_slice(&piece);
            if !more {
                break;
            }
        }
        assert_eq!(
            String::from_utf8(got).unwrap(),
            concat!(
                r#"{"status":"success","data":["v0","v1","v2"],"#,
                r#""warnings":["results truncated due to limit"]}"#
            )
        );
    }
}
