//! `firn scenario`: two servers under a mirrored load while they are killed, stopped and upgraded.

use crate::harness::server::{firn, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Command line of a server in a scenario.
const SERVE: &str =
    "['{firn}', serve, --config, '{config}', --listen, '{address}', --data, '{data}']";

/// Returns addresses that are currently free.
fn free_addresses<const N: usize>() -> [String; N] {
    let sockets = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().to_string())
}

/// A scenario with two servers, further systems and queries, in its own folder.
struct Scene {
    dir: tempfile::TempDir,
    /// Addresses of the systems, and of the mirror as the last one.
    addresses: [String; 4],
}

impl Scene {
    /// Creates a scenario. `third` contains lines for the third system, `rest` the lines after the
    /// load.
    fn new(third: &str, load: &str, rest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let addresses: [String; 4] = free_addresses();
        let [a, b, c, mirror] = &addresses;
        let third = third.replace("ADDRESS", c);
        let text = format!(
            "systems:\n  baseline: {{command: {SERVE}, address: '{a}'}}\n  \
             candidate: {{command: {SERVE}, address: '{b}', data: '{{run}}/disk/candidate'}}\n\
             {third}mirror: '{mirror}'\nload: {{series: 376, {load}}}\n\
             compare: {{queries: [list.txt], generate: 10}}\n{rest}"
        );
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("scene.yml", &text);
        write("list.txt", "sum(rate(http_requests_total[1m]))\n");
        write("firn.yml", "scrape_configs: []\n");
        Self { dir, addresses }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("run").join(name)).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let mut command = firn();
        command
            .arg("scenario")
            .arg(self.path("scene.yml"))
            .arg("--run")
            .arg(self.path("run"))
            .arg("--set")
            .arg(format!("config={}", self.path("firn.yml").display()));
        command
    }

    /// Starts the run and waits until its event log contains `event`.
    fn start_until(&self, event: &str) -> Child {
        let mut command = self.command();
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        wait_for(event, || self.read("events.log").contains(event));
        child.unwrap()
    }

    /// Runs the scenario to its end; returns the exit code and the output.
    fn run(&self) -> (i32, String) {
        let output = self.command().output().expect("the binary runs");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (output.status.code().unwrap(), text)
    }

    /// Returns whether the addresses of the run's processes are free again.
    fn is_silent(&self) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.all(|address| TcpListener::bind(address).is_ok())
    }
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
    let text = format!(
        "systems:\n  baseline: {{command: {SERVE}, address: '{baseline}'}}\n  \
         candidate: {{command: {SERVE}, address: '{candidate}'}}\n\
         mirror: '{mirror}'\n\
         load: {{series: 376, interval: 1s, duration: 7s, churn: 0.5, churn_period: 3s}}\n\
         steps:\n- {{at: 1s, kill: candidate, down: 1s}}\n- {{at: 3s, pause: baseline, for: 1s}}\n\
         - {{at: 4s, restart: candidate}}\n- {{at: 5s, upgrade: candidate, command: {SERVE}}}\n\
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

    // A completed run is judged again, and fails if a check no longer holds.
    let kept = folder.join("scenario.yml");
    let strict = read("scenario.yml") + "checks: {push_max: 0s}\n";
    std::fs::write(&kept, strict).unwrap();
    let (code, text) = run(&kept, &folder, &set);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("the run is complete; repeating its checks"),
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
    // A flag that the comparison would reject is rejected before the load.
    let scene = Scene::new("", "interval: 1s, duration: 9s", "");
    let path = scene.path("scene.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("generate: 10", "generate: 10, passes: [instants]");
    std::fs::write(&path, text).unwrap();
    let (code, text) = scene.run();
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("invalid value 'instants'"), "{text}");
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
        text.contains("baseline exited with exit status: 1; see "),
        "{text}"
    );
}

#[test]
fn run_that_is_stopped_or_killed_leaves_no_process_and_goes_on_where_it_was() {
    let rest =
        "steps:\n- {at: 1s, kill: candidate, down: 1s}\n- {at: 6s, pause: baseline, for: 1s}\n";
    let load = "interval: 1s, duration: 12s, churn: 0.5, churn_period: 3s";
    let scene = Scene::new("", load, rest);
    // After a signal to stop, all processes end.
    let child = scene.start_until("candidate: Start");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("stopped by a signal"), "{text}");
    assert!(scene.is_silent());
    // After a kill, the next start ends the remaining processes and continues with the load.
    let mut child = scene.start_until("the load was interrupted; sending it again");
    wait_for("the second load", || {
        scene
            .read("events.log")
            .matches("start of the load")
            .count()
            == 2
    });
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(!scene.is_silent());
    let (code, text) = scene.run();
    assert_eq!(code, 0, "{text}");
    let events = scene.read("events.log");
    assert_eq!(events.matches("candidate: Kill").count(), 1, "{events}");
    assert_eq!(events.matches("baseline: Pause").count(), 1, "{events}");
    let result: Value = serde_json::from_str(&scene.read("result.json")).unwrap();
    let acked = result["checks"][3]["what"].as_str().unwrap();
    assert!(
        acked.starts_with("the candidate has ") && acked.contains("were acknowledged"),
        "{acked}"
    );
    assert!(scene.is_silent());
    // Interrupted between load and comparison, and between comparison and checks.
    for (phase, line) in [
        (
            "compare",
            "the load is complete; continuing with the comparison",
        ),
        (
            "check",
            "the comparison is complete; continuing with the checks",
        ),
    ] {
        let state = scene.read("state.json");
        let state = state.replace("\"done\"", &format!("{phase:?}"));
        std::fs::write(scene.path("run/state.json"), state).unwrap();
        let (code, text) = scene.run();
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn system_that_is_added_has_what_is_sent_from_then_on() {
    let third = format!("  third: {{command: {SERVE}, address: 'ADDRESS'}}\n");
    // A paused system does not prevent another one from joining.
    let rest = "steps:\n- {at: 1s, pause: baseline, for: 3s}\n- {at: 2s, add: third}\n\
                - {at: 12s, kill: third, down: 1s}\n\
                checks: {read_share: 0.5, read_average: 10s}\n";
    let load = "interval: 1s, duration: 20s, churn: 0.5, churn_period: 6s, \
                queries: [list.txt], query_rate: 10";
    let scene = Scene::new(&third, load, rest);
    let (code, text) = scene.run();
    assert_eq!(code, 0, "{text}");
    let result: Value = serde_json::from_str(&scene.read("result.json")).unwrap();
    let checks = result["checks"].as_array().unwrap();
    let names: Vec<&str> = checks
        .iter()
        .map(|c| c["check"].as_str().unwrap())
        .collect();
    let wanted = [
        "push_max",
        "read_share",
        "read_average",
        "match_rate",
        "match_rate",
        "acked",
        "acked",
        "acked",
    ];
    assert_eq!(names, wanted);
    let asked = checks[1]["what"].as_str().unwrap();
    assert!(asked.ends_with(" queries succeeded"), "{asked}");
    let acked = checks[7]["what"].as_str().unwrap();
    assert!(acked.starts_with("the third has "), "{acked}");
    let report: Value = serde_json::from_str(&scene.read("report-third/report.json")).unwrap();
    assert!(
        report["passes"]["range"]["match"].as_u64().unwrap() > 0,
        "{report:#}"
    );

    let third = third.replace("{firn}", "false");
    let rest = "steps:\n- {at: 1s, add: third}\n- {at: 3s, remove: third}\n";
    let scene = Scene::new(&third, "interval: 1s, duration: 3s", rest);
    let (code, text) = scene.run();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("third exited with exit status: 1"), "{text}");
    assert!(scene.is_silent());
}

#[test]
fn system_that_is_removed_is_sent_nothing_more_and_ends() {
    let third = format!("  third: {{command: {SERVE}, address: 'ADDRESS'}}\n");
    let rest = "steps:\n- {at: 1s, add: third}\n- {at: 3s, remove: third}\n";
    let scene = Scene::new(&third, "interval: 1s, duration: 5s", rest);
    let (code, text) = scene.run();
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("the third"), "{text}");
    assert!(!scene.read("targets.yml").contains("third"));
    assert!(scene.path("run/third").is_dir());
}

#[test]
fn system_whose_disk_was_full_has_every_acked_sample_once() {
    let rest = "steps:\n- {at: 2s, fill: candidate, for: 4s}\n";
    let scene = Scene::new("", "interval: 1s, duration: 10s", rest);
    // The machine's own disk is not filled.
    let (code, text) = scene.run();
    if code != 2 {
        // The file system of the test environment is small.
        assert_eq!(code, 0, "{text}");
        return;
    }
    assert!(text.contains("bytes are free on its file system"), "{text}");
    let disk = scene.path("run/disk");
    std::fs::create_dir_all(&disk).unwrap();
    let script = "mount -t tmpfs -o size=200m firn \"$1\" && shift && exec \"$@\"";
    let inner = scene.command();
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, "sh"]).arg(&disk);
    command.arg(inner.get_program()).args(inner.get_args());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("candidate: Fill"), "{text}");
    assert!(text.contains("acked holds: the candidate has "), "{text}");
    // The mirror's requests were rejected meanwhile.
    let log = scene.read("candidate.log");
    assert!(log.contains("full"), "{log}");
}
