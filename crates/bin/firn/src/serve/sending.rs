//! Remote write: connects `remote_write` of the config to a queue on disk.
//!
//! The queue is the log of `firn mirror`, in the folder `sending` of the data folder. A request is
//! stored once, with a cursor per receiver. The queue is opened when the config first contains a
//! receiver, and emptied when it contains none.
//!
//! Invariant: while the config contains receivers and the queue cannot be opened, an agent
//! acknowledges nothing, because it stores samples nowhere else. A server continues to store
//! samples, and counts and reports those that are not forwarded. Both retry until the queue is
//! open.

mod client;
mod metrics;
mod preparing;
mod request;
mod said;

use super::metadata;
use client::RemoteWriteClient;
use firn_config::config::Config;
use firn_config::config::remote_write::RemoteWriteSettings;
use firn_ingest::Pipeline;
use firn_ingest::sending::{KeptRequest, ReceiverQueue};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::metrics::{Counter, Gauge};
use firn_model::store::{AppendOutcome, Ticket};
use firn_model::sync::lock;
use firn_model::trace::Tracer;
use firn_remote_write::OutgoingSettings;
use firn_remote_write::forward::ForwardClient;
use firn_remote_write::queue::{
    DeliveryMode, Mirror, ReceivedWrite, RequestContentCounters, TargetSettings,
};
use firn_scrape::ScrapeManager;
use firn_wire::WireLimits;
use preparing::ReceiverRequestBuilder;
use request::write;
use said::{MetadataSenderTask, SentMetadataTable};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use tracing::{error, info, warn};

/// Name of the queue's folder, relative to the data folder.
const FOLDER: &str = "sending";

/// Pause between two attempts to open the queue: the first and the maximum.
const OPEN_PAUSE_MIN: Duration = Duration::from_secs(1);
const OPEN_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Remote write: the active receivers and their queue. Created at the start of a server; batches of
/// the pipeline pass through it.
pub struct RemoteWriteManager {
    env: Env,
    tracer: Arc<Tracer>,
    dir: PathBuf,
    limits: WireLimits,
    duty: SendingMode,
    queue: OnceLock<Arc<Mirror>>,
    /// Whether a receiver is configured. Read for each batch without a lock.
    is_on: AtomicBool,
    /// Minimum of `max_samples_per_send` over all receivers.
    request_samples: AtomicUsize,
    /// Time of the newest queued sample, in milliseconds since the epoch.
    newest: Gauge,
    /// Samples, exemplars and histograms that were offered to the queue.
    came: RequestContentCounters,
    /// Error that prevents the queue from being opened; `None` if it is open or not needed.
    fault: Mutex<Option<String>>,
    open_failures: Counter,
    /// Requests that were not queued because the queue is not open.
    unkept: Counter,
    /// Metric metadata for receivers, with counters of its requests.
    said: Arc<SentMetadataTable>,
    following: Mutex<RemoteWriteTasks>,
    /// The active receivers, in the order of the config.
    receivers: Mutex<Arc<Vec<RemoteWriteSettings>>>,
    runtime: Handle,
}

/// Requirements on sending that depend on the mode of the server, and a callback for changes of its
/// state.
pub struct SendingMode {
    /// True for an agent, which stores samples nowhere else and must not lose any.
    pub is_agent: bool,
    /// Called with false while samples cannot be forwarded although they should be, and with true
    /// afterwards.
    pub tell: Box<dyn Fn(bool) + Send + Sync>,
}

/// Tasks of the active configuration. Locked while a configuration is applied, which waits for the
/// disk.
#[derive(Default)]
struct RemoteWriteTasks {
    /// Task that stores cursors periodically.
    keeping: Option<JoinHandle<()>>,
    /// Tasks that send metadata, one per receiver that gets it.
    telling: Vec<JoinHandle<()>>,
    /// Task that retries to open the queue, while that fails.
    retrying: Option<JoinHandle<()>>,
    /// Number of configurations applied so far, to detect outdated retries.
    count: u64,
}

impl RemoteWriteManager {
    /// Creates the sender without receivers. `data_dir` is the data folder. Must be called inside
    /// the runtime.
    pub fn new(
        env: Env,
        tracer: Arc<Tracer>,
        data_dir: &std::path::Path,
        limits: WireLimits,
        duty: SendingMode,
    ) -> Self {
        Self {
            env,
            tracer,
            dir: data_dir.join(FOLDER),
            limits,
            duty,
            queue: OnceLock::new(),
            is_on: AtomicBool::new(false),
            request_samples: AtomicUsize::new(usize::MAX),
            newest: Gauge::default(),
            came: RequestContentCounters::default(),
            fault: Mutex::default(),
            open_failures: Counter::default(),
            unkept: Counter::default(),
            said: Arc::default(),
            following: Mutex::default(),
            receivers: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// Sets the sources of metadata: the targets of `scraping` and the pushes to `pipeline`.
    pub fn learn_from(&self, pipeline: &Arc<Pipeline>, scraping: &Arc<ScrapeManager>) {
        // The pipeline holds `self`.
        let (pipeline, scraping) = (Arc::downgrade(pipeline), scraping.clone());
        self.said.learn_by(Box::new(move || {
            metadata::collect_metadata(pipeline.upgrade().as_deref(), &scraping)
        }));
    }

    /// Applies the receivers of `config`. If that fails, returns the error and retries in the
    /// background until it succeeds or another configuration is applied. May block.
    pub fn apply_config(self: &Arc<Self>, config: &Arc<Config>) -> Result<(), String> {
        let mut following = lock(&self.following);
        following.count += 1;
        if let Some(retrying) = following.retrying.take() {
            retrying.abort();
        }
        let followed = self.take_over(&mut following, config);
        if let Err(e) = &followed {
            error!(error = e, "remote write is not running: retrying");
            let (weak, config) = (Arc::downgrade(self), config.clone());
            let count = following.count;
            following.retrying = Some(self.runtime.spawn(async move {
                let mut pause = OPEN_PAUSE_MIN;
                loop {
                    sleep(pause).await;
                    pause = (pause * 2).min(OPEN_PAUSE_MAX);
                    let Some(sending) = weak.upgrade() else {
                        return;
                    };
                    let config = config.clone();
                    let trying = spawn_blocking(move || sending.try_again(&config, count));
                    // A failed task has logged its error.
                    if trying.await.unwrap_or(false) {
                        return;
                    }
                }
            }));
        }
        followed
    }

    /// Retries to apply `config`, unless a newer configuration than number `count` was applied.
    /// Returns whether no further retry is needed.
    fn try_again(&self, config: &Config, count: u64) -> bool {
        let mut following = lock(&self.following);
        if following.count != count {
            return true;
        }
        match self.take_over(&mut following, config) {
            Ok(()) => true,
            Err(e) => {
                warn!(error = %e, "remote write is still not running: retrying");
                false
            }
        }
    }

    fn take_over(&self, following: &mut RemoteWriteTasks, config: &Config) -> Result<(), String> {
        let is_wanted = !config.remote_write.is_empty();
        if !is_wanted && self.queue.get().is_none() {
            self.is_on.store(false, Ordering::Relaxed);
            self.note_fault(None);
            self.free();
            return Ok(());
        }
        let _inside = self.runtime.enter();
        let settings = config.remote_write.iter();
        let settings: Result<Vec<TargetSettings>, String> = settings
            .map(|receiver| self.settings(receiver, config))
            .collect();
        let opened = settings.and_then(|settings| Ok((self.open(following)?, settings)));
        let (queue, settings) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                self.open_failures.inc();
                self.note_fault(Some(&e));
                self.is_on.store(is_wanted, Ordering::Relaxed);
                return Err(e);
            }
        };
        self.note_fault(None);
        self.is_on.store(is_wanted, Ordering::Relaxed);
        let samples = config.remote_write.iter().map(|r| r.request_samples);
        let samples = samples.min().unwrap_or(usize::MAX);
        self.request_samples
            .store(samples.max(1), Ordering::Relaxed);
        let receivers = settings.len();
        self.start_metadata_tasks(&config.remote_write, &settings, &mut following.telling);
        queue.apply(settings);
        queue.store_cursors();
        *lock(&self.receivers) = Arc::new(config.remote_write.clone());
        info!(receivers, "config applied to remote write");
        Ok(())
    }

    fn note_fault(&self, why: Option<&str>) {
        *lock(&self.fault) = why.map(str::to_owned);
        (self.duty.tell)(why.is_none());
    }

    fn open(&self, following: &mut RemoteWriteTasks) -> Result<Arc<Mirror>, String> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue.clone());
        }
        let opened = Mirror::open(self.env.clone(), &self.dir, self.limits.message_bytes_max);
        let queue = opened.map_err(|e| format!("open the queue of remote_write: {}", e.message))?;
        let queue = Arc::new(queue);
        following.keeping = Some(
            self.runtime
                .spawn(queue.clone().store_cursors_periodically()),
        );
        Ok(self.queue.get_or_init(|| queue).clone())
    }

    /// Removes requests that an earlier process stored for receivers that are no longer configured.
    fn free(&self) {
        // A folder that is missing or cannot be listed contains nothing to remove.
        let names = self.env.disk.list(&self.dir).unwrap_or_default();
        if !names.iter().any(|name| Mirror::is_of_queue(name)) {
            return;
        }
        let opened = Mirror::open(self.env.clone(), &self.dir, self.limits.message_bytes_max);
        match opened {
            Ok(queue) => {
                let _inside = self.runtime.enter();
                queue.apply(Vec::new());
                queue.store_cursors();
            }
            Err(e) => {
                warn!(error = %e.message, "failed to remove the old queue of remote_write")
            }
        }
    }

    /// Starts a metadata task for each receiver that is configured to get metadata.
    fn start_metadata_tasks(
        &self,
        receivers: &[RemoteWriteSettings],
        settings: &[TargetSettings],
        telling: &mut Vec<JoinHandle<()>>,
    ) {
        telling.drain(..).for_each(|task| task.abort());
        for (receiver, settings) in receivers.iter().zip(settings) {
            let Some(metadata) = receiver.metadata else {
                continue;
            };
            let telling_one = MetadataSenderTask {
                said: self.said.clone(),
                tally: self.said.counters_for(&receiver.key),
                metadata,
                settings: settings.clone(),
                version: receiver.version,
                env: self.env.clone(),
            };
            telling.push(self.runtime.spawn(telling_one.run()));
        }
    }

    fn settings(
        &self,
        receiver: &RemoteWriteSettings,
        config: &Config,
    ) -> Result<TargetSettings, String> {
        Ok(TargetSettings {
            key: receiver.key.clone(),
            label: receiver.label.clone(),
            queue_bytes_max: config.sending_queue_bytes,
            queue_age_max: None,
            sample_age_max: receiver.age_max,
            prepare: Arc::new(ReceiverRequestBuilder {
                outgoing: OutgoingSettings {
                    external_labels: config.external_labels.clone(),
                    relabel: receiver.relabel.clone(),
                    sends_histograms: receiver.sends_histograms,
                    sends_exemplars: receiver.sends_exemplars,
                    version: receiver.version,
                    request_samples: receiver.request_samples,
                    shares: receiver.shards,
                },
                said: receiver.metadata.map(|_| self.said.clone()),
                limits: self.limits,
            }),
            fill: receiver.fill,
            timeout: receiver.timeout,
            backoff_min: receiver.backoff.0,
            backoff_max: receiver.backoff.1,
            manner: DeliveryMode::Sender,
            deliver: Arc::new(RemoteWriteClient {
                forward: self.forward(receiver)?,
                tracer: self.tracer.clone(),
                name: receiver.label.clone(),
                url: receiver.url.clone(),
            }),
        })
    }

    fn forward(&self, receiver: &RemoteWriteSettings) -> Result<ForwardClient, String> {
        let forward = ForwardClient::new(&receiver.url, receiver.http.clone())?;
        Ok(forward.with_signer(receiver.signer(self.env.clock.clone())))
    }

    /// Handles a request while the queue is not open: an agent rejects it, a server ignores and
    /// counts it.
    fn pass_over(&self) -> Ticket {
        self.unkept.inc();
        if !self.duty.is_agent {
            return Ticket::resolved(Ok(AppendOutcome::default()));
        }
        let why = lock(&self.fault).clone().unwrap_or_default();
        Ticket::resolved(Err(Error::unavailable(why)))
    }

    /// Waits for running requests and stores the cursors of the receivers.
    pub async fn stop(&self) {
        {
            let mut following = lock(&self.following);
            following.telling.drain(..).for_each(|task| task.abort());
            if let Some(retrying) = following.retrying.take() {
                retrying.abort();
            }
            if let Some(keeping) = following.keeping.take() {
                keeping.abort();
            }
        }
        if let Some(queue) = self.queue.get() {
            queue.stop().await;
        }
    }
}

impl ReceiverQueue for RemoteWriteManager {
    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn request_samples_max(&self) -> usize {
        self.request_samples.load(Ordering::Relaxed)
    }

    fn keep_request(&self, request: KeptRequest) -> Ticket {
        self.came.add(request.contents);
        self.newest.set_max(request.contents.newest);
        let Some(queue) = self.queue.get() else {
            return self.pass_over();
        };
        let (ticket, resolver) = Ticket::new();
        queue.append(
            ReceivedWrite {
                contents: request.is_sound.then_some(request.contents),
                ..write(request.version, request.body.into())
            },
            move |outcome| {
                let outcome = outcome.map(|()| AppendOutcome::default());
                resolver.resolve(outcome.map_err(Error::unavailable));
            },
        );
        ticket
    }
}
