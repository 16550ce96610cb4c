//! The annotations of an evaluation: warnings and infos with the texts of Prometheus.
//!
//! Annotations with equal texts are merged. As in Prometheus, the merged annotation has the
//! position of the last one, or of the first one if the annotations have a total. Annotations
//! retain the order of their first occurrence.

use crate::ast::PositionRange;
use crate::go_format::{format_g, format_rfc3339};
use crate::parser;
use crate::quote::quote;
use firn_model::histogram::float::NanEffect;
use firn_model::sample::TimestampMs;

/// The severity of an annotation, which the API reports separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnnotationLevel {
    Warning,
    Info,
}

/// One annotation: a message about a position in the query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Annotation {
    level: AnnotationLevel,
    text: String,
    position: u32,
    total: AnnotationTotal,
}

/// The total of merged annotations with equal texts, which is appended to the text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AnnotationTotal {
    Nothing,
    Repairs(BucketRepairs),
    Occurrences(usize),
}

impl AnnotationTotal {
    fn describe(&self) -> String {
        match self {
            AnnotationTotal::Repairs(repairs) => repairs.describe(),
            AnnotationTotal::Occurrences(count) if *count > 1 => format!(" ({count} occurrences)"),
            AnnotationTotal::Nothing | AnnotationTotal::Occurrences(_) => String::new(),
        }
    }
}

/// The corrections of classic buckets whose counts decreased, over all steps and histograms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BucketRepairs {
    /// The times of the first and the last correction.
    pub(crate) times: (TimestampMs, TimestampMs),
    /// The lowest and the highest bucket bound whose count was changed.
    pub(crate) bounds: (f64, f64),
    /// The largest change of a count by a correction.
    pub(crate) difference_max: f64,
    /// Number of corrected histograms, counted with the peculiarities of Prometheus.
    pub(crate) count: i64,
}

impl BucketRepairs {
    /// Returns the summary of both: the combined ranges, the larger difference, and the sum of the
    /// numbers.
    pub(crate) fn merge(self, other: Self) -> Self {
        Self {
            times: (
                self.times.0.min(other.times.0),
                self.times.1.max(other.times.1),
            ),
            bounds: (
                self.bounds.0.min(other.bounds.0),
                self.bounds.1.max(other.bounds.1),
            ),
            difference_max: self.difference_max.max(other.difference_max),
            count: self.count.wrapping_add(other.count),
        }
    }

    fn describe(&self) -> String {
        format!(
            ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            format_g(self.bounds.0, None),
            format_g(self.bounds.1, None),
            format_g(self.difference_max, Some(2)),
            self.count,
            format_rfc3339(self.times.0),
            format_rfc3339(self.times.1),
        )
    }
}

/// An operation on histograms, which annotations about resets and bounds mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistogramOperation {
    /// Two histograms were added by an operator or a function.
    Addition,
    /// One histogram was subtracted from another by an operator or a function.
    Subtraction,
    /// Many histograms were added by an aggregation or by a function of a window.
    Aggregation,
}

impl HistogramOperation {
    fn name(self) -> &'static str {
        match self {
            HistogramOperation::Addition => "addition",
            HistogramOperation::Subtraction => "subtraction",
            HistogramOperation::Aggregation => "aggregation",
        }
    }
}

impl Annotation {
    fn warning(span: PositionRange, text: String) -> Self {
        Self::new(AnnotationLevel::Warning, span, text)
    }

    fn info(span: PositionRange, text: String) -> Self {
        Self::new(AnnotationLevel::Info, span, text)
    }

    fn new(level: AnnotationLevel, span: PositionRange, text: String) -> Self {
        Self {
            level,
            text,
            position: span.start,
            total: AnnotationTotal::Nothing,
        }
    }

    /// Creates the warning that a quantile is NaN or not between 0 and 1.
    pub(crate) fn invalid_quantile(span: PositionRange, quantile: f64) -> Self {
        let got = format_g(quantile, None);
        Self::warning(
            span,
            format!("quantile value should be between 0 and 1, got {got}"),
        )
    }

    /// Creates the warning that the parameter of `limit_ratio` is not between -1 and 1, so `capped`
    /// is used instead.
    pub(crate) fn invalid_ratio(span: PositionRange, ratio: f64, capped: f64) -> Self {
        let (got, to) = (format_g(ratio, None), format_g(capped, None));
        Self::warning(
            span,
            format!("ratio value should be between -1 and 1, got {got}, capping to {to}"),
        )
    }

    /// Creates the warning that the label `le` of a classic bucket is missing or is not a number.
    pub(crate) fn bad_bucket_label(span: PositionRange, name: &[u8], bound: &[u8]) -> Self {
        let text = format!(
            "bucket label \"le\" is missing or has a malformed value of {}",
            quote(bound)
        );
        Self::warning(span, text + &for_metric(name))
    }

    /// Creates the warning that a window contains both floats and histograms, but the function
    /// supports only one of them at a time.
    pub(crate) fn mixed_range(span: PositionRange, name: &[u8]) -> Self {
        Self::warning(
            span,
            format!(
                "encountered a mix of histograms and floats for metric name {}",
                quote(name)
            ),
        )
    }

    /// Creates the warning that a group of an aggregation contains both floats and histograms.
    pub(crate) fn mixed_aggregation(span: PositionRange) -> Self {
        let text = "encountered a mix of histograms and floats for aggregation";
        Self::warning(span, text.into())
    }

    /// Creates the warning that classic buckets and a native histogram have the same labels.
    pub(crate) fn mixed_classic_native(span: PositionRange, name: &[u8]) -> Self {
        let text = String::from("vector contains a mix of classic and native histograms");
        Self::warning(span, text + &for_metric(name))
    }

    /// Creates the warning that `sort` has no effect in a range query.
    pub(crate) fn sort_in_range_query(span: PositionRange) -> Self {
        let text =
            "sort is ineffective for range queries since results are always ordered by labels";
        Self::warning(span, text.into())
    }

    /// Creates the warning that start timestamps overlap with the previous sample in the given
    /// number of windows.
    pub(crate) fn start_time_overlap(span: PositionRange, name: &[u8], windows: usize) -> Self {
        let text = "sample has start time that overlaps with previous sample timestamp";
        let mut warning = Self::warning(span, format!("{text} for metric {}", quote(name)));
        warning.total = AnnotationTotal::Occurrences(windows);
        warning
    }

    /// Creates the info that the function expects a counter, but the metric name has no suffix of a
    /// counter.
    pub(crate) fn possible_non_counter(span: PositionRange, name: &[u8]) -> Self {
        let text = "metric might not be a counter, name does not end in \
                    _total/_sum/_count/_bucket:";
        Self::info(span, format!("{text} {}", quote(name)))
    }

    /// Creates the info that the function expects a counter, but the label `__type__` has a
    /// different value.
    pub(crate) fn possible_non_counter_type(span: PositionRange, name: &[u8], kind: &[u8]) -> Self {
        let text = "metric might not be a counter, __type__ label is not set to \"counter\" \
                    or \"histogram\"";
        Self::info(
            span,
            format!("{text}, got {}: {}", quote(kind), quote(name)),
        )
    }

    /// Creates the info that the counts of classic buckets decreased and were corrected.
    pub(crate) fn forced_monotonicity(
        span: PositionRange,
        name: &[u8],
        repairs: BucketRepairs,
    ) -> Self {
        let text = String::from(
            "input to histogram_quantile needed to be fixed for monotonicity \
             (see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)",
        );
        let mut info = Self::info(span, text + &for_metric(name));
        info.total = AnnotationTotal::Repairs(repairs);
        info
    }

    /// Creates the info that an operator cannot combine the types of its operands.
    pub(crate) fn incompatible_types(
        span: PositionRange,
        left: &str,
        operator: &str,
        right: &str,
    ) -> Self {
        Self::info(
            span,
            format!(
                "incompatible sample types encountered for binary operator \
                 {operator:?}: {left} {operator} {right}"
            ),
        )
    }

    /// Creates the info that an aggregation such as `max` ignores the histograms of its input.
    pub(crate) fn ignored_in_aggregation(span: PositionRange, operator: &str) -> Self {
        Self::info(span, format!("ignored histogram in {operator} aggregation"))
    }

    /// Creates the info that a function ignores histograms, because the window also contains
    /// floats.
    pub(crate) fn ignored_in_range(span: PositionRange, name: &[u8]) -> Self {
        let text = "ignored histograms in a range containing both floats and histograms for \
                    metric name";
        Self::info(span, format!("{text} {}", quote(name)))
    }

    /// Creates the warning that the function expects a counter, but the histogram is a gauge.
    pub(crate) fn not_a_counter(span: PositionRange, name: &[u8]) -> Self {
        let text = "this native histogram metric is not a counter:";
        Self::warning(span, format!("{text} {}", quote(name)))
    }

    /// Creates the warning that the function expects a gauge, but the histogram is not one.
    pub(crate) fn not_a_gauge(span: PositionRange, name: &[u8]) -> Self {
        let text = "this native histogram metric is not a gauge:";
        Self::warning(span, format!("{text} {}", quote(name)))
    }

    /// Creates the warning that histograms with exponential and with custom buckets cannot be
    /// merged.
    pub(crate) fn mixed_schemas(span: PositionRange, name: &[u8]) -> Self {
        let text = "vector contains a mix of histograms with exponential and custom buckets \
                    schemas for metric name";
        Self::warning(span, format!("{text} {}", quote(name)))
    }

    /// Creates the warning that a binary operator cannot combine a histogram with exponential
    /// buckets and one with custom buckets.
    pub(crate) fn incompatible_layout(span: PositionRange, operator: &str) -> Self {
        let text = "incompatible bucket layout encountered for binary operator";
        Self::warning(span, format!("{text} {operator}"))
    }

    /// Creates the warning that the counter reset hints of histograms contradict each other.
    pub(crate) fn conflicting_resets(span: PositionRange, operation: HistogramOperation) -> Self {
        let text = "conflicting counter resets during histogram";
        Self::warning(span, format!("{text} {}", operation.name()))
    }

    /// Creates the info that the custom bounds of histograms differ and were reduced to the common
    /// ones.
    pub(crate) fn reconciled_bounds(span: PositionRange, operation: HistogramOperation) -> Self {
        let text = "mismatched custom buckets were reconciled during";
        Self::info(span, format!("{text} {}", operation.name()))
    }

    /// Creates the info that observations of NaN affect a quantile or a fraction.
    pub(crate) fn nan_observations(span: PositionRange, name: &[u8], remark: NanEffect) -> Self {
        let text = match remark {
            NanEffect::ResultIsNan => {
                "input to histogram_quantile has NaN observations, result is NaN"
            }
            NanEffect::SkewedHigher => {
                "input to histogram_quantile has NaN observations, result is skewed higher"
            }
            NanEffect::Excluded => {
                "input to histogram_fraction has NaN observations, which are excluded from all \
                 fractions"
            }
        };
        Self::info(span, text.to_owned() + &for_metric(name))
    }

    fn absorb(&mut self, other: Self) {
        match (&mut self.total, other.total) {
            (AnnotationTotal::Repairs(known), AnnotationTotal::Repairs(more)) => {
                *known = known.merge(more)
            }
            (AnnotationTotal::Occurrences(known), AnnotationTotal::Occurrences(more)) => {
                *known += more
            }
            _ => self.position = other.position,
        }
    }

    fn render(&self, query: Option<&str>) -> String {
        let level = match self.level {
            AnnotationLevel::Warning => "PromQL warning",
            AnnotationLevel::Info => "PromQL info",
        };
        let Some(query) = query else {
            return format!("{level}: {}", self.text);
        };
        let position = parser::position(query, self.position as usize);
        let total = self.total.describe();
        format!("{level}: {}{total} ({position})", self.text)
    }
}

fn for_metric(name: &[u8]) -> String {
    if name.is_empty() {
        String::new()
    } else {
        format!(" for metric name {}", quote(name))
    }
}

/// The annotations of an evaluation, in order of their first occurrence, and whether the values of
/// its steps depend on the range of the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryAnnotations {
    list: Vec<Annotation>,
    depends_on_range: bool,
}

impl QueryAnnotations {
    /// Adds an annotation, or merges it with an existing one that has the same text.
    pub(crate) fn add(&mut self, annotation: Annotation) {
        self.depends_on_range |= annotation.total != AnnotationTotal::Nothing;
        match self.list.iter_mut().find(|a| a.text == annotation.text) {
            Some(known) => known.absorb(annotation),
            None => self.list.push(annotation),
        }
    }

    /// Records that a step might have another value, at least in its last digits, if it were
    /// evaluated as a part of another range: with other series, in another order.
    pub(crate) fn mark_range_dependent(&mut self) {
        self.depends_on_range = true;
    }

    /// Returns whether [`QueryAnnotations::mark_range_dependent`] was called, or an annotation has
    /// a total over all steps.
    pub(crate) fn depends_on_range(&self) -> bool {
        self.depends_on_range
    }

    /// Adds all annotations of `other` in order, and merges those with equal texts.
    pub(crate) fn merge(&mut self, other: QueryAnnotations) {
        self.depends_on_range |= other.depends_on_range;
        for annotation in other.list {
            self.add(annotation);
        }
    }

    /// Replaces place numbers by positions in the text: the entries of `places` with these indexes.
    pub(crate) fn resolve_positions(mut self, places: &[u32]) -> Self {
        for annotation in &mut self.list {
            if let Some(place) = places.get(annotation.position as usize) {
                annotation.position = *place;
            }
        }
        self
    }

    /// Returns the warnings and the infos as texts. They contain positions if the text of the query
    /// is given.
    pub(crate) fn render(&self, query: Option<&str>) -> (Vec<String>, Vec<String>) {
        let of = |level: AnnotationLevel| {
            self.list
                .iter()
                .filter(|a| a.level == level)
                .map(|a| a.render(query))
                .collect()
        };
        (of(AnnotationLevel::Warning), of(AnnotationLevel::Info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u32) -> PositionRange {
        PositionRange { start, end: start }
    }

    #[test]
    fn annotations_of_equal_text_keep_the_last_position() {
        let mut notes = QueryAnnotations::default();
        notes.add(Annotation::possible_non_counter(at(0), b"x"));
        notes.add(Annotation::sort_in_range_query(at(1)));
        notes.add(Annotation::possible_non_counter(at(8), b"x"));
        let (warnings, infos) = notes.render(Some("one +\n  two"));
        let sort =
            "sort is ineffective for range queries since results are always ordered by labels";
        let counter = "metric might not be a counter, name does not end in \
                       _total/_sum/_count/_bucket:";
        assert_eq!(warnings, [format!("PromQL warning: {sort} (1:2)")]);
        assert_eq!(infos, [format!("PromQL info: {counter} \"x\" (2:3)")]);
    }

    #[test]
    fn annotations_of_overlaps_are_counted_at_the_first_position() {
        let mut notes = QueryAnnotations::default();
        let overlap = "PromQL warning: sample has start time that overlaps with previous sample \
                       timestamp for metric";
        notes.add(Annotation::start_time_overlap(at(1), b"x", 1));
        let (warnings, _) = notes.render(Some("aaa"));
        assert_eq!(warnings, [format!("{overlap} \"x\" (1:2)")]);
        notes.add(Annotation::start_time_overlap(at(2), b"x", 3));
        notes.add(Annotation::start_time_overlap(at(2), b"y", 2));
        let (warnings, _) = notes.render(Some("aaa"));
        let counted = ["\"x\" (4 occurrences) (1:2)", "\"y\" (2 occurrences) (1:3)"];
        assert_eq!(warnings, counted.map(|end| format!("{overlap} {end}")));
        let (warnings, _) = notes.render(None);
        assert_eq!(
            warnings,
            ["\"x\"", "\"y\""].map(|end| format!("{overlap} {end}"))
        );
    }

    #[test]
    fn annotations_of_repairs_are_summed_up() {
        let mut notes = QueryAnnotations::default();
        for (place, time, bound) in [(3, 60_000, 0.5), (1, 0, 2.0)] {
            notes.add(Annotation::forced_monotonicity(
                at(place),
                b"",
                BucketRepairs {
                    times: (time, time),
                    bounds: (bound, bound),
                    difference_max: 1.25,
                    count: 1,
                },
            ));
        }
        let (_, infos) = notes.render(Some("aaa"));
        assert_eq!(infos.len(), 1);
        assert!(
            infos[0].ends_with(
                ", from buckets 0.5 to 2, with a max diff of 1.2, over 2 samples \
                 from 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z (1:4)"
            ),
            "{}",
            infos[0]
        );
    }
}
