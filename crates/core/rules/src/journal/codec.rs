//! Encodes saved groups for the journal: numbers take eight bytes, texts follow their length.

use crate::alert::{Alert, AlertState, Annotations};
use crate::file::Texts;
use crate::instant::RuleInstant;
use crate::machine::{SavedGroup, SavedRule};
use firn_model::labels::{Labels, LabelsRef, is_canonical};
use std::time::Duration;

/// Size of an encoded number in bytes.
const NUMBER_BYTES: usize = 8;

/// Appends encoded numbers and texts to a buffer. All numbers are little-endian.
#[derive(Default)]
pub(super) struct JournalEncoder(pub(super) Vec<u8>);

impl JournalEncoder {
    pub(super) fn write_number(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        self.write_number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn write_text(&mut self, text: &str) {
        self.write_bytes(text.as_bytes());
    }

    fn write_texts<'t>(&mut self, texts: impl ExactSizeIterator<Item = (&'t String, &'t String)>) {
        self.write_number(texts.len() as i64);
        for (name, text) in texts {
            self.write_text(name);
            self.write_text(text);
        }
    }

    fn write_time(&mut self, time: Option<RuleInstant>) {
        self.0.push(u8::from(time.is_some()));
        self.write_number(time.unwrap_or_default().nanos());
    }
}

/// Decodes the output of a [`JournalEncoder`] without trusting it. All methods return `None` if the
/// bytes are malformed.
pub(super) struct JournalDecoder<'b>(pub(super) &'b [u8]);

impl<'b> JournalDecoder<'b> {
    pub(super) fn read_number(&mut self) -> Option<i64> {
        let (number, rest) = self.0.split_first_chunk::<NUMBER_BYTES>()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*number))
    }

    fn read_byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn read_bytes(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.read_number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn read_text(&mut self) -> Option<String> {
        String::from_utf8(self.read_bytes()?.to_vec()).ok()
    }

    /// Reads a number of items. Each item takes at least one byte, so a greater count than bytes is
    /// malformed.
    fn read_count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.read_number()?).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    fn read_texts<T: FromIterator<(String, String)>>(&mut self) -> Option<T> {
        let count = self.read_count()?;
        (0..count)
            .map(|_| Some((self.read_text()?, self.read_text()?)))
            .collect()
    }

    fn read_time(&mut self) -> Option<Option<RuleInstant>> {
        let is_some = self.read_byte()? != 0;
        let time = RuleInstant::from_nanos(self.read_number()?);
        Some(is_some.then_some(time))
    }

    fn read_labels(&mut self) -> Option<Labels> {
        let bytes = self.read_bytes()?;
        is_canonical(bytes).then(|| LabelsRef::from_canonical(bytes).to_owned())
    }
}

/// Appends a group without its instant and unstored range, which the record contains separately.
pub(super) fn write_group(out: &mut JournalEncoder, group: &SavedGroup) {
    out.write_text(&group.file);
    out.write_text(&group.name);
    out.write_number(i64::try_from(group.interval.as_nanos()).unwrap_or(i64::MAX));
    out.write_number(group.restore_after.into());
    out.write_number(group.rules.len() as i64);
    for rule in &group.rules {
        out.write_text(&rule.name);
        out.write_texts(rule.labels.iter());
        out.0.push(u8::from(rule.is_restored));
        out.0.push(u8::from(rule.is_shown));
        out.write_number(rule.alerts.len() as i64);
        for alert in &rule.alerts {
            write_alert(out, alert);
        }
    }
}

/// Reads a group. The caller sets its instant and unstored range from the record.
pub(super) fn read_group(from: &mut JournalDecoder<'_>) -> Option<SavedGroup> {
    let (file, name) = (from.read_text()?, from.read_text()?);
    let interval = Duration::from_nanos(u64::try_from(from.read_number()?).ok()?);
    let restore_after = u32::try_from(from.read_number()?).ok()?;
    let count = from.read_count()?;
    let rules = (0..count).map(|_| read_rule(from));
    Some(SavedGroup {
        restore_after,
        file,
        name,
        interval,
        instant: RuleInstant::default(),
        owed: None,
        rules: rules.collect::<Option<_>>()?,
    })
}

fn read_rule(from: &mut JournalDecoder<'_>) -> Option<SavedRule> {
    let name = from.read_text()?;
    let labels: Texts = from.read_texts()?;
    let is_restored = from.read_byte()? != 0;
    let is_shown = from.read_byte()? != 0;
    let count = from.read_count()?;
    let alerts = (0..count).map(|_| read_alert(from));
    Some(SavedRule {
        name,
        labels,
        is_restored,
        is_shown,
        alerts: alerts.collect::<Option<_>>()?,
    })
}

fn write_alert(out: &mut JournalEncoder, alert: &Alert) {
    out.write_bytes(alert.labels.as_bytes());
    out.write_texts(alert.annotations.iter().map(|(name, text)| (name, text)));
    out.0.push(match alert.state {
        AlertState::Inactive => 0,
        AlertState::Pending => 1,
        AlertState::Firing => 2,
    });
    out.write_number(alert.value.to_bits().cast_signed());
    out.write_number(alert.active_at.nanos());
    out.write_time(alert.fired_at);
    out.write_time(alert.resolved_at);
    out.write_time(alert.last_sent_at);
    out.write_time(alert.valid_until);
    out.write_time(alert.keep_firing_since);
}

fn read_alert(from: &mut JournalDecoder<'_>) -> Option<Alert> {
    Some(Alert {
        labels: from.read_labels()?,
        annotations: from.read_texts::<Annotations>()?,
        state: match from.read_byte()? {
            0 => AlertState::Inactive,
            1 => AlertState::Pending,
            2 => AlertState::Firing,
            _ => return None,
        },
        value: f64::from_bits(from.read_number()?.cast_unsigned()),
        active_at: RuleInstant::from_nanos(from.read_number()?),
        fired_at: from.read_time()?,
        resolved_at: from.read_time()?,
        last_sent_at: from.read_time()?,
        valid_until: from.read_time()?,
        keep_firing_since: from.read_time()?,
    })
}
