//! Finds the start time of a sample, which OpenMetrics writes as a separate sample further on.
//!
//! Upstream reads ahead from every sample to the next `_created` sample of the family. All samples
//! up to that one would find the same, so that this reader searches once for all of them: the time
//! is linear in the size of the body, whatever the order of its samples.

use super::super::event::ExpositionEntryKind;
use super::super::number::truncate_to_integer;
use super::line::OpenMetricsLine;
use firn_model::metadata::MetricType;

/// Suffix of the names of samples whose value is a start time.
pub(super) const CREATED: &[u8] = b"_created";

/// Cache of the start times that were found by reading ahead, for one body.
#[derive(Clone, Debug)]
pub(super) struct CreatedTimestampCache<'t> {
    ahead: OpenMetricsLine<'t>,
    /// Offset at which reading ahead stopped: all samples before it share its result.
    until: usize,
    next: Option<CreatedTimestamp>,
    /// The start time that was returned last.
    known: Option<CreatedTimestamp>,
}

/// A start time and the identity of the samples that it applies to.
#[derive(Clone, Debug)]
struct CreatedTimestamp {
    /// Labels and family name as written.
    identity: Vec<u8>,
    time: i64,
}

impl<'t> CreatedTimestampCache<'t> {
    pub fn new(text: &'t [u8]) -> Self {
        Self {
            ahead: OpenMetricsLine::new(text),
            until: 0,
            next: None,
            known: None,
        }
    }

    /// Drops the cached start time, because samples without one follow.
    pub fn clear_known(&mut self) {
        self.known = None;
    }

    /// Returns the start time of the sample on the line `now`, or zero if there is none.
    pub fn find(&mut self, now: &OpenMetricsLine<'t>) -> i64 {
        let Some(family) = family_name(now) else {
            self.clear_known();
            return 0;
        };
        let identity = encode_identity(now, now.kind, family);
        match &self.known {
            Some(known) if known.time > 0 && known.identity == identity => return known.time,
            _ => {}
        }
        if now.start() >= self.until {
            self.read_ahead(now);
        }
        let found = self.next.as_ref().filter(|next| next.identity == identity);
        self.known = found.cloned();
        found.map_or(0, |start| start.time)
    }

    fn read_ahead(&mut self, now: &OpenMetricsLine<'t>) {
        self.ahead.move_to(now);
        self.next = None;
        while let Ok(Some(ExpositionEntryKind::Sample)) = self.ahead.read() {
            if let Some(name) = self.ahead.name().strip_suffix(CREATED) {
                self.next = Some(CreatedTimestamp {
                    identity: encode_identity(&self.ahead, now.kind, name),
                    time: truncate_to_integer(self.ahead.value * 1000.0),
                });
                break;
            }
        }
        self.until = self.ahead.start();
    }
}

/// Returns the beginning of the sample's name, as many bytes as the family name has. A name in
/// braces must be their first element.
fn family_name<'t>(line: &OpenMetricsLine<'t>) -> Option<&'t [u8]> {
    let (family, _) = line.metadata();
    let name = line.offsets.name.clone()?;
    let at_start = name.start == line.start() || name.start == line.start() + 2;
    let end = name.start + family.len();
    line.text().get(name.start..end).filter(|_| at_start)
}

/// Encodes the labels and the family name that a sample shares with its `_created` sample.
fn encode_identity(line: &OpenMetricsLine<'_>, kind: MetricType, name: &[u8]) -> Vec<u8> {
    let own: &[u8] = match kind {
        MetricType::Summary => b"quantile",
        MetricType::Histogram => b"le",
        _ => b"",
    };
    let text = line.text();
    let mut identity = Vec::new();
    for (label, value) in &line.offsets.labels {
        let label = &text[label.clone()];
        if own.is_empty() || label != own {
            identity.extend_from_slice(label);
            identity.extend_from_slice(&text[value.clone()]);
        }
    }
    identity.extend_from_slice(name);
    identity
}
