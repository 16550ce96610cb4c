//! The passes over index lookups: label names, label values, series and metadata.
//!
//! An index may list entries without data in the stretch, for example a series that ended before it
//! but whose block still exists. Entries that only one system lists are therefore queried as data,
//! with `count({label!=""})`, and are a difference only if that system has data for them.
//! Invariant: listings match only if all such queries were sent and answered. Unanswered ones make
//! the outcome an error, and unsent ones make it a skip with the reason.

use super::probes::first_with_data;
use super::{
    ComparedQuery, ComparisonOutcome, ComparisonPass, ComparisonRound, Params, QueryDifference,
    judged, matched,
};
use crate::api::{label_values, seconds};
use crate::compare::system::{ComparedSystem, FetchResult, FetchResultPair};
use crate::compare::verdict::ComparisonVerdict;
use crate::judge::answer::{AnswerData, ApiAnswer, LabelSet, label_text, series_text};
use crate::judge::{AnswerDifferences, DifferenceClass, DifferenceSpot};
use crate::progress::ProgressLine;
use firn_model::labels::METRIC_NAME;
use firn_model::quote::quote;
use firn_promql::ast::{Expr, ExprKind, PositionRange, QueryDuration, VectorSelector, WindowEdges};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Maximum number of entries per lookup that are queried as data because only one system lists
/// them. An index may list a million entries without data.
const ASKED_MAX: usize = 10_000;

/// The entries that an answer lists, such as label names or series, each with its metadata or null.
type Listing = BTreeMap<String, Value>;

/// A lookup in the index of both systems, with the functions that extract and verify its entries.
struct SystemIndexLookup<'a> {
    pass: ComparisonPass,
    question: String,
    endpoint: String,
    params: Params,
    /// Extracts the entries of an answer; `None` if the answer is not a listing.
    list: &'a (dyn Fn(&ApiAnswer<'_>) -> Option<Listing> + Sync),
    /// Returns a query whose result is not empty if there is data for an entry.
    data: &'a (dyn Fn(&str) -> String + Sync),
    /// Class of a difference if only the baseline lists an entry.
    missing: DifferenceClass,
    extra: DifferenceClass,
}

impl ComparisonRound<'_> {
    /// Runs the lookup passes that are enabled, one after the other, and reports their outcomes to
    /// `count`.
    pub(super) fn run_lookups(
        &self,
        progress: &ProgressLine,
        count: &mut dyn FnMut(ComparedQuery),
    ) {
        if self.has(ComparisonPass::LabelNames) || self.has(ComparisonPass::LabelValues) {
            progress.begin(ComparisonPass::LabelNames.as_str(), 1);
        }
        let metrics = OnceLock::new();
        let labels = self.label_names(count);
        if self.has(ComparisonPass::LabelValues) {
            progress.begin(ComparisonPass::LabelValues.as_str(), labels.len());
            self.run_parallel(&labels, &|label| self.label_values(label, &metrics), count);
        }
        if self.has(ComparisonPass::Series) {
            let selectors = self.selectors();
            progress.begin(ComparisonPass::Series.as_str(), selectors.len());
            self.run_parallel(&selectors, &|selector| self.series(selector), count);
        }
        if self.has(ComparisonPass::Metadata) {
            progress.begin(ComparisonPass::Metadata.as_str(), 1);
            let metrics = metrics.get_or_init(|| {
                let endpoint = format!("label/{METRIC_NAME}/values");
                common_entries(
                    &self.pair.fetch(&endpoint, &self.times_and_matches()),
                    &texts,
                )
            });
            count(self.metadata(metrics));
        }
    }

    fn times(&self) -> Params {
        let start = ("start", seconds(self.asked.start_ms));
        vec![start, ("end", seconds(self.asked.end_ms))]
    }

    fn times_and_matches(&self) -> Params {
        let mut params = self.times();
        let matches = self.options.matches.iter().cloned();
        params.extend(matches.map(|selector| ("match[]", selector)));
        params
    }

    /// Compares the label names if that pass is enabled. Returns the names that both systems list,
    /// if they are needed for the label values.
    fn label_names(&self, count: &mut dyn FnMut(ComparedQuery)) -> Vec<String> {
        if !self.has(ComparisonPass::LabelNames) && !self.has(ComparisonPass::LabelValues) {
            return Vec::new();
        }
        let list = |answer: &ApiAnswer<'_>| {
            let mut names = texts(answer)?;
            names.retain(|name, _| !self.ignored.contains(name));
            Some(names)
        };
        let look_up = SystemIndexLookup {
            pass: ComparisonPass::LabelNames,
            question: "label names".to_owned(),
            endpoint: "labels".to_owned(),
            params: self.times_and_matches(),
            list: &list,
            data: &|name| format!("count({{{}!=\"\"}})", label_text(name)),
            missing: DifferenceClass::Labels,
            extra: DifferenceClass::Labels,
        };
        let answers = if self.has(ComparisonPass::LabelNames) {
            self.pair.query_both(&look_up.endpoint, &look_up.params)
        } else {
            self.pair.fetch(&look_up.endpoint, &look_up.params)
        };
        if self.has(ComparisonPass::LabelNames) {
            count(self.look_up(&look_up, &answers));
        }
        common_entries(&answers, &list).into_keys().collect()
    }

    /// Compares the values of a label. For the metric name, stores the values that both systems
    /// list in `metrics`.
    fn label_values(&self, label: &str, metrics: &OnceLock<Listing>) -> ComparedQuery {
        let name = label_text(label);
        let look_up = SystemIndexLookup {
            pass: ComparisonPass::LabelValues,
            question: label.to_owned(),
            endpoint: label_values(label),
            params: self.times_and_matches(),
            list: &texts,
            data: &|value| format!("count({{{name}={}}})", quote(value.as_bytes())),
            missing: DifferenceClass::Labels,
            extra: DifferenceClass::Labels,
        };
        let answers = self.pair.query_both(&look_up.endpoint, &look_up.params);
        if label == METRIC_NAME {
            metrics.get_or_init(|| common_entries(&answers, &texts));
        }
        self.look_up(&look_up, &answers)
    }

    fn series(&self, selector: &str) -> ComparedQuery {
        let mut params = self.times();
        params.push(("match[]", selector.to_owned()));
        let list = |answer: &ApiAnswer<'_>| {
            let sets = listing_data(answer)?.as_array()?.iter();
            let sets = sets.map(|set| serde_json::from_value::<LabelSet>(set.clone()).ok());
            let text = |set: LabelSet| {
                let kept = set
                    .into_iter()
                    .filter(|(name, _)| !self.ignored.contains(name));
                (series_text(&kept.collect()), Value::Null)
            };
            sets.map(|set| set.map(text)).collect()
        };
        let look_up = SystemIndexLookup {
            pass: ComparisonPass::Series,
            question: selector.to_owned(),
            endpoint: "series".to_owned(),
            params,
            list: &list,
            data: &|series| format!("count({series})"),
            missing: DifferenceClass::MissingSeries,
            extra: DifferenceClass::ExtraSeries,
        };
        let answers = self.pair.query_both(&look_up.endpoint, &look_up.params);
        self.look_up(&look_up, &answers)
    }

    /// Compares types and help texts of the metrics that both systems list.
    fn metadata(&self, metrics: &Listing) -> ComparedQuery {
        // Histograms and summaries have metadata under the name without its suffix.
        let is_in_both = |family: &str| {
            let endings = ["", "_bucket", "_count", "_sum", "_total"].iter();
            endings
                .map(|ending| format!("{family}{ending}"))
                .any(|name| metrics.contains_key(&name))
        };
        let list = |answer: &ApiAnswer<'_>| {
            let families = listing_data(answer)?.as_object()?.iter();
            let families = families.filter(|(family, _)| is_in_both(family));
            Some(
                families
                    .map(|(family, entries)| (family.clone(), sorted(entries)))
                    .collect(),
            )
        };
        let look_up = SystemIndexLookup {
            pass: ComparisonPass::Metadata,
            question: "metadata".to_owned(),
            endpoint: "metadata".to_owned(),
            params: Params::new(),
            list: &list,
            data: &|family| format!("count({{__name__=~\"{family}(_bucket|_count|_total)?\"}})"),
            missing: DifferenceClass::MissingSeries,
            extra: DifferenceClass::ExtraSeries,
        };
        let answers = self.pair.query_both(&look_up.endpoint, &look_up.params);
        self.look_up(&look_up, &answers)
    }

    /// Returns the distinct selectors of all queries, without offset, `@` and modifiers of the
    /// range.
    fn selectors(&self) -> Vec<String> {
        let mut found = BTreeSet::new();
        for question in &self.collection.questions {
            question.expr.visit(&mut |node| {
                let vector = match &node.kind {
                    ExprKind::Vector(vector) => vector,
                    ExprKind::Matrix(matrix) => &matrix.vector,
                    _ => return,
                };
                found.insert(plain(vector));
            });
        }
        found.into_iter().collect()
    }

    fn look_up(&self, look_up: &SystemIndexLookup<'_>, answers: &FetchResultPair) -> ComparedQuery {
        let (pass, question) = (look_up.pass, &look_up.question);
        let FetchResultPair {
            baseline,
            candidate,
        } = answers;
        let verdict = self.verdict(baseline, candidate, false);
        let listings = match verdict.outcome {
            ComparisonOutcome::Mismatch => extract_listings(look_up, answers),
            _ => None,
        };
        let verdict = match listings {
            Some((b, c)) => match self.compared(look_up, &b, &c) {
                Ok(found) => ComparisonVerdict::from_differences(found),
                Err(reason) => return judged(pass, question, ComparisonOutcome::Skip, reason),
            },
            None => verdict,
        };
        if verdict.outcome == ComparisonOutcome::Match {
            return matched(pass, question, verdict.vacuous);
        }
        let found = QueryDifference {
            pass,
            question,
            placed: &(look_up.endpoint.as_str(), look_up.params.clone()),
            answers: [baseline, candidate],
            minimised: question,
            note: "",
        };
        self.keep_difference(&found, &verdict)
    }

    /// Compares the listings of the baseline and the candidate, ignoring entries without data.
    /// Fails with the reason if too many entries would have to be queried.
    fn compared(
        &self,
        look_up: &SystemIndexLookup<'_>,
        baseline: &Listing,
        candidate: &Listing,
    ) -> Result<AnswerDifferences, String> {
        let mut found = AnswerDifferences::default();
        let mut note = |class, baseline: Value, candidate: Value| {
            found.add_difference(class, || DifferenceSpot {
                class,
                what: look_up.pass.as_str().replace('_', " ") + " of " + &look_up.question,
                labels: None,
                time_ms: None,
                baseline,
                candidate,
            });
        };
        let missing = self.query_unmatched(look_up, baseline, candidate, &self.pair.baseline);
        let extra = self.query_unmatched(look_up, candidate, baseline, &self.pair.candidate);
        if let UnmatchedEntriesResult::HasData(entry) = &missing {
            note(look_up.missing, entry.as_str().into(), Value::Null);
        }
        if let UnmatchedEntriesResult::HasData(entry) = &extra {
            let nothing = format!("no {entry}");
            note(look_up.extra, nothing.into(), entry.as_str().into());
        }
        for (entry, known) in baseline {
            if let Some(other) = candidate.get(entry).filter(|other| *other != known) {
                note(DifferenceClass::Value, known.clone(), other.clone());
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
        for lone in [&missing, &extra] {
            if let UnmatchedEntriesResult::Unanswered(why) = lone {
                found.add_difference(DifferenceClass::Error, || DifferenceSpot {
                    class: DifferenceClass::Error,
                    what: "check for data of entries that only one system lists".to_owned(),
                    labels: None,
                    time_ms: None,
                    baseline: "an answer".into(),
                    candidate: why.as_str().into(),
                });
            }
        }
        match (missing, extra) {
            (UnmatchedEntriesResult::Unasked(why), _)
            | (_, UnmatchedEntriesResult::Unasked(why))
                if found.is_empty() =>
            {
                Err(why)
            }
            _ => Ok(found),
        }
    }

    /// Queries the entries that only one listing, that of `system`, contains, until one has data.
    fn query_unmatched(
        &self,
        look_up: &SystemIndexLookup<'_>,
        one: &Listing,
        other: &Listing,
        system: &ComparedSystem,
    ) -> UnmatchedEntriesResult {
        let lone = one.keys().filter(|entry| !other.contains_key(*entry));
        let lone: Vec<&String> = lone.collect();
        let asked = &lone[..lone.len().min(ASKED_MAX)];
        let queries: Vec<String> = asked.iter().map(|entry| (look_up.data)(entry)).collect();
        let has_data = |query: &str| system.has_data(query, self.asked, self.step_ms);
        match first_with_data(&queries, &has_data) {
            Ok(Some(place)) => UnmatchedEntriesResult::HasData(asked[place].clone()),
            Err(why) => UnmatchedEntriesResult::Unanswered(format!(
                "the {} cannot answer: {why}",
                system.name
            )),
            Ok(None) if asked.len() < lone.len() => UnmatchedEntriesResult::Unasked(format!(
                "only the {} lists {} entries; the first {ASKED_MAX} have no data, the others \
                 were not checked",
                system.name,
                lone.len()
            )),
            Ok(None) => UnmatchedEntriesResult::Gone,
        }
    }
}

/// Result of querying the entries that only one system lists, in order to find out whether they
/// have data.
enum UnmatchedEntriesResult {
    /// This entry has data, so that the other system lacks it.
    HasData(String),
    /// None of the entries has data, so that there is no difference.
    Gone,
    /// The system failed to answer one of the queries, for this reason.
    Unanswered(String),
    /// There are more entries than [`ASKED_MAX`], and those queried have no data.
    Unasked(String),
}

/// Extracts the entries of both answers; returns `None` if one of them is not a listing.
fn extract_listings(
    look_up: &SystemIndexLookup<'_>,
    answers: &FetchResultPair,
) -> Option<(Listing, Listing)> {
    let list = |fetched: &FetchResult| (look_up.list)(&fetched.answer().ok()?);
    Some((list(&answers.baseline)?, list(&answers.candidate)?))
}

/// Returns the entries that both answers list. An answer that is not a listing counts as empty.
fn common_entries(
    answers: &FetchResultPair,
    list: &dyn Fn(&ApiAnswer<'_>) -> Option<Listing>,
) -> Listing {
    let read = |fetched: &FetchResult| {
        let listing = fetched.answer().ok().and_then(|answer| list(&answer));
        listing.unwrap_or_default()
    };
    let (mut both, other) = (read(&answers.baseline), read(&answers.candidate));
    both.retain(|name, _| other.contains_key(name));
    both
}

/// Returns the data of a successful answer that is not a query result; `None` for all other
/// answers.
fn listing_data<'v>(answer: &'v ApiAnswer<'_>) -> Option<&'v Value> {
    match answer {
        ApiAnswer::Success(success) => match &success.data {
            AnswerData::Other(value) => Some(value),
            _ => None,
        },
        ApiAnswer::Failure { .. } => None,
    }
}

/// Extracts the entries of an answer that is a list of strings; `None` if it is anything else.
fn texts(answer: &ApiAnswer<'_>) -> Option<Listing> {
    let texts = listing_data(answer)?.as_array()?.iter();
    texts
        .map(|text| Some((text.as_str()?.to_owned(), Value::Null)))
        .collect()
}

/// Sorts a list and removes duplicates, because systems may return it in different orders.
fn sorted(entries: &Value) -> Value {
    let mut texts: Vec<Value> = entries.as_array().cloned().unwrap_or_default();
    texts.sort_by_key(Value::to_string);
    texts.dedup();
    texts.into()
}

fn plain(vector: &VectorSelector) -> String {
    let plain = VectorSelector {
        offset: QueryDuration::default(),
        at: None,
        edges: WindowEdges::Plain,
        ..vector.clone()
    };
    Expr::new(ExprKind::Vector(plain), PositionRange::default()).to_string()
}
