//! `/api/v1/status/self_metrics`: Firn's own metrics in JSON, in the format of upstream's protocol
//! buffers.

use super::call::ApiCall;
use super::status::run_and_respond;
use crate::http::failure::ApiFailure;
use axum::response::Response;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metrics::{
    DURATION_BOUNDS_SECONDS, DurationHistogram, MetricSink, MetricValue as Metric,
};
use serde_json::{Map, Value, json};

/// Returns the metrics whose name matches the parameter `metric_name_pattern`, sorted by name.
pub(crate) async fn self_metrics(call: ApiCall) -> Result<Response, ApiFailure> {
    let pattern = call.form.get("metric_name_pattern").to_owned();
    let app = call.app.clone();
    run_and_respond(&call, move |_| {
        let filter = match pattern.as_str() {
            "" => None,
            pattern => Some(name_filter(pattern)?),
        };
        let mut families = JsonFamilyCollector::default();
        app.collect(&mut families);
        let mut all = families.all;
        all.retain(|family| {
            let name = family["name"].as_str().unwrap_or_default();
            filter.as_ref().is_none_or(|f| f.matches(name.as_bytes()))
        });
        all.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        Ok(all)
    })
    .await
}

fn name_filter(pattern: &str) -> Result<Matcher, ApiFailure> {
    let read = |pattern: &str| Matcher::new("__name__", MatchOp::Regex, pattern.as_bytes());
    read(pattern).map_err(|e| {
        // Upstream's message contains the anchored pattern.
        let anchored = read(&format!("^(?:{pattern})$"));
        let message = anchored.err().unwrap_or(e).message;
        ApiFailure::bad_data(format!("invalid metric_name_pattern: {message}"))
    })
}

/// Collects metric families as JSON values, in the order in which they are reported.
#[derive(Default)]
struct JsonFamilyCollector {
    all: Vec<Value>,
}

impl MetricSink for JsonFamilyCollector {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Metric<'_>) {
        let (kind, key, value) = match value {
            Metric::Counter(value) => ("COUNTER", "counter", json!({ "value": number(value) })),
            Metric::Gauge(value) => ("GAUGE", "gauge", json!({ "value": number(value) })),
            Metric::Histogram(value) => ("HISTOGRAM", "histogram", histogram(value)),
        };
        let mut metric = Map::new();
        if !labels.is_empty() {
            let pair = |(name, value): &(&str, &str)| json!({ "name": name, "value": value });
            metric.insert("label".into(), labels.iter().map(pair).collect());
        }
        metric.insert(key.into(), value);
        let is_same = |family: &Value| family["name"] == name;
        if !self.all.last().is_some_and(is_same) {
            self.all
                .push(json!({ "name": name, "help": help, "type": kind, "metric": [] }));
        }
        if let Some(Value::Array(metrics)) = self.all.last_mut().map(|f| &mut f["metric"]) {
            metrics.push(metric.into());
        }
    }
}

/// Encodes a float. Values without JSON representation become strings.
fn number(value: f64) -> Value {
    match value {
        v if v.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        v => v.into(),
    }
}

/// Encodes a histogram. Counts are 64-bit integers, which protobuf JSON encodes as strings.
fn histogram(value: &DurationHistogram) -> Value {
    let mut total = 0;
    let bounds = DURATION_BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<_> = bounds
        .zip(value.bucket_counts())
        .map(|(bound, count)| {
            total += count;
            json!({ "cumulativeCount": total.to_string(), "upperBound": number(bound) })
        })
        .collect();
    json!({
        "sampleCount": total.to_string(),
        "sampleSum": number(value.sum_seconds()),
        "bucket": buckets,
    })
}
