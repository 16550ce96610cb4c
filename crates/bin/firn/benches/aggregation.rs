//! Benchmark of the cost and the savings of stream aggregation: sixty thousand series summed to two
//! hundred.
//!
//! ```text
//! cargo bench -p firn-firn --bench aggregation -- [series] [rounds]
//! ```
//!
//! Three pipelines process the same remote-write bodies, two thousand samples each, over a store on
//! a real disk: without a rule, with one, and with one that drops its sources. Prints CPU time of
//! the process per sample, bytes of state per source, and the time of a dashboard query on raw
//! samples and on the results. There is no pass or fail.

use firn_aggregation::{
    AggregationGroupSpec, AggregationGrouping, AggregationInputs, AggregationOp,
    AggregationRuleSpec, AggregationSpec,
};
use firn_ingest::{IngestLimits, Pipeline, PushOrigin, WriteAdmission};
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::{Env, real};
use firn_model::fingerprint::FingerprintSeed;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::shares::BudgetShares;
use firn_model::tenant::TenantId;
use firn_promql::{EvalTime, Features, Options, QueryContext, query};
use firn_storage::store::{Store, StoreOptions};
use firn_wire::remote_write::{KEY_FORMAT, RemoteWriteVersion, encode};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Origin of the bodies.
const ORIGIN: PushOrigin = PushOrigin {
    address: None,
    version: RemoteWriteVersion::V1,
};

const INTERVAL_MS: i64 = 15_000;
const GROUPS: usize = 200;
const BATCH_SAMPLES: usize = 2_000;
const QUERY_RUNS: usize = 15;

/// Treatment of the source series in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Kept,
    Dropped,
}

fn spec(way: Way) -> AggregationSpec {
    let rule = AggregationRuleSpec {
        record: "deployment:http_requests:total".into(),
        expr: "sum by (deployment) (http_requests_total)".into(),
        op: AggregationOp::Sum,
        grouping: AggregationGrouping::By(vec!["deployment".into()]),
        matchers: vec![
            Matcher::new("__name__", MatchOp::Equal, b"http_requests_total")
                .expect("the matcher is valid"),
        ],
        labels: Vec::new(),
        drops: way == Way::Dropped,
        kind: None,
    };
    let group = AggregationGroupSpec {
        name: "g".into(),
        interval_ms: INTERVAL_MS,
        delay_ms: INTERVAL_MS,
        lookback_ms: 300_000,
        rules: [rule].into(),
    };
    AggregationSpec {
        groups: if way == Way::Plain {
            Vec::new()
        } else {
            vec![group]
        },
    }
}

/// Returns eleven labels, like those of a pod.
fn labels(series: usize) -> Labels {
    let deployment = format!("deployment-{}", series % GROUPS);
    let pod = format!("{deployment}-7d9f8b6c5-{:05}", series / GROUPS);
    let instance = format!("10.{}.{}.7:8080", series / 250 % 250, series % 250);
    Labels::from_pairs([
        ("__name__", "http_requests_total"),
        ("cluster", "eu-west-1"),
        ("code", "200"),
        ("container", "app"),
        ("deployment", &deployment),
        ("handler", "/api/v1/items"),
        ("instance", &instance),
        ("job", "kubernetes-pods"),
        ("method", "GET"),
        ("namespace", "shop"),
        ("pod", &pod),
    ])
}

fn bodies(all: &[Labels], round: i64, start: i64) -> Vec<Vec<u8>> {
    let requests = all.chunks(BATCH_SAMPLES).enumerate();
    let body = |(number, labels): (usize, &[Labels])| {
        let mut batch = Batch::default();
        for (k, labels) in labels.iter().enumerate() {
            let series = (number * BATCH_SAMPLES + k) as i64;
            let time = start + round * INTERVAL_MS + series / 376 * 97 % INTERVAL_MS;
            let value = (series % 1000 + round * (series % 17 + 1)) as f64;
            batch.push_series(labels.as_ref(), &[(time, value)]);
        }
        encode(&batch)
    };
    requests.map(body).collect()
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Results of a run.
struct Figures {
    nanos_a_sample: f64,
    state_bytes: usize,
    query: Duration,
}

struct Run {
    env: Env,
    store: Arc<Store>,
    pipeline: Pipeline,
    _dir: tempfile::TempDir,
}

impl Run {
    fn new(way: Way) -> Self {
        let env = real::system_env().expect("threads can be started");
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = StoreOptions {
            key_format: KEY_FORMAT,
            ..StoreOptions::new(dir.path())
        };
        let store = Store::open(env.clone(), options).expect("an empty folder opens");
        let shares = BudgetShares::from_limit(4 << 30);
        let limits = IngestLimits::from_write_share(&shares);
        let memory = Budget::new("process", 4 << 30);
        let pipeline = Pipeline::new(store.clone(), env.clock.clone(), limits, &memory);
        let start = AggregationInputs {
            seed: FingerprintSeed([7, 7]),
            sources_max: usize::MAX,
            kind_of: Arc::new(|_| None),
            journal: &[],
        };
        let begun = pipeline.configure_aggregation(&spec(way), start);
        begun.expect("an empty store takes a configuration");
        Self {
            env,
            store,
            pipeline,
            _dir: dir,
        }
    }

    async fn admit(&self, body: &[u8]) -> WriteAdmission {
        let mut admission = self
            .pipeline
            .admit_body(body.len())
            .await
            .expect("there is room");
        let prepared = self.pipeline.prepare_body(&mut admission, body).await;
        prepared.expect("there is room");
        admission
    }

    fn send(&self, runtime: &tokio::runtime::Runtime, body: &[u8]) {
        let admission = runtime.block_on(self.admit(body));
        let tenant = TenantId::anonymous();
        let pending = self
            .pipeline
            .write_remote(&tenant, ORIGIN, body, admission, None);
        let outcome = pending.expect("the body is sound").wait();
        let outcome = outcome.expect("the disk takes everything");
        assert!(outcome.dropped.is_empty(), "{:?}", outcome.dropped);
    }

    fn query(&self, text: &str, end: i64) -> Duration {
        let (budget, cancel) = (Budget::new("query", 2 << 30), CancelToken::new());
        let context = QueryContext {
            store: &*self.store,
            tenant: &TenantId::anonymous(),
            compute: &*self.env.compute,
            budget: &budget,
            cancel: &cancel,
            failed_counts: None,
        };
        let options = Options {
            features: Features::default(),
            lookback_ms: 300_000,
            default_subquery_step_ms: 60_000,
            samples_max: 50_000_000,
            series_max: usize::MAX,
            counts_samples: false,
            detects_range_dependence: false,
        };
        let time = EvalTime::range(end - 20 * 60_000, end, INTERVAL_MS);
        let mut times: Vec<Duration> = (0..QUERY_RUNS)
            .map(|_| {
                let start = self.env.clock.monotonic();
                black_box(query(&context, text, time, &options).expect("the query is valid"));
                self.env.clock.monotonic() - start
            })
            .collect();
        times.sort_unstable();
        times[QUERY_RUNS / 2]
    }
}

fn measure(way: Way, all: &[Labels], rounds: i64) -> Figures {
    let run = Run::new(way);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime without threads");
    let now = run.env.clock.now_ms();
    let start = (now - (rounds + 5) * INTERVAL_MS) / INTERVAL_MS * INTERVAL_MS;
    let mut spent = Duration::ZERO;
    // The first rounds create series and are not measured.
    let warm = rounds / 4;
    for round in 0..rounds {
        let bodies = bodies(all, round, start);
        let before = cpu();
        for body in &bodies {
            run.send(&runtime, body);
        }
        run.store.tick();
        if round >= warm {
            spent += cpu() - before;
        }
    }
    let samples = all.len() as f64 * (rounds - warm) as f64;
    let end = start + (rounds - 3) * INTERVAL_MS;
    let text = match way {
        Way::Dropped => "rate({__name__=\"deployment:http_requests:total\"}[5m])",
        Way::Plain | Way::Kept => "sum by (deployment) (rate(http_requests_total[5m]))",
    };
    Figures {
        nanos_a_sample: spent.as_nanos() as f64 / samples,
        state_bytes: run.pipeline.aggregation_bytes(),
        query: run.query(text, end),
    }
}

#[allow(clippy::print_stdout)]
fn main() {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<usize>().ok());
    let series = numbers.next().unwrap_or(60_000);
    let rounds = numbers.next().unwrap_or(120) as i64;
    let all: Vec<Labels> = (0..series).map(labels).collect();
    println!("{series} series, {rounds} rounds, {GROUPS} groups");
    let figures = [Way::Plain, Way::Kept, Way::Dropped].map(|way| {
        let figures = measure(way, &all, rounds);
        println!(
            "{way:?}: {:.0} ns a sample, {:.1} bytes of state a source, query {:?}",
            figures.nanos_a_sample,
            figures.state_bytes as f64 / series as f64,
            figures.query
        );
        figures
    });
    let [plain, kept, dropped] = figures;
    println!(
        "a sample with the rule: {:.3}, dropped {:.3}; query on results {:.1} times faster",
        kept.nanos_a_sample / plain.nanos_a_sample,
        dropped.nanos_a_sample / plain.nanos_a_sample,
        plain.query.as_secs_f64() / dropped.query.as_secs_f64()
    );
}
