//! Queries that have ended: a list of the newest ones, and totals by tenant and
//! expression.
//!
//! ```text
//! end of a query -> ring of the newest queries              (query_history)
//!                `> totals of the current period of time    (top_queries, with the period before)
//! ```
//!
//! Invariant: memory is bounded by the constants of this file: about 16 MiB if all expressions have
//! the length of a record, and usually less than 2 MiB.

use super::run::QueryRun;
use firn_model::sample::TimestampMs;
use firn_model::tenant::TenantId;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of queries in the list of the newest ones.
const ENDED_MAX: usize = 2_000;

/// Maximum number of expressions with totals per period. A new expression beyond it replaces the
/// one with the shortest total duration.
const TOTALS_MAX: usize = 1_000;

/// Length of a period. Totals cover the current period and the one before.
const PERIOD: Duration = Duration::from_secs(30 * 60);

/// A query that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndedQuery {
    /// Expression, truncated to the size of a record.
    pub(crate) expression: Arc<str>,
    pub(crate) tenant: TenantId,
    pub(crate) client: String,
    pub(crate) started: TimestampMs,
    pub(crate) duration: Duration,
}

/// Number and total duration of the queries with one expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryTotal {
    pub(crate) count: u64,
    pub(crate) duration: Duration,
}

impl QueryTotal {
    /// Returns the mean duration of a query.
    pub(crate) fn mean(&self) -> Duration {
        let nanos = self.duration.as_nanos() / u128::from(self.count.max(1));
        Duration::from_nanos(nanos as u64)
    }

    /// Adds the queries of `other`.
    pub(crate) fn add(&mut self, other: QueryTotal) {
        self.count += other.count;
        self.duration += other.duration;
    }
}

type QueryTotals = HashMap<(TenantId, Arc<str>), QueryTotal>;

/// The history of ended queries. Belongs to the registry.
#[derive(Debug, Default)]
pub(super) struct QueryHistory {
    ended: VecDeque<EndedQuery>,
    current: QueryTotals,
    before: QueryTotals,
    /// Start of the current period on the monotonic clock.
    period_start: Duration,
}

impl QueryHistory {
    /// Adds a query that ends at `now` on the monotonic clock. Queries without an expression, which
    /// do not concern series, are omitted.
    pub(super) fn add(&mut self, run: &QueryRun, now: Duration) {
        let question = &run.question;
        if question.expression.is_empty() {
            return;
        }
        self.push(
            now,
            EndedQuery {
                expression: question.expression.as_str().into(),
                tenant: question.tenant.clone(),
                client: question.client.clone(),
                started: run.started,
                duration: now.saturating_sub(run.begun),
            },
        );
    }

    fn push(&mut self, now: Duration, ended: EndedQuery) {
        self.start_period(now);
        let total = QueryTotal {
            count: 1,
            duration: ended.duration,
        };
        let key = (ended.tenant.clone(), ended.expression.clone());
        match self.current.get_mut(&key) {
            Some(known) => known.add(total),
            None => {
                if self.current.len() == TOTALS_MAX {
                    remove_shortest(&mut self.current);
                }
                self.current.insert(key, total);
            }
        }
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }

    fn start_period(&mut self, now: Duration) {
        let periods = now.saturating_sub(self.period_start).as_secs() / PERIOD.as_secs();
        if periods > 0 {
            self.before = mem::take(&mut self.current);
            self.period_start = now;
        }
        if periods > 1 {
            self.before.clear();
        }
    }

    /// Returns up to `limit` queries of matching tenants whose expression contains `text`, the
    /// newest first.
    pub(super) fn find(
        &self,
        text: &str,
        limit: usize,
        is_of: impl Fn(&TenantId) -> bool,
    ) -> Vec<EndedQuery> {
        let newest = self.ended.iter().rev();
        let is_found =
            |ended: &&EndedQuery| ended.expression.contains(text) && is_of(&ended.tenant);
        let found = newest.filter(is_found);
        found.take(limit).cloned().collect()
    }

    /// Returns the totals of the current period and the one before, at `now` on the monotonic
    /// clock.
    pub(super) fn totals(&mut self, now: Duration) -> Vec<((TenantId, Arc<str>), QueryTotal)> {
        self.start_period(now);
        let mut totals = self.current.clone();
        for (key, total) in &self.before {
            totals.entry(key.clone()).or_default().add(*total);
        }
        totals.into_iter().collect()
    }
}

fn remove_shortest(totals: &mut QueryTotals) {
    let shortest = totals.iter().min_by_key(|(_, total)| total.duration);
    if let Some(key) = shortest.map(|(key, _)| key.clone()) {
        totals.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(expression: &str, started: TimestampMs, seconds: u64) -> EndedQuery {
        EndedQuery {
            expression: expression.into(),
            tenant: TenantId::anonymous(),
            client: "10.0.0.1".to_owned(),
            started,
            duration: Duration::from_secs(seconds),
        }
    }

    fn total(history: &mut QueryHistory, now: u64, expression: &str) -> Option<(u64, u64)> {
        let totals = history.totals(Duration::from_secs(now));
        let found = totals
            .into_iter()
            .find(|((_, known), _)| **known == *expression);
        found.map(|(_, total)| (total.count, total.duration.as_secs()))
    }

    #[test]
    fn history_keeps_the_newest_queries_and_finds_them_by_text() {
        let mut history = QueryHistory::default();
        for i in 0..ENDED_MAX as i64 + 10 {
            let expression = if i % 2 == 0 { "sum(up)" } else { "rate(x[5m])" };
            history.push(Duration::ZERO, ended(expression, i, 1));
        }
        assert_eq!(history.ended.len(), ENDED_MAX);
        let found = history.find("up", 2, |_| true);
        let newest = ENDED_MAX as i64 + 8;
        assert_eq!(
            found,
            [ended("sum(up)", newest, 1), ended("sum(up)", newest - 2, 1)]
        );
        assert_eq!(history.find("", usize::MAX, |_| true).len(), ENDED_MAX);
        assert!(history.find("", 10, |_| false).is_empty());
        assert!(history.find("down", 10, |_| true).is_empty());
    }

    #[test]
    fn totals_cover_this_period_and_the_one_before() {
        let (mut history, period) = (QueryHistory::default(), PERIOD.as_secs());
        history.push(Duration::from_secs(1), ended("up", 0, 2));
        history.push(Duration::from_secs(period + 1), ended("up", 0, 4));
        assert_eq!(total(&mut history, period + 2, "up"), Some((2, 6)));
        assert_eq!(total(&mut history, 2 * period + 1, "up"), Some((1, 4)));
        assert_eq!(total(&mut history, 3 * period + 1, "up"), None);
        history.push(Duration::from_secs(4 * period), ended("up", 0, 1));
        assert_eq!(total(&mut history, 7 * period, "up"), None);
    }

    #[test]
    fn expression_beyond_the_limit_replaces_the_one_with_the_shortest_total() {
        let mut history = QueryHistory::default();
        for i in 0..TOTALS_MAX {
            history.push(Duration::ZERO, ended(&format!("q{i}"), 0, 10 + i as u64));
        }
        history.push(Duration::ZERO, ended("new", 0, 1));
        assert_eq!(history.current.len(), TOTALS_MAX);
        assert_eq!(total(&mut history, 0, "q0"), None);
        assert_eq!(total(&mut history, 0, "new"), Some((1, 1)));
        assert_eq!(total(&mut history, 0, "q1"), Some((1, 11)));
    }
}
