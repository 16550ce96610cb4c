//! Encodes saved groups for the journal: numbers take eight bytes, texts follow their length.

use crate::alert::{Alert, AlertState, Annotations};
use crate::file::Texts;
use crate::instant::Instant;
use crate::machine::{SavedGroup, SavedRule};
use firn_model::labels::{Labels, LabelsRef, is_canonical};
use std::time::Duration;

/// Size of an encoded number in bytes.
const NUMBER_BYTES: usize = 8;

/// Appends encoded numbers and texts to a buffer. All numbers are little-endian.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn texts<'t>(&mut self, texts: impl ExactSizeIterator<Item = (&'t String, &'t String)>) {
        self.number(texts.len() as i64);
        for (name, text) in texts {
            self.text(name);
            self.text(text);
        }
    }

    fn time(&mut self, time: Option<Instant>) {
        self.0.push(u8::from(time.is_some()));
        self.number(time.unwrap_or_default().nanos());
    }
}

/// Decodes the output of a [`Writer`] without trusting it. All methods return `None` if the bytes
/// are malformed.
pub(super) struct Reader<'b>(pub(super) &'b [u8]);

impl<'b> Reader<'b> {
    pub(super) fn number(&mut self) -> Option<i64> {
        let (number, rest) = self.0.split_first_chunk::<NUMBER_BYTES>()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*number))
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// Reads a number of items. Each item takes at least one byte, so a greater count than bytes is
    /// malformed.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    fn texts<T: FromIterator<(String, String)>>(&mut self) -> Option<T> {
        let count = self.count()?;
        (0..count)
            .map(|_| Some((self.text()?, self.text()?)))
            .collect()
    }

    fn time(&mut self) -> Option<Option<Instant>> {
        let is_some = self.byte()? != 0;
        let time = Instant::from_nanos(self.number()?);
        Some(is_some.then_some(time))
    }

    fn labels(&mut self) -> Option<Labels> {
        let bytes = self.bytes()?;
        is_canonical(bytes).then(|| LabelsRef::from_canonical(bytes).to_owned())
    }
}

/// Appends a group without its instant and unstored range, which the record contains separately.
pub(super) fn write_group(out: &mut Writer, group: &SavedGroup) {
    out.text(&group.file);
    out.text(&group.name);
    out.number(i64::try_from(group.interval.as_nanos()).unwrap_or(i64::MAX));
    out.number(group.restore_after.into());
    out.number(group.rules.len() as i64);
    for rule in &group.rules {
        out.text(&rule.name);
        out.texts(rule.labels.iter());
        out.0.push(u8::from(rule.is_restored));
        out.0.push(u8::from(rule.is_shown));
        out.number(rule.alerts.len() as i64);
        for alert in &rule.alerts {
            write_alert(out, alert);
        }
    }
}

/// Reads a group. The caller sets its instant and unstored range from the record.
pub(super) fn read_group(from: &mut Reader<'_>) -> Option<SavedGroup> {
    let (file, name) = (from.text()?, from.text()?);
    let interval = Duration::from_nanos(u64::try_from(from.number()?).ok()?);
    let restore_after = u32::try_from(from.number()?).ok()?;
    let count = from.count()?;
    let rules = (0..count).map(|_| read_rule(from));
    Some(SavedGroup {
        restore_after,
        file,
        name,
        interval,
        instant: Instant::default(),
        owed: None,
        rules: rules.collect::<Option<_>>()?,
    })
}

fn read_rule(from: &mut Reader<'_>) -> Option<SavedRule> {
    let name = from.text()?;
    let labels: Texts = from.texts()?;
    let is_restored = from.byte()? != 0;
    let is_shown = from.byte()? != 0;
    let count = from.count()?;
    let alerts = (0..count).map(|_| read_alert(from));
    Some(SavedRule {
        name,
        labels,
        is_restored,
        is_shown,
        alerts: alerts.collect::<Option<_>>()?,
    })
}

fn write_alert(out: &mut Writer, alert: &Alert) {
    out.bytes(alert.labels.as_bytes());
    out.texts(alert.annotations.iter().map(|(name, text)| (name, text)));
    out.0.push(match alert.state {
        AlertState::Inactive => 0,
        AlertState::Pending => 1,
        AlertState::Firing => 2,
    });
    out.number(alert.value.to_bits().cast_signed());
    out.number(alert.active_at.nanos());
    out.time(alert.fired_at);
    out.time(alert.resolved_at);
    out.time(alert.last_sent_at);
    out.time(alert.valid_until);
    out.time(alert.keep_firing_since);
}

fn read_alert(from: &mut Reader<'_>) -> Option<Alert> {
    Some(Alert {
        labels: from.labels()?,
        annotations: from.texts::<Annotations>()?,
        state: match from.byte()? {
            0 => AlertState::Inactive,
            1 => AlertState::Pending,
            2 => AlertState::Firing,
            _ => return None,
        },
        value: f64::from_bits(from.number()?.cast_unsigned()),
        active_at: Instant::from_nanos(from.number()?),
        fired_at: from.time()?,
        resolved_at: from.time()?,
        last_sent_at: from.time()?,
        valid_until: from.time()?,
        keep_firing_since: from.time()?,
    })
}
