//! Removes the samples of other replicas, and the label of the replica, from pushed batches.
//!
//! ```text
//! keys -> cluster, replica, key without the replica -> selection -> batch of stored samples
//! ```
//!
//! A series with both labels belongs to a cluster of replicas; all others pass unchanged. The keys
//! of the new batch are those that a single replica without the label would send, so the store
//! finds the series without decoding labels.
//!
//! Invariant: each sample of the decoded batch is in the new one, or counted as deduplicated.

use super::Pipeline;
use super::decoded::ReplicaSelection;
use super::room::WriteAdmission;
use crate::ha::{
    ClusterChanges, HaChanges, HaCluster, OfferedSeries, ReplicaNumber, SeriesSelection,
};
use crate::outcome::DeduplicatedSamples;
use firn_model::batch::{Batch, BatchSource, SeriesSamples};
use firn_model::error::Error;
use firn_model::fingerprint::{Fingerprint, SeriesHash};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::NewestSampleTimes;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::{ReplicaSettings, TenantLimits};
use firn_wire::remote_write::{DecodedWriteRequest, KEY_FORMAT, visit_labels};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use tracing::info;

/// A series of the decoded batch.
struct PushedSeries {
    /// Index in the decoded batch.
    index: usize,
    /// Position of the new key.
    key: Range<usize>,
    /// Cluster, as an index in the list of the batch, and replica; `None` for other series.
    source: Option<(usize, ReplicaNumber)>,
    print: Fingerprint,
    selection: SeriesSelection,
}

/// A cluster with series in the batch.
struct PushedCluster {
    name: Vec<u8>,
    cluster: HaCluster,
    /// The replica of the latest series. Batches usually have one.
    replica: Option<(Vec<u8>, ReplicaNumber)>,
}

/// Reads the keys of a batch and creates the new ones.
struct ReplicaKeyReader<'a> {
    pipeline: &'a Pipeline,
    tenant: &'a TenantId,
    settings: &'a ReplicaSettings,
    hash: SeriesHash,
    message: Vec<u8>,
    clusters: Vec<PushedCluster>,
    key: Vec<u8>,
}

impl Pipeline {
    /// Replaces the samples of `decoded` by those that are stored. Returns `None`, without a
    /// change, if the tenant has no replicas or no series belongs to a cluster of them. Fails if
    /// there is no memory, or if there are too many clusters.
    pub(super) fn select_replicas(
        &self,
        tenant: &TenantId,
        limits: &TenantLimits,
        decoded: &mut DecodedWriteRequest<'_>,
        admission: &mut WriteAdmission,
        time_max: TimestampMs,
    ) -> Result<Option<ReplicaSelection>, Error> {
        let Some(settings) = &limits.replicas else {
            return Ok(None);
        };
        let Some(hash) = self.store.series_hash() else {
            return Ok(None);
        };
        if let Some(work) = &mut admission.work {
            work.grow(decoded.batch.memory_bytes())?;
        }
        let mut reader = ReplicaKeyReader {
            pipeline: self,
            tenant,
            settings,
            hash,
            message: Vec::new(),
            clusters: Vec::new(),
            key: Vec::new(),
        };
        let mut series = reader.read_series(decoded)?;
        if reader.clusters.is_empty() {
            return Ok(None);
        }
        let ReplicaKeyReader {
            message, clusters, ..
        } = reader;
        let mut changes = HaChanges::default();
        for (number, cluster) in clusters.into_iter().enumerate() {
            let made = self.select_of_cluster(
                tenant,
                &cluster,
                number,
                &mut series,
                decoded.batch,
                time_max,
            );
            changes.add(cluster.cluster, made);
        }
        let mut batch = Batch::default();
        let deduplicated = push_selected(decoded.batch, series, &mut batch);
        batch.put_message(message, KEY_FORMAT);
        decoded.replace_batch(batch);
        let tracker = &self.replicas;
        let refused = deduplicated.floats + deduplicated.histograms;
        let counts = [
            (&tracker.deduplicated, refused),
            (&tracker.filled, deduplicated.filled),
        ];
        for (counter, count) in counts {
            counter.fetch_add(count as u64, Ordering::Relaxed);
        }
        let is_empty = decoded.batch.is_empty();
        Ok(Some(ReplicaSelection {
            changes,
            deduplicated,
            is_empty,
        }))
    }

    /// Selects the samples of all series of one cluster.
    fn select_of_cluster(
        &self,
        tenant: &TenantId,
        pushed: &PushedCluster,
        number: usize,
        series: &mut [PushedSeries],
        batch: &Batch,
        time_max: TimestampMs,
    ) -> ClusterChanges {
        let is_own =
            |series: &PushedSeries| series.source.is_some_and(|(cluster, _)| cluster == number);
        let mut changes = ClusterChanges::default();
        let mut state = lock(&pushed.cluster);
        let prints = series.iter().filter(|series| is_own(series));
        let unknown = state.list_unknown(prints.map(|series| series.print));
        let times = self.store.newest_sample_times(tenant, &unknown);
        let known = unknown.into_iter().zip(times);
        let stored: HashMap<Fingerprint, NewestSampleTimes> = known
            .filter_map(|(print, times)| Some((print, times?)))
            .collect();
        let mut last = None;
        for series in series.iter_mut().filter(|series| is_own(series)) {
            let Some((_, replica)) = series.source else {
                continue;
            };
            last = Some(replica);
            let offered = OfferedSeries {
                print: series.print,
                replica,
                samples: batch.series(series.index),
            };
            let newest = stored.get(&series.print).copied();
            series.selection = state.select(offered, newest, time_max, &mut changes);
        }
        state.sweep_if_due();
        let election = last.and_then(|replica| state.elect(replica, &mut changes));
        drop(state);
        if let Some(election) = election {
            self.replicas.elections.fetch_add(1, Ordering::Relaxed);
            info!(
                tenant = tenant.as_str(),
                cluster = String::from_utf8_lossy(&pushed.name).as_ref(),
                elected = election.elected,
                before = election.before,
                "HA replica elected"
            );
        }
        changes
    }
}

impl ReplicaKeyReader<'_> {
    /// Reads all series except rejected ones, and fills the message with their new keys.
    fn read_series(
        &mut self,
        decoded: &mut DecodedWriteRequest<'_>,
    ) -> Result<Vec<PushedSeries>, Error> {
        let count = decoded.batch.series_count();
        let mut all = Vec::with_capacity(count);
        for index in 0..count {
            let start = self.message.len();
            let source = match self.read_key(decoded, index)? {
                Some(source) => source,
                None => self.read_labels(decoded, index)?,
            };
            if decoded.batch.is_refused(index) {
                self.message.truncate(start);
                continue;
            }
            let key = start..self.message.len();
            let print = match source {
                Some(_) => self.hash.keys.fingerprint(&self.message[key.clone()]),
                None => Fingerprint::default(),
            };
            all.push(PushedSeries {
                index,
                key,
                source,
                print,
                selection: SeriesSelection::All,
            });
        }
        Ok(all)
    }

    /// Appends the new key of an undecoded series. Returns `None` if the labels must be decoded.
    fn read_key(
        &mut self,
        decoded: &DecodedWriteRequest<'_>,
        index: usize,
    ) -> Result<Option<Option<(usize, ReplicaNumber)>>, Error> {
        let Some(key) = decoded.batch.key(index) else {
            return Ok(None);
        };
        let (mut cluster, mut replica): (&[u8], &[u8]) = (&[], &[]);
        let mut removed = 0..0;
        let (of_cluster, of_replica) = (
            self.settings.cluster_label.as_bytes(),
            self.settings.replica_label.as_bytes(),
        );
        let visited = visit_labels(key, |at, name, value| {
            if name == of_cluster {
                cluster = value;
            } else if name == of_replica {
                (replica, removed) = (value, at);
            }
        });
        let start = self.message.len();
        if visited.is_none() || cluster.is_empty() || replica.is_empty() {
            self.message.extend_from_slice(key);
            return Ok(Some(None));
        }
        self.message.extend_from_slice(&key[..removed.start]);
        self.message.extend_from_slice(&key[removed.end..]);
        // Other keys of the same labels would have other fingerprints.
        if !KEY_FORMAT.is_plain(&self.message[start..]) {
            self.message.truncate(start);
            return Ok(None);
        }
        let source = self.find_source(cluster, replica)?;
        Ok(Some(Some(source)))
    }

    /// Appends the canonical key of a series, after its labels were decoded.
    fn read_labels(
        &mut self,
        decoded: &mut DecodedWriteRequest<'_>,
        index: usize,
    ) -> Result<Option<(usize, ReplicaNumber)>, Error> {
        decoded.read_labels(&[index as u32])?;
        if decoded.batch.is_refused(index) {
            return Ok(None);
        }
        let labels = decoded.batch.series(index).labels;
        let cluster = labels.get(&self.settings.cluster_label);
        let replica = labels.get(&self.settings.replica_label);
        if cluster.is_empty() || replica.is_empty() {
            KEY_FORMAT.push_key(&mut self.message, labels);
            return Ok(None);
        }
        let of_replica = self.settings.replica_label.as_bytes();
        for (name, value) in labels.pairs().filter(|(name, _)| *name != of_replica) {
            KEY_FORMAT.push_label(&mut self.message, name, value);
        }
        self.find_source(cluster, replica).map(Some)
    }

    fn find_source(
        &mut self,
        cluster: &[u8],
        replica: &[u8],
    ) -> Result<(usize, ReplicaNumber), Error> {
        let known = self
            .clusters
            .iter()
            .rposition(|known| known.name == cluster);
        let at = match known {
            Some(at) => at,
            None => {
                let clusters_max = self.settings.clusters_max;
                let tracker = &self.pipeline.replicas;
                self.clusters.push(PushedCluster {
                    name: cluster.to_vec(),
                    cluster: tracker.cluster(self.tenant, cluster, clusters_max)?,
                    replica: None,
                });
                self.clusters.len() - 1
            }
        };
        let pushed = &mut self.clusters[at];
        if let Some((name, number)) = &pushed.replica
            && name == replica
        {
            return Ok((at, *number));
        }
        self.key.clear();
        self.key.extend_from_slice(replica);
        let print = self.hash.keys.fingerprint(&self.key);
        let number = lock(&pushed.cluster).replica(print, replica);
        pushed.replica = Some((replica.to_vec(), number));
        Ok((at, number))
    }
}

/// Adds the selected samples of `series` to `batch`, with their exemplars. Returns the counts of
/// the others.
fn push_selected(
    whole: &Batch,
    series: Vec<PushedSeries>,
    batch: &mut Batch,
) -> DeduplicatedSamples {
    let mut counts = DeduplicatedSamples::default();
    for pushed in series {
        let samples = whole.series(pushed.index);
        match pushed.selection {
            SeriesSelection::All => batch.push_samples_of(whole, pushed.index),
            SeriesSelection::Nothing => {
                counts.floats += samples.times.len();
                counts.histograms += samples.histograms.len();
                continue;
            }
            SeriesSelection::Some(selected) => {
                counts.filled += selected.released.len();
                for held in selected.released {
                    held.push_to(batch);
                }
                push_some(samples, &selected.floats, &selected.histograms, batch);
                let refused = |stored: &[bool]| stored.iter().filter(|stored| !**stored).count();
                counts.floats += refused(&selected.floats);
                counts.histograms += refused(&selected.histograms);
            }
        }
        batch.push_exemplars_of(whole, pushed.index);
        batch.end_unread_series(pushed.key);
    }
    counts
}

fn push_some(samples: SeriesSamples<'_>, floats: &[bool], histograms: &[bool], batch: &mut Batch) {
    for (i, is_stored) in floats.iter().enumerate() {
        if !is_stored {
            continue;
        }
        let (time, value) = (samples.times[i], samples.values[i]);
        match samples.start_times.get(i) {
            Some(start) if *start != START_UNKNOWN => {
                batch.push_float_with_start(time, value, *start);
            }
            _ => batch.push_float(time, value),
        }
    }
    for (sample, _) in samples
        .histograms
        .iter()
        .zip(histograms)
        .filter(|(_, stored)| **stored)
    {
        batch.push_histogram(sample.clone());
    }
}
