//! Writes the metrics of this process as protocol buffers, which alone can show native histograms.
//!
//! ```text
//! body = { length | family }*                     io.prometheus.client.MetricFamily
//! family = name(1) | help(2) | type(3) | metric(4)*
//! metric = label(1)* | gauge(2) or counter(3) or histogram(7)
//! ```

use crate::protobuf::{
    WireType, put_bytes, put_double, put_integer, put_key, put_varint, to_zigzag,
};
use firn_model::histogram::{Counts, Span};
use firn_model::metrics::{DURATION_BOUNDS_SECONDS, DurationHistogram, Sink, Value};

/// The media type of what [`FamilySink`] writes.
pub const FAMILIES_CONTENT_TYPE: &str = "application/vnd.google.protobuf; \
     proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Numbers of the types of families (`io.prometheus.client.MetricType`).
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;
const HISTOGRAM: u64 = 4;

/// Collects metrics as families. All metrics of one name must come one after the other.
#[derive(Debug, Default)]
pub struct FamilySink {
    body: Vec<u8>,
    name: String,
    family: Vec<u8>,
}

impl FamilySink {
    /// A sink without families.
    pub fn new() -> Self {
        Self::default()
    }

    /// The exposition.
    pub fn into_body(mut self) -> Vec<u8> {
        self.end_family();
        self.body
    }

    fn end_family(&mut self) {
        if !self.family.is_empty() {
            put_varint(&mut self.body, self.family.len() as u64);
            self.body.append(&mut self.family);
        }
    }

    /// Writes name, help and type before the first metric of a family.
    fn head(&mut self, name: &str, help: &str, kind: u64) {
        if self.name == name {
            return;
        }
        self.end_family();
        name.clone_into(&mut self.name);
        put_bytes(&mut self.family, 1, name.as_bytes());
        put_bytes(&mut self.family, 2, help.as_bytes());
        put_integer(&mut self.family, 3, kind);
    }
}

impl Sink for FamilySink {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Value<'_>) {
        let (kind, field) = match value {
            Value::Counter(_) => (COUNTER, 3),
            Value::Gauge(_) => (GAUGE, 2),
            Value::Histogram(_) => (HISTOGRAM, 7),
        };
        self.head(name, help, kind);
        let mut metric = Vec::new();
        for (name, value) in labels {
            let mut pair = Vec::new();
            put_bytes(&mut pair, 1, name.as_bytes());
            put_bytes(&mut pair, 2, value.as_bytes());
            put_bytes(&mut metric, 1, &pair);
        }
        let mut message = Vec::new();
        match value {
            Value::Counter(value) | Value::Gauge(value) => put_double(&mut message, 1, value),
            Value::Histogram(histogram) => put_histogram(&mut message, histogram),
        }
        put_bytes(&mut metric, field, &message);
        put_bytes(&mut self.family, 4, &metric);
    }
}

/// Both forms in one message: classic buckets, and native ones.
fn put_histogram(out: &mut Vec<u8>, histogram: &DurationHistogram) {
    let native = histogram.native();
    let Counts::Integer {
        count,
        zero_count,
        positive,
        ..
    } = &native.counts
    else {
        return;
    };
    put_integer(out, 1, *count);
    put_double(out, 2, native.sum);
    let mut total = 0;
    for (bound, count) in DURATION_BOUNDS_SECONDS
        .into_iter()
        .zip(histogram.bucket_counts())
    {
        total += count;
        let mut bucket = Vec::new();
        put_integer(&mut bucket, 1, total);
        put_double(&mut bucket, 2, bound);
        put_bytes(out, 3, &bucket);
    }
    put_integer(out, 5, to_zigzag(native.schema.into()));
    put_double(out, 6, native.zero_threshold);
    put_integer(out, 7, *zero_count);
    for span in &native.positive_spans {
        put_span(out, *span);
    }
    for delta in positive {
        put_key(out, 13, WireType::Varint);
        put_varint(out, to_zigzag(*delta));
    }
}

fn put_span(out: &mut Vec<u8>, span: Span) {
    let mut message = Vec::new();
    put_integer(&mut message, 1, to_zigzag(span.offset.into()));
    put_integer(&mut message, 2, span.length.into());
    put_bytes(out, 12, &message);
}
