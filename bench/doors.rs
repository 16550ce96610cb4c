//! Cost of Firn's protocols and of TLS: the same samples by remote write 1.0 and 2.0, over TLS, and
//! with remote write to another receiver.
//!
//! Each variant ingests the load into an empty directory. All variants take a turn before the next
//! round begins, so that changes in the speed of the machine affect all of them. The results are
//! relative to the first variant.

use crate::say;
use crate::scenario::{self, Load};
use crate::stub;
use crate::system::{Locks, System};
use firn_mirror::push::PushProgress;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Flags of the load that all variants share, except for the protocol.
pub const LOAD: &str = "--series 96000 --samples 60 --interval 15s --senders 4";

/// Number of turns of each variant, whose median is compared.
const TURNS: usize = 5;

/// Maximum time until a receiver has all requests that are sent to it.
const SENT_WITHIN: Duration = Duration::from_secs(60);

/// A variant of the measurement: protocol, TLS and forwarding.
struct Door {
    name: &'static str,
    /// Whether requests are encoded in remote write 2.0 instead of 1.0.
    is_second: bool,
    is_locked: bool,
    /// Whether Firn forwards the samples to a receiver by remote write.
    sends_on: bool,
}

const DOORS: [Door; 4] = [
    Door {
        name: "remote write 1.0",
        is_second: false,
        is_locked: false,
        sends_on: false,
    },
    Door {
        name: "remote write 2.0",
        is_second: true,
        is_locked: false,
        sends_on: false,
    },
    Door {
        name: "1.0 over TLS",
        is_second: false,
        is_locked: true,
        sends_on: false,
    },
    Door {
        name: "1.0, sent on to one receiver",
        is_second: false,
        is_locked: false,
        sends_on: true,
    },
];

/// CPU seconds per million samples, for each variant in the order of turns.
pub struct Measured {
    costs: [Vec<f64>; DOORS.len()],
}

/// The loads: the same samples in requests of both versions, prepared in advance.
pub struct Loads {
    /// Requests of remote write 1.0, which most variants ingest.
    pub first: Load,
    /// Requests of remote write 2.0 with the same samples.
    pub second: Load,
}

/// The receiver of forwarded samples, which accepts and counts all requests undecoded.
struct Sink {
    port: u16,
    taken: Arc<AtomicUsize>,
}

/// Sends the loads to all variants in turns and returns their CPU times.
pub fn run(firn: &System, dir: &Path, loads: &Loads) -> Result<Measured, String> {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    let port = stub::start("127.0.0.1:0", move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        None
    });
    let sink = Sink {
        port: port.map_err(|e| format!("receiver: {e}"))?,
        taken,
    };
    let locks = Locks::make(&dir.join("locks"))?;
    let mut measured = Measured {
        costs: Default::default(),
    };
    for turn in 0..TURNS {
        for (door, costs) in DOORS.iter().zip(&mut measured.costs) {
            rustix::fs::sync();
            say(&format!("turn {} of {TURNS}: {}", turn + 1, door.name));
            let system = if door.is_locked {
                firn.behind(locks.clone())
            } else {
                firn.clone()
            };
            let dir = dir.join("door");
            costs.push(door.cost(&system, &dir, loads, &sink)?);
            std::fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
    }
    Ok(measured)
}

impl Door {
    fn cost(&self, system: &System, dir: &Path, loads: &Loads, sink: &Sink) -> Result<f64, String> {
        let mut config = "scrape_configs: []\n".to_owned();
        if self.sends_on {
            let url = format!("http://127.0.0.1:{}/api/v1/write", sink.port);
            config +=
                &format!("remote_write: [{{url: '{url}', metadata_config: {{send: false}}}}]\n");
        }
        let running = system.start_with(dir, &config)?;
        let before = running.usage()?.cpu_seconds;
        let load = if self.is_second {
            &loads.second
        } else {
            &loads.first
        };
        let report = scenario::send(&running, load, &PushProgress::default())?;
        if self.sends_on {
            sink.wait_until_quiet()?;
        }
        let spent = running.usage()?.cpu_seconds - before;
        running.kill()?;
        Ok(spent * 1e6 / (report.outcome.samples as f64).max(1.0))
    }
}

impl Sink {
    /// Waits until no request has arrived for two seconds. Fails if requests still arrive after a
    /// minute.
    fn wait_until_quiet(&self) -> Result<(), String> {
        let start = Instant::now();
        let mut known = 0;
        while start.elapsed() < SENT_WITHIN {
            std::thread::sleep(Duration::from_secs(2));
            let taken = self.taken.load(Ordering::Relaxed);
            if taken > 0 && taken == known {
                self.taken.store(0, Ordering::Relaxed);
                return Ok(());
            }
            known = taken;
        }
        Err(format!(
            "the receiver still gets requests after {SENT_WITHIN:?}"
        ))
    }
}

/// Returns the median of `figures`; NaN if there are none.
fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Renders the results as a Markdown table with one row per variant.
pub fn markdown(loads: &Loads, measured: &Measured) -> String {
    let summary = &loads.first.summary;
    let mut out = format!(
        "Doors: {} series, {} samples, {TURNS} turns.\n\n\
         | | CPU s a million samples, median (min-max) | beside the first | more than the first, s |\n\
         |---|---:|---:|---:|\n",
        summary.series, summary.samples
    );
    let first = median(&measured.costs[0]);
    for (door, costs) in DOORS.iter().zip(&measured.costs) {
        let middle = median(costs);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = costs.iter().copied().fold(0.0, f64::max);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {middle:.3} ({least:.3}-{most:.3}) | {:.2} | {:.3} |",
            door.name,
            middle / first,
            middle - first
        );
    }
    out
}

/// Returns all figures as JSON, including those that the table leaves out.
pub fn json(loads: &Loads, measured: &Measured) -> Value {
    let doors = DOORS.iter().zip(&measured.costs);
    let doors: Vec<Value> = doors
        .map(|(door, costs)| json!({"door": door.name, "cpu_seconds_per_million": costs}))
        .collect();
    json!({"load": loads.first.summary.to_json(), "doors": doors})
}
