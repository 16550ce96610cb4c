//! POST `/api/v1/rules/preview`, an extension of Firn: a rule of the request is evaluated over a
//! past time range, with the limits of a query.
//!
//! ```text
//! expression -- one range query --> vector at each instant --> firn_rules::preview
//!           `-- an instant query for each instant, where the range would change values
//! ```

use super::call::ApiCall;
use super::query::{check_steps, timeout};
use super::refusals::{QueryLanguage, check_ranges, check_texts};
use super::rules::format_time;
use super::status::json_document;
use super::targets::{LabelMap, label_map};
use crate::admission::run::QueryRun;
use crate::asking::QuerySession;
use crate::http::failure::ApiFailure;
use axum::response::Response;
use firn_model::cancel::CancelToken;
use firn_model::go_float::format_scientific;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_promql::ast::Expr;
use firn_promql::steps::newest_read;
use firn_promql::value::{MatrixSeries, QueryPointValue, QueryValue, VectorElement};
use firn_promql::{EvalTime, Options};
use firn_rules::file::{self, Texts};
use firn_rules::instant::RuleInstant;
use firn_rules::preview::{
    AlertPeriod, PreviewedAlert, RecordedSeries, RulePreview, RulePreviewError, RulePreviewOutcome,
    RulePreviewTimes, preview_rule,
};
use firn_rules::rule::{Rule, RuleQuerier, TemplateServerSettings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const NANOS_PER_MS: i64 = 1_000_000;

/// Maximum number of series in the response of a recording rule; all are counted.
const SERIES_LISTED_MAX: usize = 1_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RulePreviewDocument {
    r#type: &'static str,
    name: String,
    query: String,
    /// Time between evaluations in seconds.
    interval: f64,
    evaluations: usize,
    failed_evaluations: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(flatten)]
    outcome: RulePreviewOutcomeDocument,
}

#[derive(Serialize)]
#[serde(untagged)]
enum RulePreviewOutcomeDocument {
    #[serde(rename_all = "camelCase")]
    Alerting {
        /// Number of periods in which an alert fired.
        firings: usize,
        /// Sum of the durations for which the alerts fired within the range.
        firing_seconds: f64,
        alerts: Vec<PreviewedAlertDocument>,
    },
    #[serde(rename_all = "camelCase")]
    Recording {
        series_count: usize,
        sample_count: usize,
        /// The first series in the order of their labels.
        series: Vec<RecordedSeriesDocument>,
    },
}

#[derive(Serialize)]
struct PreviewedAlertDocument {
    labels: LabelMap,
    annotations: BTreeMap<String, String>,
    periods: Vec<AlertPeriodDocument>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlertPeriodDocument {
    active_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fired_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    value: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordedSeriesDocument {
    labels: LabelMap,
    samples: usize,
    /// Value of the newest sample; absent for a histogram.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_value: Option<String>,
}

/// Evaluates the rule of the request and returns its alerts or series.
pub(crate) async fn preview(call: ApiCall) -> Result<Response, ApiFailure> {
    let defaults = (call.app.parts.rule_defaults)();
    let rule = parse_rule(call.form.get("rule"), defaults.options)?;
    let times = read_times(&call, defaults.query_offset)?;
    let begin = times
        .first_evaluation(&rule)
        .before(times.query_offset)
        .ms();
    let interval_ns = i64::try_from(times.interval.as_nanos()).unwrap_or(i64::MAX);
    check_steps(
        begin,
        times.end.ms(),
        interval_ns,
        call.app.limits().steps_max,
    )?;
    check_ranges(&call, [TimeRange::new(begin, times.end.ms())])?;
    let texts = [rule.query.clone()];
    check_texts(&call, &texts, QueryLanguage::Promql).await?;
    let deadline = Instant::now() + timeout(&call)?;
    let job = preview_job(&call, rule, times);
    let document = call.compute_asking(&texts, deadline, job).await?;
    Ok(call.json(document))
}

fn parse_rule(text: &str, options: file::RuleFileOptions) -> Result<Rule, ApiFailure> {
    let failure = |errors: Vec<file::RuleParseError>| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        ApiFailure::parameter("rule", errors.join("\n"))
    };
    let definition = file::parse_rule(text, options).map_err(failure)?;
    Rule::new(&definition, &Texts::new(), options.features)
        .map_err(|e| ApiFailure::parameter("rule", e))
}

fn read_times(call: &ApiCall, query_offset: Duration) -> Result<RulePreviewTimes, ApiFailure> {
    let (start, end) = (call.form.time("start")?, call.form.time("end")?);
    if end < start {
        let why = "end timestamp must not be before start time";
        return Err(ApiFailure::parameter("end", why));
    }
    let default_ms = (call.app.parts.query.default_subquery_step_ms)();
    let interval_ns = match call.form.get("interval") {
        "" => default_ms.saturating_mul(NANOS_PER_MS),
        _ => call.form.duration_nanos("interval")?,
    };
    if interval_ns < NANOS_PER_MS || interval_ns % NANOS_PER_MS != 0 {
        let why = format!(
            "expected whole milliseconds, got {:?}",
            call.form.get("interval")
        );
        return Err(ApiFailure::parameter("interval", why));
    }
    let query_offset = match call.form.get("query_offset") {
        "" => query_offset,
        _ => {
            let nanos = call.form.duration_nanos("query_offset")?;
            let nanos = u64::try_from(nanos)
                .map_err(|_| ApiFailure::parameter("query_offset", "must not be negative"))?;
            Duration::from_nanos(nanos)
        }
    };
    Ok(RulePreviewTimes {
        start: RuleInstant::from_ms(start),
        end: RuleInstant::from_ms(end),
        interval: Duration::from_nanos(interval_ns.unsigned_abs()),
        query_offset,
    })
}

/// Returns the job that evaluates the rule in the query queue and encodes the result.
fn preview_job(
    call: &ApiCall,
    rule: Rule,
    times: RulePreviewTimes,
) -> impl FnOnce(&Arc<QueryRun>) -> Result<axum::body::Bytes, ApiFailure> + Send + 'static {
    let (app, backend, tenant) = (call.app.clone(), call.backend.clone(), call.tenant.clone());
    let (origin, trace) = (call.origin(), call.trace());
    let asked_at = app.parts.env.clock.monotonic();
    move |run| {
        let (clock, log) = (&app.parts.env.clock, &app.parts.query_log);
        let session = QuerySession {
            log: log.is_on().then(|| (log.clone(), origin)),
            // The store creates the spans of this request.
            span: None,
            trace,
            queue: clock.monotonic().saturating_sub(asked_at),
            engine: app.parts.engine.clone(),
            store: backend.store.clone(),
            local: backend.local.clone(),
            env: app.parts.env.clone(),
            tenant: &tenant,
            options: app.parts.query.options(&tenant, log.is_on()),
            run,
            held: Vec::new(),
        };
        let outside = TemplateServerSettings {
            external_labels: (app.parts.external_labels)(),
            external_url: backend.outside.url.clone(),
            path_prefix: backend.outside.path.clone(),
        };
        let mut queries = PastQuerier::new(session, &rule, &times);
        let preview = preview_rule(&rule, &times, &outside, &mut queries).map_err(|e| match e {
            RulePreviewError::Cancelled(_) => match run.cancel().check() {
                Err(cause) => ApiFailure::execution(cause),
                Ok(()) => ApiFailure::internal(e.to_string()),
            },
            RulePreviewError::TooMany(_) => ApiFailure::bad_data(e.to_string()),
        })?;
        json_document(&document(&rule, &times, preview))
    }
}

/// Answers the queries of a preview. The expression of the rule is evaluated once over the whole
/// range if that gives the same values as an evaluation at each instant.
struct PastQuerier<'a> {
    session: QuerySession<'a>,
    steps: Option<MatrixSteps>,
    /// Number of reservations of the session that belong to `steps`.
    held_count: usize,
}

impl<'a> PastQuerier<'a> {
    fn new(mut session: QuerySession<'a>, rule: &Rule, times: &RulePreviewTimes) -> Self {
        let steps = evaluate_steps(&mut session, rule, times);
        if steps.is_none() {
            // A log entry for each instant would hide those of other queries.
            session.log = None;
        }
        Self {
            held_count: session.held.len(),
            session,
            steps,
        }
    }
}

impl RuleQuerier for PastQuerier<'_> {
    fn query_expr(&mut self, expr: &Expr, at: TimestampMs) -> Result<QueryValue, String> {
        // The results of the previous instant are no longer used.
        self.session.held.truncate(self.held_count);
        match &mut self.steps {
            Some(steps) => Ok(QueryValue::Vector(steps.take_vector(at))),
            None => self.session.query_expr(expr, at),
        }
    }

    fn query_text(&mut self, text: &str, at: TimestampMs) -> Result<QueryValue, String> {
        self.session.query_text(text, at)
    }

    fn cancel(&self) -> &CancelToken {
        self.session.cancel()
    }
}

/// Evaluates the expression over the whole range. Returns `None` if its values may differ from
/// those at single instants, or if it fails at an instant, which leaves the others to be evaluated.
fn evaluate_steps(
    session: &mut QuerySession<'_>,
    rule: &Rule,
    times: &RulePreviewTimes,
) -> Option<MatrixSteps> {
    newest_read(&rule.expr, session.options.features)?;
    let options = Options {
        detects_range_dependence: true,
        ..session.options
    };
    let ms = |instant: RuleInstant| instant.before(times.query_offset).ms();
    let time = EvalTime::range(
        ms(times.first_evaluation(rule)),
        ms(times.end),
        i64::try_from(times.interval.as_millis()).ok()?,
    );
    let result = session.query_range(&rule.expr, time, &options).ok()?;
    match result.value {
        QueryValue::Matrix(series) if !result.depends_on_range => {
            session.held.push(result.memory);
            Some(MatrixSteps::new(series))
        }
        _ => None,
    }
}

/// The result of a range query, read one step after the other.
struct MatrixSteps {
    series: Vec<MatrixCursor>,
}

struct MatrixCursor {
    series: MatrixSeries,
    /// Number of floats and histograms before the next step.
    floats_read: usize,
    histograms_read: usize,
}

impl MatrixSteps {
    fn new(series: Vec<MatrixSeries>) -> Self {
        let cursors = series.into_iter().map(|series| MatrixCursor {
            series,
            floats_read: 0,
            histograms_read: 0,
        });
        Self {
            series: cursors.collect(),
        }
    }

    /// Returns the vector at the step `at`, which is later than that of the previous call.
    fn take_vector(&mut self, at: TimestampMs) -> Vec<VectorElement> {
        let elements = self.series.iter_mut().filter_map(|cursor| {
            Some(VectorElement {
                value: cursor.take_value(at)?,
                labels: cursor.series.labels.clone(),
                time: at,
            })
        });
        elements.collect()
    }
}

impl MatrixCursor {
    fn take_value(&mut self, at: TimestampMs) -> Option<QueryPointValue> {
        if let Some(&(time, value)) = self.series.floats.get(self.floats_read)
            && time == at
        {
            self.floats_read += 1;
            return Some(QueryPointValue::Float(value));
        }
        let (time, histogram) = self.series.histograms.get(self.histograms_read)?;
        if *time != at {
            return None;
        }
        self.histograms_read += 1;
        Some(QueryPointValue::Histogram(histogram.clone()))
    }
}

fn document(rule: &Rule, times: &RulePreviewTimes, preview: RulePreview) -> RulePreviewDocument {
    let is_alerting = matches!(preview.outcome, RulePreviewOutcome::Alerting(_));
    RulePreviewDocument {
        r#type: if is_alerting { "alerting" } else { "recording" },
        name: rule.name.clone(),
        query: rule.query.clone(),
        interval: times.interval.as_secs_f64(),
        evaluations: preview.evaluation_count,
        failed_evaluations: preview.failure_count,
        last_error: preview.last_error,
        outcome: match preview.outcome {
            RulePreviewOutcome::Alerting(alerts) => {
                let periods = || alerts.values().flat_map(|alert| &alert.periods);
                let firing = periods().map(|period| firing_time(period, times));
                RulePreviewOutcomeDocument::Alerting {
                    firings: periods().filter(|p| p.fired_at.is_some()).count(),
                    firing_seconds: firing.sum::<Duration>().as_secs_f64(),
                    alerts: alerts
                        .iter()
                        .map(|(labels, alert)| {
                            PreviewedAlertDocument::new(label_map(labels), alert)
                        })
                        .collect(),
                }
            }
            RulePreviewOutcome::Recording(series) => RulePreviewOutcomeDocument::Recording {
                series_count: series.len(),
                sample_count: series.values().map(|series| series.sample_count).sum(),
                series: series
                    .iter()
                    .take(SERIES_LISTED_MAX)
                    .map(|(labels, series)| RecordedSeriesDocument::new(label_map(labels), series))
                    .collect(),
            },
        },
    }
}

/// Returns for how long an alert fires in a period, within the range.
fn firing_time(period: &AlertPeriod, times: &RulePreviewTimes) -> Duration {
    let end = period.ended_at.unwrap_or(times.end);
    match period.fired_at {
        Some(fired) => end.since(fired.max(times.start)),
        None => Duration::ZERO,
    }
}

impl PreviewedAlertDocument {
    fn new(labels: LabelMap, alert: &PreviewedAlert) -> Self {
        let time = |instant| format_time(Some(instant));
        let period = |period: &AlertPeriod| AlertPeriodDocument {
            active_at: time(period.active_at),
            fired_at: period.fired_at.map(time),
            ended_at: period.ended_at.map(time),
            value: format_scientific(period.value),
        };
        Self {
            labels,
            annotations: alert.annotations.iter().cloned().collect(),
            periods: alert.periods.iter().map(period).collect(),
        }
    }
}

impl RecordedSeriesDocument {
    fn new(labels: LabelMap, series: &RecordedSeries) -> Self {
        Self {
            labels,
            samples: series.sample_count,
            last_value: match &series.last_value {
                QueryPointValue::Float(value) => Some(format_scientific(*value)),
                QueryPointValue::Histogram(_) => None,
            },
        }
    }
}
