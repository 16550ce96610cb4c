//! `/api/v1/series`, `/api/v1/labels` and `/api/v1/label/<name>/values`.

use crate::answer::{Annotations, List, push_labels};
use crate::call::Call;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::form::unescape_path;
use crate::json;
use crate::times::{TIME_MAX, TIME_MIN};
use axum::response::Response;
use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::sample::TimeRange;
use firn_model::store::{Select, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use std::sync::Arc;
use tokio::time::Instant;

/// Series between two looks at the cancel flag; upstream's number.
const SERIES_PER_CHECK: usize = 128;

/// What a look-up is about. Several sets of matchers select what any of them does.
struct Lookup {
    engine: Arc<dyn Engine>,
    store: Arc<dyn Select>,
    tenant: TenantId,
    /// The values of `match[]`.
    selectors: Vec<String>,
    sets: Vec<Vec<Matcher>>,
    range: TimeRange,
}

impl Lookup {
    fn new(call: &Call) -> Result<Self, Failure> {
        let min = call.form.time_or("start", TIME_MIN)?;
        let max = call.form.time_or("end", TIME_MAX)?;
        let selectors = call.form.all("match[]").map(str::to_owned);
        Ok(Self {
            engine: call.app.parts.engine.clone(),
            store: call.backend.store.clone(),
            tenant: call.tenant.clone(),
            selectors: selectors.collect(),
            sets: Vec::new(),
            range: TimeRange::new(min, max),
        })
    }

    /// Parses the selectors: work for a compute thread, since a pattern may be long. One matcher of
    /// each must refuse the empty value, else it would select every series there is.
    fn parse(&mut self) -> Result<(), String> {
        let sets = self.selectors.iter().map(|text| self.engine.selector(text));
        let sets = sets.collect::<Result<Vec<_>, String>>()?;
        let selects_all = |set: &Vec<Matcher>| set.iter().all(|matcher| matcher.matches(b""));
        if sets.iter().any(selects_all) {
            return Err("match[] must contain at least one non-empty matcher".into());
        }
        self.sets = sets;
        Ok(())
    }

    /// Runs `find` for every set of matchers, or once for all series if there is none.
    fn each<T>(
        &self,
        cancel: &Cancel,
        find: impl Fn(&dyn Select, SelectRequest<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Failure> {
        let every_series = [Vec::new()];
        let sets = if self.sets.is_empty() {
            &every_series[..]
        } else {
            &self.sets
        };
        let found = sets.iter().map(|matchers| {
            let request = SelectRequest {
                tenant: &self.tenant,
                matchers,
                range: self.range,
                cancel,
            };
            find(&*self.store, request).map_err(Failure::execution)
        });
        found.collect()
    }

    /// The same for lists of texts, which are merged and sorted.
    fn texts<T: Ord>(
        &self,
        cancel: &Cancel,
        find: impl Fn(&dyn Select, SelectRequest<'_>) -> Result<Vec<T>, Error>,
    ) -> Result<Vec<T>, Failure> {
        let mut texts: Vec<T> = self.each(cancel, find)?.into_iter().flatten().collect();
        texts.sort_unstable();
        texts.dedup();
        Ok(texts)
    }
}

fn deadline(call: &Call) -> Instant {
    Instant::now() + call.app.limits().query_timeout
}

/// The label sets of series.
pub(crate) async fn series(call: Call) -> Result<Response, Failure> {
    if let Some(error) = call.form.first_error() {
        return Err(Failure::bad_data(format!(
            "error parsing form values: {error}"
        )));
    }
    if call.form.all("match[]").next().is_none() {
        return Err(Failure::bad_data("no match[] parameter provided"));
    }
    let limit = call.form.limit()?;
    let mut lookup = Lookup::new(&call)?;
    let found = call
        .app
        .compute(deadline(&call), move |cancel| {
            lookup
                .parse()
                .map_err(|e| Failure::parameter("match[]", e))?;
            Found::look_up(&lookup, cancel)
        })
        .await?;
    let mut annotations = Annotations::default();
    let len = truncated(found.len(), limit, &mut annotations);
    Ok(call.json(List::new(len, annotations, move |out, i| {
        push_labels(out, found.labels(i).as_ref());
    })))
}

/// Series as they were found: of one set of matchers in the store's order, of several sorted.
enum Found {
    One(Arc<dyn Selection>),
    Merged(Vec<Labels>),
}

impl Found {
    fn look_up(lookup: &Lookup, cancel: &Cancel) -> Result<Self, Failure> {
        let mut selections = lookup.each(cancel, |store, request| store.select(request))?;
        if selections.len() == 1
            && let Some(only) = selections.pop()
        {
            return Ok(Found::One(only));
        }
        let mut merged = Vec::new();
        for selection in selections {
            for i in 0..selection.len() {
                if i % SERIES_PER_CHECK == 0 {
                    cancel.check().map_err(Failure::execution)?;
                }
                merged.push(selection.labels(i));
            }
        }
        merged.sort_unstable();
        merged.dedup();
        Ok(Found::Merged(merged))
    }

    fn len(&self) -> usize {
        match self {
            Found::One(selection) => selection.len(),
            Found::Merged(labels) => labels.len(),
        }
    }

    fn labels(&self, index: usize) -> Labels {
        match self {
            Found::One(selection) => selection.labels(index),
            Found::Merged(labels) => labels[index].clone(),
        }
    }
}

/// The names of labels.
pub(crate) async fn label_names(call: Call) -> Result<Response, Failure> {
    let limit = call.form.limit()?;
    let mut lookup = Lookup::new(&call)?;
    let names = call
        .app
        .compute(deadline(&call), move |cancel| {
            lookup.parse().map_err(Failure::bad_data)?;
            lookup.texts(cancel, |store, request| store.label_names(request))
        })
        .await?;
    let names = names.into_iter().map(String::into_bytes).collect();
    Ok(texts_response(&call, names, limit))
}

/// The values of one label.
pub(crate) async fn label_values(call: Call) -> Result<Response, Failure> {
    let name = label_of_path(&call.path)?;
    let limit = call.form.limit()?;
    let mut lookup = Lookup::new(&call)?;
    let values = call
        .app
        .compute(deadline(&call), move |cancel| {
            lookup.parse().map_err(Failure::bad_data)?;
            lookup.texts(cancel, |store, request| store.label_values(&name, request))
        })
        .await?;
    Ok(texts_response(&call, values, limit))
}

fn texts_response(call: &Call, texts: Vec<Vec<u8>>, limit: Option<usize>) -> Response {
    let mut annotations = Annotations::default();
    let len = truncated(texts.len(), limit, &mut annotations);
    call.json(List::new(len, annotations, move |out, i| {
        json::push_html_string(out, &texts[i]);
    }))
}

fn truncated(len: usize, limit: Option<usize>, annotations: &mut Annotations) -> usize {
    match limit {
        Some(limit) if len > limit => {
            annotations.add_truncated();
            limit
        }
        _ => len,
    }
}

/// The label in `.../label/<name>/values`.
fn label_of_path(path: &str) -> Result<String, Failure> {
    let segment = path.rsplit('/').nth(1).unwrap_or_default();
    let name = unescape_path(segment)?;
    let name = match name.strip_prefix("U__").and_then(unescape_label_name) {
        Some(unescaped) => unescaped,
        None => name,
    };
    // U+FFFD stands where the bytes were not UTF-8.
    if name.is_empty() || name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Failure::bad_data(format!("invalid label name: {name:?}")));
    }
    Ok(name)
}

/// Undoes upstream's escaping of names that are not plain: `__` is `_`, `_2e_` is the character
/// U+002E. `None` if `escaped`, the text behind `U__`, is not well formed.
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
