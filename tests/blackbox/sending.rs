//! `remote_write`: what is stored is sent on, through kills of the sender and a receiver that is
//! away.

use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::mirror::receiver::Receiver;
use crate::now_ms;
use std::path::Path;

/// Starts a server in `dir` that sends on to `receiver`.
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
    // What it took is what another server is told.
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
