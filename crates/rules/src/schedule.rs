//! Which instant of a group comes next, and when.
//!
//! ```text
//! start --knows the last one--> the instants since, no more than `catch_up` of them, then as ever
//!       `--knows none---------> the next one of the grid
//! each next one: as soon as it is there and the one before is done
//!                more than `catch_up` behind: skipped up to there, and counted as missed
//! ```
//!
//! Invariant: instants are on the grid of the group, and each is later than the one before, but
//! for a clock that was set back by more than an interval.

use crate::group::Group;
use crate::instant::Instant;
use std::time::Duration;

/// How evaluations that were missed are made up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// `firn.rules.catch_up`: what is missed longer ago stays missed.
    pub span: Duration,
    /// `firn.rules.catch_up_delay`: how long after a start it begins.
    pub delay: Duration,
}

/// The instants of a group.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    catch_up: CatchUp,
    /// The one that is next.
    next: Instant,
    /// Nothing is evaluated before.
    not_before: Instant,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing before this moment.
    Wait(Instant),
    /// An evaluation.
    Evaluate {
        /// At this instant.
        instant: Instant,
        /// Whether the one behind it is due as well: it is made up for.
        is_late: bool,
        /// Instants before it that are left out.
        missed: u64,
    },
}

impl Schedule {
    /// The schedule from `now` on; `due` is what came next before, under whatever interval.
    pub(crate) fn new(
        group: &Group,
        catch_up: CatchUp,
        due: Option<Instant>,
        now: Instant,
    ) -> Self {
        let next = match due {
            Some(due) if due <= now => group.instant_from(due),
            _ => group.instant_at(now).after(group.interval),
        };
        Self {
            catch_up,
            next,
            not_before: match next <= now {
                true => now.after(catch_up.delay),
                false => now,
            },
        }
    }

    /// The schedule that takes the place of this one at `now`, when the interval of the group has
    /// changed: what was not due before is not made up for.
    pub(crate) fn moved(&self, group: &Group, now: Instant) -> Self {
        Self {
            not_before: now,
            ..Self::new(group, self.catch_up, Some(self.next), now)
        }
    }

    /// How missed instants are made up for from now on.
    pub(crate) fn set_catch_up(&mut self, catch_up: CatchUp) {
        self.catch_up = catch_up;
    }

    /// What comes at `now`, while nothing is being evaluated.
    pub(crate) fn next(&mut self, group: &Group, now: Instant) -> Next {
        let interval = group.interval;
        if self.next.since(now) > interval {
            // The clock was set back.
            self.next = group.instant_at(now).after(interval);
            self.not_before = now;
        }
        let start = self.next.max(self.not_before);
        if now < start {
            return Next::Wait(start);
        }
        let missed = self.skip(group, now);
        let instant = self.next;
        self.next = instant.after(interval);
        Next::Evaluate {
            instant,
            is_late: self.next <= now,
            missed,
        }
    }

    /// Leaves out what is too long ago, and says how many instants that are.
    fn skip(&mut self, group: &Group, now: Instant) -> u64 {
        let newest = group.instant_at(now);
        let oldest = group.instant_at(now.before(self.catch_up.span));
        let oldest = match self.catch_up.span.is_zero() {
            true => newest,
            // The grid's first one in the span, not the one before it.
            false if oldest < now.before(self.catch_up.span) => oldest.after(group.interval),
            false => oldest,
        };
        let first = oldest.min(newest);
        if self.next >= first {
            return 0;
        }
        let interval = group.interval.as_nanos().max(1);
        let missed = first.since(self.next).as_nanos() / interval;
        self.next = first;
        u64::try_from(missed).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{ReadOptions, parse};
    use firn_promql::Features;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn group() -> Group {
        let file = parse("groups: [{name: g}]", ReadOptions::default()).unwrap();
        let groups = Group::of_file("f", &file, INTERVAL, Features::default());
        groups.unwrap().remove(0)
    }

    /// Instants are told by their number on the grid behind `base`, times in seconds behind it.
    struct Case {
        last: Option<u32>,
        span: u64,
        delay: u64,
        start: u64,
    }

    /// Looks at each of `times` and shows what comes: `w30`, `e2`, `e2+`, `e5-3`.
    fn check(case: Case, times: &[u64], want: &[&str]) {
        let group = group();
        let base = group.instant_at(Instant::from_seconds(1_700_000_000));
        let at = |seconds: u64| base.after(Duration::from_secs(seconds));
        let catch_up = CatchUp {
            span: Duration::from_secs(case.span),
            delay: Duration::from_secs(case.delay),
        };
        let due = case.last.map(|n| base.after(INTERVAL * (n + 1)));
        let mut schedule = Schedule::new(&group, catch_up, due, at(case.start));
        let shown: Vec<String> = times
            .iter()
            .map(|seconds| match schedule.next(&group, at(*seconds)) {
                Next::Wait(until) => format!("w{}", until.since(base).as_secs()),
                Next::Evaluate {
                    instant,
                    is_late,
                    missed,
                } => {
                    let number = instant.since(base).as_secs() / INTERVAL.as_secs();
                    let late = if is_late { "+" } else { "" };
                    match missed {
                        0 => format!("e{number}{late}"),
                        missed => format!("e{number}{late}-{missed}"),
                    }
                }
            })
            .collect();
        assert_eq!(shown, want);
    }

    #[test]
    fn schedule_without_a_past_begins_with_the_next_instant() {
        let case = Case {
            last: None,
            span: 3600,
            delay: 0,
            start: 15,
        };
        check(case, &[15, 20, 21, 30], &["w20", "e2", "w30", "e3"]);
    }

    #[test]
    fn schedule_after_a_stop_makes_up_for_what_was_missed() {
        let case = || Case {
            last: Some(1),
            span: 3600,
            delay: 0,
            start: 45,
        };
        check(case(), &[45, 45, 45, 45], &["e2+", "e3+", "e4", "w50"]);
        let delayed = Case { delay: 7, ..case() };
        check(delayed, &[45, 52, 52], &["w52", "e2+", "e3+"]);
        let short = Case { span: 15, ..case() };
        check(short, &[45, 45, 45], &["e3+-1", "e4", "w50"]);
        let none = Case { span: 0, ..case() };
        check(none, &[45, 45], &["e4-2", "w50"]);
    }

    #[test]
    fn schedule_that_is_late_goes_on_at_once() {
        let case = Case {
            last: None,
            span: 20,
            delay: 0,
            start: 5,
        };
        check(
            case,
            &[12, 35, 35, 70, 70],
            &["e1", "e2+", "e3", "e5+-1", "e6+"],
        );
    }

    #[test]
    fn schedule_of_a_clock_that_was_set_back_goes_on() {
        let case = Case {
            last: None,
            span: 3600,
            delay: 0,
            start: 100,
        };
        check(case, &[111, 12, 20], &["e11", "w20", "e2"]);
    }
}
