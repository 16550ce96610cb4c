//! The journal of a history: samples that clients sent, acknowledgements, answers, and the trace.

use crate::ids::{Epoch, PartitionId};
use firn_model::env::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The series of a partition.
pub const SERIES: u64 = 3;

const MINUTE: u64 = 60_000;

/// The number of lines of the trace that a violation shows.
const LINES_SHOWN: usize = 400;

/// The place of a sample: its series and its time in milliseconds.
pub type SamplePlace = (String, i64);

/// A sample that a client sends.
#[derive(Clone, Debug, PartialEq)]
pub struct SentSample {
    pub partition: PartitionId,
    pub place: SamplePlace,
    pub value: f64,
}

/// Counts of a history, which show that something happened in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    pub acks: u64,
    pub answers: u64,
    pub refused_reads: u64,
    pub leaderships: u64,
    /// Partitions with a checkpoint at the end.
    pub checkpointed: u64,
    /// Listed blocks at the end.
    pub blocks: u64,
}

impl SimCounts {
    pub fn add(&mut self, other: Self) {
        self.acks += other.acks;
        self.answers += other.answers;
        self.refused_reads += other.refused_reads;
        self.leaderships += other.leaderships;
        self.checkpointed += other.checkpointed;
        self.blocks += other.blocks;
    }
}

#[derive(Default)]
pub struct SimJournal {
    /// The bits of the values of all samples that were sent.
    sent: BTreeMap<SamplePlace, u64>,
    /// The samples that each later strong answer must contain, with the reason.
    required: BTreeMap<SamplePlace, String>,
    /// The process that acknowledged in an epoch.
    epochs: BTreeMap<(PartitionId, Epoch), u64>,
    /// The newest time of each partition.
    newest: BTreeMap<PartitionId, u64>,
    /// The last sample of each partition.
    last: BTreeMap<PartitionId, SentSample>,
    pub violation: Option<String>,
    pub counts: SimCounts,
    trace: Vec<String>,
    hash: u64,
}

impl SimJournal {
    /// Adds a line to the trace.
    pub fn note(&mut self, line: String) {
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.trace.push(line);
    }

    pub fn lines(&self) -> &[String] {
        &self.trace
    }

    pub fn trace_hash(&self) -> u64 {
        self.hash
    }

    /// Records a broken invariant, with the end of the trace. Later ones follow from the first.
    pub fn violate(&mut self, text: String) {
        if self.violation.is_some() {
            return;
        }
        let mut full = text;
        let from = self.trace.len().saturating_sub(LINES_SHOWN);
        for line in &self.trace[from..] {
            let _ = write!(full, "\n  {line}");
        }
        self.violation = Some(full);
    }

    /// Draws the next sample of a client: a newer one, a late one, or the last one again.
    pub fn draw_sample(&mut self, rng: &SimRng, partition: PartitionId) -> SentSample {
        if let Some(last) = self.last.get(&partition)
            && rng.one_in(8)
        {
            return last.clone();
        }
        let series = format!("m{partition}_{}", rng.next_below(SERIES));
        let newest = self.newest.entry(partition).or_insert(100 * MINUTE);
        let time = if rng.one_in(6) {
            *newest - 1 - rng.next_below(25 * MINUTE)
        } else {
            *newest += 1 + rng.next_below(6 * MINUTE);
            *newest
        };
        let place = (series, time as i64);
        let value = self.sent.len() as f64 + 0.25;
        let bits = *self.sent.entry(place.clone()).or_insert(value.to_bits());
        let sample = SentSample {
            partition,
            place,
            value: f64::from_bits(bits),
        };
        self.last.insert(partition, sample.clone());
        sample
    }

    /// Records that a process made a sample durable.
    pub fn add_durable(&mut self, partition: PartitionId, epoch: Epoch, incarnation: u64) {
        let first = *self.epochs.entry((partition, epoch)).or_insert(incarnation);
        if first != incarnation {
            self.violate(format!(
                "processes {first} and {incarnation} acknowledge in epoch {epoch} of partition \
                 {partition}"
            ));
        }
    }

    /// Records that a client got an acknowledgement.
    pub fn add_ack(&mut self, sample: &SentSample, by: &str) {
        self.counts.acks += 1;
        let reason = self.required.entry(sample.place.clone());
        reason.or_insert_with(|| format!("acknowledged by {by}"));
    }

    /// Returns the samples that an answer to a read that begins now must contain.
    pub fn required(&self, partitions: &[PartitionId]) -> BTreeSet<SamplePlace> {
        let prefixes: Vec<String> = partitions.iter().map(|p| format!("m{p}_")).collect();
        let is_read =
            |place: &&SamplePlace| prefixes.iter().any(|prefix| place.0.starts_with(prefix));
        self.required.keys().filter(is_read).cloned().collect()
    }

    /// Checks a strong answer to a read that required `required`.
    pub fn check_answer(
        &mut self,
        by: &str,
        required: &BTreeSet<SamplePlace>,
        answer: &[(SamplePlace, u64)],
    ) {
        self.counts.answers += 1;
        let mut found = BTreeSet::new();
        for (place, bits) in answer {
            if !found.insert(place.clone()) {
                return self.violate(format!("{by} answers {place:?} twice"));
            }
            match self.sent.get(place) {
                None => return self.violate(format!("{by} answers {place:?}, never sent")),
                Some(sent) if sent != bits => {
                    let (sent, found) = (f64::from_bits(*sent), f64::from_bits(*bits));
                    let text = format!("{by} answers {found} at {place:?}, sent {sent}");
                    return self.violate(text);
                }
                Some(_) => {}
            }
        }
        let missing: Vec<_> = required.difference(&found).collect();
        if let Some(first) = missing.first() {
            let (count, of, reason) = (missing.len(), required.len(), &self.required[*first]);
            return self.violate(format!(
                "{by} misses {count} of {of} samples, first {first:?}, {reason}"
            ));
        }
        for place in found {
            let reason = self.required.entry(place);
            reason.or_insert_with(|| format!("answered by {by}"));
        }
    }
}
