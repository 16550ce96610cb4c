//! A server whose log is in a bucket, here a folder: lost disks, a second process, an outage.

use crate::harness::http::Http;
use crate::harness::server::{Server, command, firn, wait_for};
use crate::harness::write::{Series, body};
use crate::refusal::Refusal;
use crate::{Kept, now_ms};
use std::path::PathBuf;
use tempfile::TempDir;

/// A bucket, and the configs and data folders of nodes.
struct Cluster(TempDir);

impl Cluster {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn bucket(&self) -> PathBuf {
        self.0.path().join("bucket")
    }

    fn data(&self, node: &str) -> PathBuf {
        self.0.path().join(format!("data-{node}"))
    }

    /// Returns the flags of a node with more keys of `firn.cluster`.
    fn flags(&self, node: &str, keys: &str) -> [String; 2] {
        let config = self.0.path().join(format!("{node}.yml"));
        let bucket = self.bucket();
        let text = format!(
            "firn:\n  cluster: {{bucket: \"file://{}\", node: {node}, flush_interval: 20ms, \
             read_lease: 300ms, strong_wait: 1s{keys}}}\n",
            bucket.display()
        );
        std::fs::write(&config, text).unwrap();
        ["--config".to_owned(), config.display().to_string()]
    }

    fn start(&self, node: &str) -> Server {
        let [flag, config] = self.flags(node, ", partitions: 3");
        let admin = "--web.enable-admin-api";
        Server::start(&self.data(node), &[&flag, &config, admin])
    }

    fn refusal(&self, node: &str, keys: &str) -> String {
        let [flag, config] = self.flags(node, keys);
        let refusal = Refusal::of(command(&self.data(node), &[&flag, &config]));
        assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
        refusal.line().to_owned()
    }
}

/// Returns the report of an audit of the bucket, and whether it is sound.
fn audit(cluster: &Cluster) -> (bool, String) {
    let url = format!("file://{}", cluster.bucket().display());
    let output = firn().args(["cluster", "audit", &url]).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), text)
}

fn write(http: &Http, name: &str) -> u16 {
    let series = Series::new(&[("__name__", name)], &[(now_ms(), 1.0)]);
    http.write(&body(&[series])).status
}

#[test]
fn killed_node_without_its_data_folder_restores_every_acknowledged_sample() {
    let cluster = Cluster::new();
    let server = cluster.start("a");
    let kept = Kept::store(&server.http());
    server.kill();
    std::fs::remove_dir_all(cluster.data("a")).unwrap();
    let server = cluster.start("a");
    kept.check(&server.http(), "a kill and a lost data folder");
    assert!(server.stop().success());
    std::fs::remove_dir_all(cluster.data("a")).unwrap();
    let server = cluster.start("a");
    kept.check(&server.http(), "a stop and a lost data folder");
    drop(server);
    let (is_sound, report) = audit(&cluster);
    assert!(is_sound, "{report}");
    let log = cluster.bucket().join("log/0");
    let first = std::fs::read_dir(&log).unwrap().map(|e| e.unwrap().path());
    std::fs::remove_file(first.min().unwrap()).unwrap();
    let (is_sound, report) = audit(&cluster);
    assert!(!is_sound, "a missing segment is not found: {report}");
}

#[test]
fn node_scrapes_itself_under_its_name_and_exports_metrics_of_its_log() {
    let cluster = Cluster::new();
    let server = cluster.start("node-a");
    let http = server.http();
    wait_for("the first scrape", || {
        let result = http.query("up{job=\"firn\",instance=\"node-a\"}", now_ms());
        result[0]["value"][1] == "1"
    });
    let metrics = http.get("/metrics").body;
    for name in [
        "firn_log_creates_total{outcome=\"stored\"}",
        "firn_bucket_requests_total",
    ] {
        assert!(metrics.contains(name), "{name} is missing");
    }
}

#[test]
fn snapshots_and_deletes_are_rejected_by_a_node_of_several_partitions() {
    let cluster = Cluster::new();
    let server = cluster.start("a");
    let http = server.http();
    assert_eq!(write(&http, "kept"), 204);
    let reject = |route: &str, form: &[(&str, &str)], status: u16, error: &str| {
        let answer = http.post(&format!("/api/v1/admin/tsdb/{route}"), form);
        assert_eq!(answer.status, status, "{route}: {}", answer.body);
        assert_eq!(answer.json()["error"], error, "{route}");
    };
    let snapshots = "create snapshot: snapshots of several partitions are not supported";
    reject("snapshot", &[], 500, snapshots);
    let deletes = "deletes are not supported in a cluster";
    reject("delete_series", &[("match[]", "kept")], 422, deletes);
    reject("clean_tombstones", &[], 422, deletes);
    assert_eq!(http.query("count(kept)", now_ms())[0]["value"][1], "1");
}

#[test]
fn second_process_takes_over_and_the_first_ends_with_one_line() {
    let cluster = Cluster::new();
    let mut first = cluster.start("a");
    let kept = Kept::store(&first.http());
    let second = cluster.start("b");
    kept.check(&second.http(), "a takeover");
    assert_eq!(first.wait_end().code(), Some(1));
    let lines = first.log();
    let line = lines.iter().find(|line| line.starts_with("firn: "));
    let line = line.unwrap_or_else(|| panic!("{lines:?}"));
    assert!(line.starts_with("firn: cluster: partition "), "{line}");
    assert_eq!(write(&second.http(), "after"), 204);
}

#[test]
fn node_with_other_settings_than_the_cluster_does_not_start() {
    let cluster = Cluster::new();
    drop(cluster.start("a"));
    let line = cluster.refusal("b", ", partitions: 4");
    assert!(
        line.contains("4, but the cluster in the bucket has 3"),
        "{line}"
    );
    let format = cluster.bucket().join("cluster/format");
    let text = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    let line = cluster.refusal("b", ", partitions: 3");
    assert!(line.contains("version 2, expected version 1"), "{line}");
    let line = cluster.refusal("c", ", partitions: 0");
    assert!(
        line.contains("firn.cluster.partitions: expected 1 to 1024"),
        "{line}"
    );
}

#[test]
fn data_folder_of_a_single_node_is_refused_and_untouched() {
    let cluster = Cluster::new();
    let data = cluster.data("a");
    let server = Server::start(&data, &[]);
    let kept = Kept::store(&server.http());
    assert!(server.stop().success());
    let line = cluster.refusal("a", ", partitions: 3");
    assert!(line.contains(data.to_str().unwrap()), "{line}");
    let server = Server::start(&data, &[]);
    kept.check(&server.http(), "a refused cluster");
}

#[test]
fn node_without_its_bucket_rejects_writes_and_strong_reads_and_goes_on_afterwards() {
    let cluster = Cluster::new();
    let server = cluster.start("a");
    let http = server.http();
    let kept = Kept::store(&http);
    let (bucket, gone) = (cluster.bucket(), cluster.0.path().join("gone"));
    std::fs::rename(&bucket, &gone).unwrap();
    wait_for("writes to be rejected", || {
        let series = Series::new(&[("__name__", "lost")], &[(now_ms(), 1.0)]);
        let answer = http.write(&body(&[series]));
        if answer.status == 503 {
            assert!(!answer.header("retry-after").is_empty(), "{}", answer.body);
        }
        answer.status == 503
    });
    let ask = |consistency: &str| {
        let path = format!(
            "/api/v1/query?query=kept&time={}",
            kept.time_ms as f64 / 1e3
        );
        http.get_with(&path, &[("X-Firn-Consistency", consistency)])
    };
    wait_for("strong reads to fail", || ask("strong").status == 503);
    let error = ask("strong").json();
    assert_eq!(error["errorType"], "unavailable", "{error}");
    let answer = ask("eventual");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["data"]["result"], kept.answer);
    assert_eq!(ask("weak").status, 400);
    std::fs::rename(&gone, &bucket).unwrap();
    wait_for("writes to be accepted", || write(&http, "later") == 204);
    kept.check(&http, "an outage");
}
