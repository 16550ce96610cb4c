//! Requests that a cluster rejects or corrects as a single node does.

use super::{FAST, SERIES};
use crate::harness::cluster::TestCluster;
use crate::harness::http::{Answer, Http};
use crate::harness::server::Server;
use crate::harness::write::{Series, body};
use crate::now_ms;
use crate::remote_write_2::{HEADERS, Parts, Request};

/// Returns a body with a sample of each series.
fn samples(time_ms: i64, value: f64) -> Vec<Series> {
    let series = |number: usize| {
        let number = number.to_string();
        let labels = [("__name__", "odd"), ("job", "j"), ("n", &number)];
        Series::new(&labels, &[(time_ms, value)])
    };
    (0..SERIES).map(series).collect()
}

/// Panics unless both answers are equal for a sender.
fn check(what: &str, of_cluster: &Answer, single: &Answer) {
    let read = |answer: &Answer| {
        let counts = HEADERS.map(|name| answer.header(name).to_owned());
        (answer.status, answer.body.clone(), counts)
    };
    assert_eq!(read(of_cluster), read(single), "{what}");
}

/// Requests that are invalid as a whole or in parts.
fn bad_requests(now: i64) -> Vec<(&'static str, Vec<Series>)> {
    let (old, hour) = (now - 3 * 3_600_000, 3_600_000);
    let named = |labels: &[(&str, &str)]| Series::new(labels, &[(now, 1.0)]);
    let mut mixed = samples(now + 1, 1.0);
    for (index, series) in mixed.iter_mut().enumerate() {
        match index % 4 {
            0 => series.samples = vec![(old, 1.0)],
            1 => series.samples = vec![(now, 3.0)],
            2 => series.samples = vec![(now + 2 * hour, 1.0)],
            _ => {}
        }
    }
    let mut good_and_bad = samples(now + 2, 1.0);
    good_and_bad.insert(7, named(&[("__name__", "odd"), ("a", "1"), ("a", "2")]));
    vec![
        ("a repeat", samples(now, 1.0)),
        ("other values", samples(now, 2.0)),
        ("old samples", samples(old, 1.0)),
        ("samples of the future", samples(now + hour, 1.0)),
        ("good, old, doubled and future samples", mixed),
        ("a series without a name", vec![named(&[("a", "1")])]),
        ("a label twice among good series", good_and_bad),
        ("an empty request", Vec::new()),
    ]
}

#[test]
fn rejected_samples_are_reported_as_by_a_single_node() {
    let cluster = TestCluster::new(FAST, &[]);
    let servers = cluster.start_all();
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let single = server.http();
    let now = now_ms();
    let first = body(&samples(now, 1.0));
    check(
        "the first samples",
        &servers[0].http().write(&first),
        &single.write(&first),
    );
    for (turn, (what, series)) in bad_requests(now).into_iter().enumerate() {
        let request = body(&series);
        let of_cluster = servers[turn % servers.len()].http().write(&request);
        check(what, &of_cluster, &single.write(&request));
    }
    let numbers: Vec<String> = (0..SERIES).map(|n| n.to_string()).collect();
    let mut symbols: Vec<&[u8]> = vec![b"", b"__name__", b"odd", b"job", b"j", b"n"];
    symbols.extend(numbers.iter().map(|number| number.as_bytes()));
    for (what, times) in [("good", [now + 3; 2]), ("half of them old", [now + 4, 0])] {
        let series = (0..SERIES).fold(Request::of(&symbols), |request, number| {
            let refs = [1, 2, 3, 4, 5, 6 + number as u64];
            request.series(&refs, Parts::default().sample(times[number % 2], 1.0))
        });
        let request = series.body();
        let of_cluster = servers[1].http().write_2(&request);
        check(what, &of_cluster, &single.write_2(&request));
    }
    let result = |http: &Http| {
        let mut result = http.query("odd[1h]", now + 4);
        let list = result.as_array_mut().expect("a matrix");
        list.sort_by_key(|series| series["metric"].to_string());
        result
    };
    let expected = result(&single);
    for server in &servers {
        assert_eq!(result(&server.http()), expected);
    }
}

#[test]
fn odd_spellings_of_labels_reach_the_same_series() {
    let cluster = TestCluster::new(FAST, &[]);
    let servers = cluster.start_all();
    let now = now_ms();
    let spellings: [&[(&str, &str)]; 4] = [
        &[("__name__", "spelled"), ("a", "1"), ("z", "2")],
        &[("z", "2"), ("a", "1"), ("__name__", "spelled")],
        &[
            ("__name__", "spelled"),
            ("a", "1"),
            ("empty", ""),
            ("z", "2"),
        ],
        &[("", ""), ("z", "2"), ("__name__", "spelled"), ("a", "1")],
    ];
    let mut stored = 0;
    for (turn, labels) in spellings.iter().enumerate() {
        for (part, server) in servers.iter().enumerate() {
            let time = now + (turn * servers.len() + part) as i64;
            let answer = server
                .http()
                .write(&body(&[Series::new(labels, &[(time, 1.0)])]));
            stored += usize::from(answer.status == 204);
        }
    }
    assert!(stored >= 9, "{stored} of 12 samples are stored");
    for server in &servers {
        let result = server.http().query("spelled[1m]", now + 1_000);
        let series = result.as_array().expect("a matrix");
        assert_eq!(series.len(), 1, "{result}");
        let values = series[0]["values"].as_array().map_or(0, Vec::len);
        assert_eq!(values, stored, "{result}");
    }
}
