//! Expositions as exporters write them, and as they should not.

mod batch;
mod format;
mod number;
mod text;

use super::*;
use firn_model::quote::quote;
use std::fmt::Write;

/// What a body is read as: one line an event, then the error if there is one.
fn read(format: Format, body: &[u8], switches: Switches) -> String {
    let mut out = String::new();
    let mut parser = Parser::new(format, body, switches);
    let mut pairs = LabelPairs::default();
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
            Event::Metadata(metadata) => writeln!(out, "{}", show_metadata(&metadata)),
            Event::Sample(sample) => match parser.labels(&mut pairs) {
                Ok(()) => writeln!(out, "{}", show_sample(&sample, &pairs)),
                Err(e) => writeln!(out, "error: {e}"),
            },
        };
    }
}

fn show_metadata(metadata: &Metadata<'_>) -> String {
    let name = String::from_utf8_lossy(metadata.name);
    match &metadata.field {
        Field::Type(kind) => format!("type {name} {}", kind.name()),
        Field::Help(text) => format!("help {name} {}", quote(text)),
        Field::Unit(unit) => format!("unit {name} {}", quote(unit)),
    }
}

fn show_sample(sample: &Sample<'_>, pairs: &LabelPairs) -> String {
    let labels: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), quote(value)))
        .collect();
    let mut out = format!("{{{}}}", labels.join(", "));
    let _ = match sample.value {
        Value::Float(value) => write!(out, " {value}"),
        Value::Histogram(histogram) => write!(out, " {histogram:?}"),
    };
    if let Some(time) = sample.time {
        let _ = write!(out, " @{time}");
    }
    if let Some(start) = sample.start {
        let _ = write!(out, " since {start}");
    }
    out
}
