//! `/api/v1/search/...`: fuzzy search for metric names, label names and label values, for
//! autocompletion.
//!
//! ```text
//! {"results":[{"name":"up","score":1},...],"warnings":[...]}     one line per batch, at least one
//! {"status":"success","has_more":false}                          last line
//! ```
//!
//! Parameters, errors and lines follow upstream (`web/api/v1/search.go`). All results are scored
//! and sorted before the first line is written; lines are rendered while the client reads them.

mod scores;

use self::scores::{FuzzyAlgorithm, SearchTermFilter};
use super::call::ApiCall;
use super::form::{parse_bool, parse_integer};
use super::metadata::first_of_each_metric;
use super::series::{ReservedTexts, SeriesLookup};
use super::times::parse_time;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::http::produce::ResponseProducer;
use crate::json::push_html_string;
use axum::response::Response;
use firn_ingest::metadata::FamilyMetadata;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::METRIC_NAME;
use firn_model::order::sort_list_checked;
use firn_model::quote::quote;
use firn_model::sample::{TimeRange, TimestampMs};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Default time range of a search in milliseconds, the same as upstream's.
const SPAN_MS: i64 = 3_600_000;

/// Default number of results and of results per line, the same as upstream's.
const LIMIT: usize = 100;

/// Maximum number of search terms in a request, the same as upstream's.
const TERMS_MAX: usize = 32;

/// Returns the names of the search algorithms, for error messages and `/api/v1/features`.
pub(crate) fn algorithms() -> impl Iterator<Item = &'static str> {
    FuzzyAlgorithm::ALL.iter().map(|(name, _)| *name)
}

/// Sort order of the results: by text in either direction, or by score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchOrder {
    Ascending,
    Descending,
    ByScore,
}

/// Parameters of a search, without its time range and selectors. Validated before the search runs.
struct SearchParameters {
    filter: SearchTermFilter,
    order: SearchOrder,
    shows_scores: bool,
    limit: usize,
    batch: usize,
}

/// Texts that are searched: label names, or the values of one label.
enum SearchScope {
    Names,
    Values(String),
}

/// Searches metric names of the selected series, optionally with their metadata.
pub(crate) async fn metric_names(call: ApiCall) -> Result<Response, ApiFailure> {
    let range = parse_range(&call)?;
    let shows_metadata = flag(&call, "include_metadata", false);
    let metadata = match shows_metadata {
        Ok(true) => first_of_each_metric(&call),
        _ => BTreeMap::new(),
    };
    let search = SearchParameters::from_form(&call, "metric_names");
    let search = search.and_then(|search| shows_metadata.map(|_| search));
    let among = SearchScope::Values(METRIC_NAME.to_owned());
    answer(call, range, search, among, "name", metadata).await
}

/// Searches label names of the selected series in the time range.
pub(crate) async fn label_names(call: ApiCall) -> Result<Response, ApiFailure> {
    let range = parse_range(&call)?;
    let search = SearchParameters::from_form(&call, "label_names");
    let among = SearchScope::Names;
    answer(call, range, search, among, "name", BTreeMap::new()).await
}

/// Searches the values of the label in the parameter `label`, which is mandatory.
pub(crate) async fn label_values(call: ApiCall) -> Result<Response, ApiFailure> {
    let range = parse_range(&call)?;
    let label = call.form.get("label").to_owned();
    let search = SearchParameters::from_form(&call, "label_values").and_then(|search| {
        if label.is_empty() {
            Err(ApiFailure::bad_data("missing required parameter \"label\""))
        } else {
            Ok(search)
        }
    });
    let among = SearchScope::Values(label);
    answer(call, range, search, among, "value", BTreeMap::new()).await
}

/// Checks that the search is enabled and returns its time range. Errors of these precede those of
/// the selectors.
fn parse_range(call: &ApiCall) -> Result<TimeRange, ApiFailure> {
    if call.app.parts.search.is_none() {
        let why = "search API disabled";
        return Err(ApiFailure::new(FailureCause::Off, why));
    }
    if call.app.parts.is_agent {
        let why = "unavailable with Prometheus Agent";
        return Err(ApiFailure::new(
            FailureCause::Execution(ErrorKind::Invalid),
            why,
        ));
    }
    if let Some(error) = call.form.first_error() {
        let why = format!("error parsing form values: {error}");
        return Err(ApiFailure::bad_data(why));
    }
    let now = call.app.parts.env.clock.now_ms();
    let start = time(call, "start", now.saturating_sub(SPAN_MS))?;
    let end = time(call, "end", now)?;
    if end < start {
        Err(ApiFailure::bad_data(
            "end timestamp must not be before start timestamp",
        ))
    } else {
        Ok(TimeRange::new(start, end))
    }
}

impl SearchParameters {
    /// Parses the parameters other than the time range and the selectors.
    fn from_form(call: &ApiCall, endpoint: &str) -> Result<Self, ApiFailure> {
        let limit_max = call.app.parts.search.unwrap_or_default();
        let terms = call.form.all("search[]").count();
        if terms > TERMS_MAX {
            return Err(ApiFailure::bad_data(format!(
                "too many search[] terms: got {terms}, maximum is {TERMS_MAX}"
            )));
        }
        let filter = filter(call)?;
        let shows_scores = flag(call, "include_score", false)?;
        let (by, order) = order(call, terms)?;
        let limit = limit(call, limit_max)?;
        let batch = positive(call, "batch_size")?.unwrap_or(LIMIT);
        if !matches!(by.as_str(), "" | "alpha" | "score") {
            let by = quote(by.as_bytes());
            return Err(ApiFailure::bad_data(format!(
                "invalid sort_by {by} for {endpoint}: must be \"alpha\" or \"score\""
            )));
        }
        Ok(Self {
            filter,
            order,
            shows_scores,
            limit,
            batch,
        })
    }

    /// Returns the matching texts in the requested order with their scores. Returns one more than
    /// the limit if there are more results.
    fn hits(&self, texts: &ReservedTexts, cancel: &CancelToken) -> Result<Vec<SearchHit>, Error> {
        let score = |index: usize| {
            let score = self
                .filter
                .score(&String::from_utf8_lossy(texts.get(index)))?;
            Some(SearchHit { index, score })
        };
        // After a cancellation nothing matches; the check below returns the error.
        let hits = (0..texts.len()).filter(|_| cancel.reason().is_none());
        let hits = hits.filter_map(score);
        let wanted = self.limit.saturating_add(1);
        let hits = match self.order {
            SearchOrder::Ascending => hits.take(wanted).collect(),
            SearchOrder::Descending => hits.rev().take(wanted).collect(),
            SearchOrder::ByScore => {
                let mut hits: Vec<SearchHit> = hits.collect();
                let better = |a: &SearchHit, b: &SearchHit| b.score.partial_cmp(&a.score);
                let better = |a: &SearchHit, b: &SearchHit| better(a, b).unwrap_or(Ordering::Equal);
                sort_list_checked(&mut hits, || cancel.check(), better)?;
                hits.truncate(wanted);
                hits
            }
        };
        cancel.check()?;
        Ok(hits)
    }
}

/// Parses a time. Unlike elsewhere, the error contains the parameter name only once.
fn time(call: &ApiCall, name: &str, default: TimestampMs) -> Result<TimestampMs, ApiFailure> {
    match call.form.get(name) {
        "" => Ok(default),
        text => parse_time(text)
            .map_err(|e| ApiFailure::bad_data(format!("invalid time value for '{name}': {e}"))),
    }
}

fn filter(call: &ApiCall) -> Result<SearchTermFilter, ApiFailure> {
    let invalid = |name: &str, text: &str, must: &str| {
        let text = quote(text.as_bytes());
        ApiFailure::bad_data(format!("invalid {name} {text}: must be {must}"))
    };
    let threshold = match call.form.get("fuzz_threshold") {
        "" => 0,
        text => parse_integer(text)
            .ok()
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| *n <= 100)
            .ok_or_else(|| invalid("fuzz_threshold", text, "0-100"))?,
    };
    let algorithm = match call.form.get("fuzz_alg") {
        "" => FuzzyAlgorithm::Subsequence,
        text => {
            let known = FuzzyAlgorithm::ALL.iter().find(|(name, _)| *name == text);
            let known = known.ok_or_else(|| {
                let all: Vec<&str> = algorithms().collect();
                let (text, all) = (quote(text.as_bytes()), all.join(" "));
                ApiFailure::bad_data(format!(
                    "unsupported fuzz_alg {text}: must be one of [{all}]"
                ))
            })?;
            known.1
        }
    };
    let is_case_sensitive = flag(call, "case_sensitive", true)?;
    let terms = call.form.all("search[]");
    Ok(SearchTermFilter::new(
        terms,
        algorithm,
        threshold,
        !is_case_sensitive,
    ))
}

fn flag(call: &ApiCall, name: &str, default: bool) -> Result<bool, ApiFailure> {
    match call.form.get(name) {
        "" => Ok(default),
        text => parse_bool(text).map_err(|_| {
            let text = quote(text.as_bytes());
            ApiFailure::bad_data(format!("invalid {name} {text}: must be boolean"))
        }),
    }
}

/// Parses the sort order. The value of `sort_by` is returned for validation after all other
/// parameters, as in upstream.
fn order(call: &ApiCall, terms: usize) -> Result<(String, SearchOrder), ApiFailure> {
    let (by, direction) = (call.form.get("sort_by"), call.form.get("sort_dir"));
    let why = match (by, direction) {
        ("", direction) if !direction.is_empty() => "sort_dir is only valid when sort_by is set",
        ("score", direction) if !direction.is_empty() => {
            "sort_dir is not supported for sort_by=score"
        }
        (_, "" | "asc" | "dsc") => {
            if by == "score" && terms == 0 {
                "sort_by=score requires search[] to be set"
            } else {
                ""
            }
        }
        (_, direction) => {
            let direction = quote(direction.as_bytes());
            let why = format!("invalid sort_dir {direction}: must be \"asc\" or \"dsc\"");
            return Err(ApiFailure::bad_data(why));
        }
    };
    if !why.is_empty() {
        return Err(ApiFailure::bad_data(why));
    }
    let order = match (by, direction) {
        ("score", _) => SearchOrder::ByScore,
        ("alpha", "dsc") => SearchOrder::Descending,
        _ => SearchOrder::Ascending,
    };
    Ok((by.to_owned(), order))
}

/// Parses the number of results; at most `limit_max`, unless that is zero.
fn limit(call: &ApiCall, limit_max: usize) -> Result<usize, ApiFailure> {
    let Some(limit) = positive(call, "limit")? else {
        return Ok(match limit_max {
            0 => LIMIT,
            max => LIMIT.min(max),
        });
    };
    if limit_max > 0 && limit > limit_max {
        return Err(ApiFailure::bad_data(format!(
            "limit {limit} exceeds the configured maximum ({limit_max}, see --web.search.max-limit)"
        )));
    }
    Ok(limit)
}

fn positive(call: &ApiCall, name: &str) -> Result<Option<usize>, ApiFailure> {
    let text = call.form.get(name);
    if text.is_empty() {
        return Ok(None);
    }
    let number = parse_integer(text)
        .ok()
        .and_then(|n| usize::try_from(n).ok());
    match number.filter(|n| *n > 0) {
        Some(number) => Ok(Some(number)),
        None => {
            let text = quote(text.as_bytes());
            let why = format!("invalid {name} {text}: must be a positive integer");
            Err(ApiFailure::bad_data(why))
        }
    }
}

/// Runs the search and returns its results. Errors in `search` are reported after those of the
/// selectors.
async fn answer(
    call: ApiCall,
    range: TimeRange,
    search: Result<SearchParameters, ApiFailure>,
    among: SearchScope,
    key: &'static str,
    metadata: BTreeMap<String, FamilyMetadata>,
) -> Result<Response, ApiFailure> {
    let mut lookup = SeriesLookup::with_range(&call, range)?;
    let found = call.compute(move |run| {
        lookup.parse(run, None)?;
        let search = search?;
        let texts = lookup.texts(run, |store, request| match &among {
            SearchScope::Values(label) => store.label_values(label, request),
            SearchScope::Names => {
                let names = store.label_names(request)?;
                Ok(names.into_iter().map(String::into_bytes).collect())
            }
        });
        let texts = texts.map_err(ApiFailure::execution)?;
        // Every text may match, and sorting takes as much memory again.
        let held = run.budget().reserve(HIT_BYTES * texts.len());
        let held = held.map_err(ApiFailure::execution)?;
        let hits = search.hits(&texts, run.cancel());
        let mut hits = hits.map_err(ApiFailure::execution)?;
        let has_more = hits.len() > search.limit;
        hits.truncate(search.limit);
        Ok(SearchResultLines {
            texts,
            hits,
            _held: held,
            warnings: lookup.annotations().warnings,
            key,
            metadata,
            shows_scores: search.shows_scores,
            batch: search.batch,
            has_more,
            next: 0,
            has_begun: false,
        })
    });
    let lines = found.await?;
    Ok(call.respond(lines, "application/x-ndjson; charset=utf-8"))
}

/// Memory of a matching text while the matches are sorted, in bytes.
const HIT_BYTES: usize = 4 * size_of::<SearchHit>();

/// A matching text: its index in the sorted list and its score from 0 to 1.
#[derive(Clone, Copy, Debug)]
struct SearchHit {
    index: usize,
    score: f64,
}

/// The lines of a search response, rendered while they are sent. Holds the memory of all results.
struct SearchResultLines {
    texts: ReservedTexts,
    hits: Vec<SearchHit>,
    _held: Reservation,
    warnings: Vec<String>,
    key: &'static str,
    metadata: BTreeMap<String, FamilyMetadata>,
    shows_scores: bool,
    batch: usize,
    has_more: bool,
    next: usize,
    has_begun: bool,
}

impl SearchResultLines {
    /// Writes the end of a results line. The first line also contains the warnings of the search.
    fn push_batch_end(&mut self, out: &mut Vec<u8>) {
        out.push(b']');
        if self.next <= self.batch && !self.warnings.is_empty() {
            out.extend_from_slice(b",\"warnings\":[");
            for (i, warning) in self.warnings.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                push_html_string(out, warning.as_bytes());
            }
            out.push(b']');
        }
        out.extend_from_slice(b"}\n");
    }

    fn push_hit(&self, out: &mut Vec<u8>, hit: SearchHit) {
        let text = self.texts.get(hit.index);
        out.extend_from_slice(format!("{{\"{}\":", self.key).as_bytes());
        push_html_string(out, text);
        if self.shows_scores {
            out.extend_from_slice(format!(",\"score\":{}", hit.score).as_bytes());
        }
        let known = std::str::from_utf8(text).ok();
        if let Some(metadata) = known.and_then(|name| self.metadata.get(name)) {
            let (kind, help, unit) = (metadata.kind, &metadata.help, &metadata.unit);
            for (key, value) in [("type", kind), ("help", help), ("unit", unit)] {
                if !value.is_empty() {
                    out.extend_from_slice(format!(",\"{key}\":").as_bytes());
                    push_html_string(out, value.as_bytes());
                }
            }
        }
        out.push(b'}');
    }
}

impl ResponseProducer for SearchResultLines {
    fn produce(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        const RESULTS: &[u8] = b"{\"results\":[";
        if !std::mem::replace(&mut self.has_begun, true) {
            out.extend_from_slice(RESULTS);
            if self.hits.is_empty() {
                self.push_batch_end(out);
            }
        }
        while self.next < self.hits.len() {
            if out.len() >= bytes_max {
                return true;
            }
            match (self.next, self.next % self.batch) {
                (0, _) => {}
                (_, 0) => out.extend_from_slice(RESULTS),
                _ => out.push(b','),
            }
            self.push_hit(out, self.hits[self.next]);
            self.next += 1;
            if self.next.is_multiple_of(self.batch) || self.next == self.hits.len() {
                self.push_batch_end(out);
            }
        }
        let has_more = self.has_more;
        let last = format!("{{\"status\":\"success\",\"has_more\":{has_more}}}\n");
        out.extend_from_slice(last.as_bytes());
        false
    }
}
