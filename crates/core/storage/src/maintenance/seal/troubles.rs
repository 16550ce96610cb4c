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
use std::path::PathBuf;

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
            troubles.remove(group);
        }
        self.metrics.stuck_groups.set(troubles.count() as i64);
    }

    /// Drops the samples that cannot be sealed of those groups that prevent trimming of the log.
    pub(super) fn give_up_pinning_groups(
        &self,
        state: &mut MaintenanceState,
        newest: TimestampMs,
        reserve_bytes: u64,
    ) -> Result<(), Error> {
        let pins = |group: &GroupId| state.coverage.is_pinning_log(*group);
        let stuck: Vec<DueGroup> = state
            .troubles
            .list_retried_groups()
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
