//! `remote_read`: answers contain the series of other servers in addition to stored ones.

use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use serde_json::{Value, json};
use std::path::Path;

/// Starts a server in `dir` with the config `config`.
fn start(dir: &Path, config: &str) -> Server {
    let file = dir.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    Server::start(&dir.join("data"), &["--config", file.to_str().unwrap()])
}

/// Returns a config that reads from `server`, with additional keys.
fn reading(server: &str, keys: &str) -> String {
    format!(
        "global: {{external_labels: {{region: eu}}}}\n\
         scrape_configs: []\n\
         remote_read: [{{url: 'http://{server}/api/v1/read'{keys}}}]\n"
    )
}

fn push(server: &Server, series: &[Series]) {
    let answer = server.http().write(&body(series));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

/// Returns the values of a range query with a step of one minute, by label `i`.
fn range(server: &Server, expr: &str, (start, end): (i64, i64)) -> Value {
    let path = format!("/api/v1/query_range?query={expr}&start={start}&end={end}&step=60");
    server.http().get(&path).json()
}

const MINUTE: i64 = 60_000;

/// Two servers: the remote one has three series, the querying one has the last minutes of one of
/// them and one other series.
struct Pair {
    other: Server,
    asking: Server,
    /// Start of the data, a whole second ten minutes ago.
    start: i64,
    _folders: [tempfile::TempDir; 2],
}

fn pair(keys: &str) -> Pair {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let other = start(folders[0].path(), "scrape_configs: []\n");
    let asking = start(folders[1].path(), &reading(&other.address, keys));
    let start = (now_ms() / 1000 - 600) * 1000;
    let samples = |minutes: std::ops::Range<i64>, value: f64| -> Vec<(i64, f64)> {
        minutes.map(|i| (start + i * MINUTE, value)).collect()
    };
    let of = |i: &str, samples: &[(i64, f64)]| {
        Series::new(&[("__name__", "m"), ("i", i), ("region", "eu")], samples)
    };
    let elsewhere = Series::new(
        &[("__name__", "m"), ("i", "z"), ("region", "us")],
        &samples(0..10, 9.0),
    );
    push(
        &other,
        &[
            of("a", &samples(0..10, 1.0)),
            of("b", &samples(0..10, 2.0)),
            elsewhere,
        ],
    );
    let own =
        |i: &str, samples: &[(i64, f64)]| Series::new(&[("__name__", "m"), ("i", i)], samples);
    push(
        &asking,
        &[
            own("a", &samples(5..10, 3.0)),
            own("c", &samples(0..10, 4.0)),
        ],
    );
    Pair {
        other,
        asking,
        start,
        _folders: folders,
    }
}

#[test]
fn series_of_another_server_are_answered_and_own_samples_stay() {
    let pair = pair(", read_recent: true");
    let (first, last) = (pair.start / 1000, pair.start / 1000 + 540);
    let answer = range(&pair.asking, "m", (first, last));
    assert_eq!(answer["warnings"], Value::Null, "{answer}");
    let found: Vec<(Value, Vec<String>)> = answer["data"]["result"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| {
            let values = series["values"].as_array().unwrap();
            let values = values
                .iter()
                .map(|value| value[1].as_str().unwrap().to_owned());
            (series["metric"].clone(), values.collect())
        })
        .collect();
    let name = |i: &str| json!({"__name__": "m", "i": i});
    let values = |parts: &[(&str, usize)]| -> Vec<String> {
        let all = parts.iter();
        all.flat_map(|(value, count)| vec![(*value).to_owned(); *count])
            .collect()
    };
    let want = [
        (name("a"), values(&[("1", 5), ("3", 5)])),
        (name("b"), values(&[("2", 10)])),
        (name("c"), values(&[("4", 10)])),
    ];
    assert_eq!(found, want);
    // Labels that the config adds are not part of the answer, unless the query has a matcher for
    // them.
    let http = pair.asking.http();
    let end = pair.start + 9 * MINUTE;
    assert_eq!(
        http.query("sum by (i) (m{region=\"us\"})", end)[0]["metric"],
        json!({"i": "z"})
    );
    assert_eq!(http.query("count(m)", end)[0]["value"][1], "3");
    let series = http.get("/api/v1/series?match[]=m").json();
    assert_eq!(series["data"].as_array().unwrap().len(), 3, "{series}");
    let names = http.get("/api/v1/label/i/values").json();
    assert_eq!(names["data"], json!(["a", "c"]));
    assert!(
        names["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with("remote_read: "),
        "{names}"
    );
    let federated = http.get("/federate?match[]=m").body;
    assert!(!federated.contains("i=\"b\""), "{federated}");
    let metrics = http.get("/metrics").body;
    let url = format!("http://{}/api/v1/read", pair.other.address);
    let counted = format!(
        "prometheus_remote_read_client_queries_total{{code=\"200\",remote_name=\"{}\",\
         response_type=\"chunked\",url=\"{url}\"}}",
        pair.other.address
    );
    assert!(metrics.contains(&counted), "{metrics}");
}

#[test]
fn server_that_is_away_costs_a_warning_and_nothing_else() {
    let pair = pair(", read_recent: true");
    let at = pair.start + 9 * MINUTE;
    let asked = format!("/api/v1/query?query=count(m)&time={}", at / 1000);
    pair.other.kill();
    let answer = pair.asking.http().get(&asked).json();
    assert_eq!(answer["data"]["result"][0]["value"][1], "2");
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("remote_read: error sending request: "),
        "{warning}"
    );
}

#[test]
fn selector_without_what_is_required_is_answered_from_the_store() {
    let pair = pair(", read_recent: true, required_matchers: {i: b}");
    let http = pair.asking.http();
    let at = pair.start + 9 * MINUTE;
    assert_eq!(http.query("count(m)", at)[0]["value"][1], "2");
    assert_eq!(http.query("m{i=\"b\"}", at)[0]["value"][1], "2");
}

#[test]
fn servers_that_are_read_from_follow_the_config() {
    let pair = pair(", read_recent: true");
    let at = pair.start + 9 * MINUTE;
    let count = || pair.asking.http().query("count(m)", at)[0]["value"][1].clone();
    assert_eq!(count(), "3");
    let file = pair._folders[1].path().join("firn.yml");
    std::fs::write(&file, "scrape_configs: []\n").unwrap();
    pair.asking.signal(rustix::process::Signal::HUP);
    wait_for("the own store alone", || count() == "2");
    std::fs::write(&file, reading(&pair.other.address, "")).unwrap();
    pair.asking.signal(rustix::process::Signal::HUP);
    // A store without a block is new, so that the other server is queried for older data.
    wait_for("the other server again", || count() == "3");
}
