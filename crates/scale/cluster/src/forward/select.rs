//! Reads that join all partitions, wherever they are led.
//!
//! Partitions are grouped by their leaders: the stores of this node are one group, and each other
//! node is asked once for all its partitions. The groups are read at the same time. A group that
//! fails because its leader changed is read again at the new one.

use super::metrics::ForwardMetrics;
use crate::engine::BucketLog;
use crate::ids::PartitionId;
use crate::membership::Membership;
use crate::node::StrongSelect;
use crate::partitions::select::{PartitionedSelect, join_costs, join_metadata};
use firn_model::cancel::CancelToken;
use firn_model::concatenation::ConcatenatedSelection;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, Select, SelectRequest, Selection,
};
use firn_model::tenant::TenantId;
use firn_peer::{PeerClient, PeerFailure, PeerReadScope, ReadConsistency};
use firn_storage::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause before partitions without a leader are looked up again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The time limit of a read at another node. Queries have their own, which cancels the read.
const READ_TIMEOUT: Duration = Duration::from_secs(600);

/// The time limit of small requests at another node.
const SMALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Which samples a read must include.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Every sample that any node acknowledged before the read arrived.
    Strong,
    /// The samples that the leaders have, without a confirmation that they still lead.
    Eventual,
    /// Like [`ReadMode::Strong`], but partitions that no node answers for are missing, each with a
    /// warning.
    Partial,
}

/// All partitions of a cluster as one store that can be read.
pub struct ClusterSelect {
    membership: Arc<Membership>,
    mode: ReadMode,
    /// The time for which a read waits for partitions without a leader.
    wait_max: Duration,
    metrics: Arc<ForwardMetrics>,
}

/// A read of the stores of this node.
type OwnRead<'r, T> = dyn Fn(&dyn Select) -> Result<T, Error> + Sync + 'r;

/// A read of the partitions that another node leads.
type PeerRead<'r, T> = dyn Fn(&PeerClient, &PeerReadScope) -> Result<T, PeerFailure> + Sync + 'r;

/// The partitions that one node answers for.
enum ReadGroup {
    Own {
        partitions: Vec<PartitionId>,
        select: Box<dyn Select>,
    },
    Peer {
        partitions: Vec<PartitionId>,
        client: PeerClient,
    },
    /// No node leads them, or the address of the node is invalid.
    Missing {
        partitions: Vec<PartitionId>,
        reason: String,
    },
}

/// The results of the groups, and the partitions that none of them contains.
struct GroupResults<T> {
    results: Vec<T>,
    missing: Vec<(PartitionId, String)>,
}

impl ClusterSelect {
    /// Creates the reads of a cluster. A read that has no answer for a partition within `wait_max`
    /// fails with [`ErrorKind::Unavailable`], unless the mode is [`ReadMode::Partial`].
    pub fn new(
        membership: Arc<Membership>,
        mode: ReadMode,
        wait_max: Duration,
        metrics: Arc<ForwardMetrics>,
    ) -> Self {
        Self {
            membership,
            mode,
            wait_max,
            metrics,
        }
    }

    fn consistency(&self) -> ReadConsistency {
        match self.mode {
            ReadMode::Strong | ReadMode::Partial => ReadConsistency::Strong,
            ReadMode::Eventual => ReadConsistency::Eventual,
        }
    }

    fn scope(&self, partitions: &[PartitionId], timeout: Duration) -> PeerReadScope {
        PeerReadScope {
            partitions: partitions.iter().map(|partition| partition.0).collect(),
            consistency: self.consistency(),
            timeout,
        }
    }

    /// Reads all partitions, with `own` from stores of this node and with `peer` from others.
    fn read_all<T: Send>(
        &self,
        cancel: &CancelToken,
        own: &OwnRead<'_, T>,
        peer: &PeerRead<'_, T>,
    ) -> Result<GroupResults<T>, Error> {
        let begin = Instant::now();
        let count = self.membership.node().format().partitions.get();
        let mut pending: BTreeSet<PartitionId> = (0..count).map(PartitionId).collect();
        let mut results = Vec::new();
        loop {
            cancel.check()?;
            let mut missing = Vec::new();
            for (partitions, outcome) in self.read_groups(&pending, own, peer) {
                match outcome {
                    Ok(result) => {
                        results.push(result);
                        pending.retain(|partition| !partitions.contains(partition));
                    }
                    Err(failure) => {
                        let reason = retry_reason(failure)?;
                        missing.extend(partitions.into_iter().map(|p| (p, reason.clone())));
                    }
                }
            }
            let is_over = begin.elapsed() >= self.wait_max;
            if missing.is_empty() || (is_over && self.mode == ReadMode::Partial) {
                return Ok(GroupResults { results, missing });
            }
            if is_over {
                return Err(self.describe_missing(&missing));
            }
            self.metrics.waits.inc();
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    fn describe_missing(&self, missing: &[(PartitionId, String)]) -> Error {
        let (first, reason) = &missing[0];
        let waited = self.wait_max;
        let text = match missing.len() {
            1 => format!("partition {first} has no answer after {waited:?}: {reason}"),
            several => format!(
                "{several} partitions have no answer after {waited:?}, the first is {first}: \
                 {reason}"
            ),
        };
        Error::unavailable(text)
    }

    /// Reads the groups of `pending` partitions at the same time, that of this node on the calling
    /// thread.
    fn read_groups<T: Send>(
        &self,
        pending: &BTreeSet<PartitionId>,
        own: &OwnRead<'_, T>,
        peer: &PeerRead<'_, T>,
    ) -> Vec<(Vec<PartitionId>, Result<T, PeerFailure>)> {
        let read = |group: ReadGroup| match group {
            ReadGroup::Own { partitions, select } => {
                (partitions, own(&*select).map_err(PeerFailure::Failed))
            }
            ReadGroup::Peer { partitions, client } => {
                let scope = self.scope(&partitions, READ_TIMEOUT);
                (partitions, peer(&client, &scope))
            }
            ReadGroup::Missing { partitions, reason } => {
                (partitions, Err(PeerFailure::Unavailable(reason)))
            }
        };
        let mut groups = self.group(pending);
        // The last group is that of this node, if there is one.
        let Some(last) = groups.pop() else {
            return Vec::new();
        };
        std::thread::scope(|scope| {
            let read = &read;
            let begun: Vec<_> = groups
                .into_iter()
                .map(|group| scope.spawn(move || read(group)))
                .collect();
            let mut outcomes = vec![read(last)];
            for thread in begun {
                match thread.join() {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            outcomes
        })
    }

    fn group(&self, pending: &BTreeSet<PartitionId>) -> Vec<ReadGroup> {
        let mut led: Vec<(PartitionId, BucketLog, Arc<Store>)> = Vec::new();
        let mut peers: BTreeMap<String, Vec<PartitionId>> = BTreeMap::new();
        let mut leaderless = Vec::new();
        for partition in pending {
            if let Some((log, store)) = self.membership.node().find_led(*partition) {
                led.push((*partition, log, store));
            } else if let Some(leader) = self.membership.leader(*partition) {
                peers.entry(leader.address).or_default().push(*partition);
            } else {
                leaderless.push(*partition);
            }
        }
        let mut groups: Vec<ReadGroup> = Vec::new();
        for (address, partitions) in peers {
            groups.push(match self.membership.directory().client(&address) {
                Ok(client) => ReadGroup::Peer { partitions, client },
                Err(failure) => ReadGroup::Missing {
                    partitions,
                    reason: failure.to_string(),
                },
            });
        }
        if !leaderless.is_empty() {
            groups.push(ReadGroup::Missing {
                partitions: leaderless,
                reason: "no node leads it".to_owned(),
            });
        }
        if !led.is_empty() {
            groups.push(self.own_group(led));
        }
        groups
    }

    fn own_group(&self, led: Vec<(PartitionId, BucketLog, Arc<Store>)>) -> ReadGroup {
        let partitions = led.iter().map(|(partition, ..)| *partition).collect();
        let select = join_led(led, self.consistency(), self.wait_max);
        ReadGroup::Own { partitions, select }
    }

    /// Selects series in all partitions. The limit on series counts those of all groups.
    fn select_with(
        &self,
        request: SelectRequest<'_>,
        own: impl Fn(&dyn Select, SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> + Sync,
        peer: impl Fn(
            &PeerClient,
            &PeerReadScope,
            SelectRequest<'_>,
        ) -> Result<Arc<dyn Selection>, PeerFailure>
        + Sync,
    ) -> Result<Arc<dyn Selection>, Error> {
        let remaining = request.series.remaining();
        // A group above the limit has no selection, and its series count.
        let selected = self.read_all(
            request.cancel,
            &|select| {
                let limit = SeriesLimit::new(remaining);
                let series = &limit;
                let selection = own(select, SelectRequest { series, ..request });
                match selection {
                    Err(_) if limit.found() > remaining => Ok((None, limit.found())),
                    selection => Ok((Some(selection?), limit.found())),
                }
            },
            &|client, scope| {
                let limit = SeriesLimit::new(remaining);
                let series = &limit;
                let selection = peer(client, scope, SelectRequest { series, ..request });
                match selection {
                    Err(_) if limit.found() > remaining => Ok((None, limit.found())),
                    selection => Ok((Some(selection?), limit.found())),
                }
            },
        )?;
        let found = selected.results.iter().map(|(_, found)| found).sum();
        request.series.add_series(found)?;
        let parts = selected.results.into_iter();
        let parts = parts.filter_map(|(selection, _)| selection).collect();
        let losses = DataLossWarnings::default();
        add_missing(&losses, &selected.missing);
        Ok(Arc::new(ConcatenatedSelection::with_losses(parts, losses)))
    }

    /// Returns the items of all partitions, sorted and each once.
    fn collect_sorted<T: Ord + Send>(
        &self,
        cancel: &CancelToken,
        own: &OwnRead<'_, Vec<T>>,
        peer: &PeerRead<'_, Vec<T>>,
    ) -> Result<Vec<T>, Error> {
        let collected = self.read_all(cancel, own, peer)?;
        let mut all: Vec<T> = collected.results.into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Returns the texts about lost data of all partitions, and about those that are missing now.
    fn collect_losses(
        &self,
        own: &(dyn Fn(&dyn Select) -> DataLossWarnings + Sync),
        peer: &PeerRead<'_, DataLossWarnings>,
    ) -> DataLossWarnings {
        let count = self.membership.node().format().partitions.get();
        let all = (0..count).map(PartitionId).collect();
        let losses = DataLossWarnings::default();
        let own = |select: &dyn Select| Ok(own(select));
        let peer = |client: &PeerClient, scope: &PeerReadScope| {
            let timeout = SMALL_TIMEOUT;
            peer(
                client,
                &PeerReadScope {
                    timeout,
                    ..scope.clone()
                },
            )
        };
        for (partitions, outcome) in self.read_groups(&all, &own, &peer) {
            match outcome {
                Ok(texts) => losses.add_all(&texts),
                Err(failure) => {
                    let reason = failure.to_string();
                    let missing = partitions.into_iter().map(|p| (p, reason.clone()));
                    add_missing(&losses, &missing.collect::<Vec<_>>());
                }
            }
        }
        losses
    }
}

/// Joins the stores of partitions that this node leads. Strong reads wait for their leases.
pub(crate) fn join_led(
    led: Vec<(PartitionId, BucketLog, Arc<Store>)>,
    consistency: ReadConsistency,
    wait_max: Duration,
) -> Box<dyn Select> {
    let (mut logs, mut stores) = (Vec::new(), Vec::<Arc<dyn Select>>::new());
    for (_, log, store) in led {
        logs.push(log);
        stores.push(store);
    }
    let stores = PartitionedSelect::new(stores);
    match consistency {
        ReadConsistency::Strong => Box::new(StrongSelect::new(logs, Arc::new(stores), wait_max)),
        ReadConsistency::Eventual => Box::new(stores),
    }
}

/// Returns the reason to read a group again, or the error of the read.
fn retry_reason(failure: PeerFailure) -> Result<String, Error> {
    match failure {
        PeerFailure::Failed(error) if error.kind != ErrorKind::Unavailable => Err(error),
        PeerFailure::Failed(error) => Ok(error.message),
        failure => Ok(failure.to_string()),
    }
}

fn add_missing(losses: &DataLossWarnings, missing: &[(PartitionId, String)]) {
    for (partition, reason) in missing {
        losses.add(&format!(
            "the samples of partition {partition} are missing: {reason}"
        ));
    }
}

impl Select for ClusterSelect {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_with(request, |s, request| s.select(request), PeerClient::select)
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let own = |s: &dyn Select, request: SelectRequest<'_>| s.select_labels(request);
        self.select_with(request, own, PeerClient::select_labels)
    }

    /// Returns the costs of matchers if this node leads all partitions. The protocol between nodes
    /// does not contain costs.
    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        let unknown = vec![MatcherCost::default(); request.matchers.len()];
        let costs = self.read_all(
            request.cancel,
            &|select| select.explain(request),
            &|_, _| Ok(unknown.clone()),
        )?;
        Ok(join_costs(&costs.results, request.matchers.len()))
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.collect_sorted(
            request.cancel,
            &|select| select.label_names(request),
            &|client, scope| client.label_names(scope, request),
        )
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.collect_sorted(
            request.cancel,
            &|select| select.label_values(name, request),
            &|client, scope| client.label_values(name, scope, request),
        )
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        let found = self.read_all(
            request.cancel,
            &|select| select.exemplars(request),
            &|client, scope| client.exemplars(scope, request),
        )?;
        let mut all: Vec<_> = found.results.into_iter().flatten().collect();
        all.sort_unstable_by(|a, b| a.series.cmp(&b.series));
        Ok(all)
    }

    /// Returns the metadata of all nodes: that of their stores and what they have received. A node
    /// that does not answer is left out, since the others usually have the same.
    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        let stores = self.membership.node().open_stores().stores();
        let stores = stores
            .iter()
            .map(|open| open.store.clone() as Arc<dyn Select>);
        let mut batches = vec![PartitionedSelect::new(stores.collect()).metadata(request)?];
        let addresses = self.membership.read_members(|table, now| {
            let live = table.live_members(now).into_iter();
            live.map(|m| m.report.address.clone()).collect::<Vec<_>>()
        });
        for address in addresses {
            let client = self.membership.directory().client(&address);
            match client.and_then(|client| client.metadata(request, SMALL_TIMEOUT)) {
                Ok(batch) => batches.push(batch),
                Err(failure) => tracing::debug!(address, %failure, "no metadata of a peer"),
            }
        }
        Ok(join_metadata(&batches))
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.collect_losses(
            &|select| select.loss_warnings(tenant, range),
            &|client, scope| client.losses(scope, tenant, range, false),
        )
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.collect_losses(
            &|select| select.label_loss_warnings(tenant, range),
            &|client, scope| client.losses(scope, tenant, range, true),
        )
    }
}
