//! Members on a simulated network: every partition gets one claimant, and loads become even.

use super::*;
use crate::ids::{Epoch, PartitionId};
use firn_model::env::sim::SimRng;
use std::collections::BTreeSet;
use std::time::Duration;

const PARTITIONS: u32 = 12;

/// A node of the simulation. Its partitions lead a while after their takeover.
struct SimNode {
    table: MemberTable,
    claims: Vec<PartitionReport>,
    /// False while its process is dead.
    is_up: bool,
}

/// Nodes, the links between them, and the newest epoch in the log of each partition.
struct SimCluster {
    now: Duration,
    nodes: Vec<SimNode>,
    /// Pairs (from, to) that lose reports.
    cut: BTreeSet<(usize, usize)>,
    epochs: Vec<u64>,
    processes: u64,
    takeovers: usize,
}

fn address(node: usize) -> String {
    format!("10.0.0.{node}:9190")
}

impl SimCluster {
    fn new(nodes: usize) -> Self {
        let mut cluster = Self {
            now: Duration::from_secs(1),
            nodes: Vec::new(),
            cut: BTreeSet::new(),
            epochs: vec![0; PARTITIONS as usize],
            processes: 0,
            takeovers: 0,
        };
        for number in 0..nodes {
            let node = cluster.start_process(number, nodes);
            cluster.nodes.push(node);
        }
        cluster
    }

    fn start_process(&mut self, number: usize, nodes: usize) -> SimNode {
        self.processes += 1;
        let own = OwnMember {
            name: format!("node-{number}"),
            incarnation: self.processes,
            address: address(number),
            version: "0.1.0".to_owned(),
        };
        let mut table = MemberTable::new(own, PARTITIONS, self.now);
        table.set_peers((0..nodes).filter(|n| *n != number).map(address));
        SimNode {
            table,
            claims: Vec::new(),
            is_up: true,
        }
    }

    fn restart(&mut self, number: usize) {
        let count = self.nodes.len();
        self.nodes[number] = self.start_process(number, count);
    }

    /// Passes `seconds`: reports every half second, then the plans of all nodes.
    fn run(&mut self, seconds: u64) {
        for _ in 0..2 * seconds {
            self.now += EXCHANGE_INTERVAL;
            for from in 0..self.nodes.len() {
                for to in 0..self.nodes.len() {
                    self.deliver(from, to);
                }
            }
            for node in 0..self.nodes.len() {
                self.act(node);
            }
        }
    }

    /// Exchanges reports between two nodes, as one request and its answer.
    fn deliver(&mut self, from: usize, to: usize) {
        let is_up = self.nodes[from].is_up && self.nodes[to].is_up;
        if from == to || !is_up || self.cut.contains(&(from, to)) {
            return;
        }
        let report = |node: &SimNode| node.table.own_report(self.now, node.claims.clone());
        let (sent, answer) = (report(&self.nodes[from]), report(&self.nodes[to]));
        self.nodes[to].table.add_report(self.now, sent).unwrap();
        if !self.cut.contains(&(to, from)) {
            let table = &mut self.nodes[from].table;
            table.add_report(self.now, answer).unwrap();
            table.note_answer(&address(to));
        }
    }

    fn act(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if !node.is_up {
            return;
        }
        // A leader whose partition has a newer epoch was fenced.
        let (epochs, now) = (&self.epochs, self.now);
        let is_fenced =
            |claim: &PartitionReport| claim.epoch.0 < epochs[claim.partition.0 as usize];
        for claim in node.claims.iter().filter(|claim| is_fenced(claim)) {
            node.table.note_loss(now, claim.partition);
        }
        node.claims.retain(|claim| !is_fenced(claim));
        for claim in &mut node.claims {
            claim.stage = PartitionStage::Leading;
        }
        for action in node.table.plan(self.now, &node.claims) {
            match action {
                MemberAction::HandOff(partition) => {
                    node.claims.retain(|claim| claim.partition != partition);
                }
                MemberAction::TakeOver(partition) => {
                    self.takeovers += 1;
                    let epoch = &mut self.epochs[partition.0 as usize];
                    *epoch += 1;
                    node.claims.push(PartitionReport {
                        partition,
                        stage: PartitionStage::Replaying,
                        epoch: Epoch(*epoch),
                        position: 0,
                        newest_ms: None,
                    });
                }
            }
        }
    }

    /// Returns the number of partitions of each node, and checks that each partition has one
    /// claimant.
    fn loads(&self) -> Vec<usize> {
        for partition in 0..PARTITIONS {
            let up = self.nodes.iter().filter(|node| node.is_up);
            let claims = up.flat_map(|node| &node.claims);
            let count = claims.filter(|c| c.partition.0 == partition).count();
            assert_eq!(count, 1, "claims of partition {partition}");
        }
        let nodes = self.nodes.iter();
        nodes
            .map(|node| if node.is_up { node.claims.len() } else { 0 })
            .collect()
    }
}

#[test]
fn nodes_that_start_together_share_the_partitions_evenly() {
    for (nodes, loads) in [
        (1, vec![12]),
        (2, vec![6; 2]),
        (3, vec![4; 3]),
        (12, vec![1; 12]),
    ] {
        let mut cluster = SimCluster::new(nodes);
        cluster.run(2);
        assert_eq!(cluster.loads(), loads);
        assert_eq!(cluster.takeovers, 12, "no partition moves at the start");
        cluster.run(100);
        assert_eq!(cluster.takeovers, 12, "no partition moves without a reason");
    }
}

#[test]
fn partitions_of_a_dead_node_are_taken_over_and_come_back_one_by_one() {
    let mut cluster = SimCluster::new(3);
    cluster.run(5);
    cluster.nodes[1].is_up = false;
    cluster.run(4);
    assert_eq!(cluster.loads(), [6, 0, 6]);
    cluster.restart(1);
    cluster.run(29);
    assert_eq!(cluster.loads(), [6, 0, 6], "a node that restarts waits");
    cluster.run(20);
    assert_eq!(cluster.loads(), [4, 4, 4]);
    assert_eq!(cluster.takeovers, 12 + 4 + 4);
}

#[test]
fn node_that_restarts_at_once_takes_its_partitions_again() {
    let mut cluster = SimCluster::new(3);
    cluster.run(5);
    cluster.restart(2);
    cluster.run(2);
    assert_eq!(cluster.loads(), [4, 4, 4]);
}

#[test]
fn node_that_no_peer_hears_is_replaced_and_does_not_fight() {
    let mut cluster = SimCluster::new(3);
    cluster.run(5);
    for other in [0, 1] {
        cluster.cut.extend([(other, 2), (2, other)]);
    }
    cluster.run(60);
    // The isolated node takes over all partitions once, loses them, and pauses.
    assert!(cluster.takeovers < 12 + 12 * 6, "{}", cluster.takeovers);
    cluster.cut.clear();
    cluster.run(400);
    assert_eq!(cluster.loads(), [4, 4, 4]);
}

#[test]
fn lost_link_between_two_nodes_moves_nothing() {
    let mut cluster = SimCluster::new(3);
    cluster.run(5);
    cluster.cut.extend([(0, 1), (1, 0)]);
    cluster.run(100);
    assert_eq!((cluster.loads(), cluster.takeovers), (vec![4, 4, 4], 12));
}

#[test]
fn drained_node_leads_nothing_until_it_is_undrained() {
    let mut cluster = SimCluster::new(3);
    cluster.run(5);
    cluster.nodes[0].table.set_draining(true);
    cluster.run(5);
    assert_eq!(cluster.loads(), [0, 6, 6]);
    cluster.nodes[0].table.set_draining(false);
    cluster.run(60);
    assert_eq!(cluster.loads(), [4, 4, 4]);
}

#[test]
fn last_node_keeps_its_partitions_while_it_is_drained() {
    let mut cluster = SimCluster::new(1);
    cluster.run(5);
    cluster.nodes[0].table.set_draining(true);
    cluster.run(5);
    assert_eq!(cluster.loads(), [12]);
}

#[test]
fn second_live_process_of_a_name_is_a_conflict_for_the_later_one() {
    let own = |incarnation| OwnMember {
        name: "a".to_owned(),
        incarnation,
        address: address(incarnation as usize),
        version: String::new(),
    };
    let at = Duration::from_secs;
    let mut early = MemberTable::new(own(1), PARTITIONS, at(1));
    let mut late = MemberTable::new(own(2), PARTITIONS, at(5));
    let of_early = early.own_report(at(6), Vec::new());
    assert_eq!(
        early.add_report(at(6), late.own_report(at(6), Vec::new())),
        Ok(())
    );
    let conflict = late.add_report(at(6), of_early).unwrap_err().to_string();
    assert!(conflict.contains("\"a\" (at 10.0.0.1:9190)"), "{conflict}");
    // A peer still remembers the process that this one replaced, and hears from it no more.
    let mut peer = MemberTable::new(
        OwnMember {
            name: "b".to_owned(),
            ..own(3)
        },
        1,
        at(1),
    );
    peer.add_report(at(5), early.own_report(at(5), Vec::new()))
        .unwrap();
    for now in 6..30 {
        assert_eq!(
            late.add_report(at(now), peer.own_report(at(now), Vec::new())),
            Ok(())
        );
    }
    // It hears from both.
    peer.add_report(at(30), early.own_report(at(30), Vec::new()))
        .unwrap();
    assert!(
        late.add_report(at(31), peer.own_report(at(31), Vec::new()))
            .is_err()
    );
}

/// Returns the table of the process `incarnation` of a node.
fn table_of(name: &str, incarnation: u64) -> MemberTable {
    let own = OwnMember {
        name: name.to_owned(),
        incarnation,
        address: address(incarnation as usize),
        version: String::new(),
    };
    MemberTable::new(own, 1, Duration::ZERO)
}

#[test]
fn live_member_keeps_its_partitions_beside_a_later_process_of_its_name() {
    let at = Duration::from_millis;
    let (early, late) = (table_of("a", 1), table_of("a", 2));
    let mut peer = table_of("b", 3);
    let led = PartitionReport {
        partition: PartitionId(0),
        stage: PartitionStage::Leading,
        epoch: Epoch(1),
        position: 0,
        newest_ms: None,
    };
    let mut has_leader = |now, table: &MemberTable, claims: &[PartitionReport]| {
        let report = table.own_report(at(now), claims.to_vec());
        peer.add_report(at(now), report).unwrap();
        peer.claimant(at(now), PartitionId(0)).is_some()
    };
    let led = std::slice::from_ref(&led);
    assert!(has_leader(3_500, &early, led));
    assert!(has_leader(3_600, &late, &[]));
    assert!(has_leader(4_000, &early, led));
    assert!(has_leader(5_100, &late, &[]));
    // The earlier process is silent, so that the later one replaces it.
    assert!(!has_leader(5_300, &late, &[]));
    assert!(has_leader(5_800, &late, led));
}

#[test]
fn dead_member_becomes_silent_while_others_relay_its_last_report() {
    let at = Duration::from_millis;
    let mut tables = [table_of("a", 1), table_of("b", 2)];
    let last = table_of("c", 3).own_report(at(1_000), Vec::new());
    tables[0].add_report(at(1_000), last).unwrap();
    for sent in (1_000..20_000).step_by(250) {
        // Each report is under way for as long as the pause to the next one.
        for (from, to) in [(0, 1), (1, 0)] {
            let report = tables[from].own_report(at(sent), Vec::new());
            tables[to].add_report(at(sent + 250), report).unwrap();
        }
        let now = at(sent + 250);
        for table in &tables {
            let is_live = |m: &&KnownMember| m.report.name == "c";
            let is_live = table.live_members(now).iter().copied().any(|m| is_live(&m));
            assert!(!is_live || now < at(1_250) + DEAD_AFTER, "{now:?}");
        }
    }
}

#[test]
fn member_whose_address_refuses_connections_is_dead_until_it_reports_again() {
    let at = Duration::from_millis;
    let mut table = table_of("a", 1);
    let other = table_of("b", 2);
    let address = other.own().address.clone();
    table
        .add_report(at(11_000), other.own_report(at(11_000), Vec::new()))
        .unwrap();
    let is_live = |table: &MemberTable, now| !table.live_members(at(now)).is_empty();
    // A report may be under way, and another address is of no interest.
    table.note_refusal(at(12_100), &address);
    table.note_refusal(at(12_500), "elsewhere:1");
    assert!(is_live(&table, 12_500) && table.take_dead(at(12_500)).is_empty());
    table.note_refusal(at(12_500), &address);
    assert!(!is_live(&table, 12_500));
    assert_eq!(table.take_dead(at(12_500)).len(), 1);
    table
        .add_report(at(12_600), other.own_report(at(12_600), Vec::new()))
        .unwrap();
    assert!(is_live(&table, 12_600));
}

#[test]
fn partition_whose_chosen_member_does_not_try_goes_to_the_next_one() {
    let mut cluster = SimCluster::new(2);
    cluster.run(5);
    // Node 1 answers and takes over nothing: its bucket is not reachable.
    cluster.nodes[1].claims.clear();
    for node in 0..PARTITIONS {
        cluster.nodes[1]
            .table
            .note_loss(cluster.now, PartitionId(node));
        cluster.nodes[1]
            .table
            .note_loss(cluster.now, PartitionId(node));
    }
    cluster.run(19);
    assert_eq!(cluster.loads(), [12, 0]);
}

#[test]
fn random_failures_leave_each_partition_with_one_claimant() {
    for seed in 0..20 {
        let rng = SimRng::new(seed);
        let mut cluster = SimCluster::new(2 + rng.next_below(4) as usize);
        let nodes = cluster.nodes.len() as u64;
        for _ in 0..20 {
            let node = rng.next_below(nodes) as usize;
            match rng.next_below(5) {
                0 => cluster.nodes[node].is_up = false,
                1 => cluster.restart(node),
                2 => drop(cluster.cut.insert((node, rng.next_below(nodes) as usize))),
                3 => cluster.cut.clear(),
                _ => {
                    let drains = rng.next_below(2) == 0;
                    cluster.nodes[node].table.set_draining(drains);
                }
            }
            cluster.run(1 + rng.next_below(10));
        }
        cluster.cut.clear();
        for node in 0..cluster.nodes.len() {
            if !cluster.nodes[node].is_up {
                cluster.restart(node);
            }
            cluster.nodes[node].table.set_draining(false);
        }
        cluster.run(900);
        let loads = cluster.loads();
        let (least, most) = (loads.iter().min(), loads.iter().max());
        let spread = most.zip(least).map(|(most, least)| most - least);
        assert!(spread.is_some_and(|s| s <= 1), "seed {seed}: {loads:?}");
    }
}

#[test]
fn report_is_decoded_as_it_was_encoded() {
    let mut cluster = SimCluster::new(3);
    cluster.run(5);
    let node = &cluster.nodes[0];
    let report = node.table.own_report(cluster.now, node.claims.clone());
    assert_eq!((report.partitions.len(), report.seen.len()), (4, 2));
    assert_eq!(NodeReport::decode(&report.encode()).unwrap(), report);
}

#[test]
fn damaged_reports_are_errors() {
    let check = |bytes: &[u8], expected: &str| {
        let error = NodeReport::decode(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(b"", "report of a node: EOF");
    check(b"{\"name\": 1}", "invalid type");
    check(
        &vec![b' '; (4 << 20) + 1],
        "has 4194305 bytes, limit 4194304",
    );
}
