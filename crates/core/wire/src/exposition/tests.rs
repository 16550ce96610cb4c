//! Parses valid and invalid bodies in all formats.

mod convert;
mod format;
mod number;
mod openmetrics;
mod protobuf;
mod sink;
mod text;

use super::*;
use firn_model::env::sim::SimRng;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::quote::quote;
use std::fmt::Write;

/// Parses a body and formats one line for each event, then the error if there is one.
fn read(format: ExpositionFormat, body: &[u8], switches: ParserSwitches) -> String {
    let mut out = String::new();
    let mut parser = ExpositionParser::new(format, body, switches);
    let (mut pairs, mut exemplars) = (LabelPairs::default(), SampleExemplars::default());
    loop {
        match parser.advance() {
            Ok(true) => {}
            Ok(false) => return out,
            Err(e) => {
                let _ = writeln!(out, "error: {e}");
                return out;
            }
        }
        let _ = match parser.event() {
            ExpositionEvent::Metadata(metadata) => writeln!(out, "{}", show_metadata(&metadata)),
            ExpositionEvent::Sample(sample) => match parser.labels(&mut pairs) {
                Ok(()) => {
                    parser.exemplars(&mut exemplars);
                    let exemplars = show_exemplars(&exemplars);
                    writeln!(out, "{}{exemplars}", show_sample(&sample, &pairs))
                }
                Err(e) => writeln!(out, "error: {e}"),
            },
        };
    }
}

fn show_metadata(metadata: &ExpositionMetadata<'_>) -> String {
    let name = String::from_utf8_lossy(metadata.name);
    match &metadata.field {
        FamilyMetadataField::Type(kind) => format!("type {name} {}", kind.name()),
        FamilyMetadataField::Help(text) => format!("help {name} {}", quote(text)),
        FamilyMetadataField::Unit(unit) => format!("unit {name} {}", quote(unit)),
    }
}

fn show_histogram(histogram: &Histogram) -> String {
    let spans = |spans: &[BucketSpan]| -> String {
        let span = |span: &BucketSpan| format!("{}:{} ", span.offset, span.length);
        spans
            .iter()
            .map(span)
            .collect::<String>()
            .trim_end()
            .to_owned()
    };
    let Histogram {
        schema,
        zero_threshold: zero,
        sum,
        ..
    } = histogram;
    let (kind, counts) = match &histogram.counts {
        HistogramCounts::Integer {
            count,
            zero_count,
            positive,
            negative,
        } => (
            "integer",
            format!("count {count}, {zero_count} in {zero}, {positive:?}, {negative:?}"),
        ),
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => (
            "float",
            format!("count {count}, {zero_count} in {zero}, {positive:?}, {negative:?}"),
        ),
    };
    let gauge = match histogram.reset_hint {
        ResetHint::Gauge => "gauge ",
        _ => "",
    };
    let (positive, negative) = (
        spans(&histogram.positive_spans),
        spans(&histogram.negative_spans),
    );
    let bounds = &histogram.custom_values;
    format!("{gauge}{kind} schema {schema} sum {sum} {counts} ({positive}) ({negative}) {bounds:?}")
}

fn show_exemplars(exemplars: &SampleExemplars) -> String {
    let mut out = String::new();
    for exemplar in exemplars.iter() {
        let _ = write!(out, " # {} {}", exemplar.labels, exemplar.value);
        if let Some(time) = exemplar.time {
            let _ = write!(out, " @{time}");
        }
    }
    out
}

fn show_sample(sample: &ExpositionSample<'_>, pairs: &LabelPairs) -> String {
    let labels: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), quote(value)))
        .collect();
    let mut out = format!("{{{}}}", labels.join(", "));
    let _ = match sample.value {
        ExpositionValue::Float(value) => write!(out, " {value}"),
        ExpositionValue::Histogram(histogram) => write!(out, " {}", show_histogram(histogram)),
    };
    if let Some(time) = sample.time {
        let _ = write!(out, " @{time}");
    }
    if let Some(start) = sample.start {
        let _ = write!(out, " since {start}");
    }
    out
}

/// Parses a body with its own keys expected in the given order. Neither the events nor the labels
/// may depend on the expected keys.
fn read_expecting(format: ExpositionFormat, body: &[u8], keys: &[Vec<u8>]) -> (Vec<String>, usize) {
    let mut parser = ExpositionParser::new(format, body, ParserSwitches::default());
    let mut pairs = LabelPairs::default();
    let (mut shown, mut hits) = (Vec::new(), 0);
    let mut keys = keys.iter().cycle();
    let mut key: &[u8] = keys.next().map_or(b"", |key| key);
    loop {
        match parser.advance_expecting(key) {
            Ok(true) => {}
            Ok(false) => return (shown, hits),
            Err(e) => {
                shown.push(e.to_string());
                return (shown, hits);
            }
        }
        if let ExpositionEvent::Sample(sample) = parser.event() {
            assert_eq!(sample.is_expected, sample.key == key);
            hits += usize::from(sample.is_expected);
            parser.labels(&mut pairs).unwrap();
            shown.push(show_sample(&sample, &pairs));
            key = keys.next().map_or(b"", |key| key);
        }
    }
}

fn keys_of(format: ExpositionFormat, body: &[u8]) -> Vec<Vec<u8>> {
    let mut parser = ExpositionParser::new(format, body, ParserSwitches::default());
    let mut keys = Vec::new();
    while let Ok(true) = parser.advance() {
        if let ExpositionEvent::Sample(sample) = parser.event() {
            keys.push(sample.key.to_vec());
        }
    }
    keys
}

/// Parses bodies that differ from the valid one in a few places: the result must not depend on the
/// expected keys.
fn check_mutated(format: ExpositionFormat, sound: &str, switches: ParserSwitches) {
    let pieces = [
        "{", "}", "\"", "\\", ",", "=", "\n", " ", "#", "é", "\u{0}", "-", "9", "a", "\t",
        "# TYPE ",
    ];
    let keys = keys_of(format, sound.as_bytes());
    let seeds = std::env::var("FIRN_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok());
    for seed in 1..=seeds.unwrap_or(3_000) {
        let random = SimRng::new(seed);
        let mut body = sound.as_bytes().to_vec();
        for _ in 0..random.next_below(6) {
            let at = random.next_below(body.len() as u64 + 1) as usize;
            let piece = pieces[random.next_below(pieces.len() as u64) as usize].as_bytes();
            match random.next_below(4) {
                0 => body.truncate(at),
                1 if at < body.len() => body[at] ^= 1 << random.next_below(8),
                2 if at < body.len() => drop(body.remove(at)),
                _ => drop(body.splice(at..at, piece.iter().copied())),
            }
        }
        let (wanted, _) = read_expecting(format, &body, &[]);
        for keys in [&keys, &keys_of(format, &body)] {
            let (found, _) = read_expecting(format, &body, keys);
            assert_eq!(found, wanted, "seed {seed}");
        }
        read(format, &body, switches);
    }
}
