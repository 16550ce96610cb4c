//! The results cache of range queries: the steps of earlier results, which a later query with the
//! same expression and step extends instead of evaluating all steps again.
//!
//! ```text
//! cached:            |--------------------------|
//! unchanged before:                        ^ (oldest sample that was added since)
//! query:                 |-------------------------------|
//! answer:                |---- cached -----|- evaluated -|
//! ```
//!
//! Invariant: an answer has the same bits as an evaluation without the cache. Four conditions
//! ensure this; otherwise the whole query is evaluated and its result may not be cached.
//!
//! - The samples of the cached steps are unchanged: [`Select::unchanged_before`], checked before
//!   and after the evaluation of the other steps.
//! - The value of a step depends only on samples near the step: [`newest_read`].
//! - It does not depend on the range of the query through the order of the series or the division
//!   into parts: [`QueryResult::depends_on_range`].
//! - Annotations are the same: both parts have the same one, or the cached one has none.
//!
//! Native histograms are not cached, because their columns are large. Answers of a single step and
//! instant queries bypass the cache. Limits of queries apply to the steps that are evaluated.
//!
//! [`Select::unchanged_before`]: firn_model::store::Select::unchanged_before

mod entries;
mod steps;

use crate::engine::QueryEngine;
use crate::parts::Provider;
use entries::{CacheEntries, CacheKey, CachedResult};
use firn_model::budget::{Budget, Reservation};
use firn_model::metrics::{Collect, Counter, MetricSink, MetricValue};
use firn_model::sample::TimestampMs;
use firn_model::store::StoreVersion;
use firn_model::sync::lock;
use firn_promql::steps::{newest_read, reach_max};
use firn_promql::value::{PromqlError, QueryResult, QueryValue};
use firn_promql::{EvalTime, Options, QueryContext};
use std::sync::{Arc, Mutex};
use steps::{CachedSteps, QuerySteps};

const NANOS_PER_MS: i64 = 1_000_000;

/// Cached steps are used if they are at least one in this number of the steps of a query. With
/// fewer, the evaluation of all steps is not much more expensive.
const REUSED_PART: usize = 4;

/// One result may take at most one part in this number of the cache.
const ENTRY_PART: usize = 8;

/// The cache, shared by all range queries of a server.
pub struct ResultsCache {
    entries: Mutex<CacheEntries>,
    budget: Budget,
    bytes_max: Provider<usize>,
    metrics: ResultsCacheMetrics,
}

#[derive(Debug, Default)]
struct ResultsCacheMetrics {
    hits: Counter,
    misses: Counter,
    bypassed: Counter,
    reused_steps: Counter,
    evicted: Counter,
    invalidated: Counter,
}

/// A query whose steps may be cached.
struct CacheableQuery<'a> {
    engine: &'a dyn QueryEngine,
    context: &'a QueryContext<'a>,
    text: &'a str,
    options: Options,
    steps: QuerySteps,
    key: Arc<CacheKey>,
    /// The version of the store before the query reads any sample.
    version: StoreVersion,
    /// The newest time that a step reads, relative to the step.
    newest_read: i64,
}

impl CacheableQuery<'_> {
    fn evaluate(&self, time: EvalTime) -> Result<QueryResult, PromqlError> {
        self.engine
            .query(self.context, self.text, time, &self.options)
    }

    /// Returns the first step that a sample at or after `changed` may affect.
    fn first_affected(&self, changed: TimestampMs) -> TimestampMs {
        if self.newest_read == i64::MIN || changed == TimestampMs::MAX {
            return TimestampMs::MAX;
        }
        changed.saturating_sub(self.newest_read)
    }

    /// Returns the first step that may be affected by changes since `version`.
    fn first_affected_since(&self, version: &StoreVersion) -> TimestampMs {
        let QueryContext { store, tenant, .. } = self.context;
        let changed = store.unchanged_before(tenant, version);
        if changed == TimestampMs::MIN {
            return changed;
        }
        self.first_affected(changed)
    }
}

impl ResultsCache {
    /// Creates an empty cache, whose entries reserve memory in `budget`. `bytes_max` returns their
    /// maximum size in the running configuration; zero disables the cache.
    pub fn new(budget: Budget, bytes_max: Provider<usize>) -> Self {
        Self {
            entries: Mutex::default(),
            budget,
            bytes_max,
            metrics: ResultsCacheMetrics::default(),
        }
    }

    /// Evaluates a query like [`QueryEngine::query`], with cached steps where possible.
    pub fn query(
        &self,
        engine: &dyn QueryEngine,
        context: &QueryContext<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, PromqlError> {
        let bytes_max = (self.bytes_max)();
        let evicted = lock(&self.entries).shrink_to(bytes_max);
        self.metrics.evicted.add(evicted as u64);
        let query = (bytes_max > 0)
            .then(|| prepare(engine, context, text, time, options))
            .flatten();
        let Some(query) = query else {
            self.metrics.bypassed.inc();
            return engine.query(context, text, time, options);
        };
        let known = lock(&self.entries).get(&query.key);
        if let Some(known) = known
            && let Some(reused) = self.find_reusable(&query, &known)
        {
            if let Some(result) = self.extend(&query, &known, reused, bytes_max)? {
                self.metrics.hits.inc();
                self.metrics.reused_steps.add(reused as u64);
                return Ok(result);
            }
            self.metrics.invalidated.inc();
            lock(&self.entries).remove(&query.key);
        }
        self.metrics.misses.inc();
        let result = query.evaluate(time)?;
        if let Some((steps, _memory)) = self.convert(&query, &result, query.steps, bytes_max) {
            self.insert(&query, steps, &result, bytes_max);
        }
        Ok(result)
    }

    /// Returns the number of steps at the start of the query that a cached result contains, if
    /// there are enough.
    fn find_reusable(&self, query: &CacheableQuery<'_>, known: &CachedResult) -> Option<usize> {
        let affected = query.first_affected_since(&known.version);
        let all = known.steps.reusable(&query.steps, TimestampMs::MAX)?;
        let reused = known.steps.reusable(&query.steps, affected);
        let reused = reused.filter(|reused| reused * REUSED_PART >= query.steps.count);
        if reused.is_none() && all * REUSED_PART >= query.steps.count {
            self.metrics.invalidated.inc();
        }
        reused
    }

    /// Evaluates the steps after the first `reused` ones, and joins both parts. Returns `None` if
    /// the result might differ from an evaluation of all steps.
    fn extend(
        &self,
        query: &CacheableQuery<'_>,
        known: &CachedResult,
        reused: usize,
        bytes_max: usize,
    ) -> Result<Option<QueryResult>, PromqlError> {
        let rest = query.steps.without_first(reused);
        let mut result = match query.evaluate(rest.time(query.steps.end)) {
            // The error of an evaluation of all steps may contain another series.
            Err(PromqlError::Execution(_)) => return Ok(None),
            result => result?,
        };
        let has_annotations = !known.warnings.is_empty() || !known.infos.is_empty();
        let is_annotated_alike = known.warnings == result.warnings && known.infos == result.infos;
        if has_annotations && !is_annotated_alike {
            return Ok(None);
        }
        let Some((fresh, _fresh)) = self.convert(query, &result, rest, bytes_max) else {
            return Ok(None);
        };
        // The evaluation may have read a new batch that also affects the cached steps.
        if query.first_affected_since(&query.version) < rest.first {
            return Ok(None);
        }
        let budget = query.context.budget;
        let Ok(_joined) = budget.reserve(known.steps.bytes() + fresh.bytes()) else {
            return Ok(None);
        };
        let joined = known.steps.join(&fresh, query.steps.count);
        let Ok(memory) = budget.reserve(joined.matrix_bytes(&query.steps)) else {
            return Ok(None);
        };
        result.memory = memory;
        result.value = QueryValue::Matrix(joined.matrix(&query.steps));
        if known.steps.last() <= query.steps.last() {
            self.insert(query, joined, &result, bytes_max);
        }
        Ok(Some(result))
    }

    /// Converts a result to columns, reserved in the memory of the query. Returns `None` if its
    /// steps cannot be joined with others, or if it is too large.
    fn convert(
        &self,
        query: &CacheableQuery<'_>,
        result: &QueryResult,
        steps: QuerySteps,
        bytes_max: usize,
    ) -> Option<(CachedSteps, Reservation)> {
        let QueryValue::Matrix(series) = &result.value else {
            return None;
        };
        // Several annotations of a kind would have an order that depends on the range.
        if result.depends_on_range || result.warnings.len() > 1 || result.infos.len() > 1 {
            return None;
        }
        let bytes = CachedSteps::bytes_of(series, &steps);
        if bytes > self.entry_bytes_max(bytes_max) {
            return None;
        }
        let memory = query.context.budget.reserve(bytes).ok()?;
        Some((CachedSteps::from_matrix(series, steps)?, memory))
    }

    /// Returns the maximum size of one result in bytes.
    fn entry_bytes_max(&self, bytes_max: usize) -> usize {
        bytes_max.min(self.budget.limit_bytes()) / ENTRY_PART
    }

    fn insert(
        &self,
        query: &CacheableQuery<'_>,
        steps: CachedSteps,
        result: &QueryResult,
        bytes_max: usize,
    ) {
        let cached = CachedResult {
            version: query.version.clone(),
            steps,
            warnings: result.warnings.clone(),
            infos: result.infos.clone(),
        };
        let bytes = cached.bytes() + query.key.bytes();
        if bytes > self.entry_bytes_max(bytes_max) {
            return;
        }
        let mut entries = lock(&self.entries);
        entries.remove(&query.key);
        let mut evicted = entries.shrink_to(bytes_max - bytes);
        let mut memory = self.budget.reserve(bytes);
        while memory.is_err() && entries.evict_oldest() {
            evicted += 1;
            memory = self.budget.reserve(bytes);
        }
        if let Ok(memory) = memory {
            entries.insert(query.key.clone(), Arc::new(cached), memory);
        }
        self.metrics.evicted.add(evicted as u64);
    }
}

/// Returns the query if its steps may be cached.
fn prepare<'a>(
    engine: &'a dyn QueryEngine,
    context: &'a QueryContext<'a>,
    text: &'a str,
    time: EvalTime,
    options: &Options,
) -> Option<CacheableQuery<'a>> {
    let EvalTime::Range {
        start,
        end,
        step_ns,
    } = time
    else {
        return None;
    };
    if options.counts_samples || step_ns % NANOS_PER_MS != 0 {
        return None;
    }
    let steps = QuerySteps::from_bounds(start, end, time.step_ms())?;
    let version = context.store.version(context.tenant)?;
    let mut memory = context.budget.create_reservation();
    // The evaluation reports errors of the text.
    let expr = engine.tree(text, options.features, &mut memory).ok()?;
    let newest_read = newest_read(&expr, options.features)?;
    let oldest = steps
        .first
        .saturating_sub(reach_max(&expr, options.lookback_ms));
    if oldest < version.kept_from {
        return None;
    }
    let key = CacheKey {
        tenant: context.tenant.clone(),
        part: version.part.clone(),
        text: text.to_owned(),
        step_ms: steps.step_ms,
        phase: steps.first.rem_euclid(steps.step_ms),
        lookback_ms: options.lookback_ms,
        default_subquery_step_ms: options.default_subquery_step_ms,
    };
    Some(CacheableQuery {
        engine,
        context,
        text,
        options: Options {
            detects_range_dependence: true,
            ..*options
        },
        steps,
        key: Arc::new(key),
        version,
        newest_read,
    })
}

impl Collect for ResultsCache {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let metrics = &self.metrics;
        let counters = [
            (
                "firn_query_results_cache_hits_total",
                "Range queries that were partly answered from the results cache.",
                &metrics.hits,
            ),
            (
                "firn_query_results_cache_misses_total",
                "Range queries that may be cached and were evaluated completely.",
                &metrics.misses,
            ),
            (
                "firn_query_results_cache_bypassed_total",
                "Range queries that may not be cached.",
                &metrics.bypassed,
            ),
            (
                "firn_query_results_cache_reused_steps_total",
                "Steps that were answered from the results cache.",
                &metrics.reused_steps,
            ),
            (
                "firn_query_results_cache_evicted_total",
                "Results that were removed from the results cache to free memory.",
                &metrics.evicted,
            ),
            (
                "firn_query_results_cache_invalidated_total",
                "Cached results that were not used because samples or annotations had changed.",
                &metrics.invalidated,
            ),
        ];
        for (name, help, counter) in counters {
            sink.metric(name, help, &[], MetricValue::Counter(counter.get() as f64));
        }
        let (count, bytes) = lock(&self.entries).size();
        sink.metric(
            "firn_query_results_cache_entries",
            "Results in the results cache.",
            &[],
            MetricValue::Gauge(count as f64),
        );
        sink.metric(
            "firn_query_results_cache_bytes",
            "Memory of the results cache.",
            &[],
            MetricValue::Gauge(bytes as f64),
        );
    }
}
