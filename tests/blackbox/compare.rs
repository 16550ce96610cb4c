//! `firn compare` against systems with planted differences, against itself, and with bad input.

use crate::harness::server::{Server, firn};
use crate::harness::write::{Series, body};
use crate::now_ms;
use crate::tls::Authority;
use firn_mirror::target::{Target, respond};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// The stretch of data that the stubs have, in seconds.
const START: i64 = 1_700_000_000;
const END: i64 = START + 3_600;

/// A request to a stub.
struct Ask {
    endpoint: String,
    params: HashMap<String, String>,
}

impl Ask {
    fn of(path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self {
            endpoint: path.trim_start_matches("/api/v1/").to_owned(),
            params: pairs
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        }
    }

    fn query(&self) -> &str {
        self.params.get("query").map_or("", String::as_str)
    }

    fn is_about(&self, metric: &str) -> bool {
        self.query().contains(metric)
    }
}

fn decode(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap();
                out.push(u8::from_str_radix(digits, 16).unwrap());
            }
            b'+' => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap()
}

/// A system that answers by `plant`, and as every stub does where that says nothing.
fn stub(
    plant: impl Fn(&Ask, &mut Value, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> Target {
    Target::start("127.0.0.1:0", move |request, stream| {
        let ask = Ask::of(&request.path);
        let mut answer = sound(&ask);
        if plant(&ask, &mut answer, stream) {
            respond(stream, "200 OK", "application/json", answer.to_string());
        }
    })
    .unwrap()
}

/// What a sound system says.
fn sound(ask: &Ask) -> Value {
    let data = match ask.endpoint.as_str() {
        // There is no data behind the label `gone`.
        "query" | "query_range" if ask.is_about("gone") => {
            json!({"resultType": "vector", "result": []})
        }
        "query" => {
            let time: f64 = ask.params["time"].parse().unwrap();
            let element = |job: &str, value: &str| json!({"metric": {"job": job, "zone": "z"}, "value": [time, value]});
            json!({"resultType": "vector", "result": [element("a", "0.3"), element("b", "2")]})
        }
        "query_range" => {
            let time = |name: &str| ask.params[name].parse::<f64>().unwrap() as i64;
            let times = (time("start")..=time("end")).step_by(time("step") as usize);
            let points: Vec<Value> = times.map(|t| json!([t, "0.3"])).collect();
            let series = |job: &str| json!({"metric": {"job": job, "zone": "z"}, "values": points});
            json!({"resultType": "matrix", "result": [series("a"), series("b")]})
        }
        "labels" => json!(["__name__", "job", "zone"]),
        "label/job/values" => json!(["a", "b"]),
        "series" => json!([{"__name__": "x", "job": "a"}]),
        "metadata" => json!({}),
        _ => json!([]),
    };
    json!({"status": "success", "data": data})
}

/// The first value of the first element, or the last one of the first series.
fn value_of(answer: &mut Value) -> &mut Value {
    let series = &mut answer["data"]["result"][0];
    let is_range = series["values"].is_array();
    match is_range {
        true => {
            let points = series["values"].as_array_mut().unwrap();
            &mut points.last_mut().unwrap()[1]
        }
        false => &mut series["value"][1],
    }
}

/// Everything that may be wrong with a system, each in the answers about one metric.
fn plant(ask: &Ask, answer: &mut Value, stream: &mut TcpStream) -> bool {
    let result = |answer: &mut Value| answer["data"]["result"].as_array_mut().unwrap().clone();
    if ask.endpoint == "labels" {
        answer["data"] = json!(["__name__", "gone", "job", "zone"]);
    } else if ask.is_about("one_ulp") {
        *value_of(answer) = "0.30000000000000004".into();
    } else if ask.is_about("short") && ask.endpoint == "query_range" {
        answer["data"]["result"][0]["values"]
            .as_array_mut()
            .unwrap()
            .pop();
    } else if ask.is_about("renamed") {
        for series in answer["data"]["result"].as_array_mut().unwrap() {
            let job = series["metric"].as_object_mut().unwrap().remove("job");
            series["metric"]["jobs"] = job.unwrap();
        }
    } else if ask.is_about("one_more") {
        let mut more = result(answer);
        let mut extra = more[0].clone();
        extra["metric"] = json!({"job": "c", "zone": "y", "of": "nothing"});
        more.push(extra);
        answer["data"]["result"] = more.into();
    } else if ask.is_about("one_less") {
        answer["warnings"] = json!(["a shard is down"]);
        answer["data"]["result"] = result(answer)[..1].into();
    } else if ask.is_about("sort(turned") && ask.endpoint == "query" {
        let turned: Vec<Value> = result(answer).into_iter().rev().collect();
        answer["data"]["result"] = turned.into();
    } else if ask.is_about("failed") {
        answer["status"] = "error".into();
        answer["errorType"] = "execution".into();
    } else if ask.is_about("late") {
        std::thread::sleep(Duration::from_millis(1_500));
    } else if ask.is_about("moved") {
        let head = "HTTP/1.1 302 Found\r\nLocation: /api/v1/query\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        return false;
    } else if ask.is_about("endless") {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"status\":")
            .unwrap();
        while stream.write_all(&[b' '; 4096]).is_ok() {}
        return false;
    } else if ask.is_about("cut_off") {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{\"status\":\"success\"";
        stream.write_all(head.as_bytes()).unwrap();
        return false;
    }
    true
}

/// Runs the comparison; returns the exit code, what it wrote, and the report.
fn compare(dir: &Path, baseline: &str, candidate: &str, more: &[&str]) -> (i32, String, Value) {
    let report = dir.join("report");
    let mut command = firn();
    command.args([
        "compare",
        "--baseline",
        &url(baseline),
        "--candidate",
        &url(candidate),
    ]);
    command.arg("--report").arg(&report).args(more);
    let output = command.output().expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    let json = std::fs::read(report.join("report.json")).unwrap_or_default();
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&text).into_owned(),
        serde_json::from_slice(&json).unwrap_or_default(),
    )
}

fn url(address: &str) -> String {
    match address.contains("://") {
        true => address.to_owned(),
        false => format!("http://{address}"),
    }
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn finding<'r>(report: &'r Value, pass: &str, question: &str) -> &'r Value {
    let findings = report["findings"].as_array().unwrap();
    let is_it = |f: &&Value| f["pass"] == pass && f["question"] == question;
    findings
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no finding of {pass} {question}: {report:#}"))
}

#[test]
fn planted_differences_are_found_in_their_classes_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let baseline = stub(|_, _, _| true);
    let candidate = stub(plant);
    let questions = "# planted\nfine\nsum(rate(one_ulp{a=\"b\"}[10m])) / 2\nshort\nrenamed\n\
                     one_more\none_less\nsort(turned)\nturned\nfailed\nlate\nmoved\nendless\n\
                     cut_off\nrate(old[2h])\nfine offset -1m\n";
    let list = file(dir.path(), "list.txt", questions);
    let (start, end) = (START.to_string(), END.to_string());
    let flags = ["--queries", &list, "--start", &start, "--end", &end];
    let more = ["--timeout", "1s", "--answer-limit", "1MB"];
    let (code, text, report) = compare(
        dir.path(),
        &baseline.address,
        &candidate.address,
        &[&flags[..], &more[..]].concat(),
    );
    assert_eq!(code, 1, "{text}");
    let ulp = "sum(rate(one_ulp{a=\"b\"}[10m])) / 2";
    let cases: [(&str, &str, &str, &[&str]); 16] = [
        ("instant", ulp, "mismatch", &["value"]),
        ("range", ulp, "mismatch", &["value"]),
        ("range", "short", "mismatch", &["missing_point"]),
        ("range", "renamed", "mismatch", &["labels"]),
        ("instant", "one_more", "mismatch", &["extra_series"]),
        ("range", "one_more", "mismatch", &["extra_series"]),
        (
            "instant",
            "one_less",
            "mismatch",
            &["missing_series", "warnings"],
        ),
        ("instant", "sort(turned)", "mismatch", &["order"]),
        ("instant", "failed", "error", &["error"]),
        ("range", "late", "error", &["timeout"]),
        ("instant", "moved", "error", &["error"]),
        ("instant", "endless", "error", &["error"]),
        ("instant", "cut_off", "error", &["error"]),
        ("instant", "rate(old[2h])", "skip", &[]),
        ("range", "rate(old[2h])", "skip", &[]),
        ("range", "fine offset -1m", "skip", &[]),
    ];
    for (pass, question, outcome, classes) in cases {
        let found = finding(&report, pass, question);
        assert_eq!(found["outcome"], outcome, "{found:#}");
        assert_eq!(found["classes"], json!(classes), "{found:#}");
        assert_eq!(found["folder"].is_string(), outcome != "skip", "{found:#}");
    }
    let reason = |question| {
        finding(&report, "instant", question)["reason"]
            .as_str()
            .unwrap()
    };
    assert_eq!(
        reason("rate(old[2h])"),
        "needs 2h of history, both systems have 1h"
    );
    assert!(
        reason("moved").contains("a redirect to \"/api/v1/query\""),
        "{}",
        reason("moved")
    );
    assert!(
        reason("endless").contains("more than 1048576 bytes"),
        "{}",
        reason("endless")
    );
    // Nothing else differs; an index that lists what is gone is no difference.
    let passes = &report["passes"];
    assert_eq!(
        passes["instant"],
        json!({"match": 3, "mismatch": 5, "error": 5, "skip": 2})
    );
    assert_eq!(
        passes["label_names"],
        json!({"match": 1, "mismatch": 0, "error": 0, "skip": 0})
    );
    assert_eq!(passes["label_values"]["match"], 3);
    let compared = ["match", "mismatch", "error"].map(|outcome| -> f64 {
        let passes = passes.as_object().unwrap().values();
        passes.map(|counts| counts[outcome].as_f64().unwrap()).sum()
    });
    let rate = 100.0 * compared[0] / compared.iter().sum::<f64>();
    assert!(
        (report["match_rate"].as_f64().unwrap() - rate).abs() < 1e-9,
        "{report:#}"
    );
    check_folder(&dir.path().join("report"), finding(&report, "range", ulp));
}

fn check_folder(report: &Path, found: &Value) {
    let folder = report.join(found["folder"].as_str().unwrap());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let difference: Value = serde_json::from_str(&read("difference.json")).unwrap();
    assert_eq!(difference["time"].as_f64(), Some(END as f64));
    assert_eq!(
        (&difference["baseline"], &difference["candidate"]),
        (&json!("0.3"), &json!("0.30000000000000004"))
    );
    assert_eq!(read("minimised.promql"), "rate(one_ulp[10m])\n");
    let answer: Value = serde_json::from_str(&read("candidate.json")).unwrap();
    assert_eq!(answer["status"], "success");
    assert!(read("baseline.json").contains("0.3"));
    let curl = read("curl.sh");
    let query = "'query=sum(rate(one_ulp{a=\"b\"}[10m])) / 2'";
    assert_eq!(curl.matches(query).count(), 2, "{curl}");
    assert!(
        curl.contains(&format!("'start={}.000'", START + 600)),
        "{curl}"
    );
    let html = std::fs::read_to_string(report.join("report.html")).unwrap();
    assert!(html.contains("<svg") && !html.contains("<script"), "{html}");
}

#[test]
fn tolerances_and_the_least_match_rate_decide_about_success() {
    let dir = tempfile::tempdir().unwrap();
    let baseline = stub(|_, _, _| true);
    let candidate = stub(plant);
    let list = file(dir.path(), "list.txt", "one_ulp\nfine\n");
    let (start, end) = (START.to_string(), END.to_string());
    for (flags, expected) in [
        (&["--tolerance-ulps", "1"][..], 0),
        (&["--tolerance-relative", "1e-12"], 0),
        (&["--tolerance-absolute", "1e-15"], 0),
        (&["--tolerance-absolute", "1e-17"], 1),
        (&["--fail-below", "50"], 0),
        (&["--fail-below", "99.9"], 1),
    ] {
        let always = ["--queries", &list, "--start", &start, "--end", &end];
        let flags = [&always[..], flags].concat();
        let (code, text, _) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
        assert_eq!(code, expected, "{flags:?}: {text}");
    }
}

#[test]
fn label_with_data_in_one_system_alone_is_a_difference() {
    let dir = tempfile::tempdir().unwrap();
    let baseline = stub(|_, _, _| true);
    let candidate = stub(|ask, answer, _| {
        if ask.endpoint == "labels" {
            answer["data"] = json!(["__name__", "job", "real", "vm_account_id", "zone"]);
        }
        true
    });
    let list = file(dir.path(), "list.txt", "fine\n");
    let (start, end) = (START.to_string(), END.to_string());
    let flags = ["--queries", &list, "--start", &start, "--end", &end];
    let (code, text, report) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
    assert_eq!(code, 1, "{text}");
    let found = finding(&report, "label_names", "label names");
    assert_eq!(
        (&found["outcome"], &found["classes"]),
        (&json!("mismatch"), &json!(["labels"]))
    );
    assert!(
        found["reason"].as_str().unwrap().contains("real"),
        "{found}"
    );
    let flags = [&flags[..], &["--ignore-label", "real"]].concat();
    let (code, text, _) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn system_compared_with_itself_matches_whole() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let now = now_ms();
    let series = |name: &str, host: &str| {
        let samples: Vec<(i64, f64)> = (0..120)
            .map(|i| (now - 1_800_000 + i * 15_000, 0.1 * i as f64))
            .collect();
        Series::new(&[("__name__", name), ("host", host)], &samples)
    };
    let all = [
        series("requests_total", "a"),
        series("requests_total", "b"),
        series("heat", "a"),
    ];
    let answer = server.http().write(&body(&all));
    assert_eq!(answer.status, 204, "{}", answer.body);
    let board = json!({
        "title": "t",
        "templating": {"list": [{
            "name": "host", "type": "query", "query": "label_values(heat, host)"
        }]},
        "panels": [{"targets": [{"expr": "rate(requests_total{host=\"$host\"}[$__rate_interval])"}]}]
    });
    let board = file(dir.path(), "board.json", &board.to_string());
    let rules = "groups: [{name: g, rules: [{record: r, expr: 'sum by (host) (heat)'}]}]\n";
    let rules = file(dir.path(), "rules.yml", rules);
    let log =
        "{\"params\":{\"query\":\"topk(1, heat)\"}}\n{\"params\":{\"query\":\"many on x\"}}\n";
    let log = file(dir.path(), "query.log", log);
    let end = format!("{}", (now - 30_000) as f64 / 1000.0);
    let flags = [
        "--queries",
        &board,
        &rules,
        &log,
        "--end",
        &end,
        "--generate",
        "60",
    ];
    let (code, text, report) = compare(dir.path(), &server.address, &server.address, &flags);
    assert_eq!(code, 0, "{text}\n{report:#}");
    assert_eq!(report["match_rate"], 100.0);
    let counts = &report["passes"]["instant"];
    assert!(counts["match"].as_u64().unwrap() > 50, "{counts}");
    assert_eq!(
        (&counts["mismatch"], &counts["error"], &counts["skip"]),
        (&json!(0), &json!(0), &json!(1))
    );
    assert_eq!(
        report["passes"]["label_values"]["match"],
        json!(text_labels(&report))
    );
    for name in ["report.html", "report.md"] {
        let text = std::fs::read_to_string(dir.path().join("report").join(name)).unwrap();
        assert!(text.contains("100 %"), "{text}");
    }
}

/// Labels that were compared: those of the data and of the server about itself.
fn text_labels(report: &Value) -> u64 {
    let counts = report["passes"]["label_values"].as_object().unwrap();
    let all: u64 = counts.values().map(|count| count.as_u64().unwrap()).sum();
    assert!(all >= 2, "{report:#}");
    all
}

#[test]
fn bad_input_is_named_and_exits_with_2_and_a_system_that_is_away_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let sound = stub(|_, _, _| true);
    let broken = file(dir.path(), "broken.json", "{\"panels\": [");
    let list = file(dir.path(), "list.txt", "up\n");
    let missing = dir.path().join("missing.yml").to_str().unwrap().to_owned();
    let cases: [(&[&str], &str, i32, &str); 6] = [
        (
            &["--queries", &broken],
            &sound.address,
            2,
            "broken.json: broken JSON",
        ),
        (&["--queries", &missing], &sound.address, 2, "missing.yml"),
        (
            &["--queries", &list, "--step", "0"],
            &sound.address,
            2,
            "--step",
        ),
        (&[], &sound.address, 2, "nothing to ask"),
        (
            &["--querys", &list],
            &sound.address,
            2,
            "unknown flag: --querys",
        ),
        (
            &["--queries", &list],
            "127.0.0.1:1",
            1,
            "the candidate at http://127.0.0.1:1",
        ),
    ];
    for (flags, candidate, expected, part) in cases {
        let (code, text, _) = compare(dir.path(), &sound.address, candidate, flags);
        assert_eq!(code, expected, "{flags:?}: {text}");
        assert!(
            text.starts_with("firn compare: ") && text.contains(part),
            "{flags:?}: {text}"
        );
    }
}

#[test]
fn run_that_goes_on_asks_in_rounds_and_shows_its_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let sound = stub(|_, _, _| true);
    let list = file(dir.path(), "list.txt", "fine\n");
    let start = (now_ms() / 1000 - 3_600).to_string();
    let flags = [
        "--queries",
        &list,
        "--start",
        &start,
        "--duration",
        "3s",
        "--pause",
        "200ms",
    ];
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listening.local_addr().unwrap().to_string();
    drop(listening);
    let scraper = std::thread::spawn({
        let address = address.clone();
        move || {
            let http = crate::harness::http::Http::new(&address);
            let mut text = String::new();
            crate::harness::server::wait_for("the metrics of a round", || {
                text = http.get("/metrics").body;
                text.contains("pass=\"range\",outcome=\"match\"} 1")
            });
            text
        }
    });
    let flags = [&flags[..], &["--listen", &address]].concat();
    let (code, text, report) = compare(dir.path(), &sound.address, &sound.address, &flags);
    assert_eq!(code, 0, "{text}");
    let rounds = report["rounds"].as_array().unwrap();
    assert!(rounds.len() > 2, "{report:#}");
    assert_eq!(report["passes"]["range"]["match"], json!(rounds.len()));
    let metrics = scraper.join().unwrap();
    assert!(
        metrics.contains("firn_compare_match_ratio 1\n"),
        "{metrics}"
    );
}

#[test]
fn system_with_a_certificate_that_does_not_fit_cannot_be_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (known, other) = (Authority::new(), Authority::new());
    known.server().write(dir.path(), "server");
    known.server().write(dir.path(), "client");
    let known = file(dir.path(), "known.pem", known.pem());
    let other = file(dir.path(), "other.pem", other.pem());
    let web = format!(
        "tls_server_config: {{cert_file: server.crt, key_file: server.key, \
         client_ca_file: {known}, client_auth_type: RequireAndVerifyClientCert}}\n"
    );
    let web = file(dir.path(), "web.yml", &web);
    let data = dir.path().join("data");
    let server = Server::start_unready(&data, &["--web.config.file", &web]);
    server.wait_log(" msg=ready");
    let port = server.address.rsplit(':').next().unwrap();
    let (right, wrong) = (
        format!("https://localhost:{port}"),
        format!("https://127.0.0.1:{port}"),
    );
    let list = file(dir.path(), "list.txt", "up\nvector(1)\n");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (cert, key) = (path("client.crt"), path("client.key"));
    let own = ["--client-cert", &cert, "--client-key", &key];
    let trusting = |authority| [&["--ca", authority][..], &own].concat();
    let refused = "its certificate is not accepted: ";
    let cases: [(&str, Vec<&str>, i32, &str); 6] = [
        (&right, own.to_vec(), 1, refused),
        (&right, trusting(&other), 1, refused),
        // The certificate is another name's.
        (&wrong, trusting(&known), 1, refused),
        // The server asks for one too.
        (&right, vec!["--ca", &known], 1, "cannot be asked: "),
        (&right, vec!["--ca", &key], 2, "client.key: no certificate"),
        (&right, trusting(&known), 0, "match rate   100 %"),
    ];
    for (url, flags, expected, part) in cases {
        let flags = [&["--queries", &list][..], &flags].concat();
        let (code, text, _) = compare(dir.path(), url, url, &flags);
        assert_eq!(code, expected, "{flags:?}: {text}");
        assert!(text.contains(part), "{flags:?}: {text}");
    }
}
