//! State of one cluster of replicas: its replicas, and its series.
//!
//! Invariants: all times are data times, so that a replay has the result of the original writes.
//! The state of a series or replica without a sample for [`KEEP_MS`] of data time is removed; the
//! next sample of such a series is compared with the newest one of the store. Beyond the limit of
//! tracked series, samples of the elected replica are stored and others are refused.

use super::series::{HaSeries, HaSeriesMark, HeldSample, OfferedValue, ReplicaNumber};
use firn_model::batch::SeriesSamples;
use firn_model::fingerprint::Fingerprint;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::NewestSampleTimes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Data time without a sample after which a series, a replica and a cluster are removed.
pub(super) const KEEP_MS: i64 = 3_600_000;

/// Data time between two searches for series to remove.
const SWEEP_MS: i64 = KEEP_MS / 4;

/// Number of intervals for which a series with a long interval is kept.
const KEEP_INTERVALS: i64 = 4;

/// Data time without a sample of the elected replica after which another one is elected for series
/// that are not tracked. The default of Mimir.
const FAILOVER_MS: i64 = 30_000;

/// Maximum number of replicas that are distinguished; all others count as one.
const REPLICAS_MAX: usize = 64;

/// Maximum length of a replica's name in log lines, in bytes. Longer names are cut.
const SHOWN_BYTES_MAX: usize = 128;

/// Approximate memory of a tracked series in bytes.
pub(super) const SERIES_BYTES: usize =
    size_of::<(Fingerprint, HaSeries)>() * 8 / 7 + size_of::<HeldSample>() + 16;

/// The samples of a series that are stored.
#[derive(Clone, Debug)]
pub(crate) enum SeriesSelection {
    /// All of them, and no others.
    All,
    /// None of them.
    Nothing,
    /// Some of them, or samples of other replicas too.
    Some(Box<SelectedSamples>),
}

/// A selection that differs from sample to sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct SelectedSamples {
    /// Samples that other requests have sent, in order of time.
    pub(crate) released: Vec<HeldSample>,
    /// For each float of the series, whether it is stored.
    pub(crate) floats: Vec<bool>,
    /// For each histogram of the series, whether it is stored.
    pub(crate) histograms: Vec<bool>,
}

/// A series of a batch, the input of [`HaClusterState::select`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferedSeries<'a> {
    /// Fingerprint of the labels without the label of the replica.
    pub(crate) print: Fingerprint,
    /// The replica that sent the series.
    pub(crate) replica: ReplicaNumber,
    /// The samples.
    pub(crate) samples: SeriesSamples<'a>,
}

/// The state of a series before an append that may still fail.
#[derive(Debug)]
pub(super) struct SeriesUndo {
    print: Fingerprint,
    mark: HaSeriesMark,
    last: TimestampMs,
}

/// Changes of a cluster by one batch.
#[derive(Debug, Default)]
pub(crate) struct ClusterChanges {
    undo: Vec<SeriesUndo>,
    /// Number of series with stored samples, and number of those that had another owner before.
    stored_series: usize,
    taken_series: usize,
    /// The replica whose samples of series that are not tracked are stored instead of those of the
    /// elected replica, which has been silent.
    substitute: Option<ReplicaNumber>,
    /// The replica elected by the batch, and the one elected before.
    election: Option<(ReplicaNumber, Option<ReplicaNumber>)>,
}

#[derive(Debug)]
struct Replica {
    print: Fingerprint,
    name: String,
    newest: TimestampMs,
}

/// A new elected replica, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaElection {
    /// Name of the replica.
    pub(crate) elected: String,
    /// Name of the replica that was elected before.
    pub(crate) before: Option<String>,
}

/// The replicas and series of one cluster. Created with the first sample of the cluster.
#[derive(Debug)]
pub(crate) struct HaClusterState {
    replicas: Vec<Replica>,
    elected: Option<ReplicaNumber>,
    series: HashMap<Fingerprint, HaSeries>,
    newest: TimestampMs,
    swept: TimestampMs,
    /// Number of series of all clusters, and their limit.
    tracked: Arc<AtomicUsize>,
    tracked_max: usize,
}

impl HaClusterState {
    /// Creates a cluster without series. `tracked` counts the series of all clusters.
    pub(super) fn new(tracked: Arc<AtomicUsize>, tracked_max: usize) -> Self {
        Self {
            replicas: Vec::new(),
            elected: None,
            series: HashMap::new(),
            newest: TimestampMs::MIN,
            swept: TimestampMs::MIN,
            tracked,
            tracked_max,
        }
    }

    /// Returns the newest data time of the cluster.
    pub(super) fn newest(&self) -> TimestampMs {
        self.newest
    }

    /// Returns the number of the replica with this name, whose fingerprint is `print`. The first
    /// replica is elected.
    pub(crate) fn replica(&mut self, print: Fingerprint, name: &[u8]) -> ReplicaNumber {
        let known = self.replicas.iter().position(|r| r.print == print);
        let at = known.unwrap_or_else(|| self.add_replica(print, name));
        let number = ReplicaNumber(at as u8);
        self.elected.get_or_insert(number);
        number
    }

    fn add_replica(&mut self, print: Fingerprint, name: &[u8]) -> usize {
        let name = String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES_MAX)]).into_owned();
        let newest = self.newest;
        let replica = Replica {
            print,
            name,
            newest,
        };
        if self.replicas.len() < REPLICAS_MAX {
            self.replicas.push(replica);
            return self.replicas.len() - 1;
        }
        let oldest = self.replicas.iter().enumerate();
        let oldest = oldest.min_by_key(|(_, replica)| replica.newest);
        match oldest {
            Some((at, known)) if known.newest < newest.saturating_sub(KEEP_MS) => {
                self.replicas[at] = replica;
                at
            }
            _ => REPLICAS_MAX,
        }
    }

    /// Returns the fingerprints of `prints` that the cluster does not track.
    pub(crate) fn list_unknown(
        &self,
        prints: impl Iterator<Item = Fingerprint>,
    ) -> Vec<Fingerprint> {
        prints
            .filter(|print| !self.series.contains_key(print))
            .collect()
    }

    /// Selects the samples of a series that are stored. `stored` contains the newest stored samples
    /// of a series that is not tracked. Samples after `time_max` are passed on, because the store
    /// rejects them.
    pub(crate) fn select(
        &mut self,
        offered: OfferedSeries<'_>,
        stored: Option<NewestSampleTimes>,
        time_max: TimestampMs,
        changes: &mut ClusterChanges,
    ) -> SeriesSelection {
        let OfferedSeries {
            print,
            replica,
            samples,
        } = offered;
        self.note_times(replica, samples, time_max);
        let series = match self.series.entry(print) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if self.tracked.load(Ordering::Relaxed) >= self.tracked_max => {
                return self.select_untracked(replica, samples, time_max, changes);
            }
            Entry::Vacant(new) => {
                self.tracked.fetch_add(1, Ordering::Relaxed);
                new.insert(stored.map_or_else(HaSeries::new, |times| {
                    HaSeries::from_stored(times.newest, times.before)
                }))
            }
        };
        let mark = series.mark();
        let (owner, is_known) = (series.owner(), series.last() != TimestampMs::MIN);
        let selection = select_samples(series, replica, samples, time_max);
        if series.has_changed_since(&mark) {
            changes.stored_series += 1;
            changes.taken_series += usize::from(is_known && owner != Some(replica));
            let last = series.last();
            changes.undo.push(SeriesUndo { print, mark, last });
        }
        selection
    }

    /// Elects the replica that has taken over most of the series that it stores with `changes`.
    /// Returns the replica if another one was elected before.
    pub(crate) fn elect(
        &mut self,
        replica: ReplicaNumber,
        changes: &mut ClusterChanges,
    ) -> Option<ReplicaElection> {
        let is_elected = self.elected == Some(replica);
        if is_elected || changes.taken_series * 2 <= changes.stored_series {
            return None;
        }
        let before = self.elected.replace(replica);
        changes.election = Some((replica, before));
        let name = |number: ReplicaNumber| {
            let known = self.replicas.get(usize::from(number.0));
            known.map_or_else(|| "others".to_owned(), |replica| replica.name.clone())
        };
        Some(ReplicaElection {
            elected: name(replica),
            before: before.map(name),
        })
    }

    /// Selects the samples of a series beyond the limit of tracked series: those of the elected
    /// replica, and those of one other replica while the elected one is silent. Samples after
    /// `time_max` are passed on, and elect no replica.
    fn select_untracked(
        &self,
        replica: ReplicaNumber,
        samples: SeriesSamples<'_>,
        time_max: TimestampMs,
        changes: &mut ClusterChanges,
    ) -> SeriesSelection {
        let Some(time) = newest_time(samples, time_max) else {
            return SeriesSelection::All;
        };
        if self.elected == Some(replica) {
            changes.stored_series += 1;
            return SeriesSelection::All;
        }
        let elected = self
            .elected
            .and_then(|elected| self.replicas.get(usize::from(elected.0)));
        let newest = elected.map_or(TimestampMs::MIN, |elected| elected.newest);
        let is_first = changes.substitute.is_none_or(|first| first == replica);
        if !is_first || time < newest.saturating_add(FAILOVER_MS) {
            return SeriesSelection::Nothing;
        }
        changes.substitute = Some(replica);
        changes.stored_series += 1;
        changes.taken_series += 1;
        SeriesSelection::All
    }

    fn note_times(
        &mut self,
        replica: ReplicaNumber,
        samples: SeriesSamples<'_>,
        time_max: TimestampMs,
    ) {
        let Some(newest) = newest_time(samples, time_max) else {
            return;
        };
        self.newest = self.newest.max(newest);
        if let Some(known) = self.replicas.get_mut(usize::from(replica.0)) {
            known.newest = known.newest.max(newest);
        }
    }

    /// Removes series without recent samples, if the last search is long enough ago in data time.
    pub(crate) fn sweep_if_due(&mut self) {
        if self.newest < self.swept.saturating_add(SWEEP_MS) {
            return;
        }
        self.swept = self.newest;
        let (before, newest) = (self.series.len(), self.newest);
        self.series.retain(|_, series| {
            let intervals = series
                .interval_ms()
                .unwrap_or(0)
                .saturating_mul(KEEP_INTERVALS);
            series.newest() >= newest.saturating_sub(KEEP_MS.max(intervals))
        });
        let gone = before - self.series.len();
        if self.series.len() < self.series.capacity() / 4 {
            self.series.shrink_to_fit();
        }
        self.tracked.fetch_sub(gone, Ordering::Relaxed);
    }

    /// Reverts the changes by a failed append.
    pub(super) fn revert(&mut self, changes: ClusterChanges) {
        if let Some((replica, before)) = changes.election
            && self.elected == Some(replica)
        {
            self.elected = before;
        }
        for SeriesUndo { print, mark, last } in changes.undo {
            if let Some(series) = self.series.get_mut(&print) {
                series.revert(mark, last);
            }
        }
    }
}

impl Drop for HaClusterState {
    fn drop(&mut self) {
        self.tracked.fetch_sub(self.series.len(), Ordering::Relaxed);
    }
}

/// Returns the time of the newest sample that is not after `time_max`.
fn newest_time(samples: SeriesSamples<'_>, time_max: TimestampMs) -> Option<TimestampMs> {
    let floats = samples.times.iter().copied();
    floats
        .chain(samples.histograms.iter().map(|h| h.time))
        .filter(|time| *time <= time_max)
        .max()
}

/// Offers the samples of a series in order of time, floats before histograms at the same time.
fn select_samples(
    series: &mut HaSeries,
    replica: ReplicaNumber,
    samples: SeriesSamples<'_>,
    time_max: TimestampMs,
) -> SeriesSelection {
    let mut selected = SelectedSamples::default();
    let (mut floats, mut histograms) = (0, 0);
    loop {
        let float = samples.times.get(floats).copied();
        let histogram = samples.histograms.get(histograms);
        let is_float = match (float, histogram) {
            (None, None) => break,
            (Some(float), Some(histogram)) => float <= histogram.time,
            (float, None) => float.is_some(),
            (None, Some(_)) => false,
        };
        let (time, value) = match (float, histogram) {
            (Some(time), _) if is_float => {
                let start = samples.start_times.get(floats).copied();
                let value = OfferedValue::Float {
                    value: samples.values[floats],
                    start_time: start.unwrap_or(START_UNKNOWN),
                };
                (time, value)
            }
            (_, Some(sample)) => (sample.time, OfferedValue::Histogram(sample)),
            _ => break,
        };
        let is_stored =
            time > time_max || series.offer(replica, time, value, &mut selected.released);
        if is_float {
            selected.floats.push(is_stored);
            floats += 1;
        } else {
            selected.histograms.push(is_stored);
            histograms += 1;
        }
    }
    let mut all = selected.floats.iter().chain(&selected.histograms);
    let (any, every) = all.clone().fold((false, true), |(any, every), is_stored| {
        (any || *is_stored, every && *is_stored)
    });
    if selected.released.is_empty() && every && all.next().is_some() {
        SeriesSelection::All
    } else if any {
        SeriesSelection::Some(Box::new(selected))
    } else {
        SeriesSelection::Nothing
    }
}
