//! `/api/v1/cardinality/...`: numbers of series and values by label, with Mimir's parameters,
//! documents and error texts.
//!
//! Invariant: labels are counted one after the other, so that the memory is that of the selection
//! and of one column. Series count if they have a sample in the time range of the request or,
//! without one, of the count method.

use super::answer::push_labels;
use super::call::{ApiCall, not_ready};
use super::form::{RequestForm, parse_integer};
use super::times::{TIME_MAX, TIME_MIN};
use crate::admission::run::QueryRun;
use crate::app::ServerApp;
use crate::http::failure::ApiFailure;
use crate::http::produce::RenderedText;
use crate::metrics::ServerEndpoint;
use crate::watched::WatchedStore;
use axum::extract::Request;
use axum::response::Response;
use firn_model::budget::Reservation;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::error::Error;
use firn_model::matcher::Matcher;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Select, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use firn_promql::value::PromqlError;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Default and maximum number of entries of a list, the same as Mimir's.
const LIMIT: i64 = 20;
const LIMIT_MAX: i64 = 500;

/// Maximum age of the newest sample of a series in memory, in milliseconds: the time of one block.
const IN_MEMORY_MS: i64 = 2 * 3_600_000;

/// Maximum age of the newest sample of an active series, in milliseconds, the same as Mimir's
/// default.
const ACTIVE_MS: i64 = 20 * 60_000;

/// Number of series whose newest samples are read at once.
const SERIES_PER_READ: usize = 1024;

/// Memory of a value in a list, in bytes, beside its text.
const VALUE_BYTES: usize = 2 * size_of::<LabelValueDocument>();

/// Parameters of a request.
struct CardinalityRequest {
    selector: String,
    /// Values of `label_names[]`.
    names: Vec<String>,
    /// Range of time in which counted series have a sample.
    range: TimeRange,
    /// Another range, whose counts are returned beside those of `range`.
    baseline: Option<TimeRange>,
    limit: usize,
}

impl CardinalityRequest {
    /// Reads the parameters of a request that arrived at `now`.
    fn read(
        call: &ApiCall,
        endpoint: ServerEndpoint,
        now: TimestampMs,
    ) -> Result<Self, ApiFailure> {
        let bad = |why: String| Err(ApiFailure::bad_data(why));
        if call.form.all("selector").count() > 1 {
            return bad("multiple 'selector' params are not allowed".to_owned());
        }
        let age_ms = match call.form.get("count_method") {
            _ if endpoint == ServerEndpoint::Series => ACTIVE_MS,
            "" | "inmemory" => IN_MEMORY_MS,
            "active" => ACTIVE_MS,
            other => {
                return bad(format!(
                    "invalid 'count_method' param '{other}'. valid options are: [inmemory,active]"
                ));
            }
        };
        let range = read_range(&call.form, "start", "end")?;
        let latest = TimeRange::new(now.saturating_sub(age_ms), i64::MAX);
        let limit = match call.form.get("limit") {
            "" => LIMIT,
            text => parse_integer(text).map_err(ApiFailure::bad_data)?,
        };
        if limit < 0 {
            return bad("'limit' param cannot be less than '0'".to_owned());
        }
        if limit > LIMIT_MAX {
            return bad(format!(
                "'limit' param cannot be greater than '{LIMIT_MAX}'"
            ));
        }
        Ok(Self {
            selector: call.form.get("selector").to_owned(),
            names: call.form.all("label_names[]").map(str::to_owned).collect(),
            range: range.unwrap_or(latest),
            baseline: read_range(&call.form, "baseline_start", "baseline_end")?,
            limit: limit as usize,
        })
    }
}

/// Reads the time range between two parameters. Returns `None` if both are missing.
fn read_range(form: &RequestForm, start: &str, end: &str) -> Result<Option<TimeRange>, ApiFailure> {
    if form.get(start).is_empty() && form.get(end).is_empty() {
        return Ok(None);
    }
    let (from, to) = (form.time_or(start, TIME_MIN)?, form.time_or(end, TIME_MAX)?);
    if to < from {
        let why = "end timestamp must not be before start timestamp";
        return Err(ApiFailure::parameter(end, why));
    }
    Ok(Some(TimeRange::new(from, to)))
}

#[derive(Serialize)]
struct LabelNamesDocument {
    label_values_count_total: usize,
    label_names_count: usize,
    cardinality: Vec<LabelNameDocument>,
}

#[derive(Serialize)]
struct LabelNameDocument {
    label_name: String,
    label_values_count: usize,
}

#[derive(Serialize)]
struct LabelValuesDocument {
    series_count_total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_series_count_total: Option<usize>,
    labels: Vec<LabelDocument>,
}

#[derive(Serialize)]
struct LabelDocument {
    label_name: String,
    label_values_count: usize,
    series_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_series_count: Option<u64>,
    cardinality: Vec<LabelValueDocument>,
}

#[derive(Serialize)]
struct LabelValueDocument {
    label_value: String,
    series_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_series_count: Option<u64>,
}

impl LabelValueDocument {
    /// Returns the difference to the baseline. Without one it is the number of series.
    fn change(&self) -> u64 {
        let baseline = self.baseline_series_count.unwrap_or(0);
        self.series_count.abs_diff(baseline)
    }
}

/// Returns the number of values of each label name.
pub(crate) async fn label_names(app: ServerApp, request: Request) -> Response {
    respond(&app, request, ServerEndpoint::Labels, |series, request| {
        let mut labels = Vec::new();
        for name in series.names()? {
            let label_values_count = series.count_values(&name)?;
            if label_values_count > 0 {
                labels.push(LabelNameDocument {
                    label_name: name,
                    label_values_count,
                });
            }
        }
        // Stable: labels with equal counts stay in the order of their names.
        labels.sort_by_key(|label| std::cmp::Reverse(label.label_values_count));
        let label_names_count = labels.len();
        let counts = labels.iter().map(|label| label.label_values_count);
        let label_values_count_total = counts.sum();
        labels.truncate(request.limit);
        encode(&LabelNamesDocument {
            label_values_count_total,
            label_names_count,
            cardinality: labels,
        })
    })
    .await
}

/// Returns the number of series of each value of the labels `label_names[]`.
pub(crate) async fn label_values(app: ServerApp, request: Request) -> Response {
    respond(
        &app,
        request,
        ServerEndpoint::LabelValues,
        |series, request| {
            if request.names.is_empty() {
                return Err(ApiFailure::bad_data("'label_names[]' param is required"));
            }
            let baseline = request.baseline.map(|range| series.find_in(range));
            let mut baseline = baseline.transpose().map_err(ApiFailure::execution)?;
            let mut labels = Vec::new();
            for name in &request.names {
                labels.push(count_label(series, baseline.as_mut(), name, request.limit)?);
            }
            labels.sort_by(|a, b| {
                let by_count = b.series_count.cmp(&a.series_count);
                by_count.then_with(|| a.label_name.cmp(&b.label_name))
            });
            encode(&LabelValuesDocument {
                series_count_total: series.indexes.len(),
                baseline_series_count_total: baseline.map(|baseline| baseline.indexes.len()),
                labels,
            })
        },
    )
    .await
}

/// Counts the series of each value of a label, and those of the baseline if there is one.
fn count_label(
    series: &mut CountedSeries,
    baseline: Option<&mut CountedSeries>,
    name: &str,
    limit: usize,
) -> Result<LabelDocument, ApiFailure> {
    let mut values = series.values(name)?;
    let label_values_count = values.len();
    let series_count = values.iter().map(|value| value.series_count).sum();
    let mut baseline_series_count = None;
    if let Some(baseline) = baseline {
        let before = baseline.values(name)?;
        baseline_series_count = Some(before.iter().map(|value| value.series_count).sum());
        join_baseline(&mut values, before);
    }
    values.sort_by(|a, b| {
        let by_change = b.change().cmp(&a.change());
        by_change.then_with(|| a.label_value.cmp(&b.label_value))
    });
    values.truncate(limit);
    Ok(LabelDocument {
        label_name: name.to_owned(),
        label_values_count,
        series_count,
        baseline_series_count,
        cardinality: values,
    })
}

/// Sets the baseline of each value, and adds the values that only the baseline has.
fn join_baseline(values: &mut Vec<LabelValueDocument>, before: Vec<LabelValueDocument>) {
    let before = before.into_iter();
    let mut counts: HashMap<String, u64> = before
        .map(|value| (value.label_value, value.series_count))
        .collect();
    for value in values.iter_mut() {
        value.baseline_series_count = Some(counts.remove(&value.label_value).unwrap_or(0));
    }
    let gone = counts.into_iter();
    values.extend(gone.map(|(label_value, count)| LabelValueDocument {
        label_value,
        series_count: 0,
        baseline_series_count: Some(count),
    }));
}

/// Returns the label sets of the selected series with a sample in the range of the request, by
/// default the active ones.
pub(crate) async fn active_series(app: ServerApp, request: Request) -> Response {
    respond(&app, request, ServerEndpoint::Series, |series, request| {
        if request.selector.is_empty() {
            return Err(ApiFailure::bad_data("missing 'selector' parameter"));
        }
        let mut out = br#"{"data":["#.to_vec();
        for (i, index) in series.indexes.iter().enumerate() {
            if i % SERIES_PER_READ == 0 {
                series
                    .select
                    .run
                    .cancel()
                    .check()
                    .map_err(ApiFailure::execution)?;
                let more = out.capacity().saturating_sub(series.memory.bytes());
                series.memory.grow(more).map_err(ApiFailure::execution)?;
            }
            if i > 0 {
                out.push(b',');
            }
            push_labels(&mut out, series.selection.labels(*index).as_ref());
        }
        out.extend_from_slice(b"]}");
        Ok(out)
    })
    .await
}

fn encode(document: &impl Serialize) -> Result<Vec<u8>, ApiFailure> {
    serde_json::to_vec(document).map_err(|e| ApiFailure::internal(e.to_string()))
}

/// Answers a request with the document that `count` returns. Errors are plain text, as in Mimir.
async fn respond(
    app: &ServerApp,
    request: Request,
    endpoint: ServerEndpoint,
    count: impl FnOnce(&mut CountedSeries, &CardinalityRequest) -> Result<Vec<u8>, ApiFailure>
    + Send
    + 'static,
) -> Response {
    let backend = match app.backend() {
        Ok(backend) => backend,
        Err(state) => return not_ready(state),
    };
    let answer = async {
        let call = ApiCall::read(app, backend, endpoint, request).await?;
        let now = app.parts.env.clock.now_ms();
        let asked = CardinalityRequest::read(&call, endpoint, now)?;
        let (app, store, tenant) = (app.clone(), call.backend.store.clone(), call.tenant.clone());
        let deadline = Instant::now() + app.query_timeout(&call.tenant);
        let texts = [asked.selector.clone()];
        let document = call.compute_asking(&texts, deadline, move |run| {
            let clock = app.parts.env.clock.clone();
            let mut memory = run.budget().create_reservation();
            let mut matchers = Vec::new();
            if !asked.selector.is_empty() {
                let parsed = app.parts.engine.selector(&asked.selector, &mut memory);
                matchers = parsed.map_err(|e: PromqlError| ApiFailure::from_parser(e, None))?;
            }
            let select = SeriesSelector {
                store: WatchedStore::new(store, run, clock),
                tenant,
                matchers,
                run: run.clone(),
            };
            let series = CountedSeries::find(Arc::new(select), asked.range, memory);
            let mut series = series.map_err(ApiFailure::execution)?;
            let text = count(&mut series, &asked)?;
            Ok(RenderedText::new(text, series.memory))
        });
        Ok(call.json(document.await?))
    };
    answer.await.unwrap_or_else(ApiFailure::into_plain)
}

/// The series that a request selects.
struct SeriesSelector {
    store: WatchedStore,
    tenant: TenantId,
    matchers: Vec<Matcher>,
    run: Arc<QueryRun>,
}

impl SeriesSelector {
    /// Calls `find` with a request for the series in a range.
    fn look_up<T>(
        &self,
        range: TimeRange,
        find: impl FnOnce(&WatchedStore, SelectRequest<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let request = SelectRequest {
            tenant: &self.tenant,
            matchers: &self.matchers,
            range,
            newest_only: true,
            cancel: self.run.cancel(),
            budget: self.run.budget(),
            series: &SeriesLimit::unlimited(),
            span: None,
        };
        find(&self.store, request)
    }
}

/// Selected series with a sample in the range, as indexes of a selection.
struct CountedSeries {
    select: Arc<SeriesSelector>,
    range: TimeRange,
    selection: Arc<dyn Selection>,
    indexes: Vec<usize>,
    memory: Reservation,
}

impl CountedSeries {
    fn find(
        select: Arc<SeriesSelector>,
        range: TimeRange,
        mut memory: Reservation,
    ) -> Result<Self, Error> {
        let selection = select.look_up(range, |store, request| store.select(request))?;
        memory.grow(selection.len() * size_of::<usize>())?;
        let mut indexes = Vec::with_capacity(selection.len());
        let mut batch = SeriesBatch::default();
        for start in (0..selection.len()).step_by(SERIES_PER_READ) {
            select.run.cancel().check()?;
            let read = start..selection.len().min(start + SERIES_PER_READ);
            batch.clear();
            selection.read(read.clone(), &mut batch)?;
            let has_samples = |index: &usize| !batch.series(index - start).times.is_empty();
            indexes.extend(read.filter(has_samples));
        }
        Ok(Self {
            select,
            range,
            selection,
            indexes,
            memory,
        })
    }

    /// Returns the series of the same selector in another range.
    fn find_in(&self, range: TimeRange) -> Result<Self, Error> {
        let memory = self.select.run.budget().create_reservation();
        Self::find(self.select.clone(), range, memory)
    }

    /// Returns the label names of the series, sorted.
    fn names(&self) -> Result<Vec<String>, ApiFailure> {
        let names = self
            .select
            .look_up(self.range, |store, request| store.label_names(request));
        names.map_err(ApiFailure::execution)
    }

    /// Returns the number of values of one label.
    fn count_values(&mut self, name: &str) -> Result<usize, ApiFailure> {
        self.read_column(name, |column, _| Ok(column.values().count()))
    }

    /// Returns the values of one label with their numbers of series.
    fn values(&mut self, name: &str) -> Result<Vec<LabelValueDocument>, ApiFailure> {
        self.read_column(name, |column, memory| {
            let texts = column.values().map(|(value, _)| VALUE_BYTES + value.len());
            memory.grow(texts.sum())?;
            let document = |(value, series_count): (&[u8], u64)| LabelValueDocument {
                label_value: String::from_utf8_lossy(value).into_owned(),
                series_count,
                baseline_series_count: None,
            };
            Ok(column.values().map(document).collect())
        })
    }

    /// Calls `read` with the column of a label, whose memory and that of the result is reserved in
    /// the meantime.
    fn read_column<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&CountedColumn, &mut Reservation) -> Result<T, Error>,
    ) -> Result<T, ApiFailure> {
        let held = self.memory.bytes();
        let column = self.count_series(name);
        let outcome = column.and_then(|column| read(&column, &mut self.memory));
        self.memory.shrink_to(held);
        outcome.map_err(ApiFailure::execution)
    }

    fn count_series(&mut self, name: &str) -> Result<CountedColumn, Error> {
        let (cancel, memory) = (self.select.run.cancel(), &mut self.memory);
        let column = self.selection.label_column(name, cancel, memory)?;
        memory.grow(column.values.len() * size_of::<u64>())?;
        let mut counts = vec![0; column.values.len()];
        for index in &self.indexes {
            counts[column.ids[*index] as usize] += 1;
        }
        Ok(CountedColumn { column, counts })
    }
}

/// A label of the selected series, with the number of counted series of each value.
struct CountedColumn {
    column: LabelColumn,
    counts: Vec<u64>,
}

impl CountedColumn {
    /// Returns the values of counted series with their numbers of series, without the empty value.
    fn values(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let values = self.column.values.iter().map(|value| &**value);
        let counted = values.zip(self.counts.iter().copied());
        counted.filter(|(value, count)| *count > 0 && !value.is_empty())
    }
}
