//! The state of the cluster for the API, before and after this node has joined.

use firn_cluster::ids::PartitionId;
use firn_cluster::members::{
    DEAD_AFTER, KnownMember, MemberTable, PartitionReport, PartitionStage,
};
use firn_cluster::membership::Membership;
use firn_cluster::node::ClusterNode;
use firn_model::cluster_status::{
    ClusterStatus, MemberState, MemberStatus, PartitionPhase, PartitionStatus,
};
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{DurableLog, LogHealth};
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The source of the state of the cluster.
pub(super) struct ClusterStatusSource {
    name: String,
    clock: Arc<dyn Clock>,
    node: OnceLock<Arc<ClusterNode>>,
    membership: OnceLock<Arc<Membership>>,
    /// Fault of the bucket that concerns all partitions.
    fault: Mutex<Option<String>>,
}

impl ClusterStatusSource {
    /// Creates the source of the node `name`, which has not joined yet.
    pub(super) fn new(name: String, clock: Arc<dyn Clock>) -> Self {
        Self {
            name,
            clock,
            node: OnceLock::new(),
            membership: OnceLock::new(),
            fault: Mutex::default(),
        }
    }

    /// Sets or removes the fault of the bucket.
    pub(super) fn set_fault(&self, fault: Option<String>) {
        *lock(&self.fault) = fault;
    }

    /// Returns the name of this node.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sets the node, once it has joined.
    pub(super) fn set_node(&self, node: Arc<ClusterNode>) {
        // A process joins once.
        let _ = self.node.set(node);
    }

    /// Sets the membership of the node among its peers, once it has joined.
    pub(super) fn set_membership(&self, membership: Arc<Membership>) {
        self.set_node(membership.node().clone());
        let _ = self.membership.set(membership);
    }

    /// Hands off all partitions and takes over none, or ends that.
    pub(super) fn set_draining(&self, is_draining: bool) -> Result<(), Error> {
        let membership = self.membership.get().ok_or_else(|| {
            let text = "the node has no peers that could take over its partitions";
            Error::new(ErrorKind::Unavailable, text)
        })?;
        membership.set_draining(is_draining);
        Ok(())
    }

    /// Returns the state as this node sees it now.
    pub(super) fn read(&self) -> ClusterStatus {
        let mut status = ClusterStatus {
            cluster: String::new(),
            node: self.name.clone(),
            version: VERSION.to_owned(),
            is_draining: false,
            fault: lock(&self.fault).clone(),
            partitions: Vec::new(),
            nodes: Vec::new(),
        };
        let Some(node) = self.node.get() else {
            return status;
        };
        status.cluster = node.format().cluster.to_string();
        let claims = node.claims();
        match self.membership.get() {
            Some(membership) => membership.read_members(|table, now| {
                status.is_draining = table.is_draining();
                status.nodes = nodes(table, now, &claims);
                status.partitions = self.partitions(node, &claims, Some((table, now)));
            }),
            None => {
                status.nodes = vec![own_node(&self.name, "", MemberState::Alive, &claims)];
                status.partitions = self.partitions(node, &claims, None);
            }
        }
        // The members are not locked here: a look into a store may take time.
        for partition in &mut status.partitions {
            add_store(node, partition);
        }
        status
    }

    fn partitions(
        &self,
        node: &ClusterNode,
        claims: &[PartitionReport],
        table: Option<(&MemberTable, Duration)>,
    ) -> Vec<PartitionStatus> {
        let faults: BTreeMap<_, _> = node.last_faults().into_iter().collect();
        let count = node.format().partitions.get();
        let numbers = (0..count).map(PartitionId);
        let status = numbers.map(|partition| {
            let own = claims.iter().find(|claim| claim.partition == partition);
            let other = table.and_then(|(table, now)| table.claimant(now, partition));
            let mut status = match (own, other) {
                (Some(claim), _) => claim_status(claim, own_phase(claim.stage), &self.name),
                (None, Some((member, claim))) => {
                    claim_status(claim, PartitionPhase::Following, &member.report.name)
                }
                (None, None) => unowned(partition),
            };
            status.fault = faults.get(&partition).cloned();
            status
        });
        status.collect()
    }
}

/// The phases of a partition, in the order of their metrics.
const PHASES: [PartitionPhase; 6] = [
    PartitionPhase::Leading,
    PartitionPhase::Following,
    PartitionPhase::TakingOver,
    PartitionPhase::Replaying,
    PartitionPhase::HandingOff,
    PartitionPhase::Unowned,
];

/// Writes the number of partitions in each phase, the age of the oldest commit, and the durations
/// of takeovers. Nothing before the node has joined.
impl Collect for ClusterStatusSource {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let Some(node) = self.node.get() else {
            return;
        };
        let partitions = self.read().partitions;
        for phase in PHASES {
            let count = partitions.iter().filter(|p| p.state == phase).count();
            sink.metric(
                "firn_cluster_partitions",
                "Partitions of the cluster by their state at this node.",
                &[("state", phase.as_str())],
                MetricValue::Gauge(count as f64),
            );
        }
        let commits = partitions.iter().filter_map(|p| p.last_commit_ms);
        if let Some(oldest) = commits.min() {
            let age_ms = self.clock.now_ms().saturating_sub(oldest);
            sink.metric(
                "firn_cluster_commit_age_seconds",
                "Time since the last commit of blocks, of the partition where it is longest.",
                &[],
                MetricValue::Gauge(age_ms as f64 / 1e3),
            );
        }
        node.takeover_metrics().collect(sink);
    }
}

/// Adds the figures of the log and the store, if this node leads the partition.
fn add_store(node: &ClusterNode, status: &mut PartitionStatus) {
    let Some((log, store)) = node.find_led(PartitionId(status.partition)) else {
        return;
    };
    status.series = Some(store.active_series() as u64);
    status.cut_ms = store.cut_ms();
    status.last_commit_ms = log.last_commit_ms();
    status.log_bytes = Some(log.pressure().kept_bytes);
    status.fault = match log.health() {
        LogHealth::Sound | LogHealth::NoRoom(_) => None,
        LogHealth::Failing(reason) | LogHealth::Poisoned(reason) => Some(reason),
    };
}

fn claim_status(claim: &PartitionReport, state: PartitionPhase, node: &str) -> PartitionStatus {
    let is_led = matches!(
        claim.stage,
        PartitionStage::Leading | PartitionStage::HandingOff
    );
    PartitionStatus {
        leader: is_led.then(|| node.to_owned()),
        epoch: claim.epoch.0,
        state,
        position: claim.position,
        ..unowned(claim.partition)
    }
}

fn unowned(partition: PartitionId) -> PartitionStatus {
    PartitionStatus {
        partition: partition.0,
        leader: None,
        epoch: 0,
        state: PartitionPhase::Unowned,
        position: 0,
        series: None,
        cut_ms: None,
        last_commit_ms: None,
        log_bytes: None,
        fault: None,
    }
}

fn own_phase(stage: PartitionStage) -> PartitionPhase {
    match stage {
        PartitionStage::TakingOver => PartitionPhase::TakingOver,
        PartitionStage::Replaying => PartitionPhase::Replaying,
        PartitionStage::Leading => PartitionPhase::Leading,
        PartitionStage::HandingOff => PartitionPhase::HandingOff,
    }
}

fn nodes(table: &MemberTable, now: Duration, claims: &[PartitionReport]) -> Vec<MemberStatus> {
    let state = drain_state(table.is_draining());
    let own = table.own();
    let mut nodes = vec![own_node(&own.name, &own.address, state, claims)];
    let members = table.members(now).into_iter();
    nodes.extend(members.map(|(member, silence)| other_node(member, silence)));
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

fn own_node(
    name: &str,
    address: &str,
    state: MemberState,
    claims: &[PartitionReport],
) -> MemberStatus {
    MemberStatus {
        name: name.to_owned(),
        address: address.to_owned(),
        version: VERSION.to_owned(),
        state,
        seen_ago: None,
        partitions_led: led(claims),
    }
}

fn other_node(member: &KnownMember, silence: Duration) -> MemberStatus {
    let report = &member.report;
    let is_silent = silence >= DEAD_AFTER;
    MemberStatus {
        name: report.name.clone(),
        address: report.address.clone(),
        version: report.version.clone(),
        state: if is_silent {
            MemberState::Silent
        } else {
            drain_state(report.is_draining)
        },
        seen_ago: Some(silence),
        partitions_led: if is_silent {
            0
        } else {
            led(&report.partitions)
        },
    }
}

fn drain_state(is_draining: bool) -> MemberState {
    if is_draining {
        MemberState::Draining
    } else {
        MemberState::Alive
    }
}

fn led(claims: &[PartitionReport]) -> usize {
    let is_led = |claim: &&PartitionReport| claim.stage == PartitionStage::Leading;
    claims.iter().filter(is_led).count()
}
