//! The labels of one series: from protobuf to the canonical form, in one pass where they allow it.
//!
//! Senders send labels sorted, unique and in ASCII. Such labels are copied into the batch's arena
//! while they are read. At the first that is anything else the pass is given up, and when the
//! series ends its message is read a second time by [`careful`], which sorts, checks and words
//! what is wrong.

use super::field;
use super::refusal::Refusal;
use crate::error::WireError;
use crate::limits::WireLimits;
use crate::protobuf::{Cursor, WireType, expect};
use firn_model::labels::{METRIC_NAME, push_pair};

/// Bytes of a label set that a message about it shows.
const SHOWN_BYTES_MAX: usize = 1024;

/// What is wrong with a series.
#[derive(Debug)]
pub(super) struct Offence {
    /// The reason it counts under.
    pub refusal: Refusal,
    /// The reason in words, with the labels.
    pub message: String,
}

/// The labels of the series that is being read.
#[derive(Debug)]
pub(super) struct SeriesLabels<'m> {
    /// Where they start in the arena.
    start: usize,
    /// From where on the arena is not yet known to be ASCII, lengths included.
    unchecked: usize,
    previous: &'m [u8],
    count: usize,
    has_metric_name: bool,
    /// Whether all labels so far could be copied as they came.
    is_plain: bool,
}

impl<'m> SeriesLabels<'m> {
    /// No labels yet; they will go to the end of the arena, which is at `start`.
    pub fn new(start: usize) -> Self {
        Self {
            start,
            unchecked: start,
            previous: &[],
            count: 0,
            has_metric_name: false,
            is_plain: true,
        }
    }

    /// Where the labels start in the arena.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Takes the next label.
    #[inline]
    pub fn push(
        &mut self,
        label: &'m [u8],
        limits: &WireLimits,
        arena: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        if !self.is_plain {
            return Ok(());
        }
        let (name, value) = match short_label(label) {
            Some(pair) => pair,
            None => name_and_value(label)?,
        };
        self.count += 1;
        let fits = name.len() <= limits.label_name_bytes_max
            && value.len() <= limits.label_value_bytes_max
            && self.count <= limits.label_count_max;
        if !fits || value.is_empty() || !is_before(self.previous, name) {
            self.is_plain = false;
            return Ok(());
        }
        self.previous = name;
        self.has_metric_name |= name == METRIC_NAME.as_bytes();
        if name.len().max(value.len()) < 0x80 {
            push_short(arena, name);
            push_short(arena, value);
        } else {
            self.push_long(name, value, arena);
        }
        Ok(())
    }

    /// Takes a pair with a length of more than one byte, which makes the arena differ from ASCII.
    fn push_long(&mut self, name: &[u8], value: &[u8], arena: &mut Vec<u8>) {
        let before = arena.get(self.unchecked..).unwrap_or_default();
        self.is_plain = before.is_ascii() && name.is_ascii() && value.is_ascii();
        push_pair(arena, name, value);
        self.unchecked = arena.len();
    }

    /// Ends the series whose message is `series`: its canonical labels stand at the end of the arena
    /// now, or it is said what is wrong with them.
    #[inline]
    pub fn finish(
        &self,
        series: &[u8],
        limits: &WireLimits,
        arena: &mut Vec<u8>,
    ) -> Result<Result<(), Offence>, WireError> {
        let is_ascii = |arena: &[u8]| arena.get(self.unchecked..).is_some_and(<[u8]>::is_ascii);
        if self.is_plain && self.has_metric_name && is_ascii(arena) {
            return Ok(Ok(()));
        }
        arena.truncate(self.start);
        careful(series, limits, arena)
    }
}

#[inline]
fn push_short(arena: &mut Vec<u8>, bytes: &[u8]) {
    arena.push(bytes.len() as u8);
    arena.extend_from_slice(bytes);
}

/// Whether `a` sorts before `b`. Names mostly differ in their first eight bytes.
#[inline]
fn is_before(a: &[u8], b: &[u8]) -> bool {
    let (head_a, head_b) = (head(a), head(b));
    match head_a == head_b {
        false => head_a < head_b,
        true => a < b,
    }
}

/// The first eight bytes as a number that sorts as they do; shorter names are filled with zeros.
#[inline]
fn head(name: &[u8]) -> u64 {
    match name.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => name.iter().fold(0, |n, b| n << 8 | u64::from(*b)) << ((64 - 8 * name.len()) % 64),
    }
}

/// A label as all senders write it: the name, then the value, both shorter than 128 bytes.
#[inline]
fn short_label(label: &[u8]) -> Option<(&[u8], &[u8])> {
    let [0x0a, name_bytes @ 0..0x80, rest @ ..] = label else {
        return None;
    };
    let (name, rest) = rest.split_at_checked(usize::from(*name_bytes))?;
    let [0x12, value_bytes @ 0..0x80, value @ ..] = rest else {
        return None;
    };
    (value.len() == usize::from(*value_bytes)).then_some((name, value))
}

/// A label with its fields in any order; the last of each counts, one that is missing is empty.
fn name_and_value(label: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut cursor = Cursor::new(label);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            field::LABEL_NAME => {
                expect(wire_type, WireType::Bytes)?;
                name = cursor.bytes()?;
            }
            field::LABEL_VALUE => {
                expect(wire_type, WireType::Bytes)?;
                value = cursor.bytes()?;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok((name, value))
}

type Pair<'m> = (&'m [u8], &'m [u8]);

/// Reads the labels of a series in any order and state and writes the canonical form to the end of
/// the arena, or says what is wrong with them.
fn careful(
    series: &[u8],
    limits: &WireLimits,
    arena: &mut Vec<u8>,
) -> Result<Result<(), Offence>, WireError> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    let mut count = 0usize;
    let mut cursor = Cursor::new(series);
    while let Some((number, wire_type)) = cursor.field()? {
        if number != field::SERIES_LABEL {
            cursor.skip(wire_type)?;
            continue;
        }
        expect(wire_type, WireType::Bytes)?;
        let pair = name_and_value(cursor.bytes()?)?;
        count += 1;
        if count <= limits.label_count_max {
            pairs.push(pair);
        }
    }
    pairs.sort_by_key(|(name, _)| *name);
    if let Some(offence) = offence(&pairs, count, limits) {
        return Ok(Err(offence));
    }
    for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
        push_pair(arena, name, value);
    }
    Ok(Ok(()))
}

/// What is wrong with the sorted `pairs`, of which there were `count` before the limit cut them.
fn offence(pairs: &[Pair<'_>], count: usize, limits: &WireLimits) -> Option<Offence> {
    let (names_max, values_max) = (limits.label_name_bytes_max, limits.label_value_bytes_max);
    let bad = |refusal, what: String| {
        let message = format!("{what} for series {}", shown(pairs));
        Some(Offence { refusal, message })
    };
    let invalid = |refusal| {
        let message = format!("invalid metric name or labels, got {}", shown(pairs));
        Some(Offence { refusal, message })
    };
    if count > limits.label_count_max {
        let what = format!("too many labels: {count}, limit {}", limits.label_count_max);
        return bad(Refusal::TooManyLabels, what);
    }
    for (name, value) in pairs {
        if name.len() > names_max {
            let what = format!(
                "label name too long: {} bytes, limit {names_max}",
                name.len()
            );
            return bad(Refusal::LabelNameTooLong, what);
        }
        if value.len() > values_max {
            let what = format!(
                "label value too long: {} bytes, limit {values_max}",
                value.len()
            );
            return bad(Refusal::LabelValueTooLong, what);
        }
        if name.is_empty() || std::str::from_utf8(name).is_err() {
            return invalid(Refusal::LabelName);
        }
        let is_metric_name = *name == METRIC_NAME.as_bytes();
        if std::str::from_utf8(value).is_err() || is_metric_name && value.is_empty() {
            return invalid(match is_metric_name {
                true => Refusal::MetricName,
                false => Refusal::LabelValue,
            });
        }
    }
    if !pairs
        .iter()
        .any(|(name, _)| *name == METRIC_NAME.as_bytes())
    {
        return invalid(Refusal::MetricName);
    }
    let (name, _) = pairs.windows(2).find(|w| w[0].0 == w[1].0)?[0];
    let name = String::from_utf8_lossy(name);
    bad(
        Refusal::DuplicateLabel,
        format!("label name {name:?} is not unique"),
    )
}

/// A label set as Prometheus prints it, cut where it gets long.
fn shown(pairs: &[Pair<'_>]) -> String {
    let mut text = "{".to_owned();
    for (i, (name, value)) in pairs.iter().enumerate() {
        let cut = |bytes: &'_ [u8]| {
            let bytes = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
            String::from_utf8_lossy(bytes).into_owned()
        };
        if text.len() > SHOWN_BYTES_MAX {
            text.push_str(", ...");
            break;
        }
        let comma = if i == 0 { "" } else { ", " };
        text.push_str(&format!("{comma}{}={:?}", cut(name), cut(value)));
    }
    text.push('}');
    text
}
