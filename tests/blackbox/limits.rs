//! Every limit of a query has its status, its error type, and a text with the limit.

use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use std::io::Write;
use std::net::TcpStream;

/// A query that sorts billions of values of one series.
const SLOW: &str = "max_over_time(quantile_over_time(0.5,vector(time())[1d:1s])[20h:1s])";

/// Series with a sample at the time of the queries, one more than a query may select.
const SERIES: usize = 11;

/// A path, and the status, error type and text of its answer.
type Case = (String, u16, &'static str, &'static str);

fn instant(query: &str) -> String {
    format!("/api/v1/query?time=0&query={}", query.replace(' ', "%20"))
}

fn cases() -> Vec<Case> {
    let label = "label_join(vector(1), \"a\", \"a\", \"a\", \"a\")".replace('"', "%22");
    let doubled = (0..30).fold(label, |inner, _| {
        format!("label_join({inner},%22a%22,%22xxxxxxxx%22,%22a%22,%22a%22)")
    });
    let selectors: String = (0..101).map(|i| format!("match[]=m{i}&")).collect();
    vec![
        (
            instant("max_over_time(vector(time())[30d:1ms])"),
            422,
            "execution",
            "query processing would load too many samples into memory in query execution: \
             2592000000 samples, limit 50000000",
        ),
        (
            instant("max_over_time(vector(time())[10h:1ms])"),
            422,
            "execution",
            " bytes needed, limit 134217728",
        ),
        (
            instant("sum(many)"),
            422,
            "execution",
            "query selects too many series: 11 series, limit 10",
        ),
        (
            "/api/v1/query_range?query=1&start=0&end=11001&step=1".into(),
            400,
            "bad_data",
            "exceeded maximum resolution of 11,000 points per timeseries. \
             Try decreasing the query resolution (?step=XX)",
        ),
        (
            instant(&format!("{}1{}", "(".repeat(1001), ")".repeat(1001))),
            400,
            "bad_data",
            "expression nests too deeply: 1001 levels, limit 1000",
        ),
        (
            instant(&doubled),
            422,
            "execution",
            "label value too long: 1179640 bytes, limit 1048576",
        ),
        (
            format!("/api/v1/series?{selectors}"),
            400,
            "bad_data",
            "too many different match[] selectors among 101, limit 100",
        ),
        (
            format!("{}&timeout=100ms", instant(SLOW)),
            503,
            "timeout",
            "query timed out in expression evaluation",
        ),
    ]
}

fn check(server: &Server, (path, status, error_type, text): &Case) {
    let answer = server.http().get(path);
    let json = answer.json();
    assert_eq!(answer.status, *status, "{path}: {}", answer.body);
    assert_eq!(json["errorType"], *error_type, "{path}");
    let error = json["error"].as_str().unwrap_or_default();
    assert!(error.contains(text), "{path}: {error}");
}

fn load(server: &Server) {
    let one = |number: usize| {
        let number = number.to_string();
        Series::new(&[("__name__", "many"), ("number", &number)], &[(0, 1.0)])
    };
    let all: Vec<Series> = (0..SERIES).map(one).collect();
    let answer = server.http().write(&body(&all));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

#[test]
fn limit_that_is_reached_is_named_with_the_number() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("firn.yml");
    let limits = "firn: {memory_limit: 512MiB, query_series_limit: 10}\n";
    std::fs::write(&config, limits).unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--query.max-concurrency",
        "1",
    ];
    let server = Server::start(&folder.path().join("data"), &flags);
    load(&server);
    for case in cases() {
        check(&server, &case);
    }
    // The only slot is occupied by a query whose client still waits.
    let mut socket = TcpStream::connect(&server.address).unwrap();
    let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", instant(SLOW));
    socket.write_all(request.as_bytes()).unwrap();
    wait_for("the place to be taken", || {
        let metrics = server.http().get("/metrics").body;
        metrics.contains("\nfirn_server_queries_running 1\n")
    });
    let queued = format!("{}&timeout=50ms", instant("1"));
    let text = "query timed out in query queue";
    check(&server, &(queued, 503, "timeout", text));
}

/// Below the nesting limit no stack overflows, even without optimization.
#[test]
fn query_that_nests_nearly_as_deep_as_it_may_has_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let nestings = [
        ("(", ")"),
        ("abs(", ")"),
        ("sum(", ")"),
        ("topk(1,", ")"),
        ("max_over_time(", "[15s:1s])"),
    ];
    for (open, close) in nestings {
        let query = format!("{}up{}", open.repeat(190), close.repeat(190));
        let answer = server.http().get(&instant(&query));
        assert_eq!(answer.status, 200, "{open}: {}", answer.body);
    }
}
