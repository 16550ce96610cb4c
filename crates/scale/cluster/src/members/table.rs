//! The table of members, updated by reports.

use super::report::{NodeReport, PartitionReport, PartitionStage, SeenMember};
use super::{
    CONFLICT_AFTER, DEAD_AFTER, LOST_PAUSE, LOST_PAUSE_MAX, REFUSED_DEAD_AFTER, REPLACED_AFTER,
};
use crate::ids::PartitionId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The identity of this node.
#[derive(Clone, Debug)]
pub struct OwnMember {
    /// The name of the node.
    pub name: String,
    /// The number of this process, higher than those of earlier processes of the node.
    pub incarnation: u64,
    /// The address at which other nodes reach this node.
    pub address: String,
    /// The version of this process.
    pub version: String,
}

/// Another process with the name of this node that is alive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "another live node has the name {name:?} (at {address}); set firn.cluster.node or \
     --cluster.node to a name that is unique"
)]
pub struct MemberConflict {
    /// The name of both.
    pub name: String,
    /// The address of the other process.
    pub address: String,
}

/// A member that this node has heard from.
#[derive(Clone, Debug)]
pub struct KnownMember {
    /// The newest report of the member, without the members that it has seen.
    pub report: NodeReport,
    /// The instant at which this node, or the peer that passed the report on, heard from it.
    pub heard: Duration,
    /// The instant since which the member has been alive without interruption.
    pub alive_since: Duration,
    /// True if [`MemberTable::take_dead`] has returned the member since it was last heard from.
    is_dead: bool,
    /// The instants at which claims without a FENCE were first reported.
    pub(super) fencing_since: BTreeMap<PartitionId, Duration>,
}

/// A partition that another node took from this one.
#[derive(Clone, Copy, Debug)]
struct LostPartition {
    until: Duration,
    pause: Duration,
}

/// The members of a cluster as one node sees them. All instants are on one clock of the caller.
#[derive(Debug)]
pub struct MemberTable {
    pub(super) own: OwnMember,
    pub(super) partitions: u32,
    pub(super) started: Duration,
    pub(super) is_draining: bool,
    /// By incarnation, so that two processes with one name are two members.
    members: BTreeMap<u64, KnownMember>,
    /// The addresses of the config that have not answered yet.
    unheard: Option<BTreeSet<String>>,
    lost: BTreeMap<PartitionId, LostPartition>,
    /// The instants since which partitions have had no claim.
    pub(super) unowned_since: BTreeMap<PartitionId, Duration>,
}

impl MemberTable {
    /// Creates the table of a node that starts `now`, in a cluster with `partitions`.
    pub fn new(own: OwnMember, partitions: u32, now: Duration) -> Self {
        Self {
            own,
            partitions,
            started: now,
            is_draining: false,
            members: BTreeMap::new(),
            unheard: None,
            lost: BTreeMap::new(),
            unowned_since: BTreeMap::new(),
        }
    }

    /// Returns the identity of this node.
    pub fn own(&self) -> &OwnMember {
        &self.own
    }

    /// Sets whether this node leads no partitions from now on.
    pub fn set_draining(&mut self, is_draining: bool) {
        self.is_draining = is_draining;
    }

    /// Returns whether this node leads no partitions by request.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Sets the addresses to which reports are sent, without that of this node. Until each of them
    /// has answered once, a starting node waits for [`DEAD_AFTER`] before it takes over partitions.
    pub fn set_peers(&mut self, addresses: impl IntoIterator<Item = String>) {
        if self.unheard.is_none() {
            self.unheard = Some(addresses.into_iter().collect());
        }
    }

    /// Notes that the peer at `address` has answered.
    pub fn note_answer(&mut self, address: &str) {
        if let Some(unheard) = &mut self.unheard {
            unheard.remove(address);
        }
    }

    /// Notes that no process listens at `address`. The members with the address that have been
    /// silent for [`REFUSED_DEAD_AFTER`] are dead, until a newer report of them arrives.
    pub fn note_refusal(&mut self, now: Duration, address: &str) {
        for member in self.members.values_mut() {
            let silence = now.saturating_sub(member.heard);
            if member.report.address == address && silence >= REFUSED_DEAD_AFTER {
                member.heard = member.heard.min(now.saturating_sub(DEAD_AFTER));
            }
        }
    }

    /// Returns whether the reports of the other nodes have arrived, or had the time to.
    pub fn is_settled(&self, now: Duration) -> bool {
        let all_heard = self.unheard.as_ref().is_some_and(BTreeSet::is_empty);
        all_heard || now >= self.started + DEAD_AFTER
    }

    /// Adds the report of another node, which arrived `now`. A report of this process is ignored.
    ///
    /// # Errors
    ///
    /// Another live process has the name of this node and started earlier: this one has to end.
    pub fn add_report(&mut self, now: Duration, report: NodeReport) -> Result<(), MemberConflict> {
        if report.incarnation == self.own.incarnation {
            return Ok(());
        }
        let conflict = self.find_conflict(now, &report);
        let (seen, report) = split_seen(report);
        let known = self.members.get(&report.incarnation);
        // Requests and answers may overtake each other.
        if known.is_none_or(|member| member.report.sent_ms <= report.sent_ms) {
            self.update_member(now, report);
        }
        for SeenMember { age_ms, report } in seen {
            let age = Duration::from_millis(age_ms);
            let known = self.members.get(&report.incarnation);
            // A report that is known already must not count again: it would become younger by the
            // time of its transfer each time, and a dead member would never become silent.
            let is_news = match known {
                Some(member) => member.report.sent_ms < report.sent_ms,
                None => age < DEAD_AFTER,
            };
            if is_news && report.incarnation != self.own.incarnation {
                self.update_member(now.saturating_sub(age), split_seen(report).1);
            }
        }
        let is_recent = |member: &KnownMember| now < member.heard + 10 * DEAD_AFTER;
        self.members.retain(|_, member| is_recent(member));
        conflict.map_or(Ok(()), Err)
    }

    /// Replaces the report of a member by that of the instant `heard`.
    fn update_member(&mut self, heard: Duration, report: NodeReport) {
        let before = self.members.remove(&report.incarnation);
        let was_alive = before
            .as_ref()
            .is_some_and(|m| heard < m.heard + DEAD_AFTER);
        let mut fencing_since = BTreeMap::new();
        let claims = report.partitions.iter();
        for claim in claims.filter(|claim| claim.stage == PartitionStage::TakingOver) {
            let known = before.as_ref().map(|m| &m.fencing_since);
            let since = known.and_then(|known| known.get(&claim.partition));
            fencing_since.insert(claim.partition, since.copied().unwrap_or(heard));
        }
        let member = KnownMember {
            alive_since: before
                .filter(|_| was_alive)
                .map_or(heard, |m| m.alive_since),
            heard,
            is_dead: false,
            fencing_since,
            report,
        };
        self.members.insert(member.report.incarnation, member);
    }

    /// Returns the conflict that `report` shows: it is from a live process with the name of this
    /// node, or its sender has heard from one lately. The process that started later has to end.
    fn find_conflict(&self, now: Duration, report: &NodeReport) -> Option<MemberConflict> {
        let own = &self.own;
        let conflict = |address: &str| MemberConflict {
            name: own.name.clone(),
            address: address.to_owned(),
        };
        if report.name == own.name {
            return (report.incarnation < own.incarnation).then(|| conflict(&report.address));
        }
        // A peer may have heard from the process that this one replaces.
        let is_late = now >= self.started + CONFLICT_AFTER;
        let is_other = |seen: &&SeenMember| {
            let is_earlier = seen.report.incarnation < own.incarnation;
            let is_alive = u128::from(seen.age_ms) < DEAD_AFTER.as_millis();
            seen.report.name == own.name && is_earlier && is_alive
        };
        let other = report.seen.iter().find(is_other).filter(|_| is_late);
        other.map(|seen| conflict(&seen.report.address))
    }

    /// Returns the report of this node, which claims `partitions`.
    pub fn own_report(&self, now: Duration, partitions: Vec<PartitionReport>) -> NodeReport {
        let seen = self.members.values().map(|member| SeenMember {
            age_ms: now.saturating_sub(member.heard).as_millis() as u64,
            report: member.report.clone(),
        });
        NodeReport {
            name: self.own.name.clone(),
            incarnation: self.own.incarnation,
            sent_ms: now.as_millis() as u64,
            address: self.own.address.clone(),
            version: self.own.version.clone(),
            is_draining: self.is_draining,
            partitions,
            seen: seen.collect(),
        }
    }

    /// Returns all members that this node remembers, with the time since they were heard from. Of
    /// several processes with one name it returns the latest, unless an earlier one still reports:
    /// then the latest has to end.
    pub fn members(&self, now: Duration) -> Vec<(&KnownMember, Duration)> {
        let mut by_name: BTreeMap<&str, &KnownMember> = BTreeMap::new();
        // Ascending by incarnation: later processes replace earlier ones.
        for member in self.members.values() {
            let earlier = by_name.get(&*member.report.name);
            if earlier.is_none_or(|earlier| now >= earlier.heard + REPLACED_AFTER) {
                by_name.insert(&member.report.name, member);
            }
        }
        by_name.remove(&*self.own.name);
        let members = by_name.into_values();
        members.map(|m| (m, now.saturating_sub(m.heard))).collect()
    }

    /// Returns the members that have died since the last call, for the end of their connections.
    pub fn take_dead(&mut self, now: Duration) -> Vec<&KnownMember> {
        let mut dead = Vec::new();
        for member in self.members.values_mut() {
            let is_dead = now >= member.heard + DEAD_AFTER;
            if is_dead && !std::mem::replace(&mut member.is_dead, true) {
                dead.push(&*member);
            }
        }
        dead
    }

    /// Returns the other members that are alive.
    pub fn live_members(&self, now: Duration) -> Vec<&KnownMember> {
        let members = self.members(now).into_iter();
        let live = members.filter(|(_, silence)| *silence < DEAD_AFTER);
        live.map(|(member, _)| member).collect()
    }

    /// Returns the live member that leads `partition` or is about to, with its claim: of several
    /// the one with the highest epoch, which is the last that created a FENCE.
    pub fn claimant(
        &self,
        now: Duration,
        partition: PartitionId,
    ) -> Option<(&KnownMember, &PartitionReport)> {
        let live = self.live_members(now).into_iter();
        let claims = live.filter_map(|m| Some((m, m.report.claim(partition)?)));
        claims.max_by_key(|(_, claim)| (claim.epoch, claim.stage == PartitionStage::Leading))
    }

    /// Notes that another node took `partition` from this one, or that a takeover failed. This node
    /// does not take it over again for a while, which doubles with each loss.
    pub fn note_loss(&mut self, now: Duration, partition: PartitionId) {
        let before = self.lost.get(&partition);
        // A long leadership ends the series of losses.
        let recent = before.filter(|lost| now < lost.until + LOST_PAUSE_MAX);
        let pause = recent.map_or(LOST_PAUSE, |lost| (2 * lost.pause).min(LOST_PAUSE_MAX));
        let until = now + pause;
        self.lost.insert(partition, LostPartition { until, pause });
    }

    /// Returns whether this node has to leave `partition` alone because it lost it lately.
    pub(super) fn pauses_after_loss(&self, now: Duration, partition: PartitionId) -> bool {
        let lost = self.lost.get(&partition);
        lost.is_some_and(|lost| now < lost.until)
    }
}

/// Divides a report into the members that its sender has seen and the rest.
fn split_seen(mut report: NodeReport) -> (Vec<SeenMember>, NodeReport) {
    let seen = std::mem::take(&mut report.seen);
    (seen, report)
}
