//! Blocks of real data folders: their analysis, the behaviour of a server with a damaged block, and
//! the write benchmark.

use crate::harness::server::{Server, firn};
use std::path::{Path, PathBuf};

/// Runs `firn tsdb`; returns exit code, standard output and standard error.
fn tsdb(args: &[&str]) -> (Option<i32>, String, String) {
    let output = firn().arg("tsdb").args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code();
    (code, text(output.stdout), text(output.stderr))
}

const HOUR_S: i64 = 3_600;

/// Creates a data folder with two blocks of two hours each: a continuous series, ten series of
/// which each exists for a tenth of the time, and one other.
fn with_two_blocks() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let text = folder.path().join("text");
    let data_text = data.to_str().unwrap();
    for start in [400_000 * HOUR_S, 400_004 * HOUR_S] {
        let mut body = String::new();
        for step in 0..120 {
            let time = start + 60 * step;
            body += &format!("up{{job=\"node\"}} 1 {time}\n");
            body += &format!("short{{job=\"node\",pod=\"p{}\"}} 1 {time}\n", step / 12);
        }
        body += &format!("other{{job=\"x\"}} 5 {start}\n# EOF\n");
        std::fs::write(&text, body).unwrap();
        let file = text.to_str().unwrap();
        let create = [
            "create-blocks-from",
            "openmetrics",
            file,
            "--data",
            data_text,
        ];
        let (code, out, err) = tsdb(&create);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    }
    (folder, data)
}

#[test]
fn tsdb_analyze_says_what_a_block_is_made_of() {
    let (_folder, data) = with_two_blocks();
    let data = data.to_str().unwrap();
    let (code, out, err) = tsdb(&["analyze", "--limit", "2", data]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let (first, rest) = out.split_once('\n').unwrap();
    let newest = first.strip_prefix("Block ID: ").unwrap();
    assert_eq!(
        rest,
        "Duration: 2h0m0s\nTotal Series: 12\nLabel names: 3\n\
         Postings (unique label pairs): 15\nPostings entries (total label pairs): 34\n\n\
         Label pairs most involved in churning:\n9 __name__=short\n9 job=node\n\n\
         Label names most involved in churning:\n10 __name__\n10 job\n\n\
         Most common label pairs:\n11 job=node\n10 __name__=short\n\n\
         Label names with highest cumulative label value length:\n20 pod\n12 __name__\n\n\
         Highest cardinality labels:\n10 pod\n3 __name__\n\n\
         Highest cardinality metric names:\n10 short\n1 other\n"
    );
    let (_, listed, _) = tsdb(&["list", data]);
    let names = listed
        .lines()
        .skip(1)
        .map(|line| line.split(' ').next().unwrap());
    let oldest = names.clone().next().unwrap();
    assert_eq!(names.last(), Some(newest));
    let args = [
        "analyze",
        "--match",
        "short{pod=~\"p[0-3]\"}",
        "--extended",
        data,
        oldest,
    ];
    let (code, out, _) = tsdb(&args);
    assert_eq!(code, Some(0));
    assert!(out.starts_with(&format!("Block ID: {oldest}\n")), "{out}");
    for part in [
        "\nMatcher: short{pod=~\"p[0-3]\"}\nLabel names: 3\nMatched series: 4\n",
        "\nMost common label pairs:\n4 __name__=short\n4 job=node\n1 pod=p0\n",
        "\nsamples per float series (min/avg/max): 12/12/12\n[10, 19]: 4 ####",
        "\nsamples per histogram series: N/A\n",
    ] {
        assert!(out.contains(part), "{out} has no {part}");
    }
    for (args, said) in [
        (["analyze", data, "01ARZ3NDEKTSV4RRFFQ69G5FAV"], "is not in"),
        (["analyze", "--match={", data], "--match: "),
    ] {
        let (code, _, err) = tsdb(&args);
        assert_eq!(code, Some(2));
        assert!(err.contains(said), "{err}");
    }
}

#[test]
fn tsdb_bench_write_stores_what_it_counts() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let out_text = out.to_str().unwrap();
    let series = folder.path().join("series.json");
    let line = |i: u32| format!("{{\"__name__\":\"bench\",\"number\":\"{i}\"}}\n");
    std::fs::write(&series, (0..30).map(line).collect::<String>()).unwrap();
    let args = [
        "bench",
        "write",
        "--metrics",
        "20",
        "--scrapes",
        "300",
        "--out",
        out_text,
    ];
    let with_file = [&args[..], &[series.to_str().unwrap()]].concat();
    let (code, said, err) = tsdb(&with_file);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{said}");
    for part in [
        ">> start stage=readData\n",
        ">> completed stage=ingestScrapes duration=",
        " > total samples: 6000\n > samples/sec: ",
        ">> completed stage=stopStorage duration=",
        " > bytes/sample: ",
    ] {
        assert!(said.contains(part), "{said} has no {part}");
    }
    let storage = out.join("storage");
    let (code, dumped, _) = tsdb(&["dump", "--data", storage.to_str().unwrap()]);
    assert_eq!((code, dumped.lines().count()), (Some(0), 6000));
    let (code, _, err) = tsdb(&with_file);
    assert_eq!(code, Some(2));
    assert!(err.contains("is not empty"), "{err}");
    let made_up = folder.path().join("made-up");
    let args = [
        "bench",
        "write",
        "--metrics=300",
        "--scrapes=3",
        "--out",
        made_up.to_str().unwrap(),
    ];
    let (code, said, _) = tsdb(&args);
    assert_eq!(code, Some(0));
    assert!(said.contains(" > total samples: 1128\n"), "{said}");
}

#[test]
fn metadata_of_blocks_is_printed_and_served_without_a_target() {
    let folder = tempfile::tempdir().unwrap();
    let (text, data) = (folder.path().join("text"), folder.path().join("data"));
    let body = "# TYPE wait_seconds histogram\n# UNIT wait_seconds seconds\n\
                # HELP wait_seconds How \\\"long\\\".\n\
                wait_seconds_bucket{le=\"+Inf\"} 1 1440000000.000\n\
                wait_seconds_count{} 1 1440000000.000\n# TYPE calls counter\n\
                calls_total{} 7 1440000000.000\n# TYPE without counter\n# EOF\n";
    std::fs::write(&text, body).unwrap();
    let (file, data_text) = (text.to_str().unwrap(), data.to_str().unwrap());
    let (code, _, err) = tsdb(&[
        "create-blocks-from",
        "openmetrics",
        file,
        "--data",
        data_text,
    ]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let (code, dumped, _) = tsdb(&["dump-openmetrics", "--data", data_text]);
    assert_eq!(code, Some(0));
    for lines in [
        "# TYPE wait_seconds histogram\n# UNIT wait_seconds seconds\n\
         # HELP wait_seconds How \\\"long\\\".\nwait_seconds_bucket{",
        "# TYPE calls counter\ncalls_total{} 7 1440000000.000\n",
    ] {
        assert!(dumped.contains(lines), "{dumped} has no {lines}");
    }
    assert_eq!(dumped.matches("# TYPE").count(), 2, "{dumped}");
    let (_, out, _) = tsdb(&["analyze", "--extended", data_text]);
    let counted = "metrics with type, help or unit: 2\n";
    assert!(out.contains(counted), "{out}");
    let config = folder.path().join("nothing.yml");
    std::fs::write(&config, "global: {}\n").unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--storage.tsdb.retention.time",
        "100y",
    ];
    let server = Server::start(&data, &flags);
    let said = |path: &str| server.http().get(path).json()["data"].clone();
    let wait =
        serde_json::json!([{"type": "histogram", "help": "How \"long\".", "unit": "seconds"}]);
    let calls = serde_json::json!([{"type": "counter", "help": "", "unit": ""}]);
    let both = serde_json::json!({"calls": calls, "wait_seconds": wait});
    assert_eq!(said("/api/v1/metadata"), both);
    assert_eq!(
        said("/api/v1/metadata?metric=calls"),
        serde_json::json!({"calls": calls})
    );
    assert_eq!(
        said("/api/v1/metadata?metric=without"),
        serde_json::json!({})
    );
    assert!(server.stop().success());
}

/// Returns a metric from the exposition of a server.
fn metric(server: &Server, name: &str) -> Option<f64> {
    let text = server.http().get("/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.parse().ok()
}

/// A server on `data` that keeps old blocks and has nothing to scrape.
fn start(data: &Path) -> Server {
    let config = data.parent().unwrap().join("nothing.yml");
    std::fs::write(&config, "global: {}\n").unwrap();
    let config = config.to_str().unwrap();
    Server::start(
        data,
        &["--config", config, "--storage.tsdb.retention.time", "100y"],
    )
}

/// How a file is damaged.
type Fault = fn(&Path, &[u8]);

fn flip(path: &Path, whole: &[u8], place: usize) {
    let mut bytes = whole.to_vec();
    bytes[place] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn block_with_one_fault_in_its_meta_or_index_lacks_nothing_and_is_repaired() {
    let (_folder, data) = with_two_blocks();
    let text = data.to_str().unwrap();
    let listed = tsdb(&["list", text]).1;
    let first = listed.lines().nth(1).unwrap();
    let name = first.split(' ').next().unwrap().to_owned();
    let folder = data.join("blocks").join(&name);
    let faults: [(&str, Fault); 8] = [
        ("meta.json", |path, whole| {
            flip(path, whole, whole.len() / 2)
        }),
        ("meta.json", |path, _| std::fs::remove_file(path).unwrap()),
        ("index", |path, whole| flip(path, whole, whole.len() - 20)),
        ("index", |path, whole| flip(path, whole, whole.len() - 100)),
        // The first unit, which has the times.
        ("index", |path, whole| flip(path, whole, 8)),
        ("index", |path, whole| {
            let mut torn = whole.to_vec();
            let start = (torn.len() - 1) / 512 * 512;
            torn[start..].fill(0);
            std::fs::write(path, torn).unwrap();
        }),
        ("index", |path, whole| {
            std::fs::write(path, &whole[..whole.len() - 100]).unwrap();
        }),
        ("index", |path, _| std::fs::remove_file(path).unwrap()),
    ];
    for (number, (file, fault)) in faults.into_iter().enumerate() {
        let path = folder.join(file);
        let whole = std::fs::read(&path).unwrap();
        let context = format!("fault {number} of {file}");
        let server = start(&data);
        server.kill();
        fault(&path, &whole);
        let server = start(&data);
        let time = format!("{}", 400_002 * HOUR_S);
        let query = "sum(count_over_time({__name__=~\".+\"}[3h]))";
        let asked = [("query", query), ("time", &time)];
        let answer = server.http().post("/api/v1/query", &asked);
        let json = answer.json();
        assert_eq!(
            json["data"]["result"][0]["value"][1], "241",
            "{context}: {json}"
        );
        assert!(json["warnings"].is_null(), "{context}: {json}");
        let damages = metric(&server, "firn_storage_damages_total{kind=\"blocks\"}");
        assert!(damages >= Some(1.0), "{context}: {damages:?}");
        assert_eq!(
            metric(&server, "firn_storage_blocks_bad"),
            Some(0.0),
            "{context}"
        );
        server.wait_log(&format!("{name}/{file}"));
        let status = server.http().get("/api/v1/status/tsdb").json();
        let listed = status["data"]["damages"].to_string();
        assert!(
            listed.contains(&format!("{name}/{file}")),
            "{context}: {listed}"
        );
        server.kill();

        let (code, out, _) = tsdb(&["verify", text]);
        assert_eq!(code, Some(1), "{context}: {out}");
        let line = out
            .lines()
            .find(|line| line.contains(&format!("{name}/{file}")));
        let is_free = line.is_some_and(|line| line.contains("no sample is lost"));
        assert!(is_free, "{context}: {out}");
        let (code, out, err) = tsdb(&["repair", "--yes", text]);
        assert_eq!(code, Some(0), "{context}: {out}{err}");
        assert!(std::fs::read(&path).unwrap() == whole, "{context}: {out}");
        let (code, out, _) = tsdb(&["verify", text]);
        assert_eq!(code, Some(0), "{context}: {out}");
    }
}

#[test]
fn block_that_is_damaged_is_in_quarantine_and_stops_nothing() {
    let (_folder, data) = with_two_blocks();
    let listed = || tsdb(&["list", data.to_str().unwrap()]).1;
    let first = listed().lines().nth(1).unwrap().to_owned();
    let name = first.split(' ').next().unwrap().to_owned();
    let index = data.join("blocks").join(&name).join("index");
    let copy = index.with_extension("copy");
    let whole = std::fs::read(&index).unwrap();
    // Cuts off the footer and the directory before it, in both files.
    for path in [&index, &copy] {
        std::fs::write(path, &whole[..whole.len() - 100]).unwrap();
    }
    for _ in 0..2 {
        let server = start(&data);
        let ask = |hour: i64| {
            let time = format!("{}", hour * HOUR_S + 600);
            server
                .http()
                .post("/api/v1/query", &[("query", "up"), ("time", &time)])
        };
        let lost = ask(400_000);
        let warning = lost.json()["warnings"][0]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(warning.contains(&name), "{}", lost.body);
        assert_eq!(lost.json()["data"]["result"], serde_json::json!([]));
        let sound = ask(400_004);
        assert!(sound.json()["warnings"].is_null(), "{}", sound.body);
        assert_eq!(sound.json()["data"]["result"][0]["value"][1], "1");
        let damages = server.http().get("/api/v1/status/tsdb").json()["data"]["damages"].clone();
        assert_eq!(damages.as_array().map(Vec::len), Some(1), "{damages}");
        assert_eq!(metric(&server, "firn_storage_blocks_bad"), Some(1.0));
        server.wait_log(&name);
        let answer = server
            .http()
            .send("/api/v1/import/prometheus", &[], b"pushed 1\n");
        assert_eq!(answer.status, 204, "{}", answer.body);
        assert!(server.stop().success());
        let line = listed().lines().nth(1).unwrap().to_owned();
        assert!(
            line.contains(&name) && line.contains("quarantine"),
            "{line}"
        );
        let (code, out, _) = tsdb(&["verify", data.to_str().unwrap()]);
        assert_eq!(code, Some(1));
        assert!(out.contains(&format!("blocks/{name}/index")), "{out}");
    }
    // After it is restored from a backup, the block is read again.
    std::fs::write(&index, &whole).unwrap();
    let server = start(&data);
    let found = server.http().query("up", (400_000 * HOUR_S + 600) * 1000);
    assert_eq!(found[0]["value"][1], "1", "{found}");
    assert_eq!(metric(&server, "firn_storage_blocks_bad"), Some(0.0));
    assert!(!listed().contains("quarantine"));
}
