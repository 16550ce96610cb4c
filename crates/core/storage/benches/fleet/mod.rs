//! A fleet for the benchmarks of the store, and the batches of its samples: pods with 376 series
//! each, whose 11 labels have about 281 bytes.

use firn_model::batch::{Batch, BatchSource, LabelDecodeOutcome};
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::series_key::{CanonicalKeys, KeyFormat};
use firn_model::store::{Append, AppendBounds, Ticket};
use firn_model::tenant::TenantId;
use firn_storage::store::Store;

const SERIES_OF_POD: usize = 376;

/// Number of samples in a batch.
pub const BATCH: usize = 2_000;

const INTERVAL_MS: i64 = 15_000;
const START_MS: i64 = 1_763_000_000_000;

/// A series of the fleet: its labels and the pattern of its values.
pub struct Member {
    /// Label set of the series.
    pub labels: Labels,
    /// Pattern of the values, from 0.
    pub kind: usize,
}

pub fn fleet(pods: usize) -> Vec<Member> {
    let mut members = Vec::with_capacity(pods * SERIES_OF_POD);
    for pod in 0..pods {
        for i in 0..SERIES_OF_POD {
            members.push(Member {
                labels: labels(pod, i),
                kind: i % 20,
            });
        }
    }
    members
}

fn labels(pod: usize, i: usize) -> Labels {
    let deployment = pod / 8;
    let bucket = format!("{}", (i % 12) as f64 * 0.25);
    Labels::from_pairs([
        (
            "__name__",
            format!("http_server_request_duration_seconds_{}", i / 12),
        ),
        ("cluster", "production-eu-west-1".to_owned()),
        ("container", "application".to_owned()),
        ("deployment", format!("checkout-service-{deployment}")),
        ("endpoint", "metrics-and-health".to_owned()),
        (
            "instance",
            format!("10.{}.{}.{}:9100", pod >> 16, pod >> 8 & 255, pod & 255),
        ),
        ("job", "kubernetes-pods".to_owned()),
        ("le", bucket),
        ("namespace", format!("team-{}", deployment % 20)),
        (
            "node",
            format!("ip-10-0-{}-{}.internal", pod / 30, pod % 30),
        ),
        (
            "pod",
            format!("checkout-service-{deployment}-7d9f8b6c5d-{pod:05x}"),
        ),
    ])
}

/// Returns the value of a series in a round. About half of the series are constant, as in real
/// fleets.
pub fn value(member: &Member, series: usize, round: usize) -> f64 {
    let n = (series * 7_919 + round) as u64;
    match member.kind {
        0..10 => (series % 100) as f64,
        10..15 => (round * (1 + series % 50)) as f64,
        15 | 16 => (series * 1_000 + round * 3_571) as f64,
        17 => (n.wrapping_mul(2_654_435_761) % 100_000) as f64 / 1_000.0,
        18 => (round as f64 + series as f64) / 3.0,
        _ => (n % 7) as f64,
    }
}

/// Returns the resident memory of the process in bytes.
pub fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

/// Returns the maximum resident memory since the previous call, in bytes.
pub fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|l| l.split_whitespace().next()?.parse::<usize>().ok());
    // If the kernel cannot reset the peak, later results include it.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    kilobytes.unwrap_or(0) << 10
}

/// A batch as a decoder leaves it, with the labels that the store may request.
#[derive(Default)]
pub struct Request<'f> {
    /// The samples of the batch.
    pub batch: Batch,
    /// The series of the samples.
    pub members: &'f [Member],
}

impl<'f> Request<'f> {
    /// Fills the batch with one sample of each of `members`, the first of which has the index
    /// `first` in the fleet.
    pub fn fill(&mut self, members: &'f [Member], first: usize, round: usize) {
        self.members = members;
        self.batch.clear();
        let mut message = self.batch.take_message();
        message.clear();
        let time = START_MS + round as i64 * INTERVAL_MS;
        for (i, member) in members.iter().enumerate() {
            let series = first + i;
            // Each target has its own phase, and is late by a few milliseconds now and then.
            let late = (series / SERIES_OF_POD * 37 % 15_000 + round * 7 % 3) as i64;
            let start = message.len();
            CanonicalKeys.push_key(&mut message, member.labels.as_ref());
            self.batch
                .push_float(time + late, value(member, series, round));
            self.batch.end_unread_series(start..message.len());
        }
        self.batch.put_message(message, &CanonicalKeys);
    }

    /// Appends the batch to the store.
    pub fn append(&mut self, store: &Store) -> Ticket {
        let bounds = AppendBounds::up_to(i64::MAX);
        store.append_from(&TenantId::anonymous(), self, bounds)
    }
}

impl BatchSource for Request<'_> {
    fn batch(&self) -> &Batch {
        &self.batch
    }

    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error> {
        for i in series {
            let i = *i as usize;
            let labels = self.members[i].labels.as_bytes();
            self.batch.read_key::<Error>(i, |_, _, arena| {
                arena.extend_from_slice(labels);
                Ok(LabelDecodeOutcome::Stands)
            })?;
        }
        Ok(())
    }

    fn remove_series(&mut self, series: &[u32]) -> Option<Batch> {
        self.batch.remove_series(series);
        None
    }
}
