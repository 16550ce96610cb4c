//! What the systems under a load cost, over time: memory, heap, CPU, bytes written.
//!
//! What a system says of itself under `/metrics` is taken: `process_*`, and what stands for heap
//! and written bytes with Go's runtime, VictoriaMetrics and Firn. Of a process on this machine the
//! kernel knows more, if its number is given: what it wrote to disks.

use super::trial::asking::End;
use crate::api::seconds;
use crate::push::{Access, now_ms};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// How long a look may take: a system that is busy may leave one out.
const LOOK_TIMEOUT: Duration = Duration::from_secs(4);

/// The longest page of metrics that is read.
const PAGE_BYTES_MAX: u64 = 64 << 20;

/// A system to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// `queried` or `unqueried`.
    pub name: &'static str,
    /// Up to and without `/metrics`.
    pub base: String,
    /// Its number among the processes of this machine.
    pub pid: Option<u32>,
}

/// What was seen at one time; `None` where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// When, in milliseconds since the epoch.
    pub time_ms: i64,
    /// Bytes of memory.
    pub resident: Option<f64>,
    /// Bytes of the heap in use.
    pub heap: Option<f64>,
    /// Seconds of CPU since the start.
    pub cpu: Option<f64>,
    /// Bytes written since the start.
    pub written: Option<f64>,
}

impl Look {
    /// The look as reports hold it.
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

impl Watched {
    /// Looks until `end`, and once more behind it.
    pub fn watch(&self, end: &End, access: Access<'_>) -> Vec<Look> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(LOOK_TIMEOUT))
            .tls_config(access.tls.clone())
            .build();
        let agent: ureq::Agent = config.into();
        let mut looks = vec![self.look(&agent, access.headers)];
        while end.wait_until(Instant::now() + EVERY) {
            looks.push(self.look(&agent, access.headers));
        }
        looks.push(self.look(&agent, access.headers));
        looks
    }

    fn look(&self, agent: &ureq::Agent, headers: &[(String, String)]) -> Look {
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
        let mut look = of_page(&text.unwrap_or_default());
        look.time_ms = now_ms();
        if let Some(pid) = self.pid {
            look.written = written_by(pid).or(look.written);
        }
        look
    }
}

/// What a page of metrics in text says.
fn of_page(text: &str) -> Look {
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
    Look {
        time_ms: 0,
        resident: one("process_resident_memory_bytes"),
        heap: one("go_memstats_heap_inuse_bytes").or_else(|| one("firn_memory_used_bytes")),
        cpu: one("process_cpu_seconds_total"),
        written: one("process_io_storage_written_bytes_total").or_else(|| sum(&is_firns)),
    }
}

/// Bytes that a process of this machine had written to disks.
fn written_by(pid: u32) -> Option<f64> {
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
            let look = of_page(text);
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
        assert!(written_by(std::process::id()).is_some());
        assert_eq!(written_by(0), None);
    }
}
