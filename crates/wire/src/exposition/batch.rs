//! A body of the text format as a batch, with the labels of its target.

use super::{Event, Format, LabelPairs, Parser, Switches, Value};
use crate::error::WireError;
use crate::limits::WireLimits;
use firn_model::batch::Batch;
use firn_model::labels::{Labels, METRIC_NAME, push_pair};
use firn_model::sample::TimestampMs;
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

/// What an exposition held besides the samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposition {
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
    let refused = |message: String| WireError::Exposition(message);
    let mut exposition = Exposition::default();
    let mut pairs = LabelPairs::default();
    let mut parser = Parser::new(Format::Text, text, Switches::default());
    while parser.advance().map_err(|e| refused(e.to_string()))? {
        let Event::Sample(sample) = parser.event() else {
            continue;
        };
        let Value::Float(value) = sample.value else {
            continue;
        };
        let own_time = sample.time.filter(|_| options.honor_timestamps);
        if own_time.is_some() {
            exposition.with_own_time.push(batch.series_count());
        }
        parser
            .labels(&mut pairs)
            .map_err(|e| refused(e.to_string()))?;
        push_labels(&pairs, options, batch.label_bytes()).map_err(refused)?;
        batch.push_float(own_time.unwrap_or(options.time), value);
        batch.end_series();
        let limit = options.limits.batch_bytes_max;
        if batch.memory_bytes() > limit {
            return Err(WireError::TooManySamples { limit });
        }
    }
    Ok(exposition)
}

type Pair<'t> = (Cow<'t, str>, Cow<'t, [u8]>);

/// Writes the labels of a series and its target in canonical form.
fn push_labels(
    scraped: &LabelPairs,
    options: &ParseOptions,
    arena: &mut Vec<u8>,
) -> Result<(), String> {
    let limits = &options.limits;
    let mut pairs: Vec<Pair<'_>> = Vec::with_capacity(scraped.len());
    for (name, value) in scraped.iter() {
        let Ok(name) = std::str::from_utf8(name) else {
            return Err("invalid metric name or label names".into());
        };
        pairs.push((name.into(), value.into()));
    }
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
        push_pair(arena, name.as_bytes(), value);
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
        pairs.push((name.into(), value.into()));
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
}
