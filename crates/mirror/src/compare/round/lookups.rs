//! The passes over what an index knows: names and values of labels, series, metadata.
//!
//! An index may list what has no data in the stretch: a series that ended before it, whose block is
//! still there. So what one system alone lists is asked for as data, `count({label!=""})`, and is
//! a difference only if that system has it.

use super::{Found, Judged, Outcome, Params, Pass, Round, judged};
use crate::api::seconds;
use crate::compare::progress::Progress;
use crate::compare::system::{Fetched, System, escape};
use crate::compare::verdict::Verdict;
use crate::error::MirrorError;
use crate::judge::answer::{Answer, Data, LabelSet, label_text, series_text};
use crate::judge::{Class, Differences, Spot};
use firn_model::labels::METRIC_NAME;
use firn_model::quote::quote;
use firn_promql::ast::{Duration, Edges, Expr, ExprKind, Span, VectorSelector};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Names that are asked for as data for one question: an index may list a million that are gone.
const ASKED_MAX: usize = 1_000;

/// What an answer lists: each entry with what is known of it.
type Listing = BTreeMap<String, Value>;

/// A question to an index.
struct LookUp<'a> {
    pass: Pass,
    question: String,
    endpoint: String,
    params: Params,
    /// The entries of an answer.
    list: &'a (dyn Fn(&Answer<'_>) -> Option<Listing> + Sync),
    /// A query that has a result if there is data of an entry.
    data: &'a (dyn Fn(&str) -> String + Sync),
    /// The class of an entry that one side alone has.
    missing: Class,
    extra: Class,
}

impl Round<'_> {
    /// Asks all of it.
    pub(super) fn run_lookups(
        &self,
        progress: &Progress,
        count: &mut dyn FnMut(Judged),
    ) -> Result<(), MirrorError> {
        progress.begin(Pass::LabelNames.as_str(), 1);
        let (judged, labels) = self.label_names()?;
        count(judged);
        progress.begin(Pass::LabelValues.as_str(), labels.len());
        self.each(&labels, &|label| self.label_values(label), count)?;
        let selectors = self.selectors();
        progress.begin(Pass::Series.as_str(), selectors.len());
        self.each(&selectors, &|selector| self.series(selector), count)?;
        progress.begin(Pass::Metadata.as_str(), 1);
        count(self.metadata()?);
        Ok(())
    }

    fn times(&self) -> Params {
        let start = ("start", seconds(self.stretch.start_ms));
        vec![start, ("end", seconds(self.stretch.end_ms))]
    }

    fn times_and_matches(&self) -> Params {
        let mut params = self.times();
        let matches = self.options.matches.iter().cloned();
        params.extend(matches.map(|selector| ("match[]", selector)));
        params
    }

    /// Compares the names of labels; returns those that both systems have.
    fn label_names(&self) -> Result<(Judged, Vec<String>), MirrorError> {
        let list = |answer: &Answer<'_>| {
            let mut names = texts(answer)?;
            names.retain(|name, _| !self.ignored.contains(name));
            Some(names)
        };
        let look_up = LookUp {
            pass: Pass::LabelNames,
            question: "label names".to_owned(),
            endpoint: "labels".to_owned(),
            params: self.times_and_matches(),
            list: &list,
            data: &|name| format!("count({{{}!=\"\"}})", label_text(name)),
            missing: Class::Labels,
            extra: Class::Labels,
        };
        let answers = self.pair.ask(&look_up.endpoint, &look_up.params);
        let judged = self.look_up(&look_up, &answers)?;
        let names = |fetched: &Fetched| -> BTreeSet<String> {
            let listing = fetched.answer().ok().and_then(|answer| list(&answer));
            listing.unwrap_or_default().into_keys().collect()
        };
        let (baseline, candidate) = (names(&answers.0), names(&answers.1));
        Ok((judged, baseline.intersection(&candidate).cloned().collect()))
    }

    fn label_values(&self, label: &str) -> Result<Judged, MirrorError> {
        let name = label_text(label);
        let look_up = LookUp {
            pass: Pass::LabelValues,
            question: label.to_owned(),
            endpoint: format!("label/{}/values", escape(label)),
            params: self.times_and_matches(),
            list: &texts,
            data: &|value| format!("count({{{name}={}}})", quote(value.as_bytes())),
            missing: Class::Labels,
            extra: Class::Labels,
        };
        let answers = self.pair.ask(&look_up.endpoint, &look_up.params);
        self.look_up(&look_up, &answers)
    }

    fn series(&self, selector: &str) -> Result<Judged, MirrorError> {
        let mut params = self.times();
        params.push(("match[]", selector.to_owned()));
        let list = |answer: &Answer<'_>| {
            let sets = other(answer)?.as_array()?.iter();
            let sets = sets.map(|set| serde_json::from_value::<LabelSet>(set.clone()).ok());
            let text = |set: LabelSet| {
                let kept = set
                    .into_iter()
                    .filter(|(name, _)| !self.ignored.contains(name));
                (series_text(&kept.collect()), Value::Null)
            };
            sets.map(|set| set.map(text)).collect()
        };
        let look_up = LookUp {
            pass: Pass::Series,
            question: selector.to_owned(),
            endpoint: "series".to_owned(),
            params,
            list: &list,
            data: &|series| format!("count({series})"),
            missing: Class::MissingSeries,
            extra: Class::ExtraSeries,
        };
        let answers = self.pair.ask(&look_up.endpoint, &look_up.params);
        self.look_up(&look_up, &answers)
    }

    /// Compares types and help texts of the metrics that both systems have.
    fn metadata(&self) -> Result<Judged, MirrorError> {
        let endpoint = format!("label/{METRIC_NAME}/values");
        let (baseline, candidate) = self.fetch_both(&endpoint, &self.times_and_matches());
        let names = |fetched: &Fetched| {
            let listing = fetched.answer().ok().and_then(|answer| texts(&answer));
            listing.unwrap_or_default()
        };
        let (mut in_both, other_names) = (names(&baseline), names(&candidate));
        in_both.retain(|name, _| other_names.contains_key(name));
        // Histograms and summaries have metadata under the name without its ending.
        let is_in_both = |family: &str| {
            let endings = ["", "_bucket", "_count", "_sum", "_total"].iter();
            endings
                .map(|ending| format!("{family}{ending}"))
                .any(|n| in_both.contains_key(&n))
        };
        let list = |answer: &Answer<'_>| {
            let families = other(answer)?.as_object()?.iter();
            let families = families.filter(|(family, _)| is_in_both(family));
            Some(
                families
                    .map(|(family, entries)| (family.clone(), sorted(entries)))
                    .collect(),
            )
        };
        let look_up = LookUp {
            pass: Pass::Metadata,
            question: "metadata".to_owned(),
            endpoint: "metadata".to_owned(),
            params: Params::new(),
            list: &list,
            data: &|family| format!("count({{__name__=~\"{family}(_bucket|_count|_total)?\"}})"),
            missing: Class::MissingSeries,
            extra: Class::ExtraSeries,
        };
        let answers = self.pair.ask(&look_up.endpoint, &look_up.params);
        self.look_up(&look_up, &answers)
    }

    /// The selectors of all questions, each once, without what moves them in time.
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

    fn look_up(
        &self,
        look_up: &LookUp<'_>,
        answers: &(Fetched, Fetched),
    ) -> Result<Judged, MirrorError> {
        let (baseline, candidate) = answers;
        let verdict = self.verdict(baseline, candidate, false);
        let verdict = match verdict.outcome {
            Outcome::Mismatch => match self.listings(look_up, answers) {
                Some(found) => Verdict::of(found),
                None => verdict,
            },
            _ => verdict,
        };
        if verdict.outcome == Outcome::Match {
            let (pass, question) = (look_up.pass, &look_up.question);
            return Ok(judged(pass, question, Outcome::Match, String::new()));
        }
        let found = Found {
            pass: look_up.pass,
            question: &look_up.question,
            placed: &(look_up.endpoint.as_str(), look_up.params.clone()),
            answers: [baseline, candidate],
            minimised: &look_up.question,
            note: "",
        };
        self.keep(&found, &verdict)
    }

    /// How two listings differ, by what there is data of; `None` if an answer is no listing.
    fn listings(
        &self,
        look_up: &LookUp<'_>,
        (baseline, candidate): &(Fetched, Fetched),
    ) -> Option<Differences> {
        let list = |fetched: &Fetched| (look_up.list)(&fetched.answer().ok()?);
        let (b, c) = (list(baseline)?, list(candidate)?);
        let mut found = Differences::default();
        let mut note = |class, entry: &str, baseline: Value, candidate: Value| {
            found.note(class, || Spot {
                class,
                what: look_up.pass.as_str().replace('_', " ") + " of " + &look_up.question,
                labels: None,
                time_ms: None,
                baseline: if baseline.is_null() {
                    entry.into()
                } else {
                    baseline
                },
                candidate,
            });
        };
        let lone = |one: &Listing, other: &Listing, system: &System| {
            let lone = one.keys().filter(|entry| !other.contains_key(*entry));
            let has_data = |entry: &&String| {
                let query = (look_up.data)(entry);
                system.has_data(&query, self.stretch, self.step_ms)
            };
            lone.take(ASKED_MAX).find(has_data).cloned()
        };
        if let Some(entry) = lone(&b, &c, &self.pair.baseline) {
            note(look_up.missing, &entry, Value::Null, Value::Null);
        }
        if let Some(entry) = lone(&c, &b, &self.pair.candidate) {
            let nothing = Value::from(format!("no {entry}"));
            note(look_up.extra, &entry, nothing, entry.as_str().into());
        }
        for (entry, known) in &b {
            if let Some(other) = c.get(entry).filter(|other| *other != known) {
                note(Class::Value, entry, known.clone(), other.clone());
            }
        }
        Some(found)
    }
}

/// What is no result of a query.
fn other<'v>(answer: &'v Answer<'_>) -> Option<&'v Value> {
    match answer {
        Answer::Success(success) => match &success.data {
            Data::Other(value) => Some(value),
            _ => None,
        },
        Answer::Failure { .. } => None,
    }
}

/// A list of texts.
fn texts(answer: &Answer<'_>) -> Option<Listing> {
    let texts = other(answer)?.as_array()?.iter();
    texts
        .map(|text| Some((text.as_str()?.to_owned(), Value::Null)))
        .collect()
}

/// A list in an order of its own; systems may list the same in another one.
fn sorted(entries: &Value) -> Value {
    let mut texts: Vec<Value> = entries.as_array().cloned().unwrap_or_default();
    texts.sort_by_key(Value::to_string);
    texts.dedup();
    texts.into()
}

fn plain(vector: &VectorSelector) -> String {
    let plain = VectorSelector {
        offset: Duration::default(),
        at: None,
        edges: Edges::Plain,
        ..vector.clone()
    };
    Expr::new(ExprKind::Vector(plain), Span::default()).to_string()
}
