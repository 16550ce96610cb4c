//! Benchmark of index lookups: narrow selectors with and without additional broad matchers, and
//! regular expressions over a label with very many values.
//!
//! ```text
//! cargo bench -p firn-storage --bench lookups -- [pods] [names]
//!     default: 2,660 pods (a million series), a million names
//! ```
//!
//! The fleet is that of the other benchmarks, plus a recording rule of 32 services in 38
//! deployments. The selectors take turns, so that a machine that slows down affects all of them.
//! Each line shows the median time of `Store::select` for a new and for a repeated selector, the
//! ratio of each to that of the first line, the total bytes allocated by the new selector, and the
//! minimum time to compile the matchers. A new selector has an additional matcher on a label that
//! no series has, which is different each time. The benchmark prints figures without a verdict.

mod fleet;

use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::real;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Select, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use firn_storage::store::{Store, StoreOptions, StoreSyncMode};
use fleet::{BATCH, Member, Request, fleet, peak_bytes, resident_bytes};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tikv_jemalloc_ctl::thread::allocatedp;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Maximum number of runs of each selector, and the maximum time of all of them.
const ROUNDS: usize = 400;
const TIME: Duration = Duration::from_secs(8);

/// Number of runs of an expression over values that are not completely sorted yet.
const ORDERING_ROUNDS: usize = 24;

/// Number of times that matchers are compiled.
const COMPILED: usize = 20;

const SERVICES: usize = 32;
const DEPLOYMENTS: usize = 38;

type Pair<'a> = (&'a str, MatchOp, &'a str);

fn print(text: &str) {
    // A closed pipe needs no more figures.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn rule_series() -> Vec<Member> {
    let labels = |i: usize| {
        let (service, deployment) = (i / DEPLOYMENTS, i % DEPLOYMENTS);
        Labels::from_pairs([
            ("__name__", "successful_requests:rate5m".to_owned()),
            ("cluster", "production-eu-west-1".to_owned()),
            ("deployment", format!("checkout-service-{deployment}")),
            ("le", "0.25".to_owned()),
            ("namespace", format!("team-{}", deployment % 20)),
            ("service", format!("service-{service}")),
        ])
    };
    let member = |i| Member {
        labels: labels(i),
        kind: i % 20,
    };
    (0..SERVICES * DEPLOYMENTS).map(member).collect()
}

/// Returns one series for each of `count` names that resemble those of pods.
fn named_series(count: usize) -> Vec<Member> {
    let labels = |i: usize| {
        // Each deployment has a hundred pods, whose last words look random.
        let word = i.wrapping_mul(0x9e37_79b9) & 0xffff_ffff;
        let deployment = i / 100;
        Labels::from_pairs([
            ("__name__", "kube_pod_info".to_owned()),
            ("namespace", format!("team-{}", deployment % 20)),
            (
                "pod",
                format!(
                    "service-{deployment:05}-{:x}-{word:08x}",
                    deployment * 77 + 4_096
                ),
            ),
        ])
    };
    let member = |i| Member {
        labels: labels(i),
        kind: i % 20,
    };
    (0..count).map(member).collect()
}

fn filled(name: &str, members: &[Member]) -> Arc<Store> {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    let env = real::system_env().expect("threads can be started");
    let options = StoreOptions {
        sync: StoreSyncMode::None,
        ..StoreOptions::new(&dir)
    };
    let before = resident_bytes();
    let store = Store::open(env, options).expect("the folder can be opened");
    let mut request = Request::default();
    for (number, members) in members.chunks(BATCH).enumerate() {
        request.fill(members, number * BATCH, 0);
        let stored = request.append(&store).wait();
        stored.expect("the folder can be written");
    }
    let grown = (resident_bytes() - before) >> 20;
    print(&format!("{} series, {grown} MB", members.len()));
    store
}

/// A selector and its measurements.
struct Case {
    what: String,
    matchers: Vec<Matcher>,
    compiled_in: Duration,
    /// Times of new and of repeated selectors.
    times: [Vec<Duration>; 2],
    bytes: u64,
    found: usize,
    work: Work,
}

/// Total work of the lookups so far.
#[derive(Clone, Copy, Default)]
struct Work {
    runs: f64,
    values: f64,
    series: f64,
}

impl Work {
    fn of(store: &Store) -> Self {
        let mut work = Self::default();
        store.collect(&mut work);
        work
    }
}

impl MetricSink for Work {
    fn metric(
        &mut self,
        name: &str,
        _help: &str,
        _labels: &[(&str, &str)],
        value: MetricValue<'_>,
    ) {
        if let MetricValue::Counter(count) = value {
            match name {
                "firn_storage_lookup_postings_runs_total" => self.runs = count,
                "firn_storage_lookup_values_total" => self.values = count,
                "firn_storage_lookup_filtered_series_total" => self.series = count,
                _ => {}
            }
        }
    }
}

fn compiled(pairs: &[Pair<'_>]) -> Vec<Matcher> {
    let compile = |(name, op, value): &Pair<'_>| Matcher::new(name, *op, value.as_bytes());
    let matchers = pairs.iter().map(|p| compile(p).expect("a sound pattern"));
    matchers.collect()
}

impl Case {
    fn new(what: &str, pairs: &[Pair<'_>]) -> Self {
        let timed = |_| {
            let began = Instant::now();
            std::hint::black_box(compiled(pairs));
            began.elapsed()
        };
        Self {
            what: what.to_owned(),
            matchers: compiled(pairs),
            compiled_in: (0..COMPILED).map(timed).min().unwrap_or_default(),
            times: Default::default(),
            bytes: 0,
            found: 0,
            work: Work::default(),
        }
    }

    fn ask(&mut self, store: &Store, round: usize) {
        let round = round.to_string();
        let other = compiled(&[("nowhere", MatchOp::NotEqual, &round)]);
        let anew = [&self.matchers[..], &other[..]].concat();
        let (took, bytes, found) = ask(store, &anew);
        self.times[0].push(took);
        self.times[1].push(ask(store, &self.matchers).0);
        (self.bytes, self.found) = (bytes, found);
    }

    fn medians(&mut self) -> [Duration; 2] {
        let times = self.times.each_mut();
        times.map(|times| {
            times.sort_unstable();
            times[times.len() / 2]
        })
    }
}

fn select(store: &Store, matchers: &[Matcher]) -> Arc<dyn Selection> {
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers,
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    store.select(request).expect("nothing cancels")
}

/// Selects the series that match. Returns the time, the bytes allocated and the number of series.
fn ask(store: &Store, matchers: &[Matcher]) -> (Duration, u64, usize) {
    let allocated = allocatedp::read().expect("the allocator counts");
    let (before, began) = (allocated.get(), Instant::now());
    let selection = select(store, matchers);
    (began.elapsed(), allocated.get() - before, selection.len())
}

/// Runs all selectors in turn and prints their figures.
fn compare(store: &Store, cases: &mut [Case]) {
    let began = Instant::now();
    for round in 0..ROUNDS {
        if round > 4 && began.elapsed() > TIME {
            break;
        }
        cases.iter_mut().for_each(|case| case.ask(store, round));
    }
    for case in cases.iter_mut() {
        let before = Work::of(store);
        case.ask(store, ROUNDS);
        let after = Work::of(store);
        case.work = Work {
            runs: after.runs - before.runs,
            values: after.values - before.values,
            series: after.series - before.series,
        };
    }
    let first = cases.first_mut().map(Case::medians).unwrap_or_default();
    for case in cases {
        let [anew, again] = case.medians();
        print(&format!(
            "  {:<28} {:>6} series {:>8.1?} {:>8.2} of the first, again {:>8.1?} {:>8.2}; {:>8} \
             bytes {:>6} runs {:>7} values {:>5} filtered; compiled in {:.1?}",
            case.what,
            case.found,
            anew,
            anew.as_secs_f64() / first[0].as_secs_f64(),
            again,
            again.as_secs_f64() / first[1].as_secs_f64(),
            case.bytes,
            case.work.runs,
            case.work.values,
            case.work.series,
            case.compiled_in,
        ));
    }
}

fn broad_matchers(store: &Store, pods: usize) {
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    let rule: [Pair<'_>; 2] = [
        ("__name__", Equal, "successful_requests:rate5m"),
        ("service", Equal, "service-7"),
    ];
    let bucket: [Pair<'_>; 3] = [
        ("__name__", Equal, "http_server_request_duration_seconds_7"),
        ("le", Equal, "0.25"),
        ("namespace", Equal, "team-7"),
    ];
    let names = (0..5_000).map(|i| format!("checkout-service-{i}"));
    let wide = names.collect::<Vec<_>>().join("|");
    let pods = (0..pods).map(|pod| {
        let deployment = pod / 8;
        format!("checkout-service-{deployment}-7d9f8b6c5d-{pod:05x}")
    });
    let all_pods = pods.collect::<Vec<_>>().join("|");
    let broad: [(&str, [Pair<'_>; 2]); 7] = [
        ("two .*", [("cluster", Regex, ".*"), ("pod", Regex, ".*")]),
        ("two .+", [("cluster", Regex, ".+"), ("le", Regex, ".+")]),
        (
            "two !=\"\"",
            [("cluster", NotEqual, ""), ("le", NotEqual, "")],
        ),
        (
            "common values",
            [
                ("cluster", Equal, "production-eu-west-1"),
                ("le", Regex, "0.25|0.5|0.75"),
            ],
        ),
        (
            "5,000 values and .+",
            [("deployment", Regex, &wide), ("namespace", Regex, ".+")],
        ),
        (
            "rare ones left out",
            [
                ("namespace", NotRegex, "rare.+"),
                ("deployment", NotRegex, "rare|seldom"),
            ],
        ),
        (
            "prefix and not a pod of all",
            [
                ("namespace", Regex, "team-.*"),
                ("pod", NotRegex, &all_pods),
            ],
        ),
    ];
    for (what, narrow) in [("rule", &rule[..]), ("bucket", &bucket[..])] {
        let mut cases = vec![Case::new(what, narrow)];
        for (what, two) in &broad {
            cases.push(Case::new(what, &[narrow, &two[..]].concat()));
        }
        compare(store, &mut cases);
    }
}

/// Measures the cost of sorting a selection by labels in relation to selecting it.
fn label_order(store: &Store) {
    let one_metric = [(
        "__name__",
        MatchOp::Equal,
        "http_server_request_duration_seconds_7",
    )];
    let matchers = compiled(&one_metric);
    let timed = |_| {
        let began = Instant::now();
        let selection = select(store, &matchers);
        let selected = began.elapsed();
        let mut order: Vec<_> = (0..selection.len())
            .map(|i| (selection.labels(i), i))
            .collect();
        order.sort_unstable();
        std::hint::black_box(&order);
        (selected, began.elapsed() - selected, order.len())
    };
    let mut times: Vec<_> = (0..ORDERING_ROUNDS).map(timed).collect();
    times.sort_unstable();
    let (selected, ordered, series) = times[times.len() / 2];
    print(&format!(
        "  {series} series of one metric: selected in {selected:.1?}, put in the order of their \
         labels in {ordered:.1?}"
    ));
}

fn many_values(store: &Store) {
    use MatchOp::{Equal, NotRegex, Regex};
    let pod = |op, value| [("pod", op, value)];
    let mut cases = [
        Case::new("one name", &pod(Equal, "service-00000-1000-00000000")),
        Case::new("a prefix of few", &pod(Regex, "service-00123-.*")),
        Case::new("a prefix of many", &pod(Regex, "service-01.*")),
        Case::new("a suffix", &pod(Regex, ".*-9e3779b9")),
        Case::new("a part", &pod(Regex, ".*cc9e2.*")),
        Case::new(
            "two prefixes",
            &pod(Regex, "(service-00123|service-00124)-.*"),
        ),
        Case::new("a class", &pod(Regex, "service-0012[34]-[0-9a-f]+-.*d.1")),
        Case::new("any case", &pod(Regex, "(?i)SERVICE-00123-.*")),
        Case::new("all but a prefix", &pod(NotRegex, "service-0[0-8].*")),
        Case::new("all but a part", &pod(NotRegex, ".*[0-8].*")),
    ];
    // The first expressions over a label sort its values, each of them a part.
    let first = |round: usize| {
        let suffix = format!(".*-{round:08x}");
        ask(store, &compiled(&[("pod", Regex, &suffix)])).0
    };
    let mut times: Vec<Duration> = (0..ORDERING_ROUNDS).map(first).collect();
    print(&format!(
        "  a suffix, asked for the first times: {times:.1?}"
    ));
    times.sort_unstable();
    print(&format!(
        "  the longest of them: {:.1?}",
        times[times.len() - 1]
    ));
    compare(store, &mut cases);
}

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let pods = numbers.first().copied().unwrap_or(2_660);
    let names = numbers.get(1).copied().unwrap_or(1_000_000);
    if pods > 0 {
        let mut members = fleet(pods);
        members.extend(rule_series());
        let store = filled("lookups-fleet", &members);
        drop(members);
        broad_matchers(&store, pods);
        label_order(&store);
    }
    if names > 0 {
        let store = filled("lookups-names", &named_series(names));
        many_values(&store);
    }
    print(&format!("{} MB at most", peak_bytes() >> 20));
}
