//! Runs the queries of one rule evaluation or console page, which together have one place in the
//! queue, one budget and one deadline.
//!
//! Invariant: the memory of query results stays reserved until the evaluation ends.

use crate::admission::run::QueryRun;
use crate::engine::QueryEngine;
use crate::query_log::{LoggedQuery, QueryLog, QueryOrigin};
use crate::query_stats::QueryTimings;
use crate::traced::trace_store;
use crate::watched::WatchedStore;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::env::Env;
use firn_model::sample::TimestampMs;
use firn_model::store::Select;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::{SpanContext, TraceParent};
use firn_promql::ast::Expr;
use firn_promql::value::{PromqlError, QueryResult, QueryValue};
use firn_promql::{EvalTime, Options, QueryContext};
use firn_rules::rule::RuleQuerier;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Context in which the queries of one rule evaluation or console page run. Created when the
/// evaluation has its turn in the queue.
pub(crate) struct QuerySession<'a> {
    /// Query log and the origin to log; `None` if the log is off.
    pub(crate) log: Option<(Arc<QueryLog>, QueryOrigin)>,
    /// Span of the evaluation, if it is traced and no other component creates spans for its
    /// queries.
    pub(crate) span: Option<SpanContext>,
    /// Trace context of the evaluation, for the query log.
    pub(crate) trace: Option<TraceParent>,
    /// Time that the evaluation waited in the queue.
    pub(crate) queue: Duration,
    pub(crate) engine: Arc<dyn QueryEngine>,
    pub(crate) store: Arc<dyn Select>,
    /// The local store, the only one with states of alerts.
    pub(crate) local: Arc<dyn Select>,
    pub(crate) env: Env,
    pub(crate) tenant: &'a TenantId,
    pub(crate) options: Options,
    /// The query under which the whole evaluation is listed.
    pub(crate) run: &'a Arc<QueryRun>,
    /// Memory of the results, reserved until the evaluation ends.
    pub(crate) held: Vec<Reservation>,
}

impl QuerySession<'_> {
    /// Evaluates the parsed expression of a rule over a time range. The caller holds the memory of
    /// the result.
    pub(crate) fn query_range(
        &mut self,
        expr: &Expr,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, String> {
        let text = || expr.to_string();
        self.run_query(text, time, |engine, context, time, _| {
            engine.query_expr(context, expr, time, options)
        })
    }

    /// Runs a query and logs it. `text` provides the query for the log.
    fn run_query(
        &mut self,
        text: impl FnOnce() -> String,
        time: EvalTime,
        query: impl FnOnce(
            &dyn QueryEngine,
            &QueryContext<'_>,
            EvalTime,
            &Options,
        ) -> Result<QueryResult, PromqlError>,
    ) -> Result<QueryResult, String> {
        let clock = self.env.clock.clone();
        let begun = clock.monotonic();
        let mut span = SpanContext::begin_child_of(self.span.as_ref(), "promqlEval");
        let store = trace_store(self.store.clone(), span.context().as_ref());
        let store = WatchedStore::new(store, self.run, clock.clone());
        let failed = Mutex::default();
        let context = QueryContext {
            failed_counts: Some(&failed),
            ..self.run.context(&store, self.tenant, &*self.env.compute)
        };
        let answer = query(&*self.engine, &context, time, &self.options);
        if let Err(e) = &answer {
            span.set_error(e);
        }
        if let Some((log, origin)) = &self.log {
            let logged = LoggedQuery {
                query: text(),
                time,
                origin: origin.clone(),
                trace: span.parent().or(self.trace),
                by_step: false,
            };
            let timings = QueryTimings {
                queue: self.queue,
                run: clock.monotonic().saturating_sub(begun),
                look_ups: store.spent(),
            };
            let counts = lock(&failed);
            let answer = answer.as_ref().map_err(|e| (e, &*counts));
            log.write_outcome(clock.now_ms(), &logged, answer, &timings);
        }
        answer.map_err(|e| e.to_string())
    }

    /// Returns the value of a result and reserves its memory until the evaluation ends.
    fn hold(&mut self, result: QueryResult) -> QueryValue {
        self.held.push(result.memory);
        result.value
    }
}

impl RuleQuerier for QuerySession<'_> {
    fn query_expr(&mut self, expr: &Expr, at: TimestampMs) -> Result<QueryValue, String> {
        let (text, time) = (|| expr.to_string(), EvalTime::Instant(at));
        let result = self.run_query(text, time, |engine, context, time, options| {
            engine.query_expr(context, expr, time, options)
        })?;
        Ok(self.hold(result))
    }

    fn query_text(&mut self, text: &str, at: TimestampMs) -> Result<QueryValue, String> {
        let (own, time) = (|| text.to_owned(), EvalTime::Instant(at));
        let result = self.run_query(own, time, |engine, context, time, options| {
            engine.query(context, text, time, options)
        })?;
        Ok(self.hold(result))
    }

    fn cancel(&self) -> &CancelToken {
        self.run.cancel()
    }
}
