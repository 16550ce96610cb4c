//! Dependencies between rules of one group, which decide the rules that may run concurrently, and
//! between groups, by the series that they read and record.
//!
//! A rule that reads the output of an earlier rule waits until that output is stored. A rule that
//! writes series which an earlier rule reads or writes also waits for it, because the earlier rule
//! must read the old samples and store its own first. The result is therefore the same as with
//! sequential evaluation, upstream's default. Upstream's `concurrent-rule-eval` ignores the second
//! kind.
//!
//! The series that a rule reads are derived from the metric names in its selectors. A selector
//! without a name, the function `info`, and a template that runs a query count as reading all
//! series.

use crate::alert::{ALERT_NAME, ALERTS, ALERTS_FOR_STATE};
use crate::group::RuleGroup;
use crate::rule::Rule;
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::{MatchOp, Matcher};
use firn_promql::ast::{Expr, ExprKind};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Progress of an earlier rule for which a dependent rule waits. Reading its series requires stored
/// samples; writing series that it reads only requires the end of its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyMilestone {
    /// The query of the earlier rule has returned.
    Answered,
    /// The samples of the earlier rule are visible to queries.
    Stored,
}

/// A dependency of a rule on an earlier rule of the same group. Computed once when the group is
/// loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleDependency {
    /// Index of the earlier rule in the group.
    pub rule: usize,
    /// Progress that the earlier rule must have reached.
    pub until: DependencyMilestone,
}

/// Returns the dependencies of each rule in `rules`, in the order of the rules.
pub fn compute_dependencies(rules: &[Rule]) -> Vec<Vec<RuleDependency>> {
    let reads: Vec<RuleReads> = rules.iter().map(RuleReads::from_rule).collect();
    let of_rule = |later: usize| {
        let earlier = 0..later;
        let until = |earlier: usize| {
            let (before, after) = (&rules[earlier], &rules[later]);
            if reads[later].may_read_from(before) || may_write_same_series(before, after) {
                Some(DependencyMilestone::Stored)
            } else if reads[earlier].may_read_from(after) {
                Some(DependencyMilestone::Answered)
            } else {
                None
            }
        };
        earlier
            .filter_map(|rule| {
                Some(RuleDependency {
                    rule,
                    until: until(rule)?,
                })
            })
            .collect()
    };
    (0..rules.len()).map(of_rule).collect()
}

/// Returns the indices of the other groups whose recorded series a group reads, for each group in
/// `groups`.
pub fn find_group_sources(groups: &[Arc<RuleGroup>]) -> Vec<BTreeSet<usize>> {
    let mut makers: HashMap<&str, Vec<(usize, &Rule)>> = HashMap::new();
    for (i, group) in groups.iter().enumerate() {
        for rule in &group.rules {
            for name in recorded_names(rule) {
                makers.entry(name).or_default().push((i, rule));
            }
        }
    }
    let of_selector = |matchers: &[Matcher], found: &mut BTreeSet<usize>| {
        let is_name = |m: &&Matcher| m.name() == METRIC_NAME && m.op() == MatchOp::Equal;
        let name = matchers.iter().find(is_name).map(Matcher::value);
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let all = makers.iter().filter(|_| name.is_none());
        let one = name.and_then(|name| makers.get_key_value(name));
        for (name, rules) in all.chain(one) {
            let made = rules
                .iter()
                .filter(|(_, rule)| may_match_series(matchers, name, rule));
            found.extend(made.map(|(group, _)| *group));
        }
    };
    let of_group = |(i, group): (usize, &Arc<RuleGroup>)| {
        let mut found = BTreeSet::new();
        for reads in group.rules.iter().map(RuleReads::from_rule) {
            match reads {
                RuleReads::Everything => found.extend(0..groups.len()),
                RuleReads::Some(selectors) => {
                    selectors.iter().for_each(|m| of_selector(m, &mut found));
                }
            }
        }
        found.remove(&i);
        found
    };
    groups.iter().enumerate().map(of_group).collect()
}

/// Returns the metric names of the series that a rule writes.
fn recorded_names(rule: &Rule) -> Vec<&str> {
    match rule.alert_settings() {
        Some(_) => vec![ALERTS, ALERTS_FOR_STATE],
        None => vec![&rule.name],
    }
}

/// Returns whether a series called `name` that `rule` writes may match `matchers`. The matchers are
/// restricted to those on the metric name and on `alertname`.
fn may_match_series(matchers: &[Matcher], name: &str, rule: &Rule) -> bool {
    matchers.iter().all(|m| match m.name() {
        METRIC_NAME => m.matches(name.as_bytes()),
        // A recording rule takes `alertname` from its result, so its value cannot be predicted.
        _ => rule.alert_settings().is_none() || m.matches(rule.name.as_bytes()),
    })
}

/// Returns whether two rules may write the same series. Only names and kinds are compared, because
/// labels depend on the result.
fn may_write_same_series(a: &Rule, b: &Rule) -> bool {
    let is_alerting = |rule: &Rule| rule.alert_settings().is_some();
    a.name == b.name && is_alerting(a) == is_alerting(b) || has_alerts_name(a, b)
}

/// Returns whether one of the rules records a series with the name of the synthetic alert series,
/// and the other one is an alerting rule.
fn has_alerts_name(a: &Rule, b: &Rule) -> bool {
    let records = |a: &Rule, b: &Rule| {
        a.alert_settings().is_none() && b.alert_settings().is_some() && is_about_alerts(&a.name)
    };
    records(a, b) || records(b, a)
}

fn is_about_alerts(name: &str) -> bool {
    name == ALERTS || name == ALERTS_FOR_STATE
}

/// The series that a rule reads, derived from the selectors of its expression and from the queries
/// in its templates.
enum RuleReads {
    Everything,
    /// Series that match at least one of these sets of matchers, restricted to the metric name and
    /// `alertname`.
    Some(Vec<Vec<Matcher>>),
}

impl RuleReads {
    fn from_rule(rule: &Rule) -> Self {
        let asks = |text: &str| text.contains("query") || text.contains("template");
        if rule.templates().any(asks) {
            return RuleReads::Everything;
        }
        let mut selectors = Vec::new();
        let mut is_everything = false;
        rule.expr.visit(&mut |node: &Expr| {
            let vector = match &node.kind {
                ExprKind::Vector(vector) => vector,
                ExprKind::Matrix(matrix) => &matrix.vector,
                ExprKind::Call(call) => {
                    is_everything |= call.function.name == "info";
                    return;
                }
                _ => return,
            };
            let is_judged = |m: &&Matcher| matches!(m.name(), METRIC_NAME | ALERT_NAME);
            is_everything |= !vector.matchers.iter().any(|m| m.name() == METRIC_NAME);
            selectors.push(vector.matchers.iter().filter(is_judged).cloned().collect());
        });
        if is_everything {
            RuleReads::Everything
        } else {
            RuleReads::Some(selectors)
        }
    }

    /// Returns whether a series that `rule` writes may be among those that are read.
    fn may_read_from(&self, rule: &Rule) -> bool {
        let RuleReads::Some(selectors) = self else {
            return true;
        };
        let names = recorded_names(rule);
        let is_found =
            |matchers: &Vec<Matcher>| names.iter().any(|n| may_match_series(matchers, n, rule));
        selectors.iter().any(is_found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{RuleDefinition, Texts};
    use firn_promql::Features;

    /// Checks the dependencies of `rules`. A rule is written `name = expr`, an alerting rule with
    /// the prefix `!`. A dependency on stored samples is printed as `a->b`, one on the query result
    /// as `a->b?`.
    fn check(rules: &[&str], want: &str) {
        let rule = |text: &&str| {
            let (name, expr) = text.split_once(" = ").expect("a rule has a name");
            let mut settings = RuleDefinition {
                expr: expr.into(),
                ..RuleDefinition::default()
            };
            match name.strip_prefix('!') {
                Some(alert) => settings.alert = alert.into(),
                None => settings.record = name.into(),
            }
            Rule::new(&settings, &Texts::new(), Features::ALL).expect("a rule of a test parses")
        };
        let rules: Vec<Rule> = rules.iter().map(rule).collect();
        let mut shown = Vec::new();
        for (i, dependencies) in compute_dependencies(&rules).iter().enumerate() {
            for dependency in dependencies {
                let mark = match dependency.until {
                    DependencyMilestone::Answered => "?",
                    DependencyMilestone::Stored => "",
                };
                shown.push(format!("{i}->{}{mark}", dependency.rule));
            }
        }
        assert_eq!(shown.join(" "), want);
    }

    #[test]
    fn dependencies_follow_the_names_that_are_read() {
        check(&["a = x", "b = y", "c = z"], "");
        check(&["a = x", "b = a + y", "c = rate(b[5m])"], "1->0 2->1");
        check(&["a = x", "b = {__name__=~\"a|q\"}"], "1->0");
        check(&["a = x", "b = {__name__=~\"q.*\", __name__!=\"a\"}"], "");
        check(&["a = b", "b = x"], "1->0?");
        check(&["a = x", "a = y"], "1->0");
        check(&["a = a", "b = x"], "");
    }

    #[test]
    fn dependencies_of_selectors_without_a_name_are_on_all() {
        check(&["a = x", "b = {job=\"j\"}", "c = y"], "1->0 2->1?");
        check(&["a = x", "b = info(y)"], "1->0");
    }

    #[test]
    fn dependencies_on_alerts_follow_their_names() {
        check(&["!A = x", "!B = y", "c = ALERTS{alertname=\"A\"}"], "2->0");
        check(&["!A = x", "c = ALERTS_FOR_STATE"], "1->0");
        check(&["c = count(ALERTS)", "!A = x"], "1->0?");
        check(&["ALERTS = x", "!A = y"], "1->0");
        check(&["A = x", "!A = y", "b = A"], "2->0");
    }
}
