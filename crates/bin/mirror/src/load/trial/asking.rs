//! Sends queries at fixed times beside the writes, regardless of outstanding answers.
//!
//! ```text
//! n-th query -> due at a time derived from n -> sent by a free connection
//!                                            ` none is free: it waits, and the wait counts
//! ```
//!
//! A tester that sends the next query only after the previous answer sends fewer queries to a slow
//! system, and its quantiles omit the time that real clients would have waited (*coordinated
//! omission*). This module simulates many independent clients, so latencies are measured from the
//! due time of a query. Invariant: the due times of queries depend only on the plan.

use super::list::{self, LoadQuery};
use crate::api::{SystemClient, SystemClientOptions, seconds};
use crate::error::MirrorError;
use crate::fleet::random::{FleetRandom, mix_parts};
use crate::push::{PushAccess, now_ms};
use crate::quantiles::Quantiles;
use crate::questions::lookup::SystemLookup;
use crate::questions::reach::CommonTimeRange;
use crate::questions::{QueryFileContent, SkippedQuery};
use firn_model::metrics::{Counter, DurationHistogram};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum length of an answer in bytes: enough for the matrix of a whole fleet, but finite.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Maximum length in bytes that is kept of an error message.
const ERROR_BYTES_MAX: usize = 300;

/// Start of a successful answer in all systems that implement the API.
const SUCCESS: &[u8] = b"{\"status\":\"success\"";

/// The queries of a load test, their rate and their destination. Due times and choices depend only
/// on its values.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryLoadPlan {
    /// Base URL of the system, without `/api/v1`.
    pub base: String,
    /// The queries; there is at least one, unless there are dashboards.
    pub questions: Vec<LoadQuery>,
    /// Dashboards whose expressions become queries after their variables have been resolved.
    pub dashboards: Vec<QueryFileContent>,
    /// Number of queries per second after the ramp, positive.
    pub rate: f64,
    /// Time during which the rate grows linearly from zero.
    pub ramp: Duration,
    /// Maximum number of concurrent queries, each on its own connection.
    pub connections: usize,
    /// Timeout of a query, including the reading of its answer.
    pub timeout: Duration,
    /// Seed for the random choice of queries by weight.
    pub seed: u64,
}

/// Outcomes of all queries that were due, including those that were never sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryLoadOutcomes {
    /// Outcomes by the index of the query in the plan.
    pub by_question: BTreeMap<usize, QueryOutcomes>,
}

/// Outcomes of the executions of one query, or of several queries together if they were merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryOutcomes {
    /// Microseconds from each due time to the answer, whether successful or not, or to the end of
    /// the wait for a connection.
    pub latencies_us: Vec<u32>,
    /// Due times in milliseconds since the epoch, in the same order.
    pub due_ms: Vec<i64>,
    /// Number of queries without a successful answer, including unsent ones.
    pub failed: u64,
    /// Error of the first query without a successful answer.
    pub first_failure: Option<String>,
}

impl QueryOutcomes {
    fn merge(&mut self, other: QueryOutcomes) {
        self.latencies_us.extend(other.latencies_us);
        self.due_ms.extend(other.due_ms);
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }

    /// Returns the number of queries that were due, whether they were sent or not.
    pub fn count(&self) -> u64 {
        self.latencies_us.len() as u64
    }

    /// Returns the mean latency in seconds; 0 if there were no queries.
    pub fn average_seconds(&self) -> f64 {
        let sum: f64 = self.latencies_us.iter().map(|us| f64::from(*us)).sum();
        sum / 1e6 / (self.latencies_us.len().max(1) as f64)
    }

    /// Returns the quantiles of the latencies in microseconds, measured from the due times.
    pub fn latencies(&self) -> Quantiles {
        Quantiles::new(self.latencies_us.clone())
    }
}

impl QueryLoadOutcomes {
    /// Returns the outcomes of all queries together, merged into one value.
    pub fn total(&self) -> QueryOutcomes {
        let mut total = QueryOutcomes::default();
        for outcomes in self.by_question.values() {
            total.merge(outcomes.clone());
        }
        total
    }
}

/// Live latency metrics of the queries, which all connections update and a scrape of the load
/// reads.
#[derive(Debug, Default)]
pub struct QueryLatencyMetrics {
    /// Latencies of instant queries, from their due times.
    pub instant: DurationHistogram,
    /// Latencies of range queries, from their due times.
    pub range: DurationHistogram,
    /// Number of queries without a successful answer so far.
    pub failures: Counter,
}

/// Signals once to all waiting threads that no further query or observation is due.
#[derive(Debug, Default)]
pub struct LoadEndSignal {
    at: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl LoadEndSignal {
    /// Signals the end to all waiting threads; running queries are completed.
    pub fn end(&self) {
        *self.lock_end() = Some(Instant::now());
        self.changed.notify_all();
    }

    fn lock_end(&self) -> MutexGuard<'_, Option<Instant>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `due`. Returns false if the end was signalled before `due` or before
    /// this call.
    pub fn wait_until(&self, due: Instant) -> bool {
        let at = self.lock_end();
        if at.is_some() {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(at, left, |at| at.is_none());
        let (at, _) = waited.unwrap_or_else(PoisonError::into_inner);
        at.is_none_or(|at| due <= at)
    }
}

impl QueryLoadPlan {
    /// Resolves the variables of the dashboards with values from the system. Returns the plan with
    /// their expressions, and those that cannot be queried. Fails if no query remains.
    pub fn resolved(
        &self,
        access: PushAccess<'_>,
    ) -> Result<(Self, Vec<SkippedQuery>), MirrorError> {
        let bounds = SystemClientOptions {
            timeout: self.timeout,
            headers: access.headers.to_vec(),
            tls: access.tls.clone(),
            ..SystemClientOptions::default()
        };
        let client = SystemClient::within(&self.base, bounds);
        let now = now_ms();
        let stretch = CommonTimeRange {
            start_ms: now - list::PANEL_MS.0,
            end_ms: now,
        };
        let lookup = SystemLookup {
            fetch: &|endpoint, params| client.get(endpoint, params).map_err(|e| e.to_string()),
            stretch,
        };
        let (asked, unasked) = list::load_dashboards(&self.dashboards, &lookup, stretch);
        let plan = Self {
            questions: [self.questions.clone(), asked].concat(),
            dashboards: Vec::new(),
            ..self.clone()
        };
        match (plan.questions.is_empty(), unasked.first()) {
            (true, first) => Err(MirrorError::Late(format!(
                "no query can be sent: {}",
                first.map_or("no expression given", |unasked| &unasked.reason)
            ))),
            (false, _) => Ok((plan, unasked)),
        }
    }

    /// Returns the expressions of the queries in the order of the plan, for the report.
    pub fn expressions(&self) -> Vec<String> {
        let questions = self.questions.iter();
        questions.map(|q| q.expression.clone()).collect()
    }

    /// Sends queries over the connections of the plan until `end` is signalled, and updates
    /// `times`.
    pub fn send_queries(
        &self,
        end: &LoadEndSignal,
        times: &QueryLatencyMetrics,
        access: PushAccess<'_>,
    ) -> QueryLoadOutcomes {
        let next = AtomicU64::new(0);
        let (begun, begun_ms) = (Instant::now(), now_ms());
        let mut asked = std::thread::scope(|scope| {
            let connection = |_| {
                scope.spawn(|| self.send_due_queries(begun, begun_ms, &next, end, times, access))
            };
            let connections: Vec<_> = (0..self.connections).map(connection).collect();
            let mut all = QueryLoadOutcomes::default();
            for connection in connections {
                let asked = connection.join().expect("a connection does not panic");
                for (question, outcomes) in asked.by_question {
                    all.by_question.entry(question).or_default().merge(outcomes);
                }
            }
            all
        });
        // Queries that were due before the end but found no free connection.
        let lasted = end
            .lock_end()
            .map_or_else(|| begun.elapsed(), |at| at - begun);
        for n in next.into_inner().. {
            let Some(waited) = lasted.checked_sub(self.due_time(n)) else {
                break;
            };
            let outcomes = asked.by_question.entry(self.choose(n)).or_default();
            let due_ms = begun_ms + self.due_time(n).as_millis() as i64;
            let why = "not sent: no connection was free".to_owned();
            times.failures.inc();
            record_outcome(outcomes, due_ms, waited, Err(why));
        }
        asked
    }

    /// Returns the due time of the `n`-th query, relative to the start.
    fn due_time(&self, n: u64) -> Duration {
        let (n, ramp) = (n as f64, self.ramp.as_secs_f64());
        // While the rate grows, rate * t^2 / (2 * ramp) queries are due in the first t seconds.
        let of_ramp = self.rate * ramp / 2.0;
        let seconds = if n < of_ramp {
            (2.0 * n * ramp / self.rate).sqrt()
        } else {
            ramp + (n - of_ramp) / self.rate
        };
        Duration::from_secs_f64(seconds)
    }

    /// Returns the index of the `n`-th query, chosen at random by weight.
    fn choose(&self, n: u64) -> usize {
        let weights = self.questions.iter().map(|question| question.weight);
        let mut rest =
            FleetRandom::new(mix_parts(&[self.seed, 6, n])).unit() * weights.clone().sum::<f64>();
        for (at, weight) in weights.enumerate() {
            rest -= weight;
            if rest < 0.0 {
                return at;
            }
        }
        // Rounding may leave a remainder after the last one.
        self.questions.len() - 1
    }

    /// Sends due queries over one connection until `end` is signalled, competing with other
    /// connections for them.
    fn send_due_queries(
        &self,
        begun: Instant,
        begun_ms: i64,
        next: &AtomicU64,
        end: &LoadEndSignal,
        times: &QueryLatencyMetrics,
        access: PushAccess<'_>,
    ) -> QueryLoadOutcomes {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(self.timeout))
            .tls_config(access.tls.clone())
            .http_status_as_error(false)
            .build();
        let agent: ureq::Agent = config.into();
        let mut asked = QueryLoadOutcomes::default();
        loop {
            let n = next.load(Ordering::Relaxed);
            let due = begun + self.due_time(n);
            if !end.wait_until(due) {
                return asked;
            }
            // Another connection may have taken the query in the meantime.
            let taken = next.compare_exchange(n, n + 1, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_err() {
                continue;
            }
            let question = self.choose(n);
            let answer = self.send_query(&agent, access.headers, &self.questions[question]);
            let outcomes = asked.by_question.entry(question).or_default();
            match self.questions[question].range_ms {
                None => times.instant.observe(due.elapsed()),
                Some(_) => times.range.observe(due.elapsed()),
            }
            times.failures.add(u64::from(answer.is_err()));
            let due_ms = begun_ms + self.due_time(n).as_millis() as i64;
            record_outcome(outcomes, due_ms, due.elapsed(), answer);
        }
    }

    fn send_query(
        &self,
        agent: &ureq::Agent,
        headers: &[(String, String)],
        question: &LoadQuery,
    ) -> Result<(), String> {
        let now = now_ms();
        let base = self.base.trim_end_matches('/');
        let (endpoint, times) = match question.range_ms {
            None => ("query", vec![("time", seconds(now))]),
            Some((range_ms, step_ms)) => (
                "query_range",
                vec![
                    ("start", seconds(now - range_ms)),
                    ("end", seconds(now)),
                    ("step", seconds(step_ms)),
                ],
            ),
        };
        let url = format!("{base}/api/v1/{endpoint}");
        let mut request = agent.get(&url).query("query", &question.expression);
        for (name, value) in times {
            request = request.query(name, value);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut answer = request.call().map_err(|e| e.to_string())?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let body = body.read_to_vec().map_err(|e| e.to_string())?;
        if status.is_success() && body.starts_with(SUCCESS) {
            return Ok(());
        }
        let shown = body.get(..ERROR_BYTES_MAX).unwrap_or(&body);
        Err(format!(
            "{status}: {}",
            String::from_utf8_lossy(shown).trim()
        ))
    }
}

/// Records the outcome of one query and its latency since the due time, in microseconds.
fn record_outcome(
    outcomes: &mut QueryOutcomes,
    due_ms: i64,
    waited: Duration,
    answer: Result<(), String>,
) {
    let us = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
    outcomes.latencies_us.push(us);
    outcomes.due_ms.push(due_ms);
    if let Err(failure) = answer {
        outcomes.failed += 1;
        outcomes.first_failure.get_or_insert(failure);
    }
}

/// Returns the base URL of the system whose remote-write URL is `url`. Fails if `url` does not have
/// the standard path.
pub fn base_url(url: &str) -> Result<String, MirrorError> {
    let base = url.strip_suffix("/api/v1/write").map(str::to_owned);
    base.ok_or_else(|| {
        let what = format!("--query-url is required: {url} does not end with /api/v1/write");
        MirrorError::Usage(what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{ExpositionServer, respond};
    use std::io::Write;
    use ureq::tls::TlsConfig;

    fn question(expression: &str, weight: f64, range_ms: Option<(i64, i64)>) -> LoadQuery {
        LoadQuery {
            expression: expression.to_owned(),
            weight,
            range_ms,
        }
    }

    fn plan(base: &str, rate: f64, connections: usize) -> QueryLoadPlan {
        QueryLoadPlan {
            base: base.to_owned(),
            questions: vec![
                question("up", 3.0, None),
                question("down", 1.0, Some((60_000, 1_000))),
            ],
            dashboards: Vec::new(),
            rate,
            ramp: Duration::ZERO,
            connections,
            timeout: Duration::from_secs(10),
            seed: 1,
        }
    }

    #[test]
    fn questions_are_due_at_the_rate_and_less_often_during_the_ramp() {
        let mut plan = plan("", 10.0, 1);
        let due = |plan: &QueryLoadPlan, n| plan.due_time(n).as_secs_f64();
        assert_eq!((due(&plan, 0), due(&plan, 25)), (0.0, 2.5));
        plan.ramp = Duration::from_secs(20);
        // During the ramp of twenty seconds the mean rate is half the full one.
        assert_eq!(due(&plan, 25), 10.0);
        assert_eq!((due(&plan, 100), due(&plan, 110)), (20.0, 21.0));
        let count = (0..4_000).filter(|n| plan.choose(*n) == 0).count();
        assert!((2_900..3_100).contains(&count), "{count}");
    }

    #[test]
    fn answers_are_judged_and_waits_for_a_connection_count() {
        let system = ExpositionServer::start("127.0.0.1:0", |request, stream| {
            let (status, body) = if request.path.starts_with("/api/v1/query?query=up&time=") {
                ("200 OK", "{\"status\":\"success\",\"data\":{}}")
            } else {
                ("422 No", "{\"status\":\"error\"}")
            };
            std::thread::sleep(Duration::from_millis(50));
            respond(stream, status, "application/json", body);
        })
        .unwrap();
        // The connection handles twenty queries per second, and a hundred are due.
        let plan = plan(&format!("http://{}", system.address), 100.0, 1);
        let (end, times) = (LoadEndSignal::default(), QueryLatencyMetrics::default());
        let tls = TlsConfig::default();
        let access = PushAccess {
            tls: &tls,
            headers: &[],
        };
        let asked = std::thread::scope(|scope| {
            let asking = scope.spawn(|| plan.send_queries(&end, &times, access));
            std::thread::sleep(Duration::from_millis(1_500));
            end.end();
            asking.join().unwrap()
        });
        let total = asked.total();
        assert_eq!(total.due_ms.len() as u64, total.count());
        assert_eq!(times.failures.get(), total.failed);
        assert!(total.count() >= 140, "{}", total.count());
        let up = &asked.by_question[&0];
        assert!(up.failed < up.count());
        let down = &asked.by_question[&1];
        assert_eq!(down.failed, down.count());
        let failure = down.first_failure.as_deref().unwrap_or_default();
        assert!(
            failure.contains("422") || failure.contains("not sent"),
            "{failure}"
        );
        // A query that is due in the middle of the run waits for hundreds of milliseconds.
        assert!(
            total.latencies().quantile(0.5) > 200_000,
            "{:?}",
            total.latencies()
        );
    }

    #[test]
    fn answer_without_an_end_or_with_an_error_in_200_is_a_failure() {
        let system = ExpositionServer::start("127.0.0.1:0", |_, stream| {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"status\":\"error\"}";
            let _ = stream.write_all(head.as_bytes());
            std::thread::sleep(Duration::from_millis(500));
        })
        .unwrap();
        let mut plan = plan(&format!("http://{}", system.address), 5.0, 2);
        plan.timeout = Duration::from_millis(100);
        let (end, times) = (LoadEndSignal::default(), QueryLatencyMetrics::default());
        let tls = TlsConfig::default();
        let access = PushAccess {
            tls: &tls,
            headers: &[],
        };
        let asked = std::thread::scope(|scope| {
            let asking = scope.spawn(|| plan.send_queries(&end, &times, access));
            std::thread::sleep(Duration::from_millis(300));
            end.end();
            asking.join().unwrap()
        });
        let total = asked.total();
        assert!(total.count() > 0);
        assert_eq!(total.failed, total.count());
    }

    #[test]
    fn system_follows_from_where_it_takes_writes() {
        assert_eq!(base_url("http://a/x/api/v1/write").unwrap(), "http://a/x");
        let e = base_url("http://a/insert").unwrap_err().to_string();
        assert!(e.starts_with("--query-url is required"), "{e}");
    }
}
