//! Appends and strong reads of clients, which reach the leaders by the beliefs of a node.

use super::SimFlaw;
use super::cluster::{PARTITIONS, SimCluster};
use super::journal::{SamplePlace, SentSample};
use super::process::{SimProcess, name};
use crate::forward::join_led;
use crate::ids::PartitionId;
use crate::members::PartitionStage;
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Append, AppendBounds, Select, SelectRequest};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_peer::ReadConsistency;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

impl SimCluster {
    /// Returns the node that leads `partition`, as `gateway` believes.
    fn route(&self, gateway: &SimProcess, partition: PartitionId) -> Option<usize> {
        if gateway.node.find_led(partition).is_some() {
            return Some(gateway.index);
        }
        let table = lock(&gateway.table);
        let (member, claim) = table.claimant(gateway.now(), partition)?;
        let index = ["a", "b", "c"]
            .iter()
            .position(|n| *n == member.report.name);
        index.filter(|_| claim.stage == PartitionStage::Leading)
    }

    /// A client sends a sample to a random node, which passes it to the leader.
    pub fn append(&self) {
        let (partition, gateway) = (self.random_partition(), self.random_running());
        let Some(gateway) = gateway else {
            return;
        };
        let Some(index) = self.route(&gateway, partition) else {
            return;
        };
        let is_linked = self.is_linked(gateway.index, index);
        let Some(target) = self.process(index).filter(|_| is_linked) else {
            return;
        };
        let sample = lock(&self.journal).draw_sample(&self.rng, partition);
        let (from, to) = (name(gateway.index), name(index));
        self.note(|| format!("{from} sends {:?} = {} to {to}", sample.place, sample.value));
        let (me, leader) = (self.me(), Arc::downgrade(&target));
        let from = gateway.index;
        let append = move || {
            if let (Some(cluster), Some(target)) = (me.upgrade(), leader.upgrade()) {
                cluster.append_at(from, &target, sample);
            }
        };
        target.control.deliver(Box::new(append));
    }

    fn append_at(&self, gateway: usize, target: &SimProcess, sample: SentSample) {
        let partition = sample.partition;
        let Some((log, store)) = target.node.find_led(partition) else {
            return;
        };
        let mut batch = Batch::default();
        let labels = Labels::from_pairs([("__name__", sample.place.0.as_str())]);
        batch.push_series(labels.as_ref(), &[(sample.place.1, sample.value)]);
        let bounds = AppendBounds::up_to(i64::MAX);
        let ticket = store.append(&TenantId::anonymous(), &batch, bounds);
        let (me, index, incarnation) = (self.me(), target.index, target.incarnation);
        drop(ticket.with_observer(move |outcome| {
            let Some(cluster) = me.upgrade() else {
                return;
            };
            let stored = outcome.as_ref().map(|outcome| outcome.stored);
            let stored = stored.map_err(|e| e.message.clone());
            let by = format!("{} in epoch {}", name(index), log.epoch());
            cluster.note(|| format!("{by}: {:?} {stored:?}", sample.place));
            if stored != Ok(1) {
                return;
            }
            let is_linked = cluster.is_linked(index, gateway);
            let mut journal = lock(&cluster.journal);
            journal.add_durable(partition, log.epoch(), incarnation);
            if is_linked {
                journal.add_ack(&sample, &by);
            }
        }));
    }

    /// Reads all partitions or one by a node, strongly. Returns whether there was an answer.
    pub fn read(&self, reader: &SimProcess, one: Option<PartitionId>) -> bool {
        let all = (0..PARTITIONS.get()).map(PartitionId);
        let partitions: Vec<_> = all.filter(|p| one.is_none_or(|one| one == *p)).collect();
        let required = lock(&self.journal).required(&partitions);
        let answer = self.read_partitions(reader, partitions);
        let by = name(reader.index);
        match answer {
            Ok(answer) => {
                let (found, of) = (answer.len(), required.len());
                self.note(|| format!("{by} answers {found} samples of {one:?}, required {of}"));
                lock(&self.journal).check_answer(&by, &required, &answer);
                true
            }
            Err(reason) => {
                lock(&self.journal).counts.refused_reads += 1;
                self.note(|| format!("{by} answers no read: {reason}"));
                false
            }
        }
    }

    fn read_partitions(
        &self,
        reader: &SimProcess,
        partitions: Vec<PartitionId>,
    ) -> Result<Vec<(SamplePlace, u64)>, String> {
        let mut groups: BTreeMap<usize, Vec<PartitionId>> = BTreeMap::new();
        for partition in partitions {
            match self.route(reader, partition) {
                Some(index) => groups.entry(index).or_default().push(partition),
                None if self.flaw == Some(SimFlaw::SkipsLeaderless) => {}
                None => return Err(format!("no node leads {partition}")),
            }
        }
        let mut answer = Vec::new();
        for (index, partitions) in groups {
            let server = self.running(index).ok_or("the leader does not answer")?;
            let _read = server.begin_read().ok_or("the leader is busy")?;
            if !self.is_linked(reader.index, index) {
                return Err("no link to the leader".to_owned());
            }
            answer.extend(self.read_led(&server, &partitions)?);
            let is_lost = server.control.is_dead() || !self.is_linked(index, reader.index);
            if is_lost {
                return Err("the answer is lost".to_owned());
            }
        }
        Ok(answer)
    }

    fn read_led(
        &self,
        server: &SimProcess,
        partitions: &[PartitionId],
    ) -> Result<Vec<(SamplePlace, u64)>, String> {
        let mut led = Vec::new();
        for partition in partitions {
            let found = server.node.find_led(*partition);
            let (log, store) = found.ok_or("the node does not lead")?;
            led.push((*partition, log, store));
        }
        let wait_ms = [0, 300, 1_000][self.rng.next_below(3) as usize];
        let wait_max = Duration::from_millis(wait_ms);
        let select = join_led(led, ReadConsistency::Strong, wait_max);
        let answer = select_all(&*select);
        let (answer, losses) = answer.map_err(|e| format!("{:?}: {}", e.kind, e.message))?;
        if !losses.is_empty() {
            let by = name(server.index);
            self.note(|| format!("{by} has losses: {losses:?}"));
        }
        Ok(answer)
    }
}

/// Returns all samples with the bits of their values.
fn select_all(select: &dyn Select) -> Result<(Vec<(SamplePlace, u64)>, DataLossWarnings), Error> {
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: &[],
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    let selection = select.select(request)?;
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch)?;
    let mut samples = Vec::new();
    for index in 0..selection.len() {
        let labels = selection.labels(index);
        let series = String::from_utf8_lossy(labels.get("__name__")).into_owned();
        let read = batch.series(index);
        for (time, value) in read.times.iter().zip(read.values) {
            samples.push(((series.clone(), *time), value.to_bits()));
        }
    }
    Ok((samples, selection.loss_warnings()))
}
