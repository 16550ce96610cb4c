//! Compares answers of the results cache with answers without it, bit by bit, in random histories
//! of the real store: appends in order and late, staleness markers, deletes, imports, retention,
//! sealing, cuts and restarts.
//!
//! A failure prints the seed; `FIRN_SEED=s` repeats one history, and `FIRN_SEEDS=n` sets their
//! number.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim::{self, InlineCompute, SimEnv, SimRng};
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metrics::Collect;
use firn_model::sample::{TimeRange, stale_nan};
use firn_model::store::{Append, AppendBounds, DeleteRequest};
use firn_model::tenant::TenantId;
use firn_promql::value::{PromqlError, QueryResult, QueryValue};
use firn_promql::{EvalTime, Features, Options, QueryContext};
use firn_server::engine::{PromqlEngine, QueryEngine};
use firn_server::results_cache::ResultsCache;
use firn_storage::import::SampleColumns;
use firn_storage::store::{RetentionLimits, RetentionRule, RetentionRules, Store, StoreOptions};
use firn_wire::exposition::TextSink;
use std::sync::Arc;

/// Number of histories in an ordinary run. `FIRN_SEEDS=2000` evaluates 100,000 queries.
const SEEDS: u64 = 40;

/// Histories that found an error: samples beyond the retention disappear when they are sealed.
const FOUND: [u64; 1] = [231];

/// Number of queries in a history.
const ROUNDS: u64 = 50;

const MINUTE: i64 = 60_000;

const OPTIONS: Options = Options {
    features: Features {
        experimental_functions: true,
        extended_range_selectors: false,
        binop_fill_modifiers: false,
        duration_expressions: false,
        delayed_name_removal: false,
        use_start_timestamps: false,
        type_and_unit_labels: false,
    },
    lookback_ms: 90_000,
    default_subquery_step_ms: 30_000,
    samples_max: u64::MAX,
    series_max: usize::MAX,
    counts_samples: false,
    detects_range_dependence: false,
};

/// Expressions of dashboards. Some of them may not be cached.
const EXPRESSIONS: [&str; 44] = [
    "m",
    "m{i=~\"[0-4]\"} offset 20s",
    "m offset -25s",
    "rate(m[1m])",
    "rate(c_total[2m])",
    "irate(c_total[2m])",
    "sum(rate(c_total[1m]))",
    "sum by (j) (m)",
    "sum without (i) (rate(c_total[90s] offset 10s))",
    "avg by (j) (m)",
    "avg(rate(c_total[2m]))",
    "min by (j) (m)",
    "max(m)",
    "count by (j) (m)",
    "group by (i) (c_total)",
    "stddev(m)",
    "stdvar by (j) (m)",
    "quantile(0.9, m)",
    "topk(2, m)",
    "bottomk by (j) (1, m)",
    "limitk(2, m)",
    "count_values(\"v\", round(m))",
    "sum(m) / sum(c_total)",
    "m / on (j, i) c_total",
    "m > 10",
    "m and c_total",
    "c_total unless on (i) m",
    "m or c_total",
    "{j=\"a\"}",
    "rate({j=\"a\"}[1m])",
    "avg_over_time(m[2m])",
    "stddev_over_time(m[2m])",
    "max_over_time(sum by (j) (m)[2m:15s])",
    "sum_over_time(rate(c_total[1m])[90s:])",
    "quantile_over_time(0.5, m[1m])",
    "absent(m{i=\"3\"})",
    "absent_over_time(m{j=\"a\"}[30s])",
    "label_replace(m, \"k\", \"x\", \"i\", \"[0-3]\")",
    "timestamp(m)",
    "time() - scalar(sum(m))",
    "m @ end()",
    "sum(m @ 10000000)",
    "histogram_quantile(0.5, sum by (le) (rate(b_bucket[2m])))",
    "sort(m)",
];

/// A panel of a dashboard, which sends the same query again and again.
struct Panel {
    text: &'static str,
    step_ms: i64,
    span_ms: i64,
    /// True if start and end are multiples of the step, as in Grafana.
    is_aligned: bool,
}

struct World {
    seed: u64,
    rng: SimRng,
    sim: SimEnv,
    options: StoreOptions,
    /// `None` only during a restart, because a folder is locked while its store exists.
    store: Option<Arc<Store>>,
    cache: ResultsCache,
    now: i64,
    /// Rule by which the values of a series are chosen.
    values: Vec<u64>,
    panels: Vec<Panel>,
}

fn labels_of(series: u64) -> Labels {
    let (job, instance) = (["a", "b"][series as usize % 2], (series / 4).to_string());
    let name = ["m", "c_total", "m", "b_bucket"][series as usize % 4];
    let mut pairs = vec![("__name__", name), ("i", &instance), ("j", job)];
    if name == "b_bucket" {
        pairs.push(("le", ["1", "5", "+Inf"][series as usize / 4 % 3]));
    }
    Labels::from_pairs(pairs)
}

fn context<'a>(
    store: &'a Store,
    tenant: &'a TenantId,
    budget: &'a Budget,
    cancel: &'a CancelToken,
) -> QueryContext<'a> {
    QueryContext {
        store,
        tenant,
        compute: &InlineCompute,
        budget,
        cancel,
        failed_counts: None,
    }
}

/// Returns an answer as text with all bits of its values. The bits of NaN are not sent to clients.
fn bits(result: Result<QueryResult, PromqlError>) -> String {
    let result = match result {
        Ok(result) => result,
        Err(e) => return e.to_string(),
    };
    let QueryValue::Matrix(series) = &result.value else {
        panic!("a range query answers with a matrix");
    };
    let mut text = format!("{:?} {:?}\n", result.warnings, result.infos);
    for one in series {
        let bits = |(time, value): &(i64, f64)| {
            let value = if value.is_nan() { f64::NAN } else { *value };
            (*time, value.to_bits())
        };
        let floats: Vec<(i64, u64)> = one.floats.iter().map(bits).collect();
        text += &format!("{} {floats:?} {:?}\n", one.labels, one.histograms);
    }
    text
}

impl World {
    fn new(seed: u64) -> Self {
        let rng = SimRng::new(seed);
        let sim = sim::sim_env(seed);
        let options = StoreOptions {
            shards: 1 + rng.next_below(3) as usize,
            window_ms: [MINUTE, 30 * MINUTE][rng.next_below(2) as usize],
            cut_ms: [10 * MINUTE, 120 * MINUTE][rng.next_below(2) as usize],
            late_window_ms: 60 * MINUTE,
            ..StoreOptions::new("/data")
        };
        let below = |bound: u64| rng.next_below(bound) as usize;
        let panel = |_| Panel {
            text: EXPRESSIONS[below(EXPRESSIONS.len() as u64)],
            step_ms: [5_000, 15_000, 7_001][below(3)],
            span_ms: [2 * MINUTE, 10 * MINUTE, 30 * MINUTE][below(3)],
            is_aligned: rng.one_in(2),
        };
        let cache_bytes = [1 << 20, 20_000][below(2)];
        Self {
            seed,
            store: Some(Store::open(sim.env.clone(), options.clone()).unwrap()),
            cache: ResultsCache::new(
                Budget::new("results cache", cache_bytes),
                Arc::new(move || cache_bytes),
            ),
            now: 10_000_000,
            values: (0..1 + rng.next_below(40))
                .map(|_| rng.next_below(7))
                .collect(),
            panels: (0..3).map(panel).collect(),
            rng,
            sim,
            options,
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn below(&self, bound: i64) -> i64 {
        self.rng.next_below(bound as u64) as i64
    }

    fn value(&self, series: usize) -> f64 {
        let digits = self.rng.next_below(1 << 53) as f64;
        match self.values[series] {
            _ if self.rng.one_in(30) => stale_nan(),
            _ if self.rng.one_in(40) => {
                [0.0, -0.0, f64::NAN, f64::INFINITY, 1e300, -7.0][self.rng.next_below(6) as usize]
            }
            0 => self.rng.next_below(100) as f64,
            1 => (self.now / 1_000) as f64,
            2 => self.rng.next_below(1_000) as f64 / 10.0,
            3 => digits / 2f64.powi(self.rng.next_below(30) as i32 + 30),
            4 => -digits / 2f64.powi(50),
            5 => 0.0,
            _ => (self.now as f64 / 7_000.0).floor() * 0.1,
        }
    }

    fn append(&self, time: impl Fn(usize) -> i64, part: u64) {
        let mut batch = Batch::default();
        for series in 0..self.values.len() {
            if self.rng.next_below(10) < part {
                let labels = labels_of(series as u64);
                batch.push_series(labels.as_ref(), &[(time(series), self.value(series))]);
            }
        }
        let bounds = AppendBounds::up_to(i64::MAX);
        let ticket = self.store().append(&TenantId::anonymous(), &batch, bounds);
        ticket.wait().unwrap();
    }

    /// Changes the samples or their place.
    fn change(&mut self) {
        let now = self.now;
        match self.rng.next_below(40) {
            0..=1 => {
                let time = now - self.below(20 * MINUTE);
                self.append(|_| time, 3);
            }
            2 => self.delete(),
            3 => self.import(),
            4 => {
                let time_ms = 10 * MINUTE + self.below(60 * MINUTE);
                let rules = self.random_rules();
                self.store().set_retention(RetentionLimits {
                    time_ms,
                    bytes: None,
                    percent: None,
                    rules,
                });
                self.store().tick();
            }
            5 => self.restart(),
            6 => self.now += self.below(40 * MINUTE),
            7 => self.store().clean_tombstones().unwrap(),
            8..=20 => self.store().tick(),
            _ => {}
        }
        // Scrapes of different targets at different times.
        for _ in 0..1 + self.below(3) {
            self.now += self.below(16_000);
            let now = self.now;
            let series = self.values.len();
            let offsets: Vec<i64> = (0..series).map(|_| self.below(5_000)).collect();
            self.append(|series| now - offsets[series / 4 * 4], 8);
        }
    }

    fn random_range(&self) -> TimeRange {
        let start = self.now - self.below(40 * MINUTE);
        TimeRange::new(start, start + self.below(10 * MINUTE))
    }

    /// Returns no rules or one for half of the series.
    fn random_rules(&mut self) -> RetentionRules {
        let keep_ms = 10 * MINUTE + self.below(60 * MINUTE);
        let matchers = vec![Matcher::new("j", MatchOp::Equal, b"a").unwrap()];
        let rule = self
            .rng
            .one_in(2)
            .then_some(RetentionRule { matchers, keep_ms });
        rule.into_iter().collect()
    }

    fn delete(&self) {
        let value = ["a", "b"][self.rng.next_below(2) as usize];
        let matcher = Matcher::new("j", MatchOp::Equal, value.as_bytes()).unwrap();
        let deleted = self.store().delete_series(DeleteRequest {
            tenant: &TenantId::anonymous(),
            sets: &[vec![matcher]],
            range: self.random_range(),
            cancel: &CancelToken::new(),
            budget: &Budget::new("delete", 1 << 30),
        });
        deleted.unwrap();
    }

    fn import(&self) {
        let target = self.store().import_target().unwrap();
        let mut import = target.begin();
        let range = self.random_range();
        let series = self.rng.next_below(self.values.len() as u64);
        let times: Vec<i64> = (range.min..=range.max).step_by(15_000).collect();
        let columns = SampleColumns {
            values: times.iter().map(|time| *time as f64 / 3.0).collect(),
            times,
            ..SampleColumns::default()
        };
        let id = target.new_id(self.now);
        let written = import.write_block(id, None, |writer| {
            writer.push(labels_of(series).as_ref(), &columns)
        });
        written.unwrap();
        import.commit().unwrap();
    }

    fn restart(&mut self) {
        self.store().close().unwrap();
        self.store = None;
        let store = Store::open(self.sim.env.clone(), self.options.clone());
        self.store = Some(store.unwrap());
    }

    fn range_of(&self, panel: &Panel) -> EvalTime {
        let mut end = self.now - [0, 0, 0, 30_000, -20_000][self.rng.next_below(5) as usize];
        let mut start = end - panel.span_ms;
        if self.rng.one_in(8) {
            start += panel.span_ms / 2;
        }
        if panel.is_aligned {
            start -= start.rem_euclid(panel.step_ms);
            end -= end.rem_euclid(panel.step_ms);
        }
        EvalTime::range(start, end.max(start), panel.step_ms)
    }

    /// Compares the answers to a query with and without the cache.
    fn compare(&self, panel: &Panel) {
        let (tenant, cancel) = (TenantId::anonymous(), CancelToken::new());
        let budget = Budget::new("query", 1 << 30);
        let context = context(self.store(), &tenant, &budget, &cancel);
        let time = self.range_of(panel);
        let engine = PromqlEngine;
        let expected = bits(engine.query(&context, panel.text, time, &OPTIONS));
        let answer = self
            .cache
            .query(&engine, &context, panel.text, time, &OPTIONS);
        let answer = bits(answer);
        assert_eq!(
            answer, expected,
            "seed {}: {} over {time:?} at {}",
            self.seed, panel.text, self.now
        );
        assert_eq!(budget.used_bytes(), 0, "{} keeps memory", panel.text);
    }

    /// Returns the value of a counter of the cache.
    fn count(&self, name: &str) -> u64 {
        let mut sink = TextSink::new();
        self.cache.collect(&mut sink);
        let text = sink.into_text();
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap().parse::<f64>().unwrap() as u64
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn answers_of_the_cache_equal_those_without_it_in_random_histories() {
    let given = number("FIRN_SEED");
    let seeds: Vec<u64> = match given {
        Some(seed) => vec![seed],
        None => (0..number("FIRN_SEEDS").unwrap_or(SEEDS))
            .chain(FOUND)
            .collect(),
    };
    let (mut queries, mut hits, mut invalidated, mut evicted) = (0, 0, 0, 0);
    for seed in seeds {
        let mut world = World::new(seed);
        for _ in 0..20 {
            world.change();
        }
        for round in 0..ROUNDS {
            world.change();
            world.compare(&world.panels[round as usize % world.panels.len()]);
        }
        queries += ROUNDS;
        hits += world.count("firn_query_results_cache_hits_total");
        invalidated += world.count("firn_query_results_cache_invalidated_total");
        evicted += world.count("firn_query_results_cache_evicted_total");
    }
    println!("{queries} queries, {hits} hits, {invalidated} invalidated, {evicted} evicted");
    // The histories change old data all the time.
    let is_useful = hits * 10 > queries && invalidated > 0;
    assert!(
        given.is_some() || is_useful,
        "{hits} hits, {invalidated} invalidated"
    );
}
