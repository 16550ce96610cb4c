//! Compares the coverage with a plain list of all samples.

use super::*;
use crate::ids::GroupId;
use firn_model::env::sim::SimRng;

const WINDOWS: SealWindows = SealWindows {
    window_ms: 1_000,
    is_jittered: true,
};

/// A sample in the log: its position, group and time.
type Logged = (u64, GroupId, i64);

/// Random sequences of records, ticks and sealing: no position is covered while a sample at or
/// before it is unsealed.
#[test]
fn covered_position_never_runs_ahead_of_what_is_sealed() {
    for seed in 0..2_000 {
        let rng = SimRng::new(seed);
        let mut coverage = Coverage::new(WINDOWS, LogPosition(0));
        let mut unsealed: Vec<Logged> = Vec::new();
        let (mut newest, mut position, mut groups) = (i64::MIN, 0, 1);
        let mut now = 0;
        for _ in 0..80 {
            match rng.next_below(4) {
                0 => {
                    let mark = CoverageMark {
                        newest,
                        sequence: position,
                        position: LogPosition(position),
                    };
                    coverage.record_mark(mark, GroupId(groups), &[]);
                }
                1 => {
                    for due in coverage.list_due_groups(newest) {
                        if rng.one_in(2) {
                            let after = coverage.unsealed_after(due, position);
                            unsealed.retain(|s| s.1 != due.group || s.2 > due.end);
                            coverage.record_sealed(due, after, false);
                        }
                    }
                }
                _ => {
                    now += rng.next_below(400) as i64;
                    position += 1;
                    groups = groups.max(1 + rng.next_below(4));
                    let group = GroupId(rng.next_below(groups));
                    let time = now - rng.next_below(1_500) as i64;
                    unsealed.push((position, group, time));
                    newest = newest.max(time);
                }
            }
            let covered = coverage.covered_position().0;
            let left = unsealed.iter().find(|s| s.0 <= covered);
            assert_eq!(left, None, "seed {seed}: covered {covered}");
        }
        // Everything is sealed as time advances, whatever samples each group has.
        let mark = |newest| CoverageMark {
            newest,
            sequence: position,
            position: LogPosition(position),
        };
        coverage.record_mark(mark(newest), GroupId(groups), &[]);
        coverage.record_mark(mark(newest + 3_000), GroupId(groups), &[]);
        for due in coverage.list_due_groups(newest + 3_000) {
            let after = coverage.unsealed_after(due, position);
            coverage.record_sealed(due, after, false);
        }
        assert_eq!(
            coverage.covered_position(),
            LogPosition(position),
            "seed {seed}"
        );
    }
}

#[test]
fn windows_end_spread_over_time_with_jitter_and_together_without() {
    let ends = |is_jittered| {
        let windows = SealWindows {
            is_jittered,
            ..WINDOWS
        };
        let mut ends: Vec<i64> = (0..100)
            .map(GroupId)
            .map(|g| windows.due_end(g, 10_000))
            .collect();
        ends.sort_unstable();
        ends
    };
    assert!(ends(false).iter().all(|end| *end == 9_000));
    let spread = ends(true);
    let gaps = spread.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.max() <= Some(30), "{spread:?}");
    assert!(spread[0] >= 8_969 && spread[99] <= 9_969);
}

#[test]
fn windows_at_the_ends_of_time_do_not_overflow() {
    for newest in [i64::MIN, i64::MAX, 0] {
        for group in [0, 1, u64::MAX / 512].map(GroupId) {
            assert!(WINDOWS.due_end(group, newest) <= newest);
        }
    }
}
