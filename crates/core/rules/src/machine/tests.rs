//! Simulation of a group: query results and append outcomes arrive in any order, the process is
//! late, is killed and restarts. The stored samples must equal those of an undisturbed run.
//!
//! A flaw can be injected ([`Flaw`]), and the test must detect each one.

use super::*;
use crate::alert::{ALERTS, AlertState};
use crate::file::{RuleFileOptions, parse};
use crate::journal::RuleJournal;
use crate::rule::{ActiveAlert, RecordedSample};
use firn_model::env::sim::{self, SimRng};
use firn_model::labels::METRIC_NAME;
use firn_model::sample::is_stale;
use firn_promql::Features;
use firn_promql::value::QueryPointValue;
use std::collections::BTreeMap;
use std::path::Path;

const INTERVAL: Duration = Duration::from_secs(10);

/// The first rule records series that appear and disappear, the second reads them, and the third is
/// an alerting rule.
const RULES: &str = "
groups:
- name: g
  rules:
  - {record: made, expr: x}
  - {record: summed, expr: sum(made)}
  - {alert: Hot, expr: x > 1, for: 20s, keep_firing_for: 10s}
  - {record: other, expr: y}
";

/// A defect of the machine or its environment that the test injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A start ignores the saved state.
    Forgets,
    /// Missed evaluations are skipped instead of repeated.
    SkipsMissed,
    /// A rule does not wait for the rules on which it depends.
    DoesNotWait,
    /// After a start, the series of the last evaluation are not queried.
    DoesNotRecall,
    /// The state is saved before the samples are stored.
    SavesEarly,
    /// The state is saved although the samples are not stored.
    SavesUnstored,
    /// A start ignores the range of instants that are still to be stored.
    ForgetsOwed,
}

/// Stored samples by series and time, as the bits of their values. Stale markers are included.
type Stored = BTreeMap<String, BTreeMap<TimestampMs, u64>>;

/// A notification: labels of the alert, time of firing and time of resolution.
type Heard = (String, Option<RuleInstant>, Option<RuleInstant>);

struct Sim {
    rng: SimRng,
    flaw: Flaw,
    group: Arc<RuleGroup>,
    disk: Arc<sim::SimDisk>,
    journal: RuleJournal,
    machine: GroupMachine,
    stored: Stored,
    now: RuleInstant,
    under_way: Vec<GroupAction>,
    wake: RuleInstant,
    heard: Vec<Heard>,
    kills: usize,
    /// True while the store cannot write.
    is_full: bool,
    /// True if the store is occasionally unable to write.
    fills: bool,
    backfills: Vec<BackfillRange>,
    making_up: Option<MakingUp>,
}

/// A backfill in progress.
struct MakingUp {
    machine: GroupMachine,
    next: RuleInstant,
    last: RuleInstant,
}

fn settings(flaw: Flaw) -> GroupMachineSettings {
    GroupMachineSettings {
        catch_up: CatchUpSettings {
            span: match flaw {
                Flaw::SkipsMissed => Duration::ZERO,
                _ => Duration::from_secs(3600),
            },
            delay: Duration::ZERO,
        },
        restore: RestoreSettings {
            outage_tolerance: Duration::from_secs(3600),
            grace_period: Duration::from_secs(600),
        },
        resend_delay: Duration::from_secs(60),
        query_offset: Duration::ZERO,
        rules_at_once: 3,
    }
}

/// Returns a number below `bound` that depends only on a time and a salt.
fn chance(at: TimestampMs, salt: u64, bound: u64) -> u64 {
    let seed = (at as u64).wrapping_mul(31).wrapping_add(salt);
    SimRng::new(seed).next_below(bound)
}

impl Sim {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let world = sim::sim_env(seed);
        let file = parse(RULES, RuleFileOptions::default()).expect("the rules are sound");
        let groups = RuleGroup::from_file("f.yml", &file, INTERVAL, Features::default());
        let mut group = groups.expect("the rules are sound").remove(0);
        if flaw == Flaw::DoesNotWait {
            group.dependencies[1].clear();
        }
        let group = Arc::new(group);
        let now = RuleInstant::from_seconds(1_700_000_000);
        let open = || RuleJournal::open(world.disk.clone(), Path::new("/rules"));
        let journal = open().expect("the disk is sound");
        Self {
            rng: SimRng::new(seed),
            flaw,
            machine: GroupMachine::start(group.clone(), settings(flaw), None, now),
            group,
            disk: world.disk,
            journal,
            stored: Stored::new(),
            now,
            under_way: Vec::new(),
            wake: now,
            heard: Vec::new(),
            kills: 0,
            is_full: false,
            fills: false,
            backfills: Vec::new(),
            making_up: None,
        }
    }

    /// Returns the result of a rule at a time. It depends only on the time and the stored samples.
    fn find(&self, rule: usize, instant: RuleInstant) -> RuleResult {
        let at = instant.ms();
        // Conditions remain true for several consecutive instants.
        let epoch = at / 70_000;
        let sample = |name: &str, value: f64, i: u64| RecordedSample {
            labels: Labels::from_pairs([(METRIC_NAME, name.to_owned()), ("i", i.to_string())]),
            value: QueryPointValue::Float(value),
        };
        let is_there = |i: &u64| chance(epoch, *i, 3) > 0;
        match rule {
            0 => {
                let samples = (0..4).filter(is_there);
                RuleResult::Samples(samples.map(|i| sample("made", at as f64, i)).collect())
            }
            1 => {
                let made = self.stored.iter().filter(|(k, _)| k.contains("\"made\""));
                let values = made.filter_map(|(_, samples)| samples.get(&at));
                let values = values.map(|bits| f64::from_bits(*bits));
                let sum: f64 = values.filter(|v| !is_stale(*v)).sum();
                RuleResult::Samples(vec![sample("summed", sum, 0)])
            }
            2 => {
                let holds = (0..3).filter(|i| chance(epoch, 100 + i, 2) > 0);
                let alert = |i: u64| ActiveAlert {
                    labels: Labels::from_pairs([
                        ("alertname", "Hot".to_owned()),
                        ("i", i.to_string()),
                    ]),
                    annotations: Vec::new(),
                    value: at as f64,
                };
                RuleResult::Alerts(holds.map(alert).collect())
            }
            _ => RuleResult::Samples(vec![sample("other", at as f64, 0)]),
        }
    }

    fn step(&mut self, event: GroupEvent) {
        let mut actions = self.machine.step(self.now, event);
        if self.flaw == Flaw::SavesEarly {
            // Saves the state as if it were saved at the start of the evaluation.
            let begins = actions
                .iter()
                .any(|a| matches!(a, GroupAction::Query { rule: 0, .. }));
            let instant = actions.iter().find_map(|a| match a {
                GroupAction::Query { instant, .. } => Some(*instant),
                _ => None,
            });
            if let (true, Some(instant)) = (begins, instant) {
                let kept = self.journal.find("f.yml", "g").unwrap_or_default();
                let early = SavedGroup {
                    file: "f.yml".into(),
                    name: "g".into(),
                    interval: INTERVAL,
                    instant,
                    ..kept
                };
                actions.push(GroupAction::Ended(Some(early)));
            }
        }
        for action in actions {
            match action {
                GroupAction::Wait(until) => self.wake = until,
                GroupAction::Ended(Some(saved)) => self.keep(&saved),
                GroupAction::Ended(None) if self.flaw == Flaw::SavesUnstored => {
                    let instant = self.machine.last_evaluation().instant.unwrap_or_default();
                    self.keep(&self.machine.to_saved_group(instant));
                }
                GroupAction::Ended(None) => {}
                GroupAction::Send { alerts, .. } => {
                    let heard = |alert: Alert| {
                        (alert.labels.to_string(), alert.fired_at, alert.resolved_at)
                    };
                    self.heard.extend(alerts.into_iter().map(heard));
                }
                GroupAction::Backfill(owed) => self.begin_to_make_up(owed),
                action => self.under_way.push(action),
            }
        }
    }

    fn keep(&mut self, saved: &SavedGroup) {
        self.journal.save(saved).expect("the disk is sound");
    }

    fn begin_to_make_up(&mut self, owed: BackfillRange) {
        self.backfills.push(owed);
        let group = Arc::new(self.group.recording_only());
        let mut machine = GroupMachine::start_added(group, settings(self.flaw), owed.first);
        machine.stop();
        let actions = machine.query_series_at(owed.first.before(INTERVAL));
        self.finish(&mut machine, owed.first, actions);
        self.making_up = Some(MakingUp {
            machine,
            next: owed.first,
            last: owed.last,
        });
    }

    /// Performs the actions of a backfill's machine until none are left.
    fn finish(
        &mut self,
        machine: &mut GroupMachine,
        now: RuleInstant,
        mut actions: Vec<GroupAction>,
    ) {
        while let Some(action) = actions.pop() {
            let event = match action {
                GroupAction::Query { rule, instant, .. } => {
                    let name = &machine.group().rules[rule].name;
                    let rule_of_all = self.group.rules.iter().position(|r| r.name == *name);
                    GroupEvent::Answered {
                        rule,
                        found: Ok(self.find(rule_of_all.expect("a rule of the group"), instant)),
                        took: Duration::ZERO,
                    }
                }
                other @ (GroupAction::Append { .. } | GroupAction::Hold(_)) => self.complete(other),
                _ => continue,
            };
            actions.extend(machine.step(now, event));
        }
    }

    /// Evaluates one instant of the current backfill, if there is one.
    fn make_up(&mut self) {
        let Some(mut making) = self.making_up.take() else {
            return;
        };
        let actions = making.machine.start_evaluation_at(making.next);
        self.finish(&mut making.machine, making.next, actions);
        if making.machine.take_unstored().is_none() {
            making.next = making.next.after(INTERVAL);
        }
        self.machine.record_backfilled(making.next);
        if making.next <= making.last {
            self.making_up = Some(making);
        }
    }

    /// Stores a batch. Existing samples are not replaced.
    fn store(&mut self, batch: &Batch) {
        for i in 0..batch.series_count() {
            let series = batch.series(i);
            let samples = self.stored.entry(series.labels.to_string()).or_default();
            for (time, value) in series.times.iter().zip(series.values) {
                samples.entry(*time).or_insert(value.to_bits());
            }
        }
    }

    fn complete(&mut self, action: GroupAction) -> GroupEvent {
        match action {
            // There are no other groups to wait for.
            GroupAction::Hold(instant) => GroupEvent::Cleared(instant),
            GroupAction::Query { rule, instant, .. } => GroupEvent::Answered {
                rule,
                found: Ok(self.find(rule, instant)),
                took: Duration::ZERO,
            },
            GroupAction::Append { of, .. } if self.is_full => {
                let outcome = Err(Error::unavailable("no room"));
                GroupEvent::Stored { of, outcome }
            }
            GroupAction::Append { of, batch, .. } => {
                self.store(&batch);
                let outcome = Ok(AppendOutcome::default());
                GroupEvent::Stored { of, outcome }
            }
            GroupAction::Restore { rule, .. } => GroupEvent::Restored {
                rule,
                kept: Vec::new(),
            },
            GroupAction::Wait(_)
            | GroupAction::Send { .. }
            | GroupAction::Ended(_)
            | GroupAction::Backfill(_) => GroupEvent::Woke,
        }
    }

    /// Kills the process at an arbitrary point and starts it again after some time.
    fn kill(&mut self) {
        for action in std::mem::take(&mut self.under_way) {
            // Appends in progress are either stored or lost.
            if let GroupAction::Append { batch, .. } = action
                && self.rng.one_in(2)
            {
                self.store(&batch);
            }
        }
        self.disk.kill();
        self.making_up = None;
        self.now = self
            .now
            .after(Duration::from_millis(self.rng.next_below(120_000)));
        let open = RuleJournal::open(self.disk.clone(), Path::new("/rules"));
        self.journal = open.expect("the disk is sound");
        let mut saved = match self.flaw {
            Flaw::Forgets => None,
            _ => self.journal.find("f.yml", "g"),
        };
        if let (Flaw::ForgetsOwed, Some(saved)) = (self.flaw, &mut saved) {
            saved.owed = None;
        }
        let (group, settings) = (self.group.clone(), settings(self.flaw));
        self.machine = GroupMachine::start(group, settings, saved, self.now);
        if self.flaw == Flaw::DoesNotRecall {
            self.machine.work = GroupActivity::Idle;
        }
        self.kills += 1;
        self.step(GroupEvent::Woke);
    }

    /// Runs until all instants up to `until` are evaluated.
    fn run(mut self, until: RuleInstant, may_be_killed: bool) -> Self {
        self.step(GroupEvent::Woke);
        while self
            .machine
            .last_evaluation()
            .instant
            .is_none_or(|last| last < until)
        {
            let may_be_killed = may_be_killed && self.now < until;
            let is_known = self.journal.find("f.yml", "g").is_some();
            if may_be_killed && is_known && self.rng.one_in(60) {
                self.kill();
                continue;
            }
            if self.fills && self.rng.one_in(if self.is_full { 30 } else { 120 }) {
                self.is_full = !self.is_full;
            }
            if self.rng.one_in(6) {
                self.make_up();
            }
            if self.under_way.is_empty() {
                // Occasionally the process is late.
                let late = if self.rng.one_in(8) && may_be_killed {
                    self.rng.next_below(45_000)
                } else {
                    0
                };
                self.now = self.now.max(self.wake).after(Duration::from_millis(late));
                self.step(GroupEvent::Woke);
                continue;
            }
            let at = if may_be_killed {
                self.rng.next_below(self.under_way.len() as u64) as usize
            } else {
                0
            };
            let action = self.under_way.remove(at);
            let event = self.complete(action);
            self.step(event);
        }
        self
    }
}

/// Returns the first difference between a run with kills and delays and an undisturbed run.
fn difference(seed: u64, flaw: Flaw) -> Option<String> {
    let until = RuleInstant::from_seconds(1_700_000_000 + 1800);
    let calm = Sim::new(seed, Flaw::None).run(until, false);
    let rough = Sim::new(seed, flaw).run(until, true);
    let end = until.ms();
    for (series, samples) in &calm.stored {
        let none = BTreeMap::new();
        let found = rough.stored.get(series).unwrap_or(&none);
        let want: Vec<_> = samples.range(..end).collect();
        let got: Vec<_> = found.range(..end).collect();
        if want != got {
            let first = want.iter().zip(&got).find(|(a, b)| a != b);
            return Some(format!(
                "{series}: {} samples, got {}, first difference {first:?}",
                want.len(),
                got.len()
            ));
        }
    }
    let extra = rough.stored.keys().find(|k| !calm.stored.contains_key(*k));
    if let Some(extra) = extra {
        let samples = rough.stored[extra].range(..end).count();
        if samples > 0 {
            return Some(format!("{extra} has {samples} samples too many"));
        }
    }
    flip(&calm, &rough, end)
}

/// Returns a notification that was not sent in the undisturbed run, or was sent too often.
fn flip(calm: &Sim, rough: &Sim, end: TimestampMs) -> Option<String> {
    let is_over = |heard: &&Heard| heard.2.is_some_and(|resolved| resolved.ms() < end);
    let mut want: Vec<&Heard> = calm.heard.iter().filter(is_over).collect();
    want.sort();
    want.dedup();
    for heard in rough.heard.iter().filter(is_over) {
        if !want.contains(&heard) {
            return Some(format!("heard {heard:?}, which is not so"));
        }
    }
    for heard in want {
        if !rough.heard.contains(heard) {
            return Some(format!("not heard of {heard:?}"));
        }
    }
    None
}

#[test]
fn group_that_is_killed_and_late_leaves_what_a_calm_one_leaves() {
    let mut kills = 0;
    for seed in 0..60 {
        if let Some(difference) = difference(seed, Flaw::None) {
            panic!("seed {seed}: {difference}");
        }
        let until = RuleInstant::from_seconds(1_700_000_000 + 1800);
        kills += Sim::new(seed, Flaw::None).run(until, true).kills;
    }
    assert!(kills > 200, "only {kills} kills");
}

/// Returns the first difference between an undisturbed run and one with kills and a disk that is
/// occasionally full.
fn difference_when_full(seed: u64, flaw: Flaw) -> Option<String> {
    let at = |second: i64| RuleInstant::from_seconds(1_700_000_000 + second);
    let calm = Sim::new(seed, Flaw::None).run(at(1800), false);
    let mut rough = Sim::new(seed, flaw).run(at(60), false);
    rough.fills = true;
    let mut rough = rough.run(at(1800), true);
    (rough.fills, rough.is_full) = (false, false);
    // Ranges that were recorded during a backfill are processed after it.
    for second in [1900, 1950] {
        rough = rough.run(at(second), false);
        while rough.making_up.is_some() {
            rough.make_up();
        }
    }
    let end = at(1800).ms();
    for (series, samples) in &calm.stored {
        let want = without_repeated_ends(samples, end);
        let none = BTreeMap::new();
        let got = without_repeated_ends(rough.stored.get(series).unwrap_or(&none), end);
        if want != got {
            let first = want.iter().zip(&got).find(|(a, b)| a != b);
            return Some(format!("{series}: first difference {first:?}"));
        }
    }
    flip(&calm, &rough, end)
}

/// Returns the samples before `end` without repeated stale markers.
fn without_repeated_ends(
    samples: &BTreeMap<TimestampMs, u64>,
    end: TimestampMs,
) -> Vec<(TimestampMs, u64)> {
    let mut kept: Vec<(TimestampMs, u64)> = Vec::new();
    for (time, bits) in samples.range(..end) {
        let is_end = |bits: u64| is_stale(f64::from_bits(bits));
        let has_ended = kept.last().is_none_or(|(_, bits)| is_end(*bits));
        if !(is_end(*bits) && has_ended) {
            kept.push((*time, *bits));
        }
    }
    kept
}

#[test]
fn group_whose_disk_is_full_and_that_is_killed_leaves_no_hole() {
    for seed in 0..60 {
        if let Some(difference) = difference_when_full(seed, Flaw::None) {
            panic!("seed {seed}: {difference}");
        }
    }
    for flaw in [Flaw::SavesUnstored, Flaw::ForgetsOwed] {
        let found = (0..60).find_map(|seed| difference_when_full(seed, flaw));
        assert!(found.is_some(), "{flaw:?} is not found");
    }
}

/// Returns the actions of a machine at `now`, without other groups to wait for.
fn wake(machine: &mut GroupMachine, now: RuleInstant) -> Vec<GroupAction> {
    let actions = machine.step(now, GroupEvent::Woke);
    match actions[..] {
        [GroupAction::Hold(instant)] => machine.step(now, GroupEvent::Cleared(instant)),
        _ => actions,
    }
}

#[test]
fn group_whose_interval_changes_keeps_its_alerts() {
    let at = |second: i64| RuleInstant::from_seconds(1_700_000_000 + second);
    let sim = Sim::new(3, Flaw::None).run(at(600), false);
    let active = |machine: &GroupMachine| {
        let alerts = machine.rules()[2].alerts.active();
        let since = alerts.map(|a| (a.labels.clone(), a.state, a.active_at, a.fired_at));
        since.collect::<Vec<_>>()
    };
    let want = active(&sim.machine);
    assert!(want.iter().any(|alert| alert.1 == AlertState::Firing));
    let group = Arc::new(RuleGroup {
        interval: INTERVAL * 3,
        ..(*sim.group).clone()
    });
    let last = sim.machine.last_evaluation().instant.unwrap();
    let settings = settings(Flaw::None);
    let mut changed = sim
        .machine
        .start_successor(group.clone(), settings, sim.now);
    let saved = sim.journal.find("f.yml", "g");
    let mut started = GroupMachine::start(group.clone(), settings, saved, sim.now);
    started.work = GroupActivity::Idle;
    // Instants that were not due under the longer interval are not missed under the shorter one.
    let shorter = Arc::new(RuleGroup {
        interval: INTERVAL / 10,
        ..(*sim.group).clone()
    });
    let now = last.after(INTERVAL / 2);
    let mut machine = sim.machine.start_successor(shorter, settings, now);
    let actions = wake(&mut machine, now);
    assert!(
        matches!(actions[..], [GroupAction::Wait(until)] if until > now),
        "{actions:?}"
    );
    for machine in [&mut changed, &mut started] {
        assert_eq!(active(machine), want);
        let next = group.instant_at(last).after(group.interval);
        let actions = wake(machine, next);
        let asked =
            |a: &GroupAction| matches!(a, GroupAction::Query { instant, .. } if *instant == next);
        assert!(actions.iter().any(asked), "{actions:?}");
    }
}

#[test]
fn group_whose_clock_is_set_back_keeps_its_alerts() {
    let until = RuleInstant::from_seconds(1_700_000_000 + 600);
    let mut sim = Sim::new(3, Flaw::None).run(until, false);
    let ages = |machine: &GroupMachine, now: RuleInstant| {
        let alerts = machine.rules()[2].alerts.active();
        let age = |moment: RuleInstant| now.since(moment);
        let known = alerts.map(|a| (a.labels.clone(), age(a.active_at), a.fired_at.map(age)));
        known.collect::<Vec<_>>()
    };
    let last = sim.machine.last_evaluation().instant.unwrap();
    let want = ages(&sim.machine, last.after(INTERVAL));
    assert!(want.iter().any(|alert| alert.2.is_some()));
    let now = last.before(Duration::from_secs(3600));
    wake(&mut sim.machine, now);
    let next = sim.group.instant_at(now).after(INTERVAL);
    let actions = wake(&mut sim.machine, next);
    let asked =
        |a: &GroupAction| matches!(a, GroupAction::Query { instant, .. } if *instant == next);
    assert!(actions.iter().any(asked), "{actions:?}");
    assert_eq!(ages(&sim.machine, next), want);
}

#[test]
fn group_with_a_flaw_is_found_out() {
    for flaw in [
        Flaw::Forgets,
        Flaw::SkipsMissed,
        Flaw::DoesNotWait,
        Flaw::DoesNotRecall,
        Flaw::SavesEarly,
    ] {
        let found = (0..60).find_map(|seed| difference(seed, flaw));
        assert!(found.is_some(), "{flaw:?} is not found");
    }
}

#[test]
fn group_of_a_calm_world_shows_alerts_that_fire_and_resolve() {
    let until = RuleInstant::from_seconds(1_700_000_000 + 1800);
    let sim = Sim::new(3, Flaw::None).run(until, false);
    let firing = |k: &&String| k.contains(ALERTS) && k.contains(AlertState::Firing.as_str());
    assert!(sim.stored.keys().any(|k| firing(&k)));
    assert!(sim.heard.iter().any(|(_, _, resolved)| resolved.is_some()));
    let is_end = |bits: &u64| is_stale(f64::from_bits(*bits));
    assert!(sim.stored.values().flat_map(BTreeMap::values).any(is_end));
}

#[test]
fn group_whose_store_cannot_write_goes_on_and_makes_up_for_it() {
    let at = |second: i64| RuleInstant::from_seconds(1_700_000_000 + second);
    let mut sim = Sim::new(3, Flaw::None).run(at(300), false);
    let before = sim.machine.last_evaluation().instant.unwrap();
    sim.is_full = true;
    let heard = sim.heard.len();
    let mut sim = sim.run(at(900), false);
    let last = sim.machine.last_evaluation().instant.unwrap();
    assert_eq!(sim.machine.rules()[0].last_error, "no room");
    assert!(sim.heard.len() > heard, "alerts are still sent");
    assert_eq!(sim.backfills, []);
    sim.is_full = false;
    let sim = sim.run(at(1000), false);
    let owed = BackfillRange {
        first: before.after(INTERVAL),
        last: last.after(INTERVAL),
    };
    assert_eq!(sim.backfills, [owed]);
    assert_eq!(sim.machine.rules()[0].last_error, "");
    let calm = Sim::new(3, Flaw::None).run(at(1000), false);
    let of_alerts = |sim: &Sim| {
        let mut stored = sim.stored.clone();
        stored.retain(|series, _| series.contains(ALERTS));
        stored
    };
    assert_eq!(of_alerts(&sim), of_alerts(&calm));
    assert!(sim.machine.waiting.oldest().is_none());
}
