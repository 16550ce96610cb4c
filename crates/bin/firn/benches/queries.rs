//! Benchmark of queries on the head in one process: no HTTP, no disk, a fleet of 96 k series.
//!
//! `cargo bench -p firn-firn --bench queries` prints the median of each query on one thread and on
//! all threads, the time per series and step, and, as a lower bound, the time of a plain loop over
//! decoded columns for the same rates. Before that it prints the speedup of such loops on all
//! threads over one: cores that share their execution units do not double the throughput. Words
//! after `--` select queries that contain one of them. `--profile` repeats each selected query for
//! three seconds and prints the number of runs, on one thread or, with `--shared`, on all.
//! `--series=N` sets the number of series.
//!
//! To compare two builds on a machine whose speed drifts, run both with `--profile` at once on one
//! processor (`taskset -c 0`): they alternate every few milliseconds, each with half of the time.
//! Compare CPU time per query, because builds that load data at different speeds are not profiled
//! over the same time.

use firn_mirror::fleet::{Fleet, FleetOptions};
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::sim::InlineCompute;
use firn_model::env::{Compute, Env, Job, JobKind, real, sim};
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Append, AppendBounds, Select, SelectRequest};
use firn_model::tenant::TenantId;
use firn_promql::{EvalTime, Features, Options, QueryContext, parser, query};
use firn_storage::store::{Store, StoreOptions};
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SERIES: &str = "96000";
/// An hour of data, as sent by `make bench BENCH=--full`, so that there is data older than the
/// range of the queries.
const ROUNDS: i64 = 240;
const INTERVAL_MS: i64 = 15_000;
const STEPS: i64 = 81;
const RANGE_MS: i64 = 300_000;
/// Enough ticks to seal everything that is due: a tick seals a sixteenth of it.
const TICKS: usize = 100;
/// Samples per batch, as in a typical request of a sender.
const BATCH_SAMPLES: usize = 2_000;
const RUNS: usize = 15;
const PROFILED: Duration = Duration::from_secs(3);

/// Range queries with their selectors, and one query of the last step only.
const QUERIES: [(&str, &str); 14] = [
    (
        "sum by (namespace) (rate(http_requests_total[5m]))",
        "http_requests_total",
    ),
    (
        "histogram_quantile(0.99, sum by (le, deployment) (\
         rate(http_request_duration_seconds_bucket{cluster=\"eu-west-1\"}[5m])))",
        "http_request_duration_seconds_bucket{cluster=\"eu-west-1\"}",
    ),
    (
        "sum by (deployment) (rate(http_requests_total{code=~\"5..\"}[5m])) \
         / sum by (deployment) (rate(http_requests_total[5m]))",
        "http_requests_total",
    ),
    ("sum(http_requests_total)", "http_requests_total"),
    ("rate(http_requests_total[5m])", "http_requests_total"),
    (
        "topk(10, sum by (pod) (rate(container_cpu_usage_seconds_total[5m])))",
        "container_cpu_usage_seconds_total",
    ),
    (
        "sum by (host_ip) (container_memory_working_set_bytes \
         * on (namespace, pod) group_left (host_ip) kube_pod_info)",
        "container_memory_working_set_bytes",
    ),
    (
        "max by (deployment) (max_over_time(container_memory_working_set_bytes[10m]))",
        "container_memory_working_set_bytes",
    ),
    (
        "quantile by (namespace) (0.9, rate(http_requests_total[5m]))",
        "http_requests_total",
    ),
    (
        "quantile by (namespace) (0.9, rate(container_cpu_usage_seconds_total[5m]))",
        "container_cpu_usage_seconds_total",
    ),
    (
        "avg by (namespace) (avg_over_time(go_goroutines[5m]))",
        "go_goroutines",
    ),
    (
        "max_over_time(sum(rate(http_requests_total{namespace=\"shop-0\"}[1m]))[5m:1m])",
        "http_requests_total{namespace=\"shop-0\"}",
    ),
    (
        "sum by (namespace) (increase(container_network_receive_bytes_total[5m]))",
        "container_network_receive_bytes_total",
    ),
    (INSTANT, "http_requests_total"),
];

const INSTANT: &str = "sum by (code) (rate(http_requests_total[5m]))";

/// Compute threads that can be switched to the calling thread alone.
struct Switched {
    threads: Arc<dyn Compute>,
    alone: AtomicBool,
}

impl Switched {
    fn compute(&self) -> &dyn Compute {
        if self.alone.load(Ordering::Relaxed) {
            &InlineCompute
        } else {
            &*self.threads
        }
    }
}

impl Compute for Switched {
    fn spawn(&self, work: JobKind, job: Job) {
        self.compute().spawn(work, job);
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.compute().for_each(tasks, task);
    }

    fn threads(&self) -> usize {
        self.compute().threads()
    }
}

struct Bench {
    env: Env,
    compute: Arc<Switched>,
    store: Arc<Store>,
    tenant: TenantId,
    budget: Budget,
    cancel: CancelToken,
}

impl Bench {
    fn new() -> Self {
        let real = real::system_env().expect("threads can be started");
        let compute = Arc::new(Switched {
            threads: real.compute.clone(),
            alone: AtomicBool::new(false),
        });
        let env = Env {
            disk: sim::sim_env(1).env.disk,
            compute: compute.clone(),
            ..real
        };
        let store = Store::open(env.clone(), StoreOptions::new("/data"));
        Self {
            env,
            compute,
            store: store.expect("an empty disk holds nothing that is wrong"),
            tenant: TenantId::anonymous(),
            budget: Budget::new("query", 2 << 30),
            cancel: CancelToken::new(),
        }
    }

    fn fill(&self, series: usize) {
        let mut fleet = Fleet::new(FleetOptions {
            series,
            seed: 1,
            start_ms: 0,
            interval_ms: INTERVAL_MS,
            churn: None,
        });
        let bounds = AppendBounds::up_to(i64::MAX);
        let mut batch = Batch::default();
        // With one thread, the store's maintenance is done when `tick` returns.
        self.compute.alone.store(true, Ordering::Relaxed);
        for _ in 0..ROUNDS {
            let done: Result<(), Infallible> = fleet.scrape_round(&mut |seen| {
                batch.push_series(seen.labels, &[(seen.time_ms, seen.value)]);
                if batch.sample_count() == BATCH_SAMPLES {
                    self.append(&batch, bounds);
                    batch.clear();
                }
                Ok(())
            });
            let Ok(()) = done;
            self.store.tick();
        }
        self.append(&batch, bounds);
        (0..TICKS).for_each(|_| self.store.tick());
    }

    fn append(&self, batch: &Batch, bounds: AppendBounds) {
        let appended = self.store.append(&self.tenant, batch, bounds).wait();
        let appended = appended.expect("the simulated disk takes everything");
        assert!(appended.rejected.is_empty(), "{:?}", appended.rejected);
    }

    fn timed(&self, run: &mut dyn FnMut()) -> Duration {
        let start = self.env.clock.monotonic();
        run();
        self.env.clock.monotonic() - start
    }

    fn median(&self, run: &mut dyn FnMut()) -> Duration {
        run();
        let mut times: Vec<Duration> = (0..RUNS).map(|_| self.timed(run)).collect();
        times.sort_unstable();
        times[RUNS / 2]
    }

    /// Returns the median on one thread and on all threads. The runs alternate, so that a change of
    /// the machine's speed affects both.
    fn on_one_and_all(&self, text: &str) -> [Duration; 2] {
        let run = |alone: bool| {
            self.compute.alone.store(alone, Ordering::Relaxed);
            self.timed(&mut || self.query(text))
        };
        let (mut one, mut all) = (Vec::new(), Vec::new());
        for _ in 0..=RUNS {
            one.push(run(true));
            all.push(run(false));
        }
        [one, all].map(|mut times| {
            times.remove(0);
            times.sort_unstable();
            times[RUNS / 2]
        })
    }

    /// Returns the speedup of all threads that process `columns` at once over one thread.
    fn ceiling(&self, columns: &SeriesBatch) -> f64 {
        let threads = &*self.compute.threads;
        let alone = self.median(&mut || {
            black_box(plain_rates(columns, STEPS as usize));
        });
        let together = self.median(&mut || {
            threads.for_each(threads.threads(), &|_| {
                black_box(plain_rates(columns, STEPS as usize));
            });
        });
        threads.threads() as f64 * alone.as_secs_f64() / together.as_secs_f64()
    }

    fn query(&self, text: &str) {
        let context = QueryContext {
            store: &*self.store,
            tenant: &self.tenant,
            compute: self.compute.compute(),
            budget: &self.budget,
            cancel: &self.cancel,
            failed_counts: None,
        };
        let options = Options {
            features: Features::default(),
            lookback_ms: RANGE_MS,
            default_subquery_step_ms: 60_000,
            samples_max: 50_000_000,
            series_max: usize::MAX,
            counts_samples: false,
            detects_range_dependence: false,
        };
        let end = ROUNDS * INTERVAL_MS;
        let time = match steps_of(text) {
            1 => EvalTime::Instant(end),
            steps => EvalTime::range(end - (steps - 1) * INTERVAL_MS, end, INTERVAL_MS),
        };
        black_box(query(&context, text, time, &options).expect("the query is valid"));
    }

    /// Reads and decodes the samples of a selector.
    fn columns(&self, selector: &str) -> SeriesBatch {
        let matchers = parser::parse_selector(selector).expect("the selector is valid");
        let request = SelectRequest {
            tenant: &self.tenant,
            matchers: &matchers,
            range: TimeRange::new(i64::MIN, i64::MAX),
            newest_only: false,
            cancel: &self.cancel,
            budget: &self.budget,
            series: &SeriesLimit::unlimited(),
            span: None,
        };
        let selection = self.store.select(request).expect("there is memory");
        let mut batch = SeriesBatch::default();
        let read = selection.read(0..selection.len(), &mut batch);
        read.expect("chunks decode");
        batch
    }
}

fn steps_of(text: &str) -> i64 {
    if text == INSTANT { 1 } else { STEPS }
}

/// Computes the rates of every series at every step with everything known in advance: windows,
/// factors, and the absence of counter resets.
fn plain_rates(columns: &SeriesBatch, steps: usize) -> f64 {
    let width = (RANGE_MS / INTERVAL_MS) as usize;
    let mut sums = vec![0.0; steps];
    for at in 0..columns.len() {
        let values = columns.series(at).values;
        let lasts = values.get(width..).unwrap_or(&[]);
        for (sum, (last, first)) in sums.iter_mut().zip(lasts.iter().zip(values)) {
            *sum += (last - first) * (1.0 / 300.0);
        }
    }
    sums.iter().sum()
}

#[allow(clippy::print_stdout)]
fn main() {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| wanted.iter().any(|word| word == flag);
    let (profiled, shared) = (has("--profile"), has("--shared"));
    let series = wanted
        .iter()
        .find_map(|word| word.strip_prefix("--series="));
    let series = series
        .unwrap_or(SERIES)
        .parse()
        .expect("--series takes a number");
    wanted.retain(|word| !word.starts_with("--"));
    let bench = Bench::new();
    bench.fill(series);
    println!("{series} series, {ROUNDS} samples each, {STEPS} steps, medians of {RUNS}");
    if !profiled {
        let ceiling = bench.ceiling(&bench.columns(QUERIES[0].1));
        println!("plain loops on all threads: {ceiling:.2}x");
    }
    for (text, selector) in QUERIES {
        if !wanted.is_empty() && !wanted.iter().any(|part| text.contains(part)) {
            continue;
        }
        if profiled {
            bench.compute.alone.store(!shared, Ordering::Relaxed);
            let end = bench.env.clock.monotonic() + PROFILED;
            let mut queries = 0;
            while bench.env.clock.monotonic() < end {
                bench.query(text);
                queries += 1;
            }
            println!("{queries} in {PROFILED:?} | {text}");
            continue;
        }
        let columns = bench.columns(selector);
        let cells = (columns.len() as i64 * steps_of(text)) as f64;
        let floor = bench.median(&mut || {
            black_box(plain_rates(&columns, steps_of(text) as usize));
        });
        let [one, all] = bench.on_one_and_all(text);
        let per_cell = |time: Duration| time.as_nanos() as f64 / cells;
        println!(
            "{:>9.2?} {:>5.2} ns | {} threads {:>9.2?} {:>5.2}x | plain loop {:>5.2} ns | {text}",
            one,
            per_cell(one),
            bench.compute.threads(),
            all,
            one.as_secs_f64() / all.as_secs_f64(),
            per_cell(floor),
        );
    }
}
