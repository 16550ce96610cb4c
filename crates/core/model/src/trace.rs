//! Spans: the durations of the parts of a request, for a trace collector.
//!
//! ```text
//! Tracer::begin -> Span (a request, an evaluation) -> SpanContext::begin -> Span (a part of it)
//!                    dropped -> queue of finished spans -> taken by the exporter
//! ```
//!
//! Invariant: a trace that is not sampled costs a check of a flag and a few random numbers. Its
//! [`TraceSpan`] stores only its position in the trace, so that other servers are informed that
//! they need not sample it either. The queue is limited, and spans that do not fit are counted.
//!
//! Source: W3C Trace Context for `traceparent`, and the samplers of the OpenTelemetry SDKs
//! (`ParentBased(TraceIDRatioBased)`).

use crate::env::{Clock, Rng};
use crate::metrics::Counter;
use crate::sync::lock;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of finished spans that wait for export, as in the OpenTelemetry SDKs.
pub const QUEUE_MAX: usize = 2048;

/// Maximum number of attributes of one span. Further ones are dropped.
const ATTRIBUTES_MAX: usize = 32;

/// Maximum length of a text in a span in bytes. Longer texts, such as expressions, are cut.
const TEXT_BYTES_MAX: usize = 1024;

/// The scale of [`Tracer::set_fraction`]: half of the range of 64-bit numbers, as in the SDKs.
const RATIO_SCALE: f64 = (1u64 << 63) as f64;

/// The threshold with which no trace is sampled, because no id is below it.
const NEVER: u64 = 0;

/// The position of a span in a trace, as sent by another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace id, which all spans of a trace share; not zero.
    pub trace: u128,
    /// The id of the span in the other process; not zero.
    pub span: u64,
    /// True if the other process samples the trace. This process then does, too, if it exports
    /// spans.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Parses a `traceparent` header. Returns `None` if it is invalid.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let version = parse_hex(parts.next()?, 2)?;
        let trace = parse_hex(parts.next()?, 32)?;
        let span = parse_hex(parts.next()?, 16)? as u64;
        let flags = parse_hex(parts.next()?, 2)?;
        // Later versions may have more fields, but version zero must not.
        let has_more = parts.next().is_some();
        let is_valid = version != 0xff && trace != 0 && span != 0 && !(version == 0 && has_more);
        is_valid.then_some(Self {
            trace,
            span,
            is_sampled: flags & 1 == 1,
        })
    }

    /// Returns the value of a `traceparent` header of version zero.
    pub fn header(&self) -> String {
        let flags = u8::from(self.is_sampled);
        format!("00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}

/// Parses a number of exactly `digits` lower-case hexadecimal digits.
fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number.then(|| u128::from_str_radix(text, 16).ok())?
}

/// The role of a span in a connection between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// An operation within the process, such as the evaluation of a query.
    Internal,
    /// The processing of a request that another process has sent.
    Server,
    /// A request that this process sends to another server.
    Client,
}

/// The value of an attribute of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanAttribute {
    /// A text, cut to a maximum length if necessary.
    Text(String),
    /// A signed integer, such as a number of series.
    Integer(i64),
}

impl From<&str> for SpanAttribute {
    fn from(text: &str) -> Self {
        SpanAttribute::Text(truncate(text))
    }
}

impl From<String> for SpanAttribute {
    fn from(text: String) -> Self {
        SpanAttribute::Text(truncate(&text))
    }
}

impl From<i64> for SpanAttribute {
    fn from(number: i64) -> Self {
        SpanAttribute::Integer(number)
    }
}

impl From<usize> for SpanAttribute {
    fn from(number: usize) -> Self {
        SpanAttribute::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// Returns the start of a text up to the maximum length, cut between characters.
fn truncate(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    text[..end].to_owned()
}

/// A span that has ended and waits for export.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// The trace id, which all spans of a trace share.
    pub trace: u128,
    /// The id of this span, unique in its trace.
    pub span: u64,
    /// The id of the parent span, if there is one.
    pub parent: Option<u64>,
    /// The name of the operation, in the form that the exporter sends.
    pub name: String,
    /// The role of the span in a connection between processes.
    pub kind: SpanKind,
    /// The start time in nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// The end time in nanoseconds since the Unix epoch.
    pub end_ns: u64,
    /// The attributes with their names, in the order in which they were added.
    pub attributes: Vec<(&'static str, SpanAttribute)>,
    /// The error text if the operation failed, otherwise `None`.
    pub error: Option<String>,
}

/// Starts traces and stores finished spans until they are exported.
pub struct Tracer {
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Traces whose id is below this are sampled: [`NEVER`], or a fraction of [`RATIO_SCALE`].
    sampled_below: AtomicU64,
    /// True if spans are exported. Otherwise nothing is sampled, even if a caller samples.
    is_on: AtomicBool,
    finished: Mutex<Vec<FinishedSpan>>,
    /// Number of spans that were dropped because the queue was full.
    pub dropped: Counter,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

impl Tracer {
    /// Creates a tracer that samples nothing until [`Tracer::set_fraction`] is called.
    pub fn new(clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            rng,
            sampled_below: AtomicU64::new(NEVER),
            is_on: AtomicBool::new(false),
            finished: Mutex::default(),
            dropped: Counter::default(),
        })
    }

    /// Sets the fraction of the traces started here that are sampled from now on. Traces of other
    /// processes are sampled if those sample them. `None` disables sampling.
    pub fn set_fraction(&self, fraction: Option<f64>) {
        let below = (fraction.unwrap_or(0.0).clamp(0.0, 1.0) * RATIO_SCALE) as u64;
        self.sampled_below.store(below, Ordering::Relaxed);
        self.is_on.store(fraction.is_some(), Ordering::Relaxed);
        if fraction.is_none() {
            lock(&self.finished).clear();
        }
    }

    /// Starts the first span of a trace in this process. The trace may have been started by another
    /// process.
    pub fn start_trace(
        self: &Arc<Self>,
        name: impl FnOnce() -> String,
        kind: SpanKind,
        parent: Option<TraceParent>,
    ) -> TraceSpan {
        if !self.is_on.load(Ordering::Relaxed) {
            // The position sent by the caller is forwarded unchanged.
            return parent.map_or(TraceSpan::default(), |at| {
                TraceSpan(TraceSpanState::Passed(at))
            });
        }
        let (trace, is_sampled) = match parent {
            Some(parent) => (parent.trace, parent.is_sampled),
            None => {
                let trace = u128::from(self.rng.next_u64()) << 64 | u128::from(self.random_id());
                // As in the SDKs, the lower half of the id without its last bit decides.
                let below = self.sampled_below.load(Ordering::Relaxed);
                (trace, (trace as u64) >> 1 < below)
            }
        };
        if !is_sampled {
            let span = self.random_id();
            return TraceSpan(TraceSpanState::Passed(TraceParent {
                trace,
                span,
                is_sampled,
            }));
        }
        let wall_ns = self.clock.now_ms().max(0) as u64 * 1_000_000;
        let keeper = SpanRecorder {
            tracer: self.clone(),
            zero_ns: wall_ns.saturating_sub(self.elapsed_ns()),
        };
        keeper.begin(trace, parent.map(|at| at.span), name(), kind)
    }

    /// Returns a random number that is not zero, for use as an id.
    fn random_id(&self) -> u64 {
        self.rng.next_u64().max(1)
    }

    fn elapsed_ns(&self) -> u64 {
        self.clock.monotonic().as_nanos() as u64
    }

    fn store_finished(&self, span: FinishedSpan) {
        let mut finished = lock(&self.finished);
        if finished.len() < QUEUE_MAX {
            finished.push(span)
        } else {
            self.dropped.inc()
        }
    }

    /// Removes and returns the finished spans in the order in which they ended.
    pub fn take_finished(&self) -> Vec<FinishedSpan> {
        std::mem::take(&mut *lock(&self.finished))
    }

    /// Returns the number of finished spans in the queue.
    pub fn finished_count(&self) -> usize {
        lock(&self.finished).len()
    }
}

/// The recorder of the spans of a sampled trace.
#[derive(Clone, Debug)]
struct SpanRecorder {
    tracer: Arc<Tracer>,
    /// The Unix epoch on the clock of elapsed time, determined at the start of the trace. All spans
    /// of a trace are measured by the same clock.
    zero_ns: u64,
}

impl SpanRecorder {
    fn begin(self, trace: u128, parent: Option<u64>, name: String, kind: SpanKind) -> TraceSpan {
        let finished = FinishedSpan {
            trace,
            span: self.tracer.random_id(),
            parent,
            name,
            kind,
            start_ns: self.now_ns(),
            end_ns: 0,
            attributes: Vec::new(),
            error: None,
        };
        let keeper = self;
        TraceSpan(TraceSpanState::Live(Box::new(LiveSpan {
            finished,
            keeper,
        })))
    }

    fn now_ns(&self) -> u64 {
        self.zero_ns + self.tracer.elapsed_ns()
    }
}

/// A reference to a span, for starting child spans. Cloning is cheap, and a reference does not keep
/// the span from ending.
#[derive(Clone, Debug)]
pub struct SpanContext {
    at: TraceParent,
    /// The recorder, if the trace is sampled in this process.
    keeper: Option<SpanRecorder>,
}

impl SpanContext {
    /// Starts a child span for an operation within the process.
    pub fn begin(&self, name: &str) -> TraceSpan {
        self.begin_as(name, SpanKind::Internal)
    }

    /// Starts a child span for a request to another server.
    pub fn begin_client(&self, name: &str) -> TraceSpan {
        self.begin_as(name, SpanKind::Client)
    }

    fn begin_as(&self, name: &str, kind: SpanKind) -> TraceSpan {
        let Some(keeper) = self.keeper.clone() else {
            return TraceSpan(TraceSpanState::Passed(self.at));
        };
        let parent = Some(self.at.span);
        keeper.begin(self.at.trace, parent, name.to_owned(), kind)
    }

    /// Starts a child span if there is a parent; otherwise returns an empty span.
    pub fn begin_child_of(whole: Option<&Self>, name: &str) -> TraceSpan {
        whole.map_or(TraceSpan::default(), |whole| whole.begin(name))
    }

    /// Returns whether child spans are recorded, so that attributes are worth computing.
    pub fn is_recorded(&self) -> bool {
        self.keeper.is_some()
    }

    /// Returns the position in the trace, for requests to other processes.
    pub fn parent(&self) -> TraceParent {
        self.at
    }
}

#[derive(Debug)]
struct LiveSpan {
    finished: FinishedSpan,
    keeper: SpanRecorder,
}

/// The state of a span, depending on whether its trace is sampled.
#[derive(Debug, Default)]
enum TraceSpanState {
    /// There is no trace, so nothing is recorded or forwarded.
    #[default]
    None,
    /// A position in a trace that is not recorded in this process.
    Passed(TraceParent),
    /// A span that is recorded and passed to the tracer when it ends.
    Live(Box<LiveSpan>),
}

/// An active span, or nothing if its trace is not sampled. It ends when it is dropped, or at the
/// time of the last call of [`TraceSpan::mark_end`].
#[derive(Debug, Default)]
pub struct TraceSpan(TraceSpanState);

impl TraceSpan {
    /// Returns a reference for child spans and other processes. `None` if there is no trace.
    pub fn context(&self) -> Option<SpanContext> {
        let at = self.parent()?;
        let keeper = match &self.0 {
            TraceSpanState::Live(live) => Some(live.keeper.clone()),
            TraceSpanState::None | TraceSpanState::Passed(_) => None,
        };
        Some(SpanContext { at, keeper })
    }

    /// Returns the position in the trace, for requests to other processes.
    pub fn parent(&self) -> Option<TraceParent> {
        match &self.0 {
            TraceSpanState::None => None,
            TraceSpanState::Passed(at) => Some(*at),
            TraceSpanState::Live(live) => Some(TraceParent {
                trace: live.finished.trace,
                span: live.finished.span,
                is_sampled: true,
            }),
        }
    }

    /// Returns whether the span is recorded, so that attributes are worth computing.
    pub fn is_recorded(&self) -> bool {
        matches!(self.0, TraceSpanState::Live(_))
    }

    /// Starts a child span for an operation within the process.
    pub fn begin_child(&self, name: &str) -> TraceSpan {
        self.context()
            .map_or(TraceSpan::default(), |context| context.begin(name))
    }

    /// Starts a child span for a request to another server.
    pub fn begin_client_child(&self, name: &str) -> TraceSpan {
        self.context()
            .map_or(TraceSpan::default(), |context| context.begin_client(name))
    }

    /// Adds an attribute. `value` is called only if the span is recorded.
    pub fn set_attribute<V: Into<SpanAttribute>>(
        &mut self,
        name: &'static str,
        value: impl FnOnce() -> V,
    ) {
        let TraceSpanState::Live(live) = &mut self.0 else {
            return;
        };
        let attributes = &mut live.finished.attributes;
        if attributes.len() < ATTRIBUTES_MAX {
            attributes.push((name, value().into()));
        }
    }

    /// Sets the end of the span to now. A later call overrides it.
    pub fn mark_end(&mut self) {
        if let TraceSpanState::Live(live) = &mut self.0 {
            live.finished.end_ns = live.keeper.now_ns();
        }
    }

    /// Sets the error text of the span. `error` is formatted only if the span is recorded.
    pub fn set_error(&mut self, error: impl std::fmt::Display) {
        if let TraceSpanState::Live(live) = &mut self.0 {
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = write!(text, "{error}");
            live.finished.error = Some(truncate(&text));
        }
    }
}

impl Drop for TraceSpan {
    fn drop(&mut self) {
        let TraceSpanState::Live(live) = std::mem::take(&mut self.0) else {
            return;
        };
        let LiveSpan {
            mut finished,
            keeper,
        } = *live;
        if finished.end_ns == 0 {
            finished.end_ns = keeper.now_ns();
        }
        keeper.tracer.store_finished(finished);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::TimestampMs;
    use std::time::Duration;

    /// A clock that advances by a millisecond with each call, and a generator of pseudorandom
    /// numbers.
    #[derive(Default)]
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn now_ms(&self) -> TimestampMs {
            1_000_000
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    impl Rng for Steps {
        fn next_u64(&self) -> u64 {
            // The SplitMix64 generator.
            let n = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            n ^ n >> 31
        }
    }

    fn tracer(fraction: Option<f64>) -> Arc<Tracer> {
        let tracer = Tracer::new(Arc::new(Steps::default()), Arc::new(Steps::default()));
        tracer.set_fraction(fraction);
        tracer
    }

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_is_read_and_written_as_the_standard_has_it() {
        let read = TraceParent::parse(PARENT).unwrap();
        assert_eq!(read.span, 0x00f0_67aa_0ba9_02b7);
        assert!(read.is_sampled);
        assert_eq!(read.header(), PARENT);
        let later = PARENT.replacen("00", "01", 1) + "-what-there-will-be";
        assert_eq!(TraceParent::parse(&later), Some(read));
        for wrong in [
            "",
            "00",
            &PARENT.replacen("00", "ff", 1),
            &PARENT.to_uppercase(),
            &format!("{PARENT}-x"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &PARENT[..PARENT.len() - 1],
            &PARENT.replace("-01", "-+1"),
        ] {
            assert_eq!(TraceParent::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn span_and_its_parts_end_as_one_trace() {
        let tracer = tracer(Some(1.0));
        let mut whole = tracer.start_trace(|| "whole".to_owned(), SpanKind::Server, None);
        whole.set_attribute("a", || "b");
        let mut part = whole.begin_child("part");
        part.set_attribute("n", || 3usize);
        part.set_error("broken");
        part.mark_end();
        let end_of_part = part.begin_child("between");
        drop(part);
        drop(end_of_part);
        let context = whole.context().unwrap();
        drop(whole);
        // A child span may end after its parent.
        drop(context.begin("late"));
        let spans = tracer.take_finished();
        let [part, between, whole, late] = &spans[..] else {
            panic!("{spans:?}")
        };
        assert_eq!(
            (whole.name.as_str(), whole.kind),
            ("whole", SpanKind::Server)
        );
        assert_eq!(
            whole.attributes,
            [("a", SpanAttribute::Text("b".to_owned()))]
        );
        assert_eq!(part.attributes, [("n", SpanAttribute::Integer(3))]);
        assert_eq!(part.error.as_deref(), Some("broken"));
        assert_eq!(whole.parent, None);
        assert!(part.end_ns < between.start_ns);
        for child in [part, late] {
            assert_eq!((child.trace, child.parent), (whole.trace, Some(whole.span)));
        }
        assert!(whole.start_ns < part.start_ns && part.end_ns < whole.end_ns);
        assert_eq!(whole.start_ns / 1_000_000_000, 1_000);
        assert_eq!(tracer.finished_count(), 0);
    }

    #[test]
    fn traces_are_sampled_as_their_beginner_or_the_fraction_says() {
        let sampled = |fraction, parent: Option<&str>| {
            let tracer = tracer(fraction);
            for _ in 0..1000 {
                let parent = parent.and_then(TraceParent::parse);
                drop(tracer.start_trace(String::new, SpanKind::Server, parent));
            }
            tracer.take_finished().len()
        };
        let unsampled = PARENT.replace("-01", "-00");
        assert_eq!(sampled(None, None), 0);
        assert_eq!(sampled(None, Some(PARENT)), 0);
        assert_eq!(sampled(Some(0.0), None), 0);
        assert_eq!(sampled(Some(0.0), Some(PARENT)), 1000);
        assert_eq!(sampled(Some(1.0), None), 1000);
        assert_eq!(sampled(Some(1.0), Some(&unsampled)), 0);
        let quarter = sampled(Some(0.25), None);
        assert!((200..300).contains(&quarter), "{quarter}");
        let tracer = tracer(Some(1.0));
        let parent = TraceParent::parse(PARENT);
        drop(tracer.start_trace(String::new, SpanKind::Server, parent));
        let span = tracer.take_finished().remove(0);
        assert_eq!(Some(span.trace), parent.map(|parent| parent.trace));
        assert_eq!(span.parent, parent.map(|parent| parent.span));
    }

    #[test]
    fn trace_that_is_not_kept_is_passed_on_as_its_beginner_or_the_fraction_says() {
        let unsampled = PARENT.replace("-01", "-00");
        for (fraction, told, passes) in [
            (None, None, None),
            (None, Some(PARENT), Some((PARENT.to_owned(), true))),
            (Some(0.0), None, Some((String::new(), false))),
            (
                Some(1.0),
                Some(&*unsampled),
                Some((unsampled.clone(), false)),
            ),
        ] {
            let tracer = tracer(fraction);
            let parent = told.and_then(TraceParent::parse);
            let span = tracer.start_trace(String::new, SpanKind::Server, parent);
            let passed = span.parent();
            assert_eq!(
                passed.map(|at| at.is_sampled),
                passes.as_ref().map(|(_, is_sampled)| *is_sampled)
            );
            if let (Some(at), Some(parent)) = (passed, parent) {
                assert_eq!(at.trace, parent.trace);
                // Without a local tracer, the position is forwarded unchanged.
                assert_eq!(at == parent, fraction.is_none());
            }
            // Child spans are not recorded either.
            let part = span.begin_child("part");
            assert_eq!((part.parent(), part.is_recorded()), (passed, false));
            drop((span, part));
            assert_eq!(tracer.finished_count(), 0);
        }
    }

    #[test]
    fn spans_beyond_the_queue_are_counted() {
        let tracer = tracer(Some(1.0));
        for _ in 0..QUEUE_MAX + 3 {
            drop(tracer.start_trace(String::new, SpanKind::Internal, None));
        }
        assert_eq!(tracer.take_finished().len(), QUEUE_MAX);
        assert_eq!(tracer.dropped.get(), 3);
    }
}
