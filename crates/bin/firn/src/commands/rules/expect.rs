//! Compares the results of rule tests with the expected ones, and formats the differences like
//! promtool.

use super::diff;
use super::suite::{AlertTest, ExpectedAlert, ExprTest};
use firn_model::go_float::format_scientific;
use firn_model::labels::{Labels, is_plain_name};
use firn_model::quote::quote;
use firn_model::units::format_duration;
use firn_promql::script::{format_for_rule_test, read_series};
use firn_promql::texts;
use firn_promql::value::{
    MatrixSeries, PromqlError, QueryPointValue, QueryResult, QueryValue, VectorElement,
};
use firn_rules::alert::{ALERT_NAME, Annotations};
use std::fmt::Write;

/// Labels and annotations of an alert, as they are compared. Alerts cannot have a label with an
/// empty value, so that labels are pairs of texts like annotations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AlertLabels {
    /// Labels of the alert, sorted by name.
    labels: Annotations,
    annotations: Annotations,
}

impl AlertLabels {
    pub(super) fn new(labels: &Labels, annotations: &Annotations) -> Self {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let labels = labels.iter();
        Self {
            labels: labels
                .map(|(name, value)| (name.to_owned(), text(value)))
                .collect(),
            annotations: annotations.clone(),
        }
    }

    fn expected(name: &str, alert: &ExpectedAlert) -> Self {
        let own = alert.labels.iter().filter(|(name, _)| name != ALERT_NAME);
        let name = (ALERT_NAME.to_owned(), name.to_owned());
        let mut labels: Annotations = own.cloned().chain([name]).collect();
        labels.sort();
        Self {
            labels,
            annotations: alert.annotations.clone(),
        }
    }
}

/// Compares the firing alerts of a name with the expected ones. Returns a text if they differ.
pub(super) fn check_alerts(
    test_name: &str,
    test: &AlertTest,
    mut found: Vec<AlertLabels>,
    shows_diff: bool,
) -> Option<String> {
    let expected = test.expected.iter();
    let mut expected: Vec<AlertLabels> = expected
        .map(|alert| AlertLabels::expected(&test.name, alert))
        .collect();
    expected.sort();
    found.sort();
    if expected == found {
        return None;
    }
    let of_test = match test_name {
        "" => String::new(),
        name => format!("    name: {name},\n"),
    };
    let (name, time) = (&test.name, format_duration(test.eval_time));
    let head = format!("{of_test}    alertname: {name}, time: {time}, \n");
    const INDENT: &str = "            ";
    if shows_diff {
        let diff = diff::compare(&json(&expected), &json(&found))?;
        return Some(format!("{head}        diff: {}", indented(&diff, INDENT)));
    }
    Some(format!(
        "{head}        exp:{}, \n        got:{}",
        indented(&shown_alerts(&expected), INDENT),
        indented(&shown_alerts(&found), INDENT)
    ))
}

/// Converts alerts into JSON. An empty list is printed as one empty alert, as in promtool.
fn json(alerts: &[AlertLabels]) -> serde_json::Value {
    let nothing = AlertLabels {
        labels: Vec::new(),
        annotations: Vec::new(),
    };
    let alerts = match alerts {
        [] => std::slice::from_ref(&nothing),
        alerts => alerts,
    };
    let texts = |texts: &Annotations| -> serde_json::Map<_, _> {
        let texts = texts.iter().cloned();
        texts.map(|(name, text)| (name, text.into())).collect()
    };
    let object = |alert: &AlertLabels| {
        let (labels, annotations) = (texts(&alert.labels), texts(&alert.annotations));
        serde_json::json!({ "Labels": labels, "Annotations": annotations })
    };
    alerts.iter().map(object).collect()
}

/// Returns `text` with `indent` before all lines except the first.
fn indented(text: &str, indent: &str) -> String {
    text.replace('\n', &format!("\n{indent}"))
}

fn shown_alerts(alerts: &[AlertLabels]) -> String {
    if alerts.is_empty() {
        return "[]".into();
    }
    let shown = alerts.iter().enumerate().map(|(i, alert)| {
        let text = format!(
            "\nLabels:{}\nAnnotations:{}",
            shown_texts(&alert.labels),
            shown_texts(&alert.annotations)
        );
        format!("{i}:{}", indented(&text, "  "))
    });
    let shown: Vec<String> = shown.collect();
    format!("[\n{}\n]", shown.join(",\n"))
}

/// Formats pairs of texts like a label set of upstream.
fn shown_texts(texts: &Annotations) -> String {
    let shown = texts.iter().map(|(name, text)| {
        let quoted = (!is_plain_name(name)).then(|| quote(name.as_bytes()));
        let name = quoted.as_deref().unwrap_or(name);
        format!("{name}={}", quote(text.as_bytes()))
    });
    let shown: Vec<String> = shown.collect();
    format!("{{{}}}", shown.join(", "))
}

/// A sample in the form in which it is compared: labels, and a float or the text of a histogram.
#[derive(Clone, Debug, PartialEq)]
struct ComparableSample {
    labels: Labels,
    value: f64,
    histogram: String,
}

impl ComparableSample {
    fn format_sample(&self) -> String {
        match self.histogram.as_str() {
            "" => format!(
                "{} {}",
                self.labels,
                format_scientific(self.value).replace('e', "E")
            ),
            histogram => format!("{} {histogram}", self.labels),
        }
    }

    fn equals(&self, other: &Self, is_fuzzy: bool) -> bool {
        let (a, b) = (self.value, other.value);
        let is_near = is_fuzzy && (a.next_down() == b || a.next_up() == b);
        self.labels == other.labels && self.histogram == other.histogram && (a == b || is_near)
    }
}

/// Compares the result of an expression with the expected one. Returns a text if they differ.
pub(super) fn check_expr(
    test: &ExprTest,
    found: Result<QueryResult, PromqlError>,
    is_fuzzy: bool,
) -> Option<String> {
    let (expr, time) = (quote(test.expr.as_bytes()), format_duration(test.eval_time));
    let failed =
        |why: &dyn std::fmt::Display| Some(format!("    expr: {expr}, time: {time}, err: {why}"));
    let vector = match found.map(|result| result.value) {
        Ok(QueryValue::Vector(vector)) => vector,
        Ok(QueryValue::Scalar(time, value)) => vec![VectorElement {
            labels: Labels::empty(),
            time,
            value: QueryPointValue::Float(value),
        }],
        Ok(_) => return failed(&"rule result is not a vector or scalar"),
        Err(e) => return failed(&e),
    };
    let mut found: Vec<ComparableSample> = vector.into_iter().map(found_sample).collect();
    let expected = test.expected.iter().map(|sample| {
        let read = expected_sample(&sample.labels, sample.value, &sample.histogram);
        read.map_err(|e| format!("labels {}: {e}", quote(sample.labels.as_bytes())))
    });
    let mut expected: Vec<ComparableSample> = match expected.collect() {
        Ok(expected) => expected,
        Err::<_, String>(e) => return failed(&e),
    };
    for samples in [&mut expected, &mut found] {
        samples.sort_by(|a, b| a.labels.cmp(&b.labels));
    }
    let mut pairs = expected.iter().zip(&found);
    if expected.len() == found.len() && pairs.all(|(a, b)| a.equals(b, is_fuzzy)) {
        return None;
    }
    Some(format!(
        "    expr: {expr}, time: {time},\n        exp: {}\n        got: {}",
        shown_samples(&expected),
        shown_samples(&found)
    ))
}

fn found_sample(element: VectorElement) -> ComparableSample {
    let (value, histogram) = match element.value {
        QueryPointValue::Float(value) => (value, String::new()),
        QueryPointValue::Histogram(histogram) => (0.0, format_for_rule_test(&histogram)),
    };
    ComparableSample {
        labels: element.labels,
        value,
        histogram,
    }
}

fn expected_sample(labels: &str, value: f64, histogram: &str) -> Result<ComparableSample, String> {
    let labels = match labels.trim() {
        "" => Labels::empty(),
        labels => read_series(labels)?.0,
    };
    let histogram = match histogram {
        "" => String::new(),
        text => {
            let (_, values) = read_series(&format!("{{}} {text}"))?;
            match &values[..] {
                [Some(QueryPointValue::Histogram(histogram))] => format_for_rule_test(histogram),
                [Some(QueryPointValue::Float(value))] => {
                    let value = if value.is_finite() {
                        format!("{value:.6}")
                    } else {
                        texts::format_decimal(*value)
                    };
                    return Err(format!("expected histogram, got {value}"));
                }
                [None] => return Err("expected histogram, got _".into()),
                values => return Err(format!("expected 1 value, got {}", values.len())),
            }
        }
    };
    Ok(ComparableSample {
        labels,
        value,
        histogram,
    })
}

fn shown_samples(samples: &[ComparableSample]) -> String {
    if samples.is_empty() {
        return "nil".into();
    }
    let shown: Vec<String> = samples
        .iter()
        .map(ComparableSample::format_sample)
        .collect();
    shown.join(", ")
}

/// Formats all samples of a matrix, one per line below the labels of their series.
pub(super) fn shown_matrix(matrix: &[MatrixSeries]) -> String {
    let mut out = String::new();
    for series in matrix {
        let _ = writeln!(out, "{} =>", series.labels);
        let floats = series
            .floats
            .iter()
            .map(|(t, v)| (*t, texts::format_decimal(*v)));
        let histograms = series.histograms.iter();
        let histograms = histograms.map(|(t, h)| (*t, texts::format_histogram(h)));
        let mut points: Vec<(i64, String)> = floats.chain(histograms).collect();
        points.sort_by_key(|(time, _)| *time);
        for (time, value) in points {
            let _ = writeln!(out, "{value} @[{time}]");
        }
    }
    out.trim_end().to_owned()
}
