//! Groups with samples that cannot be sealed: a chunk that cannot be decoded, or a page that is too
//! large for a record.
//!
//! The failure affects only that group: its other series and other groups are sealed, and the group
//! is retried with growing pauses. The samples that cannot be sealed remain in head and log, where
//! queries and a restart find them. When the log has grown to half of its limit because of such a
//! group, these samples are dropped, so that writes can continue: the loss is reported as damage,
//! and the group counts as sealed.

use super::{DueGroup, SLICE, Sealer, SeriesSealPoint, UnsealablePolicy, UnsealableSamples};
use crate::damage::{Damage, DamageKind};
use crate::ids::GroupId;
use crate::maintenance::state::MaintenanceState;
use crate::sync::lock;
use firn_model::error::Error;
use firn_model::sample::TimestampMs;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Pause before the first retry of a group; doubled after each further failure.
const PAUSE_MIN: Duration = Duration::from_secs(60);

/// Maximum pause: half of a window, so that the other samples of the group do not wait in the head
/// longer than usual.
const PAUSE_MAX: Duration = Duration::from_secs(16 * 60);

/// Minimum number of attempts before samples are dropped.
const TRIES_MIN: u32 = 2;

/// A group that could not be sealed completely.
#[derive(Clone, Copy, Debug)]
struct GroupSealFailure {
    tries: u32,
    /// Time of the next attempt on the monotonic clock.
    not_before: Duration,
}

/// The groups that could not be sealed completely, by number.
#[derive(Debug, Default)]
pub(crate) struct SealFailures {
    groups: BTreeMap<GroupId, GroupSealFailure>,
}

impl SealFailures {
    /// Returns whether a group may be sealed now.
    pub(super) fn can_seal(&self, group: GroupId, now: Duration) -> bool {
        let trouble = self.groups.get(&group);
        trouble.is_none_or(|trouble| now >= trouble.not_before)
    }

    /// Counts a failure of a group. Returns whether it is the first one.
    fn count_failure(&mut self, group: GroupId, now: Duration) -> bool {
        let trouble = self.groups.entry(group).or_insert(GroupSealFailure {
            tries: 0,
            not_before: now,
        });
        let pause = PAUSE_MIN * 2u32.saturating_pow(trouble.tries.min(8));
        trouble.tries = trouble.tries.saturating_add(1);
        trouble.not_before = now.saturating_add(pause.min(PAUSE_MAX));
        trouble.tries == 1
    }
}

impl Sealer<'_> {
    /// Records the result of sealing a group: `stuck` are the samples that could not be sealed, if
    /// any.
    pub(super) fn record_seal_result(
        &self,
        state: &mut MaintenanceState,
        group: GroupId,
        stuck: Option<UnsealableSamples>,
    ) {
        let troubles = &mut state.troubles;
        if let Some(stuck) = stuck {
            self.metrics.stuck_seals.inc();
            if troubles.count_failure(group, self.clock.monotonic()) {
                tracing::warn!(
                    group = group.0,
                    series = stuck.series.len(),
                    error = stuck.why,
                    "some series of a group cannot be sealed: retrying with increasing pauses"
                );
            }
        } else {
            troubles.groups.remove(&group);
        }
        self.metrics.stuck_groups.set(troubles.groups.len() as i64);
    }

    /// Drops the samples that cannot be sealed of those groups that prevent trimming of the log.
    pub(super) fn give_up_pinning_groups(
        &self,
        state: &mut MaintenanceState,
        newest: TimestampMs,
        reserve_bytes: u64,
    ) -> Result<(), Error> {
        let tried = state.troubles.groups.iter();
        let tried = tried.filter(|(_, trouble)| trouble.tries >= TRIES_MIN);
        let pins = |group: &GroupId| state.coverage.is_pinning_log(*group);
        let stuck: Vec<DueGroup> = tried
            .map(|(group, _)| *group)
            .filter(pins)
            .map(|group| DueGroup { group, end: newest })
            .collect();
        self.seal_groups_with(state, &stuck, reserve_bytes, UnsealablePolicy::GiveUp)
    }

    /// Drops the samples of a group that cannot be sealed from the head, and reports them as
    /// damage.
    pub(super) fn give_up_group(&self, group: GroupId, stuck: &UnsealableSamples) {
        let mut series: Vec<SeriesSealPoint> = stuck.series.clone();
        series.sort_unstable_by_key(|cut| (cut.shard, cut.local));
        let mut dropped = 0;
        for of_shard in series.chunk_by(|a, b| a.shard == b.shard) {
            for slice in of_shard.chunks(SLICE) {
                let mut shard = lock(&self.head.shards[slice[0].shard]);
                for cut in slice {
                    dropped += shard.discard_through(cut.local, cut.slot, cut.time);
                }
            }
        }
        self.damages.report(Damage {
            kind: DamageKind::Head,
            file: PathBuf::new(),
            offset: None,
            what: format!(
                "{} series of group {} cannot be sealed and block the log: {}",
                stuck.series.len(),
                group.0,
                stuck.why
            ),
            samples: Some(dropped.saturating_sub(stuck.saved)),
            range: stuck.range,
        });
    }
}
