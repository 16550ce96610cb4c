//! The metrics `firn_sd_*` of running discoveries, by config section and mechanism.

use super::published::PublishedTargets;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// Registry of the running discoveries. Clones share the same registry and are cheap.
#[derive(Clone, Default)]
pub struct DiscoveryMetrics {
    running: Arc<Mutex<Vec<RunningDiscovery>>>,
}

/// The config section to which a discovery belongs; its fields become metric labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiscoveryOwner {
    /// Purpose of the discovery: `scrape` or `notify`.
    pub purpose: &'static str,
    /// Name of the scrape job, or position of the config section.
    pub config: String,
}

struct RunningDiscovery {
    mechanism: &'static str,
    owner: DiscoveryOwner,
    published: Weak<PublishedTargets>,
}

/// Discoveries by owner and mechanism, since those with equal labels share one time series.
type Groups = BTreeMap<(DiscoveryOwner, &'static str), Vec<Arc<PublishedTargets>>>;

/// A counter of each discovery: metric name, help text, and the function that reads it.
type Counted = (&'static str, &'static str, fn(&PublishedTargets) -> u64);

const COUNTERS: [Counted; 2] = [
    (
        "firn_sd_received_updates_total",
        "Target lists produced by discoveries, including unchanged ones.",
        |published| published.updates.get(),
    ),
    (
        "firn_sd_refresh_failures_total",
        "Failed requests of discoveries. The previous targets are kept.",
        |published| published.failures.get(),
    ),
];

impl DiscoveryMetrics {
    pub(super) fn add_running(
        &self,
        mechanism: &'static str,
        owner: &DiscoveryOwner,
        published: &Arc<PublishedTargets>,
    ) {
        let mut running = lock(&self.running);
        running.retain(|known| known.published.strong_count() > 0);
        running.push(RunningDiscovery {
            mechanism,
            owner: owner.clone(),
            published: Arc::downgrade(published),
        });
    }

    fn groups(&self) -> Groups {
        let mut groups = Groups::new();
        for running in &*lock(&self.running) {
            if let Some(published) = running.published.upgrade() {
                let key = (running.owner.clone(), running.mechanism);
                groups.entry(key).or_default().push(published);
            }
        }
        groups
    }
}

impl Collect for DiscoveryMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let groups = self.groups();
        let mut each =
            |name: &str,
             help: &str,
             value: &dyn Fn(&[Arc<PublishedTargets>]) -> MetricValue<'_>| {
                for ((owner, mechanism), discoveries) in &groups {
                    sink.metric(name, help, &labels(owner, mechanism), value(discoveries));
                }
            };
        for (name, help, count) in COUNTERS {
            each(name, help, &|discoveries| {
                let sum: u64 = discoveries.iter().map(|d| count(d)).sum();
                MetricValue::Counter(sum as f64)
            });
        }
        each(
            "firn_sd_discovered_targets",
            "Targets in the lists of discoveries, before relabeling.",
            &|discoveries| {
                let sum: i64 = discoveries.iter().map(|d| d.targets.get()).sum();
                MetricValue::Gauge(sum as f64)
            },
        );
        each(
            "firn_sd_last_update_timestamp_seconds",
            "Time of the last target list of a discovery; 0 if there was none.",
            &|discoveries| {
                let newest = discoveries.iter().map(|d| d.updated_ms.get()).max();
                MetricValue::Gauge(newest.unwrap_or(0) as f64 / 1000.0)
            },
        );
        for ((owner, mechanism), discoveries) in &groups {
            // The histograms are not merged; one discovery is enough to show how fast the source
            // responds.
            let Some(first) = discoveries.first() else {
                continue;
            };
            sink.metric(
                "firn_sd_refresh_duration_seconds",
                "Duration of a refresh of a target list, of the first discovery of its kind.",
                &labels(owner, mechanism),
                MetricValue::Histogram(&first.refreshes),
            );
        }
    }
}

fn labels<'o>(owner: &'o DiscoveryOwner, mechanism: &'o str) -> [(&'static str, &'o str); 3] {
    [
        ("config", &owner.config),
        ("mechanism", mechanism),
        ("name", owner.purpose),
    ]
}
