//! The sixteen requests of a dashboard and their latencies.
//!
//! The systems answer in turns of at least a second, one complete dashboard after the other, over
//! one connection while the other systems are idle. If the speed of the machine drifts, it affects
//! all systems alike, and all have been running for the same time when they are measured. Answers
//! are read completely. Query times are those of the data, so that no system can omit its newest
//! samples.

use firn_mirror::api::{SystemClient, seconds};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A request of the dashboard and its name in the table; its times are determined by a [`Span`].
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// Name of the request, which identifies its row in the table.
    pub name: &'static str,
    ask: Ask,
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    /// A range query over the range of the dashboard, with this expression.
    Range(&'static str),
    /// An instant query at the end of the range, with this expression.
    Instant(&'static str),
    /// A request to another endpoint, with a series selector, which may be empty.
    Other(&'static str, &'static str),
}

/// Placeholder in expressions that is replaced by the name of one pod.
const POD: &str = "$pod";

const fn range(name: &'static str, expression: &'static str) -> Panel {
    Panel {
        name,
        ask: Ask::Range(expression),
    }
}

/// The sixteen requests in the order of the table and of each repetition.
pub const PANELS: [Panel; 16] = [
    range(
        "wide rate sum",
        "sum by (namespace) (rate(http_requests_total[5m]))",
    ),
    range(
        "p99 of buckets",
        "histogram_quantile(0.99, sum by (le, deployment) (\
         rate(http_request_duration_seconds_bucket{cluster=\"eu-west-1\"}[5m])))",
    ),
    range(
        "error ratio",
        "sum by (deployment) (rate(http_requests_total{code=~\"5..\"}[5m])) \
         / sum by (deployment) (rate(http_requests_total[5m]))",
    ),
    range(
        "topk of pods",
        "topk(10, sum by (pod) (rate(container_cpu_usage_seconds_total[5m])))",
    ),
    range(
        "join with group_left",
        "sum by (host_ip) (container_memory_working_set_bytes \
         * on (namespace, pod) group_left (host_ip) kube_pod_info)",
    ),
    range(
        "quantile of rates",
        "quantile by (namespace) (0.9, rate(container_cpu_usage_seconds_total[5m]))",
    ),
    range(
        "max_over_time",
        "max by (deployment) (max_over_time(container_memory_working_set_bytes[10m]))",
    ),
    range(
        "avg_over_time",
        "avg by (namespace) (avg_over_time(go_goroutines[5m]))",
    ),
    range(
        "subquery",
        "max_over_time(sum(rate(http_requests_total{namespace=\"shop-0\"}[1m]))[5m:1m])",
    ),
    range(
        "increase",
        "sum by (namespace) (increase(container_network_receive_bytes_total[5m]))",
    ),
    Panel {
        name: "instant rate sum",
        ask: Ask::Instant("sum by (code) (rate(http_requests_total[5m]))"),
    },
    range(
        "one series, range",
        "container_memory_working_set_bytes{pod=\"$pod\"}",
    ),
    Panel {
        name: "one series, instant",
        ask: Ask::Instant("up{pod=\"$pod\"}"),
    },
    Panel {
        name: "label names",
        ask: Ask::Other("labels", ""),
    },
    Panel {
        name: "label values",
        ask: Ask::Other("label/deployment/values", ""),
    },
    Panel {
        name: "series of a namespace",
        ask: Ask::Other("series", "up{namespace=\"shop-0\"}"),
    },
];

/// Time range and step of a dashboard, which are within the data of the load.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First step in milliseconds since the epoch.
    pub start_ms: i64,
    /// Last step in milliseconds since the epoch, which is the time of the newest sample.
    pub end_ms: i64,
    /// Time between two steps of range queries in milliseconds.
    pub step_ms: i64,
}

/// Measured latencies of one request on one system, and the size of its answer.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Latencies of all repetitions in milliseconds, sorted after the last turn.
    pub sorted_ms: Vec<f64>,
    /// Number of series or other elements in the answer, by which systems are checked to agree.
    pub elements: usize,
}

impl Timing {
    /// Returns the median latency in milliseconds; NaN without repetitions.
    pub fn median_ms(&self) -> f64 {
        self.sorted_ms
            .get(self.sorted_ms.len() / 2)
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// Returns the smallest and the largest latency in milliseconds; NaN without repetitions.
    pub fn spread_ms(&self) -> (f64, f64) {
        let bound = |ms: Option<&f64>| ms.copied().unwrap_or(f64::NAN);
        (bound(self.sorted_ms.first()), bound(self.sorted_ms.last()))
    }
}

impl Panel {
    /// Sends the request and reads the complete answer. Fails if there is no answer.
    pub fn get(&self, client: &SystemClient, span: Span, pod: &str) -> Result<Vec<u8>, String> {
        let (path, params) = self.request(span, pod);
        client.get(path, &params).map_err(|e| e.to_string())
    }

    /// Returns the endpoint and the parameters of the request, with the pod inserted.
    fn request(&self, span: Span, pod: &str) -> (&'static str, Vec<(&'static str, String)>) {
        let start = ("start", seconds(span.start_ms));
        let end = ("end", seconds(span.end_ms));
        let query = |expression: &str| ("query", expression.replace(POD, pod));
        match self.ask {
            Ask::Range(expression) => {
                let step = ("step", seconds(span.step_ms));
                // Firn and VictoriaMetrics evaluate all steps.
                let no_cache = ("nocache", "1".to_owned());
                (
                    "query_range",
                    vec![query(expression), start, end, step, no_cache],
                )
            }
            Ask::Instant(expression) => {
                let time = ("time", seconds(span.end_ms));
                ("query", vec![query(expression), time])
            }
            Ask::Other(path, "") => (path, vec![start, end]),
            Ask::Other(path, selector) => {
                let selector = ("match[]", selector.to_owned());
                (path, vec![selector, start, end])
            }
        }
    }
}

/// Pause before each turn, in which the previous system can finish work after its last answer, such
/// as garbage collection.
const PAUSE: Duration = Duration::from_millis(300);

/// Minimum length of a turn. A slow system answers one dashboard in it, a fast one many.
const TURN: Duration = Duration::from_secs(1);

/// Measures all requests on all systems in `turns` turns, after a warm-up turn that is ignored.
pub fn measure(bases: &[String], span: Span, turns: usize) -> Vec<Result<Vec<Timing>, String>> {
    let mut asked: Vec<Result<Asked, String>> = bases.iter().map(|base| Asked::new(base)).collect();
    for turn in 0..=turns {
        let first = turn % bases.len().max(1);
        for at in (first..bases.len()).chain(0..first) {
            std::thread::sleep(PAUSE);
            let is_counted = turn > 0;
            let failed = asked[at]
                .as_mut()
                .ok()
                .and_then(|system| system.take_turn(span, is_counted).err());
            if let Some(e) = failed {
                asked[at] = Err(e);
            }
        }
    }
    let timings = asked.into_iter().map(|system| system.map(Asked::timings));
    timings.collect()
}

/// A system under measurement with its connection and its latencies so far.
struct Asked {
    client: SystemClient,
    pod: String,
    timings: Vec<Timing>,
}

impl Asked {
    fn new(base: &str) -> Result<Self, String> {
        let client = SystemClient::new(base);
        let pods = client
            .json("label/pod/values", &[])
            .map_err(|e| e.to_string())?;
        let pod = pods["data"][0].as_str().ok_or("there is no label pod")?;
        Ok(Self {
            client,
            pod: pod.to_owned(),
            timings: vec![Timing::default(); PANELS.len()],
        })
    }

    /// Requests complete dashboards until the turn is over. The first request only wakes a system
    /// that was idle, and is ignored.
    fn take_turn(&mut self, span: Span, is_counted: bool) -> Result<(), String> {
        self.get(&PANELS[0], span)?;
        let start = Instant::now();
        loop {
            self.ask(span, is_counted)?;
            if start.elapsed() >= TURN {
                return Ok(());
            }
        }
    }

    /// Sends each request of the dashboard once. Records its latency or, in the warm-up turn, the
    /// size of its answer.
    fn ask(&mut self, span: Span, is_counted: bool) -> Result<(), String> {
        for (at, panel) in PANELS.iter().enumerate() {
            let start = Instant::now();
            let body = self.get(panel, span)?;
            let elapsed_ms = start.elapsed().as_secs_f64() * 1000.0;
            let timing = &mut self.timings[at];
            if is_counted {
                timing.sorted_ms.push(elapsed_ms);
            } else {
                timing.elements = elements(&body).map_err(|e| format!("{}: {e}", panel.name))?;
            }
        }
        Ok(())
    }

    fn get(&self, panel: &Panel, span: Span) -> Result<Vec<u8>, String> {
        panel.get(&self.client, span, &self.pod)
    }

    fn timings(mut self) -> Vec<Timing> {
        for timing in &mut self.timings {
            timing.sorted_ms.sort_by(f64::total_cmp);
        }
        self.timings
    }
}

/// Returns the number of series or other elements in an answer. Fails if there are none.
pub fn elements(body: &[u8]) -> Result<usize, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let data = &answer["data"];
    let list = data["result"].as_array().or(data.as_array());
    match list.map(Vec::len) {
        Some(count) if count > 0 => Ok(count),
        _ => Err("the answer is empty".to_owned()),
    }
}
