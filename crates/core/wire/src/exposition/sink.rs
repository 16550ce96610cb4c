//! Writes the metrics of this process in the text format.

use firn_model::metrics::{DURATION_BOUNDS_SECONDS, DurationHistogram, MetricSink, MetricValue};
use std::fmt::Write;

/// The media type of the text that [`TextSink`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Collects metrics as text in the format 0.0.4. All lines of one metric name must be added
/// consecutively.
#[derive(Debug, Default)]
pub struct TextSink {
    text: String,
    name: String,
}

impl TextSink {
    /// Returns a sink without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the complete exposition.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Writes the help and type lines before the first line of a metric.
    fn write_head(&mut self, name: &str, help: &str, kind: &str) {
        if self.name == name {
            return;
        }
        name.clone_into(&mut self.name);
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        push_escaped(&mut self.text, help, false);
        self.text.push_str("\n# TYPE ");
        self.text.push_str(name);
        self.text.push(' ');
        self.text.push_str(kind);
        self.text.push('\n');
    }

    fn write_line(&mut self, name: &str, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let text = &mut self.text;
        text.push_str(name);
        text.push_str(suffix);
        for (i, (name, value)) in labels.iter().enumerate() {
            text.push(if i == 0 { '{' } else { ',' });
            text.push_str(name);
            text.push_str("=\"");
            push_escaped(text, value, true);
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        text.push(' ');
        push_number(text, value);
        text.push('\n');
    }

    fn write_histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        histogram: &DurationHistogram,
    ) {
        let mut total = 0;
        let bounds = DURATION_BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        for (bound, count) in bounds.zip(histogram.bucket_counts()) {
            total += count;
            let mut le = String::new();
            push_number(&mut le, bound);
            let mut with_le = labels.to_vec();
            let at = with_le.partition_point(|(name, _)| *name < "le");
            with_le.insert(at, ("le", &le));
            self.write_line(name, "_bucket", &with_le, total as f64);
        }
        self.write_line(name, "_sum", labels, histogram.sum_seconds());
        self.write_line(name, "_count", labels, total as f64);
    }
}

impl MetricSink for TextSink {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
        match value {
            MetricValue::Counter(value) => {
                self.write_head(name, help, "counter");
                self.write_line(name, "", labels, value);
            }
            MetricValue::Gauge(value) => {
                self.write_head(name, help, "gauge");
                self.write_line(name, "", labels, value);
            }
            MetricValue::Histogram(histogram) => {
                self.write_head(name, help, "histogram");
                self.write_histogram(name, labels, histogram);
            }
        }
    }
}

fn push_escaped(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

/// Writes a number in the shortest form that parses to the same value.
fn push_number(out: &mut String, value: f64) {
    let magnitude = value.abs();
    // Writing to a string cannot fail.
    let _ = match value {
        v if v.is_nan() => out.write_str("NaN"),
        f64::INFINITY => out.write_str("+Inf"),
        f64::NEG_INFINITY => out.write_str("-Inf"),
        v if magnitude != 0.0 && !(1e-5..1e21).contains(&magnitude) => write!(out, "{v:e}"),
        v => write!(out, "{v}"),
    };
}
