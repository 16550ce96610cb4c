//! Metrics in the text format as families: what `check metrics` looks at and `push metrics` sends.
//!
//! Samples of a classic histogram or summary belong to the family without their suffix, and those
//! with the same other labels to one of its metrics.

use firn_model::go_float::shortest;
use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;
use firn_wire::exposition::{Event, Field, Format, LabelPairs, Parser, Switches, Value};
use std::collections::BTreeMap;

/// Labels by name, the metric's name left out.
pub(super) type LabelMap = BTreeMap<String, String>;

/// A family.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// Its type, if the text says one.
    pub(super) kind: MetricType,
    /// Its help, if the text has one.
    pub(super) help: Option<String>,
    /// Its metrics, in the order of the text; a sample each, but for histograms and summaries.
    pub(super) metrics: Vec<Metric>,
}

/// A metric: its labels but `le` or `quantile`, and its samples.
#[derive(Debug)]
pub(super) struct Metric {
    /// The labels.
    pub(super) labels: LabelMap,
    /// The samples.
    pub(super) samples: Vec<Sample>,
}

/// A sample.
#[derive(Debug)]
pub(super) struct Sample {
    /// The name that stands in the text.
    pub(super) name: String,
    /// The label that sets it apart in a histogram or a summary.
    pub(super) part: Option<(&'static str, String)>,
    /// The time, if the text has one.
    pub(super) time: Option<TimestampMs>,
    /// The value.
    pub(super) value: f64,
}

/// Families by name.
pub(super) type Families = BTreeMap<String, Family>;

/// Reads a text; fails with what to tell the user.
pub(super) fn read(text: &[u8]) -> Result<Families, String> {
    let mut parser = Parser::new(Format::Text, text, Switches::default());
    let mut families = Families::new();
    let mut pairs = LabelPairs::default();
    let told = |e: firn_wire::exposition::ParseError| format!("text format parsing error: {e}");
    while parser.advance().map_err(told)? {
        match parser.event() {
            Event::Metadata(metadata) => {
                let name = String::from_utf8_lossy(metadata.name).into_owned();
                let family = families.entry(name).or_default();
                match metadata.field {
                    Field::Type(kind) => family.kind = kind,
                    Field::Help(help) => {
                        family.help = Some(String::from_utf8_lossy(&help).into_owned());
                    }
                    Field::Unit(_) => {}
                }
            }
            Event::Sample(sample) => {
                let (time, value) = (sample.time, sample.value);
                let Value::Float(value) = value else {
                    continue;
                };
                parser.labels(&mut pairs).map_err(told)?;
                take(&mut families, &pairs, time, value);
            }
        }
    }
    families.retain(|_, family| !family.metrics.is_empty());
    Ok(families)
}

fn take(families: &mut Families, pairs: &LabelPairs, time: Option<TimestampMs>, value: f64) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut labels: LabelMap = pairs.iter().map(|(n, v)| (text(n), text(v))).collect();
    let name = labels.remove("__name__").unwrap_or_default();
    let (family, part) = family_of(families, &name);
    let part = part.and_then(|part| Some((part, bound(&labels.remove(part)?))));
    let family = families.entry(family).or_default();
    let is_compound = matches!(family.kind, MetricType::Histogram | MetricType::Summary);
    let known = match is_compound {
        true => family.metrics.iter_mut().find(|m| m.labels == labels),
        false => None,
    };
    let sample = Sample {
        name,
        part,
        time,
        value,
    };
    match known {
        Some(metric) => metric.samples.push(sample),
        None => family.metrics.push(Metric {
            labels,
            samples: vec![sample],
        }),
    }
}

/// A bound or a quantile as a sender writes it: the reader made `1.0` of `1`.
fn bound(text: &str) -> String {
    let number = text.parse::<f64>();
    number.map_or_else(|_| text.to_owned(), shortest)
}

/// The family of a sample's name, and the label that sets the sample apart in it.
fn family_of(families: &Families, name: &str) -> (String, Option<&'static str>) {
    for suffix in ["_bucket", "_sum", "_count"] {
        let Some(stem) = name.strip_suffix(suffix) else {
            continue;
        };
        match families.get(stem).map(|family| family.kind) {
            Some(MetricType::Histogram) => return (stem.to_owned(), Some("le")),
            Some(MetricType::Summary) if suffix != "_bucket" => return (stem.to_owned(), None),
            _ => {}
        }
    }
    let is_summary = |family: &Family| family.kind == MetricType::Summary;
    let part = families
        .get(name)
        .is_some_and(is_summary)
        .then_some("quantile");
    (name.to_owned(), part)
}
