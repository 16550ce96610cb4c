//! Queries of rules. They use the same engine, limits and queue as other queries, and all rules
//! together count as one client.
//!
//! Invariant: an evaluation that did not get its turn in the queue is reported as such rather than
//! as a failed query, so that it can be repeated during catch-up.

use crate::admission::queries::QueryAbortReason;
use crate::admission::question::RequestedQuery;
use crate::admission::queue::QueueClient;
use crate::admission::run::QueryRun;
use crate::app::ServerApp;
use crate::asking::QuerySession;
use crate::parts::RuleGroupName;
use crate::query_log::QueryOrigin;
use firn_model::columns::SeriesBatch;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::sample::{TimeRange, TimestampMs, is_stale};
use firn_model::series_limit::SeriesLimit;
use firn_model::store::SelectRequest;
use firn_model::tenant::TenantId;
use firn_model::trace::{SpanContext, SpanKind, TraceSpan};
use firn_promql::EvalTime;
use firn_rules::alerts::AlertStateSample;
use firn_rules::rule::RuleQuerier;
use std::sync::Arc;
use tokio::time::Instant;

/// Handler name of rule queries in the file of active queries.
const HANDLER: &str = "rule";

/// Reason why a rule query has no result, which decides whether the evaluation is repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleQueryError {
    /// The query did not get its turn or the store is not open; retry later.
    #[error("{0}")]
    Later(String),
    /// The query failed or timed out.
    #[error("{0}")]
    Failed(String),
}

/// Description of a rule query for the queue, the file of active queries and the query log. Built
/// for each evaluation.
#[derive(Clone, Debug)]
pub struct RuleQueryInfo {
    /// Tenant whose data is queried.
    pub tenant: TenantId,
    /// Expression of the rule.
    pub expression: String,
    /// Timestamp of the evaluation in milliseconds.
    pub time: TimestampMs,
    /// Group of the rule.
    pub group: RuleGroupName,
}

impl ServerApp {
    /// Runs `work` in the query queue on a blocking thread, with access to queries. Also returns
    /// the span of the evaluation if it is traced, for operations that follow it.
    pub async fn run_rule<T: Send + 'static>(
        &self,
        question: RuleQueryInfo,
        work: impl FnOnce(&mut dyn RuleQuerier) -> T + Send + 'static,
    ) -> Result<(T, Option<SpanContext>), RuleQueryError> {
        let work = |asking: &mut QuerySession<'_>| (work(asking), asking.span.clone());
        self.run_of_rule(&question, work).await
    }

    /// Returns the newest sample of each series that `matchers` select in `range`, without those
    /// that ended with a stale marker. Used to restore alerts.
    pub async fn kept_since(
        &self,
        question: RuleQueryInfo,
        matchers: Vec<Matcher>,
        range: TimeRange,
    ) -> Result<Vec<AlertStateSample>, RuleQueryError> {
        let read = self.run_of_rule(&question, move |asking| {
            kept_since(asking, &matchers, range)
        });
        read.await?.map_err(|e| RuleQueryError::Failed(e.message))
    }

    async fn run_of_rule<T: Send + 'static>(
        &self,
        question: &RuleQueryInfo,
        work: impl FnOnce(&mut QuerySession<'_>) -> T + Send + 'static,
    ) -> Result<T, RuleQueryError> {
        let later = |why: &str| RuleQueryError::Later(why.to_owned());
        let backend = self
            .backend()
            .map_err(|_| later("the store is not ready"))?;
        let tenant = question.tenant.clone();
        let settings = &self.parts.query;
        let options = settings.options(&tenant, self.parts.query_log.is_on());
        let (engine, env) = (self.parts.engine.clone(), self.parts.env.clone());
        let mut span = self.start_span(question);
        let context = span.context();
        let store = backend.store.clone();
        let local = backend.local.clone();
        let log = self.parts.query_log.clone();
        let log = log
            .is_on()
            .then(|| (log, QueryOrigin::Rule(question.group.clone())));
        let asked_at = env.clock.monotonic();
        let job = move |run: &Arc<QueryRun>| {
            let mut asking = QuerySession {
                log,
                span: context,
                trace: None,
                queue: env.clock.monotonic().saturating_sub(asked_at),
                engine,
                store,
                local,
                env,
                tenant: &tenant,
                options,
                run,
                held: Vec::new(),
            };
            work(&mut asking)
        };
        let time = EvalTime::Instant(question.time);
        let asked = RequestedQuery::new(
            HANDLER,
            question.tenant.clone(),
            QueueClient::Rules,
            format!("rule group {}", question.group.name),
            std::iter::once(question.expression.as_str()),
            Some(time.into()),
        );
        let deadline = Instant::now() + self.query_timeout(&question.tenant);
        let run = self.begin_query(asked);
        let outcome = self.run_queued(backend.active.clone(), run, deadline, job);
        outcome.await.map_err(|e| {
            span.set_error(e);
            match e {
                QueryAbortReason::Waiting
                | QueryAbortReason::WaitingForTenant(_)
                | QueryAbortReason::Refused(_) => RuleQueryError::Later(e.to_string()),
                QueryAbortReason::Running
                | QueryAbortReason::Ended
                | QueryAbortReason::Panicked => RuleQueryError::Failed(e.to_string()),
            }
        })
    }

    /// Starts the span of a rule evaluation, with Prometheus's name and the group and expression as
    /// attributes.
    fn start_span(&self, question: &RuleQueryInfo) -> TraceSpan {
        let name = || "rule".to_owned();
        let mut span = self
            .parts
            .tracer
            .start_trace(name, SpanKind::Internal, None);
        span.set_attribute("group", || question.group.name.as_str());
        span.set_attribute("expression", || question.expression.as_str());
        span
    }
}

fn kept_since(
    asking: &QuerySession<'_>,
    matchers: &[Matcher],
    range: TimeRange,
) -> Result<Vec<AlertStateSample>, Error> {
    let selection = asking.local.select(SelectRequest {
        tenant: asking.tenant,
        matchers,
        range,
        newest_only: true,
        cancel: asking.run.cancel(),
        budget: asking.run.budget(),
        series: &SeriesLimit::unlimited(),
        span: None,
    })?;
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch)?;
    let newest = |i: usize| {
        let series = batch.series(i);
        let (time, value) = (*series.times.last()?, *series.values.last()?);
        let labels: Labels = selection.labels(i);
        (!is_stale(value)).then_some(AlertStateSample {
            labels,
            time,
            value,
        })
    };
    Ok((0..selection.len()).filter_map(newest).collect())
}
