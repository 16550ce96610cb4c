//! `remote_write`: stored samples are forwarded, despite kills of either side, a receiver that is
//! unreachable or rejects samples of other senders, and a queue that cannot be opened.

use crate::harness::server::{Server, firn, spawn, wait_for};
use crate::harness::write::{Series, body};
use crate::mirror::receiver::{Mood, Receiver};
use crate::now_ms;
use std::collections::BTreeMap;
use std::path::Path;

/// Starts a server in `dir` that forwards to `receiver`.
fn start(dir: &Path, receiver: &Receiver) -> Server {
    let rules = "groups:\n- name: g\n  interval: 1s\n  rules: [{record: made, expr: 'count(m)'}]\n";
    std::fs::write(dir.join("rules.yml"), rules).unwrap();
    let config = format!(
        "global: {{external_labels: {{region: eu}}}}\n\
         scrape_configs: []\n\
         rule_files: [rules.yml]\n\
         remote_write:\n\
         - url: '{}'\n\
         \u{20} queue_config: {{max_backoff: 100ms}}\n\
         \u{20} write_relabel_configs:\n\
         \u{20} - {{source_labels: [__name__], regex: secret, action: drop}}\n",
        receiver.url()
    );
    let file = dir.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    Server::start(&dir.join("data"), &["--config", file.to_str().unwrap()])
}

fn push(server: &Server, numbers: std::ops::Range<usize>) {
    let http = server.http();
    for number in numbers {
        let number = number.to_string();
        let of = |name| Series::new(&[("__name__", name), ("i", &number)], &[(now_ms(), 1.0)]);
        let answer = http.write(&body(&[of("m"), of("secret")]));
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
}

#[test]
fn samples_are_sent_on_in_order_through_kills_and_an_absent_receiver() {
    let dir = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start();
    receiver.die();
    let sender = start(dir.path(), &receiver);
    push(&sender, 0..20);
    sender.kill();
    let sender = start(dir.path(), &receiver);
    push(&sender, 20..25);
    receiver.revive();
    push(&sender, 25..30);
    // Writes the received requests to another server.
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = Server::start(elsewhere.path(), &[]);
    let http = copy.http();
    let mut told = 0;
    wait_for("all samples and a result of the rule", || {
        let taken = receiver.taken();
        for request in &taken[told..] {
            let version = "x-prometheus-remote-write-version: 0.1.0".to_owned();
            assert!(request.headers.contains(&version), "{request:?}");
            let answer = http.write(&request.body);
            assert_eq!(answer.status, 204, "{}", answer.body);
        }
        told = taken.len();
        let count = http.query("count(m{region=\"eu\"})", now_ms());
        let made = http.query("made{region=\"eu\"} == 30", now_ms());
        count[0]["value"][1] == "30" && made.as_array().is_some_and(|rows| !rows.is_empty())
    });
    let twice = http.query(
        "count_over_time(m[1h]) > 1 or {__name__=\"secret\"}",
        now_ms(),
    );
    assert_eq!(twice, serde_json::json!([]));
    let metrics = sender.http().get("/metrics").body;
    let sent = format!(
        "firn_sending_sent_bodies_total{{target=\"{}\"}}",
        receiver.address
    );
    assert!(metrics.contains(&sent), "{metrics}");
    assert!(sender.stop().success());
}

/// Returns a port without a listener.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Starts a server with `config` at `port`, or at any port if it is zero.
fn server_at(dir: &Path, port: u16, config: &str) -> Server {
    std::fs::create_dir_all(dir).unwrap();
    let file = dir.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    let mut command = firn();
    let listen = format!("127.0.0.1:{port}");
    command.args(["serve", "--listen", &listen]);
    command.arg("--data").arg(dir.join("data"));
    command.arg("--config").arg(&file);
    let server = Server::from_child(spawn(command));
    server.wait_ready();
    server
}

/// A receiver without an out-of-order window, which loses samples that arrive out of order.
const IN_ORDER: &str = "scrape_configs: []\nstorage: {tsdb: {out_of_order_time_window: 0s}}\n";

/// Returns the config of a sender for a receiver at `port`, with additional keys in `more`.
fn sender_config(port: u16, more: &str) -> String {
    format!(
        "scrape_configs: []\n\
         remote_write:\n\
         - url: 'http://127.0.0.1:{port}/api/v1/write'\n\
         \u{20} name: other\n\
         \u{20} queue_config: {{max_backoff: 100ms, batch_send_deadline: 50ms, \
         max_samples_per_send: 30, max_shards: 4}}\n{more}"
    )
}

const V2: &str = "  protobuf_message: io.prometheus.write.v2.Request\n";

const RELABELLED: &str = concat!(
    "  protobuf_message: io.prometheus.write.v2.Request\n",
    "  write_relabel_configs:\n",
    "  - {source_labels: [__name__], regex: secret, action: drop}\n",
    "  - {source_labels: [i], regex: '(.*)', target_label: copy, replacement: 'c$1'}\n",
);

/// Series per push, and the data time between two pushes.
const SERIES: i64 = 20;
const STEP_MS: i64 = 15_000;

/// Pushes samples of `m` and `secret` at consecutive times from `first_ms`.
fn push_times(server: &Server, first_ms: i64, steps: std::ops::Range<i64>) {
    let http = server.http();
    for step in steps {
        let time = first_ms + step * STEP_MS;
        let numbers: Vec<String> = (0..SERIES).map(|i| i.to_string()).collect();
        let of = |i: &String| {
            let name = ["m", "secret"][usize::from(i == "0")];
            Series::new(&[("__name__", name), ("i", i)], &[(time, step as f64)])
        };
        let series: Vec<Series> = numbers.iter().map(of).collect();
        let answer = http.write(&body(&series));
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
}

/// Times and values by series.
type Samples = BTreeMap<String, Vec<(i64, String)>>;

/// Returns all pushed samples up to `end_ms`, without the label `copy` if it is correct.
fn stored(server: &Server, end_ms: i64) -> Samples {
    let rows = server.http().query("{__name__=~\"m|secret\"}[3h]", end_ms);
    let series = |row: &serde_json::Value| {
        let labels = &row["metric"];
        let (name, i) = (labels["__name__"].as_str(), labels["i"].as_str());
        let copy = labels["copy"].as_str().map(|copy| copy.replace('c', ""));
        assert!(copy.is_none() || copy.as_deref() == i, "{labels}");
        let sample = |pair: &serde_json::Value| {
            let time = pair[0].as_f64().unwrap() * 1000.0;
            (time as i64, pair[1].as_str().unwrap().to_owned())
        };
        let samples = row["values"].as_array().unwrap().iter().map(sample);
        (format!("{name:?} {i:?}"), samples.collect())
    };
    rows.as_array().unwrap().iter().map(series).collect()
}

/// Waits until the receiver has the same samples as `sender`, except for those dropped by
/// relabeling.
fn wait_for_equal(sender: &Server, receiver: &Server, end_ms: i64, more: &str) {
    let mut expected = stored(sender, end_ms);
    if more == RELABELLED {
        expected.retain(|name, _| !name.contains("secret"));
    }
    let samples: usize = expected.values().map(Vec::len).sum();
    assert!(samples > 1000, "{samples}");
    let count = || {
        stored(receiver, end_ms)
            .values()
            .map(Vec::len)
            .sum::<usize>()
    };
    wait_for("all samples", || count() >= samples);
    assert_eq!(stored(receiver, end_ms), expected, "{more}");
}

/// Kills and restarts a receiver repeatedly while requests are sent.
fn check_kills(more: &str) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let port = free_port();
    let first_ms = now_ms() / 1000 * 1000 - 7_200_000;
    let sender = server_at(here.path(), 0, &sender_config(port, more));
    let mut receiver = server_at(there.path(), port, IN_ORDER);
    for round in 0..4 {
        let from = round * 40;
        push_times(&sender, first_ms, from..from + 25);
        receiver.kill();
        push_times(&sender, first_ms, from + 25..from + 40);
        receiver = server_at(there.path(), port, IN_ORDER);
    }
    wait_for_equal(&sender, &receiver, now_ms(), more);
}

#[test]
fn receiver_killed_while_it_is_sent_to_misses_no_sample() {
    check_kills("");
}

#[test]
fn receiver_of_2_0_killed_while_it_is_sent_to_misses_no_sample() {
    check_kills(V2);
}

#[test]
fn receiver_of_relabelled_2_0_killed_while_it_is_sent_to_misses_no_sample() {
    check_kills(RELABELLED);
}

#[test]
fn receiver_that_is_away_for_more_than_an_hour_of_data_gets_every_sample_in_order() {
    for more in ["", RELABELLED] {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let port = free_port();
        let first_ms = now_ms() / 1000 * 1000 - 7_200_000;
        let config = sender_config(port, more);
        let sender = server_at(here.path(), 0, &config);
        push_times(&sender, first_ms, 0..150);
        // The sender is killed in between, too.
        sender.kill();
        let sender = server_at(here.path(), 0, &config);
        push_times(&sender, first_ms, 150..300);
        let receiver = server_at(there.path(), port, IN_ORDER);
        wait_for_equal(&sender, &receiver, now_ms(), more);
    }
}

/// The receiver, like Prometheus's for 1.0, rejects a whole request if it rejects one of its
/// samples.
#[test]
fn sample_that_a_receiver_refuses_costs_none_that_came_from_another_sender() {
    let external = "global: {external_labels: {region: eu}}\n";
    for (before, more) in [("", ""), (external, ""), ("", V2), ("", RELABELLED)] {
        let mut receiver = Receiver::judging(|body| !holds(body, b"late"));
        // A receiver of 2.0 reports the written samples; the header is ignored for 1.0.
        let written = "X-Prometheus-Remote-Write-Samples-Written: 3\r\n";
        receiver.set(Mood::Says(204, written.to_owned()));
        receiver.die();
        let port = receiver
            .address
            .rsplit_once(':')
            .unwrap()
            .1
            .parse()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        // All four series are in one request.
        let config = sender_config(port, more).replace("50ms", "2s");
        let sender = server_at(dir.path(), 0, &format!("{before}{config}"));
        for name in ["first", "late", "second", "third"] {
            let series = Series::new(&[("__name__", name), ("i", "1")], &[(now_ms(), 1.0)]);
            let answer = sender.http().write(&body(&[series]));
            assert_eq!(answer.status, 204, "{}", answer.body);
        }
        receiver.revive();
        for name in ["first", "second", "third"] {
            wait_for(name, || {
                let taken = receiver.taken();
                let mut bodies = taken.iter().map(|request| &request.body);
                bodies.any(|body| holds(body, name.as_bytes()))
            });
        }
        for count in [
            "prometheus_remote_storage_samples_failed_total{remote_name=\"other\",URL} 1",
            "prometheus_remote_storage_samples_total{remote_name=\"other\",URL} 3",
            "prometheus_remote_storage_samples_pending{remote_name=\"other\",URL} 0",
            "prometheus_remote_storage_samples_in_total 4",
            "firn_sending_lost_bodies_total{reason=\"refused\",target=\"other\"} 1",
        ] {
            let url = format!("url=\"{}\"", receiver.url());
            let count = count.replace("URL", &url);
            wait_for(&count, || {
                let metrics = sender.http().get("/metrics").body;
                metrics.lines().any(|line| line == count)
            });
        }
    }
}

/// Returns whether the message in `body` contains these bytes.
fn holds(body: &[u8], bytes: &[u8]) -> bool {
    let message = snap::raw::Decoder::new().decompress_vec(body).unwrap();
    message.windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn sample_of_a_far_future_that_is_refused_here_is_not_sent_on_and_no_receiver_is_behind_by_it() {
    let receiver = Receiver::start();
    let port = receiver
        .address
        .rsplit_once(':')
        .unwrap()
        .1
        .parse()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let sender = server_at(dir.path(), 0, &sender_config(port, ""));
    let (now, future) = (now_ms(), 4_070_908_800_000);
    let series = [
        Series::new(&[("__name__", "sound")], &[(now, 1.0)]),
        Series::new(&[("__name__", "future")], &[(future, 1.0)]),
    ];
    assert_eq!(sender.http().write(&body(&series)).status, 400);
    receiver.wait(1);
    assert!(holds(&receiver.taken()[0].body, b"sound"));
    assert!(!holds(&receiver.taken()[0].body, b"future"));
    let seconds = |name: &str| {
        let metrics = sender.http().get("/metrics").body;
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    for name in [
        "prometheus_remote_storage_highest_timestamp_in_seconds",
        "prometheus_remote_storage_queue_highest_timestamp_seconds",
        "prometheus_remote_storage_queue_highest_sent_timestamp_seconds",
    ] {
        wait_for(name, || seconds(name) == now as f64 / 1000.0);
    }
}

#[test]
fn server_whose_queue_cannot_be_opened_says_so_and_opens_it_once_it_can() {
    let receiver = Receiver::start();
    let port = receiver
        .address
        .rsplit_once(':')
        .unwrap()
        .1
        .parse()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let before = server_at(dir.path(), 0, "scrape_configs: []\n");
    assert!(before.stop().success());
    // A file replaces the folder.
    let folder = dir.path().join("data/sending");
    std::fs::write(&folder, "").unwrap();
    let sender = server_at(dir.path(), 0, &sender_config(port, ""));
    let http = sender.http();
    let push = |name| {
        let series = Series::new(&[("__name__", name)], &[(now_ms(), 1.0)]);
        let answer = http.write(&body(&[series]));
        assert_eq!(answer.status, 204, "{}", answer.body);
    };
    let has = |line: &str| http.get("/metrics").body.lines().any(|other| other == line);
    let notices = || http.get("/api/v1/notifications").body;
    push("early");
    assert!(has("firn_sending_queue_unavailable 1"));
    assert!(has("firn_sending_unkept_requests_total 1"));
    assert!(
        notices().contains("Samples are not sent on"),
        "{}",
        notices()
    );
    std::fs::remove_file(&folder).unwrap();
    wait_for("the queue to be opened", || {
        has("firn_sending_queue_unavailable 0")
    });
    assert!(
        !notices().contains("Samples are not sent on"),
        "{}",
        notices()
    );
    push("in_time");
    receiver.wait(1);
    assert!(holds(&receiver.taken()[0].body, b"in_time"));
}

#[test]
fn queue_of_receivers_that_a_start_does_not_name_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    // No receiver listens.
    let sender = server_at(dir.path(), 0, &sender_config(free_port(), ""));
    push_times(&sender, now_ms() - 600_000, 0..3);
    sender.kill();
    let bodies = || {
        let names = std::fs::read_dir(dir.path().join("data/sending")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_str().unwrap().ends_with(".bodies"))
            .count()
    };
    assert_eq!(bodies(), 1);
    let server = server_at(dir.path(), 0, "scrape_configs: []\n");
    assert_eq!(bodies(), 0);
    assert!(server.stop().success());
}

#[test]
fn request_follows_a_redirect_unless_the_config_forbids_it() {
    for (follows, to) in [(true, "/moved"), (false, "/api/v1/write")] {
        let dir = tempfile::tempdir().unwrap();
        let (gate, receiver) = (Receiver::start(), Receiver::start());
        let location = format!("Location: http://{}/moved\r\n", receiver.address);
        gate.set(Mood::Says(308, location));
        let config = format!(
            "scrape_configs: []\n\
             remote_write: [{{url: '{}', follow_redirects: {follows}}}]\n",
            gate.url()
        );
        let file = dir.path().join("firn.yml");
        std::fs::write(&file, config).unwrap();
        let flags = ["--config", file.to_str().unwrap()];
        let sender = Server::start(&dir.path().join("data"), &flags);
        push(&sender, 0..1);
        let refused = format!(
            "firn_sending_lost_bodies_total{{reason=\"refused\",target=\"{}\"}} 1\n",
            gate.address
        );
        if !follows {
            wait_for("the request to be refused", || {
                sender.http().get("/metrics").body.contains(&refused)
            });
            gate.set(Mood::status(204));
            push(&sender, 1..2);
        }
        let reached = if follows { &receiver } else { &gate };
        reached.wait(1);
        let taken = reached.taken();
        assert_eq!(taken[0].line, format!("POST {to} HTTP/1.1"));
        assert!(!taken[0].body.is_empty());
        let encoding = "content-encoding: snappy".to_owned();
        assert!(
            taken[0].headers.contains(&encoding),
            "{:?}",
            taken[0].headers
        );
    }
}
