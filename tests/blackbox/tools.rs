//! Subcommands with promtool's names: their output and exit codes equal those recorded in
//! `tests/commands`, and those that query a server are run against a real one.

use crate::harness::server::{Server, firn};
use crate::{Kept, now_ms};
use firn_yaml::YamlNode;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// Output of a command.
struct Told {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(args: &[String], input: &str) -> Told {
    run_in(Path::new("."), args, input)
}

fn run_in(dir: &Path, args: &[String], input: &str) -> Told {
    let mut child = firn()
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that does not read its input closes the pipe.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("the binary ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Told {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs the cases in one file of `tests/commands`.
fn check(file: &str, cases_min: usize) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/commands");
    let text = std::fs::read_to_string(dir.join(file)).unwrap();
    let root = firn_yaml::parse(&text).unwrap().expect("cases");
    assert!(root.items().len() >= cases_min, "{}", root.items().len());
    for case in root.items() {
        let field = |key: &str| case.get(key).and_then(YamlNode::text).map(str::to_owned);
        let args = case.get("arguments").map_or(&[][..], YamlNode::items);
        let args: Vec<String> = args
            .iter()
            .map(|arg| arg.text().unwrap_or_default().to_owned())
            .collect();
        let dir = tempfile::tempdir().unwrap();
        for file in case.get("files").map_or(&[][..], YamlNode::items) {
            let [name, text] = file.items() else {
                panic!("a file has a name and a text: {args:?}");
            };
            let path = dir.path().join(name.text().unwrap_or_default());
            std::fs::write(path, text.text().unwrap_or_default()).unwrap();
        }
        let told = run_in(dir.path(), &args, &field("input").unwrap_or_default());
        let code = field("code").expect("an exit code").parse().unwrap();
        assert_eq!(told.code, Some(code), "{args:?}: {}", told.err);
        assert_eq!(told.out, field("out").unwrap_or_default(), "{args:?}");
        match (field("err"), code) {
            (Some(err), _) => assert_eq!(told.err, err, "{args:?}"),
            (None, 0) => assert_eq!(told.err, "", "{args:?}"),
            (None, _) => assert_ne!(told.err, "", "{args:?}"),
        }
    }
}

#[test]
fn promql_is_formatted_and_edited_as_promtool_does() {
    check("promql.yml", 60);
}

#[test]
fn metrics_are_checked_as_promtool_does() {
    check("metrics.yml", 90);
}

#[test]
fn rules_are_checked_and_tested_as_promtool_does() {
    check("rules.yml", 18);
}

#[test]
fn server_is_asked_for_its_health_as_promtool_does() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let url = format!("--url=http://{}/", server.address);
    for (name, said) in [("healthy", "Healthy"), ("ready", "Ready")] {
        let told = run(&words(&["check", name, &url]), "");
        assert_eq!(told.code, Some(0), "{}", told.err);
        assert!(told.err.starts_with("  SUCCESS:  "), "{}", told.err);
        assert!(told.err.contains(said), "{}", told.err);
    }
    let other = format!("--url=http://{}/no", server.address);
    let told = run(&words(&["check", "ready", &other]), "");
    assert_eq!(told.code, Some(1));
    assert!(told.err.starts_with("check failed: URL="), "{}", told.err);
    assert!(told.err.ends_with("status=404\n"), "{}", told.err);
    let told = run(&words(&["check", "ready", "--url=127.0.0.1:1"]), "");
    assert_eq!(told.code, Some(1));
}

#[test]
fn metrics_that_are_pushed_can_be_queried() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let url = format!("http://{}", server.address);
    let text = "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 2\na_sum 3\n\
                a_count 2\n# TYPE b counter\nb{job=\"x\"} 5\n";
    for (message, value) in [
        ("prometheus.WriteRequest", "v1"),
        ("io.prometheus.write.v2.Request", "v2"),
    ] {
        let args = words(&[
            "push",
            "metrics",
            "--protobuf_message",
            message,
            "--label=job=me",
            &format!("--label=by={value}"),
            &url,
        ]);
        let told = run(&args, text);
        assert_eq!(
            (told.code, told.err.as_str()),
            (Some(0), ""),
            "{}",
            told.out
        );
        let said = "Parsing standard input\n  SUCCESS: metrics pushed to remote write.\n";
        assert_eq!(told.out, said);
        let args = words(&[
            "query",
            "series",
            "--match",
            &format!("{{by=\"{value}\"}}"),
            &server.address,
        ]);
        let series = run(&args, "").out;
        assert_eq!(series.lines().count(), 5, "{series}");
        let b = format!("{{__name__=\"b\", by=\"{value}\", exported_job=\"x\", job=\"me\"}}\n");
        assert!(series.contains(&b), "{series}");
    }
    let told = run(&words(&["push", "metrics", &url, "/nowhere"]), "");
    assert_eq!(told.code, Some(1));
    let told = run(&words(&["push", "metrics", &url]), "b{ 5\n");
    assert_eq!(told.code, Some(1));
    assert!(told.err.starts_with("  FAILED: "), "{}", told.err);
}

#[test]
fn metrics_of_a_server_are_collected_in_an_archive() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let dir = tempfile::tempdir().unwrap();
    let url = format!("http://{}", server.address);
    let told = run_in(dir.path(), &words(&["debug", "metrics", &url]), "");
    assert_eq!(told.code, Some(0), "{}", told.err);
    let said = format!(
        "collecting: {url}/metrics\nCompiling debug information complete, all files written in \
         \"debug.tar.gz\".\n"
    );
    assert_eq!(told.out, said);
    let archive = dir.path().join("debug.tar.gz");
    let listed = std::process::Command::new("tar")
        .args(["-xzOf", archive.to_str().unwrap(), "metrics.txt"])
        .output()
        .expect("tar");
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.status.success());
    assert!(text.contains("firn_"), "{text}");
}

#[test]
fn buckets_are_analyzed_and_a_file_says_how_a_server_is_reached() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    Kept::store(&http);
    let url = format!("http://{}", server.address);
    let text =
        |count: u32| format!("h_bucket{{le=\"1\"}} {count}\nh_bucket{{le=\"+Inf\"}} {count}\n");
    let now = now_ms();
    for (back, count) in [(20_000, 1), (10_000, 2)] {
        let time = now - back;
        let stamped: String = text(count)
            .lines()
            .map(|line| format!("{line} {time}\n"))
            .collect();
        let told = run(&words(&["push", "metrics", &url]), &stamped);
        assert_eq!(told.code, Some(0), "{}", told.err);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("http.yml");
    std::fs::write(&file, "basic_auth: {username: u, password: p}\n").unwrap();
    let args = words(&[
        "query",
        "--http.config.file",
        file.to_str().unwrap(),
        "analyze",
        "--server",
        &url,
        "--type=histogram",
        "--match=h_bucket",
    ]);
    let told = run(&args, "");
    assert_eq!(told.code, Some(0), "{}", told.err);
    let line = "- h_bucket{job=\"promtool\"} (classic): 1/1.000/1/2\n";
    assert!(told.out.contains(line), "{}", told.out);
    std::fs::write(&file, "basic_auht: {}\n").unwrap();
    let told = run(&args, "");
    assert_eq!(told.code, Some(1));
    assert!(
        told.err.contains("unknown key \"basic_auht\""),
        "{}",
        told.err
    );
}

#[test]
fn targets_of_a_job_are_printed_and_a_job_that_is_missing_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
scrape_configs:
- job_name: web
  static_configs: [{targets: ['a:1', 'b:2']}]
  relabel_configs: [{source_labels: [__address__], regex: 'b:2', action: drop}]
- job_name: db
";
    std::fs::write(dir.path().join("prometheus.yml"), text).unwrap();
    let check = |job: &str| {
        let args = words(&["check", "service-discovery", "prometheus.yml", job]);
        run_in(dir.path(), &args, "")
    };
    let told = check("web");
    assert_eq!(
        (told.code, told.err.as_str()),
        (Some(0), ""),
        "{}",
        told.out
    );
    let targets: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(targets[0]["labels"]["instance"], "a:1");
    assert_eq!(targets[1]["discoveredLabels"]["__address__"], "b:2");
    assert_eq!(targets[1]["labels"], serde_json::json!({}));
    assert_eq!(targets[2], serde_json::Value::Null);
    let told = check("nobody");
    let err = "Job nobody not found. Select one of:\n\tweb\n\tdb\n";
    assert_eq!(
        (told.code, told.out.as_str(), told.err.as_str()),
        (Some(1), "", err)
    );
}
