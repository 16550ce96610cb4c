//! Prometheus's text exposition format, version 0.0.4: read from targets, written about ourselves.
//!
//! [`parse`] turns an exposition into a batch, with the labels of its target; [`TextSink`] writes
//! what the rooms of this process count. As in Prometheus one bad line fails the whole text: a
//! target that writes half a line may have lost the other half of its lines too.

mod line;
mod sink;
#[cfg(test)]
mod tests;

pub use sink::{CONTENT_TYPE, TextSink};

use crate::error::WireError;
use crate::limits::WireLimits;
use firn_model::batch::Batch;
use firn_model::labels::{Labels, METRIC_NAME, push_pair};
use firn_model::sample::TimestampMs;
use line::{Line, SeriesLine};
use std::borrow::Cow;

/// Put before the name of a scraped label that the target has too.
const EXPORTED: &str = "exported_";

/// How an exposition becomes a batch.
#[derive(Clone, Debug)]
pub struct ParseOptions {
    /// Labels that every series gets.
    pub target_labels: Labels,
    /// Whether a scraped label wins over the target's of the same name. If not, it is kept as
    /// `exported_<name>`.
    pub honor_labels: bool,
    /// Whether times that stand in the text count.
    pub honor_timestamps: bool,
    /// The time of samples for which the text has none that counts.
    pub time: TimestampMs,
    /// Caps on labels and memory.
    pub limits: WireLimits,
}

/// What a metric is, as its target says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The name of the metric family.
    pub name: String,
    /// `counter`, `gauge`, `histogram`, `summary`, `unknown`; empty if not said.
    pub kind: &'static str,
    /// A sentence for people.
    pub help: String,
    /// The unit of its values.
    pub unit: String,
}

/// What an exposition held besides the samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposition {
    /// Metadata in the order of the text, one entry for neighbouring lines about one family.
    pub metadata: Vec<Metadata>,
    /// Numbers of the series, in the batch, whose time stood in the text; increasing.
    pub with_own_time: Vec<usize>,
}

/// Reads `text` and adds a series to `batch` for each of its samples. Fails at the first line that
/// cannot be read; the batch then holds the lines before.
pub fn parse(
    text: &[u8],
    options: &ParseOptions,
    batch: &mut Batch,
) -> Result<Exposition, WireError> {
    let mut exposition = Exposition::default();
    for (number, bytes) in text.split(|byte| *byte == b'\n').enumerate() {
        let at_line = |message: String| WireError::Exposition {
            line: number + 1,
            message,
        };
        match line::read(bytes).map_err(at_line)? {
            Line::Nothing => {}
            Line::Kind(name, kind) => exposition.family(name).kind = kind,
            Line::Help(name, help) => exposition.family(name).help = help,
            Line::Unit(name, unit) => exposition.family(name).unit = unit,
            Line::Series(series) => {
                let own_time = series.time.filter(|_| options.honor_timestamps);
                if own_time.is_some() {
                    exposition.with_own_time.push(batch.series_count());
                }
                push_labels(&series, options, batch.label_bytes()).map_err(at_line)?;
                batch.push_float(own_time.unwrap_or(options.time), series.value);
                batch.end_series();
            }
        }
        let limit = options.limits.batch_bytes_max;
        if batch.memory_bytes() + exposition.memory_bytes() > limit {
            return Err(WireError::TooManySamples { limit });
        }
    }
    Ok(exposition)
}

impl Exposition {
    /// The entry of `name`: lines about one family follow each other.
    fn family(&mut self, name: &str) -> &mut Metadata {
        if self.metadata.last().is_none_or(|last| last.name != name) {
            self.metadata.push(Metadata {
                name: name.to_owned(),
                ..Metadata::default()
            });
        }
        let last = self.metadata.len() - 1;
        &mut self.metadata[last]
    }

    fn memory_bytes(&self) -> usize {
        self.metadata.capacity() * size_of::<Metadata>()
    }
}

type Pair<'t> = (Cow<'t, str>, Cow<'t, str>);

/// Writes the labels of a series and its target in canonical form.
fn push_labels(
    series: &SeriesLine<'_>,
    options: &ParseOptions,
    arena: &mut Vec<u8>,
) -> Result<(), String> {
    let limits = &options.limits;
    let mut pairs: Vec<Pair<'_>> = series.labels.clone();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some(twice) = pairs.windows(2).find(|w| w[0].0 == w[1].0) {
        return Err(format!("label name {:?} is not unique", twice[0].0));
    }
    if !pairs
        .iter()
        .any(|(name, value)| name == METRIC_NAME && !value.is_empty())
    {
        return Err("metric name is missing".into());
    }
    pairs.retain(|(_, value)| !value.is_empty());
    add_target_labels(&mut pairs, options);
    if pairs.len() > limits.label_count_max {
        let (count, limit) = (pairs.len(), limits.label_count_max);
        return Err(format!("too many labels: {count}, limit {limit}"));
    }
    for (name, value) in &pairs {
        for (what, bytes, limit) in [
            ("name", name.len(), limits.label_name_bytes_max),
            ("value", value.len(), limits.label_value_bytes_max),
        ] {
            if bytes > limit {
                return Err(format!(
                    "label {what} too long: {bytes} bytes, limit {limit}"
                ));
            }
        }
        push_pair(arena, name.as_bytes(), value.as_bytes());
    }
    Ok(())
}

/// Adds the target's labels to the sorted `pairs` and leaves them sorted.
fn add_target_labels<'t>(pairs: &mut Vec<Pair<'t>>, options: &'t ParseOptions) {
    for (name, value) in options.target_labels.iter() {
        let has = |pairs: &[Pair<'_>], name: &str| pairs.iter().position(|(n, _)| n == name);
        match has(pairs, name) {
            Some(_) if options.honor_labels => continue,
            Some(at) => {
                let mut exported = format!("{EXPORTED}{name}");
                while has(pairs, &exported).is_some() {
                    exported.insert_str(0, EXPORTED);
                }
                pairs[at].0 = exported.into();
            }
            None => {}
        }
        pairs.push((name.into(), String::from_utf8_lossy(value)));
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
}
