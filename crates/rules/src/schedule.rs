//! Which instant of a group comes next, and when.
//!
//! ```text
//! start --knows the last one--> the instants since, no more than `catch_up` of them, then as ever
//!       `--knows none---------> the next one of the grid
//! each next one: as soon as it is there and the one before is done
//!                more than `catch_up` behind: skipped up to there, and counted as missed
//!                of a backlog: once the groups that it reads have made theirs up, too
//! ```
//!
//! A backlog is what has become due when the group is found to be behind, and then what has become
//! due meanwhile, as long as that is half as much each time: a group that cannot keep up waits for
//! no other, and none waits for long.
//!
//! Invariant: instants are on the grid of the group, and each is later than the one before, but
//! for a clock that was set back by more than an interval.

use crate::group::Group;
use crate::instant::Instant;
use std::time::Duration;

/// How long the instants of a backlog wait for those of other groups: alerts must not wait for a
/// group whose queries come to no end.
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
    /// What the instants up to this one read is there.
    cleared: Option<Instant>,
}

/// Instants that are made up for in one order with those of other groups.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    /// The moment up to which instants belong to it.
    end: Instant,
    /// How far behind the group was then.
    length: Duration,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing before this moment.
    Wait(Instant),
    /// Nothing before [`Schedule::clear`] of this instant.
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
            backlog: (next <= now).then(|| Backlog {
                end: not_before,
                length: not_before.since(next),
            }),
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

    /// What `instant`, which was held, reads is there.
    pub(crate) fn clear(&mut self, instant: Instant) {
        self.cleared = self.cleared.max(Some(instant));
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
        let start = self.next.max(self.not_before);
        if now < start {
            return Next::Wait(start);
        }
        self.skip(group, now);
        let instant = self.next;
        let is_late = instant.after(interval) <= now;
        if self.is_held(instant, is_late, now) {
            return Next::Hold(instant);
        }
        self.next = instant.after(interval);
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

    /// Whether an instant must wait for what it reads.
    fn is_held(&mut self, instant: Instant, is_late: bool, now: Instant) -> bool {
        let length = now.since(instant);
        let backlog = match &mut self.backlog {
            None if !is_late => return false,
            known => known.get_or_insert(Backlog { end: now, length }),
        };
        if instant > backlog.end && (!is_late || length <= backlog.length / 2) {
            *backlog = Backlog { end: now, length };
        }
        let is_waited_for = instant <= backlog.end && now.since(backlog.end) <= HOLD_MAX;
        let is_held = is_waited_for && self.cleared < Some(instant);
        if !is_late && !is_held {
            self.backlog = None;
        }
        is_held
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

    /// Looks at each of `times` and shows what comes: `w30`, `e2`, `e2+`, `e5-3`; what is held is
    /// cleared at once, and shown by an `h` before it.
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
            let (mut next, mut held) = (schedule.next(&group, at(*seconds)), "");
            if let Next::Hold(instant) = next {
                assert_eq!(schedule.next(&group, at(*seconds)), next);
                schedule.clear(instant);
                (next, held) = (schedule.next(&group, at(*seconds)), "h");
            }
            match next {
                Next::Wait(until) => format!("w{}", until.since(base).as_secs()),
                Next::Hold(instant) => panic!("{instant:?} was cleared"),
                Next::Evaluate {
                    instant,
                    is_late,
                    missed,
                } => {
                    let number = instant.since(base).as_secs() / INTERVAL.as_secs();
                    let late = if is_late { "+" } else { "" };
                    match missed {
                        0 => format!("{held}e{number}{late}"),
                        missed => format!("{held}e{number}{late}-{missed}"),
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
        check(case(), &[45, 45, 45, 45], &["he2+", "he3+", "he4", "w50"]);
        let delayed = Case { delay: 7, ..case() };
        let want = ["w52", "he2+", "he3+", "he4+", "he5"];
        check(delayed, &[45, 52, 52, 52, 52], &want);
        let short = Case { span: 15, ..case() };
        check(short, &[45, 45, 45], &["he3+-1", "he4", "w50"]);
        let none = Case { span: 0, ..case() };
        check(none, &[45, 45], &["he4-2", "w50"]);
    }

    #[test]
    fn schedule_waits_for_others_until_its_backlog_is_made_up_for() {
        let case = || Case {
            last: Some(0),
            span: 3600,
            delay: 0,
            start: 85,
        };
        // It took 20 s, in which two more became due, and then it is on time.
        let times = [85, 90, 95, 100, 103, 104, 105, 106, 107, 108, 110];
        let want = [
            "he1+", "he2+", "he3+", "he4+", "he5+", "he6+", "he7+", "he8+", "he9+", "he10", "e11",
        ];
        check(case(), &times, &want);
        // It takes as long as its interval: it is behind for ever, and waits for others no more.
        let times: Vec<u64> = (0..16).map(|i| 85 + 10 * i).collect();
        let want: Vec<String> = (1..=16)
            .map(|i| format!("{}e{i}+", if i <= 8 { "h" } else { "" }))
            .collect();
        let want: Vec<&str> = want.iter().map(String::as_str).collect();
        check(case(), &times, &want);
    }

    #[test]
    fn schedule_waits_for_others_five_minutes_at_most() {
        let group = group();
        let last = group.instant_at(Instant::from_seconds(1_700_000_000));
        let catch_up = CatchUp {
            span: Duration::from_secs(3600),
            delay: Duration::ZERO,
        };
        let start = last.after(INTERVAL * 8);
        let mut schedule = Schedule::new(&group, catch_up, Some(last), start);
        let end = start.after(HOLD_MAX);
        assert_eq!(schedule.next(&group, end), Next::Hold(last));
        for i in 0..20 {
            let next = schedule.next(&group, end.after(Duration::from_secs(1)));
            let due = last.after(INTERVAL * i);
            assert!(matches!(next, Next::Evaluate { instant, .. } if instant == due));
        }
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
            &["e1", "he2+", "he3", "he5+-1", "he6+"],
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
