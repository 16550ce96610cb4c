//! Output shown in the documentation equals the program's output: the `console` blocks of
//! `README.md` and of the pages below `docs` are replayed with the built binary.
//!
//! ```text
//! page -> files and commands -> sh, in its own folder, with its own servers
//!   -> output, without parts that differ between runs -> compared, or written into the page
//! ```
//!
//! `FIRN_RECORD=1` rewrites the blocks with the current output. [`page`] parses pages, [`mask`]
//! compares lines, [`play`] runs the commands.

mod mask;
mod page;
mod play;

use crate::harness::server::Server;
use std::path::{Path, PathBuf};

/// Environment variable that makes the test rewrite the pages.
const RECORD: &str = "FIRN_RECORD";

/// Returns `README.md` and all pages below `docs` that have a block.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(|end| end.to_str()) {
                None if path.is_dir() => folders.push(path),
                Some("md") => pages.push(path),
                _ => {}
            }
        }
    }
    pages.sort();
    pages
}

#[test]
fn documents_show_what_the_program_prints() {
    let is_recording = std::env::var_os(RECORD).is_some_and(|value| value == "1");
    let mut failures = Vec::new();
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        let played = play::play(&text);
        if is_recording {
            std::fs::write(&path, &played.recorded).unwrap();
            continue;
        }
        let failed = played.failures.iter();
        failures.extend(failed.map(|failure| format!("{}:{failure}", path.display())));
    }
    let all = failures.join("\n");
    assert!(
        failures.is_empty(),
        "{all}\n{RECORD}=1 writes the current output"
    );
}

/// Returns the failures of a page with these lines in one block.
fn failures(lines: &[&str]) -> Vec<String> {
    play::play(&block(lines)).failures
}

/// Returns a page with one block.
fn block(lines: &[&str]) -> String {
    format!("# Page\n\n```console\n{}\n```\n\nEnd.\n", lines.join("\n"))
}

#[test]
fn right_output_passes_whatever_its_numbers_are() {
    for lines in [
        &["$ echo 812 k in 1.3 s", "9.91 M in 250 ms"][..],
        &["$ echo one; echo two >&2", "one", "two"],
        &["$ echo a \\", "    b", "a b", "", "$ echo c", "c"],
        &["$ printf '1\\nx\\n2\\n'", "...", "3"],
        &["$ printf '1\\nx\\n2\\n'", "5", "...", "x", "..."],
        &["$ true"],
        &[
            "$ firn --version",
            "firn, version 9.9.9 (branch: unknown, revision: unknown)",
            "...",
        ],
    ] {
        assert_eq!(failures(lines), [""; 0], "{lines:?}");
    }
}

#[test]
fn wrong_output_fails_with_its_line() {
    for (lines, line) in [
        (&["$ echo one", "two"][..], 4),
        (&["$ echo one", "one", "two"], 4),
        (&["$ printf 'one\\ntwo\\n'", "one"], 4),
        (&["$ echo one", "one", "$ echo 1 two", "1 three"], 6),
        (&["$ printf 'one\\ntwo\\n'", "...", "one"], 4),
        (&["$ echo one", ""], 4),
        (
            &["$ firn serv", "firn: unknown command \"serve\"", "..."],
            4,
        ),
    ] {
        let failures = failures(lines);
        assert_eq!(failures.len(), 1, "{lines:?}: {failures:?}");
        let start = format!("{line}: ");
        assert!(failures[0].starts_with(&start), "{lines:?}: {failures:?}");
    }
}

#[test]
fn recording_writes_the_output_and_keeps_what_is_left_out() {
    let stale = block(&[
        "$ printf 'one 1\\ntwo\\nthree 3\\n'",
        "uno",
        "...",
        "three 7",
        "",
        "$ echo $PWD",
        "$ echo http://127.0.0.1:9090",
        "old",
    ]);
    let fresh = block(&[
        "$ printf 'one 1\\ntwo\\nthree 3\\n'",
        "one 1",
        "...",
        "three 3",
        "",
        "$ echo $PWD",
        "/srv/firn",
        "$ echo http://127.0.0.1:9090",
        "http://127.0.0.1:9090",
    ]);
    let recorded = play::play(&stale).recorded;
    assert_eq!(recorded, fresh);
    let again = play::play(&recorded);
    assert_eq!((again.failures, again.recorded), (Vec::new(), fresh));
}

#[test]
fn page_serves_from_its_files_and_kills_its_own_server_alone() {
    let config = "```yaml\n# one.yml\nglobal:\n  scrape_interval: 7s\n```\n\n";
    let data = tempfile::tempdir().unwrap();
    let other = Server::start(data.path(), &[]);
    let lines = [
        "$ firn serve --config one.yml",
        "...",
        "level=INFO target=firn::serve::listen msg=listening address=127.0.0.1:9090",
        "...",
        "level=INFO target=firn::serve msg=ready url=http://127.0.0.1:9090",
        "$ curl -s http://127.0.0.1:9090/api/v1/status/config | grep -o 'scrape_interval: .s'",
        "scrape_interval: 7s",
        "...",
        "$ firn load --series 376 --samples 2",
        "writes  752 samples in 4 requests, 0 failed, 0.1 s: 9 k/s",
        "...",
        "$ pkill -9 firn; make run",
        "...",
        "level=INFO target=firn::serve msg=ready url=http://127.0.0.1:9090",
        "$ firn query instant http://127.0.0.1:9090 'count({namespace!=\"\"})'",
        "{} => 376 @[1795208898.843]",
        "$ kill %1; sleep 0.1; curl -s http://127.0.0.1:9090/-/ready || echo gone",
        "gone",
        "$ firn serve --config two.yml",
        "firn: load config two.yml: No such file or directory (os error 2)",
    ];
    let played = play::play(&format!("{config}{}", block(&lines)));
    assert_eq!(played.failures, [""; 0]);
    assert_eq!(other.http().get("/-/ready").status, 200);
}
