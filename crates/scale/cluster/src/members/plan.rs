//! The choice of the partitions that this node takes over or hands off.
//!
//! Unowned partitions go, in the order of their numbers, to the live member with the fewest
//! partitions; a hash of partition and name breaks ties. A member with two partitions more than
//! another hands off one at a time.

use super::report::{PartitionReport, PartitionStage};
use super::table::{KnownMember, MemberTable};
use super::{GIVE_BACK_AFTER, NEXT_CHOICE_AFTER};
use crate::ids::PartitionId;
use std::time::Duration;

/// A step that a node should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberAction {
    /// Create a FENCE in the log of a partition, replay it, and lead.
    TakeOver(PartitionId),
    /// Stop writing, so that another member takes over without waiting.
    HandOff(PartitionId),
}

/// A member that may lead partitions.
struct Candidate<'a> {
    name: &'a str,
    load: usize,
    alive_since: Duration,
    is_own: bool,
}

impl MemberTable {
    /// Returns the steps that this node should begin now, given the partitions that it claims.
    pub fn plan(&mut self, now: Duration, own: &[PartitionReport]) -> Vec<MemberAction> {
        let unowned = self.find_unowned(now, own);
        self.unowned_since
            .retain(|partition, _| unowned.contains(partition));
        for partition in &unowned {
            self.unowned_since.entry(*partition).or_insert(now);
        }
        if self.is_draining {
            return self.plan_drain(now, own);
        }
        if !self.is_settled(now) {
            return Vec::new();
        }
        let takeovers = self.plan_takeovers(now, own, &unowned);
        if takeovers.is_empty() && unowned.is_empty() {
            return self.plan_hand_off(now, own).into_iter().collect();
        }
        takeovers
    }

    /// Returns the partitions that neither this node nor a live member claims. A member that has
    /// not created its FENCE for long does not count.
    fn find_unowned(&self, now: Duration, own: &[PartitionReport]) -> Vec<PartitionId> {
        let live = self.live_members(now);
        let is_claimed = |partition: PartitionId| {
            let is_own = own.iter().any(|claim| claim.partition == partition);
            is_own || live.iter().any(|member| holds(member, partition, now))
        };
        let numbers = (0..self.partitions).map(PartitionId);
        numbers.filter(|number| !is_claimed(*number)).collect()
    }

    /// Hands off everything, as soon as another member can take it.
    fn plan_drain(&self, now: Duration, own: &[PartitionReport]) -> Vec<MemberAction> {
        let live = self.live_members(now);
        if !live.iter().any(|member| !member.report.is_draining) {
            return Vec::new();
        }
        let led = own.iter().filter(|c| c.stage == PartitionStage::Leading);
        led.map(|c| MemberAction::HandOff(c.partition)).collect()
    }

    /// Returns the members that may lead partitions, with the number of those that they claim.
    fn candidates(&self, now: Duration, own: &[PartitionReport]) -> Vec<Candidate<'_>> {
        let live = self.live_members(now).into_iter();
        let others = live.filter(|member| !member.report.is_draining);
        let others = others.map(|member| Candidate {
            name: &member.report.name,
            load: member.report.partitions.len(),
            alive_since: member.alive_since,
            is_own: false,
        });
        let own = Candidate {
            name: &self.own.name,
            load: own.len(),
            alive_since: self.started,
            is_own: true,
        };
        others.chain([own]).collect()
    }

    fn plan_takeovers(
        &self,
        now: Duration,
        own: &[PartitionReport],
        unowned: &[PartitionId],
    ) -> Vec<MemberAction> {
        let mut candidates = self.candidates(now, own);
        let mut actions = Vec::new();
        for partition in unowned {
            let since = self.unowned_since.get(partition).copied().unwrap_or(now);
            let waited = now.saturating_sub(since).as_millis();
            let rank = (waited / NEXT_CHOICE_AFTER.as_millis()) as usize % candidates.len();
            candidates.sort_by_key(|c| (c.load, u64::MAX - score(*partition, c.name)));
            let chosen = &mut candidates[rank];
            chosen.load += 1;
            if chosen.is_own && !self.pauses_after_loss(now, *partition) {
                actions.push(MemberAction::TakeOver(*partition));
            }
        }
        actions
    }

    /// Returns a partition to hand to a member with fewer partitions. Only one moves at a time.
    fn plan_hand_off(&self, now: Duration, own: &[PartitionReport]) -> Option<MemberAction> {
        let live = self.live_members(now);
        let of_others = live.iter().flat_map(|member| &member.report.partitions);
        let mut claims = of_others.chain(own);
        if claims.any(|claim| claim.stage != PartitionStage::Leading) {
            return None;
        }
        let candidates = self.candidates(now, own);
        let others = candidates.iter().filter(|c| !c.is_own);
        let lasting = others.filter(|c| now >= c.alive_since + GIVE_BACK_AFTER);
        let target = lasting.min_by_key(|c| c.load)?;
        if own.len() < target.load + 2 {
            return None;
        }
        let chosen = own
            .iter()
            .max_by_key(|claim| score(claim.partition, target.name))?;
        Some(MemberAction::HandOff(chosen.partition))
    }
}

/// Returns whether a live member leads `partition` or is about to.
fn holds(member: &KnownMember, partition: PartitionId, now: Duration) -> bool {
    let Some(claim) = member.report.claim(partition) else {
        return false;
    };
    let since = member.fencing_since.get(&partition).copied();
    let is_stuck = since.is_some_and(|since| now >= since + NEXT_CHOICE_AFTER);
    claim.stage != PartitionStage::TakingOver || !is_stuck
}

/// Returns the rank of a member for a partition: equal on all nodes and versions.
fn score(partition: PartitionId, name: &str) -> u64 {
    // FNV-1a, then the finalizer of SplitMix64, so that close names differ in all bits.
    let bytes = name.bytes().chain(partition.0.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
