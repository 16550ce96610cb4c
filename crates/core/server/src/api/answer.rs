//! JSON documents that are rendered while they are sent: query results and lists.
//!
//! ```text
//! {"status":"success","data":{"resultType":"matrix","result":[...]},"warnings":[...]}
//! ```
//!
//! Keys, their order and the format of numbers follow upstream (`web/api/v1/json_codec.go`). The
//! timestamps of a range query are formatted once and shared by all series.

use crate::http::produce::ResponseProducer;
use crate::json::histogram::push_histogram;
use crate::json::{FloatNotation, push_float, push_html_string, push_string, push_timestamp};
use firn_model::budget::Reservation;
use firn_model::labels::LabelsRef;
use firn_model::sample::TimestampMs;
use firn_promql::EvalTime;
use firn_promql::value::{MatrixSeries, QueryPointValue, QueryValue, VectorElement};

/// Maximum number of annotations of a kind in a response, the same as upstream's.
const ANNOTATIONS_MAX: usize = 10;

/// Warnings and infos that follow the data of a response. Long lists are truncated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseAnnotations {
    pub(crate) warnings: Vec<String>,
    pub(crate) infos: Vec<String>,
}

impl ResponseAnnotations {
    /// Adds the warning that a limit truncated the results.
    pub(crate) fn add_truncated(&mut self) {
        self.warnings.push("results truncated due to limit".into());
    }

    /// Writes the annotations and the end of a document after its data.
    fn push_end(&self, out: &mut Vec<u8>) {
        push_annotations(out, "warnings", "warning", &self.warnings);
        push_annotations(out, "infos", "info", &self.infos);
        out.push(b'}');
    }
}

fn push_annotations(out: &mut Vec<u8>, key: &str, kind: &str, texts: &[String]) {
    if texts.is_empty() {
        return;
    }
    let omitted = texts.len().saturating_sub(ANNOTATIONS_MAX);
    let note = (omitted > 0).then(|| format!("{omitted} more {kind} annotations omitted"));
    out.push(b',');
    push_html_string(out, key.as_bytes());
    out.extend_from_slice(b":[");
    for (i, text) in texts.iter().take(ANNOTATIONS_MAX).chain(&note).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        push_html_string(out, text.as_bytes());
    }
    out.push(b']');
}

/// Returns a document with data that is already encoded as JSON.
pub(crate) fn document(data: &[u8], annotations: &ResponseAnnotations) -> Vec<u8> {
    let mut out = br#"{"status":"success","data":"#.to_vec();
    out.extend_from_slice(data);
    annotations.push_end(&mut out);
    out
}

/// A document whose data is a list. Elements are rendered when they are sent, so that the whole
/// list is never in memory as JSON.
pub(crate) struct ListDocument<F> {
    len: usize,
    next: usize,
    has_started: bool,
    push_element: F,
    annotations: ResponseAnnotations,
}

impl<F: FnMut(&mut Vec<u8>, usize) + Send> ListDocument<F> {
    /// Creates a list of `len` elements, each of which `push_element` writes by index.
    pub(crate) fn new(len: usize, annotations: ResponseAnnotations, push_element: F) -> Self {
        Self {
            len,
            next: 0,
            has_started: false,
            push_element,
            annotations,
        }
    }
}

impl<F: FnMut(&mut Vec<u8>, usize) + Send> ResponseProducer for ListDocument<F> {
    fn produce(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        if !std::mem::replace(&mut self.has_started, true) {
            out.extend_from_slice(br#"{"status":"success","data":["#);
        }
        while self.next < self.len {
            if out.len() >= bytes_max {
                return true;
            }
            if self.next > 0 {
                out.push(b',');
            }
            (self.push_element)(out, self.next);
            self.next += 1;
        }
        out.push(b']');
        self.annotations.push_end(out);
        false
    }
}

/// Writes a label set as a JSON object, with the names in order.
pub(crate) fn push_labels(out: &mut Vec<u8>, labels: LabelsRef<'_>) {
    out.push(b'{');
    for (i, (name, value)) in labels.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        push_string(out, name.as_bytes());
        out.push(b':');
        push_string(out, value);
    }
    out.push(b'}');
}

/// Formatted timestamps of the steps of a range query, each as the start of a point:
/// `[1435781451.781,"`. Shared by all series of a response.
struct StepTimestampTexts {
    start: TimestampMs,
    step_ms: i64,
    text: Vec<u8>,
    /// End of each step's text.
    ends: Vec<u32>,
}

impl StepTimestampTexts {
    fn new(time: EvalTime) -> Option<Self> {
        let EvalTime::Range { start, end, .. } = time else {
            return None;
        };
        let step_ms = time.step_ms();
        let mut texts = Self {
            start,
            step_ms,
            text: Vec::new(),
            ends: Vec::new(),
        };
        let mut at = Some(start);
        while let Some(step) = at.filter(|step| *step <= end) {
            push_point_start(&mut texts.text, step);
            texts.text.push(b'"');
            texts.ends.push(texts.text.len() as u32);
            at = step.checked_add(step_ms);
        }
        Some(texts)
    }

    fn get(&self, time: TimestampMs) -> Option<&[u8]> {
        let offset = time.checked_sub(self.start)?;
        if offset % self.step_ms != 0 {
            return None;
        }
        let step = usize::try_from(offset / self.step_ms).ok()?;
        let end = *self.ends.get(step)? as usize;
        let start = step
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        self.text.get(start..end)
    }
}

/// Position in a query result at which the next piece of the response starts.
enum QueryResultPosition {
    Start,
    /// Index of a vector element or matrix series, and the number of its points that were already
    /// written.
    Element(usize, usize),
    End,
}

/// The response to a query, rendered piece by piece from the result value. Holds the memory of the
/// value until it is dropped.
pub(crate) struct QueryResponse {
    value: QueryValue,
    steps: Option<StepTimestampTexts>,
    /// Further members of the data with their values in JSON.
    members: Vec<(&'static str, Vec<u8>)>,
    annotations: ResponseAnnotations,
    place: QueryResultPosition,
    /// Memory of the value, reserved until the response was sent.
    _held: Reservation,
}

impl QueryResponse {
    /// Creates the response for the result of a query over `time`. `members` follow the result in
    /// the data, with their values in JSON.
    pub(crate) fn new(
        value: QueryValue,
        time: EvalTime,
        members: Vec<(&'static str, Vec<u8>)>,
        annotations: ResponseAnnotations,
        held: Reservation,
    ) -> Self {
        let shares_steps = matches!(&value, QueryValue::Matrix(series) if series.len() > 1);
        Self {
            steps: if shares_steps {
                StepTimestampTexts::new(time)
            } else {
                None
            },
            value,
            members,
            annotations,
            place: QueryResultPosition::Start,
            _held: held,
        }
    }

    fn push_start(&self, out: &mut Vec<u8>) {
        let (name, opening): (&str, &[u8]) = match &self.value {
            QueryValue::Scalar(..) => ("scalar", b""),
            QueryValue::String(..) => ("string", b""),
            QueryValue::Vector(_) => ("vector", b"["),
            QueryValue::Matrix(_) => ("matrix", b"["),
        };
        out.extend_from_slice(br#"{"status":"success","data":{"resultType":"#);
        push_string(out, name.as_bytes());
        out.extend_from_slice(br#","result":"#);
        out.extend_from_slice(opening);
        match &self.value {
            QueryValue::Scalar(time, value) => {
                push_go_time(out, *time);
                out.extend_from_slice(b",\"");
                push_float(out, *value, FloatNotation::Plain);
                out.extend_from_slice(b"\"]");
            }
            QueryValue::String(time, text) => {
                push_go_time(out, *time);
                out.push(b',');
                push_html_string(out, text);
                out.push(b']');
            }
            QueryValue::Vector(_) | QueryValue::Matrix(_) => {}
        }
    }

    fn push_end(&self, out: &mut Vec<u8>) {
        if matches!(&self.value, QueryValue::Vector(_) | QueryValue::Matrix(_)) {
            out.push(b']');
        }
        for (name, value) in &self.members {
            out.push(b',');
            push_string(out, name.as_bytes());
            out.push(b':');
            out.extend_from_slice(value);
        }
        out.push(b'}');
        self.annotations.push_end(out);
    }

    /// Writes element `index` from its point `point` on. If the piece is full before the end of the
    /// element, returns the number of points written so far.
    fn push_element(
        &self,
        out: &mut Vec<u8>,
        index: usize,
        point: usize,
        bytes_max: usize,
    ) -> Option<usize> {
        if index > 0 && point == 0 {
            out.push(b',');
        }
        match &self.value {
            QueryValue::Vector(elements) => {
                push_vector_element(out, &elements[index]);
                None
            }
            QueryValue::Matrix(series) => self.push_series(out, &series[index], point, bytes_max),
            QueryValue::Scalar(..) | QueryValue::String(..) => None,
        }
    }

    fn push_series(
        &self,
        out: &mut Vec<u8>,
        series: &MatrixSeries,
        point: usize,
        bytes_max: usize,
    ) -> Option<usize> {
        if point == 0 {
            out.extend_from_slice(br#"{"metric":"#);
            push_labels(out, series.labels.as_ref());
        }
        let floats = series.floats.len();
        for (i, (time, value)) in series.floats.iter().enumerate().skip(point) {
            if i > point && out.len() >= bytes_max {
                return Some(i);
            }
            let before: &[u8] = if i == 0 { br#","values":["# } else { b"," };
            out.extend_from_slice(before);
            self.push_float_point(out, *time, *value);
            if i + 1 == floats {
                out.push(b']');
            }
        }
        for (i, (time, histogram)) in series.histograms.iter().enumerate() {
            if floats + i < point {
                continue;
            }
            if floats + i > point && out.len() >= bytes_max {
                return Some(floats + i);
            }
            let before: &[u8] = if i == 0 { br#","histograms":["# } else { b"," };
            out.extend_from_slice(before);
            push_point_start(out, *time);
            push_histogram(out, histogram);
            out.push(b']');
            if i + 1 == series.histograms.len() {
                out.push(b']');
            }
        }
        out.push(b'}');
        None
    }

    fn push_float_point(&self, out: &mut Vec<u8>, time: TimestampMs, value: f64) {
        match self.steps.as_ref().and_then(|steps| steps.get(time)) {
            Some(text) => out.extend_from_slice(text),
            None => {
                push_point_start(out, time);
                out.push(b'"');
            }
        }
        push_float(out, value, FloatNotation::Sample);
        out.extend_from_slice(b"\"]");
    }

    fn len(&self) -> usize {
        match &self.value {
            QueryValue::Vector(elements) => elements.len(),
            QueryValue::Matrix(series) => series.len(),
            QueryValue::Scalar(..) | QueryValue::String(..) => 0,
        }
    }
}

impl ResponseProducer for QueryResponse {
    fn produce(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        loop {
            self.place = match self.place {
                QueryResultPosition::Start => {
                    self.push_start(out);
                    QueryResultPosition::Element(0, 0)
                }
                QueryResultPosition::Element(index, _) if index == self.len() => {
                    self.push_end(out);
                    QueryResultPosition::End
                }
                QueryResultPosition::Element(..) if out.len() >= bytes_max => return true,
                QueryResultPosition::Element(index, point) => {
                    match self.push_element(out, index, point, bytes_max) {
                        Some(point) => QueryResultPosition::Element(index, point),
                        None => QueryResultPosition::Element(index + 1, 0),
                    }
                }
                QueryResultPosition::End => return false,
            };
        }
    }
}

fn push_vector_element(out: &mut Vec<u8>, element: &VectorElement) {
    out.extend_from_slice(br#"{"metric":"#);
    push_labels(out, element.labels.as_ref());
    match &element.value {
        QueryPointValue::Float(value) => {
            out.extend_from_slice(br#","value":"#);
            push_point_start(out, element.time);
            out.push(b'"');
            push_float(out, *value, FloatNotation::Sample);
            out.push(b'"');
        }
        QueryPointValue::Histogram(histogram) => {
            out.extend_from_slice(br#","histogram":"#);
            push_point_start(out, element.time);
            push_histogram(out, histogram);
        }
    }
    out.extend_from_slice(b"]}");
}

fn push_point_start(out: &mut Vec<u8>, time: TimestampMs) {
    out.push(b'[');
    push_timestamp(out, time);
    out.push(b',');
}

/// Writes the time of a scalar or string. Upstream encodes these with Go's general encoder, as a
/// float.
fn push_go_time(out: &mut Vec<u8>, time: TimestampMs) {
    out.push(b'[');
    push_float(out, time as f64 / 1000.0, FloatNotation::Plain);
}

#[cfg(test)]
mod tests;
