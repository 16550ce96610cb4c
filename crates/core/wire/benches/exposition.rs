//! Measures the cost of parsing a scraped body in each format: with all labels decoded, and with
//! every series at its expected position, as in all scrapes of a target except for the first.
//!
//! The body has 2,000 series in families of 20, half counters and half gauges, with three labels
//! each. Prints nanoseconds for each sample, the best of many rounds, because slower rounds are
//! caused by other load on the machine.

use firn_wire::exposition::{
    ExpositionEvent, ExpositionFormat, ExpositionParser, ExpositionValue, LabelPairs, ParseError,
    ParserSwitches,
};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

const FAMILIES: usize = 100;
const SERIES: usize = 20;
const ROUNDS: usize = 300;

/// Returns the name, whether it is a counter, and the samples (device, mode, value) of family `i`.
fn family(i: usize) -> (String, bool, Vec<(String, String, f64)>) {
    let is_counter = i.is_multiple_of(2);
    let suffix = if is_counter { "_total" } else { "" };
    let samples = (0..SERIES).map(|k| {
        let value = if is_counter {
            (i * 7919 * (k + 1) % 1_000_003) as f64
        } else {
            (i * 31 + k) as f64 / 8.0
        };
        (format!("/dev/disk{k}"), format!("mode-{}", k % 4), value)
    });
    (
        format!("node_family_{i}_bytes{suffix}"),
        is_counter,
        samples.collect(),
    )
}

/// Returns the body in a text format; OpenMetrics ends with `# EOF`.
fn text(is_open_metrics: bool) -> String {
    let mut page = String::new();
    for i in 0..FAMILIES {
        let (name, is_counter, samples) = family(i);
        let kind = if is_counter { "counter" } else { "gauge" };
        let family = if is_open_metrics {
            name.trim_end_matches("_total")
        } else {
            &name
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "# HELP {family} Bytes of family {i}.\n# TYPE {family} {kind}"
        );
        for (device, mode, value) in samples {
            let labels = format!("device=\"{device}\",fstype=\"ext4\",mode=\"{mode}\"");
            let _ = writeln!(page, "{name}{{{labels}}} {value:?}");
        }
    }
    if is_open_metrics {
        page += "# EOF\n";
    }
    page
}

fn put(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

/// Returns the body in the protobuf format.
fn protobuf() -> Vec<u8> {
    let mut page = Vec::new();
    for i in 0..FAMILIES {
        let (name, is_counter, samples) = family(i);
        let mut message = Vec::new();
        put(&mut message, 1, name.as_bytes());
        put(&mut message, 2, format!("Bytes of family {i}.").as_bytes());
        message.extend_from_slice(&[3 << 3, u8::from(!is_counter)]);
        for (device, mode, value) in samples {
            let mut metric = Vec::new();
            for (name, value) in [("device", &*device), ("fstype", "ext4"), ("mode", &mode)] {
                let mut label = Vec::new();
                put(&mut label, 1, name.as_bytes());
                put(&mut label, 2, value.as_bytes());
                put(&mut metric, 1, &label);
            }
            let number = [&[1 << 3 | 1][..], &value.to_le_bytes()].concat();
            put(&mut metric, if is_counter { 3 } else { 2 }, &number);
            put(&mut message, 4, &metric);
        }
        let mut delimited = Vec::new();
        put(&mut delimited, 0, &message);
        // Only the length precedes a message.
        page.extend_from_slice(&delimited[1..]);
    }
    page
}

/// Parses the body and returns the sum of its values; `keys` are those of the previous body.
fn read(
    format: ExpositionFormat,
    page: &[u8],
    keys: Option<&[Vec<u8>]>,
    pairs: &mut LabelPairs,
) -> Result<f64, ParseError> {
    let mut parser = ExpositionParser::new(format, page, ParserSwitches::default());
    let (mut sum, mut at) = (0.0, 0);
    loop {
        let expected = keys
            .and_then(|keys| keys.get(at))
            .map_or(&[][..], |key| key);
        if !parser.advance_expecting(expected)? {
            return Ok(sum);
        }
        if let ExpositionEvent::Sample(sample) = parser.event() {
            at += 1;
            if let ExpositionValue::Float(value) = sample.value {
                sum += value;
            }
            if !sample.is_expected {
                parser.labels(pairs)?;
            }
        }
    }
}

fn keys(format: ExpositionFormat, page: &[u8]) -> Result<Vec<Vec<u8>>, ParseError> {
    let mut parser = ExpositionParser::new(format, page, ParserSwitches::default());
    let mut keys = Vec::new();
    while parser.advance()? {
        if let ExpositionEvent::Sample(sample) = parser.event() {
            keys.push(sample.key.to_vec());
        }
    }
    Ok(keys)
}

/// Returns the best time of `work` over many rounds, in nanoseconds for each sample.
fn best(mut work: impl FnMut() -> Result<f64, ParseError>) -> std::io::Result<f64> {
    let mut best = u128::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let sum = work().map_err(std::io::Error::other)?;
        best = best.min(started.elapsed().as_nanos());
        assert!(sum > 0.0, "the page was read");
    }
    Ok(best as f64 / (FAMILIES * SERIES) as f64)
}

fn main() -> std::io::Result<()> {
    let pages = [
        (
            "text 0.0.4",
            ExpositionFormat::Text,
            text(false).into_bytes(),
        ),
        (
            "OpenMetrics",
            ExpositionFormat::OpenMetrics,
            text(true).into_bytes(),
        ),
        ("protocol buffers", ExpositionFormat::Protobuf, protobuf()),
    ];
    let mut out = std::io::stdout();
    let mut pairs = LabelPairs::default();
    for (name, format, page) in &pages {
        let keys = keys(*format, page).map_err(std::io::Error::other)?;
        assert_eq!(keys.len(), FAMILIES * SERIES, "{name}");
        let unknown = best(|| read(*format, page, None, &mut pairs))?;
        let known = best(|| read(*format, page, Some(&keys), &mut pairs))?;
        writeln!(
            out,
            "{name}: {} B a sample; ns a sample: {unknown:.1} with labels, {known:.1} where \
             expected",
            page.len() / keys.len()
        )?;
    }
    Ok(())
}
