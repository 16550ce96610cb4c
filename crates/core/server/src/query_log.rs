//! The query log (`query_log_file`): one JSON object per line for each evaluated query, with
//! Prometheus's keys.
//!
//! ```text
//! {"time", "level", "msg", "params": {"end", "query", "start", "step"}, "error", "stats",
//!  "spanID", "traceID", "httpRequest" or "ruleGroup"}
//! ```
//!
//! Invariant: a line is written completely before the response is sent. Texts that are not valid
//! PromQL are not logged. A failed write is counted and does not fail the query. The span is that
//! of the evaluation, also if it is not sampled, and zero without a trace.

use crate::parts::RuleGroupName;
use crate::query_stats::{QueryTimings, StatsDocument};
use firn_model::metrics::{Collect, Counter, MetricSink, MetricValue};
use firn_model::sample::TimestampMs;
use firn_model::trace::TraceParent;
use firn_promql::EvalTime;
use firn_promql::value::{PromqlError, QueryResult, SampleCounts};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::iso8601::{Config, EncodedConfig, TimePrecision};
use time::format_description::well_known::{Iso8601, Rfc3339};

/// Format of times in UTC with exactly three digits of milliseconds.
const MILLISECONDS: EncodedConfig = Config::DEFAULT
    .set_time_precision(TimePrecision::Second {
        decimal_digits: std::num::NonZero::new(3),
    })
    .encode();

/// The query log, which is disabled or writes to a file. The file is changed by each reload of the
/// configuration.
#[derive(Debug, Default)]
pub struct QueryLog {
    file: RwLock<Option<File>>,
    failures: Counter,
}

/// Origin of a query for the query log: an HTTP request or a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryOrigin {
    /// A request to the HTTP API.
    Request {
        client: Option<IpAddr>,
        method: String,
        path: String,
    },
    /// A rule in this group.
    Rule(RuleGroupName),
}

/// Properties of a query that are logged, collected before its evaluation because the request is
/// consumed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedQuery {
    pub(crate) query: String,
    pub(crate) time: EvalTime,
    pub(crate) origin: QueryOrigin,
    /// Trace context of the query; `None` if it is not traced.
    pub(crate) trace: Option<TraceParent>,
    /// True if samples are counted per step.
    pub(crate) by_step: bool,
}

#[derive(Serialize)]
struct QueryLogLine<'a> {
    time: String,
    level: &'a str,
    msg: &'a str,
    params: QueryLogParams<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    stats: StatsDocument,
    #[serde(rename = "spanID")]
    span: String,
    #[serde(rename = "traceID")]
    trace: String,
    #[serde(rename = "httpRequest", skip_serializing_if = "Option::is_none")]
    request: Option<Request<'a>>,
    #[serde(rename = "ruleGroup", skip_serializing_if = "Option::is_none")]
    rule_group: Option<&'a RuleGroupName>,
}

#[derive(Serialize)]
struct QueryLogParams<'a> {
    end: String,
    query: &'a str,
    start: String,
    /// Step in whole seconds.
    step: i64,
}

#[derive(Serialize)]
struct Request<'a> {
    #[serde(rename = "clientIP")]
    client: String,
    method: &'a str,
    path: &'a str,
}

impl QueryLog {
    /// Opens the file at `path` for all further lines; `None` disables the log. If the file cannot
    /// be opened, returns the error and keeps the current state. May block.
    pub fn set_file(&self, path: Option<&Path>) -> io::Result<()> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        let opened = path.map(open).transpose()?;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = opened;
        Ok(())
    }

    /// Returns whether queries are logged, so that callers can avoid collecting statistics.
    pub(crate) fn is_on(&self) -> bool {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        file.is_some()
    }

    /// Logs the outcome of a query, with the samples counted so far if it failed. Parse errors are
    /// not logged. May block on the file.
    pub(crate) fn write_outcome(
        &self,
        now: TimestampMs,
        logged: &LoggedQuery,
        outcome: Result<&QueryResult, (&PromqlError, &SampleCounts)>,
        timings: &QueryTimings,
    ) {
        match outcome {
            Ok(result) => {
                let counts = result.counts.clone().unwrap_or_default();
                self.write(now, logged, &counts, timings, None);
            }
            Err((PromqlError::Parse(_), _)) => {}
            Err((e, counts)) => self.write(now, logged, counts, timings, Some(e.to_string())),
        }
    }

    /// Logs a query that was not evaluated after it waited for `queue` in the queue. May block.
    pub(crate) fn write_unfinished(
        &self,
        now: TimestampMs,
        logged: &LoggedQuery,
        why: String,
        queue: Duration,
    ) {
        let timings = QueryTimings {
            queue,
            ..QueryTimings::default()
        };
        self.write(now, logged, &SampleCounts::default(), &timings, Some(why));
    }

    fn write(
        &self,
        now: TimestampMs,
        logged: &LoggedQuery,
        counts: &SampleCounts,
        timings: &QueryTimings,
        error: Option<String>,
    ) {
        let stats = StatsDocument::from_stats(timings, counts, logged.time, logged.by_step);
        let line = line(now, logged, stats, error);
        let Ok(mut bytes) = serde_json::to_vec(&line) else {
            return self.failures.inc();
        };
        bytes.push(b'\n');
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut file) = file.as_ref()
            && file.write_all(&bytes).is_err()
        {
            self.failures.inc();
        }
    }
}

fn line(
    now: TimestampMs,
    logged: &LoggedQuery,
    stats: StatsDocument,
    error: Option<String>,
) -> QueryLogLine<'_> {
    let (start, end, step) = match logged.time {
        EvalTime::Instant(time) => (time, time, 0),
        EvalTime::Range { start, end, .. } => (start, end, logged.time.step_ms() / 1000),
    };
    let (request, rule_group) = match &logged.origin {
        QueryOrigin::Request {
            client,
            method,
            path,
        } => {
            let client = client.map_or(String::new(), |ip| ip.to_string());
            let request = Request {
                client,
                method,
                path,
            };
            (Some(request), None)
        }
        QueryOrigin::Rule(group) => (None, Some(group)),
    };
    let (trace, span) = logged.trace.map_or((0, 0), |at| (at.trace, at.span));
    QueryLogLine {
        time: datetime_from_ms(now)
            .and_then(|time| time.format(&Rfc3339).ok())
            .unwrap_or_default(),
        level: "INFO",
        msg: "promql query logged",
        params: QueryLogParams {
            end: date(end),
            query: &logged.query,
            start: date(start),
            step,
        },
        error,
        stats,
        span: format!("{span:016x}"),
        trace: format!("{trace:032x}"),
        request,
        rule_group,
    }
}

fn datetime_from_ms(time: TimestampMs) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(time) * 1_000_000).ok()
}

/// Formats a time parameter like Prometheus, in UTC. A time outside of the calendar is written in
/// milliseconds.
fn date(time: TimestampMs) -> String {
    let text = datetime_from_ms(time).and_then(|time| time.format(&Iso8601::<MILLISECONDS>).ok());
    text.unwrap_or_else(|| time.to_string())
}

impl Collect for QueryLog {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.metric(
            "firn_query_log_enabled",
            "1 while the query log is enabled.",
            &[],
            MetricValue::Gauge(f64::from(u8::from(self.is_on()))),
        );
        sink.metric(
            "firn_query_log_failures_total",
            "Queries that could not be written to the query log.",
            &[],
            MetricValue::Counter(self.failures.get() as f64),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(time: EvalTime, origin: QueryOrigin) -> LoggedQuery {
        LoggedQuery {
            query: "\"<>\" + up".to_owned(),
            time,
            origin,
            trace: None,
            by_step: false,
        }
    }

    #[test]
    fn query_of_a_client_and_of_a_rule_have_prometheus_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.log");
        let log = QueryLog::default();
        let request = QueryOrigin::Request {
            client: Some([127, 0, 0, 1].into()),
            method: "GET".to_owned(),
            path: "/api/v1/query_range".to_owned(),
        };
        let range = EvalTime::Range {
            start: 1_700_000_000_500,
            end: 1_700_000_060_000,
            step_ns: 2_500_000_000,
        };
        let timings = QueryTimings {
            queue: Duration::from_millis(1),
            run: Duration::from_millis(4),
            look_ups: Duration::from_millis(3),
        };
        let first = logged(range, request);
        // Nothing is written while the log is disabled.
        log.write_unfinished(0, &first, "late".to_owned(), Duration::ZERO);
        log.set_file(Some(&path)).unwrap();
        assert!(log.is_on());
        let counts = SampleCounts {
            total: 7,
            read: 6,
            peak: 5,
            ..SampleCounts::default()
        };
        log.write(1_700_000_100_250, &first, &counts, &timings, None);
        let group = RuleGroupName {
            file: "r.yml".to_owned(),
            name: "g".to_owned(),
        };
        let second = LoggedQuery {
            trace: TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"),
            ..logged(EvalTime::Instant(i64::MAX), QueryOrigin::Rule(group))
        };
        let error = PromqlError::Execution("no".to_owned());
        log.write_outcome(0, &second, Err((&error, &counts)), &QueryTimings::default());
        // A parse error is not logged.
        let error = PromqlError::Parse("no".to_owned());
        log.write_outcome(0, &second, Err((&error, &counts)), &QueryTimings::default());
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            r#"{"time":"2023-11-14T22:15:00.25Z","level":"INFO","msg":"promql query logged","#,
            r#""params":{"end":"2023-11-14T22:14:20.000Z","query":"\"<>\" + up","#,
            r#""start":"2023-11-14T22:13:20.500Z","#,
            r#""step":2},"stats":{"timings":{"evalTotalTime":0.004,"resultSortTime":0.0,"#,
            r#""queryPreparationTime":0.003,"#,
            r#""innerEvalTime":0.001,"execQueueTime":0.001,"execTotalTime":0.004},"#,
            r#""samples":{"totalQueryableSamples":7,"samplesRead":6,"peakSamples":5}},"#,
            r#""spanID":"0000000000000000","#,
            r#""traceID":"00000000000000000000000000000000","#,
            r#""httpRequest":{"clientIP":"127.0.0.1","#,
            r#""method":"GET","path":"/api/v1/query_range"}}"#,
        ];
        let expected = expected.concat();
        assert_eq!(lines[0], expected);
        assert_eq!(lines.len(), 2);
        for part in [
            r#""params":{"end":"9223372036854775807","#,
            r#""error":"no","stats""#,
            r#""totalQueryableSamples":7"#,
            r#""spanID":"00f067aa0ba902b7","traceID":"4bf92f3577b34da6a3ce929d0e0e4736""#,
            r#""ruleGroup":{"file":"r.yml","name":"g"}}"#,
        ] {
            assert!(lines[1].contains(part), "{}", lines[1]);
        }
        assert!(log.set_file(Some(dir.path())).is_err());
        assert!(log.is_on());
        log.set_file(None).unwrap();
        assert!(!log.is_on());
    }
}
