//! Queries of what is evaluated as a whole, a rule or a page: one turn in the queue, one budget and
//! one deadline for all of them.
//!
//! Invariant: what an answer takes is held until the evaluation ends.

use crate::engine::Engine;
use crate::query_log::{Logged, Origin, QueryLog};
use crate::query_stats::Timings;
use crate::timed::Timed;
use crate::traced::traced;
use firn_model::budget::{Budget, Reservation};
use firn_model::cancel::Cancel;
use firn_model::env::Env;
use firn_model::sample::TimestampMs;
use firn_model::store::Select;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::{SpanContext, TraceParent};
use firn_promql::ast::Expr;
use firn_promql::value::{QueryError, QueryResult, Value};
use firn_promql::{Context, EvalTime, Options};
use firn_rules::rule::Queries;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Answers the queries of one evaluation of a rule, or of one page.
pub(crate) struct Asking<'a> {
    /// Where queries are written, and who asks.
    pub(crate) log: Option<(Arc<QueryLog>, Origin)>,
    /// The span of the evaluation, if it is in a trace and nothing else makes spans of its queries.
    pub(crate) span: Option<SpanContext>,
    /// Where the evaluation stands in a trace, for the log.
    pub(crate) trace: Option<TraceParent>,
    /// How long the evaluation waited for its turn.
    pub(crate) queue: Duration,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) store: Arc<dyn Select>,
    /// What is stored here: states of alerts are nowhere else.
    pub(crate) local: Arc<dyn Select>,
    pub(crate) env: Env,
    pub(crate) tenant: &'a TenantId,
    pub(crate) options: Options,
    pub(crate) budget: Budget,
    pub(crate) cancel: &'a Cancel,
    /// What the answers take: until the evaluation ends.
    pub(crate) held: Vec<Reservation>,
}

impl Asking<'_> {
    /// Asks a query, whose text is for the log.
    fn ask(
        &mut self,
        text: impl FnOnce() -> String,
        at: TimestampMs,
        query: impl FnOnce(
            &dyn Engine,
            &Context<'_>,
            EvalTime,
            &Options,
        ) -> Result<QueryResult, QueryError>,
    ) -> Result<Value, String> {
        let (time, clock) = (EvalTime::Instant(at), self.env.clock.clone());
        let begun = clock.monotonic();
        let mut span = SpanContext::begin_in(self.span.as_ref(), "promqlEval");
        let store = traced(self.store.clone(), span.context().as_ref());
        let store = Timed::new(&*store, clock.clone());
        let failed = Mutex::default();
        let context = Context {
            store: &store,
            tenant: self.tenant,
            compute: &*self.env.compute,
            budget: &self.budget,
            cancel: self.cancel,
            failed_counts: Some(&failed),
        };
        let answer = query(&*self.engine, &context, time, &self.options);
        if let Err(e) = &answer {
            span.fail(e);
        }
        if let Some((log, origin)) = &self.log {
            let logged = Logged {
                query: text(),
                time,
                origin: origin.clone(),
                trace: span.parent().or(self.trace),
                by_step: false,
            };
            let timings = Timings {
                queue: self.queue,
                run: clock.monotonic().saturating_sub(begun),
                look_ups: store.spent(),
            };
            let counts = lock(&failed);
            let answer = answer.as_ref().map_err(|e| (e, &*counts));
            log.write_outcome(clock.now_ms(), &logged, answer, &timings);
        }
        let answer = answer.map_err(|e| e.to_string())?;
        self.held.push(answer.memory);
        Ok(answer.value)
    }
}

impl Queries for Asking<'_> {
    fn expr(&mut self, expr: &Expr, at: TimestampMs) -> Result<Value, String> {
        let text = || expr.to_string();
        self.ask(text, at, |engine, context, time, options| {
            engine.query_expr(context, expr, time, options)
        })
    }

    fn text(&mut self, text: &str, at: TimestampMs) -> Result<Value, String> {
        let own = || text.to_owned();
        self.ask(own, at, |engine, context, time, options| {
            engine.query(context, text, time, options)
        })
    }

    fn cancel(&self) -> &Cancel {
        self.cancel
    }
}
