//! `firn scenario`: two servers under a mirrored load while they are killed, stopped and upgraded.

use crate::harness::server::firn;
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;

/// Addresses that were free a moment ago.
fn free_addresses() -> [String; 3] {
    let sockets = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().to_string())
}

fn run(scenario: &Path, dir: &Path, more: &[&str]) -> (i32, String) {
    let mut command = firn();
    command
        .arg("scenario")
        .arg(scenario)
        .arg("--run")
        .arg(dir)
        .args(more);
    let output = command.output().expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn candidate_under_kills_and_upgrades_has_every_acked_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let [baseline, candidate, mirror] = free_addresses();
    let config = dir.path().join("firn.yml");
    std::fs::write(&config, "scrape_configs: []\n").unwrap();
    let serve = "['{firn}', serve, --config, '{config}', --listen, '{address}', --data, '{data}']";
    let text = format!(
        "systems:\n  baseline: {{command: {serve}, address: '{baseline}'}}\n  \
         candidate: {{command: {serve}, address: '{candidate}'}}\n\
         mirror: '{mirror}'\n\
         load: {{series: 376, interval: 1s, duration: 7s, churn: 0.5, churn_period: 3s}}\n\
         steps:\n- {{at: 1s, kill: candidate, down: 1s}}\n- {{at: 3s, pause: baseline, for: 1s}}\n\
         - {{at: 4s, restart: candidate}}\n- {{at: 5s, upgrade: candidate, command: {serve}}}\n\
         compare: {{queries: [list.txt], generate: 20}}\n"
    );
    let scenario = dir.path().join("kills.yml");
    std::fs::write(&scenario, text).unwrap();
    std::fs::write(
        dir.path().join("list.txt"),
        "sum(rate(http_requests_total[1m]))\n",
    )
    .unwrap();
    let set = format!("config={}", config.display());
    let set = ["--set", set.as_str()];
    let folder = dir.path().join("run");
    let (code, text) = run(&scenario, &folder, &set);
    assert_eq!(code, 0, "{text}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let result: Value = serde_json::from_str(&read("result.json")).unwrap();
    assert_eq!(result["passed"], true, "{result:#}");
    let acked = result["checks"][2]["what"].as_str().unwrap();
    let wanted = "the baseline has 2256 samples, 2256 were acknowledged, and 376 staleness markers";
    assert_eq!(acked, wanted);
    let events = read("events.log");
    for event in [
        "candidate: Kill",
        "baseline: Pause",
        "candidate: Restart",
        "Upgrade",
    ] {
        assert!(events.contains(event), "{events}");
    }
    assert!(folder.join("scenario.yml").is_file() && folder.join("list.txt").is_file());

    // The run goes on behind its load, and says no where a check no longer holds.
    let kept = folder.join("scenario.yml");
    let strict = read("scenario.yml") + "checks: {push_max: 0s}\n";
    std::fs::write(&kept, strict).unwrap();
    let (code, text) = run(&kept, &folder, &set);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("the load is done; going on with the comparison"),
        "{text}"
    );
    assert!(text.contains("push_max FAILS"), "{text}");
    assert!(text.contains("acked holds"), "{text}");
}

#[test]
fn scenario_that_cannot_run_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("bad.yml");
    let folder = dir.path().join("run");
    std::fs::write(&scenario, "systems: {baseline: {}}\n").unwrap();
    let (code, text) = run(&scenario, &folder, &[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("bad.yml:1:"), "{text}");
    let [baseline, candidate, mirror] = free_addresses();
    let text = format!(
        "systems:\n  baseline: {{command: ['false'], address: '{baseline}'}}\n  \
         candidate: {{command: ['false'], address: '{candidate}'}}\n\
         mirror: '{mirror}'\nload: {{series: 376, interval: 1s, duration: 2s}}\n\
         compare: {{generate: 1}}\n"
    );
    std::fs::write(&scenario, text).unwrap();
    let (code, text) = run(&scenario, &folder, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("baseline ended with exit status: 1; see "),
        "{text}"
    );
}
