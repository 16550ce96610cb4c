//! `--agent`: what is pushed is sent on through a kill, and nothing is stored or answered.

use crate::harness::server::{Server, firn, spawn, wait_for};
use crate::harness::write::{Series, body};
use crate::mirror::receiver::Receiver;
use crate::now_ms;
use std::path::Path;

fn start(dir: &Path, receiver: &Receiver) -> Server {
    let config = format!(
        "remote_write:\n\
         - url: '{}'\n\
         \u{20} queue_config: {{max_backoff: 100ms, batch_send_deadline: 100ms}}\n",
        receiver.url()
    );
    let file = dir.join("agent.yml");
    std::fs::write(&file, config).unwrap();
    let mut command = firn();
    command.args(["serve", "--agent", "--listen", "127.0.0.1:0"]);
    command.arg("--config").arg(&file);
    command.arg("--storage.agent.path").arg(dir.join("queues"));
    let server = Server::from_child(spawn(command));
    server.wait_ready();
    server
}

fn push(server: &Server, name: &str) {
    let series = Series::new(&[("__name__", name)], &[(now_ms(), 1.0)]);
    let answer = server.http().write(&body(&[series]));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

#[test]
fn agent_sends_on_what_it_acknowledged_and_answers_no_questions() {
    let dir = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start();
    receiver.die();
    let agent = start(dir.path(), &receiver);
    push(&agent, "before");
    for path in [
        "query?query=1",
        "labels",
        "series?match[]=a",
        "rules",
        "status/tsdb",
    ] {
        let answer = agent.http().get(&format!("/api/v1/{path}"));
        assert_eq!(answer.status, 422, "{path}: {}", answer.body);
        assert!(answer.body.contains("unavailable with Prometheus Agent"));
    }
    assert_eq!(agent.http().get("/api/v1/targets").status, 200);
    agent.kill();
    let agent = start(dir.path(), &receiver);
    push(&agent, "after");
    receiver.revive();
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = Server::start(elsewhere.path(), &[]);
    let http = copy.http();
    let mut told = 0;
    wait_for("both samples", || {
        let taken = receiver.taken();
        for request in &taken[told..] {
            let answer = http.write(&request.body);
            assert_eq!(answer.status, 204, "{}", answer.body);
        }
        told = taken.len();
        let count = http.query("count({__name__=~\"before|after\"})", now_ms());
        count[0]["value"][1] == "2"
    });
    assert!(agent.stop().success());
}
