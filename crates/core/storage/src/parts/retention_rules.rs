//! Retention rules: how long the store keeps the samples of matching series.
//!
//! The first rule that matches a series determines its retention time; series that no rule matches
//! have the retention time of the store. Invariant: a cutoff depends only on the rules and the
//! newest sample, so reads, merges and reports at the same moment keep the same samples.

use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::LabelColumn;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use firn_model::matcher::Matcher;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::Selection;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The retention time of the series that match all matchers of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionRule {
    /// The matchers of the selector.
    pub matchers: Vec<Matcher>,
    /// Samples older than the newest one of the store by more than this many milliseconds are not
    /// kept.
    pub keep_ms: i64,
}

impl RetentionRule {
    fn matches(&self, labels: LabelsRef<'_>) -> bool {
        let mut matchers = self.matchers.iter();
        matchers.all(|matcher| matcher.matches(labels.get(matcher.name())))
    }
}

/// The retention rules of a store in order of precedence. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionRules(Arc<[RetentionRule]>);

impl Default for RetentionRules {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl FromIterator<RetentionRule> for RetentionRules {
    fn from_iter<I: IntoIterator<Item = RetentionRule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl RetentionRules {
    /// Returns the rules in order of precedence.
    pub fn as_slice(&self) -> &[RetentionRule] {
        &self.0
    }

    /// Returns the number of the first rule that matches a series, or the number of rules if none
    /// does.
    pub fn find(&self, labels: LabelsRef<'_>) -> usize {
        let found = self.0.iter().position(|rule| rule.matches(labels));
        found.unwrap_or(self.0.len())
    }

    /// Returns the longest of the retention times of all rules and `otherwise`, in milliseconds.
    pub(crate) fn longest_ms(&self, otherwise: i64) -> i64 {
        let kept = self.0.iter().map(|rule| rule.keep_ms);
        kept.fold(otherwise, i64::max)
    }

    /// Returns the shortest of the retention times of all rules and `otherwise`, in milliseconds.
    pub(crate) fn shortest_ms(&self, otherwise: i64) -> i64 {
        let kept = self.0.iter().map(|rule| rule.keep_ms);
        kept.fold(otherwise, i64::min)
    }

    /// Returns the first time that is kept for each rule, and for all other series, if `newest` is
    /// the newest sample and `otherwise_ms` the retention time of the store. Returns `None` without
    /// rules.
    pub(crate) fn cutoffs(
        &self,
        newest: TimestampMs,
        otherwise_ms: i64,
    ) -> Option<RetentionCutoffs> {
        if self.0.is_empty() {
            return None;
        }
        let kept = self.0.iter().map(|rule| rule.keep_ms);
        let kept = kept.chain([otherwise_ms]);
        Some(RetentionCutoffs {
            times: kept.map(|kept| newest.saturating_sub(kept)).collect(),
            rules: self.clone(),
        })
    }

    /// Returns the number of the first rule that matches each series of a selection. Reserves the
    /// memory in `memory`.
    fn classify(
        &self,
        selection: &dyn Selection,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<usize>, Error> {
        memory.grow(selection.len() * size_of::<usize>())?;
        let mut found = vec![self.0.len(); selection.len()];
        let mut columns: BTreeMap<&str, LabelColumn> = BTreeMap::new();
        for matcher in self.0.iter().flat_map(|rule| &rule.matchers) {
            if !columns.contains_key(matcher.name()) {
                let column = selection.label_column(matcher.name(), cancel, memory)?;
                columns.insert(matcher.name(), column);
            }
        }
        // In reverse order, so that the first rule takes precedence.
        for (number, rule) in self.0.iter().enumerate().rev() {
            cancel.check()?;
            let mut accepted = Vec::with_capacity(rule.matchers.len());
            for matcher in &rule.matchers {
                let column = &columns[matcher.name()];
                matcher.prepare()?;
                let values = column.values.iter();
                let values: Vec<bool> = values.map(|value| matcher.matches(value)).collect();
                matcher.prepare()?;
                accepted.push((&column.ids, values));
            }
            for (series, found) in found.iter_mut().enumerate() {
                let mut matchers = accepted.iter();
                if matchers.all(|(ids, values)| values[ids[series] as usize]) {
                    *found = number;
                }
            }
        }
        Ok(found)
    }
}

/// Series whose samples are read from the same time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetentionGroup {
    /// The first time that is read.
    pub(crate) start: TimestampMs,
    /// Numbers of the rules of the group; the number of rules denotes all other series.
    rules: Vec<usize>,
}

/// The first time that is kept for the series of each rule, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct RetentionCutoffs {
    rules: RetentionRules,
    /// One per rule, and that of all other series.
    times: Vec<TimestampMs>,
}

impl RetentionCutoffs {
    /// Returns the first time that is kept for a series.
    pub(crate) fn of_series(&self, labels: LabelsRef<'_>) -> TimestampMs {
        self.times[self.rules.find(labels)]
    }

    /// Returns the latest cutoff: samples from then on are kept for all series.
    pub(crate) fn latest(&self) -> TimestampMs {
        self.times.iter().copied().fold(TimestampMs::MIN, i64::max)
    }

    /// Returns the rules that keep no sample at or before `time`, with their matchers. The last
    /// number, which denotes all other series, has no matchers.
    pub(crate) fn rules_without(
        &self,
        time: TimestampMs,
    ) -> impl Iterator<Item = (usize, &[Matcher])> {
        let times = self.times.iter().enumerate();
        times
            .filter(move |(_, cutoff)| time < **cutoff)
            .map(|(number, _)| {
                let rule = self.rules.0.get(number);
                (number, rule.map_or(&[][..], |rule| &rule.matchers))
            })
    }

    /// Returns the rules of these cutoffs.
    pub(crate) fn rules(&self) -> &RetentionRules {
        &self.rules
    }

    /// Divides the rules by the time from which their series are read in `range`, in ascending
    /// order of these times. Rules without a sample in the range are omitted. Returns `None` if the
    /// rules remove nothing from the range.
    pub(crate) fn group_by_start(&self, range: TimeRange) -> Option<Vec<RetentionGroup>> {
        if self.latest() <= range.min {
            return None;
        }
        let mut groups: BTreeMap<TimestampMs, Vec<usize>> = BTreeMap::new();
        for (number, cutoff) in self.times.iter().enumerate() {
            let start = range.min.max(*cutoff);
            groups.entry(start).or_default().push(number);
        }
        let groups = groups.into_iter();
        let groups = groups.filter(|(start, _)| *start <= range.max);
        let groups = groups.map(|(start, rules)| RetentionGroup { start, rules });
        Some(groups.collect())
    }

    /// Returns the indexes of the series of a selection that belong to `group`.
    pub(crate) fn find_members(
        &self,
        group: &RetentionGroup,
        selection: &dyn Selection,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<u32>, Error> {
        let found = self.rules.classify(selection, cancel, memory)?;
        let members = found.iter().enumerate();
        let members = members.filter(|(_, rule)| group.rules.contains(rule));
        Ok(members.map(|(series, _)| series as u32).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::labels::Labels;
    use firn_model::matcher::MatchOp;

    fn rules(list: &[(&str, &str, i64)]) -> RetentionRules {
        let rule = |(name, value, keep_ms): &(&str, &str, i64)| RetentionRule {
            matchers: vec![Matcher::new(name, MatchOp::Regex, value.as_bytes()).unwrap()],
            keep_ms: *keep_ms,
        };
        list.iter().map(rule).collect()
    }

    #[test]
    fn first_matching_rule_determines_the_cutoff() {
        let rules = rules(&[("env", "dev|test", 10), ("env", "dev|prod", 500)]);
        let cutoffs = rules.cutoffs(1_000, 100).unwrap();
        let check = |env: &str, cutoff: i64| {
            let labels = Labels::from_pairs([("env", env)]);
            assert_eq!(cutoffs.of_series(labels.as_ref()), cutoff, "{env:?}");
        };
        check("dev", 990);
        check("test", 990);
        check("prod", 500);
        check("", 900);
        assert_eq!(cutoffs.latest(), 990);
        assert_eq!(rules.longest_ms(100), 500);
        assert_eq!(rules.shortest_ms(100), 10);
    }

    #[test]
    fn rules_are_grouped_by_the_start_of_their_series_in_a_range() {
        let rules = rules(&[("env", "dev", 10), ("env", "prod", 500)]);
        let cutoffs = rules.cutoffs(1_000, 100).unwrap();
        let group = |start, rules: &[usize]| RetentionGroup {
            start,
            rules: rules.to_vec(),
        };
        let all = [group(500, &[1]), group(900, &[2]), group(990, &[0])];
        let check = |min, max, groups: Option<&[RetentionGroup]>| {
            let found = cutoffs.group_by_start(TimeRange::new(min, max));
            assert_eq!(found.as_deref(), groups, "{min} to {max}");
        };
        check(0, 2_000, Some(&all));
        check(500, 989, Some(&all[..2]));
        check(950, 990, Some(&[group(950, &[1, 2]), group(990, &[0])]));
        check(0, 499, Some(&[]));
        check(990, 990, None);
    }

    #[test]
    fn store_without_rules_has_no_cutoffs() {
        assert!(RetentionRules::default().cutoffs(1_000, 100).is_none());
    }
}
