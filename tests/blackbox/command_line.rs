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
fn help_answers() {
    let help = run(&["--help"]);
    assert_eq!((help.0, help.2.as_str()), (Some(0), ""));
    for word in [
        "Usage: firn [OPTIONS] <COMMAND>",
        "  serve ",
        "  completions ",
    ] {
        assert!(help.1.contains(word), "{}", help.1);
    }
    let help = run(&["serve", "--help"]).1;
    assert!(help.contains("--config <FILE>\n"), "{help}");
    let (code, out, err) = run(&[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("Usage: firn [OPTIONS] <COMMAND>"), "{err}");
}

#[test]
fn words_that_are_nearly_right_are_guessed() {
    for (args, first, guess) in [
        (
            &["sevre"][..],
            "firn: unknown command \"sevre\"\n",
            "firn serve\n",
        ),
        (&["swerve"], "firn: unknown command \"swerve\"\n", ""),
        (
            &["tsdb", "verfy"],
            "firn: unknown command \"verfy\"\n",
            "firn tsdb verify\n",
        ),
        (
            &["serve", "--storage.tsdb.pth=x"],
            "firn: unknown flag --storage.tsdb.pth\n",
            "--storage.tsdb.path",
        ),
        (
            &["query", "instant", "--tme=1", "x", "up"],
            "firn: unexpected argument '--tme' found\n",
            "'--time'",
        ),
    ] {
        let (code, _, err) = run(args);
        assert_eq!(code, Some(2), "{args:?}");
        assert!(err.starts_with(first), "{args:?}: {err}");
        assert!(err.contains(guess), "{args:?}: {err}");
    }
}

#[test]
fn completions_and_man_pages_know_the_flags_of_serve() {
    let flag = "--storage.tsdb.retention.time";
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, err) = run(&["completions", shell]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{shell}");
        assert!(out.contains(flag.trim_start_matches('-')), "{shell}: {out}");
    }
    let (code, page, err) = run(&["man", "serve"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(page.contains(".TH firn-serve 1"), "{page}");
    assert!(page.replace('\\', "").contains(flag), "{page}");
    let dir = tempfile::tempdir().unwrap();
    let (code, ..) = run(&["man", "--dir", dir.path().to_str().unwrap()]);
    assert_eq!(code, Some(0));
    for name in ["firn.1", "firn-serve.1", "firn-query-range.1"] {
        assert!(dir.path().join(name).is_file(), "{name}");
    }
    assert_eq!(run(&["man", "nothing"]).0, Some(1));
    let file = dir.path().join("firn.1").display().to_string();
    let (code, _, err) = run(&["man", "--dir", &file]);
    assert_eq!(code, Some(1), "{err}");
    let want = format!("firn man: create folder {file}: ");
    assert!(err.starts_with(&want), "{err}");
    let taken = dir.path().join("taken");
    let page = taken.join("firn-check-config.1");
    std::fs::create_dir_all(&page).unwrap();
    let (code, _, err) = run(&["man", "--dir", taken.to_str().unwrap()]);
    let want = format!("firn man: write {}: ", page.display());
    assert_eq!(code, Some(1), "{err}");
    assert!(err.starts_with(&want), "{err}");
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
