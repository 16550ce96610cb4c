//! Records the resource usage of the systems under load over time: memory, heap, CPU and written
//! bytes.
//!
//! The figures are read from `/metrics` of the system: the `process_*` metrics, and those for heap
//! and written bytes of Go's runtime, VictoriaMetrics and Firn. If the process ID on this machine
//! is known, the kernel's count of bytes written to disks takes precedence.

use super::trial::asking::LoadEndSignal;
use crate::api::seconds;
use crate::push::{PushAccess, now_ms};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time between two observations, to which the duration of an observation is added.
const EVERY: Duration = Duration::from_secs(5);

/// Timeout of an observation; a busy system may miss one.
const LOOK_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum length in bytes of a metrics response; a longer one counts as missing.
const PAGE_BYTES_MAX: u64 = 64 << 20;

/// A system whose resource usage is recorded during a load, on a thread of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedSystem {
    /// Name of the system: `queried` or `unqueried`.
    pub name: &'static str,
    /// Base URL of the system, without `/metrics`.
    pub base: String,
    /// Process ID, if the system runs on this machine.
    pub pid: Option<u32>,
}

/// Resource usage at one time; a field is `None` if the system does not expose it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceUsage {
    /// Time of the observation in milliseconds since the epoch.
    pub time_ms: i64,
    /// Resident memory of the process in bytes.
    pub resident: Option<f64>,
    /// Heap in use in bytes, from Go's runtime or Firn's memory accounting.
    pub heap: Option<f64>,
    /// CPU time since the start of the process in seconds.
    pub cpu: Option<f64>,
    /// Bytes written to storage since the start of the process.
    pub written: Option<f64>,
}

impl ResourceUsage {
    /// Converts the observation to the JSON of reports, with null for unknown figures.
    pub fn to_json(&self) -> Value {
        json!({
            "time": seconds(self.time_ms).parse::<f64>().unwrap_or_default(),
            "resident_bytes": self.resident,
            "heap_bytes": self.heap,
            "cpu_seconds": self.cpu,
            "written_bytes": self.written,
        })
    }
}

impl WatchedSystem {
    /// Records observations at fixed intervals until `end` is signalled, and a last one after it.
    pub fn watch(&self, end: &LoadEndSignal, access: PushAccess<'_>) -> Vec<ResourceUsage> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(LOOK_TIMEOUT))
            .tls_config(access.tls.clone())
            .build();
        let agent: ureq::Agent = config.into();
        let mut looks = vec![self.observe_usage(&agent, access.headers)];
        while end.wait_until(Instant::now() + EVERY) {
            looks.push(self.observe_usage(&agent, access.headers));
        }
        looks.push(self.observe_usage(&agent, access.headers));
        looks
    }

    fn observe_usage(&self, agent: &ureq::Agent, headers: &[(String, String)]) -> ResourceUsage {
        let url = format!("{}/metrics", self.base.trim_end_matches('/'));
        let request = agent.get(&url).header("Accept", "text/plain");
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let answer = request.call();
        let text = answer.ok().and_then(|mut answer| {
            let body = answer.body_mut().with_config().limit(PAGE_BYTES_MAX);
            body.lossy_utf8(true).read_to_string().ok()
        });
        let mut look = parse_metrics_page(&text.unwrap_or_default());
        look.time_ms = now_ms();
        if let Some(pid) = self.pid {
            look.written = read_written_bytes(pid).or(look.written);
        }
        look
    }
}

/// Extracts the figures from a metrics page in text format.
fn parse_metrics_page(text: &str) -> ResourceUsage {
    let sum = |is_it: &dyn Fn(&str) -> bool| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let value = line.rsplit(' ').next()?;
            is_it(name).then(|| value.parse::<f64>().ok()).flatten()
        });
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>())
    };
    let one = |name: &str| sum(&|known| known == name);
    let is_firns =
        |name: &str| name.starts_with("firn_storage_") && name.ends_with("_written_bytes_total");
    ResourceUsage {
        time_ms: 0,
        resident: one("process_resident_memory_bytes"),
        heap: one("go_memstats_heap_inuse_bytes").or_else(|| one("firn_memory_used_bytes")),
        cpu: one("process_cpu_seconds_total"),
        written: one("process_io_storage_written_bytes_total").or_else(|| sum(&is_firns)),
    }
}

/// Returns the number of bytes that a local process has written to disks, from `/proc`.
fn read_written_bytes(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("write_bytes: "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_any_system_says_what_it_costs() {
        let check = |text: &str, expected: [Option<f64>; 4]| {
            let look = parse_metrics_page(text);
            let found = [look.resident, look.heap, look.cpu, look.written];
            assert_eq!(found, expected, "{text}");
        };
        check(
            "# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 1.5\n\
             process_resident_memory_bytes 2e+06\ngo_memstats_heap_inuse_bytes 5\n",
            [Some(2e6), Some(5.0), Some(1.5), None],
        );
        check(
            "firn_memory_used_bytes{kind=\"a\"} 3\nfirn_memory_used_bytes{kind=\"b\"} 4\n\
             firn_storage_wal_written_bytes_total 10\nfirn_storage_page_written_bytes_total 2\n",
            [None, Some(7.0), None, Some(12.0)],
        );
        check(
            "process_io_storage_written_bytes_total 9\n",
            [None, None, None, Some(9.0)],
        );
        check("", [None; 4]);
    }

    #[test]
    fn process_of_this_machine_says_what_it_wrote() {
        assert!(read_written_bytes(std::process::id()).is_some());
        assert_eq!(read_written_bytes(0), None);
    }
}
