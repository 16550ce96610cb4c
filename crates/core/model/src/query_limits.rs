//! Limits of every query, from the config.
//!
//! The server refuses a query beyond them before it waits in the queue, or stops it when it selects
//! more series or reads more samples.

use crate::error::{Error, ErrorKind};
use crate::matcher::{MatchOp, Matcher};
use crate::sample::TimeRange;
use crate::units::format_go_duration;
use std::time::Duration;

/// The limits in the section `firn`. Created from the config and replaced by a reload.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryLimits {
    /// `firn.query_series_limit`: maximum number of series that the selectors of a query match.
    pub series_max: usize,
    /// `firn.query_samples_limit`: maximum number of samples that a query reads from the store.
    pub samples_max: u64,
    /// `firn.query_range_limit`: maximum time between the first and the last step of a query.
    pub range_max: Option<Duration>,
    /// `firn.results_cache_size`: maximum bytes of cached results of range queries; zero without a
    /// cache.
    pub results_cache_bytes: usize,
    /// `firn.blocked_queries`: queries that are refused.
    pub blocked: Vec<BlockedQuery>,
    /// Maximum time for which a query waits and runs, in place of the flag `--query.timeout`.
    pub timeout: Option<Duration>,
    /// Maximum number of queries of one tenant that run at one time. Rules do not count.
    pub queries_max: Option<usize>,
}

impl Default for QueryLimits {
    /// Returns limits that no query exceeds, without a cache of results.
    fn default() -> Self {
        Self {
            series_max: usize::MAX,
            samples_max: u64::MAX,
            range_max: None,
            results_cache_bytes: 0,
            blocked: Vec::new(),
            timeout: None,
            queries_max: None,
        }
    }
}

impl QueryLimits {
    /// Returns the limits of a query that reads the tenants of `self` and of `other`: the lower one
    /// of each, and the blocked queries of both.
    pub fn join(&self, other: &QueryLimits) -> QueryLimits {
        let mut blocked = self.blocked.clone();
        let is_new = |one: &&BlockedQuery| !self.blocked.contains(one);
        blocked.extend(other.blocked.iter().filter(is_new).cloned());
        QueryLimits {
            series_max: self.series_max.min(other.series_max),
            samples_max: self.samples_max.min(other.samples_max),
            range_max: lower(self.range_max, other.range_max),
            results_cache_bytes: self.results_cache_bytes.min(other.results_cache_bytes),
            blocked,
            timeout: lower(self.timeout, other.timeout),
            queries_max: lower(self.queries_max, other.queries_max),
        }
    }

    /// Returns an error with Mimir's text if `range` is longer than the limit.
    pub fn check_range(&self, range: TimeRange) -> Result<(), Error> {
        const NANOS_PER_MS: i64 = 1_000_000;
        let Some(max) = self.range_max else {
            return Ok(());
        };
        let length = range.max.saturating_sub(range.min).max(0);
        if length as u128 <= max.as_millis() {
            return Ok(());
        }
        let length = format_go_duration(length.saturating_mul(NANOS_PER_MS));
        let max = format_go_duration(i64::try_from(max.as_nanos()).unwrap_or(i64::MAX));
        Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "the total query time range exceeds the limit (query length: {length}, limit: \
                 {max})"
            ),
        ))
    }

    /// Returns an error with Mimir's text and the reason in the config if the query `text` is
    /// blocked.
    pub fn check_text(&self, text: &str) -> Result<(), Error> {
        let Some(blocked) = self.blocked.iter().find(|blocked| blocked.matches(text)) else {
            return Ok(());
        };
        let mut message = "the request has been blocked by the cluster administrator".to_owned();
        if !blocked.reason.is_empty() {
            message = format!("{message}: {}", blocked.reason);
        }
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

/// Returns the lower one of two limits, of which a missing one is no limit.
fn lower<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.into_iter().chain(b).min()
}

/// A query or a pattern of queries that is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockedQuery {
    pattern: Matcher,
    reason: String,
}

impl BlockedQuery {
    /// Creates a blocked query: the text `pattern`, or every text that the regular expression
    /// `pattern` matches as a whole. White space around texts has no meaning. Fails if the regular
    /// expression is invalid.
    pub fn new(pattern: &str, is_regex: bool, reason: &str) -> Result<Self, Error> {
        let matcher = if is_regex {
            Matcher::new("query", MatchOp::Regex, pattern.as_bytes())
        } else {
            Matcher::new("query", MatchOp::Equal, pattern.trim().as_bytes())
        };
        Ok(Self {
            pattern: matcher?,
            reason: reason.to_owned(),
        })
    }

    fn matches(&self, text: &str) -> bool {
        self.pattern.matches(text.trim().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_limits_are_the_lower_ones_and_block_the_queries_of_both() {
        let block = |text| BlockedQuery::new(text, false, "").unwrap();
        let one = QueryLimits {
            series_max: 1,
            timeout: Some(Duration::from_secs(5)),
            blocked: vec![block("up"), block("down")],
            ..QueryLimits::default()
        };
        let other = QueryLimits {
            samples_max: 2,
            timeout: Some(Duration::from_secs(4)),
            queries_max: Some(3),
            blocked: vec![block("down"), block("left")],
            ..QueryLimits::default()
        };
        let joined = QueryLimits {
            series_max: 1,
            samples_max: 2,
            timeout: Some(Duration::from_secs(4)),
            queries_max: Some(3),
            blocked: vec![block("up"), block("down"), block("left")],
            ..QueryLimits::default()
        };
        assert_eq!(one.join(&other), joined);
    }

    #[test]
    fn blocked_query_is_an_exact_text_or_a_whole_pattern() {
        let block = |pattern, is_regex| QueryLimits {
            blocked: vec![BlockedQuery::new(pattern, is_regex, "too slow").unwrap()],
            ..QueryLimits::default()
        };
        let cases = [
            (" sum(up)\n", false, "sum(up)", true),
            ("sum(up)", false, "\tsum(up) ", true),
            ("sum(up)", false, "sum( up)", false),
            ("up.*", false, "up1", false),
            ("up.*", true, "up1", true),
            ("up.*", true, "sum(up)", false),
            (".*up.*", true, "sum(\nup)", true),
        ];
        for (pattern, is_regex, text, is_blocked) in cases {
            let outcome = block(pattern, is_regex).check_text(text);
            assert_eq!(outcome.is_err(), is_blocked, "{pattern:?} {text:?}");
        }
        let e = block("up", false).check_text("up").unwrap_err();
        let text = "the request has been blocked by the cluster administrator: too slow";
        assert_eq!((e.kind, e.message.as_str()), (ErrorKind::Invalid, text));
        assert!(BlockedQuery::new("(", true, "").is_err());
    }

    #[test]
    fn range_beyond_the_limit_is_refused_with_both_lengths() {
        let limits = QueryLimits {
            range_max: Some(Duration::from_secs(3_600)),
            ..QueryLimits::default()
        };
        let check = |min, max| limits.check_range(TimeRange::new(min, max));
        assert!(check(0, 3_600_000).is_ok());
        let e = check(0, 3_660_000).unwrap_err();
        let text = "the total query time range exceeds the limit (query length: 1h1m0s, limit: \
                    1h0m0s)";
        assert_eq!(e.message, text);
        assert!(check(i64::MIN, i64::MAX).is_err());
        let unlimited = QueryLimits::default();
        assert!(
            unlimited
                .check_range(TimeRange::new(i64::MIN, i64::MAX))
                .is_ok()
        );
    }
}
