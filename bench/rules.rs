//! Cost of recording rules: a thousand rules over a hundred thousand series, every minute.
//!
//! ```text
//! for a system without the rules, then with them:
//!   empty directory -> live load -> two minutes that are ignored -> three that are measured
//! ```
//!
//! The cost of the rules is the difference of the two runs in CPU time, memory and latency of
//! writes. VictoriaMetrics evaluates rules in another program and is left out.

use crate::make_load;
use crate::process::Usage;
use crate::scenario::{self, Load};
use crate::system::{Kind, Running, System};
use firn_mirror::api::{ExpressionRequest, SystemClient};
use firn_mirror::load::LoadReport;
use firn_mirror::push::{PushPace, PushProgress, now_ms};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Flags of the load, to which its start time is added.
const LOAD: &str = "--series 100000 --duration 6m --interval 15s --senders 4";

/// Time reserved for generating the load, after which the load begins, in milliseconds.
const AHEAD_MS: i64 = 20_000;

/// Data time in milliseconds that is ignored. In it all series are created and all groups
/// evaluated.
const WARM_UP_MS: i64 = 150_000;

/// Length of the measured window: three evaluations of each rule.
const WINDOW: Duration = Duration::from_secs(180);

/// Number of rules per group, so that there are twenty groups.
const GROUP: usize = 50;

const COUNTERS: [&str; 20] = [
    "container_cpu_usage_seconds_total",
    "container_cpu_cfs_periods_total",
    "container_cpu_cfs_throttled_periods_total",
    "container_cpu_cfs_throttled_seconds_total",
    "container_memory_failures_total",
    "container_network_receive_bytes_total",
    "container_network_receive_packets_total",
    "container_network_receive_errors_total",
    "container_network_receive_packets_dropped_total",
    "container_network_transmit_bytes_total",
    "container_network_transmit_packets_total",
    "container_network_transmit_errors_total",
    "container_fs_reads_bytes_total",
    "container_fs_writes_bytes_total",
    "container_fs_reads_total",
    "container_fs_writes_total",
    "go_memstats_alloc_bytes_total",
    "go_memstats_mallocs_total",
    "http_requests_total",
    "process_cpu_seconds_total",
];

const GAUGES: [&str; 20] = [
    "container_memory_working_set_bytes",
    "container_memory_rss",
    "container_memory_cache",
    "container_memory_usage_bytes",
    "container_memory_mapped_file",
    "container_fs_usage_bytes",
    "container_threads",
    "container_sockets",
    "container_file_descriptors",
    "go_goroutines",
    "go_memstats_alloc_bytes",
    "go_memstats_heap_alloc_bytes",
    "go_memstats_heap_idle_bytes",
    "go_memstats_heap_inuse_bytes",
    "go_memstats_heap_objects",
    "go_memstats_mspan_inuse_bytes",
    "kube_pod_container_resource_requests",
    "process_resident_memory_bytes",
    "process_open_fds",
    "queue_depth",
];

const LABELS: [&str; 5] = ["cluster", "namespace", "deployment", "team", "pod"];

/// Functions and ranges that are applied to counters before summing.
const GROWTHS: [&str; 5] = ["rate 1m", "rate 2m", "rate 5m", "increase 5m", "irate 2m"];

/// Aggregation operators that are applied to gauges.
const AGGREGATIONS: [&str; 5] = ["sum", "avg", "max", "min", "count"];

/// The results of a run with or without the rules, for the measured window.
#[derive(Clone, Debug)]
struct Run {
    cpu_seconds: f64,
    usage: Usage,
    report: LoadReport,
    /// Number of missed evaluations of groups since the start.
    missed: f64,
    /// Number of series that the rules created in the storage.
    recorded: f64,
}

/// The results of one system in both runs, whose difference is the cost of the rules.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The system and its version, Firn or Prometheus.
    pub system: System,
    without: Run,
    with: Run,
}

impl Evaluated {
    /// Returns the CPU seconds per minute that the rules took: the difference of the two runs.
    fn rules_cpu_per_minute(&self) -> f64 {
        let seconds = self.with.cpu_seconds - self.without.cpu_seconds;
        seconds * 60.0 / WINDOW.as_secs_f64()
    }

    /// Returns all figures as JSON, including those that the table leaves out.
    pub fn to_json(&self) -> Value {
        let run = |run: &Run| {
            json!({
                "cpu_seconds": run.cpu_seconds,
                "resident_bytes": run.usage.resident_bytes,
                "peak_bytes": run.usage.peak_bytes,
                "push": run.report.to_json(),
                "missed": run.missed,
                "recorded": run.recorded,
            })
        };
        json!({
            "system": self.system.kind.name(),
            "version": self.system.version,
            "rules": rules().len(),
            "window_seconds": WINDOW.as_secs_f64(),
            "rules_cpu_seconds_per_minute": self.rules_cpu_per_minute(),
            "without": run(&self.without),
            "with": run(&self.with),
        })
    }

    /// Returns the row of this system in the Markdown table, with rounded figures.
    pub fn line(&self) -> String {
        let push = |run: &Run| f64::from(run.report.latencies_us().quantile(0.999)) / 1000.0;
        format!(
            "| {} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} |\n",
            self.system.kind.name(),
            self.rules_cpu_per_minute(),
            self.without.cpu_seconds * 60.0 / WINDOW.as_secs_f64(),
            self.without.usage.resident_bytes as f64 / 1e6,
            self.with.usage.resident_bytes as f64 / 1e6,
            push(&self.without),
            push(&self.with),
            self.with.recorded,
            self.with.missed,
        )
    }
}

/// Returns the heading with the number of rules, and the header rows of the Markdown table.
pub fn head() -> String {
    format!(
        "{} recording rules over 100,000 series every minute, for {} s:\n\n| | CPU s a minute of \
         the rules | of the rest | MB without | with | push p99.9 ms without | with | recorded \
         series | missed |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        rules().len(),
        WINDOW.as_secs()
    )
}

/// Measures `system` without rules and with them, in directories below `dir`, one after the other.
pub fn run(system: &System, dir: &Path) -> Result<Evaluated, String> {
    Ok(Evaluated {
        system: system.clone(),
        without: run_once(system, &dir.join("without"), false)?,
        with: run_once(system, &dir.join("with"), true)?,
    })
}

fn run_once(system: &System, dir: &Path, has_rules: bool) -> Result<Run, String> {
    let start_ms = now_ms() + AHEAD_MS;
    let load = make_load(dir, "rules", &format!("{LOAD} --start {start_ms}"))?;
    let file = dir.join("rules.yml");
    std::fs::write(&file, rule_file()).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut config = "scrape_configs: []\nglobal: {evaluation_interval: 1m}\n".to_owned();
    if has_rules {
        config += &format!("rule_files: ['{}']\n", file.display());
    }
    let running = system.start_with(dir, &config)?;
    let (cpu_seconds, usage, report) = watch(&running, &load)?;
    let (recorded, missed) = if has_rules {
        (recorded(&running)?, missed(&running, system.kind)?)
    } else {
        (0.0, 0.0)
    };
    running.stop()?;
    Ok(Run {
        cpu_seconds,
        usage,
        report,
        missed,
        recorded,
    })
}

/// Sends the load in real time. Returns the CPU seconds of the measured window, the resource usage
/// at its end, and the report of the sender.
fn watch(running: &Running, load: &Load) -> Result<(f64, Usage, LoadReport), String> {
    let progress = PushProgress::default();
    thread::scope(|scope| {
        let sending = scope.spawn(|| scenario::send_at(running, load, PushPace::Live, &progress));
        let begins_ms = load.summary.start_ms + WARM_UP_MS;
        let wait = u64::try_from(begins_ms - now_ms()).unwrap_or(0);
        thread::sleep(Duration::from_millis(wait));
        let before = running.usage()?;
        thread::sleep(WINDOW);
        let usage = running.usage()?;
        let report = sending.join().expect("sending does not panic")?;
        Ok((usage.cpu_seconds - before.cpu_seconds, usage, report))
    })
}

/// Returns the expressions of all rules, one thousand for counters and gauges.
fn rules() -> Vec<String> {
    let mut rules = Vec::with_capacity(1_000);
    for label in LABELS {
        for counter in COUNTERS {
            for growth in GROWTHS {
                let (function, range) = growth.split_once(' ').unwrap_or((growth, "5m"));
                rules.push(format!("sum by ({label}) ({function}({counter}[{range}]))"));
            }
        }
        for gauge in GAUGES {
            for aggregation in AGGREGATIONS {
                rules.push(format!("{aggregation} by ({label}) ({gauge})"));
            }
        }
    }
    rules
}

fn rule_file() -> String {
    let mut text = "groups:\n".to_owned();
    for (group, rules) in rules().chunks(GROUP).enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- name: group-{group}\n  interval: 1m\n  rules:");
        for (rule, expression) in rules.iter().enumerate() {
            let name = format!("bench:recorded:{}", group * GROUP + rule);
            let _ = writeln!(text, "  - {{record: '{name}', expr: '{expression}'}}");
        }
    }
    text
}

fn recorded(running: &Running) -> Result<f64, String> {
    let ask = ExpressionRequest::Instant {
        expression: "count({__name__=~\"bench:recorded:.+\"})".to_owned(),
        time_ms: now_ms(),
    };
    let client = SystemClient::new(&running.url);
    let answer = client.send_query(&ask).map_err(|e| e.to_string())?;
    let value = answer["data"]["result"][0]["value"][1].as_str();
    let value = value.ok_or_else(|| format!("no recorded series: {answer}"))?;
    value.parse().map_err(|e| format!("{value}: {e}"))
}

fn missed(running: &Running, kind: Kind) -> Result<f64, String> {
    let name = match kind {
        Kind::Firn => "firn_rule_group_iterations_missed_total",
        Kind::Prometheus | Kind::VictoriaMetrics => "prometheus_rule_group_iterations_missed_total",
    };
    let url = format!("{}/metrics", running.url);
    let answer = ureq::get(&url).call();
    let text = answer.and_then(|mut answer| answer.body_mut().read_to_string());
    let text = text.map_err(|e| format!("{url}: {e}"))?;
    let of_groups = text.lines().filter(|line| line.starts_with(name));
    let values = of_groups.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(values.sum())
}
