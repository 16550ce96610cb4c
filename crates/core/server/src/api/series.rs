//! `/api/v1/series`, `/api/v1/labels` and `/api/v1/label/<name>/values`: look-ups of series and
//! labels.
//!
//! Invariant: selectors are processed one after the other, and the memory of their results stays
//! reserved until the response is written.

use super::answer::{ListDocument, ResponseAnnotations, push_labels};
use super::call::ApiCall;
use super::form::{unescape_bytes, unescape_path};
use super::times::{TIME_MAX, TIME_MIN};
use crate::admission::run::QueryRun;
use crate::engine::QueryEngine;
use crate::http::failure::ApiFailure;
use crate::json;
use crate::watched::WatchedStore;
use axum::response::Response;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::matcher::Matcher;
use firn_model::order::{list_sort_bytes, sort_list_checked};
use firn_model::quote::quote;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{DeleteRequest, Select, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use firn_promql::value::PromqlError;
use std::collections::HashSet;
use std::sync::Arc;

/// Number of series between two checks of cancellation, the same as upstream's.
const SERIES_PER_CHECK: usize = 128;

/// Memory of a series in a selection, in bytes: its positions in the store and handles of a few
/// chunks.
const SELECTED_BYTES: usize = 128;

/// Overhead of the allocator per text or label set, in bytes.
const ALLOCATION_BYTES: usize = 16;

/// A look-up of series or labels. Several sets of matchers select the union of their series.
/// Created before the request enters the query queue.
pub(super) struct SeriesLookup {
    engine: Arc<dyn QueryEngine>,
    store: Arc<dyn Select>,
    tenant: TenantId,
    /// Unparsed values of `match[]`.
    selectors: Vec<String>,
    sets: Vec<Vec<Matcher>>,
    range: TimeRange,
    clock: Arc<dyn Clock>,
    /// Memory of the parsed matchers.
    parsed: Option<Reservation>,
}

impl SeriesLookup {
    fn new(call: &ApiCall) -> Result<Self, ApiFailure> {
        let min = call.form.time_or("start", TIME_MIN)?;
        let max = call.form.time_or("end", TIME_MAX)?;
        Self::with_range(call, TimeRange::new(min, max))
    }

    /// Creates a look-up with the selectors of the request and the time range `range`.
    pub(super) fn with_range(call: &ApiCall, range: TimeRange) -> Result<Self, ApiFailure> {
        Ok(Self {
            engine: call.app.parts.engine.clone(),
            store: call.backend.store.clone(),
            tenant: call.tenant.clone(),
            selectors: call.distinct_selectors()?,
            sets: Vec::new(),
            range,
            clock: call.app.parts.env.clock.clone(),
            parsed: None,
        })
    }

    /// Creates a look-up in the local store.
    pub(super) fn of_local(call: &ApiCall) -> Result<Self, ApiFailure> {
        let mut lookup = Self::new(call)?;
        lookup.store = call.backend.local.clone();
        Ok(lookup)
    }

    /// Parses the selectors for the query `run`. Must run in the query queue, because a regular
    /// expression may be long. Rejects a selector that matches the empty value of every label,
    /// because it would select all series.
    pub(super) fn parse(
        &mut self,
        run: &QueryRun,
        parameter: Option<&str>,
    ) -> Result<(), ApiFailure> {
        let memory = self.parsed.insert(run.budget().create_reservation());
        let engine = &self.engine;
        let selectors = self.selectors.iter();
        let sets = selectors.map(|text| engine.selector(text, memory));
        let sets = sets.collect::<Result<Vec<_>, PromqlError>>();
        let sets = sets.map_err(|e| ApiFailure::from_parser(e, parameter))?;
        let selects_all = |set: &Vec<Matcher>| set.iter().all(|matcher| matcher.matches(b""));
        if sets.iter().any(selects_all) {
            let why = "match[] must contain at least one non-empty matcher";
            return Err(ApiFailure::from_parser(
                PromqlError::Parse(why.into()),
                parameter,
            ));
        }
        for set in sets {
            if !self.sets.contains(&set) {
                self.sets.push(set);
            }
        }
        Ok(())
    }

    /// Calls `find` for each set of matchers, or once for all series if there are none.
    fn for_each_selector(
        &self,
        run: &Arc<QueryRun>,
        mut find: impl FnMut(&dyn Select, SelectRequest<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let every_series = [Vec::new()];
        let sets = if self.sets.is_empty() {
            &every_series[..]
        } else {
            &self.sets
        };
        let store = WatchedStore::new(self.store.clone(), run, self.clock.clone());
        for matchers in sets {
            let request = SelectRequest {
                tenant: &self.tenant,
                matchers,
                range: self.range,
                newest_only: false,
                cancel: run.cancel(),
                budget: run.budget(),
                series: &SeriesLimit::unlimited(),
                span: None,
            };
            find(&store, request)?;
        }
        Ok(())
    }

    /// Deletes the samples of the look-up.
    pub(super) fn delete(
        &self,
        run: &QueryRun,
        delete: &dyn Fn(DeleteRequest<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        delete(DeleteRequest {
            tenant: &self.tenant,
            sets: &self.sets,
            range: self.range,
            cancel: run.cancel(),
            budget: run.budget(),
        })
    }

    /// Counts the series with a sample in the range, and these samples.
    pub(super) fn count_samples(&self, run: &Arc<QueryRun>) -> Result<SeriesSampleCounts, Error> {
        let mut counts = SeriesSampleCounts::default();
        let mut known = HashSet::new();
        let mut held = run.budget().create_reservation();
        self.for_each_selector(run, |store, request| {
            let selection = store.select(request)?;
            let mut batch = SeriesBatch::default();
            for first in (0..selection.len()).step_by(SERIES_PER_CHECK) {
                run.cancel().check()?;
                let end = selection.len().min(first + SERIES_PER_CHECK);
                batch.clear();
                selection.read(first..end, &mut batch)?;
                for series in first..end {
                    let samples = batch.series(series - first).times.len() as u64;
                    // A series that several selectors select is counted once.
                    let is_counted = samples > 0
                        && (self.sets.len() == 1
                            || insert_series(&mut known, selection.labels(series), &mut held)?);
                    if is_counted {
                        counts.series += 1;
                        counts.samples += samples;
                    }
                }
            }
            Ok(())
        })?;
        Ok(counts)
    }

    /// Returns warnings about label names or values that may be missing.
    pub(super) fn annotations(&self) -> ResponseAnnotations {
        warnings(&self.store.label_loss_warnings(&self.tenant, self.range))
    }

    /// Returns the sorted union of the texts that `find` returns for each set of matchers.
    pub(super) fn texts(
        &self,
        run: &Arc<QueryRun>,
        find: impl Fn(&dyn Select, SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error>,
    ) -> Result<ReservedTexts, Error> {
        let mut held = run.budget().create_reservation();
        let mut texts = Vec::new();
        self.for_each_selector(run, |store, request| {
            let found = find(store, request)?;
            held.grow(texts_bytes(&found))?;
            texts.extend(found);
            // The lists of the store are sorted, so this merges two runs.
            texts.sort();
            texts.dedup();
            held.shrink_to(texts_bytes(&texts));
            Ok(())
        })?;
        Ok(ReservedTexts { texts, _held: held })
    }
}

fn warnings(losses: &DataLossWarnings) -> ResponseAnnotations {
    ResponseAnnotations {
        warnings: losses.texts(),
        infos: Vec::new(),
    }
}

/// Numbers of the series and samples of a look-up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeriesSampleCounts {
    pub(super) series: u64,
    pub(super) samples: u64,
}

/// Adds a label set to `known`. Returns whether it is new.
fn insert_series(
    known: &mut HashSet<Labels>,
    labels: Labels,
    held: &mut Reservation,
) -> Result<bool, Error> {
    held.grow(labels.as_bytes().len() + ALLOCATION_BYTES + 2 * size_of::<Labels>())?;
    Ok(known.insert(labels))
}

/// Sorted texts with the reservation of their memory, which is held until the response was sent.
pub(super) struct ReservedTexts {
    texts: Vec<Vec<u8>>,
    _held: Reservation,
}

impl ReservedTexts {
    pub(super) fn get(&self, index: usize) -> &[u8] {
        &self.texts[index]
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }
}

fn texts_bytes(texts: &[Vec<u8>]) -> usize {
    // A list that has grown may have twice the required capacity.
    let place = 2 * size_of::<Vec<u8>>() + ALLOCATION_BYTES;
    texts.iter().map(|text| place + text.len()).sum()
}

/// Returns the label sets of the selected series. At least one selector is mandatory.
pub(crate) async fn series(call: ApiCall) -> Result<Response, ApiFailure> {
    if let Some(error) = call.form.first_error() {
        return Err(ApiFailure::bad_data(format!(
            "error parsing form values: {error}"
        )));
    }
    if call.form.all("match[]").next().is_none() {
        return Err(ApiFailure::bad_data("no match[] parameter provided"));
    }
    let limit = call.form.limit()?;
    let mut lookup = SeriesLookup::new(&call)?;
    let (found, mut annotations) = call
        .compute(move |run| {
            lookup.parse(run, Some("match[]"))?;
            let found = ReservedSeries::look_up(&lookup, run).map_err(ApiFailure::execution)?;
            let annotations = warnings(&found.losses);
            Ok((found, annotations))
        })
        .await?;
    let len = truncated(found.len(), limit, &mut annotations);
    Ok(
        call.json(ListDocument::new(len, annotations, move |out, i| {
            push_labels(out, found.labels(i).as_ref());
        })),
    )
}

/// Found series with the reservation of their memory, which is held until the response was sent.
struct ReservedSeries {
    series: LookupSeries,
    /// Series that may be missing because of damage.
    losses: DataLossWarnings,
    _held: Reservation,
}

/// Series in the order of the store for a single set of matchers, or sorted for several.
enum LookupSeries {
    One(Arc<dyn Selection>),
    Merged(Vec<Labels>),
}

impl ReservedSeries {
    fn look_up(lookup: &SeriesLookup, run: &Arc<QueryRun>) -> Result<Self, Error> {
        let mut held = run.budget().create_reservation();
        let mut only = None;
        let mut merged = HashSet::new();
        let losses = DataLossWarnings::default();
        lookup.for_each_selector(run, |store, request| {
            let selection = store.select_labels(request)?;
            losses.add_all(&selection.loss_warnings());
            if lookup.sets.len() == 1 {
                held.grow(selection.len() * SELECTED_BYTES)?;
                only = Some(selection);
                return Ok(());
            }
            merge(&*selection, &mut merged, &mut held, run.cancel())
        })?;
        let series = match only {
            Some(only) => LookupSeries::One(only),
            None => {
                let mut merged: Vec<Labels> = merged.into_iter().collect();
                held.grow(list_sort_bytes(&merged))?;
                sort_list_checked(&mut merged, || run.cancel().check(), Labels::cmp)?;
                LookupSeries::Merged(merged)
            }
        };
        Ok(ReservedSeries {
            series,
            losses,
            _held: held,
        })
    }

    fn len(&self) -> usize {
        match &self.series {
            LookupSeries::One(selection) => selection.len(),
            LookupSeries::Merged(labels) => labels.len(),
        }
    }

    fn labels(&self, index: usize) -> Labels {
        match &self.series {
            LookupSeries::One(selection) => selection.labels(index),
            LookupSeries::Merged(labels) => labels[index].clone(),
        }
    }
}

/// Adds the label sets of a selection and reserves memory for the new ones.
fn merge(
    selection: &dyn Selection,
    merged: &mut HashSet<Labels>,
    held: &mut Reservation,
    cancel: &CancelToken,
) -> Result<(), Error> {
    // A set that has grown may have twice the required capacity, and is finally converted to a
    // list.
    const PLACE_BYTES: usize = 3 * size_of::<Labels>() + ALLOCATION_BYTES;
    let passing_bytes = selection.len() * SELECTED_BYTES;
    held.grow(passing_bytes)?;
    for start in (0..selection.len()).step_by(SERIES_PER_CHECK) {
        cancel.check()?;
        let mut new_bytes = 0;
        for i in start..selection.len().min(start + SERIES_PER_CHECK) {
            let labels = selection.labels(i);
            let bytes = labels.as_bytes().len() + PLACE_BYTES;
            if merged.insert(labels) {
                new_bytes += bytes;
            }
        }
        held.grow(new_bytes)?;
    }
    held.shrink_to(held.bytes() - passing_bytes);
    Ok(())
}

/// Returns the label names of the selected series, or of all series without a selector.
pub(crate) async fn label_names(call: ApiCall) -> Result<Response, ApiFailure> {
    let limit = call.form.limit()?;
    let mut lookup = SeriesLookup::new(&call)?;
    let (names, annotations) = call
        .compute(move |run| {
            lookup.parse(run, None)?;
            let names = lookup.texts(run, |store, request| {
                let names = store.label_names(request)?;
                Ok(names.into_iter().map(String::into_bytes).collect())
            });
            let names = names.map_err(ApiFailure::execution)?;
            Ok((names, lookup.annotations()))
        })
        .await?;
    Ok(texts_response(&call, names, annotations, limit))
}

/// Returns the values of one label in the selected series, or in all series without a selector.
pub(crate) async fn label_values(call: ApiCall) -> Result<Response, ApiFailure> {
    let name = label_of_path(&call.path)?;
    let limit = call.form.limit()?;
    let mut lookup = SeriesLookup::new(&call)?;
    let (values, annotations) = call
        .compute(move |run| {
            lookup.parse(run, None)?;
            let values = lookup.texts(run, |store, request| store.label_values(&name, request));
            let values = values.map_err(ApiFailure::execution)?;
            Ok((values, lookup.annotations()))
        })
        .await?;
    Ok(texts_response(&call, values, annotations, limit))
}

fn texts_response(
    call: &ApiCall,
    texts: ReservedTexts,
    mut annotations: ResponseAnnotations,
    limit: Option<usize>,
) -> Response {
    let len = truncated(texts.texts.len(), limit, &mut annotations);
    call.json(ListDocument::new(len, annotations, move |out, i| {
        json::push_html_string(out, texts.get(i));
    }))
}

fn truncated(len: usize, limit: Option<usize>, annotations: &mut ResponseAnnotations) -> usize {
    match limit {
        Some(limit) if len > limit => {
            annotations.add_truncated();
            limit
        }
        _ => len,
    }
}

/// Returns the label name in the path `.../label/<name>/values`. Decodes both percent escapes and
/// upstream's own escaping.
fn label_of_path(path: &str) -> Result<String, ApiFailure> {
    let segment = path.rsplit('/').nth(1).unwrap_or_default();
    let name = unescape_path(segment)?;
    let name = match name.strip_prefix("U__").and_then(unescape_label_name) {
        Some(unescaped) => unescaped,
        None => name,
    };
    // U+FFFD marks bytes that were not valid UTF-8.
    if name.is_empty() || name.contains(char::REPLACEMENT_CHARACTER) {
        let shown = if name.is_empty() {
            quote(b"")
        } else {
            quote(&unescape_bytes(segment))
        };
        return Err(ApiFailure::bad_data(format!("invalid label name: {shown}")));
    }
    Ok(name)
}

/// Decodes upstream's escaping of label names: `__` is an underscore and `_2e_` the character
/// U+002E. Returns `None` if `escaped`, the text after `U__`, is malformed.
fn unescape_label_name(escaped: &str) -> Option<String> {
    const CODE_DIGITS_MAX: usize = 5;
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find('_') {
        name.push_str(&rest[..at]);
        let (code, tail) = rest[at + 1..].split_once('_')?;
        rest = tail;
        if code.is_empty() {
            name.push('_');
            continue;
        }
        let is_code = code.len() <= CODE_DIGITS_MAX && code.bytes().all(|b| b.is_ascii_hexdigit());
        let code = u32::from_str_radix(code, 16).ok().filter(|_| is_code)?;
        name.push(char::from_u32(code)?);
    }
    name.push_str(rest);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_path_undoes_both_escapings() {
        let cases = [
            ("/api/v1/label/job/values", "job"),
            ("/p/api/v1/label/U__http_2e_status/values", "http.status"),
            ("/api/v1/label/U__a__b/values", "a_b"),
            ("/api/v1/label/U___1F600_/values", "\u{1f600}"),
            ("/api/v1/label/U__broken_2e/values", "U__broken_2e"),
            ("/api/v1/label/U__broken_xyz_/values", "U__broken_xyz_"),
            ("/api/v1/label/U__long_000041_/values", "U__long_000041_"),
            ("/api/v1/label/a%2Fb%20c+d/values", "a/b c+d"),
        ];
        for (path, want) in cases {
            assert_eq!(label_of_path(path), Ok(want.to_owned()), "{path}");
        }
        for path in ["/api/v1/label//values", "/api/v1/label/%ff/values"] {
            let refused = label_of_path(path).unwrap_err();
            assert!(
                refused.message.starts_with("invalid label name: "),
                "{refused:?}"
            );
        }
    }
}
