//! Selects the info series for `info`, and determines the timestamps of their samples.

use crate::eval::account::{QueryAccount, grow, storage_error};
use crate::eval::kernels::window::StepWindows;
use crate::eval::operators::info::IDENTIFYING;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::reads::ReadBuffer;
use crate::eval::rows::row_labels::ALLOCATION_BYTES;
use crate::eval::rows::source::{SampleSource, SelectionMeter, SelectionSource};
use crate::eval::run::EvalContext;
use crate::grid::{SelectorWindow, StepGrid};
use crate::plan::{PlanNode, PlanNodeKind};
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn, SeriesColumns};
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::{TimeRange, TimestampMs, is_stale};
use firn_model::store::SelectRequest;
use std::ops::Range;

/// The name of the default info metric, which OpenTelemetry defines.
const TARGET_INFO: &[u8] = b"target_info";

/// The pattern of info metric names that is used if all matchers of the name are negative.
const ANY_INFO: &[u8] = b".+_info";

/// The timestamp that means that there is no sample.
const NEVER: TimestampMs = TimestampMs::MIN;

/// Returns whether a timestamp means that there is no sample.
pub(crate) fn is_never_seen(time: TimestampMs) -> bool {
    time == NEVER
}

/// An info series and the timestamps of its samples.
pub(crate) struct InfoSeries {
    /// The labels of the series, including its metric name.
    pub(crate) labels: Labels,
    /// For each step, the timestamp of the newest sample. [`is_never_seen`] detects steps without a
    /// sample.
    pub(crate) times: Vec<TimestampMs>,
}

/// The matchers of the second argument, split into those of the metric name and of other labels.
pub(crate) struct InfoMatchers {
    names: Vec<Matcher>,
    data: Vec<Matcher>,
}

impl InfoMatchers {
    /// Reads the matchers of the selector. Without a selector the default info metric is used.
    pub(crate) fn from_selector(selector: Option<&PlanNode>) -> Self {
        let matchers = match selector.map(|node| &node.kind) {
            Some(PlanNodeKind::Vector(selector)) => selector.matchers.clone(),
            _ => Vec::new(),
        };
        let is_name = |m: &Matcher| m.name() == METRIC_NAME;
        let (mut names, data): (Vec<Matcher>, Vec<Matcher>) =
            matchers.into_iter().partition(is_name);
        if names.is_empty() {
            names.extend(Matcher::new(METRIC_NAME, MatchOp::Equal, TARGET_INFO));
        } else if names.iter().all(|m| m.op().is_negative()) {
            let any = Matcher::new(METRIC_NAME, MatchOp::Regex, ANY_INFO);
            names.splice(0..0, any);
        }
        Self { names, data }
    }

    /// Returns whether a metric with this name is one of the requested info metrics.
    pub(crate) fn names_match(&self, name: &[u8]) -> bool {
        self.names.iter().all(|m| m.matches(name))
    }

    /// Returns whether this label of an info series is added to results.
    pub(crate) fn takes_label(&self, label: &str) -> bool {
        self.data.is_empty() || self.data.iter().any(|m| m.name() == label)
    }

    /// Returns whether a series without a matching info series is kept.
    pub(crate) fn data_may_be_empty(&self) -> bool {
        self.data.iter().all(Matcher::matches_empty)
    }
}

/// Reads the info series that may describe series of `base`, except ignored ones.
pub(crate) fn select(
    run: &EvalContext<'_>,
    arg: &PlanNode,
    base: &SeriesFrame,
    ignored: &[bool],
    wanted: &InfoMatchers,
    grid: StepGrid,
    memory: &mut Reservation,
) -> Result<Vec<InfoSeries>, PromqlError> {
    let mut passing = run.account.reserve(0)?;
    let mut matchers = identifying_matchers(base, ignored, run.account, &mut passing)?;
    if matchers.is_empty() {
        return Ok(Vec::new());
    }
    matchers.extend(wanted.data.iter().chain(&wanted.names).cloned());
    let lookback_ms = run.options.lookback_ms;
    let range = time_range(arg, lookback_ms, grid);
    let request = SelectRequest {
        tenant: run.ctx.tenant,
        matchers: &matchers,
        range,
        newest_only: false,
        cancel: run.ctx.cancel,
        budget: run.ctx.budget,
        series: run.account.series_limit(),
        span: None,
    };
    let selection = run.ctx.store.select(request).map_err(storage_error)?;
    run.account.register_selection(&*selection);
    let meter = run.account.meter().map(|meter| SelectionMeter {
        meter: meter.clone(),
        selector: meter.current(),
        consumer: meter.current(),
    });
    let source = SelectionSource::new(selection, &matchers).with_meter(meter);
    let reach = SelectorWindow {
        range_ms: lookback_ms,
        offset_ms: 0,
        at: None,
    };
    read(run, &source, range, &grid, &reach, memory)
}

/// Returns one matcher for each identifying label that occurs in a series. It matches all values of
/// this label.
fn identifying_matchers(
    base: &SeriesFrame,
    ignored: &[bool],
    account: &QueryAccount<'_>,
    memory: &mut Reservation,
) -> Result<Vec<Matcher>, PromqlError> {
    // Once in the column, twice in the pattern, and once in the parsed pattern.
    const COPIES: usize = 4;
    let mut matchers = Vec::new();
    for name in IDENTIFYING {
        let (LabelColumn { ids, values }, _column) = base.label_column(name, account)?;
        let mut is_asked = vec![false; values.len()];
        for (id, _) in ids.iter().zip(ignored).filter(|(_, ignored)| !**ignored) {
            is_asked[*id as usize] = true;
        }
        let asked = values
            .iter()
            .zip(is_asked)
            .filter(|(_, is_asked)| *is_asked);
        let mut literals = Vec::new();
        for (value, _) in asked.filter(|(value, _)| !value.is_empty()) {
            account.check()?;
            grow(memory, COPIES * (value.len() + COLUMN_VALUE_BYTES))?;
            literals.push(escape_literal(value));
        }
        if !literals.is_empty() {
            let pattern = literals.join(&b'|');
            matchers.extend(Matcher::new(name, MatchOp::Regex, &pattern));
        }
    }
    Ok(matchers)
}

/// Returns a pattern that matches only `value`: special characters are escaped.
fn escape_literal(value: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(value.len());
    for byte in value {
        if br"\.+*?()|[]{}^$".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

/// Returns the range of data time that is read: that of the first selector in the argument, as in
/// Prometheus, although info series are evaluated without its offset and `@`.
fn time_range(arg: &PlanNode, lookback_ms: i64, grid: StepGrid) -> TimeRange {
    let (at, offset_ms) = first_selector(arg).unwrap_or((None, 0));
    let start = at.unwrap_or(grid.start).saturating_sub(offset_ms);
    let end = at.unwrap_or(grid.end).saturating_sub(offset_ms);
    let start = start.saturating_sub(lookback_ms).saturating_add(1);
    TimeRange::new(start, end.max(start))
}

/// Returns `@` and offset of the first selector or subquery. Subqueries count, because Prometheus
/// has replaced them by their samples at this point.
fn first_selector(node: &PlanNode) -> Option<(Option<TimestampMs>, i64)> {
    match &node.kind {
        PlanNodeKind::Vector(selector) | PlanNodeKind::Matrix(selector, _) => {
            Some((selector.at, selector.offset_ms))
        }
        PlanNodeKind::Subquery(subquery) => Some((subquery.at, subquery.offset_ms)),
        PlanNodeKind::Call(_, args) => args.iter().find_map(first_selector),
        PlanNodeKind::Aggregate(aggregate) => {
            let param = || aggregate.param.as_ref().and_then(first_selector);
            first_selector(&aggregate.input).or_else(param)
        }
        PlanNodeKind::Binary(binary) => {
            first_selector(&binary.left).or_else(|| first_selector(&binary.right))
        }
        PlanNodeKind::Negate(inner) | PlanNodeKind::Same(inner) => first_selector(inner),
        PlanNodeKind::Number(_) | PlanNodeKind::Text(_) => None,
    }
}

fn read(
    run: &EvalContext<'_>,
    source: &dyn SampleSource,
    range: TimeRange,
    grid: &StepGrid,
    reach: &SelectorWindow,
    memory: &mut Reservation,
) -> Result<Vec<InfoSeries>, PromqlError> {
    let account = run.account;
    let mut plan = StepWindows::default();
    let mut infos = Vec::new();
    let all = 0..source.len();
    // The list may have capacity for twice as many.
    let info_bytes = grid.count * size_of::<TimestampMs>() + 2 * size_of::<InfoSeries>();
    ReadBuffer::default().read(source, all, grid.count, account, |stretch, batch| {
        for (at, series) in stretch.enumerate() {
            account.check()?;
            grow(memory, info_bytes)?;
            let columns = batch.series(at);
            let Range { start, end } = range.indexes(columns.times);
            plan.fill(&columns.times[start..end], grid, reach);
            let mut times = vec![NEVER; grid.count];
            let mut seen = 0;
            for (step, index) in plan.newest() {
                if let Some(time) =
                    sample_timestamp(&columns, start + index, || source.labels(series))?
                {
                    times[step] = time;
                    seen += 1;
                }
            }
            account.count_read(seen);
            if seen > 0 {
                let labels = source.labels(series);
                grow(memory, labels.as_bytes().len() + ALLOCATION_BYTES)?;
                infos.push(InfoSeries { labels, times });
            }
        }
        Ok(())
    })?;
    Ok(infos)
}

/// Returns the timestamp of a sample, or `None` for a staleness marker. Fails for histograms.
fn sample_timestamp(
    columns: &SeriesColumns<'_>,
    index: usize,
    labels: impl Fn() -> Labels,
) -> Result<Option<TimestampMs>, PromqlError> {
    let place = |(at, _): &(u32, _)| *at as usize;
    match columns.histograms.binary_search_by_key(&index, place) {
        Ok(at) if columns.histograms[at].1.is_stale() => Ok(None),
        Ok(_) => Err(PromqlError::Execution(format!(
            "this should be an info metric, with float samples: {}",
            labels()
        ))),
        Err(_) => Ok(Some(columns.times[index]).filter(|_| !is_stale(columns.values[index]))),
    }
}
