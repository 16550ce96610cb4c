//! Good and bad targets: the errors of each are shown on `/targets` and do not affect the others.

use crate::harness::http::Http;
use crate::harness::server::{Server, wait_for};
use firn_mirror::target::{ExpositionServer, Request, expose, respond};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Starts a server with a config.
fn start(dir: &Path, config: &str, flags: &[&str]) -> Server {
    let file = dir.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    let file = file.display().to_string();
    let flags = [&["--config", file.as_str()], flags].concat();
    Server::start(&dir.join("data"), &flags)
}

/// Starts a target at a free port.
fn start_target(
    answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
) -> ExpositionServer {
    ExpositionServer::start("127.0.0.1:0", answer).unwrap()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as i64
}

/// Returns the active targets of a job.
fn targets(http: &Http, job: &str) -> Vec<Value> {
    let answer = http.get(&format!("/api/v1/targets?scrapePool={job}"));
    answer.json()["data"]["activeTargets"]
        .as_array()
        .unwrap()
        .clone()
}

/// Waits until the only target of a job was scraped.
fn scraped(http: &Http, job: &str) -> Value {
    let mut found = Value::Null;
    wait_for(&format!("{job} to be scraped"), || {
        found = targets(http, job).pop().unwrap_or_default();
        found["health"].as_str().is_some_and(|h| h != "unknown")
    });
    found
}

/// Returns the value of an expression that selects one series.
fn value(http: &Http, expr: &str) -> Option<String> {
    let result = http.query(expr, now_ms());
    result[0]["value"][1].as_str().map(str::to_owned)
}

/// Responds according to the path of the request.
fn misbehave(request: &Request, stream: &mut TcpStream) {
    match request.path.as_str() {
        "/good" => expose(stream, "good 1\n"),
        "/slow" => sleep(Duration::from_secs(30)),
        "/endless" => {
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
            );
            let lines: String = (0..1000)
                .map(|i| format!("endless{{i=\"{i}\"}} 1\n"))
                .collect();
            while stream.write_all(lines.as_bytes()).is_ok() {}
        }
        "/half" => {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n";
            let _ = write!(stream, "{head}half 1\nhal");
        }
        "/half_line" => expose(stream, "half_line 1\nhalf_line{a=\"b"),
        "/html" => respond(stream, "200 OK", "text/html", "<html>not metrics</html>"),
        "/broken" => respond(stream, "500 Internal Server Error", "text/plain", "no"),
        "/twice" => expose(stream, "twice 1\ntwice 2\nonce 1\n"),
        "/labels" => {
            let labels: Vec<String> = (0..500).map(|i| format!("l{i}=\"x\"")).collect();
            expose(stream, &format!("ok 1\nlabels{{{}}} 1\n", labels.join(",")));
        }
        "/long" => expose(
            stream,
            &format!("long{{a=\"{}\"}} 1\n", "x".repeat(1 << 20)),
        ),
        "/many" => {
            let lines: String = (0..5000)
                .map(|i| format!("many{{i=\"{i}\"}} 1\n"))
                .collect();
            expose(stream, &lines);
        }
        "/future" => {
            let far = now_ms() + 3_600_000;
            expose(stream, &format!("future 1 {far}\npresent 1\n"));
        }
        "/loop" => {
            let head = "HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n";
            let _ = write!(stream, "{head}Connection: close\r\n\r\n");
        }
        "/nothing" => {}
        _ => respond(stream, "404 Not Found", "text/plain", ""),
    }
}

#[test]
fn targets_that_misbehave_are_reported_and_harm_nothing_else() {
    let target = start_target(misbehave);
    let cases = [
        ("good", "up", ""),
        ("slow", "down", "context deadline exceeded"),
        ("endless", "down", "body size limit exceeded"),
        ("half", "down", "read body: "),
        ("half_line", "down", "while parsing"),
        (
            "html",
            "down",
            "received unsupported Content-Type \"text/html\"",
        ),
        (
            "broken",
            "down",
            "server returned HTTP status 500 Internal Server Error",
        ),
        ("twice", "up", "duplicate_timestamp"),
        (
            "labels",
            "down",
            "label_limit exceeded (metric: labels, number of labels: 503,",
        ),
        (
            "long",
            "down",
            "label_value_length_limit exceeded (metric: long, label name: a,",
        ),
        ("many", "down", "sample limit exceeded"),
        ("future", "up", "too_far_in_future"),
        ("loop", "down", "stopped after 10 redirects"),
        ("nothing", "down", "Get \"http://"),
    ];
    let jobs: String = cases
        .iter()
        .map(|(path, ..)| {
            format!(
                "- job_name: {path}\n  metrics_path: /{path}\n  static_configs: [{{targets: ['{}']}}]\n",
                target.address
            )
        })
        .collect();
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 900ms, body_size_limit: 2MB, \
         sample_limit: 4000}}\nscrape_configs:\n{jobs}"
    );
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &config, &[]);
    let http = server.http();
    for (job, health, words) in cases {
        let target = scraped(&http, job);
        assert_eq!(target["health"], health, "{job}: {target}");
        let field = if health == "up" {
            "lastWarning"
        } else {
            "lastError"
        };
        let told = target[field].as_str().unwrap_or_default();
        assert!(told.contains(words), "{job}: {target}");
        let up = if health == "up" { "1" } else { "0" };
        wait_for("the report", || {
            value(&http, &format!("up{{job=\"{job}\"}}")).as_deref() == Some(up)
        });
    }
    for (expr, want) in [
        ("good", Some("1")),
        ("once", Some("1")),
        ("twice", Some("1")),
        ("present", Some("1")),
        ("future", None),
        ("half_line", None),
        ("count(many)", None),
        ("ok", None),
    ] {
        assert_eq!(value(&http, expr).as_deref(), want, "{expr}");
    }
    // The good target is scraped at its interval meanwhile.
    let count = || {
        let count = value(&http, "count_over_time(good[1m])").unwrap_or_default();
        count.parse::<u32>().unwrap_or(0)
    };
    let before = count();
    wait_for("the good target to go on", || count() >= before + 2);
    assert!(server.stop().success());
}

#[test]
fn targets_of_files_come_and_go_and_reload_keeps_the_rest() {
    let target = start_target(|_, stream| expose(stream, "a 1\n"));
    let dir = tempfile::tempdir().unwrap();
    let list = |targets: &str| {
        let file = dir.path().join("list.json");
        std::fs::write(file, format!("[{{\"targets\": [{targets}]}}]")).unwrap();
    };
    list(&format!("\"{}\"", target.address));
    let config = |extra: &str| {
        format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: files\n  \
             file_sd_configs: [{{files: [list.json]}}]\n{extra}"
        )
    };
    let server = start(dir.path(), &config(""), &["--web.enable-lifecycle"]);
    let http = server.http();
    let first = scraped(&http, "files");
    let path = dir.path().join("list.json").display().to_string();
    assert_eq!(first["discoveredLabels"]["__meta_filepath"], path.as_str());
    assert_eq!(first["labels"]["instance"], target.address.as_str());

    let more = format!(
        "- job_name: more\n  static_configs: [{{targets: ['{}']}}]\n",
        target.address
    );
    std::fs::write(dir.path().join("firn.yml"), config(&more)).unwrap();
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    scraped(&http, "more");
    let pools = http.get("/api/v1/scrape_pools").json();
    assert_eq!(
        pools["data"]["scrapePools"],
        serde_json::json!(["files", "more"])
    );

    std::fs::write(dir.path().join("firn.yml"), config("")).unwrap();
    server.signal(rustix::process::Signal::HUP);
    wait_for("the job to go", || targets(&http, "more").is_empty());
    list("");
    wait_for("the target to go", || targets(&http, "files").is_empty());
    wait_for("its series to end", || {
        value(&http, "up{job=\"files\"}").is_none()
    });
    // While the target existed, it was never marked as stale.
    let gaps = value(&http, "count_over_time(up{job=\"files\"}[1m]) > 0");
    assert!(gaps.is_some());
}

#[test]
fn targets_of_a_server_that_fails_are_kept() {
    let target = start_target(|_, stream| expose(stream, "a 1\n"));
    let list = format!(
        "[{{\"targets\": [\"{}\"], \"labels\": {{\"team\": \"x\"}}}}]",
        target.address
    );
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let server_of_lists = start_target(move |request, stream| {
        assert_eq!(
            request.header("x-prometheus-refresh-interval-seconds"),
            Some("1")
        );
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => respond(stream, "200 OK", "application/json; charset=utf-8", &list),
            1 => respond(stream, "200 OK", "application/json", "[{\"targets\": "),
            2 => respond(stream, "200 OK", "text/plain", "[]"),
            _ => respond(stream, "500 Internal Server Error", "text/plain", ""),
        }
    });
    let url = format!("http://{}/list", server_of_lists.address);
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: lists\n  \
         http_sd_configs: [{{url: '{url}', refresh_interval: 1s}}]\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &config, &[]);
    let http = server.http();
    let first = scraped(&http, "lists");
    assert_eq!(first["labels"]["team"], "x");
    assert_eq!(first["discoveredLabels"]["__meta_url"], url.as_str());
    wait_for("the server to fail thrice", || {
        asked.load(Ordering::Relaxed) > 3
    });
    assert_eq!(targets(&http, "lists").len(), 1);
    server.wait_log("unsupported content type");
    server.wait_log("server returned HTTP status 500");
}

#[test]
fn targets_are_asked_as_the_config_says() {
    let is_followed = Arc::new(AtomicBool::new(false));
    let followed = is_followed.clone();
    let other = start_target(move |request, stream| {
        // Credentials are for the configured host, not for the target of its redirect.
        assert!(request.header("authorization").is_none());
        assert!(request.header("x-key").is_none());
        followed.store(true, Ordering::Relaxed);
        expose(stream, "b 2\n");
    });
    let elsewhere = format!("http://{}/there", other.address);
    let target = start_target(move |request, stream| {
        let is_right = request.path == "/m?a=1&a=2&b=x%26y"
            && request.header("authorization") == Some("Basic dXNlcjpwYXNz")
            && request.header("x-key") == Some("k")
            && request.header("accept-encoding") == Some("gzip")
            && request.header("x-prometheus-scrape-timeout-seconds") == Some("0.9");
        match (is_right, request.path.as_str()) {
            (true, _) => expose(stream, "a{job=\"mine\"} 1\n"),
            (false, "/moved") => {
                let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n";
                let _ = write!(stream, "{head}Location: {elsewhere}\r\n\r\n");
            }
            (false, _) => respond(stream, "403 Forbidden", "text/plain", ""),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("pw"), "pass\n").unwrap();
    let auth = "  basic_auth: {username: user, password_file: pw}\n  \
                http_headers: {X-Key: {secrets: [k]}}\n";
    let job = |name: &str, lines: &str| {
        format!(
            "- job_name: {name}\n{auth}{lines}  static_configs: [{{targets: ['{}']}}]\n",
            target.address
        )
    };
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 900ms}}\nscrape_configs:\n{}{}",
        job(
            "asked",
            "  metrics_path: /m\n  honor_labels: true\n  params: {a: [1, 2], b: [x&y]}\n"
        ),
        job("moved", "  metrics_path: /moved\n"),
    );
    let server = start(dir.path(), &config, &[]);
    let http = server.http();
    let asked = scraped(&http, "asked");
    assert_eq!(asked["health"], "up", "{asked}");
    assert_eq!(value(&http, "a{job=\"mine\"}").as_deref(), Some("1"));
    let moved = scraped(&http, "moved");
    assert_eq!(moved["health"], "up", "{moved}");
    assert!(is_followed.load(Ordering::Relaxed));
}

#[test]
fn metadata_and_relabel_steps_answer_for_targets() {
    let target = start_target(|_, stream| {
        expose(stream, "# HELP a Some help.\n# TYPE a counter\na 1\n");
    });
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: j\n  static_configs: \
         [{{targets: ['{}', 'dropped:1']}}]\n  relabel_configs:\n  - {{source_labels: \
         [__address__], regex: dropped.*, action: drop}}\n  - {{target_label: x, replacement: \
         y}}\n",
        target.address
    );
    let server = start(dir.path(), &config, &[]);
    let http = server.http();
    assert_eq!(scraped(&http, "j")["labels"]["x"], "y");
    let data = |path: &str| http.get(path).json()["data"].take();
    let known = serde_json::json!({"type": "counter", "help": "Some help.", "unit": ""});
    assert_eq!(data("/api/v1/metadata")["a"][0], known);
    assert_eq!(data("/api/v1/metadata?metric=b"), serde_json::json!({}));
    let by_target = data("/api/v1/targets/metadata?match_target=%7Bjob%3D%22j%22%7D&metric=a");
    assert_eq!(by_target[0]["target"]["x"], "y");
    assert_eq!(by_target[0]["help"], "Some help.");
    let dropped = data("/api/v1/targets?state=dropped");
    assert_eq!(dropped["activeTargets"], serde_json::json!([]));
    assert_eq!(dropped["droppedTargetCounts"]["j"], 1);
    let steps =
        data("/api/v1/targets/relabel_steps?scrapePool=j&labels=%7B%22__address__%22%3A%22a%22%7D");
    assert_eq!(steps["steps"][1]["output"]["x"], "y");
    assert_eq!(steps["steps"][1]["rule"]["separator"], ";");
    assert_eq!(steps["steps"][0]["keep"], true);
}

#[test]
fn exemplars_of_a_target_are_found_also_after_a_kill() {
    let target = start_target(|_, stream| {
        let body = "# TYPE a counter\na_total 3 # {trace_id=\"x\"} 0.5 1700000000.125\n# EOF\n";
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        respond(stream, "200 OK", kind, body);
    });
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: j\n  static_configs: \
         [{{targets: ['{}']}}]\n",
        target.address
    );
    let flags = ["--enable-feature=exemplar-storage"];
    let wanted = serde_json::json!([{
        "seriesLabels": {"__name__": "a_total", "instance": target.address, "job": "j"},
        "exemplars": [{"labels": {"trace_id": "x"}, "value": "0.5", "timestamp": 1_700_000_000.125}],
    }]);
    let data = |http: &Http| {
        let form = [("query", "rate(a_total[1m])")];
        http.post("/api/v1/query_exemplars", &form).json()["data"].take()
    };
    let server = start(dir.path(), &config, &flags);
    wait_for("the exemplar", || data(&server.http()) == wanted);
    server.kill();
    // Nothing is scraped any more, so that the results were stored.
    let server = start(dir.path(), "{}", &flags);
    assert_eq!(data(&server.http()), wanted);
    let metrics = server.http().get("/metrics").body;
    assert!(
        metrics.contains("\nfirn_storage_exemplars 1\n"),
        "{metrics}"
    );
    server.stop();
    // Without the feature exemplars are not stored, and the request is answered nevertheless.
    let server = start(dir.path(), &config, &[]);
    scraped(&server.http(), "j");
    assert_eq!(data(&server.http()), serde_json::json!([]));
}

/// Starts a server whose connections answer one request with `head` and end at the second one.
fn start_closing(head: String) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let head = head.clone();
            std::thread::spawn(move || {
                if read_request(&stream).is_some() {
                    (&stream).write_all(head.as_bytes()).unwrap();
                    let _ = read_request(&stream);
                }
            });
        }
    });
    address
}

/// Reads a request without a body; none if there is none.
fn read_request(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
    }
    Some(())
}

#[test]
fn target_that_closes_idle_connections_is_up_in_every_scrape() {
    let dir = tempfile::tempdir().unwrap();
    let many = "X: y\r\n".repeat(150);
    let body = "Content-Type: text/plain; version=0.0.4\r\nContent-Length: 4\r\n\r\nm 1\n";
    let targets = [
        start_closing(format!("HTTP/1.1 200 OK\r\n{body}")),
        start_closing(format!("HTTP/1.1 200 OK\r\n{many}{body}")),
    ];
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs:\n\
         - job_name: closing\n\
         \u{20} static_configs: [{{targets: ['{}', '{}']}}]\n",
        targets[0], targets[1]
    );
    let server = start(dir.path(), &config, &[]);
    let http = server.http();
    wait_for("four scrapes of both targets", || {
        let scrapes = value(&http, "min(count_over_time(up[5m]))");
        scrapes.is_some_and(|count| count.parse::<u32>().unwrap() >= 4)
    });
    assert_eq!(
        value(&http, "min(min_over_time(up[5m]))").as_deref(),
        Some("1")
    );
}
