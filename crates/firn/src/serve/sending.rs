//! Sending on: `remote_write` of the config, wired to a queue on disk.
//!
//! The queue is the log of bodies of `firn mirror`, in the folder `sending` of the data folder: a
//! request is kept once, with a cursor for each receiver. It is opened when the config first names
//! a receiver, and emptied when none is left.
//!
//! Invariant: while receivers are named and the queue cannot be opened, an agent acknowledges
//! nothing, since nothing else keeps what came. A server goes on storing, counts what is not sent
//! on, and says so; either tries again until the queue is open.

mod client;
mod metrics;
mod preparing;
mod request;
mod said;

use super::metadata;
use crate::settings::config::Config;
use crate::settings::config::remote_write::RemoteWrite;
use client::Client;
use firn_ingest::Pipeline;
use firn_ingest::forward::Forward;
use firn_ingest::scrape::Scraping;
use firn_ingest::sending::{KeptRequest, Outgoing, SendOn};
use firn_mirror::tee::{Manner, Mirror, Tally, TargetSettings, Write};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::metrics::{Counter, Gauge};
use firn_model::store::{Appended, Ticket};
use firn_model::sync::lock;
use firn_model::trace::Tracer;
use firn_wire::WireLimits;
use preparing::Preparing;
use request::write;
use said::{Said, Telling};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use tracing::{error, info, warn};

/// The folder of the queue, in the data folder.
const FOLDER: &str = "sending";

/// Between two tries to open the queue: the first pause and the longest.
const OPEN_PAUSE_MIN: Duration = Duration::from_secs(1);
const OPEN_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The receivers in force, and what waits for them.
pub struct Sending {
    env: Env,
    tracer: Arc<Tracer>,
    dir: PathBuf,
    limits: WireLimits,
    duty: Duty,
    queue: OnceLock<Arc<Mirror>>,
    /// Whether there is a receiver: asked for each batch, without the lock.
    is_on: AtomicBool,
    /// The least of what receivers want in a request.
    request_samples: AtomicUsize,
    /// The time of the newest sample that was kept.
    newest: Gauge,
    /// What was to be kept.
    came: Tally,
    /// Why the queue is not open, where it should be.
    fault: Mutex<Option<String>>,
    open_failures: Counter,
    /// Requests that were not kept for that.
    unkept: Counter,
    /// What metrics are, as receivers are told.
    said: Arc<Said>,
    following: Mutex<Following>,
    /// The receivers in force.
    receivers: Mutex<Arc<Vec<RemoteWrite>>>,
    runtime: Handle,
}

/// What hangs on sending.
pub struct Duty {
    /// Whether nothing else keeps what comes.
    pub is_agent: bool,
    /// Tells the operator whether samples are sent on that should be.
    pub tell: Box<dyn Fn(bool) + Send + Sync>,
}

/// What a configuration began. Held while one is taken over, which waits for the disk.
#[derive(Default)]
struct Following {
    /// What stores cursors.
    keeping: Option<JoinHandle<()>>,
    /// What tells receivers of metrics.
    telling: Vec<JoinHandle<()>>,
    /// What tries again to open the queue.
    retrying: Option<JoinHandle<()>>,
    /// How many configurations were followed.
    count: u64,
}

impl Sending {
    /// Sends nothing yet; the data folder is `data_dir`. Must be called inside the runtime.
    pub fn new(
        (env, tracer): (Env, Arc<Tracer>),
        data_dir: &std::path::Path,
        limits: WireLimits,
        duty: Duty,
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
            came: Tally::default(),
            fault: Mutex::default(),
            open_failures: Counter::default(),
            unkept: Counter::default(),
            said: Arc::default(),
            following: Mutex::default(),
            receivers: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// Tells receivers what `scraping` and the pushes of `pipeline` say of metrics.
    pub fn learn_from(&self, pipeline: &Arc<Pipeline>, scraping: &Arc<Scraping>) {
        // The pipeline has this object.
        let (pipeline, scraping) = (Arc::downgrade(pipeline), scraping.clone());
        self.said.learn_by(Box::new(move || {
            metadata::known(pipeline.upgrade().as_deref(), &scraping)
        }));
    }

    /// Sends as `config` says from here on, or says why that is not so yet: it is tried again until
    /// another configuration comes. May block.
    pub fn follow(self: &Arc<Self>, config: &Arc<Config>) -> Result<(), String> {
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
                    // A task that failed has said so.
                    if trying.await.unwrap_or(false) {
                        return;
                    }
                }
            }));
        }
        followed
    }

    /// Follows `config` again, unless another one came since it was the one with number `count`;
    /// whether there is nothing left to try.
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

    fn take_over(&self, following: &mut Following, config: &Config) -> Result<(), String> {
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
        self.tell(&config.remote_write, &settings, &mut following.telling);
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

    fn open(&self, following: &mut Following) -> Result<Arc<Mirror>, String> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue.clone());
        }
        let opened = Mirror::open(self.env.clone(), &self.dir, self.limits.message_bytes_max);
        let queue = opened.map_err(|e| format!("open the queue of remote_write: {}", e.message))?;
        let queue = Arc::new(queue);
        following.keeping = Some(self.runtime.spawn(queue.clone().keep()));
        Ok(self.queue.get_or_init(|| queue).clone())
    }

    /// Removes what an earlier process kept for receivers that are no longer named.
    fn free(&self) {
        // A folder that is not there, or cannot be listed, has nothing to free.
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

    /// Tells the receivers of metrics that want it, each at times of its own.
    fn tell(
        &self,
        receivers: &[RemoteWrite],
        settings: &[TargetSettings],
        telling: &mut Vec<JoinHandle<()>>,
    ) {
        telling.drain(..).for_each(|task| task.abort());
        for (receiver, settings) in receivers.iter().zip(settings) {
            let Some(metadata) = receiver.metadata else {
                continue;
            };
            let telling_one = Telling {
                said: self.said.clone(),
                tally: self.said.tally_of(&receiver.key),
                metadata,
                settings: settings.clone(),
                version: receiver.version,
                env: self.env.clone(),
            };
            telling.push(self.runtime.spawn(telling_one.run()));
        }
    }

    fn settings(&self, receiver: &RemoteWrite, config: &Config) -> Result<TargetSettings, String> {
        Ok(TargetSettings {
            key: receiver.key.clone(),
            label: receiver.label.clone(),
            queue_bytes_max: config.sending_queue_bytes,
            queue_age_max: None,
            sample_age_max: receiver.age_max,
            prepare: Arc::new(Preparing {
                outgoing: Outgoing {
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
            manner: Manner::Sender,
            deliver: Arc::new(Client {
                forward: self.forward(receiver)?,
                tracer: self.tracer.clone(),
                name: receiver.label.clone(),
                url: receiver.url.clone(),
            }),
        })
    }

    fn forward(&self, receiver: &RemoteWrite) -> Result<Forward, String> {
        let forward = Forward::new(&receiver.url, receiver.http.clone())?;
        Ok(forward.signed_by(receiver.signer(self.env.clock.clone())))
    }

    /// What becomes of a request while the queue is not open.
    fn pass_over(&self) -> Ticket {
        self.unkept.inc();
        if !self.duty.is_agent {
            return Ticket::ready(Ok(Appended::default()));
        }
        let why = lock(&self.fault).clone().unwrap_or_default();
        Ticket::ready(Err(Error::unavailable(why)))
    }

    /// Lets attempts under way end, and notes how far receivers are.
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

impl SendOn for Sending {
    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn request_samples_max(&self) -> usize {
        self.request_samples.load(Ordering::Relaxed)
    }

    fn keep(&self, request: KeptRequest) -> Ticket {
        self.came.add(request.contents);
        self.newest.raise(request.contents.newest);
        let Some(queue) = self.queue.get() else {
            return self.pass_over();
        };
        let (ticket, resolver) = Ticket::new();
        queue.append(
            Write {
                contents: request.is_sound.then_some(request.contents),
                ..write(request.version, request.body.into())
            },
            move |outcome| {
                let outcome = outcome.map(|()| Appended::default());
                resolver.resolve(outcome.map_err(Error::unavailable));
            },
        );
        ticket
    }
}
