//! Nodes that are killed, stopped and suspended under a load: nothing that was acknowledged is
//! lost, and no answer is incomplete.

use super::loaded_nodes::{FAILOVER_MAX, LoadedNodes};
use super::{SERIES, SpreadSeries, result_count};
use crate::harness::cluster::{ClusterView, TestCluster, wait_led, wait_within};
use crate::harness::http::Http;
use crate::harness::ledger::check_everywhere;
use crate::harness::server::wait_for;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// The longest time until writes to the partitions of a stopped node are accepted again. It is
/// about a second on an idle machine.
const HAND_OFF_MAX: Duration = Duration::from_secs(5);

#[test]
fn killed_node_loses_nothing_and_leads_again_with_an_empty_folder() {
    let mut nodes = LoadedNodes::start();
    nodes.take(1).kill();
    wait_led(&[nodes.node(0), nodes.node(2)], &["a", "c"]);
    nodes.await_writes();
    let survivors = [nodes.node(0), nodes.node(2)];
    check_everywhere(&survivors, &nodes.parts.ledgers, 0, &nodes.parts.findings);
    nodes.restart_empty(1);
    // The node gets the partitions of another one earlier than those that are given back.
    assert_eq!(nodes.node(2).http().post("/-/drain", &[]).status, 200);
    let all = [nodes.node(0), nodes.node(1), nodes.node(2)];
    wait_led(&all, &["a", "b"]);
    let led = ClusterView::read(&nodes.node(0).http()).led_by("b");
    assert!(led.len() >= 2, "{led:?}");
    nodes.await_writes();
    nodes.finish(FAILOVER_MAX);
}

#[test]
fn stopped_node_hands_off_its_partitions_within_a_second() {
    let mut nodes = LoadedNodes::start();
    let server = nodes.take(1);
    let begin = Instant::now();
    assert!(server.stop().success(), "a stop with an error");
    println!("the node stopped after {:?}", begin.elapsed());
    wait_led(&[nodes.node(0), nodes.node(2)], &["a", "c"]);
    println!("its partitions were led after {:?}", begin.elapsed());
    nodes.await_writes();
    nodes.finish(HAND_OFF_MAX);
}

#[test]
fn suspended_node_follows_and_gives_no_old_answer() {
    let mut nodes = LoadedNodes::start();
    let suspended = nodes.take(1);
    suspended.signal(Signal::STOP);
    wait_led(&[nodes.node(0), nodes.node(2)], &["a", "c"]);
    nodes.await_writes();
    suspended.signal(Signal::CONT);
    let http = suspended.http();
    let (ledger, findings) = (&nodes.parts.ledgers[0], &nodes.parts.findings);
    let from = crate::now_ms() - 60_000;
    // It answers, and each of its answers is compared from its first moment on.
    let mut answered = 0;
    wait_for("twenty answers of the suspended node", || {
        if ledger.check(&http, from, "stale", findings) == 200 {
            answered += 1;
        }
        answered >= 20
    });
    nodes.parts.doors.open(1, &suspended.address);
    nodes.servers[1] = Some(suspended);
    wait_for("all nodes to agree on the leaders", || {
        let views = nodes
            .servers
            .iter()
            .flatten()
            .map(|s| ClusterView::read(&s.http()));
        let views: Vec<_> = views.map(|view| view.leaders()).collect();
        let is_led = views[0].iter().all(|(leader, _)| leader.is_string());
        is_led && views.iter().all(|view| *view == views[0])
    });
    nodes.await_writes();
    nodes.finish(FAILOVER_MAX);
}

/// Replaces the log of a partition in the bucket by a file, so that its requests fail.
fn block_log(cluster: &TestCluster, partition: u64) {
    let log = cluster.bucket().join(format!("log/{partition}"));
    std::fs::rename(&log, cluster.spare(&partition.to_string())).unwrap();
    std::fs::write(&log, "").unwrap();
}

fn unblock_log(cluster: &TestCluster, partition: u64) {
    let log = cluster.bucket().join(format!("log/{partition}"));
    std::fs::remove_file(&log).unwrap();
    std::fs::rename(cluster.spare(&partition.to_string()), &log).unwrap();
}

/// Asks a node for all series, and returns its answer. The answer must not take longer than
/// the death of a node and the wait of a read.
fn ask(http: &Http, path: &str, consistency: &str) -> crate::harness::http::Answer {
    let begin = Instant::now();
    let answer = http.get_with(path, &[("X-Firn-Consistency", consistency)]);
    let elapsed = begin.elapsed();
    assert!(
        elapsed < Duration::from_secs(10),
        "{path}: an answer after {elapsed:?}"
    );
    answer
}

#[test]
fn partial_answer_names_the_partitions_without_a_leader_and_others_are_rejected() {
    let cluster = TestCluster::new(
        "flush_interval: 50ms, read_lease: 500ms, strong_wait: 1s",
        &[],
    );
    let servers = cluster.start_all();
    let spread = SpreadSeries::store(&servers);
    let http = servers[0].http();
    let partial = spread.path("&partial=true");
    let document = ask(&http, &partial, "strong").json();
    assert_eq!(
        (result_count(&document), document.get("warnings")),
        (SERIES, None)
    );
    let answer = ask(&http, &spread.path("&partial=maybe"), "strong");
    assert_eq!(answer.status, 400, "{}", answer.body);
    let document = ask(&http, &spread.path(""), "eventual").json();
    assert_eq!(result_count(&document), SERIES, "{document}");
    let missing = ClusterView::read(&http).led_by("b");
    missing
        .iter()
        .for_each(|partition| block_log(&cluster, *partition));
    servers[1].signal(Signal::STOP);
    // Also while the others wait for the node: each answer is complete or names its partitions.
    let mut document = serde_json::Value::Null;
    wait_for("warnings", || {
        document = ask(&http, &partial, "strong").json();
        let warnings = document["warnings"].to_string();
        missing
            .iter()
            .all(|p| warnings.contains(&format!("partition {p} ")))
    });
    let found = result_count(&document);
    assert!(found > 0 && found < SERIES, "{document}");
    let answer = ask(&http, &spread.path(""), "strong");
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert_eq!(answer.json()["errorType"], "unavailable", "{}", answer.body);
    assert!(answer.body.contains("partition"), "{}", answer.body);
    missing
        .iter()
        .for_each(|partition| unblock_log(&cluster, *partition));
    servers[1].signal(Signal::CONT);
    for server in &servers {
        wait_within("complete answers", FAILOVER_MAX, || {
            ask(&server.http(), &spread.path(""), "strong").status == 200
        });
        spread.check(&server.http());
    }
}
