//! Queries of rules: the same engine, the same limits and the same queue as those of people, in
//! which all rules together are one client.
//!
//! Invariant: a rule whose turn did not come is told so, and not that its query failed: its
//! evaluation can be made up for.

use crate::admission::queries::Unfinished;
use crate::admission::question::Question;
use crate::admission::queue::Client;
use crate::app::App;
use crate::asking::Asking;
use crate::parts::RuleGroupName;
use crate::query_log::Origin;
use firn_model::cancel::Cancel;
use firn_model::columns::SeriesBatch;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::sample::{TimeRange, TimestampMs, is_stale};
use firn_model::series_limit::SeriesLimit;
use firn_model::store::SelectRequest;
use firn_model::tenant::TenantId;
use firn_model::trace::{Span, SpanContext, SpanKind};
use firn_promql::EvalTime;
use firn_rules::alerts::KeptSince;
use firn_rules::rule::Queries;
use tokio::time::Instant;

/// The name under which queries of rules are written down as active.
const HANDLER: &str = "rule";

/// Why a rule has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleQueryError {
    /// Its turn did not come, or the store is not there: to be tried again.
    #[error("{0}")]
    Later(String),
    /// It ran for too long, or failed.
    #[error("{0}")]
    Failed(String),
}

/// What a rule asks, for the queue and the file of active queries.
#[derive(Clone, Debug)]
pub struct RuleQuestion {
    /// Whose data.
    pub tenant: TenantId,
    /// The expression.
    pub expression: String,
    /// The time that it is about.
    pub time: TimestampMs,
    /// The group of the rule.
    pub group: RuleGroupName,
}

impl App {
    /// Runs `work` when it is the turn of rules, on a thread that may compute, with what answers
    /// its queries. The span is that of the evaluation, if it is in a trace: for what comes of it.
    pub async fn run_rule<T: Send + 'static>(
        &self,
        question: RuleQuestion,
        work: impl FnOnce(&mut dyn Queries) -> T + Send + 'static,
    ) -> Result<(T, Option<SpanContext>), RuleQueryError> {
        let work = |asking: &mut Asking<'_>| (work(asking), asking.span.clone());
        self.run_of_rule(&question, work).await
    }

    /// The newest sample of each series that `matchers` find in `range`, unless the series ended:
    /// what is kept about alerts.
    pub async fn kept_since(
        &self,
        question: RuleQuestion,
        matchers: Vec<Matcher>,
        range: TimeRange,
    ) -> Result<Vec<KeptSince>, RuleQueryError> {
        let read = self.run_of_rule(&question, move |asking| {
            kept_since(asking, &matchers, range)
        });
        read.await?.map_err(|e| RuleQueryError::Failed(e.message))
    }

    async fn run_of_rule<T: Send + 'static>(
        &self,
        question: &RuleQuestion,
        work: impl FnOnce(&mut Asking<'_>) -> T + Send + 'static,
    ) -> Result<T, RuleQueryError> {
        let later = |why: &str| RuleQueryError::Later(why.to_owned());
        let backend = self
            .backend()
            .map_err(|_| later("the store is not ready"))?;
        let options = self.parts.query.options(self.parts.query_log.is_on());
        let budget = self.budgets.query();
        let tenant = question.tenant.clone();
        let (engine, env) = (self.parts.engine.clone(), self.parts.env.clone());
        let mut span = self.span_of(question);
        let context = span.context();
        let store = backend.store.clone();
        let local = backend.local.clone();
        let log = self.parts.query_log.clone();
        let log = log
            .is_on()
            .then(|| (log, Origin::Rule(question.group.clone())));
        let asked_at = env.clock.monotonic();
        let job = move |cancel: &Cancel| {
            let mut asking = Asking {
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
                budget,
                cancel,
                held: Vec::new(),
            };
            work(&mut asking)
        };
        let time = EvalTime::Instant(question.time);
        let asked = Question::new(
            HANDLER,
            question.tenant.clone(),
            Client::Rules,
            std::iter::once(question.expression.as_str()),
            Some(time.into()),
        );
        let deadline = Instant::now() + self.limits().query_timeout;
        let outcome = self.run_queued(backend.active.clone(), asked, deadline, job);
        outcome.await.map_err(|e| {
            span.fail(e);
            match e {
                Unfinished::Waiting | Unfinished::Refused(_) => {
                    RuleQueryError::Later(e.to_string())
                }
                Unfinished::Running | Unfinished::Panicked => RuleQueryError::Failed(e.to_string()),
            }
        })
    }

    /// One evaluation of a rule, by Prometheus's name.
    fn span_of(&self, question: &RuleQuestion) -> Span {
        let name = || "rule".to_owned();
        let mut span = self.parts.tracer.begin(name, SpanKind::Internal, None);
        span.set("group", || question.group.name.as_str());
        span.set("expression", || question.expression.as_str());
        span
    }
}

fn kept_since(
    asking: &Asking<'_>,
    matchers: &[Matcher],
    range: TimeRange,
) -> Result<Vec<KeptSince>, Error> {
    let selection = asking.local.select(SelectRequest {
        tenant: asking.tenant,
        matchers,
        range,
        newest_only: true,
        cancel: asking.cancel,
        budget: &asking.budget,
        series: &SeriesLimit::none(),
        span: None,
    })?;
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch)?;
    let newest = |i: usize| {
        let series = batch.series(i);
        let (time, value) = (*series.times.last()?, *series.values.last()?);
        let labels: Labels = selection.labels(i);
        (!is_stale(value)).then_some(KeptSince {
            labels,
            time,
            value,
        })
    };
    Ok((0..selection.len()).filter_map(newest).collect())
}
