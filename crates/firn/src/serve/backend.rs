//! What answers requests once the store is open.

use crate::file_time;
use firn_ingest::Pipeline;
use firn_ingest::scrape::Scraping;
use firn_model::env::Env;
use firn_model::log::LogHealth;
use firn_server::ActiveQueries;
use firn_server::parts::Backend;
use firn_storage::store::Store;
use std::sync::Arc;

use super::notify::Notifier;
use super::reading::Reading;
use super::rule_folder::RuleFolder;
use super::rules::Rules;
use super::running::Running;
use super::sending::Sending;
use super::spans::Spans;

/// The parts that a backend is made of.
pub struct Parts {
    /// Time and files.
    pub env: Env,
    /// The store.
    pub store: Arc<Store>,
    /// The way into it.
    pub pipeline: Arc<Pipeline>,
    /// What is scraped.
    pub scraping: Arc<Scraping>,
    /// The groups of rules.
    pub rules: Arc<Rules>,
    /// Where alerts are sent.
    pub notifier: Arc<Notifier>,
    /// What is asked beside the store.
    pub reading: Arc<Reading>,
    /// What exports spans.
    pub spans: Arc<Spans>,
    /// Where samples are sent on.
    pub sending: Arc<Sending>,
    /// The configuration, which names the folder of rules that are edited.
    pub running: Arc<Running>,
    /// What runs.
    pub active: ActiveQueries,
}

/// The backend made of these parts.
pub fn backend(parts: Parts) -> Backend {
    let (figures, log) = (parts.store.clone(), parts.store.clone());
    let blocks = parts.store.clone();
    let (env, kept) = (parts.env, parts.store.clone());
    let notifier = parts.notifier.clone();
    Backend {
        active: parts.active,
        stats: Arc::new(move |top| figures.stats(top)),
        blocks: Arc::new(move || blocks.block_stats()),
        write_fault: Arc::new(move || match log.health() {
            LogHealth::Failing(cause) => Some(cause),
            LogHealth::Poisoned(cause) => Some(format!("{cause}; restart Firn")),
            LogHealth::Sound | LogHealth::NoRoom(_) => None,
        }),
        snapshot: Arc::new(move |skips_head| {
            let name = file_time::snapshot_name(&env);
            kept.snapshot(&name, skips_head).map(|()| name)
        }),
        collectors: vec![
            parts.store.clone(),
            parts.scraping.clone(),
            parts.rules.clone(),
            parts.notifier,
            parts.sending,
            parts.reading.clone(),
            parts.spans,
            parts.pipeline.aggregation(),
        ],
        alertmanagers: Arc::new(move || notifier.alertmanagers()),
        rule_editor: Arc::new(RuleFolder::new(parts.running)),
        store: parts.reading,
        local: parts.store,
        pipeline: parts.pipeline,
        scraping: parts.scraping,
        outside: parts.rules.outside_url(),
        rules: parts.rules,
    }
}
