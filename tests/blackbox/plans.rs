//! Plans of queries: `explain` and `analyze` over HTTP and on the command line, with figures that
//! add up to the statistics of the query, and hints.

use crate::harness::http::Http;
use crate::harness::server::{Server, firn};
use crate::harness::write::{Series, body};
use crate::now_ms;
use serde_json::Value;
use std::path::Path;

const INTERVAL_MS: i64 = 15_000;

/// Number of samples of each series.
const SAMPLES: i64 = 60;

/// The members that each node has after an evaluation.
const FIGURES: [&str; 8] = [
    "series",
    "samplesRead",
    "totalQueryableSamples",
    "bytesRead",
    "cacheHits",
    "cacheMisses",
    "cpuSeconds",
    "memoryBytes",
];

/// Stores 300 series of requests, 100 of errors and 10 of a temperature. Returns the time of the
/// newest sample.
fn store(http: &Http) -> i64 {
    let newest = now_ms() / INTERVAL_MS * INTERVAL_MS - INTERVAL_MS;
    let mut all = Vec::new();
    for (metric, count) in [
        ("requests_total", 300),
        ("errors_total", 100),
        ("temperature", 10),
    ] {
        for number in 0..count {
            let (job, number) = (format!("job{}", number % 3), number.to_string());
            let samples: Vec<(i64, f64)> = (0..SAMPLES)
                .map(|i| (newest - (SAMPLES - 1 - i) * INTERVAL_MS, i as f64))
                .collect();
            let labels = [("__name__", metric), ("instance", &number), ("job", &job)];
            all.push(Series::new(&labels, &samples));
        }
    }
    assert_eq!(http.write(&body(&all)).status, 204);
    newest
}

fn start(folder: &Path) -> Server {
    let config = folder.join("firn.yml");
    std::fs::write(&config, "scrape_configs: []\n").unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    Server::start(&folder.join("data"), &flags)
}

/// Sends an instant query with the parameters `more`, as a form.
fn instant(http: &Http, query: &str, time_ms: i64, more: &[(&str, &str)]) -> Value {
    let time = (time_ms as f64 / 1000.0).to_string();
    let form = [&[("query", query), ("time", &time)][..], more].concat();
    let answer = http.post("/api/v1/query", &form);
    assert_eq!(answer.status, 200, "{query}: {}", answer.body);
    answer.json()["data"].take()
}

/// Sends a range query over the last 10 minutes with the parameters `more`, in the URL.
fn range(http: &Http, query: &str, time_ms: i64, more: &str) -> Value {
    let end = time_ms as f64 / 1000.0;
    let path = format!(
        "/api/v1/query_range?query={}&start={}&end={end}&step=30&{more}",
        crate::disconnect::escaped(query),
        end - 600.0,
    );
    let answer = http.get(&path);
    assert_eq!(answer.status, 200, "{query}: {}", answer.body);
    answer.json()["data"].take()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns all nodes of a plan, parents before children.
fn nodes(root: &Value) -> Vec<&Value> {
    let children = items(&root["children"]).flat_map(nodes);
    std::iter::once(root).chain(children).collect()
}

fn sum(root: &Value, figure: &str) -> u64 {
    let of_nodes = nodes(root).into_iter();
    of_nodes.map(|node| node[figure].as_u64().unwrap()).sum()
}

fn hints(root: &Value) -> Vec<&str> {
    let of_nodes = nodes(root).into_iter();
    let all = of_nodes.flat_map(|node| items(&node["hints"]));
    all.map(|hint| hint["kind"].as_str().unwrap()).collect()
}

/// Checks the members of all nodes of a plan.
fn check_shape(root: &Value, is_evaluated: bool) {
    for node in nodes(root) {
        let kind = node["type"].as_str().unwrap();
        assert!(!node["text"].as_str().unwrap().is_empty(), "{node}");
        assert!(
            node["children"].is_array() && node["hints"].is_array(),
            "{node}"
        );
        let is_selector = kind.ends_with("Selector");
        assert_eq!(node["matchers"].is_array(), is_selector, "{node}");
        assert_eq!(node["resolution"].is_string(), is_selector, "{node}");
        for figure in FIGURES {
            assert_eq!(node[figure].is_number(), is_evaluated, "{figure}: {node}");
        }
    }
}

#[test]
fn explain_returns_the_plan_with_the_series_of_each_matcher() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let http = server.http();
    let newest = store(&http);
    let query = r#"sum by (job) (rate(requests_total{job=~"job[01]",instance!="7"}[5m]))"#;
    let of_instant = instant(&http, query, newest, &[("explain", "1")]);
    let of_range = range(&http, query, newest, "explain=1&analyze=1");
    for data in [&of_instant, &of_range] {
        assert_eq!(data.as_object().unwrap().len(), 1, "{data}");
        let plan = &data["plan"];
        check_shape(plan, false);
        let kinds: Vec<&Value> = nodes(plan).iter().map(|node| &node["type"]).collect();
        assert_eq!(kinds, ["aggregation", "call", "matrixSelector"]);
        let selector = nodes(plan)[2];
        assert_eq!(selector["resolution"], "raw");
        let series = |matcher: &str| {
            let found = items(&selector["matchers"]).find(|one| one["matcher"] == matcher);
            let found = found.unwrap_or_else(|| panic!("{matcher} of {selector}"));
            assert!(found["deferred"].is_boolean(), "{found}");
            found["series"].as_u64().unwrap()
        };
        assert_eq!(series(r#"__name__="requests_total""#), 300);
        // Two of three jobs of each metric: 200 + 67 + 7.
        assert_eq!(series(r#"job=~"job[01]""#), 274);
        // All but three of 410 series.
        assert_eq!(series(r#"instance!="7""#), 407);
    }
    let wrong = http.post("/api/v1/query", &[("query", "rate(up)"), ("explain", "1")]);
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    assert_eq!(wrong.json()["errorType"], "bad_data");
    let wrong = http.post("/api/v1/query", &[("query", "up"), ("analyze", "maybe")]);
    assert_eq!(wrong.status, 400, "{}", wrong.body);
}

#[test]
fn analyze_adds_figures_that_add_up_to_the_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let http = server.http();
    let newest = store(&http);
    for query in [
        "requests_total",
        "sum by (job) (rate(requests_total[5m]))",
        "topk(3, requests_total) / on (instance) errors_total",
        "max_over_time(sum(rate(requests_total[1m]))[5m:1m])",
        "avg_over_time(temperature[2m]) + temperature @ end() * 2",
        "-abs(temperature) or vector(1)",
        "label_replace(requests_total, 'a', '$1', 'job', '(.*)')",
    ] {
        let data = range(&http, query, newest, "analyze=1&stats=all");
        let plain = range(&http, query, newest, "");
        assert_eq!(data["result"], plain["result"], "{query}");
        assert!(plain.get("analysis").is_none(), "{query}");
        let analysis = &data["analysis"];
        check_shape(analysis, true);
        let stats = &data["stats"]["samples"];
        for figure in ["samplesRead", "totalQueryableSamples"] {
            assert_eq!(stats[figure], sum(analysis, figure), "{query}: {figure}");
        }
        assert!(sum(analysis, "bytesRead") > 0, "{query}: {analysis}");
        assert!(sum(analysis, "memoryBytes") > 0, "{query}: {analysis}");
        let cpu = nodes(analysis).into_iter();
        let cpu: f64 = cpu.map(|node| node["cpuSeconds"].as_f64().unwrap()).sum();
        assert!(cpu > 0.0, "{query}: {analysis}");
        let selector = nodes(analysis)
            .into_iter()
            .find(|n| n["matchers"].is_array());
        assert!(
            selector.unwrap()["series"].as_u64() > Some(0),
            "{query}: {analysis}"
        );
    }
}

#[test]
fn hints_of_an_analysis_name_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let http = server.http();
    let newest = store(&http);
    for (query, kinds) in [
        ("rate(requests_total[5m])", &[][..]),
        ("rate(requests_total[10s])", &["short_range"]),
        ("rate(temperature[5m])", &["rate_of_gauge"]),
        ("sum(requests_total)", &["counter_without_rate"]),
        ("temperature{job=~'.*'}", &["matches_everything"]),
        (
            "rate(errors_total[5m]) / rate(requests_total[5m])",
            &["join_drops_series"],
        ),
    ] {
        let data = instant(&http, query, newest, &[("analyze", "1")]);
        assert_eq!(hints(&data["analysis"]), kinds, "{query}");
        let answer = http.query(query, newest);
        assert_eq!(answer, data["result"], "{query}");
    }
}

#[test]
fn command_line_prints_plans_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let newest = store(&server.http());
    let time = (newest as f64 / 1000.0).to_string();
    let run = |args: &[&str]| {
        let output = firn().arg("query").args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let address = &*server.address;
    let query = "sum(rate(requests_total[10s]))";
    let instant = ["instant", "--time", &time, address, query];
    let (code, out, err) = run(&[&instant[..], &["--explain"]].concat());
    assert_eq!((code, &*err), (Some(0), ""));
    assert_eq!(
        out,
        "sum(rate(requests_total[10s]))\n  rate(requests_total[10s])\n    requests_total[10s]\n\
         \u{20}       __name__=\"requests_total\": 300 series\n"
    );
    let (code, out, err) = run(&[&["--analyze"], &instant[..]].concat());
    assert_eq!((code, &*err), (Some(0), ""));
    assert!(out.contains("  expression\n"), "{out}");
    assert!(out.contains("hint short_range: "), "{out}");
    let range = [
        "range",
        "--analyze",
        "-o",
        "json",
        "--end",
        &time,
        address,
        query,
    ];
    let (code, out, err) = run(&range);
    assert_eq!((code, &*err), (Some(0), ""));
    check_shape(&serde_json::from_str(&out).unwrap(), true);
    let (code, _, err) = run(&["series", "--analyze", "--match", "up", address]);
    assert_eq!(code, Some(2), "{err}");
    assert!(
        err.contains("--analyze needs the command instant or range"),
        "{err}"
    );
}
