//! `firn tsdb` on the data folders of real servers.

use crate::Kept;
use crate::harness::server::{Server, firn};
use crate::harness::write::{Series, body};
use crate::now_ms;
use std::path::{Path, PathBuf};

/// Runs `firn tsdb`; returns exit code, standard output and standard error.
fn tsdb(args: &[&str], data: &Path) -> (Option<i32>, String, String) {
    let mut command = firn();
    let output = command.arg("tsdb").args(args).arg(data).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code();
    (code, text(output.stdout), text(output.stderr))
}

/// Returns the only file in a folder of `data` with this suffix.
fn only_file(data: &Path, folder: &str, suffix: &str) -> PathBuf {
    let names = std::fs::read_dir(data.join(folder)).unwrap();
    let paths = names.map(|name| name.unwrap().path());
    let is_it = |path: &PathBuf| path.extension().is_some_and(|s| s == suffix);
    let found: Vec<PathBuf> = paths.filter(is_it).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// Returns the data folder of a server that was stopped cleanly, with all samples in pages.
fn stopped() -> (tempfile::TempDir, Kept) {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let kept = Kept::store(&server.http());
    assert!(server.stop().success());
    (data, kept)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn tsdb_verify_of_a_whole_folder_exits_with_0() {
    let (data, _) = stopped();
    let (code, out, err) = tsdb(&["verify"], data.path());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("whole: "), "{out}");
    let (code, out, _) = tsdb(&["verify", "--json"], data.path());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["whole"]), (Some(0), &true.into()), "{out}");
    assert!(report["series"].as_u64().unwrap() >= 2, "{out}");
    assert!(report["pageSamples"].as_u64().unwrap() >= 2, "{out}");
}

#[test]
fn tsdb_verify_names_the_damaged_file_and_exits_with_1() {
    let (data, _) = stopped();
    let path = only_file(data.path(), "pages", "pages");
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(8).position(|w| w == b"FIRNPAGE").unwrap();
    flip(&path, at);
    let (code, out, err) = tsdb(&["verify"], data.path());
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(out.starts_with(&format!("pages/{name} at ")), "{out}");
    assert!(out.contains(" samples of "), "{out}");
    assert!(out.contains("\n1 damage: "), "{out}");
    let (code, out, _) = tsdb(&["verify", "--json"], data.path());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, Some(1));
    let damage = &report["damages"][0];
    assert_eq!(damage["kind"], "pages");
    assert!(damage["samples"].as_u64().unwrap() >= 2, "{out}");
}

#[test]
fn tsdb_verify_of_what_cannot_be_read_exits_with_2() {
    let empty = tempfile::tempdir().unwrap();
    let (code, _, err) = tsdb(&["verify"], empty.path());
    assert_eq!(code, Some(2));
    assert!(err.contains("is not a firn data folder"), "{err}");
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let (code, _, err) = tsdb(&["verify"], data.path());
    assert_eq!(code, Some(2));
    assert!(err.contains("is locked: another process"), "{err}");
    assert!(server.stop().success());
    let (code, _, err) = tsdb(&["mend"], data.path());
    assert_eq!(code, Some(2));
    assert!(err.starts_with("firn: unknown command \"mend\"\n"), "{err}");
    assert!(err.contains("Usage: firn tsdb"), "{err}");
}

#[test]
fn tsdb_repair_sets_aside_what_is_broken_and_keeps_the_rest() {
    let (data, kept) = stopped();
    let path = only_file(data.path(), "series", "series");
    flip(&path, std::fs::read(&path).unwrap().len() / 2);
    let damaged = std::fs::read(&path).unwrap();
    let (code, out, err) = tsdb(&["repair"], data.path());
    assert_eq!(code, Some(1), "{out}");
    assert!(out.ends_with("nothing was changed\n"), "{out}");
    assert!(err.contains("--yes"), "{err}");
    assert_eq!(std::fs::read(&path).unwrap(), damaged);
    let (code, out, err) = tsdb(&["repair", "--yes"], data.path());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("\nwhole: "), "{out}");
    let line = out
        .lines()
        .find_map(|line| line.strip_prefix("set aside in "));
    let copy = Path::new(line.unwrap())
        .join("series")
        .join(path.file_name().unwrap());
    assert_eq!(std::fs::read(copy).unwrap(), damaged);
    assert_eq!(tsdb(&["verify"], data.path()).0, Some(0));
    let (code, out, _) = tsdb(&["repair"], data.path());
    assert_eq!(code, Some(0), "{out}");
    let server = Server::start(data.path(), &[]);
    kept.check(&server.http(), "a repair");
    let is_damage = |line: &String| line.contains("damage");
    assert!(!server.log().iter().any(is_damage), "{:?}", server.log());
}

#[test]
fn tsdb_import_and_export_of_a_folder_of_prometheus() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lib/prometheus_tsdb/tests/plain");
    let source = source.to_str().unwrap();
    let (code, out, err) = tsdb(&["import", "prometheus", source, "--data"], &data);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("imported 3 blocks, "), "{out}");
    assert!(out.contains(" 940 samples, "), "{out}");
    assert!(out.contains(" KiB in "), "{out}");
    let (_, again, _) = tsdb(&["import", "prometheus", source, "--data"], &data);
    assert!(again.starts_with("imported 0 blocks, "), "{again}");
    assert!(again.contains(" there already\n"), "{again}");
    assert_eq!(tsdb(&["verify"], &data).0, Some(0));
    let exported = folder.path().join("out");
    let place = exported.to_str().unwrap();
    let export = |more: &[&str]| {
        let args = [&["export", "prometheus", place], more, &["--data"]].concat();
        tsdb(&args, &data)
    };
    let (code, _, err) = export(&["--match", "{"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.starts_with("firn tsdb: --match \"{\": "), "{err}");
    let (code, _, err) = export(&["--from", "soon"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("cannot parse \"soon\""), "{err}");
    let (code, out, err) = export(&["--match", "{__name__=~\".+\"}"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains(" 940 samples "), "{out}");
    let server = Server::start(&data, &["--storage.tsdb.retention.time=100y"]);
    let (code, _, err) = tsdb(&["import", "prometheus", source, "--data"], &data);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("is locked: another process"), "{err}");
    assert!(server.stop().success());
    let none = folder.path().join("none");
    let (code, _, err) = tsdb(&["export", "prometheus", place, "--data"], &none);
    assert_eq!(code, Some(2), "{err}");
    assert!(!none.exists());
}

#[test]
fn tsdb_blocks_from_rules_are_what_the_server_answers_to_their_expressions() {
    let start_ms = (now_ms() / 15_000 - 100) * 15_000;
    let [start, end] = [0, 600].map(|behind| (start_ms / 1000 + behind).to_string());
    let folder = tempfile::tempdir().unwrap();
    // Without a job, because scraped samples would make these late.
    let config = folder.path().join("firn.yml");
    std::fs::write(&config, "scrape_configs: []\n").unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(&folder.path().join("source"), &flags);
    let samples: Vec<(i64, f64)> = (0..41).map(|i| (start_ms + i * 15_000, i as f64)).collect();
    let series = Series::new(&[("__name__", "m"), ("i", "a"), ("x", "old")], &samples);
    assert_eq!(server.http().write(&body(&[series])).status, 204);
    let rules = folder.path().join("rules.yml");
    let made = "{record: 'r:m', expr: 'm * 2', labels: {x: new}}";
    let others = "{alert: A, expr: m}, {record: 'r:none', expr: absent_metric}";
    let text = format!("groups: [{{name: g, interval: 30s, rules: [{made}, {others}]}}]\n");
    std::fs::write(&rules, text).unwrap();
    let data = folder.path().join("data");
    let make = |url: &str, start: &str, end: &str| {
        let out = data.to_str().unwrap();
        let flags = [
            "--url",
            url,
            "--start",
            start,
            "--end",
            end,
            "--output-dir",
            out,
        ];
        tsdb(
            &[&["create-blocks-from", "rules"], &flags[..]].concat(),
            &rules,
        )
    };
    // An unreachable server, a failing expression and invalid times: nothing is stored.
    let (code, _, err) = make("127.0.0.1:9", &start, &end);
    assert_eq!(code, Some(2), "{err}");
    assert!(
        err.contains("rule importer error: r:m: query range: "),
        "{err}"
    );
    let (code, _, err) = make(&server.address, &end, &end);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("start time is not before end time"), "{err}");
    let (code, out, err) = make(&server.address, &start, &end);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let (code, dumped, err) = tsdb(&["dump"], &data);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<(f64, i64)> = dumped
        .lines()
        .map(|line| {
            let rest = line.strip_prefix("{__name__=\"r:m\", i=\"a\", x=\"new\"} ");
            let rest = rest.unwrap_or_else(|| panic!("{line}"));
            let (value, time) = rest.split_once(' ').unwrap();
            (value.parse().unwrap(), time.parse().unwrap())
        })
        .collect();
    assert_eq!(lines.len(), 20, "{dumped}");
    for (value, time) in &lines {
        let newest = (time - start_ms).div_euclid(15_000);
        assert_eq!(*value, 2.0 * newest as f64, "{time}");
        assert_eq!((time - lines[0].1) % 30_000, 0, "{time}");
    }
    let (code, out, _) = tsdb(&["dump", "--format=seriesjson"], &data);
    assert_eq!(code, Some(0));
    assert_eq!(out, "{\"__name__\":\"r:m\",\"i\":\"a\",\"x\":\"new\"}\n");
    let only = format!("--max-time={}", lines[0].1);
    assert_eq!(tsdb(&["dump", &only], &data).1.lines().count(), 1);
}

#[test]
fn tsdb_dump_of_imported_text_has_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let text = folder.path().join("text");
    let create = |body: &str| {
        std::fs::write(&text, body).unwrap();
        let file = text.to_str().unwrap();
        tsdb(
            &["create-blocks-from", "openmetrics", file, "--data"],
            &data,
        )
    };
    let (code, _, err) = create("a{x=\"1\"} 2 1700000000\na 3\n# EOF\n");
    assert_eq!(code, Some(2), "{err}");
    assert!(
        err.contains("expected timestamp for series a, got none"),
        "{err}"
    );
    let (code, _, err) = create("a{x=\"1\"} 2 1700000000\n");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("EOF"), "{err}");
    assert_eq!(tsdb(&["dump", "--data"], &data).1, "", "nothing is kept");
    let (code, out, err) =
        create("b 1e6 1700000000.5\na{x=\"1\"} 2 1700000000\na{x=\"1\"} 0.00001 -3\n# EOF\n");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains(" 3 samples, "), "{out}");
    let (code, out, _) = tsdb(&["dump", "--data"], &data);
    let expected = "{__name__=\"a\", x=\"1\"} 1e-05 -3000\n\
                    {__name__=\"a\", x=\"1\"} 2 1700000000000\n\
                    {__name__=\"b\"} 1e+06 1700000000500\n";
    assert_eq!((code, out.as_str()), (Some(0), expected));
    let args = ["dump-openmetrics", "--match", "a", "--from", "0", "--data"];
    let (code, out, _) = tsdb(&args, &data);
    let expected = "a{x=\"1\"} 2 1700000000.000\n# EOF\n";
    assert_eq!((code, out.as_str()), (Some(0), expected));
    assert_eq!(tsdb(&["verify"], &data).0, Some(0));
    // Labels for every series, and a folder as positional argument, as in promtool.
    std::fs::write(&text, "c{x=\"1\"} 1 1700000000\n# EOF\n").unwrap();
    let more = folder.path().join("more");
    let file = text.to_str().unwrap();
    let args = [
        "create-blocks-from",
        "-r",
        "-q",
        "--max-block-duration=24h",
        "openmetrics",
        "--label=x=2",
        "--label=y=3",
        file,
    ];
    assert_eq!(tsdb(&args, &more), (Some(0), String::new(), String::new()));
    let expected = "{__name__=\"c\", x=\"2\", y=\"3\"} 1 1700000000000\n";
    assert_eq!(tsdb(&["dump"], &more).1, expected);
}
