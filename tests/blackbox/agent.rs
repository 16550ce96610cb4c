//! Agent mode (`--agent`): pushed samples are forwarded despite a kill, and nothing is stored or
//! queried.

use crate::harness::server::{Server, firn, spawn, wait_for};
use crate::harness::write::{Series, body};
use crate::mirror::receiver::Receiver;
use crate::now_ms;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the command line of an agent in `dir` that forwards to `receiver`.
fn agent(dir: &Path, receiver: &Receiver) -> Command {
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
    command
}

fn start(dir: &Path, receiver: &Receiver) -> Server {
    let server = Server::from_child(spawn(agent(dir, receiver)));
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

/// Prepares the folder of a former agent so that its queue cannot be opened: a file replaces the
/// folder of the queue.
fn obstruct(dir: &Path, receiver: &Receiver) -> PathBuf {
    let file = dir.join("queues/sending");
    let command = agent(dir, receiver);
    std::fs::write(dir.join("agent.yml"), "scrape_configs: []\n").unwrap();
    let before = Server::from_child(spawn(command));
    before.wait_ready();
    assert!(before.stop().success());
    std::fs::write(&file, "").unwrap();
    file
}

#[test]
fn agent_whose_queue_cannot_be_opened_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    obstruct(dir.path(), &receiver);
    let mut agent = Server::from_child(spawn(agent(dir.path(), &receiver)));
    assert_eq!(agent.wait_end().code(), Some(1));
    agent.wait_log("firn: open the queue of remote_write: ");
}

#[test]
fn agent_that_cannot_keep_what_comes_refuses_it_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let file = obstruct(dir.path(), &receiver);
    let command = agent(dir.path(), &receiver);
    let config = dir.path().join("agent.yml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, "scrape_configs: []\n").unwrap();
    let agent = Server::from_child(spawn(command));
    agent.wait_ready();
    std::fs::write(&config, text).unwrap();
    agent.signal(rustix::process::Signal::HUP);
    agent.wait_log("remote write is not running");
    let series = Series::new(&[("__name__", "m")], &[(now_ms(), 1.0)]);
    let answer = agent.http().write(&body(&[series]));
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(
        answer.body.contains("open the queue of remote_write"),
        "{}",
        answer.body
    );
    std::fs::remove_file(file).unwrap();
    wait_for("the queue to be opened", || {
        let metrics = agent.http().get("/metrics").body;
        metrics.contains("firn_sending_queue_unavailable 0")
    });
    push(&agent, "m");
    receiver.wait(1);
}
