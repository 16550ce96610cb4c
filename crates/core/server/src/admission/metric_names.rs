//! Metric names whose samples queries select, with the number of selections and some expressions.
//!
//! Invariant: memory is bounded by the constants of this file, to about 2 MiB.

use super::run::QueryRun;
use firn_model::sample::TimestampMs;
use firn_model::tenant::TenantId;
use std::collections::HashMap;

/// Maximum number of names. A new name beyond it replaces the one that was selected longest ago.
const NAMES_MAX: usize = 2_000;

/// Maximum length of a name and of an expression in bytes. Longer names are omitted, longer
/// expressions truncated.
const TEXT_BYTES_MAX: usize = 256;

/// Maximum number of expressions of a name.
const EXPRESSIONS_MAX: usize = 3;

/// The selections of one metric name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetricNameStat {
    pub(crate) count: u64,
    pub(crate) last: TimestampMs,
    /// Different expressions that selected the name, the newest last.
    pub(crate) expressions: Vec<String>,
}

/// Selections by metric name. Belongs to the registry.
#[derive(Debug, Default)]
pub(super) struct MetricNameStats(HashMap<(TenantId, String), MetricNameStat>);

impl MetricNameStats {
    /// Adds a selection of `name` by the query `run` at `now`.
    pub(super) fn add(&mut self, name: &[u8], run: &QueryRun, now: TimestampMs) {
        if let Ok(name) = str::from_utf8(name) {
            self.push(&run.question.tenant, name, &run.question.expression, now);
        }
    }

    fn push(&mut self, tenant: &TenantId, name: &str, expression: &str, now: TimestampMs) {
        if name.len() > TEXT_BYTES_MAX {
            return;
        }
        let key = (tenant.clone(), name.to_owned());
        if !self.0.contains_key(&key) && self.0.len() == NAMES_MAX {
            self.remove_oldest();
        }
        let stat = self.0.entry(key).or_default();
        stat.count += 1;
        stat.last = now;
        let expression = &expression[..expression.floor_char_boundary(TEXT_BYTES_MAX)];
        if !stat.expressions.iter().any(|known| known == expression) {
            if stat.expressions.len() == EXPRESSIONS_MAX {
                stat.expressions.remove(0);
            }
            stat.expressions.push(expression.to_owned());
        }
    }

    fn remove_oldest(&mut self) {
        let oldest = self.0.iter().min_by_key(|(_, stat)| stat.last);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.0.remove(&key);
        }
    }

    /// Returns all names with their selections, in any order.
    pub(super) fn all(&self) -> Vec<((TenantId, String), MetricNameStat)> {
        let pairs = self.0.iter();
        pairs
            .map(|(key, stat)| (key.clone(), stat.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_name_has_its_count_its_last_time_and_its_newest_expressions() {
        let mut stats = MetricNameStats::default();
        for (i, expression) in ["up", "up", "sum(up)", "max(up)", "min(up)"]
            .iter()
            .enumerate()
        {
            stats.push(&TenantId::anonymous(), "up", expression, i as i64);
        }
        stats.push(
            &TenantId::anonymous(),
            &"x".repeat(TEXT_BYTES_MAX + 1),
            "long",
            9,
        );
        let expressions = ["sum(up)", "max(up)", "min(up)"]
            .map(str::to_owned)
            .to_vec();
        let stat = MetricNameStat {
            count: 5,
            last: 4,
            expressions,
        };
        assert_eq!(
            stats.all(),
            [((TenantId::anonymous(), "up".to_owned()), stat)]
        );
    }

    #[test]
    fn metric_name_beyond_the_limit_replaces_the_one_selected_longest_ago() {
        let mut stats = MetricNameStats::default();
        for i in 0..NAMES_MAX {
            stats.push(&TenantId::anonymous(), &format!("m{i}"), "e", 10 + i as i64);
        }
        stats.push(&TenantId::anonymous(), "m0", "e", i64::MAX);
        stats.push(&TenantId::anonymous(), "new", "e", 0);
        assert_eq!(stats.0.len(), NAMES_MAX);
        let has = |name: &str| {
            stats
                .0
                .contains_key(&(TenantId::anonymous(), name.to_owned()))
        };
        assert!(has("m0") && has("new") && !has("m1") && has("m2"));
    }
}
