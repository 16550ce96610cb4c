//! Tests of the plans of queries: their trees, their hints, and figures that add up to the
//! statistics of the query.

#[path = "support/context.rs"]
mod context;
#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

use firn_model::env::Clock;
use firn_model::env::sim::SimRng;
use firn_model::labels::Labels;
use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;
use firn_promql::report::{NodeFigures, PlanReport, ReportSources};
use firn_promql::value::{PromqlError, QueryResult};
use firn_promql::{EvalTime, Features, Options, QueryContext, analyze, explain, query};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::random::{Dice, random_query, random_series};
use support::{MemoryStore, Series};

const OPTIONS: Options = Options {
    detects_range_dependence: false,
    features: Features::ALL,
    lookback_ms: 60_000,
    default_subquery_step_ms: 30_000,
    samples_max: 1_000_000,
    series_max: usize::MAX,
    counts_samples: false,
};

/// A clock that advances by a microsecond each time that it is read.
#[derive(Default)]
struct ReadClock(AtomicU64);

impl Clock for ReadClock {
    fn now_ms(&self) -> TimestampMs {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Calls `run` with the context of a query over `store`. Families have the types of `types`.
fn with_context<T>(
    store: &MemoryStore,
    types: &[(&str, MetricType)],
    run: impl FnOnce(&QueryContext<'_>, ReportSources<'_>) -> T,
) -> T {
    let clock: Arc<dyn Clock> = Arc::new(ReadClock::default());
    let family_type = |name: &str| {
        let known = types.iter().find(|(family, _)| *family == name);
        known.map(|(_, kind)| *kind)
    };
    let sources = ReportSources {
        clock: &clock,
        family_type: &family_type,
    };
    context::with_context(store, |context| run(context, sources))
}

fn analyzed(
    store: &MemoryStore,
    types: &[(&str, MetricType)],
    text: &str,
    time: EvalTime,
) -> Result<(QueryResult, PlanReport), PromqlError> {
    with_context(store, types, |context, sources| {
        analyze(context, sources, text, time, &OPTIONS)
    })
}

/// Returns all nodes of a plan, parents before children.
fn nodes(report: &PlanReport) -> Vec<&PlanReport> {
    let children = report.children.iter().flat_map(nodes);
    std::iter::once(report).chain(children).collect()
}

fn figures(report: &PlanReport) -> NodeFigures {
    report.figures.expect("the query was evaluated")
}

/// Returns the tree as `kind(child, ...)`.
fn outline(report: &PlanReport) -> String {
    let children: Vec<String> = report.children.iter().map(outline).collect();
    match &children[..] {
        [] => report.kind.to_owned(),
        children => format!("{}({})", report.kind, children.join(", ")),
    }
}

#[test]
fn plan_has_a_node_for_each_operation_with_its_text() {
    let store = MemoryStore::new(random_series(&Dice(SimRng::new(1))));
    let time = EvalTime::Instant(100_000);
    for (text, tree, texts) in [
        ("(1 + 2)", "numberLiteral", "1 + 2"),
        ("\"a\"", "stringLiteral", "\"a\""),
        ("step()", "numberLiteral", "step()"),
        ("load", "vectorSelector", "load"),
        ("load[1m]", "matrixSelector", "load[1m]"),
        (
            "time() * 2",
            "binaryExpr(call, numberLiteral)",
            "time() * 2|time()|2",
        ),
        (
            "-load{job='j1'} offset 1m",
            "unaryExpr(vectorSelector)",
            "-load{job=\"j1\"} offset 1m|load{job=\"j1\"} offset 1m",
        ),
        (
            "sum by (job) (rate((requests_total[1m])))",
            "aggregation(call(matrixSelector))",
            "sum by (job) (rate((requests_total[1m])))|rate((requests_total[1m]))\
             |requests_total[1m]",
        ),
        (
            "topk(3, load)",
            "aggregation(numberLiteral, vectorSelector)",
            "topk(3, load)|3|load",
        ),
        (
            "max_over_time((load + 1)[1m:20s])",
            "call(subquery(binaryExpr(vectorSelector, numberLiteral)))",
            "max_over_time((load + 1)[1m:20s])|(load + 1)[1m:20s]|load + 1|load|1",
        ),
        (
            "label_replace(load, 'a', '$1', 'job', '(.*)')",
            "call(vectorSelector, stringLiteral, stringLiteral, stringLiteral, stringLiteral)",
            "label_replace(load, \"a\", \"$1\", \"job\", \"(.*)\")|load|\"a\"|\"$1\"|\"job\"\
             |\"(.*)\"",
        ),
    ] {
        let (plan, _memory) = with_context(&store, &[], |context, sources| {
            explain(context, sources, text, time, &OPTIONS).unwrap()
        });
        assert_eq!(outline(&plan), tree, "{text}");
        let of_nodes = nodes(&plan);
        let of_nodes: Vec<&str> = of_nodes.iter().map(|node| &*node.text).collect();
        assert_eq!(of_nodes.join("|"), texts, "{text}");
        for node in nodes(&plan) {
            assert_eq!(node.figures, None, "{text}");
            let is_selector = node.kind.ends_with("Selector");
            assert_eq!(node.selector.is_some(), is_selector, "{text}");
        }
        let (_, analysis) = analyzed(&store, &[], text, time).unwrap();
        assert_eq!(outline(&analysis), tree, "{text}");
    }
}

#[test]
fn plan_lists_the_matchers_of_a_selector_and_fails_like_the_query() {
    let store = MemoryStore::new(Vec::new());
    let time = EvalTime::Instant(100_000);
    let plan = |text: &str| {
        with_context(&store, &[], |context, sources| {
            explain(context, sources, text, time, &OPTIONS).map(|(plan, _)| plan)
        })
    };
    let found = plan("up{job=~'a.*',zone!=''}").unwrap();
    let selector = found.selector.as_ref().unwrap();
    let texts: Vec<&str> = selector.matchers.iter().map(|m| &*m.text).collect();
    assert_eq!(texts, ["job=~\"a.*\"", "zone!=\"\"", "__name__=\"up\""]);
    assert_eq!(selector.resolution, "raw");
    for wrong in ["rate(up)", "sum(", "up["] {
        let failed = with_context(&store, &[], |context, _| {
            query(context, wrong, time, &OPTIONS).map(|_| ())
        });
        assert_eq!(plan(wrong).map(|_| ()), failed, "{wrong}");
    }
}

#[test]
fn plan_of_a_chain_of_thousands_of_operators_is_built_and_dropped() {
    let store = MemoryStore::new(Vec::new());
    let text = vec!["a"; 3_000].join(" + ");
    let (plan, _memory) = with_context(&store, &[], |context, sources| {
        explain(context, sources, &text, EvalTime::Instant(0), &OPTIONS).unwrap()
    });
    assert_eq!(plan.text, text);
}

/// Returns a random query, sometimes inside a subquery or with a fixed time.
fn query_of_seed(seed: u64) -> String {
    let dice = Dice(SimRng::new(seed));
    let inner = random_query(&dice, 3);
    match seed % 6 {
        0 => format!("max_over_time(({inner})[2m:20s])"),
        1 => format!("sum_over_time(({inner})[10s:5s] offset 10s)"),
        2 => format!("topk(scalar(load{{instance=\"i3\"}}), {inner})"),
        3 => format!("({inner}) + on (job) group_left () sum by (job) (load @ 70)"),
        _ => inner,
    }
}

#[test]
fn figures_of_nodes_add_up_to_the_statistics_of_the_query() {
    let store = MemoryStore::new(random_series(&Dice(SimRng::new(2))));
    let counted = Options {
        counts_samples: true,
        ..OPTIONS
    };
    let mut answered = 0;
    for seed in 0..300 {
        let text = query_of_seed(seed);
        println!("seed {seed}: {text}");
        let time = match seed % 2 {
            0 => EvalTime::range(60_000, 180_000, 20_000),
            _ => EvalTime::Instant(110_000),
        };
        let expected = with_context(&store, &[], |context, _| {
            query(context, &text, time, &counted)
        });
        let found = analyzed(&store, &[], &text, time);
        let ((result, analysis), expected) = match (found, expected) {
            (Ok(found), Ok(expected)) => (found, expected),
            (found, expected) => {
                assert_eq!(found.err(), expected.err());
                continue;
            }
        };
        let shown = |result: &QueryResult| {
            format!("{:?}{:?}{:?}", result.value, result.warnings, result.infos)
        };
        assert_eq!(shown(&result), shown(&expected));
        assert_eq!(result.counts, expected.counts);
        let counts = result.counts.unwrap();
        let all = nodes(&analysis);
        let sum = |figure: fn(NodeFigures) -> u64| -> u64 {
            all.iter().map(|node| figure(figures(node))).sum()
        };
        assert_eq!(sum(|f| f.samples_total), counts.total);
        assert_eq!(sum(|f| f.samples_read), counts.read);
        assert!(sum(|f| f.cpu.as_nanos() as u64) > 0);
        for node in all.iter().filter(|node| node.selector.is_some()) {
            let selected = figures(node);
            assert!(
                selected.series > 0 || selected.samples_read == 0,
                "{}",
                node.text
            );
        }
        answered += 1;
    }
    assert!(answered > 150, "{answered} of the queries have an answer");
}

#[test]
fn time_and_series_belong_to_the_node_that_used_them() {
    let store = MemoryStore::new(random_series(&Dice(SimRng::new(3))));
    let time = EvalTime::range(60_000, 180_000, 20_000);
    let text = "sum by (job) (abs(rate(requests_total[1m])) * 2)";
    let (result, analysis) = analyzed(&store, &[], text, time).unwrap();
    let of = |text: &str| {
        let all = nodes(&analysis);
        figures(all.iter().find(|node| node.text == text).unwrap())
    };
    let (sum, selector) = (of(text), of("requests_total[1m]"));
    assert_eq!((sum.series, sum.samples_read), (5, 0));
    assert_eq!(selector.series, 350);
    assert_eq!(selector.samples_total, result.counts.unwrap().total);
    let (rate, abs) = (
        of("rate(requests_total[1m])"),
        of("abs(rate(requests_total[1m]))"),
    );
    assert!(rate.series > 0 && rate.series <= 350, "{rate:?}");
    assert_eq!(rate.series, abs.series);
    for (name, node) in [("sum", sum), ("abs", abs), ("selector", selector)] {
        assert!(node.cpu > Duration::ZERO, "{name}: {node:?}");
    }
    assert_eq!(of("2").series, 0);
}

/// Series every 15 s with increasing values, for hints.
fn hinted_store() -> MemoryStore {
    let series = |name: &str, job: &str, values: f64| Series {
        labels: Labels::from_pairs([("__name__", name), ("job", job)]),
        times: Arc::new((0..80).map(|i| i * 15_000).collect()),
        values: (0..80).map(|i| values * f64::from(i)).collect(),
    };
    MemoryStore::new(vec![
        series("requests_total", "a", 1.0),
        series("requests_total", "b", 2.0),
        series("requests_total", "c", 2.0),
        series("errors_total", "a", 1.0),
        series("temperature", "a", 0.5),
        series("restarts", "a", 0.5),
        series("odd_total", "a", 0.5),
        series("latency_bucket", "a", 1.0),
        series("node_info", "a", 0.0),
        series("node_info", "z", 0.0),
    ])
}

#[test]
fn hints_report_only_mistakes() {
    let store = hinted_store();
    let types = [
        ("restarts", MetricType::Counter),
        ("odd_total", MetricType::Gauge),
    ];
    let time = EvalTime::Instant(1_000_000);
    for (text, kinds) in [
        // A range of two scrapes is enough.
        ("rate(requests_total[20s])", "short_range"),
        ("rate(requests_total[5s])", "short_range"),
        ("rate(requests_total[30s])", ""),
        ("rate(requests_total[5m])", ""),
        ("increase(requests_total[29s])", ""),
        ("last_over_time(requests_total[10s])", ""),
        ("resets(requests_total[10s])", "short_range"),
        ("rate(requests_total[1m:10s])", ""),
        // Metadata is preferred to names.
        ("rate(temperature[5m])", "rate_of_gauge"),
        ("increase(temperature[5m])", "rate_of_gauge"),
        ("irate(odd_total[5m])", "rate_of_gauge"),
        ("rate(restarts[5m])", ""),
        ("delta(temperature[5m])", ""),
        ("rate(nothing[5m])", ""),
        ("requests_total", "counter_without_rate"),
        ("sum by (job) (requests_total)", "counter_without_rate"),
        ("restarts + 1", "counter_without_rate"),
        (
            "histogram_quantile(0.9, latency_bucket)",
            "counter_without_rate",
        ),
        ("requests_total > 10", "counter_without_rate"),
        ("odd_total", ""),
        ("temperature", ""),
        ("count(requests_total)", ""),
        ("absent(requests_total)", ""),
        ("timestamp(requests_total)", ""),
        ("requests_total > 0", ""),
        ("temperature and requests_total", ""),
        ("changes(requests_total[5m])", ""),
        ("rate(requests_total[5m:1m])", ""),
        ("max_over_time(requests_total[5m:1m])", ""),
        ("group(requests_total) by (job)", ""),
        ("temperature{job=~\".*\"}", "matches_everything"),
        ("count({__name__=~\".+\"})", "matches_everything"),
        ("temperature{job=~\".+\"}", ""),
        ("temperature{job=~\"a.*\"}", ""),
        // Series b and c of requests have no errors.
        (
            "rate(errors_total[5m]) / rate(requests_total[5m])",
            "join_drops_series",
        ),
        (
            "rate(errors_total[5m]) / on (job) rate(requests_total{job='a'}[5m])",
            "",
        ),
        ("temperature * on (job) group_left () node_info", ""),
        (
            "node_info * on (job) group_left () temperature",
            "join_drops_series",
        ),
        ("rate(requests_total[5m]) and rate(errors_total[5m])", ""),
        (
            "rate(requests_total[5m]) + fill (0) rate(errors_total[5m])",
            "",
        ),
        ("temperature + 1", ""),
    ] {
        let (_, analysis) = analyzed(&store, &types, text, time).expect(text);
        let all = nodes(&analysis);
        let hints: Vec<_> = all.iter().flat_map(|node| &node.hints).collect();
        let found: Vec<&str> = hints.iter().map(|hint| hint.kind.name()).collect();
        assert_eq!(found.join(" "), kinds, "{text}: {hints:?}");
    }
}
