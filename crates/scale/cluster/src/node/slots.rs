//! The phases of the partitions of a node.
//!
//! ```text
//! idle -- begin --> opening -- lead --> leading -- begin_hand_off --> handing off --+
//!  ^                   |                   |                                        |
//!  +---- release ------+--- take_ended ----+------------------- release ------------+
//! ```

use crate::engine::BucketLog;
use crate::ids::PartitionId;
use crate::log::LogState;
use crate::members::{PartitionReport, PartitionStage};
use crate::partitions::store_set::StoreSet;
use firn_model::log::DurableLog;
use firn_model::store::Append;
use firn_model::tenant::TenantId;
use std::collections::VecDeque;
use std::time::Duration;

/// The phase of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotPhase {
    Idle,
    Opening,
    Leading,
    HandingOff,
}

struct ClaimSlot {
    phase: SlotPhase,
    /// The log of the current claim, or of the last one.
    log: Option<BucketLog>,
    /// The reason for which the last claim ended, if it was a fault.
    fault: Option<String>,
}

/// The partitions of a cluster in one node.
pub(super) struct PartitionSlots {
    slots: Vec<ClaimSlot>,
    /// Takeovers whose stores are not open, with the instants at which they began.
    to_open: VecDeque<(PartitionId, Duration)>,
    is_stopped: bool,
}

impl PartitionSlots {
    /// Creates idle slots for all partitions of a cluster.
    pub(super) fn new(partitions: usize) -> Self {
        let idle = |_| ClaimSlot {
            phase: SlotPhase::Idle,
            log: None,
            fault: None,
        };
        Self {
            slots: (0..partitions).map(idle).collect(),
            to_open: VecDeque::new(),
            is_stopped: false,
        }
    }

    fn slot(&mut self, partition: PartitionId) -> &mut ClaimSlot {
        &mut self.slots[partition.0 as usize]
    }

    /// Returns the phase of a partition.
    pub(super) fn phase(&self, partition: PartitionId) -> SlotPhase {
        self.slots[partition.0 as usize].phase
    }

    /// Returns whether a takeover of `partition` may begin.
    pub(super) fn may_take_over(&self, partition: PartitionId) -> bool {
        !self.is_stopped && self.phase(partition) == SlotPhase::Idle
    }

    /// Begins a takeover `now`, with a log whose FENCE is under way.
    pub(super) fn begin(&mut self, partition: PartitionId, log: BucketLog, now: Duration) {
        assert!(self.may_take_over(partition), "{partition} is claimed");
        let slot = self.slot(partition);
        slot.phase = SlotPhase::Opening;
        slot.log = Some(log);
        slot.fault = None;
        self.to_open.push_back((partition, now));
    }

    /// Sets the log of a takeover that began again.
    pub(super) fn replace_log(&mut self, partition: PartitionId, log: &BucketLog) {
        if self.is_stopped {
            log.stop_writes("the node stops");
        }
        self.slot(partition).log = Some(log.clone());
    }

    /// Returns the partition to open next, with its log and the begin of its takeover.
    pub(super) fn next_to_open(&mut self) -> Option<(PartitionId, BucketLog, Duration)> {
        let (partition, since) = self.to_open.pop_front()?;
        let log = self.slot(partition).log.clone();
        Some((
            partition,
            log.expect("an opening partition has a log"),
            since,
        ))
    }

    /// Ends a takeover: this node leads.
    pub(super) fn lead(&mut self, partition: PartitionId, log: BucketLog) {
        let slot = self.slot(partition);
        assert_eq!(slot.phase, SlotPhase::Opening, "{partition} was not opened");
        slot.phase = SlotPhase::Leading;
        slot.log = Some(log);
    }

    /// Begins a hand-off. Returns `false` unless this node leads.
    pub(super) fn begin_hand_off(&mut self, partition: PartitionId) -> bool {
        let slot = self.slot(partition);
        let is_led = slot.phase == SlotPhase::Leading;
        if is_led {
            slot.phase = SlotPhase::HandingOff;
        }
        is_led
    }

    /// Ends a claim.
    pub(super) fn release(&mut self, partition: PartitionId, fault: Option<String>) {
        let slot = self.slot(partition);
        assert_ne!(slot.phase, SlotPhase::Idle, "{partition} is not claimed");
        slot.phase = SlotPhase::Idle;
        slot.log = None;
        slot.fault = fault;
    }

    /// Ends the claims on led partitions whose logs have ended. Returns the reasons.
    pub(super) fn take_ended(&mut self) -> Vec<(PartitionId, String)> {
        let mut ended = Vec::new();
        for (number, slot) in (0..).zip(&self.slots) {
            let log = slot
                .log
                .as_ref()
                .filter(|_| slot.phase == SlotPhase::Leading);
            if let Some(reason) = log.and_then(BucketLog::ended) {
                ended.push((PartitionId(number), reason));
            }
        }
        // A log whose writes were stopped has ended too, and its store still answers.
        if self.is_stopped {
            ended.clear();
        }
        for (partition, reason) in &ended {
            self.release(*partition, Some(reason.clone()));
        }
        ended
    }

    /// Begins no takeover any more. Returns the logs of all claims.
    pub(super) fn stop(&mut self) -> Vec<BucketLog> {
        self.is_stopped = true;
        self.logs()
    }

    /// Returns the logs of all claims, by partition.
    pub(super) fn logs(&self) -> Vec<BucketLog> {
        self.slots
            .iter()
            .filter_map(|slot| slot.log.clone())
            .collect()
    }

    /// Returns the log of a partition that this node leads.
    pub(super) fn led_log(&self, partition: PartitionId) -> Option<BucketLog> {
        let slot = &self.slots[partition.0 as usize];
        slot.log
            .clone()
            .filter(|_| slot.phase == SlotPhase::Leading)
    }

    /// Returns the faults of the last claims.
    pub(super) fn faults(&self) -> Vec<(PartitionId, String)> {
        let slots = (0..).zip(&self.slots);
        let faults = slots.filter_map(|(n, slot)| Some((PartitionId(n), slot.fault.clone()?)));
        faults.collect()
    }

    /// Returns the claims, with the newest samples in the stores of `open`.
    pub(super) fn claims(&self, open: &StoreSet) -> Vec<PartitionReport> {
        let slots = (0..).zip(&self.slots);
        let claims = slots.filter_map(|(number, slot)| {
            let (partition, log) = (PartitionId(number), slot.log.as_ref()?);
            let store = open.find(partition);
            Some(PartitionReport {
                partition,
                stage: stage(slot.phase, log.state()),
                epoch: log.epoch(),
                position: log.positions().durable.0,
                newest_ms: store.and_then(|s| s.newest_time(&TenantId::anonymous())),
            })
        });
        claims.collect()
    }
}

fn stage(phase: SlotPhase, log: LogState) -> PartitionStage {
    match (phase, log) {
        (SlotPhase::HandingOff, _) => PartitionStage::HandingOff,
        (SlotPhase::Leading, _) => PartitionStage::Leading,
        (_, LogState::Following | LogState::Fencing) => PartitionStage::TakingOver,
        _ => PartitionStage::Replaying,
    }
}
