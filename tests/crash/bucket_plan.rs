//! Faults of the bucket during a round: some requests fail all the time, and in some rounds all
//! requests of one node or of all nodes fail for a while.

use crate::harness::bucket_proxy::{BucketFault, BucketProxy};
use crate::harness::choices::Choices;
use std::thread::sleep;
use std::time::Duration;

/// Largest percentage of the requests with one fault.
const PERCENT_MAX: u64 = 15;

/// Longest outage.
const OUTAGE_MAX_MS: u64 = 8_000;

/// Faults that end all requests, or all writes.
const OUTAGES: [BucketFault; 4] = [
    BucketFault::Gone,
    BucketFault::Silent,
    BucketFault::QuotaExceeded,
    BucketFault::NoSpace,
];

/// The faults of the bucket in one round.
#[derive(Debug, Default)]
pub struct BucketPlan {
    /// Faults with the percentage of the requests that have them.
    passing: Vec<(BucketFault, u64)>,
    outage: Option<PlannedOutage>,
}

#[derive(Debug)]
struct PlannedOutage {
    fault: BucketFault,
    /// The node that has the fault, or `None` if all have it.
    node: Option<usize>,
    length: Duration,
}

impl BucketPlan {
    /// Chooses one to three faults, and in a third of the rounds an outage.
    pub fn choose(choices: &mut Choices, nodes: usize) -> Self {
        let passing = (0..=choices.below(3)).map(|_| {
            let index = choices.below(BucketFault::PASSING.len() as u64) as usize;
            (BucketFault::PASSING[index], 1 + choices.below(PERCENT_MAX))
        });
        let passing = passing.collect();
        let has_outage = choices.below(3) == 0;
        let outage = has_outage.then(|| PlannedOutage {
            fault: OUTAGES[choices.below(OUTAGES.len() as u64) as usize],
            node: Some(choices.below(2 * nodes as u64) as usize).filter(|node| *node < nodes),
            length: Duration::from_millis(choices.below(OUTAGE_MAX_MS)),
        });
        Self { passing, outage }
    }

    /// Returns whether all requests of some node fail for a while.
    pub fn has_outage(&self) -> bool {
        self.outage.is_some()
    }

    /// Switches on the faults that last for the whole round, and no others.
    pub fn begin(&self, proxies: &[BucketProxy]) {
        for proxy in proxies {
            proxy.heal();
            for (fault, percent) in &self.passing {
                proxy.set(*fault, *percent);
            }
        }
    }

    /// Begins the outage, if there is one, and waits for its length. It goes on until the next
    /// [`BucketPlan::begin`].
    pub fn run_outage(&self, proxies: &[BucketProxy]) {
        let Some(outage) = &self.outage else {
            return;
        };
        let is_hit = |index: usize| outage.node.is_none_or(|node| node == index);
        for (index, proxy) in proxies.iter().enumerate() {
            if is_hit(index) {
                proxy.set(outage.fault, 100);
            }
        }
        sleep(outage.length);
    }
}
