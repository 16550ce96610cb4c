//! An answer of the HTTP API, parsed as far as comparisons need it.
//!
//! Invariant: values remain the texts that the system wrote and borrow from the body. A sample thus
//! takes 24 bytes regardless of its digits, and equal texts need not be parsed.

use firn_model::labels::METRIC_NAME;
use firn_model::quote::quote;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The labels of a series by name, including the metric name, in the order of names.
pub type LabelSet = BTreeMap<String, String>;

/// An API answer, successful or not, parsed by [`ApiAnswer::parse`] and borrowed from the body.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiAnswer<'a> {
    /// `"status": "error"`, or any other status than success.
    Failure {
        /// Error type: `bad_data`, `execution` and so on; empty if missing.
        kind: String,
        /// Error message of the system; empty if missing.
        text: String,
    },
    /// `"status": "success"`, with the result and any annotations.
    Success(SuccessfulAnswer<'a>),
}

/// The content of a successful answer: its result, and annotations that are sorted for comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct SuccessfulAnswer<'a> {
    /// Result type: `vector`, `matrix`, `scalar` or `string`; empty for answers to other requests
    /// than queries.
    pub kind: String,
    /// The result itself, whose form depends on the type.
    pub data: AnswerData<'a>,
    /// The texts of `warnings`, sorted because their order is undefined.
    pub warnings: Vec<String>,
    /// The texts of `infos`, sorted because their order is undefined.
    pub infos: Vec<String>,
    /// Whether the system marked the answer as partial, as VictoriaMetrics does.
    pub is_partial: bool,
}

/// The result in a successful answer, parsed only as far as values are compared one by one.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerData<'a> {
    /// The series of a vector, with one point each, or of a matrix, with any number of points.
    Series(Vec<AnswerSeries<'a>>),
    /// One point without labels, which is the result of a scalar expression.
    Scalar(AnswerPoint<'a>),
    /// Any other JSON value, compared as a whole.
    Other(Value),
}

/// A series of a result: its labels and points. Floats and native histograms are merged in time
/// order.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerSeries<'a> {
    /// Labels of the series, including the metric name if it has one.
    pub labels: LabelSet,
    /// Points of the series in time order.
    pub points: Vec<AnswerPoint<'a>>,
}

/// A sample of a result, either a float or a native histogram, at one evaluation time.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerPoint<'a> {
    /// Timestamp in milliseconds since the epoch.
    pub time_ms: i64,
    /// Value of the sample, as texts of the body.
    pub value: AnswerPointValue<'a>,
}

/// The value of a point, as texts of the response body that are parsed only when they differ.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerPointValue<'a> {
    /// A float in decimal notation, as written by the system.
    Float(&'a str),
    /// A native histogram, boxed to keep points of floats small.
    Histogram(Box<AnswerHistogram<'a>>),
}

/// A native histogram in the JSON format of the API, whose numbers are texts of the body.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AnswerHistogram<'a> {
    /// Count of observations, which may be fractional.
    #[serde(borrow)]
    pub count: &'a str,
    /// Sum of observations, as written by the system.
    #[serde(borrow)]
    pub sum: &'a str,
    /// For each bucket: which of its bounds are inclusive, lower bound, upper bound and count.
    #[serde(borrow, default)]
    pub buckets: Vec<(u8, &'a str, &'a str, &'a str)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerEnvelope<'a> {
    status: String,
    #[serde(default)]
    error_type: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    #[serde(default)]
    infos: Option<Vec<String>>,
    #[serde(default)]
    is_partial: bool,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueryData<'a> {
    result_type: String,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SeriesText<'a> {
    #[serde(default)]
    metric: LabelSet,
    #[serde(borrow, default)]
    value: Option<(f64, &'a str)>,
    #[serde(borrow, default)]
    values: Vec<(f64, &'a str)>,
    #[serde(borrow, default)]
    histogram: Option<(f64, AnswerHistogram<'a>)>,
    #[serde(borrow, default)]
    histograms: Vec<(f64, AnswerHistogram<'a>)>,
}

impl<'a> ApiAnswer<'a> {
    /// Parses a response body without copying its values. Fails with a description of the fault if
    /// it is not an API answer.
    pub fn parse(body: &'a [u8]) -> Result<Self, String> {
        let wrong = |e: serde_json::Error| format!("not an answer of the Prometheus API: {e}");
        let envelope: AnswerEnvelope<'a> = serde_json::from_slice(body).map_err(wrong)?;
        if envelope.status != "success" {
            return Ok(ApiAnswer::Failure {
                kind: envelope.error_type.unwrap_or_default(),
                text: envelope.error.unwrap_or_default(),
            });
        }
        let raw = envelope.data.map_or("null", RawValue::get);
        let (kind, data) = read_data(raw).map_err(wrong)?;
        let sorted = |texts: Option<Vec<String>>| {
            let mut texts = texts.unwrap_or_default();
            texts.sort_unstable();
            texts
        };
        Ok(ApiAnswer::Success(SuccessfulAnswer {
            kind,
            data,
            warnings: sorted(envelope.warnings),
            infos: sorted(envelope.infos),
            is_partial: envelope.is_partial,
        }))
    }

    /// Returns the content of a successful answer; fails with type and message of the error
    /// otherwise.
    pub fn success(self) -> Result<SuccessfulAnswer<'a>, String> {
        match self {
            ApiAnswer::Success(success) => Ok(success),
            ApiAnswer::Failure { kind, text } => Err(format!("{kind}: {text}")),
        }
    }

    /// Returns the series of a vector or a matrix; an empty slice for any other result.
    pub fn series(&self) -> &[AnswerSeries<'a>] {
        match self {
            ApiAnswer::Success(SuccessfulAnswer {
                data: AnswerData::Series(series),
                ..
            }) => series,
            _ => &[],
        }
    }

    /// Removes the labels for which `is_ignored` returns true from all series of a vector or
    /// matrix.
    pub fn drop_labels(&mut self, is_ignored: impl Fn(&str) -> bool) {
        let ApiAnswer::Success(success) = self else {
            return;
        };
        if let AnswerData::Series(series) = &mut success.data {
            for series in series {
                series.labels.retain(|name, _| !is_ignored(name));
            }
        }
    }
}

fn read_data(raw: &str) -> Result<(String, AnswerData<'_>), serde_json::Error> {
    // Only an object can be a query result; serde would also read a list of two label names as one.
    let query = raw
        .starts_with('{')
        .then(|| serde_json::from_str::<QueryData<'_>>(raw));
    let Some(Ok(query)) = query else {
        return Ok((String::new(), AnswerData::Other(serde_json::from_str(raw)?)));
    };
    let raw = query.result.map_or("null", RawValue::get);
    let data = match query.result_type.as_str() {
        "vector" | "matrix" => {
            let texts: Option<Vec<SeriesText<'_>>> = serde_json::from_str(raw)?;
            AnswerData::Series(
                texts
                    .into_iter()
                    .flatten()
                    .map(AnswerSeries::from_text)
                    .collect(),
            )
        }
        "scalar" => {
            let (time, text) = serde_json::from_str(raw)?;
            AnswerData::Scalar(AnswerPoint::float(time, text))
        }
        _ => AnswerData::Other(serde_json::from_str(raw)?),
    };
    Ok((query.result_type, data))
}

impl<'a> AnswerSeries<'a> {
    fn from_text(text: SeriesText<'a>) -> Self {
        let floats = text.values.into_iter().chain(text.value);
        let histograms = text.histograms.into_iter().chain(text.histogram);
        let mut points: Vec<AnswerPoint<'a>> = floats
            .map(|(time, text)| AnswerPoint::float(time, text))
            .collect();
        let floats_count = points.len();
        points.extend(histograms.map(|(time, histogram)| AnswerPoint {
            time_ms: milliseconds(time),
            value: AnswerPointValue::Histogram(Box::new(histogram)),
        }));
        if floats_count > 0 && floats_count < points.len() {
            points.sort_by_key(|point| point.time_ms);
        }
        Self {
            labels: text.metric,
            points,
        }
    }
}

impl<'a> AnswerPoint<'a> {
    fn float(time: f64, text: &'a str) -> Self {
        Self {
            time_ms: milliseconds(time),
            value: AnswerPointValue::Float(text),
        }
    }
}

fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

impl AnswerPointValue<'_> {
    /// Converts the value to the JSON of the API, for reports.
    pub fn to_json(&self) -> Value {
        match self {
            AnswerPointValue::Float(text) => Value::String((*text).to_owned()),
            AnswerPointValue::Histogram(h) => serde_json::json!({
                "count": h.count,
                "sum": h.sum,
                "buckets": h.buckets,
            }),
        }
    }

    /// Returns a number for charts: the value, or the sum of a histogram.
    pub fn number(&self) -> f64 {
        let text = match self {
            AnswerPointValue::Float(text) => text,
            AnswerPointValue::Histogram(histogram) => histogram.sum,
        };
        text.parse().unwrap_or(f64::NAN)
    }
}

/// Formats labels as a PromQL selector, such as `up{job="x"}`. Names that are not identifiers are
/// quoted.
pub fn series_text(labels: &LabelSet) -> String {
    let mut name = labels.get(METRIC_NAME).map_or("", String::as_str);
    let mut matchers = Vec::new();
    if !name.is_empty() && !is_plain(name) {
        matchers.push(quote(name.as_bytes()));
        name = "";
    }
    for (label, value) in labels.iter().filter(|(label, _)| *label != METRIC_NAME) {
        matchers.push(format!("{}={}", label_text(label), quote(value.as_bytes())));
    }
    if matchers.is_empty() && !name.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", matchers.join(", "))
    }
}

/// Formats a label name for a matcher: quoted unless it is a plain identifier.
pub fn label_text(name: &str) -> String {
    if is_plain(name) {
        name.to_owned()
    } else {
        quote(name.as_bytes())
    }
}

fn is_plain(name: &str) -> bool {
    let is_word = |b: u8| matches!(b, b'_' | b':') || b.is_ascii_alphanumeric();
    name.bytes().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_every_kind_is_read() {
        let body = br#"{"status":"success","warnings":["b","a"],"data":{"resultType":"matrix",
            "result":[{"metric":{"a":"x\n"},"values":[[1.5,"1"],[3,"NaN"]],
            "histograms":[[2,{"count":"4","sum":"1","buckets":[[0,"1","2","4"]]}]]}]}}"#;
        let answer = ApiAnswer::parse(body).unwrap();
        let series = &answer.series()[0];
        assert_eq!(series.labels["a"], "x\n");
        let times: Vec<i64> = series.points.iter().map(|p| p.time_ms).collect();
        assert_eq!(times, [1_500, 2_000, 3_000]);
        assert_eq!(series.points[0].value, AnswerPointValue::Float("1"));
        assert_eq!(series.points[1].value.to_json()["buckets"][0][3], "4");
        let ApiAnswer::Success(success) = answer else {
            panic!("no success");
        };
        assert_eq!(success.warnings, ["a", "b"]);

        let scalar = br#"{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}"#;
        let Ok(ApiAnswer::Success(success)) = ApiAnswer::parse(scalar) else {
            panic!("no success");
        };
        assert!(matches!(success.data, AnswerData::Scalar(_)));
        let names = br#"{"status":"success","data":["a", "b"],"isPartial":true}"#;
        let Ok(ApiAnswer::Success(success)) = ApiAnswer::parse(names) else {
            panic!("no success");
        };
        assert_eq!(
            success.data,
            AnswerData::Other(serde_json::json!(["a", "b"]))
        );
        assert!(success.is_partial);
    }

    #[test]
    fn bytes_that_are_no_answer_are_refused() {
        let cases: [&[u8]; 5] = [
            b"",
            b"<html>",
            b"[]",
            b"{\"data\":[]}",
            b"{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[1]}}",
        ];
        for body in cases {
            let e = ApiAnswer::parse(body).unwrap_err();
            assert!(
                e.starts_with("not an answer of the Prometheus API: "),
                "{e}"
            );
        }
        let failure =
            ApiAnswer::parse(b"{\"status\":\"error\",\"errorType\":\"bad_data\"}").unwrap();
        assert_eq!(
            failure,
            ApiAnswer::Failure {
                kind: "bad_data".into(),
                text: String::new()
            }
        );
    }

    #[test]
    fn labels_print_as_promql_writes_them() {
        let set = |pairs: &[(&str, &str)]| -> LabelSet {
            let owned = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
            pairs.iter().map(owned).collect()
        };
        let text = series_text(&set(&[("__name__", "up"), ("job", "a\"b")]));
        assert_eq!(text, r#"up{job="a\"b"}"#);
        assert_eq!(series_text(&set(&[("__name__", "up")])), "up");
        assert_eq!(series_text(&set(&[])), "{}");
        let text = series_text(&set(&[("__name__", "a.b"), ("c.d", "e")]));
        assert_eq!(text, r#"{"a.b", "c.d"="e"}"#);
    }
}
