//! Retention rules in a working store: reads of head, pages and blocks begin exactly at the cutoff
//! of each series, and merges remove the samples before it.

use super::*;
use crate::blocks::BlockEntry;
use crate::seeds::seeds;
use firn_model::env::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// Retention time of series without a rule.
const OTHERS_MS: i64 = 8 * HOUR;

const NAMES: [&str; 5] = ["dev_a", "dev_b", "other", "prod_a", "prod_b"];

fn rule(pattern: &str, keep_ms: i64) -> RetentionRule {
    RetentionRule {
        matchers: vec![Matcher::new("__name__", MatchOp::Regex, pattern.as_bytes()).unwrap()],
        keep_ms,
    }
}

/// A store with rules, and all samples that were appended to it.
struct RuledStore {
    sim: SimEnv,
    store: Option<Arc<Store>>,
    options: StoreOptions,
    dev_ms: i64,
    appended: BTreeMap<&'static str, BTreeSet<i64>>,
    newest: i64,
}

impl RuledStore {
    fn new(seed: u64, dev_ms: i64) -> Self {
        let rules = [
            rule("dev_.*", dev_ms),
            rule("prod_.*", 100 * HOUR),
            // Never the first rule that matches.
            rule("dev_a|prod_a", 1),
        ];
        let options = StoreOptions {
            late_window_ms: 100 * HOUR,
            retention_ms: OTHERS_MS,
            retention_rules: rules.into_iter().collect(),
            ..options()
        };
        let sim = sim::sim_env(seed);
        Self {
            store: Some(open(&sim, options.clone())),
            sim,
            options,
            dev_ms,
            appended: NAMES.map(|name| (name, BTreeSet::new())).into(),
            newest: 0,
        }
    }

    fn append(&mut self, name: &'static str, time: i64) {
        append(self.store(), &batch(&[(name, &[(time, 0.0)])]), ALWAYS);
        self.appended.entry(name).or_default().insert(time);
        self.newest = self.newest.max(time);
    }

    /// Appends a sample of each series for each minute, and a few late ones.
    fn go_on(&mut self, minutes: i64, rng: &SimRng) {
        for minute in (self.newest / MINUTE + 1..).take(minutes as usize) {
            NAMES
                .iter()
                .for_each(|name| self.append(name, minute * MINUTE));
            if rng.one_in(10) {
                let late = rng.next_below(minute as u64) as i64 * MINUTE + 1;
                self.append(NAMES[rng.next_below(5) as usize], late);
            }
            self.store().tick();
        }
        (0..300).for_each(|_| self.store().tick());
    }

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().expect("an open store")
    }

    fn restart(&mut self) {
        self.store().close().unwrap();
        self.store = None;
        self.store = Some(open(&self.sim, self.options.clone()));
    }

    fn cutoff(&self, name: &str) -> i64 {
        let keep = match name.split_once('_') {
            Some(("dev", _)) => self.dev_ms,
            Some(("prod", _)) => 100 * HOUR,
            _ => OTHERS_MS,
        };
        self.newest - keep
    }

    /// Returns the samples that a read of `range` must return.
    fn kept(&self, range: TimeRange) -> Vec<(String, Vec<(i64, f64)>)> {
        let series = self.appended.iter().map(|(name, times)| {
            let kept = times.range(range.min.max(self.cutoff(name))..);
            let kept = kept.take_while(|time| **time <= range.max);
            (name.to_string(), kept.map(|time| (*time, 0.0)).collect())
        });
        series.collect()
    }

    #[track_caller]
    fn check(&self, range: TimeRange, note: &str) {
        let mut found = contents(self.store(), range);
        found.retain(|(_, samples)| !samples.is_empty());
        let mut wanted = self.kept(range);
        wanted.retain(|(_, samples)| !samples.is_empty());
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, wanted, "{note}: {range:?}");
    }

    /// Checks the series that listings return for a range from `min` on.
    #[track_caller]
    fn check_listings(&self, min: i64, note: &str) {
        let range = TimeRange::new(min, i64::MAX);
        let request = SelectRequest {
            tenant: &TenantId::anonymous(),
            matchers: &[],
            range,
            newest_only: true,
            cancel: &CancelToken::new(),
            budget: &Budget::new("query", usize::MAX),
            series: &SeriesLimit::unlimited(),
            span: None,
        };
        let expected = self.kept(range).into_iter();
        let expected = expected.filter(|(_, samples)| !samples.is_empty());
        let expected: Vec<String> = expected.map(|(name, _)| name).collect();
        let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
        let values = self.store().label_values("__name__", request).unwrap();
        let values: Vec<String> = values.into_iter().map(text).collect();
        assert_eq!(values, expected, "{note}: values from {min} on");
        let selection = self.store().select_labels(request).unwrap();
        let names = (0..selection.len()).map(|series| {
            let labels = selection.labels(series);
            text(labels.get("__name__").to_vec())
        });
        let names: BTreeSet<String> = names.collect();
        assert_eq!(names.len(), selection.len(), "{note}: a series twice");
        let names: Vec<String> = names.into_iter().collect();
        assert_eq!(names, expected, "{note}: series from {min} on");
    }

    fn blocks(&self) -> Vec<BlockEntry> {
        self.store().parts.blocks.list().blocks
    }
}

#[test]
fn reads_return_exactly_the_samples_that_the_rules_keep() {
    for seed in seeds(6) {
        let rng = SimRng::new(seed);
        let dev_ms = [10 * MINUTE, 90 * MINUTE, 5 * HOUR][rng.next_below(3) as usize];
        let mut ruled = RuledStore::new(seed, dev_ms);
        for step in 0..8 {
            let note = format!("seed {seed}, step {step}");
            ruled.go_on(1 + rng.next_below(150) as i64, &rng);
            if rng.one_in(3) {
                ruled.restart();
            }
            let newest = ruled.newest as u64;
            for _ in 0..20 {
                let min = rng.next_below(newest) as i64;
                let max = min + rng.next_below(newest) as i64;
                ruled.check(TimeRange::new(min, max), &note);
            }
            for name in NAMES {
                let cutoff = ruled.cutoff(name);
                ruled.check(TimeRange::new(cutoff - 1, cutoff - 1), &note);
                ruled.check(TimeRange::new(cutoff, cutoff), &note);
            }
            ruled.check(TimeRange::ALL, &note);
            let latest = ruled.cutoff("dev_a");
            ruled.check_listings(0, &note);
            ruled.check_listings(rng.next_below(latest.max(1) as u64) as i64, &note);
        }
    }
}

#[test]
fn listings_omit_series_whose_samples_are_all_expired() {
    let rng = SimRng::new(1);
    let mut ruled = RuledStore::new(1, HOUR);
    ruled.go_on(5, &rng);
    for minute in 6..300 {
        ruled.append("prod_a", minute * MINUTE);
        ruled.store().tick();
        if minute % 20 == 0 {
            ruled.check_listings(0, "one series goes on");
        }
    }
    (0..300).for_each(|_| ruled.store().tick());
    ruled.check_listings(0, "in blocks");
    ruled.restart();
    ruled.check_listings(0, "after a restart");
}

#[test]
fn expired_samples_leave_the_blocks_without_further_merges() {
    let rng = SimRng::new(1);
    let mut ruled = RuledStore::new(1, HOUR);
    ruled.go_on(24 * 60, &rng);
    let expired = ruled.newest - HOUR;
    for block in ruled.blocks() {
        let has_dev = block.series > 3;
        assert_eq!(has_dev, block.range.max >= expired, "{block:?}");
    }
    // Only the rules keep blocks of this age.
    assert!(
        ruled
            .blocks()
            .iter()
            .any(|b| b.range.max < ruled.newest - OTHERS_MS)
    );
    ruled.check(TimeRange::ALL, "after rewrites");
}

#[test]
fn new_rules_apply_to_stored_samples_at_once() {
    let rng = SimRng::new(1);
    let mut ruled = RuledStore::new(1, 5 * HOUR);
    ruled.go_on(7 * 60, &rng);
    ruled.check(TimeRange::ALL, "five hours");
    ruled.dev_ms = HOUR;
    let rules = [rule("dev_.*", HOUR), rule("prod_.*", 100 * HOUR)];
    ruled.store().set_retention(RetentionLimits {
        rules: rules.into_iter().collect(),
        ..ruled.options.retention()
    });
    ruled.check(TimeRange::ALL, "one hour");
    (0..300).for_each(|_| ruled.store().tick());
    ruled.check(TimeRange::ALL, "one hour, rewritten");
}
