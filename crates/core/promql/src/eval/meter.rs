//! Measures the processor time, memory, series and reads of each plan node while a query is
//! evaluated, for [`analyze`](crate::analyze). A query that is not analyzed has no meter.
//!
//! ```text
//! thread of the query:  enter(sum) ... enter(rate) ... leave ... parts ... leave
//! compute threads:                                       part: rows of rate -> sum
//! ```
//!
//! The time and the memory between two calls are assigned to the current node: the last one that
//! was entered and not left. The compute threads measure each part, which is assigned to the same
//! node. The rows of several nodes pass through one part; a stream moves their shares from the
//! consumer to these nodes, and a source moves the time of its reads to the selector. Invariant:
//! moving changes no sum.

use crate::plan::PlanNode;
use firn_model::budget::Budget;
use firn_model::env::{Clock, Compute, Job, JobKind};
use firn_model::labels::Labels;
use firn_model::store::{ReadCosts, Selection};
use firn_model::sync::lock;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of series of a selector whose labels are kept for hints.
const SAMPLED_SERIES: usize = 3;

/// The number of a node in the plan, in the order of [`PlanNode::children`] from the root.
pub(crate) type NodePlace = usize;

/// The meter of one query, shared by all its threads.
pub(crate) struct EvalMeter {
    clock: Arc<dyn Clock>,
    budget: Budget,
    /// The places of nodes by their address.
    places: FxHashMap<usize, NodePlace>,
    nodes: Vec<MeteredNode>,
    /// The nodes that were entered and not yet left. The root is always the first.
    stack: Mutex<Vec<NodePlace>>,
    /// The last node of `stack`.
    current: AtomicUsize,
    /// Time of the query's thread that is already counted.
    counted: Mutex<Duration>,
    /// Memory that is already counted.
    counted_bytes: AtomicUsize,
    is_parallel: AtomicBool,
}

/// The measurements of one node so far.
#[derive(Debug, Default)]
struct MeteredNode {
    nanos: AtomicI64,
    held_bytes: AtomicI64,
    peak_bytes: AtomicI64,
    series: AtomicU64,
    reads: Mutex<ReadCosts>,
    sampled: Mutex<Vec<Labels>>,
    unmatched: Mutex<Option<UnmatchedSeries>>,
}

/// The series of a binary operation without a match on the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnmatchedSeries {
    /// Number of series on the left side without a match, and of all series on that side.
    pub(crate) left: (usize, usize),
    /// Number of series on the right side without a match, and of all series on that side.
    pub(crate) right: (usize, usize),
}

/// The measurements of a node, after the evaluation.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeMeasurements {
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes: u64,
    pub(crate) series: u64,
    pub(crate) reads: ReadCosts,
    /// Some of the series that a selector found.
    pub(crate) sampled: Vec<Labels>,
    /// The dropped series of a binary operation between vectors.
    pub(crate) unmatched: Option<UnmatchedSeries>,
}

impl EvalMeter {
    /// Creates the meter of a plan, which must not be moved afterwards. Must be called on the
    /// thread that evaluates the query.
    pub(crate) fn new(plan: &PlanNode, clock: &Arc<dyn Clock>, budget: &Budget) -> Self {
        let mut places = FxHashMap::default();
        plan.visit(&mut |node| {
            let place = places.len();
            places.insert(node_address(node), place);
        });
        Self {
            nodes: places.iter().map(|_| MeteredNode::default()).collect(),
            places,
            stack: Mutex::new(vec![0]),
            current: AtomicUsize::new(0),
            counted: Mutex::new(clock.thread_time()),
            counted_bytes: AtomicUsize::new(budget.used_bytes()),
            is_parallel: AtomicBool::new(false),
            clock: clock.clone(),
            budget: budget.clone(),
        }
    }

    /// Returns the place of a node of the plan.
    pub(crate) fn place(&self, node: &PlanNode) -> NodePlace {
        self.place_at(node_address(node))
    }

    /// Returns the place of the node at an address.
    pub(crate) fn place_at(&self, address: usize) -> NodePlace {
        self.places.get(&address).copied().unwrap_or(0)
    }

    /// Begins the evaluation of a node, until [`EvalMeter::leave`].
    pub(crate) fn enter(&self, node: &PlanNode) {
        self.count_thread();
        let place = self.place(node);
        lock(&self.stack).push(place);
        self.current.store(place, Ordering::Relaxed);
    }

    /// Ends the evaluation of the node that was entered last.
    pub(crate) fn leave(&self) {
        self.count_thread();
        let mut stack = lock(&self.stack);
        stack.pop();
        let around = stack.last().copied().unwrap_or(0);
        self.current.store(around, Ordering::Relaxed);
    }

    /// Counts the remaining work of the query, after the evaluation of its root.
    pub(crate) fn finish(&self) {
        self.count_thread();
    }

    /// Returns the node whose rows the compute threads consume now.
    pub(crate) fn current(&self) -> NodePlace {
        self.current.load(Ordering::Relaxed)
    }

    /// Returns the node that will consume the samples of a selector: the node itself if it was
    /// entered as an instant vector.
    pub(crate) fn consumer_of(&self, selector: NodePlace, is_range: bool) -> NodePlace {
        let stack = lock(&self.stack);
        let mut around = stack.iter().rev().copied();
        match around.next() {
            Some(current) if current != selector => current,
            _ if is_range => around.next().unwrap_or(0),
            _ => selector,
        }
    }

    /// Returns the processor time of the calling thread.
    pub(crate) fn thread_time(&self) -> Duration {
        self.clock.thread_time()
    }

    /// Returns the elapsed time. Reading it costs less than reading the processor time.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Moves processor time from one node to another.
    pub(crate) fn move_time(&self, from: NodePlace, to: NodePlace, time: Duration) {
        let nanos = time.as_nanos() as i64;
        self.nodes[from].nanos.fetch_sub(nanos, Ordering::Relaxed);
        self.nodes[to].nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Adds series to those of a node.
    pub(crate) fn add_series(&self, place: NodePlace, series: usize) {
        let total = &self.nodes[place].series;
        total.fetch_add(series as u64, Ordering::Relaxed);
    }

    /// Adds the series that a selector found, and keeps the labels of some of them.
    pub(crate) fn add_selection(&self, place: NodePlace, selection: &dyn Selection) {
        let len = selection.len();
        self.add_series(place, len);
        let mut sampled = lock(&self.nodes[place].sampled);
        if sampled.is_empty() {
            let spread = (0..SAMPLED_SERIES).map(|at| at * (len.max(1) - 1) / (SAMPLED_SERIES - 1));
            let mut indexes: Vec<usize> = spread.filter(|index| *index < len).collect();
            indexes.dedup();
            sampled.extend(indexes.into_iter().map(|index| selection.labels(index)));
        }
    }

    /// Adds the costs of all reads of a selection.
    pub(crate) fn add_reads(&self, place: NodePlace, costs: ReadCosts) {
        let mut reads = lock(&self.nodes[place].reads);
        *reads = *reads + costs;
    }

    /// Records the series of a binary operation that have no match.
    pub(crate) fn set_unmatched(&self, place: NodePlace, unmatched: UnmatchedSeries) {
        *lock(&self.nodes[place].unmatched) = Some(unmatched);
    }

    /// Returns the measurements of a node. Must be called after the evaluation.
    pub(crate) fn measurements(&self, place: NodePlace) -> NodeMeasurements {
        let node = &self.nodes[place];
        let positive = |value: &AtomicI64| value.load(Ordering::Relaxed).max(0) as u64;
        NodeMeasurements {
            cpu: Duration::from_nanos(positive(&node.nanos)),
            memory_bytes: positive(&node.peak_bytes),
            series: node.series.load(Ordering::Relaxed),
            reads: *lock(&node.reads),
            sampled: lock(&node.sampled).clone(),
            unmatched: *lock(&node.unmatched),
        }
    }

    /// Counts the time of the query's thread and the memory since the last call.
    fn count_thread(&self) {
        let now = self.clock.thread_time();
        let before = std::mem::replace(&mut *lock(&self.counted), now);
        self.add_time(now.saturating_sub(before));
        self.count_memory();
    }

    fn add_time(&self, time: Duration) {
        let nanos = &self.nodes[self.current()].nanos;
        nanos.fetch_add(time.as_nanos() as i64, Ordering::Relaxed);
    }

    fn count_memory(&self) {
        let used = self.budget.used_bytes();
        let before = self.counted_bytes.swap(used, Ordering::Relaxed);
        let node = &self.nodes[self.current()];
        let change = used as i64 - before as i64;
        let held = node.held_bytes.fetch_add(change, Ordering::Relaxed) + change;
        node.peak_bytes.fetch_max(held, Ordering::Relaxed);
    }
}

/// The compute threads. Their work is assigned to the current node of a meter.
pub(crate) struct MeteredCompute<'a> {
    inner: &'a dyn Compute,
    meter: &'a EvalMeter,
}

impl<'a> MeteredCompute<'a> {
    /// Measures the work on `inner`.
    pub(crate) fn new(inner: &'a dyn Compute, meter: &'a EvalMeter) -> Self {
        Self { inner, meter }
    }
}

impl Compute for MeteredCompute<'_> {
    fn spawn(&self, work: JobKind, job: Job) {
        self.inner.spawn(work, job);
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let meter = self.meter;
        // Parts of a part are measured as a part of it.
        if meter.is_parallel.swap(true, Ordering::Relaxed) {
            return self.inner.for_each(tasks, task);
        }
        meter.count_thread();
        self.inner.for_each(tasks, &|part| {
            let begin = meter.thread_time();
            task(part);
            meter.add_time(meter.thread_time().saturating_sub(begin));
            meter.count_memory();
        });
        // The parts that ran on this thread are already counted.
        *lock(&meter.counted) = meter.thread_time();
        meter.is_parallel.store(false, Ordering::Relaxed);
    }

    fn threads(&self) -> usize {
        self.inner.threads()
    }
}

/// Distributes the time of the rows of one part among the nodes of a stream. Some rows are timed,
/// and the measured time of the part is divided accordingly.
pub(crate) struct RowTimer<'a> {
    meter: &'a EvalMeter,
    /// The nodes whose operations the rows pass through, the producer first.
    places: Vec<NodePlace>,
    begin: Duration,
    begin_elapsed: Duration,
    /// Elapsed time of the timed rows in the operations of each node, and in the consumer.
    spent: Vec<Duration>,
    rows: u32,
    timed: u32,
    mark: Option<Duration>,
}

/// One row in this number is timed.
const ROWS_PER_TIMED: u32 = 32;

impl<'a> RowTimer<'a> {
    /// Begins a part whose rows pass through the nodes at `places`.
    pub(crate) fn begin(meter: &'a EvalMeter, places: Vec<NodePlace>) -> Self {
        Self {
            meter,
            spent: vec![Duration::ZERO; places.len() + 1],
            places,
            begin: meter.thread_time(),
            begin_elapsed: meter.elapsed(),
            rows: 0,
            timed: 0,
            mark: None,
        }
    }

    /// Begins a row that the base of the stream has produced.
    pub(crate) fn begin_row(&mut self) {
        if self.rows.is_multiple_of(ROWS_PER_TIMED) {
            self.mark = Some(self.meter.elapsed());
            self.timed += 1;
        }
        self.rows += 1;
    }

    /// Ends the operations of the node with this number among the places of the stream, or of the
    /// consumer after them.
    pub(crate) fn end_node(&mut self, number: usize) {
        if let Some(mark) = &mut self.mark {
            let now = self.meter.elapsed();
            self.spent[number] += now.saturating_sub(*mark);
            *mark = now;
        }
    }

    /// Ends a row, after its consumer.
    pub(crate) fn end_row(&mut self) {
        self.end_node(self.places.len());
        self.mark = None;
    }

    /// Ends the part and moves the shares of the nodes from the consumer to them.
    pub(crate) fn finish(self) {
        let total = self.meter.thread_time().saturating_sub(self.begin);
        let elapsed = self.meter.elapsed().saturating_sub(self.begin_elapsed);
        if self.rows == 0 || elapsed.is_zero() {
            return;
        }
        // A share of the elapsed time is the same share of the processor time.
        let per_nano = total.as_secs_f64() / elapsed.as_secs_f64();
        let scale = per_nano * f64::from(self.rows) / f64::from(self.timed);
        let mut left = total;
        let mut shares: Vec<Duration> = Vec::with_capacity(self.spent.len());
        for spent in self.spent.iter().skip(1) {
            let share = spent.mul_f64(scale).min(left);
            left -= share;
            shares.push(share);
        }
        // The rest was spent on the base of the stream, and on the operations of its node.
        let consumer = self.meter.current();
        let shares = std::iter::once(left).chain(shares);
        for (place, share) in self.places.iter().zip(shares) {
            self.meter.move_time(consumer, *place, share);
        }
    }
}

/// Returns the address of a node, which identifies it during the evaluation of its plan.
pub(crate) fn node_address(node: &PlanNode) -> usize {
    std::ptr::from_ref(node).addr()
}
