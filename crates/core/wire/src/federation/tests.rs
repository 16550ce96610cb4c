//! Tests the exact bytes of federated families, and the negotiation of formats.

use super::*;
use firn_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, HistogramCounts};

fn histogram(schema: i32, custom_values: &[f64], hint: ResetHint) -> Histogram {
    Histogram {
        reset_hint: hint,
        schema,
        zero_threshold: 0.0,
        sum: 4.5,
        counts: HistogramCounts::Integer {
            count: 6,
            zero_count: 0,
            positive: vec![2, -1],
            negative: Vec::new(),
        },
        positive_spans: vec![
            BucketSpan {
                offset: 0,
                length: 1,
            },
            BucketSpan {
                offset: 1,
                length: 1,
            },
        ],
        negative_spans: Vec::new(),
        custom_values: custom_values.to_vec(),
    }
}

/// Returns the families of these samples, all with timestamp 7.
fn families(
    accept: &str,
    external: &[(&str, &str)],
    samples: &[(&[(&str, &str)], FederatedValue<'_>)],
) -> Vec<u8> {
    let external = Labels::from_pairs(external.iter().copied());
    let mut families = FederationWriter::new(FederationFormat::negotiate(accept), &external);
    let mut out = Vec::new();
    for (labels, value) in samples {
        let labels = Labels::from_pairs(labels.iter().copied());
        families.push(&mut out, labels.as_ref(), 7, *value);
    }
    families.finish(&mut out);
    out
}

fn check_text(
    accept: &str,
    external: &[(&str, &str)],
    samples: &[(&[(&str, &str)], FederatedValue<'_>)],
    want: &str,
) {
    let got = families(accept, external, samples);
    assert_eq!(String::from_utf8(got).unwrap(), want);
}

#[test]
fn text_has_one_type_a_name_and_the_external_labels_that_are_missing() {
    let float = FederatedValue::Float;
    check_text(
        "",
        &[("region", "eu"), ("job", "x")],
        &[
            (
                &[("__name__", "a"), ("job", "j"), ("l", "\"\\\n")],
                float(-0.0),
            ),
            (&[("__name__", "a"), ("instance", "i")], float(1e6)),
            (&[("__name__", "b")], float(f64::NAN)),
            (&[("no", "name")], float(1.0)),
        ],
        "# TYPE a untyped\n\
         a{job=\"j\",l=\"\\\"\\\\\\n\",instance=\"\",region=\"eu\"} 0 7\n\
         a{instance=\"i\",job=\"x\",region=\"eu\"} 1e+06 7\n\
         # TYPE b untyped\n\
         b{instance=\"\",job=\"x\",region=\"eu\"} NaN 7\n",
    );
}

#[test]
fn text_shows_custom_buckets_as_classic_ones_and_no_native_histograms() {
    let custom = histogram(CUSTOM_BUCKETS_SCHEMA, &[0.5, 1.0, 2.0], ResetHint::Unknown);
    let native = histogram(3, &[], ResetHint::Unknown);
    check_text(
        "",
        &[("instance", "x")],
        &[
            (&[("__name__", "a")], FederatedValue::Float(1.0)),
            (
                &[("__name__", "a"), ("b", "c")],
                FederatedValue::Histogram(&custom),
            ),
            (&[("__name__", "n")], FederatedValue::Histogram(&native)),
        ],
        "# TYPE a untyped\n\
         a{instance=\"x\"} 1 7\n\
         # TYPE a histogram\n\
         a_bucket{b=\"c\",instance=\"x\",le=\"0.5\"} 2 7\n\
         a_bucket{b=\"c\",instance=\"x\",le=\"1\"} 2 7\n\
         a_bucket{b=\"c\",instance=\"x\",le=\"2\"} 3 7\n\
         a_bucket{b=\"c\",instance=\"x\",le=\"+Inf\"} 6 7\n\
         a_sum{b=\"c\",instance=\"x\"} 4.5 7\n\
         a_count{b=\"c\",instance=\"x\"} 6 7\n",
    );
}

#[test]
fn name_that_is_not_plain_is_written_as_the_client_asks() {
    let sample: &[(&str, &str)] = &[("__name__", "a.b-_"), ("c d", "e"), ("instance", "i")];
    let cases = [
        (
            "text/plain",
            "# TYPE a_b__ untyped\na_b__{c_d=\"e\",instance=\"i\"} 1 7\n",
        ),
        (
            "text/plain;escaping=dots",
            "# TYPE a_dot_b____ untyped\na_dot_b____{c__d=\"e\",instance=\"i\"} 1 7\n",
        ),
        (
            "text/plain; version=0.0.4; escaping=values",
            "# TYPE U__a_2e_b_2d___ untyped\n\
             U__a_2e_b_2d___{U__c_20_d=\"e\",instance=\"i\"} 1 7\n",
        ),
        (
            "text/plain; escaping=allow-utf-8",
            "# TYPE \"a.b-_\" untyped\n{\"a.b-_\",\"c d\"=\"e\",instance=\"i\"} 1 7\n",
        ),
    ];
    for (accept, want) in cases {
        check_text(accept, &[], &[(sample, FederatedValue::Float(1.0))], want);
    }
}

#[test]
fn negotiate_takes_the_heaviest_clause_that_there_is() {
    let protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                    encoding=delimited";
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let cases = [
        ("", format!("{text}; escaping=underscores")),
        ("*/*", format!("{text}; escaping=underscores")),
        (
            "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.1;escaping=dots",
            format!("{text}; escaping=dots"),
        ),
        (
            "text/plain;q=0.5,application/vnd.google.protobuf;\
             proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6",
            format!("{protobuf}; escaping=underscores"),
        ),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
             encoding=delimited;escaping=allow-utf-8,text/plain",
            format!("{protobuf}; escaping=allow-utf-8"),
        ),
        (
            "application/vnd.google.protobuf;proto=other;encoding=delimited",
            format!("{text}; escaping=underscores"),
        ),
    ];
    for (accept, want) in cases {
        assert_eq!(
            FederationFormat::negotiate(accept).content_type(),
            want,
            "{accept}"
        );
    }
}

#[test]
fn protobuf_is_families_of_a_length_with_a_type_for_each_kind() {
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                  encoding=delimited";
    let native = histogram(1, &[], ResetHint::Unknown);
    let gauge = histogram(1, &[], ResetHint::Gauge);
    let samples: &[(&[(&str, &str)], FederatedValue<'_>)] = &[
        (&[("__name__", "a")], FederatedValue::Float(1.0)),
        (
            &[("__name__", "a"), ("x", "y")],
            FederatedValue::Histogram(&native),
        ),
        (
            &[("__name__", "a"), ("x", "z")],
            FederatedValue::Histogram(&gauge),
        ),
    ];
    let bytes = families(accept, &[], samples);
    let mut rest = &bytes[..];
    let mut kinds = Vec::new();
    while let Some((length, behind)) = rest.split_first() {
        let (family, behind) = behind.split_at(usize::from(*length));
        // The name, followed by the type.
        assert_eq!(family[..3], [0x0a, 1, b'a']);
        assert_eq!(family[3], 0x18);
        kinds.push(family[4]);
        rest = behind;
    }
    assert_eq!(kinds, [3, 4, 5]);
}
