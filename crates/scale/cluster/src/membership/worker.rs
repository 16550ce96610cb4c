//! The task that exchanges reports, and the threads that take over and hand off partitions.

use super::addresses::{RESOLVE_INTERVAL, resolve_peers};
use super::{EXCHANGE_TIMEOUT, Membership};
use crate::ids::PartitionId;
use crate::members::{EXCHANGE_INTERVAL, MemberAction, NodeReport};
use bytes::Bytes;
use firn_model::error::Error;
use firn_model::sync::lock;
use firn_peer::PeerFailure;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};

/// The interval of plans.
const PLAN_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time until the thread for takeovers notices that the membership has ended. The begin of
/// a takeover wakes it.
const OPEN_INTERVAL: Duration = Duration::from_millis(500);

/// The time limit of the last exchange of a node that stops.
const LAST_EXCHANGE_TIMEOUT: Duration = Duration::from_millis(300);

/// The task and the threads of a membership. They end when this is dropped.
pub struct MembershipTasks {
    _exchanges: JoinSet<()>,
    is_stopped: Arc<AtomicBool>,
}

impl Drop for MembershipTasks {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Membership {
    /// Starts to exchange reports and to carry out plans, on the current runtime and two threads.
    ///
    /// # Errors
    ///
    /// The system does not start a thread.
    pub fn start(self: &Arc<Self>) -> io::Result<MembershipTasks> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let mut exchanges = JoinSet::new();
        exchanges.spawn(self.clone().run_exchanges());
        let open = |membership: &Arc<Self>| {
            while let Some((partition, opened)) = membership.node.open_next() {
                membership.on_opened(partition, opened);
            }
        };
        let thread = self.spawn("firn-takeover", OPEN_INTERVAL, &is_stopped, open)?;
        // A membership is started once.
        let _ = self.takeover_thread.set(thread);
        // Plans wake the thread above.
        self.spawn("firn-members", PLAN_INTERVAL, &is_stopped, |membership| {
            membership.carry_out_plan();
        })?;
        Ok(MembershipTasks {
            _exchanges: exchanges,
            is_stopped,
        })
    }

    /// Starts a thread that repeats `work` until it is stopped, after each pause or
    /// [`Thread::unpark`].
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        pause: Duration,
        is_stopped: &Arc<AtomicBool>,
        work: impl Fn(&Arc<Self>) + Send + 'static,
    ) -> io::Result<Thread> {
        let (membership, is_stopped) = (self.clone(), is_stopped.clone());
        let run = move || {
            while !is_stopped.load(Ordering::Relaxed) {
                work(&membership);
                std::thread::park_timeout(pause);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        Ok(thread.spawn(run)?.thread().clone())
    }

    /// Hands off all partitions, and reports it to the peers, which then take over at once.
    ///
    /// # Errors
    ///
    /// The bucket did not store the last records in time.
    pub async fn close(self: &Arc<Self>) -> Result<(), Error> {
        lock(&self.table).set_draining(true);
        let membership = self.clone();
        let closed = spawn_blocking(move || membership.node.close()).await;
        let addresses: Vec<String> = self.live_addresses().into_iter().collect();
        self.exchange_all(addresses, LAST_EXCHANGE_TIMEOUT).await;
        closed.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
    }

    fn carry_out_plan(self: &Arc<Self>) {
        let ended = self.node.drop_ended();
        let claims = self.node.claims();
        let now = self.now();
        let mut table = lock(&self.table);
        for (partition, _) in &ended {
            table.note_loss(now, *partition);
        }
        let actions = if self.is_rejected() || self.fault().is_some() {
            Vec::new()
        } else {
            table.plan(now, &claims)
        };
        let dead = table.take_dead(now).into_iter();
        let dead: Vec<String> = dead.map(|member| member.report.address.clone()).collect();
        drop(table);
        let live = self.live_addresses();
        // A node that has restarted has the address of the process that died.
        for address in dead.into_iter().filter(|address| !live.contains(address)) {
            tracing::warn!(address, "a peer is considered dead");
            self.directory.disconnect(&address);
        }
        self.update_leaders();
        for action in &actions {
            match *action {
                MemberAction::TakeOver(partition) => {
                    tracing::info!(%partition, "no live node leads the partition: taking it over");
                    self.node.begin_takeover(partition);
                    if let Some(thread) = self.takeover_thread.get() {
                        thread.unpark();
                    }
                }
                MemberAction::HandOff(partition) => self.begin_hand_off(partition),
            }
        }
        if !actions.is_empty() || !ended.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Hands off `partition` on a thread of its own, because it waits for the bucket.
    fn begin_hand_off(self: &Arc<Self>, partition: PartitionId) {
        tracing::info!(%partition, "handing off the partition");
        let membership = self.clone();
        self.directory.runtime().spawn_blocking(move || {
            if let Err(error) = membership.node.hand_off(partition) {
                tracing::warn!(%partition, %error, "the partition was given up without a hand-off");
            }
            membership.wake.notify_one();
        });
    }

    fn on_opened(&self, partition: PartitionId, opened: Result<(), Error>) {
        match opened {
            Ok(()) => tracing::info!(%partition, "this node leads the partition"),
            Err(error) => {
                tracing::error!(%partition, %error, "the takeover failed");
                lock(&self.table).note_loss(self.now(), partition);
            }
        }
        self.wake.notify_one();
    }

    async fn run_exchanges(self: Arc<Self>) {
        let mut resolved = BTreeSet::new();
        let mut next_resolve = Duration::ZERO;
        loop {
            if self.now() >= next_resolve {
                resolved = resolve_peers(&self.options.peers, &resolved).await;
                next_resolve = self.now() + RESOLVE_INTERVAL;
                let is_other = |address: &&String| **address != self.options.own.address;
                let others = resolved.iter().filter(is_other).cloned();
                lock(&self.table).set_peers(others);
            }
            let mut addresses = self.live_addresses();
            self.directory
                .retain(&addresses.union(&resolved).cloned().collect());
            // A name and an address of one member are one peer.
            let is_strange = |address: &&String| !self.directory.is_own_address(address);
            addresses.extend(resolved.iter().filter(is_strange).cloned());
            let addresses = addresses.into_iter().collect();
            self.exchange_all(addresses, EXCHANGE_TIMEOUT).await;
            let woken = self.wake.notified();
            // The time is over if nothing happened.
            let _ = tokio::time::timeout(EXCHANGE_INTERVAL, woken).await;
        }
    }

    /// Returns the addresses of the members that are alive.
    fn live_addresses(&self) -> BTreeSet<String> {
        let table = lock(&self.table);
        let live = table.live_members(self.now()).into_iter();
        live.map(|member| member.report.address.clone()).collect()
    }

    /// Exchanges reports with the peers at `addresses`, all at once.
    async fn exchange_all(self: &Arc<Self>, addresses: Vec<String>, timeout: Duration) {
        let report = Bytes::from(self.own_report().encode());
        let mut exchanges = JoinSet::new();
        for address in addresses {
            let (membership, report) = (self.clone(), report.clone());
            exchanges.spawn(async move {
                let outcome = membership.exchange(&address, report, timeout).await;
                membership.on_exchanged(&address, outcome);
            });
        }
        while exchanges.join_next().await.is_some() {}
    }

    async fn exchange(
        &self,
        address: &str,
        report: Bytes,
        timeout: Duration,
    ) -> Result<NodeReport, PeerFailure> {
        let client = self.directory.client(address)?;
        let answer = client.exchange(report, timeout).await?;
        let report = NodeReport::decode(&answer);
        report.map_err(|e| PeerFailure::Unavailable(e.to_string()))
    }
}
