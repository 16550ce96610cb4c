//! The wall clock of one node of three jumps by an hour and back, under a load. Leases are measured
//! by another clock, so nothing is lost and each answer is complete.

use super::cluster::{FailingNodes, ROUND_MAX};
use crate::harness::cluster::wait_within;
use crate::harness::load::{ClusterLoad, LoadOptions};

/// The steps in seconds. Before a step back, clients leave the node, because it then rejects their
/// samples as too far in the future.
const STEPS: [i64; 4] = [3_600, 0, -3_600, 0];

/// Writes that must be acknowledged after each step.
const WRITES: u64 = 60;

/// The index of the node.
const NODE: usize = 1;

#[test]
fn clock_of_a_node_that_jumps_by_an_hour_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = FailingNodes::start(folder.path(), None);
    let parts = nodes.parts.clone();
    let load = ClusterLoad::start(&parts, LoadOptions::default());
    for step_s in STEPS {
        match step_s {
            ..0 => parts.doors.close(NODE),
            _ => parts.doors.open(NODE, &nodes.node(NODE).address),
        }
        nodes.clocks[NODE].set(step_s);
        let target = parts.counts.write_count() + WRITES;
        wait_within("writes after a step", ROUND_MAX, || {
            parts.counts.write_count() >= target
        });
        parts.findings.assert_none(&format!("a step to {step_s} s"));
    }
    load.stop();
    nodes.compare(0);
    parts.findings.assert_none("the end");
    println!("{} samples acked; {}", parts.acked_count(), parts.counts);
}
