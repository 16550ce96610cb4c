//! Tests that sharing of equal parts changes nothing except the work: values are equal bit by bit,
//! and annotations, errors and the number of samples read are the same as if each part were
//! evaluated separately. Only the number of held samples differs, because shared rows are held and
//! streams are not.

#[path = "../../../../tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

use crate::eval::{EvalRecorders, run};
use crate::parser::parse;
use crate::plan::{QueryTimes, plan, plan_unshared};
use crate::value::{PromqlError, QueryResult};
use crate::{EvalTime, Features, Options, QueryContext};
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim::{InlineCompute, SimRng};
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::store::{Select, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::random::{Dice, random_query, random_series};
use support::{MemoryStore, Series};

const QUERIES: u64 = 200;
const OPTIONS: Options = Options {
    detects_range_dependence: false,
    features: Features {
        delayed_name_removal: false,
        ..Features::ALL
    },
    lookback_ms: 60_000,
    default_subquery_step_ms: 30_000,
    samples_max: 1_000_000,
    series_max: usize::MAX,
    counts_samples: false,
};
const RANGE: EvalTime = EvalTime::range(60_000, 200_000, 20_000);

/// A store that counts its look-ups.
struct Counting {
    store: MemoryStore,
    selects: AtomicUsize,
}

impl Counting {
    fn new(series: Vec<Series>) -> Self {
        Self {
            store: MemoryStore::new(series),
            selects: AtomicUsize::new(0),
        }
    }
}

impl Select for Counting {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.selects.fetch_add(1, Ordering::Relaxed);
        self.store.select(request)
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.store.label_names(request)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.store.label_values(name, request)
    }
}

/// Evaluates a query with or without sharing. Returns the outcome and the number of look-ups.
fn evaluate(
    store: &Counting,
    text: &str,
    (time, options): (EvalTime, &Options),
    shares: bool,
) -> (Result<QueryResult, PromqlError>, usize) {
    let (tenant, cancel) = (TenantId::anonymous(), CancelToken::new());
    let budget = Budget::new("query", 1 << 30);
    let context = QueryContext {
        store,
        tenant: &tenant,
        compute: &InlineCompute,
        budget: &budget,
        cancel: &cancel,
        failed_counts: None,
    };
    let expr = parse(text, options.features).expect("the queries are valid");
    let times = QueryTimes::from_eval_time(time);
    let node = if shares {
        plan(&expr, &times)
    } else {
        plan_unshared(&expr, &times)
    };
    let before = store.selects.load(Ordering::Relaxed);
    let recorders = EvalRecorders::default();
    let outcome = run(&context, &node, recorders, Some(text), time, options);
    let held = outcome.as_ref().map_or(0, |result| result.memory.bytes());
    assert_eq!(budget.used_bytes(), held, "{text} keeps memory");
    (outcome, store.selects.load(Ordering::Relaxed) - before)
}

/// Returns everything that a client receives, with all bits of the values, and the number of
/// samples read.
fn shown(outcome: &Result<QueryResult, PromqlError>) -> String {
    match outcome {
        Err(e) => e.to_string(),
        Ok(result) => {
            // The shortest digits that parse back to the same number.
            let value = format!("{:?}", result.value);
            let (notes, read) = (
                (&result.warnings, &result.infos),
                result.stats.samples_total,
            );
            format!("{notes:?}\n{read} samples read\n{value}")
        }
    }
}

/// Checks that sharing does not change the outcome. Returns how many look-ups it saves.
fn check(store: &Counting, text: &str, time: EvalTime, options: &Options) -> usize {
    let (shared, asked) = evaluate(store, text, (time, options), true);
    let (apart, asked_apart) = evaluate(store, text, (time, options), false);
    // Shared rows are held, unlike streams, so a limit may be reached earlier.
    if !matches!(shared, Err(PromqlError::Limited(_))) {
        let (shared, apart) = (shown(&shared), shown(&apart));
        assert!(
            shared == apart,
            "{text} at {time:?}\nshared {shared:.2000}\n apart {apart:.2000}"
        );
    }
    assert!(asked <= asked_apart, "{text}: {asked} {asked_apart}");
    asked_apart - asked
}

/// Returns a query composed of few distinct parts, so that many occur twice.
fn random_shared_query(dice: &Dice) -> String {
    let parts: Vec<String> = (0..3).map(|_| random_part(dice)).collect();
    let part = || {
        let part = &parts[dice.below(3) as usize];
        match dice.below(8) {
            0 => format!("sum by (job) ({part})"),
            1 => format!("count by (job) (({part}))"),
            2 => format!("{part} > 3"),
            3 => format!("max_over_time(({part})[1m:20s])"),
            4 => format!("quantile by (job) (1.5, {part})"),
            5 => format!("scalar({part}) + ( {part} )"),
            _ => part.clone(),
        }
    };
    let mut text = part();
    for _ in 0..2 + dice.below(2) {
        let op = dice.pick(&[
            "+",
            "/",
            " - on (job, instance)",
            ">= bool",
            "and",
            "or",
            "unless",
        ]);
        text = format!("({text}) {op}\n ({})", part());
    }
    text
}

fn random_part(dice: &Dice) -> String {
    match dice.below(6) {
        0 => "load @ end()".into(),
        1 => "rate(requests_total[1m] @ 120)".into(),
        2 => "histogram_quantile(0.9, size_bucket)".into(),
        3 => "quantile_over_time(2, load[1m])".into(),
        depth => random_query(dice, depth as u32 - 4),
    }
}

/// Returns classic buckets whose counts decrease, so that they are corrected with an annotation.
fn buckets() -> impl Iterator<Item = Series> {
    let times = Arc::new((0..20).map(|i| i * 10_000).collect::<Vec<_>>());
    ["1", "2", "+Inf", "wrong"]
        .into_iter()
        .zip([5.0, 3.0, 9.0, 1.0])
        .map(move |(le, count)| Series {
            labels: Labels::from_pairs([("__name__", "size_bucket"), ("le", le)]),
            times: times.clone(),
            values: (0..20).map(|i| count + f64::from(i)).collect(),
        })
}

#[test]
fn random_queries_of_equal_parts_show_nothing_of_sharing() {
    let given = std::env::var("SHARED_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seeds = given.map_or(0..QUERIES, |seed: u64| seed..seed + 1);
    let few = random_series(&Dice(SimRng::new(1))).into_iter().take(60);
    let store = Counting::new(few.chain(buckets()).collect());
    let delayed = Options {
        features: Features::ALL,
        ..OPTIONS
    };
    let tight = Options {
        samples_max: 600,
        series_max: usize::MAX,
        ..OPTIONS
    };
    let (mut saved, mut answered, mut remarked, mut limited) = (0, 0, 0, 0);
    for seed in seeds {
        let text = random_shared_query(&Dice(SimRng::new(seed)));
        println!("seed {seed}: {text}");
        for time in [RANGE, EvalTime::Instant(100_000)] {
            saved += check(&store, &text, time, &OPTIONS);
            check(&store, &text, time, &delayed);
            check(&store, &text, time, &tight);
        }
        match evaluate(&store, &text, (RANGE, &OPTIONS), true).0 {
            Ok(result) => {
                answered += 1;
                remarked += usize::from(!result.warnings.is_empty() || !result.infos.is_empty());
            }
            Err(_) => continue,
        }
        let outcome = evaluate(&store, &text, (RANGE, &tight), true).0;
        limited += usize::from(outcome.is_err());
    }
    let counts = (saved, answered, remarked, limited);
    let enough = saved > 250 && answered > 50 && remarked > 25 && limited > 10;
    assert!(given.is_some() || enough, "{counts:?}");
}

#[test]
fn equal_parts_ask_the_store_once() {
    let store = Counting::new(random_series(&Dice(SimRng::new(2))));
    let saved = |text: &str| {
        let (range, instant) = (RANGE, EvalTime::Instant(100_000));
        let counts = [range, instant].map(|time| check(&store, text, time, &OPTIONS));
        assert_eq!(counts[0], counts[1], "{text}");
        counts[0]
    };
    let cases = [
        ("load / (load + requests_total)", 1),
        ("load / (load + load)", 2),
        ("(load) / (load + 1)", 1),
        ("rate(load[1m]) / ( rate(load[1m] ) + 2)", 1),
        ("sum(load) / count(load)", 1),
        ("sum(load > 3) / count(load)", 1),
        ("max_over_time(load[1m]) - min_over_time(load[1m])", 1),
        (
            "max_over_time(load[1m:10s]) - min_over_time(load[1m:10s])",
            1,
        ),
        (
            "sum(load) by (job) / sum(load) by (job) + sum(load) by (job)",
            2,
        ),
        ("load * scalar(sum(load)) + scalar(sum(load))", 2),
        ("load @ 100 - sum(load @ 100)", 1),
        // Different values, or the same value at different steps.
        ("load - load offset 1m", 0),
        ("load - max_over_time(load[1m:10s])", 0),
        (
            "load - ignoring (job, instance) group_left sum(load @ 100)",
            0,
        ),
        ("rate(load[1m]) - rate(load[2m])", 0),
        ("load{job=\"j1\"} + load{job=~\"j1\"}", 0),
        ("timestamp(load) - load", 0),
    ];
    for (text, want) in cases {
        assert_eq!(saved(text), want, "{text}");
    }
}

#[test]
fn remarks_stand_where_upstream_has_them_last() {
    let store = Counting::new(random_series(&Dice(SimRng::new(3))));
    let text = "rate(load[1m])\n  / (rate( load[1m]) +\n quantile_over_time(2, load[1m]))";
    check(&store, text, RANGE, &OPTIONS);
    let (outcome, _) = evaluate(&store, text, (RANGE, &OPTIONS), true);
    let result = outcome.expect("the query is answered");
    let ends = |notes: &[String]| -> Vec<String> {
        let end = |note: &String| note.rsplit(' ').next().map(str::to_owned);
        notes.iter().filter_map(end).collect()
    };
    assert_eq!(ends(&result.infos), ["(2:12)"], "{:?}", result.infos);
    assert_eq!(ends(&result.warnings), ["(3:21)"], "{:?}", result.warnings);
}
