//! Tests of notifiers against webhooks on the loopback interface that record their requests.

use super::*;
use firn_discovery::{DiscoveryContext, DiscoveryMetrics, DiscoverySettings, TargetGroup};
use firn_http_client::HttpSettings;
use firn_ingest::relabel::{RelabelAction, RelabelRuleSettings};
use firn_model::env::sim::SimClock;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_rules::instant::RuleInstant;
use firn_scrape::alertmanagers::AlertmanagerSettings;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Maximum time until a request arrives. Only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that responds with `status` to every request.
struct Webhook {
    address: String,
    requests: Receiver<(String, serde_json::Value)>,
}

impl Webhook {
    fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).unwrap() == 0 {
                        return;
                    }
                }
                let length = head.to_lowercase();
                let length = length.split("content-length: ").nth(1).unwrap();
                let length = length.split("\r\n").next().unwrap().parse().unwrap();
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let line = head.lines().next().unwrap().to_owned();
                let body = serde_json::from_slice(&body).unwrap();
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
                if sender.send((line, body)).is_err() {
                    return;
                }
            }
        });
        Self { address, requests }
    }

    /// Waits for the next request. Returns its request line and the value of one label of each
    /// alert.
    fn next(&self, label: &str) -> (String, Vec<String>) {
        let (line, body) = self.requests.recv_timeout(PATIENCE).unwrap();
        let alerts = body.as_array().unwrap().iter();
        let label = |alert: &serde_json::Value| {
            alert["labels"][label]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        (line, alerts.map(label).collect())
    }
}

fn settings(address: &str, prefix: &str) -> AlertmanagerSettings {
    AlertmanagerSettings {
        scheme: "http".into(),
        path_prefix: prefix.into(),
        timeout: PATIENCE,
        sigv4: None,
        http: HttpSettings::default(),
        discoveries: vec![DiscoverySettings::Static(vec![TargetGroup {
            targets: vec![address.to_owned()],
            ..TargetGroup::default()
        }])],
        relabel: Vec::new(),
        alert_relabel: Vec::new(),
    }
}

fn notifier(capacity: usize, drains: bool) -> Notifier {
    Notifier::new(NotifierSettings {
        flags: NotifierFlags {
            outbox: OutboxLimits {
                capacity,
                batch_max: 2,
            },
            drains,
        },
        external_url: "http://firn".into(),
        places: ConnectionSlots::unlimited(),
        lent: DiscoveryContext {
            bytes_max: 1 << 20,
            clock: Arc::new(SimClock::default()),
            metrics: DiscoveryMetrics::default(),
        },
    })
}

fn alerts(names: &[&str]) -> Vec<Alert> {
    let alert = |name: &&str| Alert {
        labels: Labels::from_pairs([("alertname", "A"), ("name", *name)]),
        fired_at: Some(RuleInstant::from_seconds(1)),
        ..Alert::default()
    };
    names.iter().map(alert).collect()
}

fn rule(settings: RelabelRuleSettings) -> RelabelRule {
    settings.compile(Default::default()).unwrap()
}

/// Returns the value of one metric, summed over all Alertmanagers.
fn metric(notifier: &Notifier, wanted: &str) -> f64 {
    struct Found<'w>(&'w str, f64);
    impl MetricSink for Found<'_> {
        fn metric(&mut self, name: &str, _: &str, _: &[(&str, &str)], value: MetricValue<'_>) {
            if let (true, MetricValue::Counter(value) | MetricValue::Gauge(value)) =
                (name == self.0, value)
            {
                self.1 += value;
            }
        }
    }
    let mut found = Found(wanted, 0.0);
    notifier.collect(&mut found);
    found.1
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_arrive_relabelled_and_in_batches() {
    let (first, second) = (Webhook::start("200 OK"), Webhook::start("200 OK"));
    let notifier = notifier(10, true);
    let mut other = settings(&second.address, "/p");
    other.alert_relabel = vec![rule(RelabelRuleSettings {
        source_labels: Some(vec!["name".into()]),
        regex: Some("b".into()),
        action: RelabelAction::Keep,
        ..RelabelRuleSettings::default()
    })];
    let alerting = AlertingSettings {
        relabel: Arc::new(vec![rule(RelabelRuleSettings {
            source_labels: Some(vec!["region".into(), "name".into()]),
            target_label: "both".into(),
            ..RelabelRuleSettings::default()
        })]),
        alertmanagers: vec![Arc::new(settings(&first.address, "")), Arc::new(other)],
    };
    notifier.apply(&alerting, &Labels::from_pairs([("region", "eu")]));
    let urls = [
        format!("http://{}/api/v2/alerts", first.address),
        format!("http://{}/p/api/v2/alerts", second.address),
    ];
    assert_eq!(notifier.alertmanagers().active, urls);
    notifier.send(&alerts(&["a", "b", "c"]), "up == 0");
    let line = |path: &str| format!("POST {path} HTTP/1.1");
    let texts = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        first.next("both"),
        (line("/api/v2/alerts"), texts(&["eu;a", "eu;b"]))
    );
    assert_eq!(
        first.next("both"),
        (line("/api/v2/alerts"), texts(&["eu;c"]))
    );
    assert_eq!(
        second.next("name"),
        (line("/p/api/v2/alerts"), texts(&["b"]))
    );
    notifier.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_keeps_what_did_not_change_and_a_stop_drains() {
    let (kept, gone) = (Webhook::start("200 OK"), Webhook::start("200 OK"));
    let notifier = notifier(10, true);
    let section = |address: &str| Arc::new(settings(address, ""));
    let alerting = |addresses: &[&str]| AlertingSettings {
        relabel: Arc::default(),
        alertmanagers: addresses.iter().map(|address| section(address)).collect(),
    };
    let none = Labels::empty();
    notifier.apply(&alerting(&[&kept.address, &gone.address]), &none);
    notifier.send(&alerts(&["a"]), "up");
    notifier.apply(&alerting(&[&kept.address]), &none);
    notifier.send(&alerts(&["b", "c", "d"]), "up");
    notifier.stop().await;
    assert_eq!(gone.next("name").1, ["a"]);
    let mut got = Vec::new();
    while got.len() < 4 {
        got.extend(kept.next("name").1);
    }
    assert_eq!(got, ["a", "b", "c", "d"]);
    assert!(gone.requests.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_that_are_refused_are_counted_and_not_sent_again() {
    let webhook = Webhook::start("503 Service Unavailable");
    let notifier = notifier(10, false);
    let alerting = AlertingSettings {
        relabel: Arc::default(),
        alertmanagers: vec![Arc::new(settings(&webhook.address, ""))],
    };
    notifier.apply(&alerting, &Labels::empty());
    notifier.send(&alerts(&["a"]), "up");
    webhook.next("name");
    notifier.send(&alerts(&["b"]), "up");
    assert_eq!(webhook.next("name").1, ["b"]);
    assert_eq!(metric(&notifier, "firn_notifications_sent_total"), 0.0);
    assert!(metric(&notifier, "firn_notifications_errors_total") >= 1.0);
    assert!(metric(&notifier, "firn_notifications_dropped_total") >= 1.0);
    assert_eq!(metric(&notifier, "firn_notifications_queue_capacity"), 10.0);
    assert_eq!(
        metric(&notifier, "firn_notifications_alertmanagers_discovered"),
        1.0
    );
    notifier.stop().await;
}
