//! Retention by time and size of a running server, and its changes.

use crate::Kept;
use crate::harness::http::Http;
use crate::harness::server::{Server, command, spawn, wait_for};
use rustix::process::Signal;

/// Returns the retention that the server reports.
fn shown(http: &Http) -> String {
    let info = http.get("/api/v1/status/runtimeinfo").json();
    info["data"]["storageRetention"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Returns the value of one of the server's own metrics.
fn metric(http: &Http, name: &str) -> f64 {
    let page = http.get("/metrics").body;
    let lines = page.lines().find_map(|line| line.strip_prefix(name));
    let value = lines.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {page}"))
}

#[test]
fn retention_follows_flags_and_then_each_reload_of_the_config() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("firn.yml");
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    write("");
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--storage.tsdb.retention.size=1536MB",
        "--web.enable-lifecycle",
    ];
    let server = Server::start(&data.path().join("data"), &flags);
    let http = server.http();
    assert_eq!(shown(&http), "1GiB512MiB");
    let kept = Kept::store(&http);
    write("storage: {tsdb: {retention: {time: 36h, size: 512MB, percentage: 12.5}}}\n");
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    assert_eq!(shown(&http), "1d12h or 512MiB or 12.5%");
    server.wait_log("size has no effect: storage.tsdb.retention.percentage");
    let seconds = "firn_storage_retention_limit_seconds";
    wait_for("the limits of the store", || {
        metric(&http, seconds) == 129_600.0
            && metric(&http, "firn_storage_retention_limit_percentage") == 12.5
    });
    write("storage: {tsdb: {retention: {size: 512MB}}}\n");
    server.signal(Signal::HUP);
    wait_for("the new limit of size", || {
        metric(&http, "firn_storage_retention_limit_bytes") == (512u64 << 20) as f64
    });
    assert_eq!(
        (shown(&http).as_str(), metric(&http, seconds)),
        ("512MiB", 0.0)
    );
    write("storage: {tsdb: {retention: {percentage: 101}}}\n");
    assert_eq!(http.post("/-/reload", &[]).status, 500);
    assert_eq!(shown(&http), "512MiB");
    kept.check(&http, "reloads");
    let beside = "next start only\" key=storage.tsdb.retention";
    assert!(!server.log().iter().any(|line| line.contains(beside)));
}

#[test]
fn retention_that_is_no_size_is_refused_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--storage.tsdb.retention.size=much"];
    let output = spawn(command(data.path(), &flags))
        .wait_with_output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("flag --storage.tsdb.retention.size: not a valid size"),
        "{err}"
    );
}
