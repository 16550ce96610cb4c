//! Queries that run: an administrator finds and ends them in every phase, and the config refuses
//! some before they start. Counts of series, label values and selected metric names.

use crate::disconnect::{LONGEST, escaped, load};
use crate::harness::http::Http;
use crate::harness::server::{DEADLINE, Server, wait_for};
use crate::harness::write::{Series, body, compress};
use crate::now_ms;
use crate::raw::{Ask, Reply};
use crate::reads::{bytes, integer};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A query that sorts billions of values of one series, which no limit prevents.
const SLOW: &str = "max_over_time(quantile_over_time(0.5,vector(time())[1d:1s])[20h:1s])";

/// Each measurement includes other work of the machine: the minimum of several is the server's own
/// time.
const ATTEMPTS: usize = 4;

/// Span of time over which the processor time of the server is measured.
const SPAN: Duration = Duration::from_millis(400);

fn start(folder: &Path, config: &str, flags: &[&str]) -> Server {
    let file = folder.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let mut all = vec!["--config", &file, "--query.max-samples", "1000000000"];
    all.extend(flags);
    Server::start(&folder.join("data"), &all)
}

fn active(http: &Http) -> Vec<Value> {
    let answer = http.get("/api/v1/status/active_queries");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["data"]["queries"].as_array().unwrap().clone()
}

/// Waits until the query with this `query_id` is in one of these phases. Returns its number.
fn wait_phase(http: &Http, query_id: &str, phases: &[&str]) -> u64 {
    let mut id = None;
    wait_for(query_id, || {
        let is_wanted = |query: &&Value| {
            query["queryId"] == query_id && phases.iter().any(|phase| query["phase"] == **phase)
        };
        id = active(http)
            .iter()
            .find(is_wanted)
            .and_then(|query| query["id"].as_u64());
        id.is_some()
    });
    id.unwrap()
}

fn end(http: &Http, id: u64) {
    let answer = http.delete(&format!("/api/v1/status/active_queries/{id}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Waits until the query is not listed any more. Returns how long that took.
fn wait_gone(http: &Http, id: u64) -> Duration {
    let start = Instant::now();
    wait_for("the query to end", || {
        active(http).iter().all(|query| query["id"] != id)
    });
    start.elapsed()
}

/// Returns the processor time of the server so far, in ticks of 10 ms.
fn ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid().as_raw_nonzero()));
    let stat = stat.unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let tick = |field: usize| fields[field].parse::<u64>().unwrap();
    // The 14th and 15th field, after the two that are cut off.
    tick(11) + tick(12)
}

/// Returns the share of one processor that the server uses now.
fn load_of(server: &Server) -> f64 {
    let before = ticks(server);
    std::thread::sleep(SPAN);
    (ticks(server) - before) as f64 * 0.01 / SPAN.as_secs_f64()
}

fn wait_idle(server: &Server) {
    wait_for("the processor to be free", || load_of(server) < 0.05);
}

fn send(server: &Server, ask: Ask) -> JoinHandle<Reply> {
    let address = server.address.clone();
    std::thread::spawn(move || ask.send(&address))
}

fn check_ended(reply: &Reply, what: &str) {
    let text = String::from_utf8_lossy(&reply.body);
    assert_eq!(reply.status, 503, "{what}: {text}");
    let error = "query was canceled: an administrator ended it";
    assert!(text.contains(error), "{what}: {text}");
    assert!(text.contains(r#""errorType":"canceled""#), "{what}: {text}");
}

/// Returns the path of a range query over the data that ends at `newest`.
fn range(query: &str, newest: i64, steps: i64, query_id: &str) -> String {
    let span_ms = 900_000;
    format!(
        "/api/v1/query_range?query={}&start={}&end={}&step={}&query_id={query_id}",
        escaped(query),
        (newest - span_ms) as f64 / 1000.0,
        newest as f64 / 1000.0,
        (span_ms / steps) as f64 / 1000.0,
    )
}

#[test]
fn query_that_is_ended_while_it_waits_or_evaluates_frees_the_processor() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--query.max-concurrency", "1"];
    let server = start(folder.path(), "firn: {memory_limit: 8GiB}\n", &flags);
    let http = server.http();
    let newest = load(&http);
    let mut slow = Vec::new();
    for query in [
        SLOW,
        "sum by (pod) (rate(wide[5m]))",
        "topk(15000, wide)",
        "sort(quantile_over_time(0.9, wide[10m:1s]))",
        "label_replace(wide, \"new\", \"$1-$2\", \"pod\", \"(p.*)-(.*)\")",
        "wide + on (pod, zone) wide",
    ] {
        let mut times = Vec::new();
        while times.len() < ATTEMPTS && times.iter().all(|time| *time > LONGEST) {
            let running = send(&server, Ask::get(&range(query, newest, 3_000, "running")));
            let id = wait_phase(&http, "running", &["select", "evaluate"]);
            let waiting = send(&server, Ask::get(&range("1", newest, 10, "waiting")));
            let second = wait_phase(&http, "waiting", &["wait"]);
            end(&http, second);
            check_ended(&waiting.join().unwrap(), query);
            if query == SLOW {
                wait_for("the query to use the processor", || load_of(&server) > 0.1);
            }
            end(&http, id);
            times.push(wait_gone(&http, id));
            check_ended(&running.join().unwrap(), query);
        }
        println!("{query}: {times:?}");
        if times.iter().all(|time| *time > LONGEST) {
            slow.push(format!("{query}: {times:?}"));
        }
        wait_idle(&server);
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
    let again = http.delete("/api/v1/status/active_queries/1");
    assert_eq!(again.status, 404, "{}", again.body);
    // The server is still of use.
    assert_eq!(
        http.query("count(wide) > 0", newest)
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

/// Sends a request and reads the start of its response only.
fn stalled(server: &Server, ask: &Ask) -> TcpStream {
    let mut socket = TcpStream::connect(&server.address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut head = format!("{} {} HTTP/1.1\r\nHost: x\r\n", ask.method, ask.path);
    for line in &ask.headers {
        head += &format!("{line}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n", ask.body.len());
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(&ask.body).unwrap();
    let mut start = [0; 15];
    socket.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    socket
}

/// Returns a remote read that streams all series of `wide`, `times` times.
fn streamed_read(newest: i64, times: usize) -> Ask {
    let name = [bytes(2, b"__name__"), bytes(3, b"wide")].concat();
    let range = [integer(1, 0), integer(2, newest)].concat();
    let query = bytes(1, &[range, bytes(3, &name)].concat());
    Ask {
        method: "POST".into(),
        path: "/api/v1/read?query_id=answered".into(),
        headers: vec!["Content-Encoding: snappy".into()],
        body: compress(&[query.repeat(times), bytes(2, &[1])].concat()),
    }
}

#[test]
fn query_that_is_ended_while_its_answer_is_sent_ends_the_answer_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "firn: {memory_limit: 8GiB}\n", &[]);
    let http = server.http();
    let newest = load(&http);
    let answers = [
        Ask::get(&range("wide", newest, 3_000, "answered")),
        streamed_read(newest, 100),
    ];
    for ask in answers {
        let mut socket = stalled(&server, &ask);
        let id = wait_phase(&http, "answered", &["encode"]);
        wait_idle(&server);
        end(&http, id);
        let mut rest = Vec::new();
        // The server may reset the connection.
        let _ = socket.read_to_end(&mut rest);
        assert!(
            !rest.ends_with(b"0\r\n\r\n"),
            "{}: the answer is complete",
            ask.path
        );
        wait_gone(&http, id);
        wait_idle(&server);
    }
}

#[test]
fn query_of_a_rule_is_listed_and_ended_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let rules =
        format!("groups: [{{name: g, interval: 1s, rules: [{{record: r, expr: '{SLOW}'}}]}}]");
    std::fs::write(folder.path().join("rules.yml"), rules).unwrap();
    let server = start(folder.path(), "rule_files: [rules.yml]\n", &[]);
    let http = server.http();
    let mut rule = None;
    wait_for("the rule", || {
        rule = active(&http).into_iter().next();
        rule.is_some()
    });
    let rule = rule.unwrap();
    assert_eq!(rule["client"], "rule group g", "{rule}");
    assert_eq!(rule["handler"], "rule", "{rule}");
    let id = rule["id"].as_u64().unwrap();
    end(&http, id);
    wait_gone(&http, id);
    wait_for("the error of the rule", || {
        let rules = http.get("/api/v1/rules").body;
        rules.contains("query was canceled: an administrator ended it")
    });
}

#[test]
fn limits_and_blocked_queries_refuse_before_the_query_starts_and_follow_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let config = "firn:\n  query_samples_limit: 1000\n  query_range_limit: 15m\n  \
                  blocked_queries:\n  \
                  - {pattern: ' count(wide) ', reason: use the rule}\n  \
                  - {pattern: '.*__name__=\"wide\".*', regex: true}\n";
    let server = start(folder.path(), config, &["--web.enable-lifecycle"]);
    let http = server.http();
    let newest = load(&http);
    let read = || streamed_read(newest, 1).send(&server.address);
    let blocked = "the request has been blocked by the cluster administrator";
    let cases = [
        (range("count(wide)", newest, 10, "a"), 400, "use the rule"),
        (
            "/api/v1/query?query=count%20(wide)".to_owned(),
            400,
            "use the rule",
        ),
        (
            "/api/v1/query?query={__name__=%22wide%22}".to_owned(),
            400,
            blocked,
        ),
        (
            format!(
                "/api/v1/query?query=count_over_time(wide[15m])&time={}",
                newest / 1000
            ),
            422,
            " samples, limit 1000",
        ),
        (
            "/api/v1/query_range?query=1&start=0&end=901&step=1".to_owned(),
            400,
            "(query length: 15m1s, limit: 15m0s)",
        ),
    ];
    for (path, status, text) in &cases {
        let answer = http.get(path);
        assert_eq!(answer.status, *status, "{path}: {}", answer.body);
        assert!(answer.body.contains(text), "{path}: {}", answer.body);
    }
    // The range of the remote read is refused first.
    let reply = read();
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!(reply.status, 400, "{text}");
    assert!(
        text.contains("query time range exceeds the limit"),
        "{text}"
    );

    let reload = |config: &str| {
        std::fs::write(folder.path().join("firn.yml"), config).unwrap();
        let answer = http.post("/-/reload", &[]);
        assert_eq!(answer.status, 200, "{}", answer.body);
    };
    reload("firn: {blocked_queries: [{pattern: '{__name__=\"wide\"}'}]}\n");
    let reply = read();
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!((reply.status, text), (400, format!("{blocked}\n")));
    for (path, ..) in cases.iter().filter(|(path, ..)| !path.contains("__name__")) {
        let answer = http.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
    reload("{}\n");
    assert_eq!(read().status, 200);
}

fn series(name: &str, job: &str, i: &str, time: i64) -> Series {
    Series::new(
        &[("__name__", name), ("i", i), ("job", job)],
        &[(time, 1.0)],
    )
}

#[test]
fn label_values_and_series_are_counted_as_in_mimir() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "scrape_configs: []\n", &[]);
    let http = server.http();
    let (now, old) = (now_ms(), now_ms() - 25 * 60_000);
    let all = [
        series("m", "a", "0", now),
        series("m", "a", "1", now),
        series("m", "a", "2", now),
        series("m", "b", "0", now),
        series("old", "c", "0", old),
    ];
    assert_eq!(http.write(&body(&all)).status, 204);
    let get = |path: &str| http.get(&format!("/prometheus/api/v1/cardinality/{path}"));
    let counts = |document: &Value| {
        let labels = document["cardinality"].as_array().unwrap();
        let count = |label: &Value| {
            let name = label["label_name"].as_str().unwrap();
            format!("{name} {}", label["label_values_count"])
        };
        labels.iter().map(count).collect::<Vec<_>>()
    };
    let names = get("label_names").json();
    assert_eq!(names["label_values_count_total"], 8, "{names}");
    assert_eq!(names["label_names_count"], 3, "{names}");
    assert_eq!(counts(&names), ["i 3", "job 3", "__name__ 2"]);
    let active = get("label_names?count_method=active&limit=2").json();
    assert_eq!(active["label_values_count_total"], 6, "{active}");
    assert_eq!(counts(&active), ["i 3", "job 2"]);
    let form = [("label_names[]", "job"), ("selector", "m"), ("limit", "1")];
    let values = http.post("/api/v1/cardinality/label_values", &form);
    let expected = serde_json::json!({"series_count_total": 4, "labels": [{
        "label_name": "job", "label_values_count": 2, "series_count": 4,
        "cardinality": [{"label_value": "a", "series_count": 3}],
    }]});
    assert_eq!(values.json(), expected);
    for (selector, count) in [("m", 4), ("old", 0), ("{job=\"b\"}", 1)] {
        let path = format!("active_series?selector={}", escaped(selector));
        let found = get(&path).json();
        assert_eq!(
            found["data"].as_array().unwrap().len(),
            count,
            "{selector}: {found}"
        );
    }
    let range = |name: &str, from: i64, to: i64| {
        let seconds = |ms: i64| ms as f64 / 1_000.0;
        format!("&{name}start={}&{name}end={}", seconds(from), seconds(to))
    };
    let then = range("", old - 60_000, old + 60_000);
    let found = get(&format!("active_series?selector=old{then}")).json();
    assert_eq!(found["data"].as_array().unwrap().len(), 1, "{found}");
    let names = get(&format!("label_names?{then}")).json();
    assert_eq!(names["label_values_count_total"], 3, "{names}");
    let before = range("baseline_", old - 60_000, old + 60_000);
    let path = format!("label_values?label_names[]=job{before}&count_method=active");
    let expected = serde_json::json!({
        "series_count_total": 4, "baseline_series_count_total": 1,
        "labels": [{
            "label_name": "job", "label_values_count": 2,
            "series_count": 4, "baseline_series_count": 1,
            "cardinality": [
                {"label_value": "a", "series_count": 3, "baseline_series_count": 0},
                {"label_value": "b", "series_count": 1, "baseline_series_count": 0},
                {"label_value": "c", "series_count": 0, "baseline_series_count": 1},
            ],
        }],
    });
    assert_eq!(get(&path).json(), expected);
    for (path, why) in [
        ("label_names?start=2&end=1", "end timestamp must not be"),
        ("label_values?baseline_end=x", "cannot parse \"x\""),
        ("label_values", "'label_names[]' param is required\n"),
        (
            "label_names?limit=501",
            "'limit' param cannot be greater than '500'\n",
        ),
        (
            "label_names?limit=-1",
            "'limit' param cannot be less than '0'\n",
        ),
        ("active_series", "missing 'selector' parameter\n"),
        ("label_names?count_method=all", "'count_method' param 'all'"),
        ("label_names?selector=sum(m)", "parse error"),
    ] {
        let answer = get(path);
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert!(answer.body.contains(why), "{path}: {}", answer.body);
    }
}

#[test]
fn metric_names_of_queries_are_counted_with_their_expressions() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "scrape_configs: []\n", &[]);
    let http = server.http();
    http.query("sum(rate(first[5m])) + first", now_ms());
    http.query("second", now_ms());
    let stats = http.get("/api/v1/status/metric_names_stats").json();
    let records = stats["data"]["records"].as_array().unwrap();
    assert_eq!(records.len(), 2, "{stats}");
    assert_eq!(records[0]["metricName"], "first");
    assert_eq!(records[0]["requestsCount"], 2);
    assert_eq!(records[0]["queries"][0], "sum(rate(first[5m])) + first");
    let age = now_ms() / 1000 - records[1]["lastRequestTimestamp"].as_i64().unwrap();
    assert!((0..60).contains(&age), "{stats}");
}
