//! Limits set by the system: open files and address space.

use crate::Kept;
use crate::harness::server::{DEADLINE, Server, command, spawn, wait_for};
use crate::hostile::{allow_open_files, connect};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Number of targets: many more than the connections that the server may open.
const TARGETS: usize = 400;

/// Limit of open files of the server.
const FILES: u64 = 256;

/// Starts a server in a shell with `limits`, which are calls of `ulimit`.
fn start(folder: &Path, limits: &str, flags: &[&str]) -> Server {
    let firn = command(&folder.join("data"), flags);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")]);
    shell.arg(firn.get_program()).args(firn.get_args());
    let server = Server::from_child(spawn(shell));
    server.wait_ready();
    server
}

/// Returns the value of one of the server's own metrics.
fn metric(server: &Server, name: &str) -> f64 {
    let text = server.http().get("/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.trim().parse().expect("a number")
}

/// Answers every request on a connection and keeps it open.
fn answer_on(stream: &TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut stream = stream;
    while let Some(line) = lines.next().transpose()? {
        if line.is_empty() {
            stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                  Content-Length: 7\r\n\r\nhere 1\n",
            )?;
        }
    }
    Ok(())
}

/// Starts a listener for all targets and returns its port.
fn start_targets() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The test expects clients that disconnect.
            std::thread::spawn(move || drop(answer_on(&stream)));
        }
    });
    port
}

/// Writes a config with targets that have different host addresses.
fn write_config(folder: &Path) -> String {
    let port = start_targets();
    let addresses: Vec<String> = (0..TARGETS)
        .map(|i| format!("'127.0.{}.{}:{port}'", 1 + i / 200, 1 + i % 200))
        .collect();
    let config = folder.join("firn.yml");
    let text = format!(
        "scrape_configs:\n- job_name: many\n  scrape_interval: 4s\n  scrape_timeout: 4s\n  \
         static_configs: [{{targets: [{}]}}]\n",
        addresses.join(", ")
    );
    std::fs::write(&config, text).unwrap();
    config.display().to_string()
}

#[test]
fn targets_beyond_the_open_files_are_scraped_and_the_api_answers() {
    // This process holds the target's ends of all connections.
    allow_open_files(4096);
    let folder = tempfile::tempdir().unwrap();
    let config = write_config(folder.path());
    let limits = format!("ulimit -n {FILES}");
    let server = start(folder.path(), &limits, &["--config", &config]);
    let http = server.http();
    let idle: Vec<TcpStream> = (0..40).map(|_| connect(&server)).collect();
    let mut longest = std::time::Duration::ZERO;
    let mut is_up = |expr: &str, want: usize| {
        let start = Instant::now();
        let result = http.query(expr, crate::now_ms());
        longest = longest.max(start.elapsed());
        result[0]["value"][1].as_str() == Some(&want.to_string())
    };
    wait_for("all targets to be up", || is_up("sum(up)", TARGETS));
    // Waits for another scrape of each target, and one more.
    let twice = "count(count_over_time(here[1m]) >= 3)";
    wait_for("three scrapes of all", || is_up(twice, TARGETS));
    Kept::store(&http).check(&http, "400 targets");
    assert!(longest < DEADLINE / 4, "the API took {longest:?}");
    let open = metric(&server, "process_open_fds");
    assert!(open < 200.0, "{open} files of {FILES}");
    let places = metric(&server, "firn_ingest_scrape_connections_limit");
    assert!(metric(&server, "firn_ingest_scrape_connections ") <= places);
    let failed = metric(&server, "firn_ingest_scrapes_total{outcome=\"failed\"}");
    assert!(failed < TARGETS as f64 / 20.0, "{failed} scrapes failed");
    let warnings = server
        .log()
        .iter()
        .filter(|l| l.contains("level=WARN"))
        .count();
    assert!(warnings < 5, "{:?}", server.log());
    drop(idle);
}

#[test]
fn open_files_are_raised_to_the_hard_limit_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "ulimit -Sn 200 && ulimit -Hn 2000", &[]);
    assert_eq!(metric(&server, "process_max_fds"), 2000.0);
    server.wait_log("before=200 limit=2000 connections=512");
}

#[test]
fn memory_limit_follows_the_address_space() {
    let folder = tempfile::tempdir().unwrap();
    let kib: u64 = 3_000_000;
    let server = start(folder.path(), &format!("ulimit -v {kib}"), &[]);
    let limit = metric(&server, "firn_memory_limit_bytes");
    assert!(limit <= (kib * 1024 * 6 / 10) as f64, "{limit}");
    Kept::store(&server.http()).check(&server.http(), "a limit of addresses");
}
