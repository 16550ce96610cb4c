//! Compares two answers of the HTTP API: the classes of their differences and the first place of
//! each.
//!
//! These must always be equal: the status, the result type, annotations as sets, label sets and
//! timestamps. Values are compared according to [`ValueComparison`], and [`ComparisonRules`] can
//! demand more.

pub mod answer;
mod pairing;
pub mod tolerance;

use answer::{
    AnswerData, AnswerPoint, AnswerPointValue, AnswerSeries, ApiAnswer, LabelSet, SuccessfulAnswer,
    series_text,
};
use firn_model::quote::quote;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use tolerance::Tolerance;

/// A class of differences between two answers. Classes are ordered by severity, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DifferenceClass {
    /// A value differs, or its type, or the type of the result.
    Value,
    /// A point of a series that both answers contain is missing in the second answer.
    MissingPoint,
    /// A point of a series that both answers contain is only in the second answer.
    ExtraPoint,
    /// A series is missing in the second answer.
    MissingSeries,
    /// A series is only in the second answer.
    ExtraSeries,
    /// The labels of a series differ, while its points are equal.
    Labels,
    /// The order of elements differs where it matters.
    Order,
    /// The sets of warnings or of infos differ.
    Warnings,
    /// There is no result, or the types of the errors differ.
    Error,
    /// There was no complete answer before the timeout.
    Timeout,
}

impl DifferenceClass {
    /// Returns the name of the class in reports, metrics and `difference.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            DifferenceClass::Value => "value",
            DifferenceClass::MissingPoint => "missing_point",
            DifferenceClass::ExtraPoint => "extra_point",
            DifferenceClass::MissingSeries => "missing_series",
            DifferenceClass::ExtraSeries => "extra_series",
            DifferenceClass::Labels => "labels",
            DifferenceClass::Order => "order",
            DifferenceClass::Warnings => "warnings",
            DifferenceClass::Error => "error",
            DifferenceClass::Timeout => "timeout",
        }
    }
}

/// How two values are compared: bit for bit, or with a tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueComparison {
    /// The texts must be equal, which implies the same bits and the same formatting.
    Texts,
    /// The numbers must be equal within this tolerance.
    Numbers(Tolerance),
}

/// The strictness of a comparison: which parts of two answers must be equal, and how closely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonRules {
    /// How two values at the same time are compared.
    pub values: ValueComparison,
    /// Whether the order of the elements of an instant vector matters. The order of elements with
    /// equal values is undefined and never matters.
    pub ordered: bool,
    /// Whether error texts and the order of the series of a matrix must be equal as well, as
    /// between versions of one system.
    pub to_the_letter: bool,
}

/// A place at which two answers differ, with the values of both. Only the first place of each class
/// is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct DifferenceSpot {
    /// Class of the difference, which determines its severity.
    pub class: DifferenceClass,
    /// Description of the differing part, such as `missing point`.
    pub what: String,
    /// Labels of the series, if the difference concerns one.
    pub labels: Option<LabelSet>,
    /// Time of the point in milliseconds, if the difference concerns one.
    pub time_ms: Option<i64>,
    /// Content of the first answer at this place; null if there is none.
    pub baseline: Value,
    /// Content of the second answer at this place; null if there is none.
    pub candidate: Value,
}

impl std::fmt::Display for DifferenceSpot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let (baseline, candidate) = (shown(&self.baseline), shown(&self.candidate));
        write!(f, "{}: expected {baseline}, got {candidate}", self.what)?;
        if let Some(ms) = self.time_ms {
            write!(f, " at {}", crate::api::seconds(ms))?;
        }
        match &self.labels {
            Some(labels) => write!(f, " of {}", series_text(labels)),
            None => Ok(()),
        }
    }
}

/// The differences between two answers: for each class the first place and the number of places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerDifferences {
    found: BTreeMap<DifferenceClass, (DifferenceSpot, u64)>,
}

impl AnswerDifferences {
    /// Returns whether there are no differences, so that the answers match.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the classes that occur, most severe first, each once.
    pub fn classes(&self) -> Vec<DifferenceClass> {
        self.found.keys().copied().collect()
    }

    /// Returns the first place of the most severe class; `None` if there are no differences.
    pub fn first(&self) -> Option<&DifferenceSpot> {
        self.found.values().next().map(|(spot, _)| spot)
    }

    /// Returns the number of places of each class, most severe first.
    pub fn counts(&self) -> impl Iterator<Item = (DifferenceClass, u64)> {
        self.found
            .iter()
            .map(|(class, (_, count))| (*class, *count))
    }

    /// Creates a set with one difference, for answers that are not compared by [`differences`].
    pub fn from_difference(spot: DifferenceSpot) -> Self {
        let mut found = Self::default();
        found.add_difference(spot.class, || spot);
        found
    }

    /// Counts a difference. `spot` is called only for the first one of its class.
    pub fn add_difference(
        &mut self,
        class: DifferenceClass,
        spot: impl FnOnce() -> DifferenceSpot,
    ) {
        self.found.entry(class).or_insert_with(|| (spot(), 0)).1 += 1;
    }
}

/// Returns the differences of the second answer from the first one according to `rules`.
pub fn differences(
    baseline: &ApiAnswer<'_>,
    candidate: &ApiAnswer<'_>,
    rules: ComparisonRules,
) -> AnswerDifferences {
    let mut judge = AnswerComparer {
        rules,
        found: AnswerDifferences::default(),
    };
    match (baseline, candidate) {
        (ApiAnswer::Success(b), ApiAnswer::Success(c)) => judge.successes(b, c),
        _ => judge.failures(baseline, candidate),
    }
    judge.found
}

struct AnswerComparer {
    rules: ComparisonRules,
    found: AnswerDifferences,
}

impl AnswerComparer {
    fn failures(&mut self, baseline: &ApiAnswer<'_>, candidate: &ApiAnswer<'_>) {
        let parts = |answer: &ApiAnswer<'_>| match answer {
            ApiAnswer::Success(_) => ("success".to_owned(), String::new()),
            ApiAnswer::Failure { kind, text } => (format!("error {kind}"), text.clone()),
        };
        let (b, c) = (parts(baseline), parts(candidate));
        if b.0 != c.0 || self.rules.to_the_letter && b.1 != c.1 {
            let shown = |(kind, text): (String, String)| {
                if text.is_empty() {
                    kind.into()
                } else {
                    format!("{kind}: {text}").into()
                }
            };
            self.part(DifferenceClass::Error, "status", shown(b), shown(c));
        }
    }

    /// Records a difference that does not concern a single series, such as the status.
    fn part(&mut self, class: DifferenceClass, what: &str, baseline: Value, candidate: Value) {
        self.found.add_difference(class, || DifferenceSpot {
            class,
            what: what.to_owned(),
            labels: None,
            time_ms: None,
            baseline,
            candidate,
        });
    }

    fn successes(&mut self, baseline: &SuccessfulAnswer<'_>, candidate: &SuccessfulAnswer<'_>) {
        for (what, b, c) in [
            ("warnings", &baseline.warnings, &candidate.warnings),
            ("infos", &baseline.infos, &candidate.infos),
        ] {
            if !same_annotations(b, c) {
                self.part(
                    DifferenceClass::Warnings,
                    what,
                    b.clone().into(),
                    c.clone().into(),
                );
            }
        }
        if baseline.kind != candidate.kind {
            let (b, c) = (baseline.kind.clone(), candidate.kind.clone());
            return self.part(DifferenceClass::Value, "resultType", b.into(), c.into());
        }
        match (&baseline.data, &candidate.data) {
            (AnswerData::Series(b), AnswerData::Series(c)) => {
                self.series(b, c);
                if self.rules.ordered && baseline.kind == "vector" {
                    self.compare_vector_order(b, c);
                }
                if self.rules.to_the_letter && baseline.kind == "matrix" {
                    self.matrix_order(b, c);
                }
            }
            (AnswerData::Scalar(b), AnswerData::Scalar(c)) => self.point("scalar", None, b, c),
            (AnswerData::Other(b), AnswerData::Other(c)) if b != c => {
                self.part(DifferenceClass::Value, "data", b.clone(), c.clone());
            }
            _ => {}
        }
    }

    fn series(&mut self, baseline: &[AnswerSeries<'_>], candidate: &[AnswerSeries<'_>]) {
        let paired = pairing::pair(baseline, candidate);
        for (b, c) in &paired.equal {
            self.points(b, c);
        }
        let accepts = |b: &AnswerPointValue<'_>, c: &AnswerPointValue<'_>| self.accepts(b, c);
        let paired = paired.find_relabelled(&accepts);
        for (b, c) in &paired.relabelled {
            self.found
                .add_difference(DifferenceClass::Labels, || DifferenceSpot {
                    class: DifferenceClass::Labels,
                    what: "labels".to_owned(),
                    labels: Some(b.labels.clone()),
                    time_ms: b.points.first().map(|point| point.time_ms),
                    baseline: format_distinct_labels(&b.labels, &c.labels).into(),
                    candidate: format_distinct_labels(&c.labels, &b.labels).into(),
                });
        }
        for b in &paired.missing {
            self.record_unmatched_series(DifferenceClass::MissingSeries, "missing series", b);
        }
        for c in &paired.extra {
            self.record_unmatched_series(DifferenceClass::ExtraSeries, "extra series", c);
        }
    }

    /// Records a series that only one answer contains, with its first point as an example.
    fn record_unmatched_series(
        &mut self,
        class: DifferenceClass,
        what: &str,
        series: &AnswerSeries<'_>,
    ) {
        self.found.add_difference(class, || {
            let first = series.points.first();
            let value = first.map_or(Value::Null, |point| point.value.to_json());
            let (baseline, candidate) = match class {
                DifferenceClass::MissingSeries => (value, Value::Null),
                _ => (Value::Null, value),
            };
            DifferenceSpot {
                class,
                what: what.to_owned(),
                labels: Some(series.labels.clone()),
                time_ms: first.map(|point| point.time_ms),
                baseline,
                candidate,
            }
        });
    }

    fn points(&mut self, baseline: &AnswerSeries<'_>, candidate: &AnswerSeries<'_>) {
        let labels = &baseline.labels;
        let (mut b, mut c) = (baseline.points.iter(), candidate.points.iter());
        let (mut next_b, mut next_c) = (b.next(), c.next());
        loop {
            let order = match (next_b, next_c) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(b), Some(c)) => b.time_ms.cmp(&c.time_ms),
            };
            match (order, next_b, next_c) {
                (Ordering::Equal, Some(b), Some(c)) => self.point("value", Some(labels), b, c),
                (Ordering::Less, Some(b), _) => {
                    self.record_unmatched_point(
                        DifferenceClass::MissingPoint,
                        "missing point",
                        labels,
                        b,
                    );
                }
                (_, _, Some(c)) => self.record_unmatched_point(
                    DifferenceClass::ExtraPoint,
                    "extra point",
                    labels,
                    c,
                ),
                _ => return,
            }
            if order != Ordering::Greater {
                next_b = b.next();
            }
            if order != Ordering::Less {
                next_c = c.next();
            }
        }
    }

    fn record_unmatched_point(
        &mut self,
        class: DifferenceClass,
        what: &str,
        labels: &LabelSet,
        point: &AnswerPoint<'_>,
    ) {
        self.found.add_difference(class, || {
            let value = point.value.to_json();
            let (baseline, candidate) = match class {
                DifferenceClass::MissingPoint => (value, Value::Null),
                _ => (Value::Null, value),
            };
            DifferenceSpot {
                class,
                what: what.to_owned(),
                labels: Some(labels.clone()),
                time_ms: Some(point.time_ms),
                baseline,
                candidate,
            }
        });
    }

    fn point(
        &mut self,
        what: &str,
        labels: Option<&LabelSet>,
        b: &AnswerPoint<'_>,
        c: &AnswerPoint<'_>,
    ) {
        if b.time_ms == c.time_ms && self.accepts(&b.value, &c.value) {
            return;
        }
        self.found
            .add_difference(DifferenceClass::Value, || DifferenceSpot {
                class: DifferenceClass::Value,
                what: what.to_owned(),
                labels: labels.cloned(),
                time_ms: Some(b.time_ms),
                baseline: b.value.to_json(),
                candidate: c.value.to_json(),
            });
    }

    fn accepts(&self, b: &AnswerPointValue<'_>, c: &AnswerPointValue<'_>) -> bool {
        let same = |b: &str, c: &str| match self.rules.values {
            ValueComparison::Texts => b == c,
            ValueComparison::Numbers(tolerance) => tolerance.accepts_texts(b, c),
        };
        match (b, c) {
            (AnswerPointValue::Float(b), AnswerPointValue::Float(c)) => same(b, c),
            (AnswerPointValue::Histogram(b), AnswerPointValue::Histogram(c)) => {
                let buckets = b.buckets.len() == c.buckets.len();
                let mut pairs = b.buckets.iter().zip(&c.buckets);
                same(b.count, c.count)
                    && same(b.sum, c.sum)
                    && buckets
                    && pairs.all(|(b, c)| {
                        b.0 == c.0 && same(b.1, c.1) && same(b.2, c.2) && same(b.3, c.3)
                    })
            }
            _ => false,
        }
    }

    fn compare_vector_order(
        &mut self,
        baseline: &[AnswerSeries<'_>],
        candidate: &[AnswerSeries<'_>],
    ) {
        // The order can only be compared if the elements are the same.
        let lone = [
            DifferenceClass::MissingSeries,
            DifferenceClass::ExtraSeries,
            DifferenceClass::Labels,
        ];
        if lone
            .iter()
            .any(|class| self.found.found.contains_key(class))
        {
            return;
        }
        for (place, (b, c)) in baseline.iter().zip(candidate).enumerate() {
            let (Some(b_point), Some(c_point)) = (b.points.first(), c.points.first()) else {
                return;
            };
            if b.labels != c.labels && !self.accepts(&b_point.value, &c_point.value) {
                return self.moved(place, b, c);
            }
        }
    }

    fn matrix_order(&mut self, baseline: &[AnswerSeries<'_>], candidate: &[AnswerSeries<'_>]) {
        let mut pairs = baseline.iter().zip(candidate).enumerate();
        if let Some((place, (b, c))) = pairs.find(|(_, (b, c))| b.labels != c.labels) {
            self.moved(place, b, c);
        }
    }

    fn moved(&mut self, place: usize, b: &AnswerSeries<'_>, c: &AnswerSeries<'_>) {
        let (b, c) = (series_text(&b.labels), series_text(&c.labels));
        self.part(
            DifferenceClass::Order,
            &format!("place {place}"),
            b.into(),
            c.into(),
        );
    }
}

/// Formats the labels of `one` that are absent from `other` or have a different value there.
fn format_distinct_labels(one: &LabelSet, other: &LabelSet) -> String {
    let lone = one
        .iter()
        .filter(|(name, value)| other.get(*name) != Some(value));
    let lone = lone.map(|(name, value)| (name.clone(), value.clone()));
    // The metric name is formatted like any other label.
    let texts = lone.map(|(name, value)| format!("{name}={}", quote(value.as_bytes())));
    format!("{{{}}}", texts.collect::<Vec<_>>().join(", "))
}

/// Returns whether two sorted lists of annotations are equivalent. If there are too many
/// annotations, the API returns an arbitrary part of them and the number of those omitted; only the
/// lengths of the lists are compared then.
fn same_annotations(baseline: &[String], candidate: &[String]) -> bool {
    let is_cut = |texts: &[String]| texts.iter().any(|t| t.ends_with("annotations omitted"));
    if is_cut(baseline) && is_cut(candidate) {
        baseline.len() == candidate.len()
    } else {
        baseline == candidate
    }
}

#[cfg(test)]
mod tests;
