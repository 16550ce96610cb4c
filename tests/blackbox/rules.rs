//! Rules from outside: files, evaluations, alerts, reloads, kills, and the commands that check and
//! test them.

use crate::harness::http::Http;
use crate::harness::server::{Server, firn, wait_for};
use crate::now_ms;
use serde_json::Value;
use std::path::Path;

const RULES: &str = "\
groups:
- name: g
  interval: 1s
  rules:
  - {record: one, expr: vector(1)}
  - {record: two, expr: one + one, labels: {from: rule}}
  - alert: Always
    expr: two > 0
    for: 2s
    labels: {severity: page}
    annotations: {summary: is 2}
";

/// A folder with a config and a rule file.
struct Setup {
    dir: tempfile::TempDir,
    config: String,
}

impl Setup {
    fn new(rules: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("firn.yml");
        std::fs::write(&config, "rule_files: [rules*.yml]\n").unwrap();
        let setup = Setup {
            config: config.to_str().unwrap().to_owned(),
            dir,
        };
        setup.write(rules);
        setup
    }

    fn write(&self, rules: &str) {
        std::fs::write(self.dir.path().join("rules.yml"), rules).unwrap();
    }

    fn start(&self) -> Server {
        let flags = ["--config", &self.config, "--web.enable-lifecycle"];
        Server::start(&self.dir.path().join("data"), &flags)
    }
}

fn groups(http: &Http, query: &str) -> Vec<Value> {
    let answer = http.get(&format!("/api/v1/rules{query}")).json();
    answer["data"]["groups"].as_array().unwrap().clone()
}

fn alert(http: &Http) -> Option<Value> {
    let answer = http.get("/api/v1/alerts").json();
    answer["data"]["alerts"]
        .as_array()
        .unwrap()
        .first()
        .cloned()
}

/// Returns the times in milliseconds of the samples of a range selector.
fn times(http: &Http, selector: &str) -> Vec<i64> {
    let answer = http.post("/api/v1/query", &[("query", selector)]).json();
    let series = answer["data"]["result"][0]["values"].as_array();
    let time = |point: &Value| (point[0].as_f64().unwrap() * 1000.0).round() as i64;
    series.into_iter().flatten().map(time).collect()
}

fn is_firing(http: &Http) -> bool {
    alert(http).is_some_and(|alert| alert["state"] == "firing")
}

#[test]
fn rules_are_evaluated_shown_and_reloaded() {
    let setup = Setup::new(RULES);
    let server = setup.start();
    let http = server.http();
    wait_for("the alert fires", || is_firing(&http));
    let all = groups(&http, "");
    assert_eq!(all.len(), 1);
    let group = &all[0];
    assert_eq!(group["name"], "g");
    assert!(group["file"].as_str().unwrap().ends_with("/rules.yml"));
    assert_eq!(
        (group["interval"].as_i64(), group["limit"].as_i64()),
        (Some(1), Some(0))
    );
    let rules = group["rules"].as_array().unwrap();
    let shown: Vec<String> = rules
        .iter()
        .map(|r| {
            format!(
                "{} {}",
                r["type"].as_str().unwrap(),
                r["health"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(shown, ["recording ok", "recording ok", "alerting ok"]);
    assert_eq!(rules[1]["query"], "one + one");
    assert_eq!(rules[2]["alerts"][0]["labels"]["severity"], "page");
    assert_eq!(rules[2]["alerts"][0]["annotations"]["summary"], "is 2");
    assert_eq!(rules[2]["alerts"][0]["value"], "2e+00");
    wait_for("the series about the alert", || {
        let shown = "ALERTS{alertname=\"Always\",alertstate=\"firing\",from=\"rule\"}[1m]";
        !times(&http, shown).is_empty()
    });
    let since = alert(&http).unwrap()["activeAt"].clone();
    // One rule is removed, one is added, and the alert keeps its state.
    setup.write(
        &RULES
            .replace("record: one", "record: uno")
            .replace("one + one", "uno + uno"),
    );
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    wait_for("the new rule", || !times(&http, "uno[1m]").is_empty());
    wait_for("the end of the old series", || {
        let answer = http.post("/api/v1/query", &[("query", "one")]).json();
        answer["data"]["result"].as_array().unwrap().is_empty()
    });
    assert_eq!(alert(&http).unwrap()["activeAt"], since);
    assert!(is_firing(&http));
    // An invalid file changes nothing.
    setup.write("groups:\n- name: g\n  rule: []\n");
    let refused = http.post("/-/reload", &[]);
    assert_eq!(refused.status, 500);
    let why = "3:3: field rule not found in type rulefmt.RuleGroup";
    assert!(refused.body.contains(why), "{}", refused.body);
    assert_eq!(groups(&http, "").len(), 1);
    assert!(server.stop().success());
}

#[test]
fn rules_after_a_kill_have_every_instant_and_alerts_as_they_were() {
    let setup = Setup::new(RULES);
    let server = setup.start();
    wait_for("the alert fires", || is_firing(&server.http()));
    let since = alert(&server.http()).unwrap()["activeAt"].clone();
    server.kill();
    let killed = std::time::Instant::now();
    wait_for("some instants", || killed.elapsed().as_secs() >= 4);
    let server = setup.start();
    let http = server.http();
    wait_for("the instants behind the kill", || {
        let made = made_up(&http);
        made >= 3.0 && is_firing(&http)
    });
    assert_eq!(alert(&http).unwrap()["activeAt"], since);
    for selector in ["two[1m]", "ALERTS_FOR_STATE[1m]"] {
        let times = times(&http, selector);
        assert!(times.len() > 3, "{selector}: {times:?}");
        let steps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            steps.iter().all(|step| *step == 1000),
            "{selector}: {steps:?}"
        );
    }
    assert!(server.stop().success());
}

/// The first group is slower than the second one, which reads its series.
const CHAIN: &str = "\
groups:
- name: slow
  interval: 1s
  rules:
  - {record: step1, expr: vector(1)}
  - {record: step2, expr: step1}
  - {record: step3, expr: step2}
  - {record: step4, expr: step3}
  - {record: step5, expr: step4}
- name: quick
  interval: 1s
  rules:
  - {record: age, expr: time() - timestamp(step5)}
";

#[test]
fn group_that_makes_up_for_a_kill_finds_what_the_group_that_it_reads_makes_up_for() {
    let setup = Setup::new(CHAIN);
    let server = setup.start();
    let http = server.http();
    let has_age = |http: &Http| !times(http, "age[1m]").is_empty();
    wait_for("the first evaluations", || has_age(&http));
    server.kill();
    let (killed, killed_ms) = (std::time::Instant::now(), now_ms());
    wait_for("some instants", || killed.elapsed().as_secs() >= 6);
    let started_ms = now_ms();
    let server = setup.start();
    let http = server.http();
    wait_for("the instants behind the kill", || {
        let newest = times(&http, "age[1m]").last().copied();
        newest.is_some_and(|newest| newest > started_ms)
    });
    let answer = http.post("/api/v1/query", &[("query", "age[1m]")]).json();
    let points = answer["data"]["result"][0]["values"].as_array().unwrap();
    let ages = points.iter().map(|point| {
        let age: f64 = point[1].as_str().unwrap().parse().unwrap();
        ((point[0].as_f64().unwrap() * 1000.0) as i64, age)
    });
    // The instant before the kill may be missing, because its evaluation had begun.
    let gone: Vec<_> = ages
        .filter(|(time, _)| (killed_ms + 1000..started_ms).contains(time))
        .collect();
    assert!(gone.len() >= 4, "{points:?}");
    assert!(gone.iter().all(|(_, age)| *age <= 1.0), "{points:?}");
    assert!(server.stop().success());
}

#[test]
fn rules_whose_interval_changes_keep_their_alerts() {
    let setup = Setup::new(RULES);
    let server = setup.start();
    wait_for("the alert fires", || is_firing(&server.http()));
    let since = alert(&server.http()).unwrap()["activeAt"].clone();
    let every = |seconds: u32| {
        let interval = format!("interval: {seconds}s");
        setup.write(&RULES.replace("interval: 1s", &interval));
    };
    let is_evaluated = |http: &Http, seconds: i64| {
        let group = groups(http, "").into_iter().next();
        let is_it = |group: Value| {
            let began = group["lastEvaluation"].as_str().unwrap().to_owned();
            group["interval"] == seconds && !began.starts_with("0001")
        };
        group.is_some_and(is_it)
    };
    every(2);
    let http = server.http();
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    wait_for("the second interval", || is_evaluated(&http, 2));
    let kept = alert(&http).unwrap();
    assert_eq!(
        (&kept["activeAt"], &kept["state"]),
        (&since, &"firing".into())
    );
    assert!(server.stop().success());
    every(3);
    let server = setup.start();
    let http = server.http();
    wait_for("the third interval", || is_evaluated(&http, 3));
    let kept = alert(&http).unwrap();
    assert_eq!(
        (&kept["activeAt"], &kept["state"]),
        (&since, &"firing".into())
    );
    assert!(server.stop().success());
}

#[test]
fn reloads_in_a_row_end_as_the_last_one_says_and_hide_no_group() {
    let setup = Setup::new(RULES);
    let server = setup.start();
    let http = server.http();
    wait_for("the group", || groups(&http, "").len() == 1);
    for round in 0..40 {
        setup.write(&RULES.replace("is 2", &format!("round {round}")));
        assert_eq!(http.post("/-/reload", &[]).status, 200);
        assert_eq!(groups(&http, "").len(), 1, "round {round}");
    }
    wait_for("the last config", || {
        let rules = groups(&http, "")[0]["rules"].clone();
        rules[2]["annotations"]["summary"] == "round 39"
    });
    assert!(server.stop().success());
}

#[test]
fn rule_files_without_an_end_are_refused_at_a_reload() {
    let setup = Setup::new(RULES);
    let server = setup.start();
    let http = server.http();
    wait_for("the group", || groups(&http, "").len() == 1);
    let long = setup.dir.path().join("long.yml");
    let file = std::fs::File::create(&long).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    for (key, name, why) in [
        ("rule_files", "/dev/zero", "not a regular file"),
        (
            "rule_files",
            "long.yml",
            "file is too long: limit 16777216 bytes",
        ),
        ("scrape_config_files", "/dev/zero", "not a regular file"),
    ] {
        std::fs::write(&setup.config, format!("{key}: ['{name}']\n")).unwrap();
        let refused = http.post("/-/reload", &[]);
        assert_eq!(refused.status, 500, "{name}: {}", refused.body);
        assert!(refused.body.contains(why), "{name}: {}", refused.body);
    }
    assert_eq!(groups(&http, "").len(), 1);
    assert!(server.stop().success());
}

/// Returns the number of evaluations that were caught up.
fn made_up(http: &Http) -> f64 {
    let page = http.get("/metrics").body;
    let name = "firn_rule_group_iterations_made_up_total";
    let line = page.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit_once(' '));
    value.map_or(0.0, |(_, value)| value.parse().unwrap())
}

#[test]
fn metrics_tell_rules_of_a_group_apart() {
    // The second rule produces the same series as the first one.
    let rules = "[{record: r, expr: vector(1)}, {record: r, expr: vector(2)}, \
                 {alert: A, expr: vector(1)}]";
    let setup = Setup::new(&format!(
        "groups: [{{name: g, interval: 1s, rules: {rules}}}]\n"
    ));
    let server = setup.start();
    let http = server.http();
    let of_rules = |name: &str| -> Vec<(String, f64)> {
        let page = http.get("/metrics").body;
        let lines = page
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.split_once(' '));
        let part = |text: &str, label: &str| {
            let (_, rest) = text.split_once(&format!("{label}=\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        let rule = |text: &str| part(text, "rule_index") + &part(text, "rule");
        lines
            .map(|(labels, value)| (rule(labels), value.parse().unwrap()))
            .collect()
    };
    let wanted = [("0r", 1.0), ("1r", 1.0), ("2A", 2.0)];
    let wanted = wanted.map(|(rule, count)| (rule.to_owned(), count));
    wait_for("samples of each rule", || {
        of_rules("firn_rule_last_evaluation_samples") == wanted
    });
    wait_for("a failure", || {
        let failures = of_rules("firn_rule_failures_total");
        failures.iter().any(|(_, count)| *count > 0.0)
    });
    for (rule, count) in of_rules("firn_rule_failures_total") {
        assert_eq!(count > 0.0, rule == "1r", "{rule} fails {count} times");
    }
    for name in [
        "firn_rule_last_duration_seconds",
        "firn_rule_duration_seconds_total",
    ] {
        let took = of_rules(name);
        assert_eq!(took.len(), 3, "{took:?}");
        assert!(took.iter().all(|(_, seconds)| *seconds > 0.0), "{took:?}");
    }
    assert!(server.stop().success());
}

#[test]
fn rules_are_filtered_and_paged_as_in_prometheus() {
    let group = |name: &str| {
        format!(
            "- name: {name}\n  interval: 1h\n  labels: {{team: {name}}}\n  rules:\n  \
             - {{record: r, expr: 1}}\n  - {{alert: A, expr: 1}}\n"
        )
    };
    let text: String = ["a", "b", "c"].iter().map(|name| group(name)).collect();
    let setup = Setup::new(&format!("groups:\n{text}"));
    let server = setup.start();
    let http = server.http();
    wait_for("the groups", || groups(&http, "").len() == 3);
    let names = |query: &str| -> Vec<String> {
        let groups = groups(&http, query);
        let shown = groups.iter().map(|group| {
            let rules = group["rules"].as_array().unwrap().iter();
            let rules: Vec<_> = rules.map(|r| r["name"].as_str().unwrap()).collect();
            format!("{}:{}", group["name"].as_str().unwrap(), rules.join(","))
        });
        shown.collect()
    };
    assert_eq!(names("?type=alert&rule_group[]=a"), ["a:A"]);
    assert_eq!(
        names("?type=record&rule_group[]=a&rule_group[]=c"),
        ["a:r", "c:r"]
    );
    assert_eq!(
        names("?rule_name[]=r&match[]=%7Bteam%3D%22b%22%7D"),
        ["b:r"]
    );
    assert_eq!(names("?file[]=none"), [""; 0]);
    let page = http.get("/api/v1/rules?group_limit=2").json();
    let token = page["data"]["groupNextToken"].as_str().unwrap().to_owned();
    assert_eq!(page["data"]["groups"].as_array().unwrap().len(), 2);
    let rest = format!("?group_limit=2&group_next_token={token}");
    assert_eq!(names(&rest), ["c:r,A"]);
    for (query, why) in [
        (
            "?type=x",
            "invalid parameter \"type\": not supported value \"x\"",
        ),
        (
            "?group_next_token=x",
            "invalid parameter \"group_next_token\": group_limit needs to be present in order to \
             paginate over the groups",
        ),
        (
            "?group_limit=0",
            "invalid parameter \"group_limit\": group_limit needs to be greater than 0",
        ),
        (
            "?group_limit=1&group_next_token=x",
            "invalid parameter \"group_next_token\": invalid group_next_token 'x'. were rule \
             groups changed?",
        ),
    ] {
        let answer = http.get(&format!("/api/v1/rules{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(answer.json()["error"], why, "{query}");
    }
    assert!(server.stop().success());
}

#[test]
fn backfill_makes_what_a_rule_would_have_made() {
    let rules = "groups: [{name: g, interval: 1s, rules: [{record: past, expr: vector(time())}]}]";
    let setup = Setup::new(rules);
    let server = setup.start();
    let http = server.http();
    wait_for("an evaluation", || times(&http, "past[1m]").len() > 1);
    let first = times(&http, "past[1m]")[0];
    let (start, end) = ((first - 10_000) as f64 / 1e3, (first - 1) as f64 / 1e3);
    let ask = || {
        let form = [
            ("group", "g"),
            ("start", &start.to_string()),
            ("end", &end.to_string()),
        ];
        http.post("/api/v1/rules/backfill", &form)
    };
    for _ in 0..2 {
        let asked = ask();
        assert_eq!(asked.status, 200, "{}", asked.body);
        wait_for("the back-fill", || {
            let all = http.get("/api/v1/rules/backfill").json();
            let all = all["data"]["backfills"].as_array().unwrap().clone();
            !all.is_empty() && all.iter().all(|one| one["state"] == "done")
        });
    }
    let all = http.get("/api/v1/rules/backfill").json();
    let last = all["data"]["backfills"].as_array().unwrap().last().cloned();
    let last = last.unwrap();
    assert_eq!(last["instants"], last["instantsDone"]);
    assert!(last["lastError"].is_null(), "{last}");
    let times = times(&http, "past[2m]");
    assert!(times[0] <= first - 9_000, "{times:?}");
    let steps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps.iter().all(|step| *step == 1000), "{steps:?}");
    let wrong = http.post(
        "/api/v1/rules/backfill",
        &[("group", "h"), ("start", "1"), ("end", "2")],
    );
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("no rule group"), "{}", wrong.body);
    assert!(server.stop().success());
}

/// Runs a command; returns its exit code, standard output and standard error.
fn say(dir: &Path, words: &[&str]) -> (i32, String, String) {
    let output = firn().args(words).current_dir(dir).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    (code, text(&output.stdout), text(&output.stderr))
}

#[test]
fn check_rules_speaks_as_promtool() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "good.yml",
        "groups: [{name: a, rules: [{record: x, expr: 1}]}]",
    );
    write(
        "twice.yml",
        "groups: [{name: a, rules: [{record: x, expr: 1, labels: {c: d}}, {record: x, expr: 2, labels: {c: d}}]}]",
    );
    write(
        "bad.yml",
        "groups:\n- name: a\n  rules:\n  - record: x\n    expr: sum(\n",
    );
    let check = |words: &[&str]| say(dir.path(), &[&["check", "rules"][..], words].concat());
    let good = "Checking good.yml\n  SUCCESS: 1 rules found\n\n".to_owned();
    assert_eq!(check(&["good.yml"]), (0, good, String::new()));
    let lint = "  FAILED:\nlint error 1 duplicate rule(s) found.\nMetric: x\nLabel(s):\n\tc: d\n\
                Might cause inconsistency while recording expressions\n";
    let twice = "Checking twice.yml\n\n".to_owned();
    assert_eq!(check(&["twice.yml"]), (0, twice.clone(), lint.into()));
    assert_eq!(
        check(&["--lint-fatal", "twice.yml"]),
        (3, twice, lint.into())
    );
    assert_eq!(check(&["--lint=none", "twice.yml"]).0, 0);
    let (code, out, err) = check(&["bad.yml"]);
    assert_eq!((code, out.as_str()), (1, "Checking bad.yml\n"));
    assert_eq!(
        err,
        "  FAILED:\nbad.yml: 5:11: group \"a\", rule 1, \"x\": could not parse expression: 1:5: \
         parse error: unclosed left parenthesis\n"
    );
    let (code, _, err) = check(&["none.yml"]);
    assert_eq!(code, 1);
    assert!(err.contains("path 'none.yml' does not exist"), "{err}");
}

const TESTS: &str = "\
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  name: first
  input_series:
  - series: up{job=\"j\",instance=\"i\"}
    values: 1 1 0x4
  - series: h
    values: '{{schema:0 count:4 sum:5 buckets:[1 2 1]}}x5'
  alert_rule_test:
  - {eval_time: 1m, alertname: Down}
  - eval_time: 5m
    alertname: Down
    exp_alerts:
    - exp_labels: {job: j, instance: i, severity: SEVERITY}
      exp_annotations: {summary: is down}
  promql_expr_test:
  - expr: job:up:sum
    eval_time: 1m
    exp_samples: [{labels: 'job:up:sum{job=\"j\"}', value: VALUE}]
  - expr: h
    eval_time: 0s
    exp_samples: [{labels: h, histogram: '{{schema:0 count:4 sum:5 buckets:[1 2 1]}}'}]
";

#[test]
fn test_rules_speaks_as_promtool() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "rules.yml",
        "groups:\n- name: a\n  rules:\n  - {record: 'job:up:sum', expr: sum by (job) (up)}\n  \
         - {alert: Down, expr: up == 0, for: 2m, labels: {severity: page}, annotations: {summary: is down}}\n",
    );
    write(
        "good.yml",
        &TESTS.replace("SEVERITY", "page").replace("VALUE", "1"),
    );
    write(
        "bad.yml",
        &TESTS.replace("SEVERITY", "low").replace("VALUE", "2"),
    );
    let test = |words: &[&str]| say(dir.path(), &[&["test", "rules"][..], words].concat());
    assert_eq!(
        test(&["good.yml"]),
        (0, "  SUCCESS\n\n".into(), String::new())
    );
    let (code, out, err) = test(&["--junit=j.xml", "bad.yml"]);
    assert_eq!((code, out.as_str()), (1, "\n\n\n"));
    let alert = "    name: first,\n    alertname: Down, time: 5m, \n        exp:[\n            0:\n              \
         Labels:{alertname=\"Down\", instance=\"i\", job=\"j\", severity=\"low\"}\n              \
         Annotations:{summary=\"is down\"}\n            ], \n        got:[\n            0:\n              \
         Labels:{alertname=\"Down\", instance=\"i\", job=\"j\", severity=\"page\"}\n              \
         Annotations:{summary=\"is down\"}\n            ]\n";
    let expr = "    expr: \"job:up:sum\", time: 1m,\n        \
         exp: {__name__=\"job:up:sum\", job=\"j\"} 2E+00\n        \
         got: {__name__=\"job:up:sum\", job=\"j\"} 1E+00\n";
    assert_eq!(err, format!("  FAILED:\n{alert}{expr}"));
    let junit = std::fs::read_to_string(dir.path().join("j.xml")).unwrap();
    let head = "<testsuites><testsuite name=\"bad.yml\" tests=\"1\" failures=\"2\" errors=\"0\"";
    assert!(junit.starts_with(head), "{junit}");
    assert_eq!(test(&["--run=second", "bad.yml"]).0, 0);
    let (_, _, err) = test(&["--diff", "bad.yml"]);
    let change = "\"severity\": \u{1b}[0;33m\"low\" => \"page\"\u{1b}[0m";
    assert!(err.contains(change), "{err}");
}

#[test]
fn rule_file_that_several_patterns_find_is_tested_once() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    // A second evaluation at the same time would produce another value.
    write(
        "rules.yml",
        "groups: [{name: a, rules: [{record: r, expr: 'count_over_time(r[1h]) + 1 or vector(1)'}]}]",
    );
    write("other.yml", "not a rule file");
    write(
        "test.yml",
        "{rule_files: [rules.yml, 'r[^x]*.yml', 'rule**.yml'], evaluation_interval: 1m, tests: \
         [{interval: 1m, promql_expr_test: [{expr: r, eval_time: 1m, exp_samples: \
         [{labels: r, value: 2}]}]}]}",
    );
    let said = say(dir.path(), &["test", "rules", "test.yml"]);
    assert_eq!(said, (0, "  SUCCESS\n\n".into(), String::new()));
}

#[test]
fn feature_names_stand_before_and_behind_tools_as_with_promtool() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "rules.yml",
        "groups: [{name: a, rules: [{record: x, expr: 'sort_by_label(up, \"a\")'}]}]",
    );
    write("config.yml", "rule_files: [rules.yml]");
    write(
        "test.yml",
        "{rule_files: [rules.yml], evaluation_interval: 1m, tests: [{interval: 1m, input_series: \
         [{series: up, values: 1x2}], promql_expr_test: [{expr: x, eval_time: 1m, exp_samples: \
         [{labels: x, value: 1}]}]}]}",
    );
    const FEATURE: &str = "--enable-feature=promql-experimental-functions";
    for tool in [
        &["check", "rules", "rules.yml"][..],
        &["check", "config", "config.yml"],
        &["test", "rules", "test.yml"],
        &["promql", "format", "sort_by_label(up, 'a')"],
    ] {
        let (code, _, err) = say(dir.path(), tool);
        assert_eq!(code, 1, "{tool:?}");
        assert!(err.contains("is not enabled"), "{tool:?}: {err}");
        for words in [[&[FEATURE][..], tool].concat(), [tool, &[FEATURE]].concat()] {
            let (code, _, err) = say(dir.path(), &words);
            assert_eq!((code, err.as_str()), (0, ""), "{words:?}");
        }
    }
    let (code, out, _) = say(
        dir.path(),
        &["--enable-feature=no", "promql", "format", "up"],
    );
    let warning = "  WARNING: Unknown feature passed to --enable-feature: no";
    assert_eq!((code, out), (0, format!("{warning}up\n")));
}
