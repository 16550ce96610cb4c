//! Subcommands other than `serve`.

use crate::harness::server::{Server, firn};
use crate::{Kept, now_ms};

/// Runs the binary; returns exit code, standard output and standard error.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = firn().args(args).output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn version_and_help_answer() {
    let (code, out, _) = run(&["--version"]);
    let want = format!(
        "firn {} (compatible with Prometheus 3.14.0)\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!((code, out), (Some(0), want));
    assert!(run(&["--help"]).1.starts_with("Usage: firn COMMAND\n"));
    assert!(
        run(&["serve", "--help"])
            .1
            .contains("--config FILE, --config.file FILE\n")
    );
    let (code, _, err) = run(&["swerve"]);
    assert_eq!(code, Some(2));
    assert!(
        err.starts_with("firn: unknown command \"swerve\"\n"),
        "{err}"
    );
}

#[test]
fn check_config_answers_as_promtool() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("good.yml", "global: {evaluation_interval: 1m}\n");
    let bad = file("bad.yml", "scrape_configs:\n- job_nam: x\n");
    let (code, out, _) = run(&["check", "config", &good]);
    let want =
        format!("Checking {good}\n SUCCESS: {good} is valid prometheus config file syntax\n\n");
    assert_eq!((code, out), (Some(0), want));
    let (code, out, err) = run(&["check", "config", &good, &bad]);
    assert_eq!(code, Some(1));
    assert!(out.contains(&format!("Checking {bad}\n")), "{out}");
    let want = format!("  FAILED: {bad}:2:3: unknown key \"job_nam\" in scrape_configs[0]\n");
    assert_eq!(err, want);
}

#[test]
fn query_prints_as_promtool() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let kept = Kept::store(&server.http());
    let time = format!("{}", kept.time_ms as f64 / 1000.0);
    let address = server.address.as_str();
    let query = |args: &[&str]| {
        let (code, out, err) = run(&[&["query"], args].concat());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
        out
    };
    let out = query(&["instant", "--time", &time, address, "kept{name=\"a\"}"]);
    assert_eq!(out, format!("kept{{name=\"a\"}} => 0.1 @[{time}]\n"));
    let out = query(&[
        "range",
        "--start",
        &time,
        "--end",
        &(time.clone() + "1"),
        address,
        "1",
    ]);
    assert!(out.starts_with(&format!("{{}} =>\n1 @[{time}]\n")), "{out}");
    let out = query(&["series", "--match", "kept", address]);
    assert_eq!(
        out,
        "{__name__=\"kept\", name=\"a\"}\n{__name__=\"kept\", name=\"b\"}\n"
    );
    assert_eq!(
        query(&["labels", "--match", "kept", address, "name"]),
        "a\nb\n"
    );
    let out = query(&[
        "instant",
        "--time",
        &time,
        "-o",
        "json",
        address,
        "scalar(vector(2))",
    ]);
    assert_eq!(out, format!("[{time},\"2\"]\n"));
}

#[test]
fn query_that_fails_says_why_and_exits_with_1() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let (code, _, err) = run(&["query", "instant", &server.address, "up{"]);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("query error: bad_data: "), "{err}");
    let (code, _, err) = run(&["query", "range", "--start", "2", "--end", "1", "x", "up"]);
    assert_eq!(
        (code, err.as_str()),
        (Some(1), "start time is not before end time\n")
    );
    let (code, _, err) = run(&["query", "series", "x"]);
    assert_eq!(code, Some(2));
    assert!(
        err.starts_with("required flag --match not provided\n"),
        "{err}"
    );
    let far = now_ms().to_string();
    let (code, ..) = run(&["query", "instant", "--time", &far, "127.0.0.1:1", "up"]);
    assert_eq!(code, Some(1));
}
