//! A cluster of three nodes on one bucket beside a single node with a log on its disk.
//!
//! ```text
//! burst      three loads at once, as fast as they are accepted -> CPU, bytes, latencies
//! dashboard  its requests, the single node and a node of the cluster in turns
//! live       the same series in real time, flush_interval 100 ms -> latencies, quiet and with a kill
//! takeovers  kill -9 of the node that leads most partitions -> time until a write to all partitions
//!            succeeds again, round by round
//! ```
//!
//! The store is versitygw on this machine if it is installed, otherwise a folder; its CPU time is a
//! row of its own. The single node gets the same requests over the same number of connections.

mod nodes;
mod tables;

use crate::arguments::Size;
use crate::dashboard::{self, Span, Timing};
use crate::make_load;
use crate::process::{Usage, disk_bytes};
use crate::say;
use crate::scenario::Load;
use crate::system::{Running, System};
use firn_mirror::load;
use firn_mirror::push::{
    PushAccess, PushConnection, PushDestination, PushFailurePolicy, PushOutcome, PushPace,
    PushProgress, now_ms,
};
use nodes::{BenchCluster, BenchNodes, NODES, PARTITIONS};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
pub use tables::{json, markdown};

/// Number of samples of each series in the loads in real time, and thus their length: a minute.
const LIVE_SAMPLES: u64 = 4;

/// Number of series of a request that reaches all partitions: some 16 for each of them.
const PROBE_SERIES: usize = 200;

/// Maximum time from a kill to a successful write.
const TAKEOVER_DEADLINE: Duration = Duration::from_secs(60);

/// Number of rounds of the phase `takeovers`.
const TAKEOVERS: usize = 10;

/// The results of both systems.
pub struct ClusterComparison {
    /// Name of the store.
    store: &'static str,
    loads: Vec<Load>,
    single: SystemCosts,
    cluster: SystemCosts,
    takeovers_s: Vec<f64>,
}

/// The results of one system: a single node, or all nodes together.
struct SystemCosts {
    burst: PushOutcome,
    /// CPU seconds of the nodes, with the settling time.
    cpu_seconds: f64,
    store_cpu_seconds: f64,
    resident_bytes: u64,
    /// Bytes of objects created in the bucket during the burst.
    put_bytes: f64,
    /// Number of objects created in the bucket during the burst.
    puts: f64,
    disk_bytes: u64,
    dashboard: Vec<Timing>,
    quiet: PushOutcome,
    /// Latencies of the load in real time in which a node is killed; not of the single node.
    with_kill: PushOutcome,
}

/// Runs all phases below `dir`. `size` gives the number of samples of the burst.
pub fn run(firn: &System, size: &Size, dir: &Path) -> Result<ClusterComparison, String> {
    say("make the loads");
    let loads = make_loads(dir, "burst", size.fleet_series, size.fleet_samples, None)?;
    let cluster = BenchCluster::create(firn, &dir.join("cluster"))?;
    say("burst: single node");
    let single = firn.start(&dir.join("single"))?;
    let single_burst = measure_burst(&[&single], None, &loads, size.settle)?;
    say(&format!("burst: three nodes on {}", cluster.store_name()));
    let nodes = cluster.start("250ms")?;
    let cluster_burst = measure_burst(&nodes.running(), Some(&cluster), &loads, size.settle)?;
    say("dashboard");
    let end_ms = loads[0].summary.end_ms;
    let span = Span {
        start_ms: end_ms - size.dashboard_ms,
        end_ms,
        step_ms: loads[0].summary.interval_ms,
    };
    let urls = [single.url.clone(), nodes.running()[0].url.clone()];
    let mut dashboards = dashboard::measure(&urls, span, size.turns).into_iter();
    let mut next = || {
        dashboards
            .next()
            .unwrap_or_else(|| Err("no dashboard".into()))
    };
    let single_costs = single_burst.with_dashboard(next()?, &dir.join("single/data"))?;
    let cluster_costs = cluster_burst.with_dashboard(next()?, &cluster.folder())?;
    nodes.stop()?;
    say("live: single node");
    let quiet = send_live(&[&single], size, dir, "single-live", |_| Ok(()))?;
    single.stop()?;
    let (cluster_live, takeovers_s) = measure_live(&cluster, size, dir)?;
    let [cluster_quiet, with_kill] = cluster_live;
    Ok(ClusterComparison {
        store: cluster.store_name(),
        loads,
        single: SystemCosts {
            quiet,
            ..single_costs
        },
        cluster: SystemCosts {
            quiet: cluster_quiet,
            with_kill,
            ..cluster_costs
        },
        takeovers_s,
    })
}

/// Makes a load for each node of the cluster, which together have `series` series. A load in real
/// time begins at `start_ms`.
fn make_loads(
    dir: &Path,
    name: &str,
    series: usize,
    samples: u64,
    start_ms: Option<i64>,
) -> Result<Vec<Load>, String> {
    let start = start_ms.map_or(String::new(), |ms| format!(" --start {ms}"));
    let make = |n: usize| {
        let flags = format!(
            "--series {} --samples {samples} --interval 15s --senders 2 --seed {}{start}",
            series / NODES.len(),
            n + 1
        );
        make_load(dir, &format!("{name}-{n}"), &flags)
    };
    (0..NODES.len()).map(make).collect()
}

/// Sends each load to a node of its own, or all to the single node.
fn send_loads(nodes: &[&Running], loads: &[Load], pace: PushPace) -> Result<PushOutcome, String> {
    thread::scope(|scope| {
        let send = |(n, load): (usize, &'_ Load)| {
            let node = nodes[n % nodes.len()];
            let (url, tls, dir) = (node.write_url(), node.tls.clone(), load.dir.clone());
            scope.spawn(move || {
                let way = PushDestination {
                    url: &url,
                    pace,
                    access: PushAccess {
                        tls: &tls,
                        headers: &[],
                    },
                    on_failure: PushFailurePolicy::GoOn,
                };
                load::replay(&dir, way, &PushProgress::default())
            })
        };
        let senders: Vec<_> = loads.iter().enumerate().map(send).collect();
        let mut all = PushOutcome::default();
        for sender in senders {
            let report = sender.join().expect("a sender does not panic");
            all.merge(report.map_err(|e| e.to_string())?.outcome);
        }
        Ok(all)
    })
}

/// Sums the usage of the processes.
fn total_usage(nodes: &[&Running]) -> Result<Usage, String> {
    let mut total = Usage::default();
    for node in nodes {
        let usage = node.usage()?;
        total.cpu_seconds += usage.cpu_seconds;
        total.resident_bytes += usage.resident_bytes;
    }
    Ok(total)
}

fn measure_burst(
    nodes: &[&Running],
    cluster: Option<&BenchCluster>,
    loads: &[Load],
    settle: Duration,
) -> Result<SystemCosts, String> {
    let store_cpu = || cluster.map_or(Ok(0.0), BenchCluster::store_cpu_seconds);
    let put = || nodes::created_objects(nodes);
    let (before, store_before, put_before) = (total_usage(nodes)?, store_cpu()?, put()?);
    let burst = send_loads(nodes, loads, PushPace::Fast)?;
    if let Some(first) = &burst.first_failure {
        return Err(format!("a write of the burst failed: {first}"));
    }
    thread::sleep(settle);
    let (after, put_after) = (total_usage(nodes)?, put()?);
    Ok(SystemCosts {
        burst,
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        store_cpu_seconds: store_cpu()? - store_before,
        resident_bytes: after.resident_bytes,
        put_bytes: put_after.bytes - put_before.bytes,
        puts: put_after.count - put_before.count,
        disk_bytes: 0,
        dashboard: Vec::new(),
        quiet: PushOutcome::default(),
        with_kill: PushOutcome::default(),
    })
}

impl SystemCosts {
    /// Adds the latencies of the dashboard and the size of the folder that contains the data.
    fn with_dashboard(self, dashboard: Vec<Timing>, data: &Path) -> Result<Self, String> {
        let disk_bytes = disk_bytes(data).map_err(|e| format!("{}: {e}", data.display()))?;
        Ok(Self {
            dashboard,
            disk_bytes,
            ..self
        })
    }

    /// Returns the number of accepted samples of the burst, at least one.
    fn samples(&self) -> f64 {
        (self.burst.samples as f64).max(1.0)
    }
}

/// Sends loads in real time and calls `beside` once, on another thread, when a third of their time
/// is over.
fn send_live(
    nodes: &[&Running],
    size: &Size,
    dir: &Path,
    name: &str,
    beside: impl FnOnce(Duration) -> Result<(), String> + Send,
) -> Result<PushOutcome, String> {
    // The loads are made before their first sample is due.
    let start_ms = now_ms() + 10_000;
    let loads = make_loads(dir, name, size.fleet_series, LIVE_SAMPLES, Some(start_ms))?;
    let length = Duration::from_millis(LIVE_SAMPLES * 15_000);
    let wait_ms = u64::try_from(start_ms - now_ms()).unwrap_or(0);
    thread::scope(|scope| {
        let event = scope.spawn(move || {
            thread::sleep(Duration::from_millis(wait_ms) + length / 3);
            beside(length)
        });
        let outcome = send_loads(nodes, &loads, PushPace::Live)?;
        event.join().expect("the event does not panic")?;
        Ok(outcome)
    })
}

/// Measures latencies in real time, without and with a kill of a node that gets no requests itself,
/// and then the takeovers.
fn measure_live(
    cluster: &BenchCluster,
    size: &Size,
    dir: &Path,
) -> Result<([PushOutcome; 2], Vec<f64>), String> {
    say("live: three nodes");
    let mut nodes = cluster.start("100ms")?;
    let quiet = send_live(&nodes.running(), size, dir, "quiet", |_| Ok(()))?;
    say("live: kill -9 of a node");
    let (victim, others) = nodes.split_last();
    let with_kill = send_live(&others, size, dir, "kill", |_| victim.kill())?;
    nodes.restart_ended()?;
    say("takeovers");
    let mut takeovers_s = Vec::new();
    for round in 0..TAKEOVERS {
        let taken = measure_takeover(&mut nodes, round)?;
        say(&format!("takeover {round}: {taken:.2} s"));
        takeovers_s.push(taken);
    }
    nodes.stop()?;
    Ok(([quiet, with_kill], takeovers_s))
}

/// Kills the node that leads most partitions, and returns the seconds until another node accepts a
/// write to all partitions. Then the node starts again.
fn measure_takeover(nodes: &mut BenchNodes<'_>, round: usize) -> Result<f64, String> {
    let (victim, survivor) = nodes.choose_victim()?;
    let connection = PushConnection::new(&survivor);
    nodes.kill(victim)?;
    let killed = Instant::now();
    while killed.elapsed() < TAKEOVER_DEADLINE {
        let body = nodes::probe_body(PROBE_SERIES, round, now_ms());
        if let Ok(Ok(())) = connection.send(&body) {
            let seconds = killed.elapsed().as_secs_f64();
            nodes.restart_ended()?;
            return Ok(seconds);
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(format!(
        "no write to all {PARTITIONS} partitions within {TAKEOVER_DEADLINE:?} after a kill"
    ))
}
