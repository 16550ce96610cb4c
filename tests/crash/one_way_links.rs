//! Links between nodes that drop one direction, under a load: nothing that was acknowledged is lost,
//! no answer is incomplete, and all heals.

use super::cluster::{KEYS, ROUND_MAX};
use super::test_network::{TestNetwork, address};
use crate::harness::cluster::{NODES, TestCluster, wait_led, wait_within};
use crate::harness::ledger::check_everywhere;
use crate::harness::load::{ClusterLoad, LoadOptions, LoadParts};
use crate::harness::server::{Server, spawn};
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable with the name of the network, in the process that runs in its namespaces.
const NETWORK_VARIABLE: &str = "FIRN_TEST_NETWORK";

/// The cuts, each with pairs of a sender and a receiver: a link, and all that a node sends.
const CUTS: [&[(usize, usize)]; 2] = [&[(0, 1)], &[(2, 0), (2, 1)]];

/// The length of each cut: longer than the silence after which a node is dead, and its lease.
const CUT: Duration = Duration::from_secs(5);

/// Writes that must be acknowledged after each cut.
const WRITES: u64 = 30;

#[test]
fn links_that_are_cut_in_one_direction_lose_nothing_and_heal() {
    if let Ok(name) = std::env::var(NETWORK_VARIABLE) {
        return run_cuts(&TestNetwork::named(name, NODES.len()));
    }
    let network = TestNetwork::create(NODES.len());
    if let Some(network) = &network {
        // Clients are in a namespace, too, so this program runs there again.
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &network.hub()]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["one_way_links", "--nocapture"]);
        command.env(NETWORK_VARIABLE, network.name());
        let output = command.output().unwrap();
        network.delete();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }
}

fn run_cuts(network: &TestNetwork) {
    let mut cluster = TestCluster::new(KEYS, &[]);
    cluster.network = address(0);
    let start = |index: usize| {
        let command = network.enter(index, &cluster.node_command(index));
        Server::from_child(spawn(command))
    };
    let servers: Vec<Server> = (0..NODES.len()).map(start).collect();
    servers.iter().for_each(Server::wait_ready);
    let all: Vec<&Server> = servers.iter().collect();
    wait_led(&all, &NODES);
    let parts = LoadParts::new(NODES.len());
    for (index, server) in servers.iter().enumerate() {
        parts.doors.open(index, &server.address);
    }
    let load = ClusterLoad::start(&parts, LoadOptions::default());
    let await_writes = |count: u64| {
        let target = parts.counts.write_count() + count;
        wait_within("writes", ROUND_MAX, || parts.counts.write_count() >= target);
    };
    await_writes(WRITES);
    for pairs in CUTS {
        let begin = Instant::now();
        pairs.iter().for_each(|(from, to)| network.cut(*from, *to));
        std::thread::sleep(CUT);
        pairs.iter().for_each(|(from, to)| network.heal(*from, *to));
        await_writes(WRITES);
        println!("{pairs:?}: {:?}, {}", begin.elapsed(), parts.counts);
        parts.findings.assert_none(&format!("after {pairs:?}"));
    }
    load.stop();
    wait_led(&all, &NODES);
    check_everywhere(&all, &parts.ledgers, 0, &parts.findings);
    parts.findings.assert_none("at the end");
    cluster.audit().unwrap();
    println!("{} samples acked; {}", parts.acked_count(), parts.counts);
}
