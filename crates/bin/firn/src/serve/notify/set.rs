//! The Alertmanagers of one section of the config: discovered, each with its own sender.

use super::sender::AlertmanagerSender;
use super::{NotifierSettings, relabel_notifications};
use firn_discovery::{Discovery, DiscoveryOwner};
use firn_http_client::HttpClient;
use firn_ingest::targets::DiscoveredAlertmanagers;
use firn_model::labels::Labels;
use firn_model::sync::lock;
use firn_rules::notification::{AlertNotification, OutboxEvent};
use firn_scrape::alertmanagers::AlertmanagerSettings;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tracing::error;

/// Senders and discovery task of one entry of `alerting.alertmanagers`. Created when a
/// configuration is applied, and kept while the settings are unchanged.
pub(super) struct AlertmanagerSet {
    work: Arc<AlertmanagerSetContext>,
    task: JoinHandle<()>,
}

struct AlertmanagerSetContext {
    settings: Arc<AlertmanagerSettings>,
    notifier: Arc<NotifierSettings>,
    client: Arc<HttpClient>,
    tasks: Arc<Mutex<JoinSet<()>>>,
    known: Mutex<KnownAlertmanagers>,
}

#[derive(Default)]
struct KnownAlertmanagers {
    senders: Vec<Arc<AlertmanagerSender>>,
    dropped: Vec<String>,
    is_over: bool,
}

impl AlertmanagerSet {
    /// Starts the discovery of the Alertmanagers of the section with index `place`.
    pub fn start(
        place: usize,
        settings: Arc<AlertmanagerSettings>,
        notifier: &Arc<NotifierSettings>,
        tasks: Arc<Mutex<JoinSet<()>>>,
    ) -> Self {
        let clock = notifier.lent.clock.clone();
        let signer = settings
            .sigv4
            .as_ref()
            .map(|sigv4| sigv4.build_signer(clock));
        let client =
            HttpClient::with_connection_slots(notifier.places.clone(), settings.http.clone());
        let client = client.with_signer(signer);
        let changed = Arc::new(Notify::new());
        let lent = &notifier.lent;
        let owner = DiscoveryOwner {
            purpose: "notify",
            config: format!("config-{place}"),
        };
        let start = |discovery| Discovery::start(discovery, lent, &owner, changed.clone());
        let discoveries: Vec<Discovery> = settings.discoveries.iter().map(start).collect();
        let work = Arc::new(AlertmanagerSetContext {
            settings,
            notifier: notifier.clone(),
            client: Arc::new(client),
            tasks,
            known: Mutex::default(),
        });
        // Static lists are available at once.
        work.sync(&discoveries);
        let at_work = work.clone();
        let task = tokio::spawn(async move {
            loop {
                changed.notified().await;
                at_work.sync(&discoveries);
            }
        });
        Self { work, task }
    }

    /// Returns the settings that the set was started with, to compare them with new ones.
    pub fn settings(&self) -> &Arc<AlertmanagerSettings> {
        &self.work.settings
    }

    /// Relabels the notifications and queues them for each Alertmanager. Never waits.
    pub fn send(&self, notifications: &[Arc<AlertNotification>]) {
        let none = Labels::empty();
        let kept = relabel_notifications(&self.work.settings.alert_relabel, &none, notifications);
        if kept.is_empty() {
            return;
        }
        for sender in &lock(&self.work.known).senders {
            sender.handle_event(OutboxEvent::Add(kept.clone()));
        }
    }

    /// Returns the active and the dropped Alertmanagers of the section, as the last discovery found
    /// them.
    pub fn found(&self) -> DiscoveredAlertmanagers {
        let known = lock(&self.work.known);
        DiscoveredAlertmanagers {
            active: known.senders.iter().map(|s| s.url().to_owned()).collect(),
            dropped: known.dropped.clone(),
        }
    }

    /// Calls `each` with every sender of the section, for example to collect metrics.
    pub fn for_each_sender(&self, mut each: impl FnMut(&Arc<AlertmanagerSender>)) {
        lock(&self.work.known).senders.iter().for_each(&mut each);
    }

    /// Stops the discovery. The senders end in the background, after they have sent queued
    /// notifications if the flags require it.
    pub fn stop(self) {
        self.task.abort();
        let mut known = lock(&self.work.known);
        known.is_over = true;
        for sender in std::mem::take(&mut known.senders) {
            self.work.stop(&sender);
        }
    }
}

impl AlertmanagerSetContext {
    /// Starts and stops senders so that they match the groups that were discovered.
    fn sync(&self, discoveries: &[Discovery]) {
        let lists: Vec<_> = discoveries.iter().filter_map(Discovery::groups).collect();
        let groups = lists.iter().flat_map(|list| list.iter());
        let found = self.settings.find_alertmanagers(groups, |e| {
            error!(error = e, "failed to create discovered Alertmanagers");
        });
        let mut known = lock(&self.known);
        if known.is_over {
            return;
        }
        let mut old = std::mem::take(&mut known.senders);
        for url in found.active {
            let same = old.iter().position(|sender| sender.url() == url);
            let sender = match same {
                Some(at) => old.swap_remove(at),
                None => self.start(url),
            };
            known.senders.push(sender);
        }
        known.dropped = found.dropped;
        drop(known);
        old.iter().for_each(|sender| self.stop(sender));
    }

    fn start(&self, url: String) -> Arc<AlertmanagerSender> {
        let sender = Arc::new(AlertmanagerSender::new(url, self.notifier.flags.outbox));
        let (at_work, client) = (sender.clone(), self.client.clone());
        let timeout = self.settings.timeout;
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { at_work.run(&client, timeout).await });
        sender
    }

    fn stop(&self, sender: &AlertmanagerSender) {
        sender.handle_event(OutboxEvent::Stop {
            drains: self.notifier.flags.drains,
        });
    }
}
