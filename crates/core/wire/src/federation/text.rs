//! Encodes federated series in the text format 0.0.4.

use super::name::is_plain;
use super::{FederatedFamilyKind, FederatedSample, FederatedValue};
use firn_model::go_float::format_shortest;
use firn_model::histogram::{Histogram, bucket_indexes};
use firn_model::sample::TimestampMs;

/// Writes the `# TYPE` line of a family; both kinds of histograms have the same type.
pub(super) fn begin(out: &mut Vec<u8>, name: &str, kind: FederatedFamilyKind) {
    out.extend_from_slice(b"# TYPE ");
    push_name(out, name);
    out.extend_from_slice(match kind {
        FederatedFamilyKind::Untyped => b" untyped\n",
        FederatedFamilyKind::Histogram | FederatedFamilyKind::GaugeHistogram => b" histogram\n",
    });
}

/// Writes the lines of a sample: one for a float, several for a histogram.
pub(super) fn push(out: &mut Vec<u8>, name: &str, sample: &FederatedSample<'_>) {
    match sample.value {
        FederatedValue::Float(value) => {
            push_line(out, name, sample, None, value);
        }
        FederatedValue::Histogram(histogram) => {
            let counts = histogram.counts.to_floats();
            let bucket = format!("{name}_bucket");
            for (bound, count) in cumulative_buckets(histogram, &counts.positive) {
                push_line(out, &bucket, sample, Some(bound), count);
            }
            push_line(out, &bucket, sample, Some(f64::INFINITY), counts.count);
            push_line(out, &format!("{name}_sum"), sample, None, histogram.sum);
            push_line(out, &format!("{name}_count"), sample, None, counts.count);
        }
    }
}

/// Returns the bounds of custom buckets, each with its cumulative count of observations.
pub(super) fn cumulative_buckets<'a>(
    histogram: &'a Histogram,
    counts: &'a [f64],
) -> impl Iterator<Item = (f64, f64)> + 'a {
    let indexes = bucket_indexes(&histogram.positive_spans);
    let mut buckets = indexes.zip(counts).peekable();
    let mut total = 0.0;
    histogram
        .custom_values
        .iter()
        .zip(0i64..)
        .map(move |(bound, index)| {
            while let Some((_, count)) = buckets.next_if(|(at, _)| *at <= index) {
                total += count;
            }
            (*bound, total)
        })
}

fn push_line(
    out: &mut Vec<u8>,
    name: &str,
    sample: &FederatedSample<'_>,
    bound: Option<f64>,
    value: f64,
) {
    let mut separator = b'{';
    if is_plain(name) {
        out.extend_from_slice(name.as_bytes());
    } else {
        out.push(b'{');
        push_name(out, name);
        separator = b',';
    }
    for (name, value) in sample.labels {
        out.push(separator);
        separator = b',';
        push_name(out, name);
        out.extend_from_slice(b"=\"");
        push_escaped(out, value);
        out.push(b'"');
    }
    if let Some(bound) = bound {
        out.push(separator);
        separator = b',';
        out.extend_from_slice(b"le=\"");
        push_float(out, bound);
        out.push(b'"');
    }
    if separator == b',' {
        out.push(b'}');
    }
    out.push(b' ');
    push_float(out, value);
    out.push(b' ');
    push_time(out, sample.time);
    out.push(b'\n');
}

fn push_name(out: &mut Vec<u8>, name: &str) {
    if is_plain(name) {
        return out.extend_from_slice(name.as_bytes());
    }
    out.push(b'"');
    push_escaped(out, name.as_bytes());
    out.push(b'"');
}

fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' => out.extend_from_slice(b"\\\""),
            byte => out.push(*byte),
        }
    }
}

fn push_float(out: &mut Vec<u8>, value: f64) {
    match value {
        // Matches zero of either sign.
        0.0 => out.push(b'0'),
        value => out.extend_from_slice(format_shortest(value).as_bytes()),
    }
}

fn push_time(out: &mut Vec<u8>, time: TimestampMs) {
    out.extend_from_slice(time.to_string().as_bytes());
}
