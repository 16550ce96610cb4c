//! Objects that another program deletes from the bucket, for example by a lifecycle rule: nodes and
//! the audit name them, and nothing is skipped in silence.

use super::{FAST, SpreadSeries};
use crate::harness::cluster::{ClusterView, NODES, TestCluster, wait_led};
use crate::harness::server::{Server, wait_for};
use crate::refusal::Refusal;
use serde_json::Value;
use std::path::PathBuf;

/// Requests of the test: enough that a segment in the middle of a log is no open end of it.
const STORES: usize = 12;

/// The partition whose log is damaged.
const PARTITION: usize = 0;

/// Returns the files of the log of the damaged partition.
fn segments(cluster: &TestCluster) -> Vec<PathBuf> {
    let log = cluster.bucket().join(format!("log/{PARTITION}"));
    let files = std::fs::read_dir(log).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn start_again(cluster: &TestCluster) -> Vec<Server> {
    (0..NODES.len()).map(|n| cluster.start_unready(n)).collect()
}

#[test]
fn deleted_format_is_created_again_while_a_node_runs_and_named_at_a_start() {
    let cluster = TestCluster::new(FAST, &[]);
    let servers = cluster.start_all();
    let spread = SpreadSeries::store(&servers);
    let format = cluster.bucket().join("cluster/format");
    let content = std::fs::read(&format).unwrap();
    std::fs::remove_file(&format).unwrap();
    let text = "another program deleted cluster/format, and this node created it again";
    wait_for("a status with the deletion", || {
        servers.iter().any(|server| {
            let status = ClusterView::read(&server.http());
            status.0["fault"] == text && server.log().iter().any(|line| line.contains(text))
        })
    });
    assert_eq!(std::fs::read(&format).unwrap(), content);
    servers.iter().for_each(|s| spread.check(&s.http()));
    servers.into_iter().for_each(Server::kill);
    std::fs::remove_file(&format).unwrap();
    let refusal = Refusal::of(cluster.node_command(0));
    assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
    let line = refusal.line();
    assert!(line.contains("cluster/format is missing"), "{line}");
    assert!(!format.exists(), "it was created");
    std::fs::write(&format, content).unwrap();
    let servers = start_again(&cluster);
    servers.iter().for_each(Server::wait_ready);
    wait_led(&servers.iter().collect::<Vec<_>>(), &NODES);
    servers.iter().for_each(|s| spread.check(&s.http()));
}

#[test]
fn deleted_segment_is_named_and_its_partition_has_no_answers_until_it_is_back() {
    let cluster = TestCluster::new(FAST, &[]);
    let servers = cluster.start_all();
    for _ in 1..STORES {
        SpreadSeries::store(&servers);
    }
    let spread = SpreadSeries::store(&servers);
    servers.into_iter().for_each(Server::kill);
    let deleted = segments(&cluster).swap_remove(STORES / 2);
    let spare = cluster.spare("segment");
    std::fs::rename(&deleted, &spare).unwrap();
    let number = deleted.file_name().unwrap().to_str().unwrap();
    let found = cluster.audit().unwrap_err();
    let expected = format!("segment {number} is missing");
    let short = format!("segment {} is missing", number.trim_start_matches('0'));
    assert!(
        found.contains(&expected) || found.contains(&short),
        "{found}"
    );
    let servers = start_again(&cluster);
    let is_named = |text: &str| text.contains(&expected) || text.contains(&short);
    wait_for("a status with the segment", || {
        servers.iter().any(|server| {
            let status = ClusterView::read(&server.http());
            let partition: &Value = &status.0["partitions"][PARTITION];
            let fault = partition["fault"].as_str().unwrap_or_default();
            let mut log = server.log().into_iter();
            is_named(fault) && log.any(|l| l.contains("level=ERROR") && is_named(&l))
        })
    });
    for server in &servers {
        let answer = server.http().get(&spread.path(""));
        assert_eq!(answer.status, 503, "{}", answer.body);
    }
    servers.into_iter().for_each(Server::kill);
    std::fs::rename(&spare, &deleted).unwrap();
    cluster.audit().unwrap();
    let servers = start_again(&cluster);
    servers.iter().for_each(Server::wait_ready);
    wait_led(&servers.iter().collect::<Vec<_>>(), &NODES);
    servers.iter().for_each(|s| spread.check(&s.http()));
}
