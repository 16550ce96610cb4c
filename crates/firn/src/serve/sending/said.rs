//! What metrics are, told to receivers: beside the series in 2.0, in requests of its own in 1.0.
//!
//! The table is made anew once in `send_interval`, not for each request. Nothing of it is kept on
//! disk: a receiver that was away hears it the next time.

use super::request::write;
use crate::settings::config::remote_write::MetadataSettings;
use firn_ingest::sending::Known;
use firn_mirror::tee::{PASSED_HEADERS, Posting, TargetSettings, Write};
use firn_model::env::Env;
use firn_model::metadata::Metadata;
use firn_model::metrics::Counter;
use firn_model::sync::lock;
use firn_wire::remote_write::{Contents, Version, encode_metadata};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// Says what is known of metrics now.
type Learn = Box<dyn Fn() -> Known + Send + Sync>;

/// How soon after the start receivers are told first: by then a scrape has come.
const FIRST: Duration = Duration::from_secs(20);

/// How old the table may be when another receiver asks for it.
const FRESH: Duration = Duration::from_secs(10);

/// What is known, and how often it was told.
#[derive(Default)]
pub struct Said {
    learn: OnceLock<Learn>,
    known: Mutex<Arc<Known>>,
    /// When it was learned, by the monotonic clock.
    learned: Mutex<Option<Duration>>,
    /// By the keys of receivers.
    tallies: Mutex<BTreeMap<String, Arc<Tally>>>,
}

/// What became of what one receiver was told.
#[derive(Debug, Default)]
pub struct Tally {
    /// Metrics that it was told of.
    pub sent: Counter,
    /// Metrics of which it would not hear.
    pub failed: Counter,
    /// Metrics that were told again, each time.
    pub retried: Counter,
    /// Bytes of what it took.
    pub bytes: Counter,
}

impl Said {
    /// Has `learn` say what metrics are.
    pub fn learn_by(&self, learn: Learn) {
        // A process is wired once.
        let _ = self.learn.set(learn);
    }

    /// What was known when it was learned last.
    pub fn known(&self) -> Arc<Known> {
        lock(&self.known).clone()
    }

    /// The counts of a receiver, which outlive its settings.
    pub fn tally_of(&self, key: &str) -> Arc<Tally> {
        let mut tallies = lock(&self.tallies);
        tallies.entry(key.to_owned()).or_default().clone()
    }

    /// Learns anew if that was some time ago. Looks at all targets.
    fn refresh(&self, env: &Env) {
        let now = env.clock.monotonic();
        let mut learned = lock(&self.learned);
        if learned.is_some_and(|at| now.saturating_sub(at) < FRESH) {
            return;
        }
        let Some(learn) = self.learn.get() else {
            return;
        };
        let known = Arc::new(learn());
        *lock(&self.known) = known;
        *learned = Some(now);
    }
}

/// The task that tells one receiver.
pub struct Telling {
    /// What is known.
    pub said: Arc<Said>,
    /// What became of it.
    pub tally: Arc<Tally>,
    /// How often, and how much at a time.
    pub metadata: MetadataSettings,
    /// How the receiver is reached.
    pub settings: TargetSettings,
    /// What it understands.
    pub version: Version,
    /// The clock.
    pub env: Env,
}

impl Telling {
    /// Tells the receiver until it is dropped.
    pub async fn run(self) {
        let mut pause = FIRST.min(self.metadata.interval);
        loop {
            sleep(pause).await;
            pause = self.metadata.interval;
            let (said, env) = (self.said.clone(), self.env.clone());
            let learned = spawn_blocking(move || said.refresh(&env));
            if learned.await.is_ok() && self.version == Version::V1 {
                self.tell().await;
            }
        }
    }

    async fn tell(&self) {
        let known = self.said.known();
        let all: Vec<Metadata<'_>> = known.iter().collect();
        for some in all.chunks(self.metadata.request_metrics) {
            let body = encode_metadata(some.iter().copied());
            self.post(some.len() as u64, write(Version::V1, body.into()))
                .await;
        }
    }

    /// Posts what is said of `metrics`, again for as long as the next time is not due.
    async fn post(&self, metrics: u64, write: Write) {
        let settings = &self.settings;
        let begun = tokio::time::Instant::now();
        let mut pause = settings.backoff_min;
        let mut attempt = 0;
        loop {
            let named = write.headers.iter();
            let named =
                named.filter_map(|(at, text)| Some((*PASSED_HEADERS.get(*at)?, text.clone())));
            let posting = settings.deliver.post(Posting {
                headers: named.collect(),
                body: write.body.clone(),
                contents: Contents::default(),
                metrics,
                attempt,
            });
            attempt += 1;
            let why = match timeout(settings.timeout, posting).await {
                Ok(Ok(answer)) if answer.status / 100 == 2 => {
                    self.tally.sent.add(metrics);
                    self.tally.bytes.add(write.body.len() as u64);
                    return;
                }
                Ok(Ok(answer)) => {
                    let is_final = answer.status / 100 == 4 && answer.status != 429;
                    let why = format!("status {}: {}", answer.status, answer.text.trim());
                    if is_final {
                        return self.fail(metrics, &why);
                    }
                    why
                }
                Ok(Err(why)) => why,
                Err(_) => format!("no answer in {:?}", settings.timeout),
            };
            if begun.elapsed() + pause > self.metadata.interval {
                return self.fail(metrics, &why);
            }
            self.tally.retried.add(metrics);
            sleep(pause).await;
            pause = (pause * 2).min(settings.backoff_max);
        }
    }

    fn fail(&self, metrics: u64, why: &str) {
        self.tally.failed.add(metrics);
        let to = &self.settings.label;
        warn!(
            to,
            error = why,
            metrics,
            "failed to send metric metadata to the receiver"
        );
    }
}
