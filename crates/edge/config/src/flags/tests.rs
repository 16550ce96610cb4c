//! Command lines and what becomes of them.

use super::*;
use firn_wire::remote_write::RemoteWriteVersion;
use std::time::Duration;

fn run(args: &str) -> Result<CommandLine, String> {
    match parse(args.split_whitespace().map(OsString::from)) {
        Ok(Request::Run(line)) => Ok(*line),
        Ok(other) => panic!("{args}: {other:?}"),
        Err(e) => Err(e.to_string()),
    }
}

#[test]
fn flags_without_arguments_have_the_documented_defaults() {
    let line = run("").unwrap();
    let s = &line.settings;
    assert_eq!(s.listen, ["127.0.0.1:9090"]);
    assert_eq!(s.data_dir.to_str(), Some("./data"));
    assert_eq!(s.lookback, Duration::from_secs(300));
    assert_eq!(s.query_timeout, Duration::from_secs(120));
    assert_eq!((s.query_concurrency, s.query_samples_max), (20, 50_000_000));
    assert_eq!((s.retention_time, s.config_file.is_none()), (None, true));
    assert!(line.ignored.is_empty());
    assert_eq!(line.values.len(), FLAGS.len());
}

#[test]
fn flags_by_alias_and_by_name_set_the_same() {
    for args in [
        "--config a.yml --data d --listen :1 --listen :2",
        "--config.file=a.yml --storage.tsdb.path=d --web.listen-address=:1 --listen=:2",
    ] {
        let s = run(args).unwrap().settings;
        assert_eq!(
            s.config_file.as_deref().and_then(|p| p.to_str()),
            Some("a.yml")
        );
        assert_eq!(s.data_dir.to_str(), Some("d"));
        assert_eq!(s.listen, [":1", ":2"]);
    }
}

#[test]
fn flags_switch_and_negated_switch() {
    assert!(
        run("--web.enable-lifecycle")
            .unwrap()
            .settings
            .enable_lifecycle
    );
    assert!(
        !run("--no-web.enable-lifecycle")
            .unwrap()
            .settings
            .enable_lifecycle
    );
    let twice = run("--enable-feature=a,b --enable-feature c").unwrap();
    assert_eq!(twice.settings.features, ["a", "b", "c"]);
}

#[test]
fn flags_of_prometheus_without_meaning_are_accepted_and_named() {
    let line =
        run("--web.enable-remote-write-receiver --storage.tsdb.samples-per-chunk=x").unwrap();
    assert_eq!(
        line.ignored,
        [
            "web.enable-remote-write-receiver",
            "storage.tsdb.samples-per-chunk"
        ]
    );
    let value = |name| {
        line.values
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.as_str())
    };
    assert_eq!(value("storage.tsdb.samples-per-chunk"), Some("x"));
    assert_eq!(value("web.enable-remote-write-receiver"), Some("true"));
}

#[test]
fn flags_not_understood_are_errors() {
    for (args, want) in [
        ("--nope", "unknown flag --nope"),
        ("-x", "unknown flag -x"),
        ("word", "unexpected argument \"word\""),
        ("--no-data", "unknown flag --no-data"),
        ("--data", "flag --storage.tsdb.path needs a value"),
        (
            "--web.enable-lifecycle=1",
            "flag --web.enable-lifecycle takes no value",
        ),
        (
            "--query.timeout=1",
            "flag --query.timeout: not a valid duration string: \"1\"",
        ),
        (
            "--query.max-samples=0",
            "flag --query.max-samples: not a whole number greater than 0: \"0\"",
        ),
        (
            "--agent --data d --query.timeout=1s",
            "The following flag(s) can not be used in agent mode: [\"--storage.tsdb.path\" \
             \"--query.timeout\"]",
        ),
        (
            "--storage.agent.path d",
            "The following flag(s) can only be used in agent mode: [\"--storage.agent.path\"]",
        ),
        (
            "--log.level=loud",
            "flag --log.level: not one of debug, info, warn, error: \"loud\"",
        ),
    ] {
        assert_eq!(run(args).unwrap_err(), want);
    }
}

#[test]
fn flags_have_the_values_that_prometheus_reads() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("args.txt");
    std::fs::write(&file, "--web.enable-lifecycle\n--log.level=warn\n").unwrap();
    let s = run(&format!("@{}", file.display())).unwrap().settings;
    assert!(s.enable_lifecycle);
    assert_eq!(s.log_level, Some(tracing::Level::WARN));
    for text in ["DEBUG", "Debug", "dEBUG"] {
        let s = run(&format!("--log.level={text}")).unwrap().settings;
        assert_eq!(s.log_level, Some(tracing::Level::DEBUG), "{text}");
    }
    for (text, want) in [
        ("5e7", 50_000_000),
        ("1_000", 1000),
        ("1.9", 1),
        ("+7", 7),
        ("12.5e1", 125),
    ] {
        let s = run(&format!("--query.max-samples={text}"))
            .unwrap()
            .settings;
        assert_eq!(s.query_samples_max, want, "{text}");
    }
    for text in ["", "0x10", "inf", "nan", "1__0", "_1", "1e400", "5s"] {
        assert!(
            run(&format!("--query.max-samples={text}")).is_err(),
            "{text}"
        );
    }
    for (text, seconds) in [("0s", 300), ("0", 300), ("1h30m", 5400), ("1d", 86400)] {
        let s = run(&format!("--query.lookback-delta={text}"))
            .unwrap()
            .settings;
        assert_eq!(s.lookback, Duration::from_secs(seconds), "{text}");
    }
    for (text, bytes) in [
        ("1KB", 1024),
        ("1KiB", 1024),
        ("1.5GB", 3 << 29),
        ("+5B", 5),
        ("-1GB", 0),
    ] {
        let line = run(&format!("--storage.tsdb.retention.size={text}")).unwrap();
        assert_eq!(line.settings.retention_size, Some(bytes), "{text}");
    }
    let s = run("--config.auto-reload-interval=0s --alertmanager.notification-batch-size=0");
    let s = s.unwrap().settings;
    assert_eq!(
        (s.reload_interval.as_secs(), s.notifications_batch_max),
        (1, 256)
    );
    let s = run("--rules.max-concurrent-evals=0 --storage.remote.read-sample-limit=-1");
    let s = s.unwrap().settings;
    assert_eq!((s.rule_evaluations_max, s.remote_read_samples_max), (0, 0));
    let e = run("--web.search.max-limit=-1").unwrap_err();
    assert_eq!(
        e,
        "flag --web.search.max-limit: must not be negative: \"-1\""
    );
}

#[test]
fn flags_that_are_nearly_right_are_guessed() {
    let hint = |args: &str| {
        let words = args.split_whitespace().map(OsString::from);
        parse(words).unwrap_err().suggest_alternative()
    };
    let of_lookback = "a similar flag exists: --query.lookback-delta";
    assert_eq!(
        hint("--query.lookback-dleta=1m").as_deref(),
        Some(of_lookback)
    );
    assert_eq!(hint("--nothing.like.it"), None);
    assert_eq!(hint("--query.timeout=x"), None);
}

#[test]
fn messages_of_remote_write_are_both_or_those_that_are_named() {
    const FLAG: &str = "--web.remote-write-receiver.accepted-protobuf-messages";
    let (v1, v2) = (
        RemoteWriteVersion::V1.message_name(),
        RemoteWriteVersion::V2.message_name(),
    );
    let versions = |args: &str| {
        let line = run(&args.replace("FLAG", FLAG));
        line.map(|line| line.settings.write_versions)
    };
    assert_eq!(
        versions(""),
        Ok(vec![RemoteWriteVersion::V1, RemoteWriteVersion::V2])
    );
    assert_eq!(
        versions(&format!("FLAG={v1}")),
        Ok(vec![RemoteWriteVersion::V1])
    );
    assert_eq!(
        versions(&format!("FLAG={v2} FLAG={v1}")),
        Ok(vec![RemoteWriteVersion::V2, RemoteWriteVersion::V1])
    );
    for (args, why) in [
        ("FLAG=x".to_owned(), "protobuf message x, supported: "),
        (format!("FLAG={v2},{v2}"), "duplicated "),
    ] {
        let told = versions(&args).unwrap_err();
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn flags_take_what_follows_as_their_value_and_the_last_switch_counts() {
    let line = run("--web.external-url --listen --web.cors.origin= --log.level debug").unwrap();
    assert_eq!(line.settings.external_url, "--listen");
    assert_eq!(line.settings.cors_origin, "");
    let of = |args: &str| run(args).unwrap().settings.enable_lifecycle;
    assert!(of("--no-web.enable-lifecycle --web.enable-lifecycle"));
    assert!(!of(
        "--web.enable-lifecycle --web.enable-lifecycle --no-web.enable-lifecycle"
    ));
}

#[test]
fn help_shows_each_flag_that_has_an_effect_with_both_names_and_its_default() {
    let Ok(Request::Help(text)) = parse(["--help".into()]) else {
        panic!("help is asked for");
    };
    assert!(text.contains("Usage: firn serve [OPTIONS]"), "{text}");
    for flag in FLAGS {
        let shown = text.contains(&format!("--{}", flag.alias.unwrap_or(flag.name)));
        let acted_on = matches!(flag.effect, FlagEffect::Sets(_));
        assert_eq!(shown, acted_on, "{}", flag.name);
        if acted_on && flag.value.is_some() && !flag.default.is_empty() {
            let default = format!("[default: {}]", flag.default);
            assert!(text.contains(&default), "{}", flag.name);
        }
    }
    assert!(text.contains("[alias: --config.file]"), "{text}");
}

#[test]
fn command_of_flags_is_sound() {
    command().debug_assert();
}

#[test]
fn flags_are_unique_and_explained() {
    let mut names: Vec<_> = FLAGS.iter().map(|f| f.name).collect();
    names.extend(FLAGS.iter().filter_map(|f| f.alias));
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for flag in FLAGS {
        let acted_on = matches!(flag.effect, FlagEffect::Sets(_));
        assert_eq!(acted_on, !flag.help.is_empty(), "{}", flag.name);
    }
}
