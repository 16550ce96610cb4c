//! Three nodes on one bucket, a folder: requests at any of them, drains and the status.

mod deletions;
mod failures;
mod intruders;
mod loaded_nodes;
mod outages;
mod rejections;
mod store_faults;

use crate::harness::cluster::{ClusterView, NODES, PARTITIONS, TestCluster, wait_led};
use crate::harness::http::Http;
use crate::harness::server::{Server, firn};
use crate::harness::write::{Series, body};
use crate::now_ms;
use crate::remote_write_2::{Parts, Request};
use serde_json::Value;

/// Keys of `firn.cluster` for tests that should be short.
const FAST: &str = "flush_interval: 50ms, read_lease: 500ms, strong_wait: 5s";

/// The flag that lets clients drain a node.
const LIFECYCLE: &str = "--web.enable-lifecycle";

/// Number of series that are written to the nodes: enough that each partition has some.
const SERIES: usize = 60;

/// Series of all partitions, with their value and time.
struct SpreadSeries {
    time_ms: i64,
}

impl SpreadSeries {
    /// Stores the series, each at the next node.
    fn store(servers: &[Server]) -> Self {
        Self::store_at(servers.iter())
    }

    /// Stores the series, each at the next of these nodes.
    fn store_at<'s>(servers: impl ExactSizeIterator<Item = &'s Server>) -> Self {
        let (time_ms, count) = (now_ms(), servers.len());
        for (index, server) in servers.enumerate() {
            let numbers = (0..SERIES).filter(|n| n % count == index);
            let series = numbers.map(|number| {
                let number = number.to_string();
                let labels = [("__name__", "spread"), ("n", &*number)];
                Series::new(&labels, &[(time_ms, 0.1)])
            });
            let answer = server.http().write(&body(&series.collect::<Vec<_>>()));
            assert_eq!(answer.status, 204, "{}", answer.body);
        }
        Self { time_ms }
    }

    /// Returns the path of a query for the series, with more parameters.
    fn path(&self, parameters: &str) -> String {
        let time = self.time_ms as f64 / 1e3;
        format!("/api/v1/query?query=spread&time={time}{parameters}")
    }

    /// Panics unless a node answers with all series.
    fn check(&self, http: &Http) {
        let answer = http.get(&self.path(""));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let document = answer.json();
        assert_eq!(result_count(&document), SERIES, "{document}");
        assert_eq!(document.get("warnings"), None);
    }
}

/// Returns the number of series in an answer of a query.
fn result_count(document: &Value) -> usize {
    item_count(&document["data"]["result"])
}

/// Runs `firn cluster` with these arguments, and returns its exit code and its output.
fn run_command(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = firn();
    let output = command.arg("cluster").args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Returns the number of items of a list.
fn item_count(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

/// Returns a request with a third of the series of a test, with a histogram, an exemplar and
/// metadata of each.
fn shared_series(time_ms: i64, third: usize) -> Request {
    let numbers: Vec<String> = (0..SERIES).map(|n| n.to_string()).collect();
    let first: [&[u8]; 8] = [
        b"",
        b"__name__",
        b"shared",
        b"n",
        b"trace_id",
        b"x",
        b"Help.",
        b"seconds",
    ];
    let mut symbols = first.to_vec();
    symbols.push(b"shared_histogram");
    let first_number = symbols.len();
    symbols.extend(numbers.iter().map(|number| number.as_bytes()));
    let mut request = Request::of(&symbols);
    for number in (0..SERIES).filter(|n| n % NODES.len() == third) {
        let label = (first_number + number) as u64;
        let parts = Parts::default().sample(time_ms, number as f64);
        let parts = parts.exemplar(&[4, 5], time_ms, 0.5).metadata(2, 6, 7);
        request = request.series(&[1, 2, 3, label], parts);
        let parts = Parts::default().histogram(time_ms, 3, 3);
        request = request.series(&[1, 8, 3, label], parts);
    }
    request
}

/// Returns the data of an answer with its lists sorted.
fn sorted_data(http: &Http, path: &str) -> Value {
    let answer = http.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    let mut data = answer.json()["data"].take();
    let list = match &mut data {
        Value::Array(list) => Some(list),
        data => data["result"].as_array_mut(),
    };
    if let Some(list) = list {
        list.sort_by_key(Value::to_string);
    }
    data
}

#[test]
fn each_node_takes_writes_and_answers_for_all_of_them() {
    let cluster = TestCluster::new(FAST, &["--enable-feature=exemplar-storage"]);
    let servers = cluster.start_all();
    let time_ms = now_ms();
    for (third, server) in servers.iter().enumerate() {
        let answer = server.http().write_2(&shared_series(time_ms, third).body());
        assert_eq!(answer.status, 204, "{}", answer.body);
        let samples = answer.header("x-prometheus-remote-write-samples-written");
        assert_eq!(samples, (SERIES / NODES.len()).to_string());
    }
    let time = time_ms as f64 / 1e3;
    let range = format!("start={}&end={}", time - 60.0, time);
    let selector = "match%5B%5D=shared";
    let cases = [
        (format!("query?query=shared&time={time}"), "result", SERIES),
        (
            format!("query?query=shared_histogram&time={time}"),
            "result",
            SERIES,
        ),
        (
            format!("query?query=topk(7,shared)&time={time}"),
            "result",
            7,
        ),
        (
            format!("query_range?query=shared&{range}&step=15"),
            "result",
            SERIES,
        ),
        (format!("labels?{selector}&{range}"), "", 2),
        (format!("label/n/values?{selector}&{range}"), "", SERIES),
        (format!("series?{selector}&{range}"), "", SERIES),
        (format!("query_exemplars?query=shared&{range}"), "", SERIES),
        ("metadata?metric=shared".to_owned(), "shared", 1),
    ];
    for (path, field, expected) in cases {
        let path = format!("/api/v1/{path}");
        let answers = servers.iter().map(|s| sorted_data(&s.http(), &path));
        let answers: Vec<Value> = answers.collect();
        let list = if field.is_empty() {
            &answers[0]
        } else {
            &answers[0][field]
        };
        assert_eq!(item_count(list), expected, "{path}: {}", answers[0]);
        assert_eq!(answers[0], answers[1], "{path}");
        assert_eq!(answers[0], answers[2], "{path}");
    }
}

#[test]
fn drained_node_leads_nothing_and_goes_on_to_answer() {
    let cluster = TestCluster::new(FAST, &[LIFECYCLE]);
    let servers = cluster.start_all();
    let spread = SpreadSeries::store(&servers);
    let urls: Vec<String> = servers
        .iter()
        .map(|s| format!("http://{}", s.address))
        .collect();
    let (code, text) = run_command(&["status", &urls[0]]);
    assert_eq!(code, Some(0), "{text}");
    for node in NODES {
        assert!(text.contains(&format!("\n{node}  ")), "{text}");
    }
    let (code, text) = run_command(&["drain", &urls[1], "--wait"]);
    assert_eq!(code, Some(0), "{text}");
    let own = ClusterView::read(&servers[1].http());
    assert_eq!(own.led_by("b"), [0; 0], "the command waited");
    let all: Vec<&Server> = servers.iter().collect();
    wait_led(&all, &["a", "c"]);
    let view = ClusterView::read(&servers[0].http());
    assert_eq!(view.state_of("b"), "draining");
    assert_eq!(view.led_by("b"), [0; 0]);
    spread.check(&servers[1].http());
    SpreadSeries::store(&servers).check(&servers[1].http());
    let (code, text) = run_command(&["status", &urls[1], "--json"]);
    assert_eq!(code, Some(0), "{text}");
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["draining"], true);
    assert_eq!(
        status["partitions"].as_array().map(Vec::len),
        Some(PARTITIONS)
    );
    let (code, text) = run_command(&["drain", &urls[1], "--undo"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(ClusterView::read(&servers[1].http()).state_of("b"), "alive");
    // A drain of all others gives it the partitions.
    for server in [&servers[0], &servers[2]] {
        assert_eq!(server.http().post("/-/drain", &[]).status, 200);
    }
    wait_led(&all, &["b"]);
    servers
        .iter()
        .for_each(|server| spread.check(&server.http()));
}

#[test]
fn drain_requires_the_flag_and_status_names_a_node_that_does_not_answer() {
    let cluster = TestCluster::new(FAST, &[]);
    let mut servers = cluster.start_all();
    let url = format!("http://{}", servers[0].address);
    let (code, text) = run_command(&["drain", &url]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("Lifecycle API is not enabled"), "{text}");
    servers.pop().expect("three nodes").kill();
    wait_led(&servers.iter().collect::<Vec<_>>(), &["a", "b"]);
    let (code, text) = run_command(&["status", &url]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("node c ("), "{text}");
    assert!(text.contains("does not answer"), "{text}");
}
