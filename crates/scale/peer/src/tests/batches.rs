//! Random batches, and texts with all bits of a batch.

use crate::bytes::push_f64;
use crate::frames::histogram::push_histogram;
use firn_model::batch::{Batch, HistogramSample};
use firn_model::columns::SeriesBatch;
use firn_model::env::sim::SimRng;
use firn_model::exemplar::TimedExemplar;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::labels::Labels;
use firn_model::sample::stale_nan;
use firn_wire::remote_write::KEY_FORMAT;

/// The time around which random samples are.
pub(super) const NOW: i64 = 1_700_000_000_000;

/// Returns the labels of series `number`.
pub(super) fn labels(number: u64) -> Labels {
    let mut pairs = vec![
        ("__name__", format!("metric_{}", number % 5)),
        ("instance", format!("host-{number}:9100")),
    ];
    if number.is_multiple_of(3) {
        pairs.push(("long", "v".repeat(200)));
    }
    Labels::from_pairs(pairs)
}

/// Returns a value with unusual bits in some cases.
pub(super) fn random_value(rng: &SimRng) -> f64 {
    match rng.next_below(8) {
        0 => stale_nan(),
        1 => f64::from_bits(0x7ff8_0000_0000_1234),
        2 => -0.0,
        3 => f64::NEG_INFINITY,
        n => n as f64 * 0.1,
    }
}

/// Returns a histogram whose spans cover its buckets.
pub(super) fn random_histogram(rng: &SimRng) -> Histogram {
    let spans = |count: u64| -> Vec<BucketSpan> {
        let span = |n: u64| BucketSpan {
            offset: n as i32 - 1,
            length: 1 + n as u32,
        };
        (0..count).map(span).collect()
    };
    let (positive_spans, negative_spans) = (spans(rng.next_below(4)), spans(rng.next_below(3)));
    let covered = |spans: &[BucketSpan]| spans.iter().map(|span| span.length as usize).sum();
    let (positive, negative): (usize, usize) = (covered(&positive_spans), covered(&negative_spans));
    let counts = if rng.one_in(2) {
        // Each bucket has one observation.
        let deltas = |count: usize| (0..count).map(|i| i64::from(i == 0)).collect();
        HistogramCounts::Integer {
            count: (positive + negative) as u64 + 3,
            zero_count: 3,
            positive: deltas(positive),
            negative: deltas(negative),
        }
    } else {
        HistogramCounts::Float {
            count: 1.0 + (positive + negative) as f64,
            zero_count: 1.0,
            positive: vec![1.0; positive],
            negative: vec![1.0; negative],
        }
    };
    let hints = [ResetHint::Unknown, ResetHint::Reset, ResetHint::Gauge];
    Histogram {
        reset_hint: hints[rng.next_below(3) as usize],
        schema: rng.next_below(12) as i32 - 4,
        zero_threshold: 0.001,
        sum: [3.5, stale_nan()][rng.next_below(2) as usize],
        counts,
        positive_spans,
        negative_spans,
        custom_values: Vec::new(),
    }
}

/// The form in which a random batch has the labels of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyForm {
    Decoded,
    Canonical,
    Reversed,
}

/// Returns a batch with some of `series` series, in ascending order of their numbers.
pub(super) fn random_batch(rng: &SimRng, series: u64, now: i64) -> Batch {
    let mut batch = Batch::default();
    let mut message = batch.take_message();
    let has_starts = rng.one_in(3);
    for number in 0..series {
        if rng.one_in(3) {
            continue;
        }
        push_samples(rng, &mut batch, has_starts, now);
        let forms = [KeyForm::Decoded, KeyForm::Canonical, KeyForm::Reversed];
        let form = forms[rng.next_below(3) as usize];
        end_series(&mut batch, &mut message, &labels(number), form);
    }
    batch.put_message(message, KEY_FORMAT);
    batch.assert_complete();
    batch
}

fn push_samples(rng: &SimRng, batch: &mut Batch, has_starts: bool, now: i64) {
    for _ in 0..rng.next_below(4) {
        let time = now + rng.next_below(60_000) as i64 - 20_000;
        let value = random_value(rng);
        if has_starts {
            batch.push_float_with_start(time, value, time - 5);
        } else {
            batch.push_float(time, value);
        }
    }
    for _ in 0..rng.next_below(5).saturating_sub(2) {
        batch.push_histogram(HistogramSample {
            time: now + rng.next_below(60_000) as i64,
            start_time: rng.next_below(2) as i64,
            histogram: random_histogram(rng),
        });
    }
    for _ in 0..rng.next_below(4).saturating_sub(1) {
        let length = if rng.one_in(5) { 200 } else { 5 };
        batch.push_exemplar(TimedExemplar {
            labels: Labels::from_pairs([("trace_id", "x".repeat(length))]).as_ref(),
            value: random_value(rng),
            time: now + rng.next_below(60_000) as i64,
            has_own_time: rng.one_in(2),
        });
    }
}

/// Ends a series of `batch`, whose undecoded labels are appended to `message`.
pub(super) fn end_series(batch: &mut Batch, message: &mut Vec<u8>, labels: &Labels, form: KeyForm) {
    if form == KeyForm::Decoded {
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        return batch.end_series();
    }
    let start = message.len();
    let mut pairs: Vec<_> = labels.iter().collect();
    if form == KeyForm::Reversed {
        pairs.reverse();
    }
    for (name, value) in pairs {
        KEY_FORMAT.push_label(message, name.as_bytes(), value);
    }
    batch.end_unread_series(start..message.len());
}

fn histogram_bits(histogram: &Histogram) -> Vec<u8> {
    let mut bits = Vec::new();
    push_histogram(histogram, &mut bits);
    bits
}

fn float_bits(values: &[f64]) -> Vec<u8> {
    let mut bits = Vec::new();
    values.iter().for_each(|value| push_f64(*value, &mut bits));
    bits
}

/// Returns the series of a batch with all bits, without rejected ones.
pub(super) fn describe_batch(batch: &Batch) -> Vec<String> {
    let describe = |index: usize| {
        let series = batch.series(index);
        let values = float_bits(series.values);
        let histograms = series.histograms.iter().map(|sample| {
            let bits = histogram_bits(&sample.histogram);
            (sample.time, sample.start_time, bits)
        });
        let histograms: Vec<_> = histograms.collect();
        let exemplars = batch.exemplars().iter_series(index as u64);
        let exemplars = exemplars.map(|e| (e.labels, e.value.to_bits(), e.time, e.has_own_time));
        let exemplars: Vec<_> = exemplars.collect();
        let (times, starts) = (series.times, series.start_times);
        let labels = series.labels;
        format!("{labels} {times:?} {values:?} {starts:?} {histograms:?} {exemplars:?}")
    };
    let indexes = 0..batch.series_count();
    indexes
        .filter(|i| !batch.is_refused(*i))
        .map(describe)
        .collect()
}

/// Returns the series of a read with all bits.
pub(super) fn describe_columns(batch: &SeriesBatch) -> Vec<String> {
    let describe = |index: usize| {
        let series = batch.series(index);
        let values = float_bits(series.values);
        let histograms = series.histograms.iter();
        let histograms = histograms.map(|(at, histogram)| (*at, histogram_bits(histogram)));
        let histograms: Vec<_> = histograms.collect();
        let (times, starts) = (series.times, series.start_times);
        format!(
            "{} {times:?} {values:?} {starts:?} {histograms:?}",
            series.time_column
        )
    };
    (0..batch.len()).map(describe).collect()
}
