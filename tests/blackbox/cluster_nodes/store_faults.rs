//! Nodes on an S3 server that is gone, silent, full, or ignores the condition of creations.
//!
//! `FIRN_CRASH_ROUNDS` makes each outage a minute long.

use super::loaded_nodes::LoadedNodes;
use super::{FAST, LIFECYCLE, SERIES, SpreadSeries, result_count};
use crate::harness::bucket_proxy::BucketFault;
use crate::harness::cluster::{ProxiedStore, TestCluster, wait_within};
use crate::harness::http::{Answer, Http};
use crate::harness::server::{Server, spawn};
use crate::harness::write::{Series, body};
use crate::now_ms;
use crate::refusal::Refusal;
use std::time::{Duration, Instant};

/// The longest time until writes and queries are accepted after the store is back.
const BACK_MAX: Duration = Duration::from_secs(15);

/// The longest time until requests are rejected: a silent store is noticed after the timeout of a
/// request.
const NOTICED_MAX: Duration = Duration::from_secs(30);

/// The longest time until a process ends whose store is refused.
const REFUSED_MAX: Duration = Duration::from_secs(60);

/// The kinds of outages. Short runs use the first ones.
const OUTAGES: [BucketFault; 4] = [
    BucketFault::Gone,
    BucketFault::QuotaExceeded,
    BucketFault::Silent,
    BucketFault::NoSpace,
];

/// The percentage of the requests with each other fault, between outages.
const PASSING_PERCENT: u64 = 3;

/// The seed of the proxies, which matters little where a fault has every request.
const SEED: u64 = 1;

fn is_long() -> bool {
    std::env::var_os("FIRN_CRASH_ROUNDS").is_some()
}

/// Returns the length of an outage after all nodes have noticed it.
fn outage() -> Duration {
    Duration::from_secs(if is_long() { 60 } else { 1 })
}

/// Writes a sample to each partition.
fn write(http: &Http) -> Answer {
    let numbers: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let series = numbers.iter().map(|number| {
        let labels = [("__name__", "outage"), ("n", number)];
        Series::new(&labels, &[(now_ms(), 1.0)])
    });
    http.write(&body(&series.collect::<Vec<_>>()))
}

/// Waits until a node rejects writes, and returns the answer.
fn await_rejection(http: &Http) -> Answer {
    let mut answer = None;
    wait_within("a write to be rejected", NOTICED_MAX, || {
        let last = write(http);
        let is_rejected = last.status != 204;
        answer = is_rejected.then_some(last);
        is_rejected
    });
    let answer = answer.expect("the wait ended");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
    answer
}

/// Panics unless eventual reads of a node are whole, and strong ones are whole or rejected.
fn check_reads(http: &Http, spread: &SpreadSeries, fault: BucketFault) {
    for consistency in ["eventual", "strong"] {
        let headers = [("X-Firn-Consistency", consistency)];
        let answer = http.get_with(&spread.path(""), &headers);
        let what = format!("{fault:?}, {consistency}: {answer:?}");
        if consistency == "strong" && answer.status == 503 {
            assert_eq!(answer.json()["errorType"], "unavailable", "{what}");
            continue;
        }
        assert_eq!(answer.status, 200, "{what}");
        assert_eq!(result_count(&answer.json()), SERIES, "{what}");
        assert_eq!(answer.json().get("warnings"), None, "{what}");
    }
}

/// Gives all requests of all nodes a fault, until it has been noticed for a while.
fn run_outage(nodes: &LoadedNodes, spread: &SpreadSeries, fault: BucketFault) {
    let proxies = nodes.cluster.proxies();
    for proxy in proxies {
        proxy.heal();
        proxy.set(fault, 100);
    }
    std::thread::scope(|scope| {
        for server in nodes.servers.iter().flatten() {
            scope.spawn(|| {
                let http = server.http();
                let rejected = await_rejection(&http);
                if fault == BucketFault::QuotaExceeded {
                    let text = &rejected.body;
                    assert!(text.contains("QuotaExceeded"), "{text}");
                }
                let end = Instant::now() + outage();
                while Instant::now() < end {
                    check_reads(&http, spread, fault);
                    let answer = write(&http);
                    assert_eq!(answer.status, 503, "{fault:?}: {answer:?}");
                }
            });
        }
    });
    proxies.iter().for_each(|proxy| proxy.heal());
    let begin = Instant::now();
    for server in nodes.servers.iter().flatten() {
        let http = server.http();
        wait_within("writes to be accepted", BACK_MAX, || {
            write(&http).status == 204
        });
        wait_within("answers", BACK_MAX, || {
            http.get(&spread.path("")).status == 200
        });
        spread.check(&http);
    }
    println!("{fault:?}: back after {:?}", begin.elapsed());
    assert!(
        begin.elapsed() < BACK_MAX,
        "back after {:?}",
        begin.elapsed()
    );
}

#[test]
fn nodes_whose_store_is_gone_silent_or_full_reject_writes_and_go_on_afterwards() {
    let Some(store) = ProxiedStore::start(SEED) else {
        return;
    };
    let cluster = TestCluster::with_store(Some(store), FAST, &[LIFECYCLE]);
    let nodes = LoadedNodes::start_on(cluster);
    let servers: Vec<&Server> = nodes.servers.iter().flatten().collect();
    let spread = SpreadSeries::store_at(servers.into_iter());
    let faults = if is_long() {
        &OUTAGES[..]
    } else {
        &OUTAGES[..3]
    };
    for fault in faults {
        run_outage(&nodes, &spread, *fault);
        // Single requests fail all the time, which costs time alone.
        for proxy in nodes.cluster.proxies() {
            let passing = BucketFault::PASSING.iter();
            passing.for_each(|fault| proxy.set(*fault, PASSING_PERCENT));
        }
        nodes.await_writes();
    }
    for proxy in nodes.cluster.proxies() {
        let counts = proxy.counts();
        assert!(counts.len() > faults.len(), "{counts:?}");
        proxy.heal();
    }
    let longest = outage() + NOTICED_MAX + BACK_MAX;
    let cluster = nodes.finish(longest);
    cluster.audit().unwrap();
}

/// Starts the only node of a cluster.
fn start_alone(cluster: &TestCluster) -> Server {
    let mut keys = cluster.node_keys("a", 0);
    keys.retain(|(key, _)| !matches!(*key, "listen" | "peers" | "secret_file"));
    Server::from_child(spawn(cluster.command("a", &keys)))
}

#[test]
fn store_that_ignores_the_condition_is_refused_at_first_and_gets_no_writes_later() {
    let Some(store) = ProxiedStore::start(SEED) else {
        return;
    };
    let cluster = TestCluster::with_store(Some(store), FAST, &[]);
    let proxy = &cluster.proxies()[0];
    proxy.set(BucketFault::StrippedCondition, 100);
    let refusal = Refusal::within(REFUSED_MAX, cluster.node_command(0));
    assert_eq!(refusal.code, Some(1), "{}", refusal.stderr);
    let line = refusal.line();
    assert!(line.contains("the store cannot carry a log"), "{line}");
    assert!(!cluster.bucket().join("cluster").exists(), "it was created");
    proxy.heal();
    let server = start_alone(&cluster);
    wait_within("the node to be ready", REFUSED_MAX, || {
        server.http().get("/-/ready").status == 200
    });
    let spread = SpreadSeries::store(&[server]);
    proxy.set(BucketFault::StrippedCondition, 100);
    let server = start_alone(&cluster);
    server.wait_log("the store cannot carry the log: writes are rejected");
    let http = server.http();
    let answer = write(&http);
    assert_eq!(answer.status, 503, "{answer:?}");
    let headers = [("X-Firn-Consistency", "eventual")];
    let answer = http.get_with(&spread.path(""), &headers);
    assert_eq!(result_count(&answer.json()), SERIES, "{answer:?}");
    proxy.heal();
    server.stop();
    let server = start_alone(&cluster);
    server.wait_ready();
    spread.check(&server.http());
    assert_eq!(write(&server.http()).status, 204);
}
