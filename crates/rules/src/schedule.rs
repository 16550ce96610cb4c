//! Which instant of a group comes next, and when.
//!
//! ```text
//! start --knows the last one--> the instants since, no more than `catch_up` of them, then as ever
//!       `--knows none---------> the next one of the grid
//! each next one: as soon as it is there and the one before is done
//!                more than `catch_up` behind: skipped up to there, and counted as missed
//!                held until the groups that it reads have made up for theirs
//! ```
//!
//! Others wait for a group from when it is found to be behind until it is on time, if it catches
//! up: each time that it has done what was due, what has become due meanwhile must be half as much.
//! For one that cannot keep up none waits, and for none longer than five minutes.
//!
//! Invariant: instants are on the grid of the group, and each is later than the one before, but
//! for a clock that was set back by more than an interval.

use crate::group::Group;
use crate::instant::Instant;
use std::time::Duration;

/// How long others wait for a group that is behind: alerts must not wait for one whose queries come
/// to no end.
const HOLD_MAX: Duration = Duration::from_secs(300);

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
    /// Instants before it that were left out.
    missed: u64,
    /// `None` while the group is not behind.
    backlog: Option<Backlog>,
    /// Whether the instant before was evaluated in time.
    was_on_time: bool,
    /// The instant that was asked for and may not be clear.
    asked: Option<Instant>,
    /// Whether it was asked for again: others hold it up.
    is_held: bool,
    /// What the instants up to this one read is there.
    cleared: Option<Instant>,
}

/// What a group that is behind has to make up for.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    /// When it began to.
    began: Instant,
    /// What was due up to here is what is being made up for.
    end: Instant,
    /// How far behind the group was then.
    length: Duration,
    /// Whether it catches up.
    is_shrinking: bool,
}

impl Backlog {
    fn new(now: Instant, length: Duration) -> Self {
        Self {
            began: now,
            end: now,
            length,
            is_shrinking: true,
        }
    }

    /// Goes on with an instant of which the group is so far behind.
    fn go_on(&mut self, instant: Instant, length: Duration, now: Instant) {
        if instant > self.end {
            self.is_shrinking &= length <= self.length / 2;
            (self.end, self.length) = (now, length);
        }
    }
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing before this moment.
    Wait(Instant),
    /// Nothing before [`Schedule::clear`] of this instant. One who asks again says that it is not
    /// clear yet.
    Hold(Instant),
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
        let not_before = match next <= now {
            true => now.after(catch_up.delay),
            false => now,
        };
        Self {
            catch_up,
            next,
            not_before,
            missed: 0,
            backlog: (next <= now).then(|| Backlog::new(not_before, not_before.since(next))),
            was_on_time: false,
            asked: None,
            is_held: false,
            cleared: None,
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

    /// The instant that comes next.
    pub(crate) fn upcoming(&self) -> Instant {
        self.next
    }

    /// Until when others wait for what the group makes up for; `None` if they do not.
    pub(crate) fn waited_for_until(&self) -> Option<Instant> {
        let backlog = self.backlog.filter(|backlog| backlog.is_shrinking)?;
        Some(backlog.began.after(HOLD_MAX))
    }

    /// What `instant`, which was held, reads is there.
    pub(crate) fn clear(&mut self, instant: Instant, now: Instant) {
        self.cleared = self.cleared.max(Some(instant));
        if std::mem::take(&mut self.is_held)
            && let Some(backlog) = &mut self.backlog
        {
            // What it waited for others says nothing of how it catches up.
            (backlog.end, backlog.length) = (now, now.since(instant));
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
            (self.backlog, self.cleared) = (None, None);
        }
        if now < self.not_before {
            return Next::Wait(self.next.max(self.not_before));
        }
        if std::mem::take(&mut self.was_on_time) || now < self.next {
            self.backlog = None;
        }
        if now < self.next {
            return Next::Wait(self.next);
        }
        self.skip(group, now);
        let instant = self.next;
        let is_late = instant.after(interval) <= now;
        let length = now.since(instant);
        match &mut self.backlog {
            Some(backlog) => backlog.go_on(instant, length, now),
            None if is_late => self.backlog = Some(Backlog::new(now, length)),
            None => {}
        }
        if self.cleared < Some(instant) {
            if self.asked.replace(instant) == Some(instant) {
                // It will be behind.
                self.is_held = true;
                self.backlog.get_or_insert(Backlog::new(now, length));
            }
            return Next::Hold(instant);
        }
        self.next = instant.after(interval);
        self.was_on_time = !is_late;
        Next::Evaluate {
            instant,
            is_late,
            missed: std::mem::take(&mut self.missed),
        }
    }

    /// Leaves out what is too long ago.
    fn skip(&mut self, group: &Group, now: Instant) {
        let oldest = self.oldest(group, now);
        let skipped = oldest.since(self.next).as_nanos() / group.interval.as_nanos().max(1);
        self.missed = self
            .missed
            .saturating_add(u64::try_from(skipped).unwrap_or(u64::MAX));
        self.next = self.next.max(oldest);
    }

    /// The oldest instant that is made up for; what is due before is too long ago.
    fn oldest(&self, group: &Group, now: Instant) -> Instant {
        let newest = group.instant_at(now);
        let oldest = group.instant_at(now.before(self.catch_up.span));
        let oldest = match self.catch_up.span.is_zero() {
            true => newest,
            // The grid's first one in the span, not the one before it.
            false if oldest < now.before(self.catch_up.span) => oldest.after(group.interval),
            false => oldest,
        };
        oldest.min(newest)
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

    /// Looks at each of `times` and shows what comes: `w30`, `e2`, `e2+`, `e5-3`, with a `b` before
    /// it if others wait for the group. What is held is cleared at once.
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
        let mut show = |seconds: &u64| {
            let mut next = schedule.next(&group, at(*seconds));
            if let Next::Hold(instant) = next {
                schedule.clear(instant, at(*seconds));
                next = schedule.next(&group, at(*seconds));
            }
            let behind = match schedule.waited_for_until() {
                Some(_) => "b",
                None => "",
            };
            match next {
                Next::Wait(until) => format!("{behind}w{}", until.since(base).as_secs()),
                Next::Hold(instant) => panic!("{instant:?} was cleared"),
                Next::Evaluate {
                    instant,
                    is_late,
                    missed,
                } => {
                    let number = instant.since(base).as_secs() / INTERVAL.as_secs();
                    let late = if is_late { "+" } else { "" };
                    match missed {
                        0 => format!("{behind}e{number}{late}"),
                        missed => format!("{behind}e{number}{late}-{missed}"),
                    }
                }
            }
        };
        let shown: Vec<String> = times.iter().map(&mut show).collect();
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
        check(case(), &[45, 45, 45, 45], &["be2+", "be3+", "be4", "w50"]);
        let delayed = Case { delay: 7, ..case() };
        let want = ["bw52", "be2+", "be3+", "be4+", "be5"];
        check(delayed, &[45, 52, 52, 52, 52], &want);
        let short = Case { span: 15, ..case() };
        check(short, &[45, 45, 45], &["be3+-1", "be4", "w50"]);
        let none = Case { span: 0, ..case() };
        check(none, &[45, 45], &["be4-2", "w50"]);
    }

    #[test]
    fn schedule_that_catches_up_is_waited_for_until_it_is_on_time() {
        let case = || Case {
            last: Some(0),
            span: 3600,
            delay: 0,
            start: 85,
        };
        // It took 20 s, in which two more became due.
        let times = [85, 90, 95, 100, 103, 104, 105, 106, 107, 108, 109, 110];
        let want = [
            "be1+", "be2+", "be3+", "be4+", "be5+", "be6+", "be7+", "be8+", "be9+", "be10", "w110",
            "e11",
        ];
        check(case(), &times, &want);
        // It takes as long as its interval: it is behind for ever, and none waits for it.
        let times: Vec<u64> = (0..16).map(|i| 85 + 10 * i).collect();
        let want: Vec<String> = (1..=16)
            .map(|i| format!("{}e{i}+", if i <= 8 { "b" } else { "" }))
            .collect();
        let want: Vec<&str> = want.iter().map(String::as_str).collect();
        check(case(), &times, &want);
    }

    #[test]
    fn schedule_that_is_held_is_waited_for_until_it_is_on_time_again() {
        let group = group();
        let base = group.instant_at(Instant::from_seconds(1_700_000_000));
        let at = |seconds: u64| base.after(Duration::from_secs(seconds));
        let catch_up = CatchUp {
            span: Duration::from_secs(3600),
            delay: Duration::ZERO,
        };
        let mut schedule = Schedule::new(&group, catch_up, None, at(5));
        let held = Next::Hold(at(10));
        assert_eq!(schedule.next(&group, at(10)), held);
        assert_eq!(schedule.waited_for_until(), None);
        assert_eq!(schedule.next(&group, at(10)), held);
        let until = Some(at(10).after(HOLD_MAX));
        assert_eq!(schedule.waited_for_until(), until);
        // It catches up from when it is let go.
        assert_eq!(schedule.next(&group, at(100)), held);
        for instant in 1..=10 {
            schedule.clear(at(instant * 10), at(101));
            let next = schedule.next(&group, at(101));
            let is_it = |i: Instant| i == at(instant * 10);
            assert!(matches!(next, Next::Evaluate { instant, .. } if is_it(instant)));
            assert_eq!(schedule.waited_for_until(), until);
        }
        assert_eq!(schedule.next(&group, at(102)), Next::Wait(at(110)));
        assert_eq!(schedule.waited_for_until(), None);
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
            &["e1", "be2+", "be3", "be5+-1", "be6+"],
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
