//! The schedule of a rule group: its next evaluation instant, and the time of that evaluation.
//!
//! ```text
//! start --last instant saved--> the missed instants, at most `catch_up` old, then the regular ones
//!       `--no saved instant---> the next instant of the grid
//! each instant: evaluated when it is reached and the previous evaluation is done
//!               older than `catch_up`: skipped and counted as missed
//!               held until the groups that this one reads have caught up
//! ```
//!
//! Other groups wait for a group that is behind until it is on time again, as long as it makes
//! progress: whenever it has finished the backlog, the instants that became due meanwhile must be
//! at most half as long. Groups never wait for one that cannot keep up, or for longer than five
//! minutes.
//!
//! Invariant: instants are on the grid of the group and strictly increasing, unless the clock was
//! set back by more than an interval.

use crate::group::RuleGroup;
use crate::instant::RuleInstant;
use std::time::Duration;

/// Maximum time for which other groups wait for one that is behind: a group with a query that never
/// ends must not block alerts.
const HOLD_MAX: Duration = Duration::from_secs(300);

/// Settings for the catch-up on missed evaluations after a start or a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUpSettings {
    /// Value of `firn.rules.catch_up`: the maximum age of a missed instant that is still evaluated.
    pub span: Duration,
    /// Value of `firn.rules.catch_up_delay`: the time between a start and the first catch-up
    /// evaluation.
    pub delay: Duration,
}

/// The schedule of one group. Its methods take the current time as an argument, so that they are
/// deterministic. The machine requests the next operation whenever it is idle.
#[derive(Clone, Debug)]
pub(crate) struct GroupSchedule {
    catch_up: CatchUpSettings,
    /// Next instant to be evaluated. It is always on the grid of the group.
    next: RuleInstant,
    /// Time before which no evaluation starts, because of the catch-up delay.
    not_before: RuleInstant,
    /// Number of instants before `next` that were skipped.
    missed: u64,
    /// Backlog of the group; `None` while it is on time.
    backlog: Option<EvaluationBacklog>,
    /// True if the previous instant was evaluated in time.
    was_on_time: bool,
    /// Instant for which [`ScheduledOperation::Hold`] was returned and that may not be cleared yet.
    asked: Option<RuleInstant>,
    /// True if the hold was returned again for that instant: other groups delay this one.
    is_held: bool,
    /// Newest instant for which the input from other groups is complete.
    cleared: Option<RuleInstant>,
}

/// Instants that a group has to catch up on. Exists from the first late instant until the group is
/// on time again.
#[derive(Clone, Copy, Debug)]
struct EvaluationBacklog {
    /// Time at which the group fell behind.
    began: RuleInstant,
    /// End of the current round: instants due until then belong to it.
    end: RuleInstant,
    /// Lag of the group at the start of the round.
    length: Duration,
    /// True while each round was at most half as long as the one before.
    is_shrinking: bool,
}

impl EvaluationBacklog {
    fn new(now: RuleInstant, length: Duration) -> Self {
        Self {
            began: now,
            end: now,
            length,
            is_shrinking: true,
        }
    }

    /// Continues with `instant`, at which the group lags by `length`. Starts a new round if the
    /// current one is complete.
    fn advance_to(&mut self, instant: RuleInstant, length: Duration, now: RuleInstant) {
        if instant > self.end {
            self.is_shrinking &= length <= self.length / 2;
            (self.end, self.length) = (now, length);
        }
    }
}

/// Next operation according to the schedule, returned by [`GroupSchedule::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScheduledOperation {
    /// Wait until this time, unless another event occurs before.
    Wait(RuleInstant),
    /// Wait for [`GroupSchedule::mark_cleared`] with this instant. A second request before that
    /// means that other groups delay this one.
    Hold(RuleInstant),
    /// Evaluate the group.
    Evaluate {
        /// Instant of the evaluation.
        instant: RuleInstant,
        /// True if the following instant is already due: this is a catch-up evaluation.
        is_late: bool,
        /// Number of instants before this one that are skipped.
        missed: u64,
    },
}

impl GroupSchedule {
    /// Creates a schedule that starts at `now`. `due` is the next instant of an earlier schedule,
    /// possibly with another interval.
    pub(crate) fn new(
        group: &RuleGroup,
        catch_up: CatchUpSettings,
        due: Option<RuleInstant>,
        now: RuleInstant,
    ) -> Self {
        let next = match due {
            Some(due) if due <= now => group.instant_from(due),
            _ => group.instant_at(now).after(group.interval),
        };
        let not_before = if next <= now {
            now.after(catch_up.delay)
        } else {
            now
        };
        Self {
            catch_up,
            next,
            not_before,
            missed: 0,
            backlog: (next <= now)
                .then(|| EvaluationBacklog::new(not_before, not_before.since(next))),
            was_on_time: false,
            asked: None,
            is_held: false,
            cleared: None,
        }
    }

    /// Creates the successor of this schedule after the interval of the group changed at `now`,
    /// without catch-up delay.
    pub(crate) fn with_interval(&self, group: &RuleGroup, now: RuleInstant) -> Self {
        Self {
            not_before: now,
            ..Self::new(group, self.catch_up, Some(self.next), now)
        }
    }

    /// Returns the next instant to be evaluated, whether or not it is due.
    pub(crate) fn upcoming(&self) -> RuleInstant {
        self.next
    }

    /// Returns the time until which other groups wait for this one to catch up; `None` if they do
    /// not wait.
    pub(crate) fn waited_for_until(&self) -> Option<RuleInstant> {
        let backlog = self.backlog.filter(|backlog| backlog.is_shrinking)?;
        Some(backlog.began.after(HOLD_MAX))
    }

    /// Marks `instant` as cleared: its input from other groups is complete.
    pub(crate) fn mark_cleared(&mut self, instant: RuleInstant, now: RuleInstant) {
        self.cleared = self.cleared.max(Some(instant));
        if std::mem::take(&mut self.is_held)
            && let Some(backlog) = &mut self.backlog
        {
            // The time spent waiting for other groups does not count against the progress of this
            // one.
            (backlog.end, backlog.length) = (now, now.since(instant));
        }
    }

    /// Changes the settings for missed instants from now on. A running catch-up uses them as well.
    pub(crate) fn set_catch_up(&mut self, catch_up: CatchUpSettings) {
        self.catch_up = catch_up;
    }

    /// Returns the next operation at `now`. Must not be called during an evaluation.
    pub(crate) fn next(&mut self, group: &RuleGroup, now: RuleInstant) -> ScheduledOperation {
        let interval = group.interval;
        if self.next.since(now) > interval {
            // The clock was set back.
            self.next = group.instant_at(now).after(interval);
            self.not_before = now;
            (self.backlog, self.cleared) = (None, None);
        }
        if now < self.not_before {
            return ScheduledOperation::Wait(self.next.max(self.not_before));
        }
        if std::mem::take(&mut self.was_on_time) || now < self.next {
            self.backlog = None;
        }
        if now < self.next {
            return ScheduledOperation::Wait(self.next);
        }
        self.skip_old_instants(group, now);
        let instant = self.next;
        let is_late = instant.after(interval) <= now;
        let length = now.since(instant);
        match &mut self.backlog {
            Some(backlog) => backlog.advance_to(instant, length, now),
            None if is_late => self.backlog = Some(EvaluationBacklog::new(now, length)),
            None => {}
        }
        if self.cleared < Some(instant) {
            if self.asked.replace(instant) == Some(instant) {
                // The group falls behind while it waits.
                self.is_held = true;
                self.backlog
                    .get_or_insert(EvaluationBacklog::new(now, length));
            }
            return ScheduledOperation::Hold(instant);
        }
        self.next = instant.after(interval);
        self.was_on_time = !is_late;
        ScheduledOperation::Evaluate {
            instant,
            is_late,
            missed: std::mem::take(&mut self.missed),
        }
    }

    /// Skips instants that are too old for the catch-up, and counts them.
    fn skip_old_instants(&mut self, group: &RuleGroup, now: RuleInstant) {
        let oldest = self.oldest_evaluated(group, now);
        let skipped = oldest.since(self.next).as_nanos() / group.interval.as_nanos().max(1);
        self.missed = self
            .missed
            .saturating_add(u64::try_from(skipped).unwrap_or(u64::MAX));
        self.next = self.next.max(oldest);
    }

    /// Returns the oldest instant that is still evaluated. Earlier ones are skipped because they
    /// are too old.
    fn oldest_evaluated(&self, group: &RuleGroup, now: RuleInstant) -> RuleInstant {
        let newest = group.instant_at(now);
        let oldest = group.instant_at(now.before(self.catch_up.span));
        let oldest = if self.catch_up.span.is_zero() {
            newest
        } else if oldest < now.before(self.catch_up.span) {
            // The rounded-down instant is before the span; take the next one.
            oldest.after(group.interval)
        } else {
            oldest
        };
        oldest.min(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{RuleFileOptions, parse};
    use firn_promql::Features;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn group() -> RuleGroup {
        let file = parse("groups: [{name: g}]", RuleFileOptions::default()).unwrap();
        let groups = RuleGroup::from_file("f", &file, INTERVAL, Features::default());
        groups.unwrap().remove(0)
    }

    /// Parameters of a test. Instants are counted from `base` in steps of the grid, times in
    /// seconds from `base`.
    struct Case {
        last: Option<u32>,
        span: u64,
        delay: u64,
        start: u64,
    }

    /// Runs the schedule at each of `times` and compares its output with `want`: `w30`, `e2`,
    /// `e2+`, `e5-3`, with the prefix `b` if other groups wait. Holds are cleared immediately.
    fn check(case: Case, times: &[u64], want: &[&str]) {
        let group = group();
        let base = group.instant_at(RuleInstant::from_seconds(1_700_000_000));
        let at = |seconds: u64| base.after(Duration::from_secs(seconds));
        let catch_up = CatchUpSettings {
            span: Duration::from_secs(case.span),
            delay: Duration::from_secs(case.delay),
        };
        let due = case.last.map(|n| base.after(INTERVAL * (n + 1)));
        let mut schedule = GroupSchedule::new(&group, catch_up, due, at(case.start));
        let mut show = |seconds: &u64| {
            let mut next = schedule.next(&group, at(*seconds));
            if let ScheduledOperation::Hold(instant) = next {
                schedule.mark_cleared(instant, at(*seconds));
                next = schedule.next(&group, at(*seconds));
            }
            let behind = match schedule.waited_for_until() {
                Some(_) => "b",
                None => "",
            };
            match next {
                ScheduledOperation::Wait(until) => {
                    format!("{behind}w{}", until.since(base).as_secs())
                }
                ScheduledOperation::Hold(instant) => panic!("{instant:?} was cleared"),
                ScheduledOperation::Evaluate {
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
        // The first round took 20 s, in which two more instants became due.
        let times = [85, 90, 95, 100, 103, 104, 105, 106, 107, 108, 109, 110];
        let want = [
            "be1+", "be2+", "be3+", "be4+", "be5+", "be6+", "be7+", "be8+", "be9+", "be10", "w110",
            "e11",
        ];
        check(case(), &times, &want);
        // Each evaluation takes a full interval: the group never catches up, and others stop
        // waiting.
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
        let base = group.instant_at(RuleInstant::from_seconds(1_700_000_000));
        let at = |seconds: u64| base.after(Duration::from_secs(seconds));
        let catch_up = CatchUpSettings {
            span: Duration::from_secs(3600),
            delay: Duration::ZERO,
        };
        let mut schedule = GroupSchedule::new(&group, catch_up, None, at(5));
        let held = ScheduledOperation::Hold(at(10));
        assert_eq!(schedule.next(&group, at(10)), held);
        assert_eq!(schedule.waited_for_until(), None);
        assert_eq!(schedule.next(&group, at(10)), held);
        let until = Some(at(10).after(HOLD_MAX));
        assert_eq!(schedule.waited_for_until(), until);
        // The progress is measured from the end of the hold.
        assert_eq!(schedule.next(&group, at(100)), held);
        for instant in 1..=10 {
            schedule.mark_cleared(at(instant * 10), at(101));
            let next = schedule.next(&group, at(101));
            let is_it = |i: RuleInstant| i == at(instant * 10);
            assert!(matches!(next, ScheduledOperation::Evaluate { instant, .. } if is_it(instant)));
            assert_eq!(schedule.waited_for_until(), until);
        }
        assert_eq!(
            schedule.next(&group, at(102)),
            ScheduledOperation::Wait(at(110))
        );
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
