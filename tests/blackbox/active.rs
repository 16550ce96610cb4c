//! Queries that run when the process dies are logged at the next start.

use crate::harness::http::Http;
use crate::harness::server::{Server, wait_for};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

/// A query that sorts billions of values of one series, which no limit prevents.
const SLOW: &str = "max_over_time(quantile_over_time(0.5,vector(time())[1d:1s])[20h:1s])";

/// Sends a request for `path` as `tenant` without waiting for the answer.
fn ask(server: &Server, path: &str, tenant: &str) -> TcpStream {
    let mut socket = TcpStream::connect(&server.address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-Scope-OrgID: {tenant}\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

fn running(http: &Http) -> usize {
    let text = http.get("/metrics").body;
    let line = |line: &str| {
        line.strip_prefix("firn_server_queries_running ")?
            .parse()
            .ok()
    };
    text.lines().find_map(line).unwrap()
}

fn start(folder: &Path) -> Server {
    let config = folder.join("firn.yml");
    std::fs::write(&config, "firn: {multitenancy: true}\n").unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    Server::start(&folder.join("data"), &flags)
}

/// Returns the warnings of a start about queries that were active.
fn named(server: &Server) -> Vec<String> {
    let about = " msg=\"query was active when the process ended\"";
    let is_named = |line: &String| line.contains("level=WARN") && line.contains(about);
    server.log().into_iter().filter(is_named).collect()
}

#[test]
fn query_active_at_a_kill_is_named_once_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let http = server.http();
    // A query that has ended is not logged.
    let _ended = ask(&server, "/api/v1/query?query=1", "team-z");
    let _instant = ask(
        &server,
        &format!("/api/v1/query?time=1700000000.5&query={SLOW}"),
        "team-a",
    );
    wait_for("the first query to run", || running(&http) == 1);
    let _range = ask(
        &server,
        &format!("/api/v1/query_range?start=1700000000&end=1700000060&step=30&query={SLOW}"),
        "team-b",
    );
    wait_for("both queries to run", || running(&http) == 2);
    server.kill();

    let server = start(folder.path());
    let lines = named(&server);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    let expression = format!("expression={SLOW} cut_bytes=0");
    let instant = "handler=query tenant=team-a started=";
    let range = "handler=query_range tenant=team-b started=";
    for (who, when) in [
        (instant, "start=1700000000.500 end=1700000000.500 step=0"),
        (range, "start=1700000000 end=1700000060 step=30"),
    ] {
        let has = |line: &&String| {
            [&expression, who, when]
                .iter()
                .all(|text| line.contains(*text))
        };
        assert_eq!(lines.iter().filter(has).count(), 1, "{who} in {lines:#?}");
    }
    server.kill();
    let server = start(folder.path());
    assert_eq!(named(&server), Vec::<String>::new());
}

#[test]
fn folder_that_stands_in_the_way_of_the_file_costs_the_names_alone() {
    let folder = tempfile::tempdir().unwrap();
    assert!(start(folder.path()).stop().success());
    let file = folder.path().join("data/queries.active");
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes.len(), 21 * 4096, "a header and 20 slots, all written");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let server = start(folder.path());
    server.wait_log("active queries are not recorded");
    assert!(server.stop().success());
    std::fs::remove_dir(&file).unwrap();
    std::fs::write(&file, [0xff; 100_000]).unwrap();
    let server = start(folder.path());
    server.wait_log("file of active queries is not readable");
}
