//! The membership of a node: exchanges reports with its peers, and carries out its plan.
//!
//! ```text
//! every 500 ms: own report -> each peer -> its report -> MemberTable -> leaders of partitions
//! every 100 ms: lost partitions -> dropped     MemberTable::plan -> take over | hand off
//! ```
//!
//! Invariants: this node takes over nothing before the table is settled, and nothing while every
//! peer rejects it, so that a node with a wrong secret or of another cluster disturbs none. A fault
//! ends the process; it is set once.
//!
//! This module leaves to its owner: the listener for peers ([`crate::forward::NodePeerService`]
//! answers them) and the end of the process.

mod addresses;
mod directory;
mod worker;

pub use directory::PeerDirectory;
pub use worker::MembershipTasks;

use crate::engine::EngineClock;
use crate::ids::PartitionId;
use crate::members::{MemberTable, NodeReport, OwnMember, PartitionStage, ReportError};
use crate::node::ClusterNode;
use firn_model::error::{Error, ErrorKind};
use firn_model::sync::lock;
use firn_peer::PeerFailure;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::Thread;
use std::time::Duration;
use tokio::sync::Notify;

/// The time limit of one exchange with a peer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for which peers may reject this node before the process ends.
const REJECTION_MAX: Duration = Duration::from_secs(5);

/// The leader of a partition, as the last reports show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionLeader {
    /// The name of the node.
    pub name: String,
    /// The address at which peers reach it.
    pub address: String,
}

/// Settings of a membership.
#[derive(Clone)]
pub struct MembershipOptions {
    /// The identity of this node.
    pub own: OwnMember,
    /// The addresses of peers, `host:port`. A name may have many addresses.
    pub peers: Vec<String>,
    /// The clock of all instants.
    pub clock: EngineClock,
}

/// The peers that reject this node, as long as none accepts it.
#[derive(Debug, Default)]
struct Admission {
    is_accepted: bool,
    rejections: BTreeMap<String, RejectingPeer>,
}

#[derive(Debug)]
struct RejectingPeer {
    since: Duration,
    reason: String,
}

/// The membership of a node in a cluster of several nodes.
pub struct Membership {
    node: Arc<ClusterNode>,
    options: MembershipOptions,
    table: Mutex<MemberTable>,
    /// The leaders of all partitions but those of this node, by partition.
    leaders: RwLock<Arc<[Option<PartitionLeader>]>>,
    directory: PeerDirectory,
    admission: Mutex<Admission>,
    fault: Mutex<Option<String>>,
    /// Wakes the exchange before its interval ends.
    wake: Notify,
    /// The thread that opens the stores of takeovers.
    takeover_thread: OnceLock<Thread>,
}

impl Membership {
    /// Creates the membership of `node`, which takes over nothing before [`Membership::start`].
    pub fn new(
        node: Arc<ClusterNode>,
        directory: PeerDirectory,
        options: MembershipOptions,
    ) -> Self {
        let partitions = node.format().partitions.get();
        let table = MemberTable::new(options.own.clone(), partitions, (options.clock)());
        Self {
            node,
            options,
            table: Mutex::new(table),
            leaders: RwLock::new(vec![None; partitions as usize].into()),
            directory,
            admission: Mutex::default(),
            fault: Mutex::default(),
            wake: Notify::new(),
            takeover_thread: OnceLock::new(),
        }
    }

    fn now(&self) -> Duration {
        (self.options.clock)()
    }

    /// Returns the node whose membership this is.
    pub fn node(&self) -> &Arc<ClusterNode> {
        &self.node
    }

    /// Returns the clients of peers.
    pub fn directory(&self) -> &PeerDirectory {
        &self.directory
    }

    /// Calls `read` with the table of members and the present time of its clock.
    pub fn read_members<T>(&self, read: impl FnOnce(&MemberTable, Duration) -> T) -> T {
        read(&lock(&self.table), self.now())
    }

    /// Returns the node that leads `partition` and is not this one, as the last reports show.
    pub fn leader(&self, partition: PartitionId) -> Option<PartitionLeader> {
        let leaders = self.leaders.read().unwrap_or_else(PoisonError::into_inner);
        leaders.get(partition.0 as usize).cloned().flatten()
    }

    /// Returns why this process has to end, if it has to.
    pub fn fault(&self) -> Option<String> {
        lock(&self.fault).clone()
    }

    /// Returns whether this node leads all partitions that it should lead now.
    pub fn is_ready(&self) -> bool {
        let claims = self.node.claims();
        let is_led = |stage| stage == PartitionStage::Leading;
        let mut table = lock(&self.table);
        let now = self.now();
        let is_idle = claims.iter().all(|claim| is_led(claim.stage));
        is_idle && table.is_settled(now) && table.plan(now, &claims).is_empty()
    }

    /// Hands off all partitions as soon as another node can lead them, and leads none until
    /// this is undone.
    pub fn set_draining(&self, is_draining: bool) {
        lock(&self.table).set_draining(is_draining);
        self.wake.notify_one();
    }

    /// Answers the report of a peer with that of this node.
    ///
    /// # Errors
    ///
    /// The bytes are no report.
    pub fn answer_report(&self, bytes: &[u8]) -> Result<Vec<u8>, ReportError> {
        let report = NodeReport::decode(bytes)?;
        self.add_report(report);
        Ok(self.own_report().encode())
    }

    fn own_report(&self) -> NodeReport {
        let claims = self.node.claims();
        lock(&self.table).own_report(self.now(), claims)
    }

    fn add_report(&self, report: NodeReport) {
        let (name, incarnation) = (report.name.clone(), report.incarnation);
        let mut table = lock(&self.table);
        let conflict = table.add_report(self.now(), report);
        drop(table);
        if let Err(conflict) = conflict {
            tracing::error!(name, incarnation, "another live node has this name");
            self.set_fault(conflict.to_string());
        }
        self.update_leaders();
    }

    /// Determines the leaders from the reports.
    fn update_leaders(&self) {
        let table = lock(&self.table);
        let now = self.now();
        let leader = |number| {
            let (member, claim) = table.claimant(now, PartitionId(number))?;
            (claim.stage == PartitionStage::Leading).then(|| PartitionLeader {
                name: member.report.name.clone(),
                address: member.report.address.clone(),
            })
        };
        let count = self.node.format().partitions.get();
        let leaders: Arc<[_]> = (0..count).map(leader).collect();
        drop(table);
        *self.leaders.write().unwrap_or_else(PoisonError::into_inner) = leaders;
    }

    fn set_fault(&self, text: String) {
        lock(&self.fault).get_or_insert(text);
    }

    /// Handles the outcome of an exchange with the peer at `address`.
    fn on_exchanged(&self, address: &str, outcome: Result<NodeReport, PeerFailure>) {
        let mut admission = lock(&self.admission);
        match outcome {
            Ok(report) => {
                admission.rejections.remove(address);
                let is_own = report.incarnation == self.options.own.incarnation;
                admission.is_accepted |= !is_own;
                drop(admission);
                if is_own {
                    self.directory.note_own_address(address);
                }
                lock(&self.table).note_answer(address);
                self.add_report(report);
            }
            Err(PeerFailure::Rejected(reason)) => {
                let since = self.now();
                let rejection = RejectingPeer { since, reason };
                let known = admission.rejections.entry(address.to_owned());
                let known = known.or_insert_with(|| {
                    tracing::error!(
                        address,
                        reason = rejection.reason,
                        "a peer rejects this node"
                    );
                    rejection
                });
                let is_lasting = self.now() >= known.since + REJECTION_MAX;
                if is_lasting && !admission.is_accepted && self.node.claims().is_empty() {
                    let reason = &admission.rejections[address].reason;
                    self.set_fault(format!("peer {address} rejects this node: {reason}"));
                }
            }
            // A peer that does not answer is a member that is not alive.
            Err(error) => {
                drop(admission);
                if let PeerFailure::Refused(_) = error {
                    lock(&self.table).note_refusal(self.now(), address);
                }
                tracing::debug!(address, %error, "no report from a peer");
            }
        }
    }

    /// Returns whether peers reject this node and none has accepted it.
    fn is_rejected(&self) -> bool {
        let admission = lock(&self.admission);
        !admission.is_accepted && !admission.rejections.is_empty()
    }
}

/// Converts a report that cannot be read to an error of the caller.
impl From<ReportError> for Error {
    fn from(error: ReportError) -> Self {
        Error::new(ErrorKind::Invalid, error.to_string())
    }
}
