//! The series of a pod without the labels of its target.

use super::catalog::{FAMILIES, NODE_ADDRESS, SeriesModel};
use super::random::{FleetRandom, mix_parts};
use super::traffic::{BOUNDS, CODES, HANDLERS};
use crate::fleet::catalog;
use firn_model::labels::{Labels, METRIC_NAME};
use std::borrow::Cow;

/// Number of series that each pod exports without [`super::ExtraPodSeries`].
pub const SERIES_PER_POD: usize = 376;

const PODS_PER_DEPLOYMENT: u64 = 8;
const DEPLOYMENTS_PER_NAMESPACE: u64 = 3;
const CLUSTERS: [&str; 3] = ["eu-west-1", "us-east-1", "ap-south-1"];
const SERVICES: [&str; 8] = [
    "checkout", "catalog", "identity", "payments", "delivery", "search", "pricing", "gateway",
];
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A series of a pod without the labels of the pod's target, from which each pod creates its own.
#[derive(Debug)]
pub(super) struct PodSeriesTemplate {
    name: String,
    own: Vec<(&'static str, Cow<'static, str>)>,
    pub(super) model: SeriesModel,
}

/// Target labels of a pod, sorted by name, and the labels that fill a series up to eleven.
pub(super) struct PodTarget {
    pub(super) labels: Vec<(&'static str, String)>,
    fill: [(&'static str, String); 2],
    node_address: String,
}

pub(super) fn target_labels(number: u64, random: &mut FleetRandom) -> PodTarget {
    let deployment = number / PODS_PER_DEPLOYMENT;
    let namespace = deployment / DEPLOYMENTS_PER_NAMESPACE;
    let service = SERVICES[(deployment % SERVICES.len() as u64) as usize];
    let cluster = CLUSTERS[(namespace % CLUSTERS.len() as u64) as usize];
    let word = |random: &mut FleetRandom, letters: usize| -> String {
        let letter = |_| LETTERS[random.below(LETTERS.len() as u64) as usize] as char;
        (0..letters).map(letter).collect()
    };
    let replica_set = word(&mut FleetRandom::new(mix_parts(&[6, deployment])), 9);
    let name = format!("{service}-{deployment}");
    let (a, b, c) = (random.below(256), random.below(256), 1 + random.below(254));
    let node = random.below(number / 30 + 4);
    PodTarget {
        labels: vec![
            ("cluster", cluster.to_owned()),
            ("container", service.to_owned()),
            ("pod", format!("{name}-{replica_set}-{}", word(random, 5))),
            ("deployment", name),
            ("instance", format!("10.{a}.{b}.{c}:8080")),
            ("job", "kubernetes-pods".to_owned()),
            ("namespace", format!("shop-{namespace}")),
            ("node", format!("{cluster}-node-{node}")),
        ],
        fill: [
            ("service", format!("{service}-api")),
            ("team", format!("team-{}", namespace % 7)),
        ],
        node_address: format!("192.168.{}.{}", node / 250, node % 250 + 1),
    }
}

impl PodSeriesTemplate {
    pub(super) fn labels(&self, target: &PodTarget) -> Labels {
        let own = self.own.iter().map(|(name, value)| {
            let value: &str = match value.as_ref() {
                NODE_ADDRESS => &target.node_address,
                other => other,
            };
            (*name, value)
        });
        let fill = target.fill.iter().take(2 - self.own.len());
        let rest = target.labels.iter().chain(fill);
        Labels::from_pairs(
            std::iter::once((METRIC_NAME, self.name.as_str()))
                .chain(own)
                .chain(rest.map(|(n, v)| (*n, v.as_str()))),
        )
    }
}

/// Metric name of the request duration histograms.
const DURATIONS: &str = "http_request_duration_seconds";

fn borrowed(own: Vec<(&'static str, &'static str)>) -> Vec<(&'static str, Cow<'static, str>)> {
    let own = own.into_iter();
    own.map(|(name, value)| (name, value.into())).collect()
}

/// Returns the template of the `number`-th worker series of a pod; each worker has three.
pub(super) fn worker_template(number: usize) -> PodSeriesTemplate {
    let (name, model) = match number % 3 {
        0 => ("worker_tasks_total", SeriesModel::Traffic(2.5)),
        1 => ("worker_busy_seconds_total", SeriesModel::Cpu(0.05)),
        _ => (
            "worker_backlog",
            SeriesModel::Walk {
                around: 40.0,
                grain: 1.0,
            },
        ),
    };
    PodSeriesTemplate {
        name: name.to_owned(),
        own: vec![("worker", format!("w{}", number / 3).into())],
        model,
    }
}

/// Returns the template of the native duration histogram of a handler.
pub(super) fn native_template(route: &'static str) -> PodSeriesTemplate {
    PodSeriesTemplate {
        name: DURATIONS.to_owned(),
        own: borrowed(vec![("handler", route)]),
        // Unused: the value is derived from the classic histogram.
        model: SeriesModel::Constant(0.0),
    }
}

pub(super) fn templates() -> Vec<PodSeriesTemplate> {
    let mut out = Vec::with_capacity(SERIES_PER_POD);
    let mut http = |name: String, own: Vec<(&'static str, &'static str)>| {
        out.push(PodSeriesTemplate {
            name,
            own: borrowed(own),
            // Unused: `traffic` advances these series.
            model: SeriesModel::Constant(0.0),
        });
    };
    for handler in &HANDLERS {
        for code in CODES {
            let own = vec![("handler", handler.route), ("code", code)];
            http("http_requests_total".to_owned(), own);
        }
    }
    let histogram = DURATIONS;
    for handler in &HANDLERS {
        for bound in BOUNDS {
            let own = vec![("handler", handler.route), ("le", bound)];
            http(format!("{histogram}_bucket"), own);
        }
        http(format!("{histogram}_sum"), vec![("handler", handler.route)]);
        http(
            format!("{histogram}_count"),
            vec![("handler", handler.route)],
        );
    }
    for family in FAMILIES {
        for own in catalog::combinations(family) {
            out.push(PodSeriesTemplate {
                name: family.name.to_owned(),
                own: borrowed(own),
                model: family.model,
            });
        }
    }
    out
}
