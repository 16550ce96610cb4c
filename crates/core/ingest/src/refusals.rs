//! Log lines about rejected samples.
//!
//! ```text
//! first one of a kind --> a line at once
//!       the next ones --> added up --a minute after the last line, or at the end--> a line
//!       none for a minute --> forgotten: the next one is a first one
//! ```
//!
//! A kind is a reason with a sender: the job of a scrape, the group of a rule, or the tenant and
//! address of a push. Each kind gets at most one line a minute, with the counts since the previous
//! line and one example.
//!
//! Invariant: the lines count every rejected sample, and memory is bounded: beyond [`KINDS_MAX`]
//! kinds, samples are counted by reason only.

use crate::outcome::{DropReason, DroppedSamples};
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::warn;

/// Shortest pause between two lines of a kind.
const PAUSE: Duration = Duration::from_secs(60);

/// Largest number of kinds. With the longest examples they take half a MiB, and if all continue
/// they cause nine lines a second.
const KINDS_MAX: usize = 512;

/// Largest size of an example in bytes: enough for a series with thirty labels and its timestamp.
/// Labels may have up to 1 MiB.
const EXAMPLE_BYTES_MAX: usize = 1 << 10;

/// The origin of samples, as shown in the log and in the statistics of rejected samples. Senders
/// that differ get separate log lines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleSender {
    /// Scrapes of the job with this name.
    Job(Arc<str>),
    /// Rules of the group with this name.
    Rules(Arc<str>),
    /// Results of stream aggregation, which have no other sender.
    Aggregation,
    /// Pushes over remote write, OTLP or import.
    Push {
        /// Tenant to which the samples belong.
        tenant: TenantId,
        /// Address of the sender, if the request arrived over a socket.
        address: Option<IpAddr>,
    },
}

/// The samples of one kind since the last line, with the first of them as an example.
#[derive(Clone, Debug, PartialEq)]
struct RejectionSum {
    samples: u64,
    /// Number of scrapes and requests with such samples.
    writes: u64,
    /// Error text of the first of them.
    example: String,
    /// Newest timestamp that would have been accepted, for samples that are in the future.
    bound: Option<TimestampMs>,
}

/// A line to be written after the lock on the kinds was released.
#[derive(Debug, PartialEq)]
struct RejectionLogLine {
    reason: DropReason,
    /// The sender; `None` for all senders beyond [`KINDS_MAX`].
    sender: Option<SampleSender>,
    sum: RejectionSum,
}

/// A kind for which a line was written within the last minute.
#[derive(Debug)]
struct RejectionKindState {
    last_line: Duration,
    since: Option<RejectionSum>,
}

/// Samples that share their log lines: those of one sender that were rejected for one reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RejectionKind {
    reason: DropReason,
    /// The sender; `None` for all senders beyond [`KINDS_MAX`].
    sender: Option<SampleSender>,
}

#[derive(Debug, Default)]
struct RejectionKinds(BTreeMap<RejectionKind, RejectionKindState>);

/// Adds up rejected samples and writes the lines. Shared by all writers of a pipeline.
#[derive(Debug, Default)]
pub(crate) struct RejectionLog(Mutex<RejectionKinds>);

impl RejectionLog {
    /// Adds the rejected samples of a write by `sender` at the monotonic time `now`; `time_max` is
    /// the newest timestamp that was accepted.
    #[cold]
    pub(crate) fn record_dropped(
        &self,
        sender: &SampleSender,
        dropped: &[DroppedSamples],
        time_max: TimestampMs,
        now: Duration,
    ) {
        self.collect_and_write(|kinds| {
            let lines = dropped.iter();
            lines
                .filter_map(|dropped| kinds.record_dropped(sender, dropped, time_max, now))
                .collect()
        });
    }

    /// Writes the lines whose pause since the previous line of their kind has ended.
    pub(crate) fn write_due_lines(&self, now: Duration) {
        self.collect_and_write(|kinds| kinds.take_due_lines(now));
    }

    /// Writes lines for all samples that were not logged yet, without regard to pauses.
    pub(crate) fn write_all_lines(&self) {
        self.collect_and_write(RejectionKinds::take_remaining_lines);
    }

    /// Writes the lines that `collect` returns, after the lock is released.
    fn collect_and_write(
        &self,
        collect: impl FnOnce(&mut RejectionKinds) -> Vec<RejectionLogLine>,
    ) {
        let lines = collect(&mut lock(&self.0));
        for line in &lines {
            line.write_line();
        }
    }
}

impl RejectionKinds {
    fn record_dropped(
        &mut self,
        sender: &SampleSender,
        dropped: &DroppedSamples,
        time_max: TimestampMs,
        now: Duration,
    ) -> Option<RejectionLogLine> {
        let mut kind = RejectionKind {
            reason: dropped.reason,
            sender: Some(sender.clone()),
        };
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&kind) {
            kind.sender = None;
        }
        let sum = || RejectionSum {
            samples: 0,
            writes: 0,
            example: truncate_example(&dropped.first),
            bound: dropped.reason.is_too_far_in_future().then_some(time_max),
        };
        match self.0.get_mut(&kind) {
            Some(known) => {
                let since = known.since.get_or_insert_with(sum);
                since.add_dropped(dropped);
                known.take_line_if_due(&kind, now)
            }
            None => {
                let mut first = sum();
                first.add_dropped(dropped);
                let known = RejectionKindState {
                    last_line: now,
                    since: None,
                };
                self.0.insert(kind.clone(), known);
                Some(RejectionLogLine::new(&kind, first))
            }
        }
    }

    fn take_due_lines(&mut self, now: Duration) -> Vec<RejectionLogLine> {
        let mut lines = Vec::new();
        self.0.retain(|kind, known| {
            if !known.is_due(now) {
                return true;
            }
            let line = known.take_line_if_due(kind, now);
            let is_going_on = line.is_some();
            lines.extend(line);
            is_going_on
        });
        lines
    }

    fn take_remaining_lines(&mut self) -> Vec<RejectionLogLine> {
        let kinds = std::mem::take(&mut self.0).into_iter();
        kinds
            .filter_map(|(kind, known)| known.since.map(|sum| RejectionLogLine::new(&kind, sum)))
            .collect()
    }
}

impl RejectionKindState {
    fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_line) >= PAUSE
    }

    fn take_line_if_due(
        &mut self,
        kind: &RejectionKind,
        now: Duration,
    ) -> Option<RejectionLogLine> {
        if !self.is_due(now) {
            return None;
        }
        let sum = self.since.take()?;
        self.last_line = now;
        Some(RejectionLogLine::new(kind, sum))
    }
}

impl RejectionSum {
    fn add_dropped(&mut self, dropped: &DroppedSamples) {
        self.samples += dropped.sample_count as u64;
        self.writes += 1;
    }
}

impl RejectionLogLine {
    fn new(kind: &RejectionKind, sum: RejectionSum) -> Self {
        Self {
            reason: kind.reason,
            sender: kind.sender.clone(),
            sum,
        }
    }

    fn write_line(&self) {
        let (mut job, mut rule_group, mut tenant, mut from) = (None, None, None, None);
        match &self.sender {
            Some(SampleSender::Job(name)) => job = Some(&**name),
            Some(SampleSender::Rules(group)) => rule_group = Some(&**group),
            Some(SampleSender::Aggregation) => job = Some("aggregation"),
            Some(SampleSender::Push {
                tenant: owner,
                address,
            }) => {
                tenant = Some(owner.as_str());
                from = address.map(tracing::field::display);
            }
            None => from = None,
        }
        warn!(
            reason = self.reason.as_str(),
            job,
            rule_group,
            tenant,
            from,
            others = self.sender.is_none().then_some(true),
            samples = self.sum.samples,
            writes = self.sum.writes,
            example = self.sum.example,
            bound = self.sum.bound,
            "samples rejected"
        );
    }
}

/// Returns `text`, truncated to [`EXAMPLE_BYTES_MAX`] at a character boundary. Three dots mark a
/// truncated text.
pub(crate) fn truncate_example(text: &str) -> String {
    if text.len() <= EXAMPLE_BYTES_MAX {
        return text.to_owned();
    }
    format!(
        "{}...",
        &text[..text.floor_char_boundary(EXAMPLE_BYTES_MAX)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Clock;
    use firn_model::env::sim::SimClock;
    use firn_model::labels::Labels;
    use firn_model::store::SampleRejection;
    use firn_wire::remote_write::WriteRejectionReason;

    const LATE: DropReason = DropReason::Rejected(SampleRejection::OutOfOrder);
    const AHEAD: DropReason = DropReason::Rejected(SampleRejection::TooFarInFuture);

    /// Kinds under a simulated clock, with the lines so far as text.
    #[derive(Default)]
    struct Told {
        kinds: RejectionKinds,
        clock: SimClock,
        lines: Vec<String>,
    }

    impl Told {
        fn note(&mut self, job: &str, reason: DropReason, sample_count: usize) {
            let now = self.clock.monotonic();
            let dropped = DroppedSamples {
                reason,
                sample_count,
                job: String::new(),
                first: format!("one of {job} at {}", now.as_secs()),
                first_labels: Labels::empty(),
            };
            let sender = SampleSender::Job(job.into());
            let line = self.kinds.record_dropped(&sender, &dropped, 7, now);
            self.tell(line.into_iter().collect());
        }

        fn tick_at(&mut self, second: i64) {
            self.clock.set_ms(second * 1000);
            let lines = self.kinds.take_due_lines(self.clock.monotonic());
            self.tell(lines);
        }

        fn finish(&mut self) {
            let lines = self.kinds.take_remaining_lines();
            self.tell(lines);
        }

        fn tell(&mut self, lines: Vec<RejectionLogLine>) {
            let second = self.clock.monotonic().as_secs();
            for line in lines {
                let who = match line.sender {
                    Some(SampleSender::Job(job)) => job.to_string(),
                    Some(sender) => format!("{sender:?}"),
                    None => "others".into(),
                };
                let sum = line.sum;
                let bound = sum.bound.map_or(String::new(), |b| format!(", bound {b}"));
                self.lines.push(format!(
                    "{second}s {who} {}: {} in {}, {}{bound}",
                    line.reason.as_str(),
                    sum.samples,
                    sum.writes,
                    sum.example,
                ));
            }
        }

        fn lines(&mut self) -> Vec<String> {
            std::mem::take(&mut self.lines)
        }
    }

    #[test]
    fn refusals_that_go_on_make_a_line_at_once_and_one_a_minute() {
        let mut told = Told::default();
        for second in 0..150 {
            told.tick_at(second);
            told.note("a", LATE, 2);
            told.note("a", LATE, 1);
        }
        assert_eq!(
            told.lines(),
            [
                "0s a out_of_order: 2 in 1, one of a at 0",
                "60s a out_of_order: 178 in 119, one of a at 0",
                "120s a out_of_order: 180 in 120, one of a at 60",
            ]
        );
        // The end logs the remaining samples once.
        told.finish();
        told.finish();
        assert_eq!(
            told.lines(),
            ["149s a out_of_order: 90 in 60, one of a at 120"]
        );
    }

    #[test]
    fn refusals_are_told_apart_by_job_and_reason() {
        let mut told = Told::default();
        told.note("a", LATE, 1);
        told.note("b", LATE, 1);
        told.note("a", AHEAD, 1);
        assert_eq!(
            told.lines(),
            [
                "0s a out_of_order: 1 in 1, one of a at 0",
                "0s b out_of_order: 1 in 1, one of b at 0",
                "0s a too_far_in_future: 1 in 1, one of a at 0, bound 7",
            ]
        );
    }

    #[test]
    fn refusals_that_end_are_told_wholly_and_forgotten() {
        let mut told = Told::default();
        told.note("a", LATE, 1);
        told.tick_at(10);
        told.note("a", LATE, 5);
        told.tick_at(59);
        told.lines();
        told.tick_at(61);
        assert_eq!(
            told.lines(),
            ["61s a out_of_order: 5 in 1, one of a at 10"],
            "nobody writes any more, and what was refused is told all the same"
        );
        told.tick_at(122);
        assert!(told.kinds.0.is_empty());
        told.note("a", LATE, 1);
        assert_eq!(
            told.lines(),
            ["122s a out_of_order: 1 in 1, one of a at 122"]
        );
    }

    #[test]
    fn refusals_without_a_tick_are_told_by_the_next_one() {
        let mut told = Told::default();
        told.note("a", LATE, 1);
        told.note("a", LATE, 1);
        told.clock.set_ms(90_000);
        told.note("a", LATE, 1);
        assert_eq!(
            told.lines()[1..],
            ["90s a out_of_order: 2 in 2, one of a at 0"]
        );
    }

    #[test]
    fn refusals_of_too_many_kinds_are_told_together_by_reason() {
        let mut told = Told::default();
        for job in 0..KINDS_MAX {
            told.note(&job.to_string(), LATE, 1);
        }
        assert_eq!(told.lines().len(), KINDS_MAX);
        for job in 0..10_000 {
            told.note(&format!("more {job}"), LATE, 1);
        }
        told.note("more", AHEAD, 1);
        told.note("0", LATE, 1);
        assert_eq!(
            told.lines(),
            [
                "0s others out_of_order: 1 in 1, one of more 0 at 0",
                "0s others too_far_in_future: 1 in 1, one of more at 0, bound 7",
            ]
        );
        assert_eq!(told.kinds.0.len(), KINDS_MAX + 2);
        told.tick_at(60);
        assert_eq!(
            told.lines(),
            [
                "60s others out_of_order: 9999 in 9999, one of more 1 at 0",
                "60s 0 out_of_order: 1 in 1, one of 0 at 0",
            ]
        );
        told.tick_at(120);
        assert!(told.kinds.0.is_empty());
    }

    #[test]
    fn example_that_is_long_is_cut_between_characters() {
        let mut kinds = RejectionKinds::default();
        let dropped = DroppedSamples {
            reason: DropReason::Refused(WriteRejectionReason::LabelValueTooLong),
            sample_count: 0,
            job: String::new(),
            first: "é".repeat(EXAMPLE_BYTES_MAX),
            first_labels: Labels::empty(),
        };
        let sender = SampleSender::Push {
            tenant: TenantId::anonymous(),
            address: None,
        };
        let line = kinds
            .record_dropped(&sender, &dropped, 0, Duration::ZERO)
            .unwrap();
        assert_eq!(line.sum.example, "é".repeat(512) + "...");
        assert_eq!((line.sum.samples, line.sum.writes), (0, 1));
    }
}
