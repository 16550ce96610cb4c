//! Stream aggregation in a real server that is killed repeatedly, compared with the answers of a
//! server that stores everything.

use crate::harness::http::Http;
use crate::harness::server::{Server, firn, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const STEP_MS: i64 = 15_000;
const STEPS: i64 = 160;
const WINDOW_MS: i64 = 300_000;
const DEPLOYMENTS: i64 = 3;
const KILLS: i64 = 20;

const CONFIG: &str = "\
firn:
  aggregation:
    groups:
    - name: g
      stream: true
      interval: 15s
      delay: 30s
      rules:
      - {record: 'd:requests:total', expr: 'sum by (deployment) (requests_total)', drop: true}
      - {record: 'd:heap:max', expr: 'max by (deployment) (heap)'}
      - {record: 'd:heap:count', expr: 'count by (deployment) (heap)', labels: {tier: web}}
";

/// A source series: its labels and samples, with staleness markers as NaN.
struct Source {
    deployment: i64,
    pod: String,
    samples: BTreeMap<i64, f64>,
    /// Number of steps by which it is delivered late.
    late: i64,
    end: Option<i64>,
}

/// Returns the next 64 bits of a xorshift generator.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns pods that are replaced, counters that are reset, and series that arrive late. All
/// samples are at the ends of intervals.
fn fleet(base: i64) -> Vec<Source> {
    let mut state = 0x2545_f491_4f6c_dd1d;
    let mut sources = Vec::new();
    for slot in 0..30 {
        let mut from = 0;
        while from < STEPS {
            let life = 80 + (next(&mut state) % 90) as i64;
            let until = (from + life).min(STEPS);
            let mut value = 1e6 + (next(&mut state) % 1000) as f64;
            let mut samples = BTreeMap::new();
            for step in from..until {
                if next(&mut state).is_multiple_of(40) {
                    value = 900.0 + (next(&mut state) % 9) as f64;
                }
                value += (next(&mut state) % 1000) as f64 / 8.0;
                samples.insert(base + step * STEP_MS, value);
            }
            sources.push(Source {
                deployment: slot % DEPLOYMENTS,
                pod: format!("{slot}-{from}"),
                samples,
                late: (next(&mut state) % 3) as i64,
                end: (until < STEPS).then_some(base + until * STEP_MS),
            });
            from = until + 1;
        }
    }
    sources
}

/// Returns the request of a step: samples of that step, and late samples of earlier steps.
fn delivered(sources: &[Source], base: i64, step: i64) -> Vec<u8> {
    let time_of = |source: &Source| base + (step - source.late) * STEP_MS;
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let mut all = Vec::new();
    for source in sources {
        let time = time_of(source);
        let ends = source.end.filter(|end| *end == time).map(|_| stale);
        let Some(value) = source.samples.get(&time).copied().or(ends) else {
            continue;
        };
        let deployment = source.deployment.to_string();
        for name in ["requests_total", "heap"] {
            let labels = [
                ("__name__", name),
                ("deployment", &deployment),
                ("pod", &source.pod),
            ];
            all.push(Series::new(&labels, &[(time, value)]));
        }
    }
    // Advances data time even if all sources are late.
    let clock = base + step * STEP_MS;
    all.push(Series::new(&[("__name__", "clock")], &[(clock, 1.0)]));
    body(&all)
}

fn start(dir: &Path) -> Server {
    let config = dir.join("firn.yml");
    std::fs::write(&config, CONFIG).unwrap();
    Server::start(&dir.join("data"), &["--config", config.to_str().unwrap()])
}

/// Returns values by deployment and time.
fn range(http: &Http, expr: &str, (start, end): (i64, i64)) -> BTreeMap<(i64, i64), f64> {
    let seconds = |ms: i64| (ms / 1000).to_string();
    let form = [
        ("query", expr),
        ("start", &seconds(start)),
        ("end", &seconds(end)),
        ("step", "15"),
    ];
    let answer = http.post("/api/v1/query_range", &form);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut values = BTreeMap::new();
    for series in answer.json()["data"]["result"].as_array().unwrap() {
        let deployment = series["metric"]["deployment"].as_str().unwrap();
        for point in series["values"].as_array().unwrap() {
            let time = (point[0].as_f64().unwrap() * 1000.0) as i64;
            let value = point[1].as_str().unwrap().parse().unwrap();
            values.insert((deployment.parse().unwrap(), time), value);
        }
    }
    values
}

/// Returns the maximum difference at `end` between the rate of the total and the sum of the rates:
/// zero if each source has all samples of the window or none, and no source began so recently that
/// its rate extrapolates to zero; otherwise the bound in `docs/aggregation.md`.
fn bound(sources: &[Source], deployment: i64, end: i64) -> f64 {
    let whole = WINDOW_MS / STEP_MS;
    let mut bound = 0.0;
    for source in sources
        .iter()
        .filter(|source| source.deployment == deployment)
    {
        let seen = source.samples.range(end - WINDOW_MS + 1..=end);
        let values: Vec<f64> = seen.map(|(_, value)| *value).collect();
        let pairs = values.windows(2);
        let steps = pairs.map(|pair| {
            if pair[1] < pair[0] {
                pair[1]
            } else {
                pair[1] - pair[0]
            }
        });
        let increase: f64 = steps.sum();
        let sampled = (values.len().max(2) - 1) as f64;
        let looks_back = values
            .first()
            .is_some_and(|first| first * sampled < increase);
        if !values.is_empty() && (values.len() as i64) < whole || looks_back {
            bound += increase * (1.5 / sampled + 1.0 / (whole - 1) as f64);
        }
    }
    bound / (WINDOW_MS as f64 / 1000.0)
}

#[test]
fn rate_of_a_total_is_the_sum_of_the_rates_over_twenty_kills() {
    let (rolled, raw) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let base = (now_ms() - (STEPS + 10) * STEP_MS) / STEP_MS * STEP_MS;
    let sources = fleet(base);
    let reference = Server::start(raw.path(), &[]);
    let mut server = start(rolled.path());
    for step in 0..STEPS + 5 {
        let request = delivered(&sources, base, step);
        assert_eq!(reference.http().write(&request).status, 204);
        if step % (STEPS / KILLS) == 3 {
            // The kill occurs before, during or after the request; the sender does not notice it.
            let (http, sent) = (server.http(), request.clone());
            let sending = std::thread::spawn(move || http.write(&sent).status);
            if step % 4 != 0 {
                sending.join().unwrap();
            }
            server.kill();
            server = start(rolled.path());
        }
        let answer = server.http().write(&request);
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
    let http = server.http();
    // In the first window of a total, `rate` extrapolates to zero.
    let times = (base + 2 * WINDOW_MS, base + (STEPS - 1) * STEP_MS);
    let found = range(&http, "rate({__name__=\"d:requests:total\"}[5m])", times);
    let sum = "sum by (deployment) (rate(requests_total[5m]))";
    let expected = range(&reference.http(), sum, times);
    assert_eq!(found.len(), expected.len());
    let mut exact = 0;
    for ((deployment, time), expected) in &expected {
        let found = found[&(*deployment, *time)];
        let bound = bound(&sources, *deployment, *time);
        exact += i64::from(bound == 0.0);
        let differs = (found - expected).abs();
        let at = (time - base) / STEP_MS;
        assert!(
            differs <= expected * 1e-9 + bound,
            "deployment {deployment}, step {at}: {found}, not {expected}, within {bound}"
        );
    }
    assert!(exact > 20, "only {exact} steps without an edge");
    // Exactly one sample per interval, without gaps or duplicates.
    let count = "count_over_time({__name__=\"d:requests:total\"}[5m])";
    assert!(
        range(&http, count, times)
            .values()
            .all(|count| *count == 20.0)
    );
    for (streamed, batch) in [
        ("{__name__=\"d:heap:max\"}", "max by (deployment) (heap)"),
        (
            "{__name__=\"d:heap:count\",tier=\"web\"}",
            "count by (deployment) (heap)",
        ),
    ] {
        let expected = range(&reference.http(), batch, times);
        assert_eq!(range(&http, streamed, times), expected, "{batch}");
    }
    check_dropped(&http);
}

/// Checks that dropped sources are in no answer, and that sources of other rules are.
fn check_dropped(http: &Http) {
    let series = |name: &str| {
        let path = format!("/api/v1/series?match[]={name}");
        http.get(&path).json()["data"].as_array().unwrap().len()
    };
    assert_eq!(series("requests_total"), 0);
    let heaps = series("heap");
    assert!(heaps > 30);
    let names = http.get("/api/v1/label/__name__/values").json();
    assert!(
        !names["data"]
            .as_array()
            .unwrap()
            .contains(&Value::from("requests_total"))
    );
    let stats = http.get("/api/v1/status/tsdb").json();
    let results = 3 * DEPLOYMENTS as usize;
    let all = stats["data"]["headStats"]["numSeries"].as_u64().unwrap();
    assert_eq!(all as usize, heaps + results + 1);
    let page = http.get("/metrics").body;
    let late = "firn_aggregation_late_samples_total{group=\"g\"} 0\n";
    assert!(page.contains(late), "{page}");
}

#[test]
fn aggregation_that_cannot_be_streamed_fails_the_check_and_names_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("firn.yml");
    let rule = "{record: 'job:x:rate', expr: 'sum by (job) (rate(x_total[5m]))'}";
    let group = "{name: g, stream: true, rules: [RULE]}".replace("RULE", rule);
    std::fs::write(
        &file,
        format!("firn: {{aggregation: {{groups: [{group}]}}}}\n"),
    )
    .unwrap();
    let output = firn()
        .args(["check", "config"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    let said = "rule \"job:x:rate\": cannot be streamed: rate() reads the stored samples of each \
         source: write it as a batch rule, in a file of `rule_files`: {record: job:x:rate, expr: \
         \"sum by (job) (rate(x_total[5m]))\"}; or stream `sum by (job) (x_total)` and take \
         rate() of the result";
    assert!(err.contains(said), "{err}");
}

#[test]
fn aggregation_follows_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("firn.yml");
    std::fs::write(&config, "").unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--web.enable-lifecycle",
    ];
    let server = Server::start(&dir.path().join("data"), &flags);
    let http = server.http();
    let base = (now_ms() - 600_000) / STEP_MS * STEP_MS;
    let send = |step: i64, value: f64| {
        let labels = [
            ("__name__", "requests_total"),
            ("deployment", "1"),
            ("pod", "a"),
        ];
        let series = Series::new(&labels, &[(base + step * STEP_MS, value)]);
        assert_eq!(http.write(&body(&[series])).status, 204);
    };
    send(0, 1.0);
    std::fs::write(&config, CONFIG).unwrap();
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    server.wait_log("config applied to aggregation");
    for (step, value) in [(1, 5.0), (2, 7.0), (3, 9.0), (4, 11.0)] {
        send(step, value);
    }
    let total = "{__name__=\"d:requests:total\"}";
    wait_for("results", || {
        let result = http.query(total, base + 2 * STEP_MS);
        result[0]["value"][1] == "2"
    });
    let raw = http.query("count_over_time(requests_total[10m])", base + 4 * STEP_MS);
    assert_eq!(raw[0]["value"][1], Value::from("1"));
    std::fs::write(&config, "").unwrap();
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    wait_for("the end of results", || {
        let result = http.query(total, base + 5 * STEP_MS);
        result.as_array().unwrap().is_empty()
    });
    send(6, 20.0);
    let raw = http.query("requests_total", base + 6 * STEP_MS);
    assert_eq!(raw[0]["value"][1], Value::from("20"));
}
