//! The order in which rule groups catch up on missed evaluations.
//!
//! If a group were evaluated before the groups whose series it reads have caught up, its samples
//! would be wrong permanently. It therefore waits until those groups have passed the instants that
//! it reads, even if it is not behind itself. In normal operation no group waits.
//!
//! Invariant: among the groups that are behind, the one with the oldest next instant never waits.

use crate::dependencies::find_group_sources;
use crate::group::RuleGroup;
use crate::instant::RuleInstant;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Progress of all groups of a server, and the groups that each one reads. Shared by the machines
/// of all groups; decides which of them may proceed.
#[derive(Debug, Default)]
pub struct GroupOrder {
    members: HashMap<String, GroupOrderMember>,
}

#[derive(Debug, Default)]
struct GroupOrderMember {
    /// Keys of the groups whose series this group reads, without the group itself.
    sources: Vec<String>,
    /// Progress of the group; `None` until it has started.
    reached: Option<GroupProgress>,
}

/// Progress of a group, reported by its machine after each step through
/// [`GroupOrder::set_progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupProgress {
    /// Oldest instant that is not fully evaluated.
    pub instant: RuleInstant,
    /// Time until which other groups wait while this one catches up; `None` if they do not wait.
    pub waited_for_until: Option<RuleInstant>,
    /// Oldest instant whose recorded samples the store was unable to write.
    pub owed: Option<RuleInstant>,
    /// Query offset of the group: the time between its instants and the timestamps that it reads
    /// and records.
    pub query_offset: Duration,
}

impl GroupOrder {
    /// Sets the current groups after a start or reload. Each group must report its progress with
    /// [`GroupOrder::set_progress`].
    pub fn set_groups(&mut self, groups: &[Arc<RuleGroup>]) {
        let sources = find_group_sources(groups);
        let mut before = std::mem::take(&mut self.members);
        for (group, sources) in groups.iter().zip(sources) {
            let key = group.key();
            let reached = before.remove(&key).and_then(|member| member.reached);
            let sources = sources.into_iter().map(|i| groups[i].key()).collect();
            self.members
                .insert(key, GroupOrderMember { sources, reached });
        }
    }

    /// Sets the progress of a group. Returns whether it changed, so that waiting groups must be
    /// checked.
    pub fn set_progress(&mut self, key: &str, reached: GroupProgress) -> bool {
        let Some(member) = self.members.get_mut(key) else {
            return false;
        };
        member.reached.replace(reached) != Some(reached)
    }

    /// Returns whether the groups that `key` reads have recorded all samples before `instant`, or
    /// no longer hold up other groups at `now`.
    pub fn are_sources_complete(&self, key: &str, instant: RuleInstant, now: RuleInstant) -> bool {
        self.all_sources(key, |source, own| {
            let is_waited_for = source.waited_for_until.is_some_and(|until| now <= until);
            !is_waited_for || source.is_complete_for(source.instant, instant, own)
        })
    }

    /// Returns whether the groups that `key` reads have also stored the samples before `instant`
    /// that the store was unable to write earlier.
    pub fn are_sources_backfilled(&self, key: &str, instant: RuleInstant) -> bool {
        self.all_sources(key, |source, own| {
            let owed = source.owed.unwrap_or(source.instant);
            source.is_complete_for(owed, instant, own)
        })
    }

    /// Returns whether all groups that `key` reads have started and satisfy the condition. False if
    /// the group itself has not started.
    fn all_sources(&self, key: &str, is_so: impl Fn(GroupProgress, GroupProgress) -> bool) -> bool {
        let Some(member) = self.members.get(key) else {
            return true;
        };
        let sources = member.sources.iter().filter_map(|s| self.members.get(s));
        let mut sources = sources.map(|source| source.reached);
        member.reached.is_some_and(|own| {
            sources.all(|source| source.is_some_and(|source| is_so(source, own)))
        })
    }
}

impl GroupProgress {
    /// Returns whether samples that `reader` reads at `instant` are complete once this group has
    /// reached `at`. A reader with a greater query offset may run earlier.
    fn is_complete_for(self, at: RuleInstant, instant: RuleInstant, reader: Self) -> bool {
        match reader.query_offset.checked_sub(self.query_offset) {
            None | Some(Duration::ZERO) => instant <= at,
            Some(more) => instant < at.after(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{RuleFileOptions, parse};
    use firn_promql::Features;

    /// Time, in seconds, until which other groups wait for each group of the tests.
    const BEHIND_UNTIL: i64 = 300;

    /// Creates groups `a`, `b`, … with rules written `name = expr`, alerting rules with the prefix
    /// `!`.
    fn groups(groups: &[&[&str]]) -> Vec<Arc<RuleGroup>> {
        let mut text = "groups:\n".to_owned();
        for (name, rules) in ('a'..).zip(groups) {
            text += &format!("- name: {name}\n  rules:\n");
            for rule in *rules {
                let (name, expr) = rule.split_once(" = ").expect("a rule has a name");
                text += &match name.strip_prefix('!') {
                    Some(alert) => format!("  - {{alert: {alert}, expr: '{expr}'}}\n"),
                    None => format!("  - {{record: '{name}', expr: '{expr}'}}\n"),
                };
            }
        }
        let file = parse(&text, RuleFileOptions::default()).expect("the rules are sound");
        let made = RuleGroup::from_file("f", &file, Duration::from_secs(1), Features::default());
        made.unwrap().into_iter().map(Arc::new).collect()
    }

    /// Creates an order of such groups with their progress in seconds: `3`, or `3-2` with a query
    /// offset of two seconds.
    fn order(rules: &[&[&str]], reached: &[&str]) -> GroupOrder {
        let groups = groups(rules);
        let mut order = GroupOrder::default();
        order.set_groups(&groups);
        for (group, reached) in groups.iter().zip(reached) {
            let (instant, offset) = reached.split_once('-').unwrap_or((reached, "0"));
            let reached = GroupProgress {
                instant: RuleInstant::from_seconds(instant.parse().expect("a number")),
                waited_for_until: Some(RuleInstant::from_seconds(BEHIND_UNTIL)),
                owed: None,
                query_offset: Duration::from_secs(offset.parse().expect("a number")),
            };
            assert!(order.set_progress(&group.key(), reached));
            assert!(!order.set_progress(&group.key(), reached));
        }
        order
    }

    /// Returns the last instant in seconds, at most ten, that a group may evaluate at `now`.
    fn last_at(order: &GroupOrder, group: char, now: i64) -> Option<i64> {
        let (key, at) = (format!("f;{group}"), RuleInstant::from_seconds);
        let is_clear = |second: &i64| order.are_sources_complete(&key, at(*second), at(now));
        (0..=10).rev().find(is_clear)
    }

    /// Returns the same while other groups wait.
    fn last(order: &GroupOrder, group: char) -> Option<i64> {
        last_at(order, group, BEHIND_UNTIL)
    }

    #[test]
    fn group_waits_for_those_that_it_reads() {
        let check = |groups: &[&[&str]], reached: &[&str], want: &[Option<i64>]| {
            let order = order(groups, reached);
            let found: Vec<_> = ('a'..).take(want.len()).map(|g| last(&order, g)).collect();
            assert_eq!(found, want, "{groups:?} {reached:?}");
        };
        let all = Some(10);
        check(&[&["x = y"], &["z = y"]], &["3", "0"], &[all, all]);
        check(&[&["x = y"], &["z = x"]], &["3", "0"], &[all, Some(3)]);
        let chain: &[&[&str]] = &[&["x = y"], &["q = 1", "z = rate(x[5m])"], &["w = z"]];
        check(chain, &["3", "2", "0"], &[all, Some(3), Some(2)]);
        let circle: &[&[&str]] = &[&["x = z"], &["z = x"]];
        check(circle, &["3", "2"], &[Some(2), Some(3)]);
        let patterns: &[&[&str]] = &[
            &["x1 = y"],
            &["z = {__name__=~\"x.\"}"],
            &["w = {job=\"j\"}"],
        ];
        check(patterns, &["3", "4", "0"], &[all, Some(3), Some(3)]);
        let alerts: &[&[&str]] = &[
            &["!A = y"],
            &["z = ALERTS{alertname=\"A\"}"],
            &["w = ALERTS{alertname=\"B\"}"],
        ];
        check(alerts, &["3", "0", "0"], &[all, Some(3), all]);
        // A group that has not started may have to catch up on everything.
        check(&[&["z = x"], &["x = y"]], &["3"], &[None]);
    }

    #[test]
    fn group_that_looks_further_behind_waits_for_less() {
        let groups: &[&[&str]] = &[&["x = y"], &["z = x"]];
        assert_eq!(last(&order(groups, &["3-2", "0-2"]), 'b'), Some(3));
        assert_eq!(last(&order(groups, &["3", "0-2"]), 'b'), Some(4));
        assert_eq!(last(&order(groups, &["3-2", "0"]), 'b'), Some(3));
    }

    #[test]
    fn what_could_not_be_stored_is_made_in_order_and_holds_up_nothing_else() {
        let mut order = order(&[&["x = y"], &["z = x"]], &["9", "9"]);
        let owing = GroupProgress {
            instant: RuleInstant::from_seconds(9),
            waited_for_until: None,
            owed: Some(RuleInstant::from_seconds(4)),
            query_offset: Duration::ZERO,
        };
        assert!(order.set_progress("f;a", owing));
        assert_eq!(last(&order, 'b'), Some(10));
        let is_made_up =
            |second| order.are_sources_backfilled("f;b", RuleInstant::from_seconds(second));
        assert!(is_made_up(4) && !is_made_up(5));
        assert!(order.are_sources_backfilled("f;a", RuleInstant::from_seconds(9)));
    }

    #[test]
    fn group_is_waited_for_as_long_as_it_says() {
        let order = order(&[&["x = y"], &["z = x"]], &["3", "0"]);
        assert_eq!(last_at(&order, 'b', BEHIND_UNTIL), Some(3));
        assert_eq!(last_at(&order, 'b', BEHIND_UNTIL + 1), Some(10));
    }

    #[test]
    fn group_that_is_gone_holds_up_no_other() {
        let mut order = order(&[&["z = x"], &["x = y"]], &["0", "3"]);
        assert_eq!(last(&order, 'a'), Some(3));
        order.set_groups(&groups(&[&["z = x"]]));
        assert_eq!(last(&order, 'a'), Some(10));
    }
}
