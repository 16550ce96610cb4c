//! Writes the metrics of this process as protocol buffers, the only format that can expose native
//! histograms (`crate::families` has their layout).

use crate::families::{
    MEDIA_TYPE, ProtobufFamilyEncoder, ProtobufMetricType, field, put_set_integer, put_spans,
};
use crate::protobuf::{put_bytes, put_double, put_integer, to_zigzag};
use firn_model::histogram::HistogramCounts;
use firn_model::metrics::{DURATION_BOUNDS_SECONDS, DurationHistogram, MetricSink, MetricValue};

/// The media type of the bodies that [`FamilySink`] writes.
pub const FAMILIES_CONTENT_TYPE: &str = MEDIA_TYPE;

/// Collects metrics and encodes them as protobuf families. All metrics of one name must be added
/// consecutively. Native histograms are included beside classic buckets.
#[derive(Debug, Default)]
pub struct FamilySink {
    body: Vec<u8>,
    name: String,
    family: ProtobufFamilyEncoder,
}

impl FamilySink {
    /// Returns a sink without families.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the complete exposition, with the last family finished.
    pub fn into_body(mut self) -> Vec<u8> {
        self.family.finish(&mut self.body);
        self.body
    }

    /// Starts a new family if `name` differs from the current one, and finishes the current family.
    fn begin(&mut self, name: &str, help: &str, metric_type: ProtobufMetricType) {
        if self.name != name {
            self.family.finish(&mut self.body);
            name.clone_into(&mut self.name);
            self.family.begin(name, help, metric_type);
        }
    }
}

impl MetricSink for FamilySink {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
        let (metric_type, field) = match value {
            MetricValue::Counter(_) => (ProtobufMetricType::Counter, field::METRIC_COUNTER),
            MetricValue::Gauge(_) => (ProtobufMetricType::Gauge, field::METRIC_GAUGE),
            MetricValue::Histogram(_) => (ProtobufMetricType::Histogram, field::METRIC_HISTOGRAM),
        };
        self.begin(name, help, metric_type);
        let mut metric = Vec::new();
        for (name, value) in labels {
            self.family.put_label(&mut metric, name, value.as_bytes());
        }
        let mut message = Vec::new();
        match value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => {
                put_double(&mut message, field::VALUE, value);
            }
            MetricValue::Histogram(histogram) => put_histogram(&mut message, histogram),
        }
        put_bytes(&mut metric, field, &message);
        self.family.push(&metric);
    }
}

/// Writes a histogram in both forms into one message: classic buckets and native buckets.
fn put_histogram(out: &mut Vec<u8>, histogram: &DurationHistogram) {
    let native = histogram.to_native_histogram();
    let HistogramCounts::Integer {
        count,
        zero_count,
        positive,
        ..
    } = &native.counts
    else {
        return;
    };
    put_integer(out, field::COUNT, *count);
    put_double(out, field::SUM, native.sum);
    let mut total = 0;
    for (bound, count) in DURATION_BOUNDS_SECONDS
        .into_iter()
        .zip(histogram.bucket_counts())
    {
        total += count;
        let mut bucket = Vec::new();
        put_integer(&mut bucket, field::BUCKET_COUNT, total);
        put_double(&mut bucket, field::BUCKET_BOUND, bound);
        put_bytes(out, field::BUCKETS, &bucket);
    }
    put_integer(out, field::SCHEMA, to_zigzag(native.schema.into()));
    put_double(out, field::ZERO_THRESHOLD, native.zero_threshold);
    put_integer(out, field::ZERO_COUNT, *zero_count);
    put_spans(out, field::POSITIVE_SPANS, &native.positive_spans);
    for delta in positive {
        put_set_integer(out, field::POSITIVE_DELTAS, to_zigzag(*delta));
    }
}
