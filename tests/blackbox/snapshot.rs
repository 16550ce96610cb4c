//! Snapshots of a server under write load, and folders created by `firn tsdb snapshot`.

use crate::harness::http::{Answer, Http};
use crate::harness::server::{Server, firn};
use crate::harness::write::{Series, body};
use crate::{Kept, now_ms};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ADMIN: &str = "--web.enable-admin-api";
const PATH: &str = "/api/v1/admin/tsdb/snapshot";

/// Returns the path of the snapshot that an answer names.
#[track_caller]
fn place(data: &Path, made: &Answer) -> PathBuf {
    assert_eq!(made.status, 200, "{}", made.body);
    let json = made.json();
    let name = json["data"]["name"].as_str().unwrap().to_owned();
    assert_eq!(json["status"], "success");
    let (time, number) = name.split_once('-').unwrap();
    assert!(time.len() == 16 && number.len() == 16, "{name}");
    data.join("snapshots").join(name)
}

/// Returns the number of batches of `n` that the server has, and the number of their samples.
fn counts(http: &Http, until: i64) -> (usize, usize) {
    let count = |expr: &str| {
        let answer = http.query(expr, until);
        let text = answer[0]["value"][1].as_str().unwrap_or("0");
        text.parse::<usize>().unwrap()
    };
    (
        count("count_over_time(n{i=\"0\"}[1h])"),
        count("sum(count_over_time(n[1h]))"),
    )
}

#[test]
fn snapshot_during_writes_is_a_folder_that_a_server_takes() {
    const SERIES: usize = 50;
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[ADMIN]);
    let http = server.http();
    let kept = Kept::store(&http);
    let start = now_ms() - 600_000;
    let numbers: Vec<String> = (0..SERIES).map(|number| number.to_string()).collect();
    let send = |http: &Http, batch: i64| {
        let series = |i: &String| {
            Series::new(
                &[("__name__", "n"), ("i", i)],
                &[(start + batch, batch as f64)],
            )
        };
        let all: Vec<Series> = numbers.iter().map(series).collect();
        assert_eq!(http.write(&body(&all)).status, 204);
    };
    (0..20).for_each(|batch| send(&http, batch));
    let is_over = Arc::new(AtomicBool::new(false));
    let (folder, sent) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let http = server.http();
            let mut batch = 20;
            while !is_over.load(Ordering::SeqCst) {
                send(&http, batch);
                batch += 1;
            }
            batch as usize
        });
        let folder = place(data.path(), &http.post(PATH, &[]));
        is_over.store(true, Ordering::SeqCst);
        (folder, writer.join().unwrap())
    });
    // The original server continues, and its end does not affect the snapshot.
    assert_eq!(counts(&http, now_ms()), (sent, sent * SERIES));
    server.kill();
    let copy = Server::start(&folder, &[]);
    kept.check(&copy.http(), "a snapshot");
    let (batches, samples) = counts(&copy.http(), now_ms());
    assert!((20..=sent).contains(&batches), "{batches} of {sent}");
    assert_eq!(samples, batches * SERIES, "no half of a batch");
    for line in copy.log() {
        assert!(
            !line.contains("level=ERROR") && !line.contains("level=WARN"),
            "{line}"
        );
    }
    assert!(copy.stop().success());
    let server = Server::start(data.path(), &[]);
    assert_eq!(counts(&server.http(), now_ms()), (sent, sent * SERIES));
}

#[test]
fn snapshot_without_the_head_has_no_log_and_starts() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[ADMIN]);
    Kept::store(&server.http());
    let made = server.http().post(PATH, &[("skip_head", "true")]);
    let folder = place(data.path(), &made);
    assert_eq!(std::fs::read_dir(folder.join("wal")).unwrap().count(), 0);
    let copy = Server::start(&folder, &[]);
    assert_eq!(copy.http().query("kept", now_ms()), serde_json::json!([]));
    Kept::store(&copy.http());
}

#[test]
fn snapshot_without_the_flag_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let refused = server.http().post(PATH, &[]);
    assert_eq!(refused.status, 503);
    assert!(
        refused.body.contains("admin APIs disabled"),
        "{}",
        refused.body
    );
    assert!(!data.path().join("snapshots").exists());
}

#[test]
fn tsdb_snapshot_and_list_read_a_folder_and_change_nothing_of_it() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let kept = Kept::store(&server.http());
    let tsdb = |command: &str| {
        let output = firn()
            .arg("tsdb")
            .arg(command)
            .arg(data.path())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, _, err) = tsdb("snapshot");
    assert_eq!(code, Some(2));
    assert!(err.contains("locked"), "{err}");
    let (code, table, err) = tsdb("list");
    assert_eq!(
        (code, err.as_str()),
        (Some(0), ""),
        "a server may use the folder"
    );
    assert!(table.starts_with("BLOCK ULID "), "{table}");
    server.kill();
    let (code, made, err) = tsdb("snapshot");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{made}");
    let copy = Server::start(Path::new(made.trim()), &[]);
    kept.check(&copy.http(), "a snapshot");
}
