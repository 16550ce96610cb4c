//! Metrics of the process under the names that every Prometheus client uses, and constants of this
//! build.
//!
//! Values are read from `/proc/self` at each collection (three small reads). Values that cannot be
//! read are omitted.

use firn_model::budget::Budget;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use std::fs;

/// Collector of process metrics, which reads `/proc` at each collection, and of the use of the
/// memory budget.
#[derive(Debug)]
pub struct ProcessCollector {
    /// Budget of `firn.memory_limit`, with its limit and its current use.
    memory: Budget,
}

impl ProcessCollector {
    /// Creates the collector for the running process. `memory` is the budget of all its memory.
    pub fn new(memory: Budget) -> Self {
        Self { memory }
    }
}

impl Collect for ProcessCollector {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.metric(
            "firn_build_info",
            "Version of Firn, and the version of Prometheus that it is compatible with.",
            &[
                ("prometheus_version", crate::version::PROMETHEUS_VERSION),
                ("version", env!("CARGO_PKG_VERSION")),
            ],
            MetricValue::Gauge(1.0),
        );
        sink.metric(
            "firn_memory_limit_bytes",
            "Memory limit for ingestion, queries and caches together.",
            &[],
            MetricValue::Gauge(self.memory.limit_bytes() as f64),
        );
        sink.metric(
            "firn_memory_used_bytes",
            "Accounted memory: the process at its start, the head as of its last sweep, and the \
             memory of running writes and queries. Compare it with the resident size.",
            &[],
            MetricValue::Gauge(self.memory.used_bytes() as f64),
        );
        if let Some(stat) = ProcStat::read() {
            stat.collect(sink);
        }
        if let Ok(fds) = fs::read_dir("/proc/self/fd") {
            // The folder itself is open during the listing and is not counted.
            let open = fds.count().saturating_sub(1);
            sink.metric(
                "process_open_fds",
                "Number of open file descriptors.",
                &[],
                MetricValue::Gauge(open as f64),
            );
        }
        if let Some(max) = max_fds() {
            sink.metric(
                "process_max_fds",
                "Maximum number of open file descriptors.",
                &[],
                MetricValue::Gauge(max),
            );
        }
    }
}

/// The fields of `/proc/self/stat` that the metrics use, in the units of the kernel: clock ticks
/// and pages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProcStat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl ProcStat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// Parses the fields by their numbers in proc(5). The second field, the command name, may
    /// contain spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let (_, after) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)?.checked_add(field(15)?)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        sink.metric(
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            &[],
            MetricValue::Counter(self.cpu_ticks as f64 / ticks_per_second),
        );
        sink.metric(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            &[],
            MetricValue::Gauge(self.resident_pages as f64 * rustix::param::page_size() as f64),
        );
        sink.metric(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            &[],
            MetricValue::Gauge(self.virtual_bytes as f64),
        );
        sink.metric(
            "process_threads",
            "Number of threads.",
            &[],
            MetricValue::Gauge(self.threads as f64),
        );
        if let Some(boot) = boot_seconds() {
            sink.metric(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                &[],
                MetricValue::Gauge(boot + self.start_ticks as f64 / ticks_per_second),
            );
        }
    }
}

/// Returns the resident memory of the process in bytes, or 0 if the kernel does not report it.
pub fn resident_bytes() -> usize {
    let pages = ProcStat::read().map_or(0, |stat| stat.resident_pages as usize);
    pages * rustix::param::page_size()
}

/// Returns the number of threads of the process, or 0 if the kernel does not report it.
pub fn thread_count() -> u64 {
    ProcStat::read().map_or(0, |stat| stat.threads)
}

/// Returns the boot time of the machine in seconds since the epoch.
fn boot_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Names(Vec<String>);

    impl MetricSink for Names {
        fn metric(&mut self, name: &str, help: &str, _: &[(&str, &str)], value: MetricValue<'_>) {
            assert!(!help.is_empty(), "{name}");
            if let MetricValue::Counter(v) | MetricValue::Gauge(v) = value {
                assert!(v.is_finite() && v >= 0.0, "{name}");
            }
            self.0.push(name.to_owned());
        }
    }

    #[test]
    fn process_collect_on_linux_gives_every_metric() {
        let mut names = Names::default();
        ProcessCollector::new(Budget::new("process", 1)).collect(&mut names);
        assert_eq!(
            names.0,
            [
                "firn_build_info",
                "firn_memory_limit_bytes",
                "firn_memory_used_bytes",
                "process_cpu_seconds_total",
                "process_resident_memory_bytes",
                "process_virtual_memory_bytes",
                "process_threads",
                "process_start_time_seconds",
                "process_open_fds",
                "process_max_fds",
            ]
        );
    }

    #[test]
    fn stat_parse_reads_fields_behind_a_strange_command() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 9 0 0 0 15 5 0 0 20 0 3 0 900 4096 12 1844";
        let want = ProcStat {
            cpu_ticks: 20,
            threads: 3,
            start_ticks: 900,
            virtual_bytes: 4096,
            resident_pages: 12,
        };
        assert_eq!(ProcStat::parse(text), Some(want));
        assert_eq!(ProcStat::parse("7 (a) S 1"), None);
    }
}
