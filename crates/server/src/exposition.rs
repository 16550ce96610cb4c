//! `/metrics`: what all rooms collect, in Prometheus's text format.

use crate::json::{FloatForm, push_float};
use firn_model::metrics::{DURATION_BOUNDS_SECONDS, DurationHistogram, Sink, Value};

/// The format's content type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes metrics as text.
#[derive(Debug, Default)]
pub(crate) struct TextSink {
    out: Vec<u8>,
    /// The name whose header was written last.
    current: String,
}

impl TextSink {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    fn header(&mut self, name: &str, help: &str, kind: &str) {
        if self.current == name {
            return;
        }
        name.clone_into(&mut self.current);
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        for line in [
            format!("# HELP {name} {help}\n"),
            format!("# TYPE {name} {kind}\n"),
        ] {
            self.out.extend_from_slice(line.as_bytes());
        }
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[(&str, &str)], value: f64) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(suffix.as_bytes());
        let mut before = b'{';
        for (label, value) in labels {
            self.out.push(before);
            self.out.extend_from_slice(label.as_bytes());
            self.out.extend_from_slice(b"=\"");
            let escaped = value
                .replace('\\', r"\\")
                .replace('"', "\\\"")
                .replace('\n', r"\n");
            self.out.extend_from_slice(escaped.as_bytes());
            self.out.push(b'"');
            before = b',';
        }
        if before == b',' {
            self.out.push(b'}');
        }
        self.out.push(b' ');
        push_float(&mut self.out, value, FloatForm::Sample);
        self.out.push(b'\n');
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &DurationHistogram) {
        let mut total = 0;
        let bounds = DURATION_BOUNDS_SECONDS
            .iter()
            .copied()
            .chain([f64::INFINITY]);
        for (bound, count) in bounds.zip(histogram.bucket_counts()) {
            total += count;
            let mut text = Vec::new();
            push_float(&mut text, bound, FloatForm::Sample);
            let bound = String::from_utf8_lossy(&text);
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.sample(name, "_bucket", &labels, total as f64);
        }
        self.sample(name, "_sum", labels, histogram.sum_seconds());
        self.sample(name, "_count", labels, total as f64);
    }
}

impl Sink for TextSink {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Value<'_>) {
        match value {
            Value::Counter(value) => {
                self.header(name, help, "counter");
                self.sample(name, "", labels, value);
            }
            Value::Gauge(value) => {
                self.header(name, help, "gauge");
                self.sample(name, "", labels, value);
            }
            Value::Histogram(histogram) => {
                self.header(name, help, "histogram");
                self.histogram(name, labels, histogram);
            }
        }
    }
}
