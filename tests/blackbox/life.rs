//! Start, stop, reload, and data that survives the process.

use crate::harness::server::{DEADLINE, Server, command, spawn, wait_for};
use crate::harness::write::{Series, body};
use crate::refusal::Refusal;
use crate::{Kept, now_ms};
use rustix::process::Signal;
use std::time::Instant;

#[test]
fn server_stopped_and_started_has_its_data() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let kept = Kept::store(&server.http());
    assert!(server.stop().success());
    let server = Server::start(data.path(), &[]);
    kept.check(&server.http(), "a restart");
    for line in server.log() {
        assert!(
            !line.contains("level=ERROR") && !line.contains("level=WARN"),
            "{line}"
        );
    }
}

#[test]
fn server_interrupted_ends_cleanly() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path(), &[]);
    server.signal(Signal::INT);
    assert!(server.wait_end().success());
}

#[test]
fn server_without_config_scrapes_itself_at_once() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    wait_for("the first scrape", || {
        let result = http.query("up{job=\"firn\"}", now_ms());
        result[0]["value"][1] == "1"
    });
    let result = http.query("firn_build_info", now_ms());
    assert_eq!(
        result[0]["metric"]["version"],
        env!("CARGO_PKG_VERSION"),
        "{result}"
    );
}

#[test]
fn server_with_config_hides_nothing_and_scrapes_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("firn.yml");
    std::fs::write(
        &config,
        "global: {evaluation_interval: 10s}\nruntime: {gogc: 75}\n",
    )
    .unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--web.enable-otlp-receiver",
    ];
    let server = Server::start(&data.path().join("data"), &flags);
    let log = server.log().join("\n");
    assert!(
        log.contains("config key has no effect in Firn\" key=runtime"),
        "{log}"
    );
    assert!(
        log.contains("flag has no effect in Firn\" flag=web.enable-otlp-receiver"),
        "{log}"
    );
    let shown = server.http().get("/api/v1/status/config").json();
    assert!(
        shown["data"]["yaml"]
            .as_str()
            .unwrap()
            .contains("evaluation_interval: 10s")
    );
    assert_eq!(server.http().query("up", now_ms()), serde_json::json!([]));
}

#[test]
fn reload_takes_over_what_can_change_and_keeps_the_old_config_if_it_is_bad() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("firn.yml");
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    write("global: {evaluation_interval: 10s}\n");
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--web.enable-lifecycle",
    ];
    let server = Server::start(&data.path().join("data"), &flags);
    let http = server.http();
    let shown = || http.get("/api/v1/status/config").body;
    write("global: {evaluation_interval: 20s}\nfirn: {wal_sync: none}\n");
    server.signal(Signal::HUP);
    wait_for("the new config", || {
        shown().contains("evaluation_interval: 20s")
    });
    server.wait_log("takes effect at the next start only\" key=firn.wal_sync");
    write("global: {evaluation_intervall: 30s}\n");
    let answer = http.post("/-/reload", &[]);
    assert_eq!(answer.status, 500);
    let want = "firn.yml:1:10: unknown key \"evaluation_intervall\" in global";
    assert!(answer.body.contains(want), "{}", answer.body);
    assert!(shown().contains("evaluation_interval: 20s"));
    assert!(
        http.get("/metrics")
            .body
            .contains("firn_config_last_reload_successful 0")
    );
}

#[test]
fn config_that_changes_is_read_again_where_a_flag_says_so() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("firn.yml");
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    write("global: {evaluation_interval: 10s}\n");
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--config.auto-reload",
        "--config.auto-reload-interval=1s",
    ];
    let server = Server::start(&data.path().join("data"), &flags);
    let http = server.http();
    // Changes before the first check are part of its initial state.
    let mut seconds = 11;
    wait_for("the new config", || {
        seconds += 1;
        write(&format!("global: {{evaluation_interval: {seconds}s}}\n"));
        let shown = http.get("/api/v1/status/config").body;
        !shown.contains("evaluation_interval: 10s")
    });
    write("global: {evaluation_intervall: 30s}\n");
    server.wait_log("keeping the previous one");
    assert_eq!(http.get("/-/ready").status, 200);
}

#[test]
fn quit_over_http_needs_the_lifecycle_flag() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path(), &[]);
    assert_eq!(server.http().post("/-/quit", &[]).status, 403);
    assert!(server.try_end().is_none());
    drop(server);
    let mut server = Server::start(data.path(), &["--web.enable-lifecycle"]);
    assert_eq!(server.http().post("/-/quit", &[]).status, 200);
    assert!(server.wait_end().success());
}

#[test]
fn start_that_cannot_succeed_is_one_line_and_exit_code_1() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(&data.path().join("a"), &[]);
    let config = data.path().join("bad.yml");
    std::fs::write(&config, "global:\n  scrape_interval: soon\n").unwrap();
    let config = config.to_str().unwrap();
    for (flags, code, want) in [
        (
            vec!["--listen", &server.address],
            1,
            "Address already in use",
        ),
        (
            vec!["--config", config],
            1,
            "bad.yml:2:20: global.scrape_interval: not a valid",
        ),
        (
            vec!["--config", "/nowhere.yml"],
            1,
            "load config /nowhere.yml: No such file",
        ),
        (
            vec!["--web.config.file", "x"],
            1,
            "load web config: open x: no such file or directory",
        ),
        (
            vec!["--web.cors.origin", "("],
            1,
            "flag --web.cors.origin: regex parse error",
        ),
        (vec!["--nope"], 2, "unknown flag --nope"),
    ] {
        let refusal = Refusal::of(command(&data.path().join("b"), &flags));
        assert_eq!(refusal.code, Some(code), "{flags:?}: {}", refusal.stderr);
        assert!(
            refusal.line().contains(want),
            "{flags:?}: {}",
            refusal.stderr
        );
    }
}

#[test]
fn server_that_still_starts_answers_503_and_can_be_stopped() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::from_child(spawn(command(data.path(), &[])));
    let end = Instant::now() + DEADLINE;
    loop {
        let answer = server.http().get("/-/ready");
        match answer.status {
            200 => break,
            503 => assert!(Instant::now() < end, "never ready"),
            status => panic!("status {status}: {}", answer.body),
        }
    }
    assert!(server.stop().success());
}

#[test]
fn memory_used_beside_resident_size_is_near() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let now = now_ms();
    for part in 0..40 {
        let series: Vec<Series> = (0..1_000)
            .map(|number| {
                let name = format!("of part {part} the {number}th");
                let labels = [("__name__", "weighed"), ("name", name.as_str())];
                let samples: Vec<_> = (0..10).map(|i| (now + i, (i * number) as f64)).collect();
                Series::new(&labels, &samples)
            })
            .collect();
        let answer = http.write(&body(&series));
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
    // The gauges are updated by a sweep that takes some seconds.
    wait_for("used and resident memory to be near", || {
        let text = http.get("/metrics").body;
        let gauge = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        let used = gauge("firn_memory_used_bytes");
        let resident = gauge("process_resident_memory_bytes");
        println!("{used} bytes used, {resident} resident");
        (0.5..1.2).contains(&(used / resident))
    });
}
