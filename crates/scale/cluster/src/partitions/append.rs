//! Appends batches to the partitions of their series.
//!
//! ```text
//! batch -> routes -> every partition concerned accepts writes?
//!       -> partitions of other nodes: PartForwarder, all parts at once -> tickets -> one outcome
//!       -> partitions of this node:   part by part: append             -> tickets ->
//! ```
//!
//! Invariants: the outcome is the one that a single store with all series returns; nothing is
//! appended if a partition concerned rejects writes or the batch is invalid. A failure after that
//! leaves the other parts stored, and a sender that repeats the batch stores them once. A reader
//! may see some parts of a batch before others.
//!
//! Age limits count from the newest sample of all partitions ([`AppendBounds::newest`]), except in
//! the first batch, where they count from the first sample of each part. A journal is logged by the
//! first partition alone. The results in the other parts of its batch have records of their own: a
//! crash between both may lose them, so aggregations need a single partition.

use super::joined_outcome::JoinedOutcome;
use super::routing::PartitionRouter;
use super::split::{PartitionGroups, SplitScratch};
use crate::ids::PartitionId;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{Fingerprint, SeriesHash};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendBounds, Ticket};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

/// Maximum number of idle working memories; more appends than that rarely run at once.
const IDLE_MAX: usize = 8;

/// The partition that logs journals.
const JOURNAL_PARTITION: PartitionId = PartitionId(0);

/// Sends the parts of batches whose partitions other nodes lead.
pub trait PartForwarder: Send + Sync {
    /// Returns whether parts of `partition` are sent now: another node leads it, or none does.
    fn is_elsewhere(&self, partition: PartitionId) -> bool;

    /// Sends the series of each of `partitions`, together if one node leads several. Returns a
    /// ticket for each of them, in order.
    fn forward(
        &self,
        tenant: &TenantId,
        batch: &RoutedBatch<'_>,
        partitions: &[PartitionId],
        bounds: AppendBounds,
    ) -> Vec<Ticket>;
}

/// A batch whose series are assigned to partitions.
#[derive(Clone, Copy)]
pub struct RoutedBatch<'a> {
    /// The batch. Undecoded keys are plain ([`firn_model::series_key::KeyFormat::is_plain`]).
    pub batch: &'a Batch,
    /// The fingerprints of the canonical keys of all series.
    pub prints: &'a [Fingerprint],
    groups: &'a PartitionGroups,
}

impl RoutedBatch<'_> {
    /// Returns the series of a partition as indexes in the batch, ascending, without rejected ones.
    pub fn series_of(&self, partition: PartitionId) -> &[u32] {
        self.groups.series_of(partition)
    }
}

/// All partitions as one store that accepts samples. A batch costs a check of each key and a copy
/// of its samples; with one partition, batches pass unchanged at no cost.
pub struct PartitionedAppend {
    partitions: Vec<Arc<dyn Append>>,
    forwarder: Option<Arc<dyn PartForwarder>>,
    /// `None` if there is only one partition.
    pub(super) router: Option<PartitionRouter>,
    idle: Mutex<Vec<SplitScratch>>,
}

impl PartitionedAppend {
    /// Joins `partitions`, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there is no partition, or if several do not hash series keys with
    /// the same keys and format.
    pub fn new(partitions: Vec<Arc<dyn Append>>) -> Result<Self, Error> {
        let count = u32::try_from(partitions.len()).ok();
        let Some(count) = count.and_then(NonZeroU32::new) else {
            return Err(Error::new(ErrorKind::Invalid, "there are no partitions"));
        };
        let router = match &partitions[..] {
            [_] => None,
            several => Some(PartitionRouter::new(count, find_common_hash(several)?)),
        };
        Ok(Self {
            partitions,
            forwarder: None,
            router,
            idle: Mutex::default(),
        })
    }

    /// Sends parts by `forwarder` if their partitions are on other nodes. Otherwise, each partition
    /// gets its part by [`Append`].
    pub fn with_forwarder(mut self, forwarder: Arc<dyn PartForwarder>) -> Self {
        self.forwarder = Some(forwarder);
        self
    }

    /// Returns the bounds of a batch, with the newest sample of all partitions.
    fn add_newest(&self, tenant: &TenantId, bounds: AppendBounds) -> AppendBounds {
        AppendBounds {
            newest: bounds.newest.max(self.newest_time(tenant)),
            ..bounds
        }
    }

    fn append_routed(
        &self,
        router: &PartitionRouter,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
        scratch: &mut SplitScratch,
    ) -> Result<Ticket, Error> {
        router.route(source, &mut scratch.routes)?;
        let groups = PartitionGroups::new(&scratch.routes.partitions, self.partitions.len());
        let journal = source.batch().journal();
        let has_journal = !journal.is_empty();
        let is_concerned = |partition: &PartitionId| {
            let is_of_journal = has_journal && *partition == JOURNAL_PARTITION;
            is_of_journal || !groups.series_of(*partition).is_empty()
        };
        let numbers = (0..groups.partition_count() as u32).map(PartitionId);
        let concerned: Vec<PartitionId> = numbers.filter(is_concerned).collect();
        let first = *concerned.first().unwrap_or(&JOURNAL_PARTITION);
        if concerned.len() <= 1 {
            return Ok(self.partition(first).append_from(tenant, source, bounds));
        }
        if !has_journal {
            // A caller with a journal was admitted before it changed its state.
            for partition in &concerned {
                self.partition(*partition).check_append(tenant)?;
            }
        }
        let (joined, ticket) = JoinedOutcome::new(groups, concerned.len());
        let concerned = match &self.forwarder {
            // Only the store of a partition logs a journal.
            Some(forwarder) if !has_journal => {
                let batch = RoutedBatch {
                    batch: source.batch(),
                    prints: &scratch.routes.prints,
                    groups: joined.groups(),
                };
                let is_elsewhere = |partition: &PartitionId| forwarder.is_elsewhere(*partition);
                let (sent, own): (Vec<_>, Vec<_>) = concerned.into_iter().partition(is_elsewhere);
                let tickets = forwarder.forward(tenant, &batch, &sent, bounds);
                for (partition, ticket) in sent.into_iter().zip(tickets) {
                    joined.add_ticket(partition, ticket);
                }
                own
            }
            _ => concerned,
        };
        // The journal is last: if the process ends in between, its results are computed again.
        for partition in concerned.into_iter().rev() {
            let series = joined.groups().series_of(partition);
            let journal = (has_journal && partition == JOURNAL_PARTITION)
                .then(|| source.batch().journal().clone());
            let mut part = scratch.make_part(source, series, router);
            if let Some(journal) = journal {
                part.part.set_journal(journal);
            }
            let appended = self
                .partition(partition)
                .append_from(tenant, &mut part, bounds);
            joined.add_ticket(partition, appended);
        }
        scratch.end_part();
        Ok(ticket)
    }

    fn partition(&self, partition: PartitionId) -> &dyn Append {
        &*self.partitions[partition.0 as usize]
    }
}

impl Append for PartitionedAppend {
    fn append(&self, tenant: &TenantId, mut batch: &Batch, bounds: AppendBounds) -> Ticket {
        match &self.partitions[..] {
            [one] => one.append(tenant, batch, bounds),
            _ => self.append_from(tenant, &mut batch, bounds),
        }
    }

    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        let Some(router) = &self.router else {
            return self.partitions[0].append_from(tenant, source, bounds);
        };
        let bounds = self.add_newest(tenant, bounds);
        let mut scratch = lock(&self.idle).pop().unwrap_or_default();
        let appended = self.append_routed(router, tenant, source, bounds, &mut scratch);
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(scratch);
        }
        drop(idle);
        appended.unwrap_or_else(|e| Ticket::resolved(Err(e)))
    }

    fn check_append(&self, tenant: &TenantId) -> Result<(), Error> {
        let mut checks = self.partitions.iter().map(|p| p.check_append(tenant));
        checks.find(Result::is_err).unwrap_or(Ok(()))
    }

    fn begin_log_unit(&self, tenant: &TenantId) -> Result<(), Error> {
        self.partition(JOURNAL_PARTITION).begin_log_unit(tenant)
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        self.partitions[0].series_hash()
    }

    fn write_held_record(&self) {
        self.partitions.iter().for_each(|p| p.write_held_record());
    }

    fn may_wait(&self) -> bool {
        self.partitions.iter().any(|p| p.may_wait())
    }

    /// Returns the times that all partitions accept.
    fn first_sample_times(
        &self,
        tenant: &TenantId,
        bounds: AppendBounds,
    ) -> RangeInclusive<TimestampMs> {
        let bounds = self.add_newest(tenant, bounds);
        let all = self.partitions.iter();
        let all = all.map(|p| p.first_sample_times(tenant, bounds));
        all.reduce(|a, b| *a.start().max(b.start())..=*a.end().min(b.end()))
            .unwrap_or(TimestampMs::MIN..=bounds.time_max)
    }

    fn newest_time(&self, tenant: &TenantId) -> Option<TimestampMs> {
        let newest = self.partitions.iter().map(|p| p.newest_time(tenant));
        newest.max().flatten()
    }

    fn can_store_exemplars(&self) -> bool {
        self.partitions.iter().any(|p| p.can_store_exemplars())
    }
}

/// Returns the hash of all `partitions` for series keys.
fn find_common_hash(partitions: &[Arc<dyn Append>]) -> Result<SeriesHash, Error> {
    let mut hashes = partitions.iter().map(|p| p.series_hash());
    let is_same =
        |a: &SeriesHash, b: &SeriesHash| *a.keys == *b.keys && a.format.name() == b.format.name();
    let first = hashes.next().flatten();
    let common = first.filter(|first| hashes.all(|h| h.is_some_and(|h| is_same(&h, first))));
    common.ok_or_else(|| {
        let text = "the partitions do not hash series keys in the same way";
        Error::new(ErrorKind::Invalid, text)
    })
}
