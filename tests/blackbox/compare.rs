//! `firn compare` against systems with planted differences, against itself, and with invalid input.

use crate::harness::server::{Server, firn};
use crate::harness::write::{Series, body};
use crate::now_ms;
use crate::tls::Authority;
use firn_mirror::target::{ExpositionServer, respond};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time range of the data of the stubs, in seconds.
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

/// Starts a system that first calls `plant`, and sends the answer of a sound system if `plant`
/// changed nothing.
fn stub(
    plant: impl Fn(&Ask, &mut Value, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> ExpositionServer {
    ExpositionServer::start("127.0.0.1:0", move |request, stream| {
        let ask = Ask::of(&request.path);
        let mut answer = sound(&ask);
        if plant(&ask, &mut answer, stream) {
            respond(stream, "200 OK", "application/json", answer.to_string());
        }
    })
    .unwrap()
}

/// Returns the answer of a sound system.
fn sound(ask: &Ask) -> Value {
    let data = match ask.endpoint.as_str() {
        // Labels whose names contain `gone` have no data.
        "query" | "query_range" if ask.query().split(" or ").all(|part| part.contains("gone")) => {
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

/// Returns the first value of the first element, or the last value of the first series.
fn value_of(answer: &mut Value) -> &mut Value {
    let series = &mut answer["data"]["result"][0];
    let is_range = series["values"].is_array();
    if is_range {
        let points = series["values"].as_array_mut().unwrap();
        &mut points.last_mut().unwrap()[1]
    } else {
        &mut series["value"][1]
    }
}

/// Plants every kind of difference, each in the answers about one metric.
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

/// Runs the comparison; returns the exit code, its output, and the report.
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
    if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
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
        reason("moved").contains("redirect to \"/api/v1/query\""),
        "{}",
        reason("moved")
    );
    assert!(
        reason("endless").contains("limit 1048576 bytes"),
        "{}",
        reason("endless")
    );
    // Nothing else differs. An index that still lists deleted series is not a difference.
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

/// Returns the flags of a run over the time range of the stubs, with a list of queries.
fn over_all<'a>(list: &'a str, stretch: &'a [String; 2]) -> Vec<&'a str> {
    let [start, end] = stretch;
    vec!["--queries", list, "--start", start, "--end", end]
}

fn stretch() -> [String; 2] {
    [START, END].map(|time| time.to_string())
}

#[test]
fn labels_of_one_index_match_only_if_all_of_them_were_looked_at() {
    let gone = |count: usize| {
        (0..count)
            .map(|n| format!("gone_{n:05}"))
            .collect::<Vec<_>>()
    };
    let with = |mut names: Vec<String>, more: &[&str]| {
        names.extend(more.iter().map(|name| (*name).to_owned()));
        names
    };
    let cases = [
        (gone(1_500), "match", json!([]), ""),
        (
            with(gone(1_500), &["live"]),
            "mismatch",
            json!(["labels"]),
            "live",
        ),
        (
            with(gone(10), &["refused"]),
            "error",
            json!(["error"]),
            "too many samples",
        ),
        // Existing data is a difference, even if other queries failed.
        (
            with(gone(10), &["live", "refused"]),
            "mismatch",
            json!(["labels"]),
            "live",
        ),
        (
            gone(10_001),
            "skip",
            json!([]),
            "the first 10000 have no data",
        ),
    ];
    let stretch = stretch();
    for (names, outcome, classes, part) in cases {
        let dir = tempfile::tempdir().unwrap();
        let count = names.len();
        let baseline = stub(|_, _, _| true);
        let candidate = stub(move |ask, answer, stream| {
            if ask.endpoint == "labels" {
                let sound = ["__name__", "job", "zone"].map(str::to_owned);
                answer["data"] = json!([&sound[..], &names].concat());
            }
            if ask.is_about("refused") {
                let body = "{\"status\":\"error\",\"errorType\":\"execution\",\
                            \"error\":\"too many samples\"}";
                respond(stream, "422 Unprocessable Entity", "application/json", body);
            }
            !ask.is_about("refused")
        });
        let list = file(dir.path(), "list.txt", "fine\n");
        let flags = [&over_all(&list, &stretch)[..], &["--passes", "label_names"]].concat();
        let (_, text, report) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
        assert_eq!(
            report["passes"]["label_names"][outcome], 1,
            "{count}: {text}"
        );
        if outcome != "match" {
            let found = finding(&report, "label_names", "label names");
            assert_eq!(found["classes"], classes, "{found:#}");
            let reason = found["reason"].as_str().unwrap();
            assert!(reason.contains(part), "{count}: {reason}");
        }
    }
}

#[test]
fn baseline_that_contradicts_itself_in_its_last_answer_skips_the_question() {
    let dir = tempfile::tempdir().unwrap();
    let asked = AtomicUsize::new(0);
    let baseline = stub(move |ask, answer, _| {
        // The original query and four repetitions.
        if ask.is_about("one_ulp") && asked.fetch_add(1, Ordering::SeqCst) == 4 {
            *value_of(answer) = "7".into();
        }
        true
    });
    let candidate = stub(plant);
    let (list, stretch) = (file(dir.path(), "list.txt", "one_ulp\n"), stretch());
    let flags = [&over_all(&list, &stretch)[..], &["--passes", "instant"]].concat();
    let (_, text, report) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
    let found = finding(&report, "instant", "one_ulp");
    assert_eq!(found["outcome"], "skip", "{text}");
    let reason = found["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the baseline contradicts itself"),
        "{reason}"
    );
}

#[test]
fn difference_that_lasts_is_asked_once_a_round_and_kept_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counting = |place: usize| {
        let counts = Arc::clone(&counts);
        move |ask: &Ask| {
            if ask.is_about("changing") {
                counts[place].fetch_add(1, Ordering::SeqCst) + 1
            } else {
                0
            }
        }
    };
    let (of_baseline, of_candidate) = (counting(0), counting(1));
    let baseline = stub(move |ask, _, _| {
        of_baseline(ask);
        true
    });
    let candidate = stub(move |ask, answer, _| {
        if let number @ 1.. = of_candidate(ask) {
            *value_of(answer) = format!("100{number}").into();
        }
        true
    });
    let list = file(dir.path(), "list.txt", "changing\n");
    let start = (now_ms() / 1000 - 3_600).to_string();
    let flags = ["--queries", &list, "--start", &start, "--passes", "instant"];
    let live = ["--duration", "3s", "--pause", "100ms"];
    let flags = [&flags[..], &live].concat();
    let (code, text, report) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
    assert_eq!(code, 1, "{text}");
    let rounds = report["rounds"].as_array().unwrap().len();
    assert!(rounds > 3, "{report:#}");
    let found = finding(&report, "instant", "changing");
    assert_eq!(found["times"], rounds, "{found:#}");
    let asked = [0, 1].map(|place| counts[place].load(Ordering::SeqCst));
    assert_eq!(asked, [rounds + 4, rounds + 1]);
    let folder = dir
        .path()
        .join("report")
        .join(found["folder"].as_str().unwrap());
    let kept = std::fs::read_to_string(folder.join("candidate.json")).unwrap();
    assert!(kept.contains("\"1001\""), "{kept}");
}

#[test]
fn what_cannot_be_written_is_noted_and_the_last_report_decides() {
    let dir = tempfile::tempdir().unwrap();
    let report_dir = dir.path().join("report");
    let baseline = stub(|_, _, _| true);
    let candidate = stub(plant);
    let (list, stretch) = (file(dir.path(), "list.txt", "one_ulp\n"), stretch());
    let flags = [&over_all(&list, &stretch)[..], &["--passes", "instant"]].concat();
    let run = |flags: &[&str]| compare(dir.path(), &baseline.address, &candidate.address, flags);
    let (_, _, report) = run(&flags);
    let folder = finding(&report, "instant", "one_ulp")["folder"].clone();
    let folder = report_dir.join(folder.as_str().unwrap());
    // A file replaces the folder.
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "").unwrap();
    let (code, text, report) = run(&flags);
    assert_eq!(code, 1, "{text}");
    let found = finding(&report, "instant", "one_ulp");
    assert_eq!(
        (&found["outcome"], &found["folder"]),
        (&json!("mismatch"), &Value::Null)
    );
    assert_eq!(report["folders"]["not_written"], 1, "{report:#}");
    assert!(
        text.contains("1 time a file could not be written"),
        "{text}"
    );
    // A report that cannot be written is written in the next round.
    let obstacle = report_dir.join("report.new");
    std::fs::create_dir(&obstacle).unwrap();
    let start = (now_ms() / 1000 - 3_600).to_string();
    let live = ["--queries", &list, "--start", &start, "--passes", "range"];
    let live = [&live[..], &["--pause", "100ms", "--fail-below", "0"]].concat();
    let (code, text, _) = run(&[&live[..], &["--duration", "300ms"]].concat());
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("firn compare: write ") && text.contains("report.new"),
        "{text}"
    );
    let clearing = std::thread::spawn(move || {
        // Removes the obstacle during the run.
        std::thread::sleep(Duration::from_millis(1_000));
        std::fs::remove_dir(&obstacle).unwrap();
    });
    let (code, text, report) = run(&[&live[..], &["--duration", "4s"]].concat());
    clearing.join().unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(
        report["folders"]["not_written"].as_u64().unwrap() > 0,
        "{report:#}"
    );
}

#[test]
fn folders_are_no_more_than_they_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let baseline = stub(|_, _, _| true);
    let candidate = stub(plant);
    let questions: String = (0..8).map(|n| format!("one_ulp + {n}\n")).collect();
    let (list, stretch) = (file(dir.path(), "list.txt", &questions), stretch());
    let more = ["--passes", "instant", "--keep-bytes", "5KB"];
    let flags = [&over_all(&list, &stretch)[..], &more].concat();
    let (_, text, report) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
    let figures = &report["folders"];
    let figure = |name: &str| figures[name].as_u64().unwrap();
    assert!((1..8).contains(&figure("count")), "{figures}");
    assert_eq!(figure("count") + figure("removed"), 8, "{figures}");
    assert!(figure("bytes") <= 5_120, "{figures}");
    assert!(
        text.contains(" of differences was deleted")
            || text.contains(" of differences were deleted"),
        "{text}"
    );
    let findings = report["findings"].as_array().unwrap();
    let named: Vec<_> = findings
        .iter()
        .filter_map(|f| f["folder"].as_str())
        .collect();
    assert_eq!(named.len() as u64, figure("count"));
    for folder in named {
        assert!(dir.path().join("report").join(folder).is_dir(), "{folder}");
    }
}

/// Endpoint, query and start of requests.
type Notes = Arc<Mutex<Vec<(String, String, String)>>>;

/// Starts a stub that records endpoint, query and start of every request.
fn noting() -> (ExpositionServer, Notes) {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&noted);
    let target = stub(move |ask, _, _| {
        let start = ask.params.get("start").cloned().unwrap_or_default();
        let mut notes = notes.lock().unwrap();
        notes.push((ask.endpoint.clone(), ask.query().to_owned(), start));
        true
    });
    (target, noted)
}

#[test]
fn window_bounds_what_is_asked_about_and_not_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let baseline = stub(|_, _, _| true);
    let (candidate, noted) = noting();
    let text = "fine\nrate(fine[40m])\nrange=5m step=1m fine\nrate(fine[2h])\n";
    let (list, stretch) = (file(dir.path(), "list.txt", text), stretch());
    let flags = [&over_all(&list, &stretch)[..], &["--window", "10m"]].concat();
    let (code, text, report) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
    assert_eq!(code, 0, "{text}");
    let begins = |endpoint: &str, query: &str| -> Vec<i64> {
        let noted = noted.lock().unwrap();
        let found = noted.iter().filter(|(e, q, _)| e == endpoint && q == query);
        let found = found.map(|(_, _, start)| start.parse::<f64>().unwrap() as i64 - END);
        let mut found: Vec<i64> = found.collect();
        found.sort_unstable();
        found
    };
    assert_eq!(begins("query_range", "fine"), [-600, -300]);
    assert_eq!(begins("query_range", "rate(fine[40m])"), [-600]);
    assert_eq!(begins("labels", ""), [-600]);
    assert_eq!(report["start"].as_f64(), Some((END - 600) as f64));
    let found = finding(&report, "range", "rate(fine[2h])");
    assert_eq!(found["outcome"], "skip", "{found}");
    assert_eq!(report["passes"]["range"]["match"], 3, "{report:#}");
}

#[test]
fn names_of_metrics_are_asked_for_once_a_round() {
    let dir = tempfile::tempdir().unwrap();
    let baseline = stub(|_, _, _| true);
    let (candidate, noted) = noting();
    let (list, stretch) = (file(dir.path(), "list.txt", "fine\n"), stretch());
    for (passes, expected) in [
        ("label_values,metadata", 1),
        ("metadata", 1),
        ("instant", 0),
    ] {
        noted.lock().unwrap().clear();
        let flags = [&over_all(&list, &stretch)[..], &["--passes", passes]].concat();
        let (code, text, _) = compare(dir.path(), &baseline.address, &candidate.address, &flags);
        assert_eq!(code, 0, "{text}");
        let noted = noted.lock().unwrap();
        let names = noted.iter().filter(|(e, ..)| e == "label/__name__/values");
        assert_eq!(names.count(), expected, "{passes}: {noted:?}");
    }
}

#[test]
fn passes_that_ask_no_questions_need_none() {
    let dir = tempfile::tempdir().unwrap();
    let sound = stub(|_, _, _| true);
    let [start, end] = &stretch();
    let flags = [
        "--start",
        start,
        "--end",
        end,
        "--passes",
        "label_names,metadata",
    ];
    let (code, text, report) = compare(dir.path(), &sound.address, &sound.address, &flags);
    assert_eq!(code, 0, "{text}");
    let matches = |pass: &str| report["passes"][pass]["match"].as_u64().unwrap();
    let passes = ["instant", "label_names", "label_values", "metadata"];
    assert_eq!(passes.map(matches), [0, 1, 0, 1]);
}

#[test]
fn matches_of_empty_answers_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let sound = stub(|_, _, _| true);
    let (list, stretch) = (file(dir.path(), "list.txt", "fine\ngone\n"), stretch());
    let flags = [&over_all(&list, &stretch)[..], &["--passes", "instant"]].concat();
    let (code, text, report) = compare(dir.path(), &sound.address, &sound.address, &flags);
    assert_eq!(code, 0, "{text}");
    let expected = json!({"empty": 1, "same_error": 0});
    assert_eq!(report["vacuous"]["instant"], expected, "{report:#}");
    assert!(
        text.contains("1 match is of answers that are empty"),
        "{text}"
    );
}

#[test]
fn questions_of_a_long_run_are_gathered_again() {
    let dir = tempfile::tempdir().unwrap();
    let gathered = AtomicUsize::new(0);
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&asked);
    let baseline = stub(move |ask, answer, _| {
        if ask.endpoint == "label/pod/values" {
            // A pod is replaced each time, and one request to the index fails.
            match gathered.fetch_add(1, Ordering::SeqCst) {
                1 => answer["status"] = "error".into(),
                number => answer["data"] = json!([format!("pod{number}")]),
            }
        }
        seen.lock().unwrap().insert(ask.query().to_owned());
        true
    });
    let sound = stub(|_, _, _| true);
    let board = json!({
        "templating": {"list": [{"name": "pod", "type": "query", "query": "label_values(pod)"}]},
        "panels": [{"targets": [{"expr": "up{pod=\"$pod\"}"}]}]
    });
    let board = file(dir.path(), "board.json", &board.to_string());
    let start = (now_ms() / 1000 - 3_600).to_string();
    let flags = [
        "--queries",
        &board,
        "--start",
        &start,
        "--passes",
        "instant",
    ];
    let live = [
        "--duration",
        "3s",
        "--pause",
        "100ms",
        "--gather-every",
        "300ms",
    ];
    let flags = [&flags[..], &live].concat();
    let (code, text, report) = compare(dir.path(), &baseline.address, &sound.address, &flags);
    assert_eq!(code, 0, "{text}");
    assert!(report["gathered"].as_u64().unwrap() >= 3, "{report:#}");
    // If the list cannot be gathered again, the previous one is used.
    assert_eq!(report["passes"]["instant"]["skip"], 0, "{report:#}");
    let asked = asked.lock().unwrap();
    for pod in ["pod0", "pod2"] {
        assert!(asked.contains(&format!("up{{pod=\"{pod}\"}}")), "{asked:?}");
    }
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
        "panels": [{"targets": [{"expr":
            "rate(requests_total{host=\"$host\"}[$__rate_interval])"}]}]
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

/// Returns the number of compared labels: those of the data and those of the server's own metrics.
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
        (&[], &sound.address, 2, "no queries: pass"),
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
        // The certificate is for another name.
        (&wrong, trusting(&known), 1, refused),
        // The server requires a client certificate too.
        (&right, vec!["--ca", &known], 1, "cannot query the "),
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
