//! Tests of the collection of queries, with a system that has three hosts.

use super::dashboard::Dashboard;
use super::generate::generate;
use super::*;
use serde_json::{Value, json};
use std::path::PathBuf;

struct ThreeHosts;

impl VariableLookup for ThreeHosts {
    fn label_names(&self, _: Option<&str>) -> Result<Vec<String>, String> {
        Ok(["__name__", "host", "job"].map(str::to_owned).to_vec())
    }

    fn label_values(&self, label: &str, selector: Option<&str>) -> Result<Vec<String>, String> {
        let values: &[&str] = match (label, selector) {
            ("__name__", None) => &["up", "http_requests_total", "latency_bucket"],
            ("host", None | Some("up{job=\"a\"}")) => &["h1.x:9", "h2", "h10"],
            ("job", Some("up")) => &["a"],
            ("broken", _) => return Err("503".to_owned()),
            _ => &[],
        };
        Ok(values.iter().map(|v| (*v).to_owned()).collect())
    }

    fn query_result(&self, expression: &str) -> Result<Vec<String>, String> {
        assert_eq!(expression, "count by (host) (up)");
        Ok(["{host=\"h1\"} 2 1000", "{host=\"h2\"} 1 1000"]
            .map(str::to_owned)
            .to_vec())
    }
}

const TIMES: VariableTimes = VariableTimes {
    start_ms: 1_000_000,
    end_ms: 4_600_000,
    step_ms: 15_000,
};

fn board(targets: &[&str], variables: &Value) -> Dashboard {
    let targets: Vec<Value> = targets.iter().map(|expr| json!({"expr": expr})).collect();
    let row = json!({"type": "row", "panels": [{"targets": targets}]});
    let document = json!({"title": "t", "panels": [row], "templating": {"list": variables}});
    dashboard::read(&document, "f.json").unwrap()
}

fn gather(dashboard: Dashboard) -> QueryCollection {
    QueryCollection::gather(
        &[QueryFileContent::Dashboard(dashboard)],
        Vec::new(),
        &ThreeHosts,
        &TIMES,
    )
}

/// Checks the query that results from one expression with `variables`, or the reason for skipping
/// it.
fn check(expr: &str, variables: &Value, expected: Result<&str, &str>) {
    let found = gather(board(&[expr], variables));
    let outcome = match (found.questions.first(), found.unasked.first()) {
        (Some(question), _) => Ok(question.text.as_str()),
        (None, Some(unasked)) => Err(unasked.reason.as_str()),
        (None, None) => panic!("nothing became of {expr}"),
    };
    assert_eq!(outcome, expected, "{expr}");
}

#[test]
fn variables_of_every_kind_take_values_of_the_baseline() {
    let list = json!([
        {"name": "job", "type": "query", "query": {"query": "label_values(up, job)"}},
        {"name": "host", "type": "query", "query": "label_values(up{job=\"$job\"}, host)",
         "multi": true, "current": {"value": ["gone"]}},
        {"name": "one", "type": "query", "query": "label_values(host)", "sort": 4},
        {"name": "all", "type": "query", "query": "label_values(host)", "includeAll": true,
         "allValue": ".*", "current": {"value": "$__all"}},
        {"name": "some", "type": "query", "query": "label_values(host)", "multi": true,
         "current": {"value": ["h2", "h10"]}},
        {"name": "cut", "type": "query", "query": "query_result(count by (host) (up))",
         "regex": "/host=\"([^\"]+)\"/", "multi": true},
        {"name": "metric", "type": "query", "query": "metrics(http_.*)"},
        {"name": "quantile", "type": "custom", "query": "p50 : 0.5, p99 : 0.99"},
        {"name": "window", "type": "interval", "query": "2m,5m"},
        {"name": "suffix", "type": "constant", "query": "total"},
        {"name": "none", "type": "query", "query": "label_values(nothing)"},
        {"name": "down", "type": "query", "query": "label_values(broken)"},
        {"name": "filter", "type": "adhoc"},
        {"name": "circle", "type": "constant", "query": "$circle"}
    ]);
    let check = |expr, expected| check(expr, &list, expected);
    check("up{job=\"$job\"}", Ok("up{job=\"a\"}"));
    check(
        "up{host=~\"$host\"}",
        Ok("up{host=~\"(h1\\\\.x:9|h2|h10)\"}"),
    );
    check("up{host=\"${one}\"}", Ok("up{host=\"h10\"}"));
    check("up{host=~\"[[all]]\"}", Ok("up{host=~\".*\"}"));
    check("up{host=~\"${some:pipe}\"}", Ok("up{host=~\"h2|h10\"}"));
    check("up{host=~\"$cut\"}", Ok("up{host=~\"(h1|h2)\"}"));
    check(
        "rate($metric[$window])",
        Ok("rate(http_requests_total[2m])"),
    );
    check(
        "quantile($quantile, x_$suffix)",
        Ok("quantile(0.5, x_total)"),
    );
    check(
        "x{a=\"$none\"}",
        Err("variable $none has no values in the baseline"),
    );
    check("x{a=\"$down\"}", Err("variable $down: 503"));
    check(
        "x{a=\"$filter\"}",
        Err("variable $filter is of type \"adhoc\", which has no values"),
    );
    check("x{a=\"$circle\"}", Err("variable $circle refers to itself"));
    check("x{a=\"$unknown\"}", Err("variable $unknown is not defined"));
}

#[test]
fn built_in_variables_follow_the_times() {
    let none = json!([]);
    check("rate(x[$__interval])", &none, Ok("rate(x[15s])"));
    check("rate(x[$__rate_interval])", &none, Ok("rate(x[1m])"));
    check(
        "rate(x[$__range]) * ${__range_s}",
        &none,
        Ok("rate(x[3600s]) * 3600"),
    );
    check("x @ ${__from}", &none, Ok("x @ 1000000"));
    let replaced = "label_replace(x, \"a\", \"$1\", \"b\", \"(.*)$\")";
    check(replaced, &none, Ok(replaced));
    check(
        "x{a=~\"[[:alpha:]]+\"}",
        &none,
        Ok("x{a=~\"[[:alpha:]]+\"}"),
    );
}

#[test]
fn dashboard_of_the_second_schema_has_its_variables() {
    let variable = |kind: &str, spec: Value| json!({"kind": kind, "spec": spec});
    let query = |text: &str| {
        json!({"kind": "DataQuery", "group": "prometheus", "version": "v0",
               "spec": {"query": text, "qryType": 1}})
    };
    let panel = |expr: &str| {
        let query = json!({"kind": "DataQuery", "group": "prometheus", "spec": {"expr": expr}});
        let queries = json!([{"kind": "PanelQuery", "spec": {"query": query}}]);
        let data = json!({"kind": "QueryGroup", "spec": {"queries": queries}});
        json!({"kind": "Panel", "spec": {"data": data}})
    };
    let check = |expr: &str, expected: Result<&str, &str>| {
        let document = json!({"apiVersion": "x/v2", "kind": "Dashboard", "spec": {
            "title": "t",
            "elements": {"panel-1": panel(expr)},
            "variables": [
                variable("QueryVariable", json!({
                    "name": "job", "query": query("label_values(up, job)")
                })),
                variable("QueryVariable", json!({
                    "name": "host", "query": query("label_values(up{job=\"$job\"}, host)"),
                    "sort": "numericalDesc", "includeAll": true, "current": {"value": "$__all"}
                })),
                variable("QueryVariable", json!({
                    "name": "old", "query": {"kind": "DataQuery", "group": "prometheus",
                                             "spec": {"__legacyStringValue": "metrics(up)"}}
                })),
                variable("CustomVariable", json!({"name": "q", "query": "0.5,0.9",
                                                  "current": {"value": "0.9"}})),
                variable("IntervalVariable", json!({"name": "window", "query": "2m,5m"})),
                variable("ConstantVariable", json!({"name": "suffix", "query": "total"})),
                variable("TextVariable", json!({"name": "word", "query": "w"})),
                variable("AdhocVariable", json!({"name": "filter"}))
            ]
        }});
        let found = gather(dashboard::read(&document, "f.json").unwrap());
        let outcome = match found.questions.first() {
            Some(question) => Ok(question.text.as_str()),
            None => Err(found.unasked[0].reason.as_str()),
        };
        assert_eq!(outcome, expected, "{expr}");
    };
    check("up{job=\"$job\"}", Ok("up{job=\"a\"}"));
    check(
        "up{host=~\"$host\"}",
        Ok("up{host=~\"(h10|h2|h1\\\\.x:9)\"}"),
    );
    check("sum($old)", Ok("sum(up)"));
    check("quantile($q, up)", Ok("quantile(0.9, up)"));
    check("rate(a_${suffix}[$window])", Ok("rate(a_total[2m])"));
    check("up{a=\"$word\"}", Ok("up{a=\"w\"}"));
    check(
        "up{$filter}",
        Err("variable $filter is of type \"adhoc\", which has no values"),
    );
}

#[test]
fn dashboard_targets_are_found_everywhere_but_of_other_sources() {
    let document = json!({"dashboard": {
        "rows": [{"panels": [{"targets": [{"expr": "a"}, {"expr": " "}]}]}],
        "annotations": {"list": [{"expr": "b", "datasource": {"type": "prometheus"}}]},
        "panels": [
            {"datasource": {"type": "loki"}, "targets": [{"expr": "{app=\"x\"} |= \"y\""}]},
            {"datasource": {"type": "mixed"},
             "targets": [{"expr": "c", "datasource": {"type": "prometheus"}}]},
            {"panels": [{"targets": [{"expr": "sum(d)"}, {"expr": "sum ( d )"}]}]}
        ]
    }});
    let found = gather(dashboard::read(&document, "f").unwrap());
    let mut texts: Vec<(&str, u64)> = found
        .questions
        .iter()
        .map(|q| (q.text.as_str(), q.weight as u64))
        .collect();
    assert_eq!(texts.remove(0), ("sum(d)", 2), "the heaviest is first");
    texts.sort_unstable();
    assert_eq!(texts, [("a", 1), ("b", 1), ("c", 1)]);
    assert_eq!(
        found.unasked[0].reason,
        "its data source is loki, no Prometheus"
    );
    let e = dashboard::read(&json!({"a": 1}), "f").unwrap_err();
    assert!(e.contains("neither a dashboard"), "{e}");
}

/// Returns the texts of a file with the given content, or the error.
fn texts_in(bytes: &[u8]) -> Result<Vec<String>, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.txt");
    std::fs::write(&path, bytes).unwrap();
    let sources = read(std::slice::from_ref(&path)).map_err(|e| {
        let text = e.to_string();
        let shown = path.display().to_string();
        assert!(text.contains(&shown), "{text:?} does not name the file");
        text.replace(&shown, "FILE")
    })?;
    Ok(match sources.into_iter().next().unwrap() {
        QueryFileContent::Texts(texts) => texts.into_iter().map(|t| t.text).collect(),
        QueryFileContent::Dashboard(board) => board.targets.into_iter().map(|t| t.text).collect(),
    })
}

#[test]
fn files_are_known_by_their_content() {
    let cases: [(&str, &[&str]); 9] = [
        ("weight=2 range=1h up\nweight=3 down\n", &["up", "down"]),
        (
            "# a list\n\nup\n  sum(x) # of x\nbroken(\n",
            &["up", "sum(x) # of x", "broken("],
        ),
        ("{job=\"x\"}\nup\n", &["{job=\"x\"}", "up"]),
        (
            "groups:\n- name: g\n  rules:\n  - {record: r, expr: sum(x)}\n",
            &["sum(x)"],
        ),
        (
            "kind: PrometheusRule\nspec:\n  groups:\n  - rules:\n    - expr: y\n",
            &["y"],
        ),
        (
            "{\"params\":{\"query\":\"up\"}}\n{\"params\":{\"query\":\"x\"}}\n{\"par",
            &["up", "x"],
        ),
        ("{\"params\":{\"query\":\"up\"},\"ts\":\"t\"}\n", &["up"]),
        ("[{\"query\":\"up\"},\0\0", &["up"]),
        (
            "{\n \"panels\": [{\"targets\": [{\"expr\": \"z\"}]}]\n}\n",
            &["z"],
        ),
    ];
    for (text, expected) in cases {
        let found = texts_in(text.as_bytes());
        assert_eq!(
            found,
            Ok(expected.iter().map(|t| (*t).to_owned()).collect()),
            "{text}"
        );
    }
}

#[test]
fn files_that_hold_no_question_are_refused_with_their_name() {
    let cases: [(&[u8], &str); 9] = [
        (
            b"up\nweight=x up\n",
            "FILE: line 2: weight must be a number above 0",
        ),
        (b"{\n \"panels\": [", "FILE: broken JSON: EOF while parsing"),
        (b"{\"a\": 1}", "FILE: JSON, but neither a dashboard"),
        (b"# nothing\n", "FILE: no expression in it"),
        (
            b"hello world\n",
            "FILE: not a dashboard, rule file, query log or list of expressions",
        ),
        (
            b"groups:\n- name: g\n  rules:\n  - record: r\n",
            "FILE: 4:5: a rule without expr",
        ),
        (b"groups: [\n", "FILE: "),
        (
            b"\xff\xfe\x00",
            "FILE: neither text nor a file of active queries",
        ),
        (
            b"{\"query\":\"a\"}\n{\"que\n{\"query\":\"b\"}\n",
            "FILE: line 2: broken JSON",
        ),
    ];
    for (bytes, expected) in cases {
        let e = texts_in(bytes).unwrap_err();
        assert!(
            e.starts_with(expected),
            "{e:?} does not begin with {expected:?}"
        );
    }
    let e = read(&[PathBuf::from("/does/not/exist")]).unwrap_err();
    assert!(e.to_string().starts_with("read /does/not/exist: "), "{e}");
}

#[test]
fn folder_gives_the_files_in_it_in_order() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("b")).unwrap();
    for (name, text) in [
        ("b/x.txt", "b1"),
        ("a.promql", "a1"),
        ("c.md", "no question"),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let sources = read(&[dir.path().to_owned()]).unwrap();
    let found = QueryCollection::gather(&sources, Vec::new(), &ThreeHosts, &TIMES);
    let texts: Vec<&str> = found.questions.iter().map(|q| q.text.as_str()).collect();
    assert_eq!(texts, ["a1", "b1"]);
    let empty = tempfile::tempdir().unwrap();
    let e = read(&[empty.path().to_owned()]).unwrap_err();
    assert!(
        e.to_string().contains("the folder contains no file with"),
        "{e}"
    );
}

#[test]
fn question_of_a_list_has_its_weight_and_is_one_with_others_of_its_range() {
    let text = "up\nweight=2.5 (up)\nweight=9 range=1h up\nrange=1h step=15s up\nrange=2h up\n";
    let texts = list::read(text, "f").unwrap();
    let found = QueryCollection::gather(
        &[QueryFileContent::Texts(texts)],
        Vec::new(),
        &ThreeHosts,
        &TIMES,
    );
    let questions = found.questions.iter();
    let questions: Vec<_> = questions
        .map(|q| (q.display_name(true), q.weight))
        .collect();
    let expected = [
        ("range=1h step=15s up".to_owned(), 10.0),
        ("up".to_owned(), 3.5),
        ("range=2h step=30s up".to_owned(), 1.0),
    ];
    assert_eq!(questions, expected);
    assert_eq!(found.questions[0].display_name(false), "up");
}

#[test]
fn generated_questions_parse_repeat_and_are_distinct() {
    let made = generate(500, 7, &ThreeHosts).unwrap();
    assert_eq!(made, generate(500, 7, &ThreeHosts).unwrap());
    assert_eq!(made.len(), 500);
    let found = QueryCollection::gather(&[], made, &ThreeHosts, &TIMES);
    assert_eq!(found.unasked, []);
    assert!(found.questions.len() > 450, "{}", found.questions.len());
}
