//! Sending on: `remote_write` of the config, wired to a queue on disk.
//!
//! The queue is the log of bodies of `firn mirror`, in the folder `sending` of the data folder: a
//! request is kept once, with a cursor for each receiver. It is opened when the config first names
//! a receiver.

mod client;
mod metrics;
mod said;

use super::metadata;
use crate::settings::config::Config;
use crate::settings::config::remote_write::RemoteWrite;
use bytes::Bytes;
use client::Client;
use firn_ingest::Pipeline;
use firn_ingest::forward::Forward;
use firn_ingest::scrape::Scraping;
use firn_ingest::sending::{Kept, KeptRequest, Known, Outgoing, Round, SendOn, Sent};
use firn_mirror::tee::{
    Mirror, PASSED_HEADERS, Parcel, Prepare, Request, TargetSettings, Wanted, Write,
};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::metrics::Gauge;
use firn_model::store::{Appended, Ticket};
use firn_model::sync::lock;
use firn_model::trace::Tracer;
use firn_wire::WireLimits;
use firn_wire::remote_write::Version;
use said::{Said, Telling};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::{error, info};

/// The folder of the queue, in the data folder.
const FOLDER: &str = "sending";

/// What a request of 2.0 says it is.
const CONTENT_TYPE_V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// Says what is known of metrics now.
type Learn = Box<dyn Fn() -> Known + Send + Sync>;

/// The receivers in force, and what waits for them.
pub struct Sending {
    env: Env,
    tracer: Arc<Tracer>,
    dir: PathBuf,
    limits: WireLimits,
    queue: OnceLock<Arc<Mirror>>,
    /// Whether there is a receiver: asked for each batch, without the lock.
    is_on: AtomicBool,
    /// The least of what receivers want in a request.
    request_samples: AtomicUsize,
    /// The time of the newest sample that was kept.
    newest: Gauge,
    /// What metrics are, as receivers are told.
    said: Arc<Said>,
    following: Mutex<Following>,
    runtime: Handle,
}

/// What a configuration began. Held while one is taken over, which waits for the disk.
#[derive(Default)]
struct Following {
    /// What stores cursors.
    keeping: Option<JoinHandle<()>>,
    /// What tells receivers of metrics.
    telling: Vec<JoinHandle<()>>,
    receivers: Vec<RemoteWrite>,
}

impl Sending {
    /// Sends nothing yet; the data folder is `data_dir`. Must be called inside the runtime.
    pub fn new(
        (env, tracer): (Env, Arc<Tracer>),
        data_dir: &std::path::Path,
        limits: WireLimits,
    ) -> Self {
        Self {
            env,
            tracer,
            dir: data_dir.join(FOLDER),
            limits,
            queue: OnceLock::new(),
            is_on: AtomicBool::new(false),
            request_samples: AtomicUsize::new(usize::MAX),
            newest: Gauge::default(),
            said: Arc::default(),
            following: Mutex::default(),
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

    /// Sends as `config` says from here on. May block.
    pub fn follow(&self, config: &Config) {
        let mut following = lock(&self.following);
        if config.remote_write.is_empty() && self.queue.get().is_none() {
            return;
        }
        let _inside = self.runtime.enter();
        let settings = config.remote_write.iter();
        let settings: Result<Vec<TargetSettings>, String> = settings
            .map(|receiver| self.settings(receiver, config))
            .collect();
        match settings.and_then(|settings| Ok((self.open(&mut following.keeping)?, settings))) {
            Ok((queue, settings)) => {
                self.is_on.store(!settings.is_empty(), Ordering::Relaxed);
                let samples = config.remote_write.iter().map(|r| r.request_samples);
                let samples = samples.min().unwrap_or(usize::MAX);
                self.request_samples
                    .store(samples.max(1), Ordering::Relaxed);
                let receivers = settings.len();
                self.tell(&config.remote_write, &settings, &mut following.telling);
                queue.apply(settings);
                queue.store_cursors();
                following.receivers.clone_from(&config.remote_write);
                info!(receivers, "sending on follows the config");
            }
            Err(e) => error!(error = %e, "samples are not sent on"),
        }
    }

    fn open(&self, keeping: &mut Option<JoinHandle<()>>) -> Result<Arc<Mirror>, String> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue.clone());
        }
        let opened = Mirror::open(self.env.clone(), &self.dir, self.limits.message_bytes_max);
        let queue = Arc::new(opened.map_err(|e| e.message)?);
        *keeping = Some(self.runtime.spawn(queue.clone().keep()));
        Ok(self.queue.get_or_init(|| queue).clone())
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
            queue_age_max: receiver.age_max,
            prepare: Arc::new(Preparing {
                outgoing: Outgoing {
                    external_labels: config.external_labels.clone(),
                    relabel: receiver.relabel.clone(),
                    sends_histograms: receiver.sends_histograms,
                    sends_exemplars: receiver.sends_exemplars,
                    version: receiver.version,
                    request_samples: receiver.request_samples,
                    shares_max: receiver.shards.1,
                },
                said: receiver.metadata.map(|_| self.said.clone()),
                limits: self.limits,
            }),
            fill: receiver.fill,
            timeout: receiver.timeout,
            backoff_min: receiver.backoff.0,
            backoff_max: receiver.backoff.1,
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

    /// Lets attempts under way end, and notes how far receivers are.
    pub async fn stop(&self) {
        {
            let mut following = lock(&self.following);
            following.telling.drain(..).for_each(|task| task.abort());
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
        let Some(queue) = self.queue.get() else {
            return Ticket::ready(Ok(Appended::default()));
        };
        self.newest.raise(request.contents.newest);
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

/// A request of this version, with the headers that it needs.
fn write(version: Version, body: Bytes) -> Write {
    let headers = match version {
        Version::V1 => ["application/x-protobuf", "snappy", "0.1.0"],
        Version::V2 => [CONTENT_TYPE_V2, "snappy", "2.0.0"],
    };
    debug_assert_eq!(PASSED_HEADERS[2], "x-prometheus-remote-write-version");
    let headers = headers.iter().enumerate();
    Write {
        headers: headers.map(|(at, text)| (at, (*text).into())).collect(),
        contents: None,
        body,
    }
}

/// A request that was kept.
fn kept(write: &Write) -> Kept {
    Kept {
        version: match write.header("content-type") {
            Some(CONTENT_TYPE_V2) => Version::V2,
            _ => Version::V1,
        },
        contents: write.contents,
        body: write.body.clone(),
    }
}

/// Makes what one receiver gets.
struct Preparing {
    outgoing: Outgoing,
    /// What metrics are, if the receiver wants to know.
    said: Option<Arc<Said>>,
    limits: WireLimits,
}

impl Preparing {
    /// Whether requests of 2.0 say what metrics are.
    fn tells(&self) -> bool {
        self.said
            .as_ref()
            .is_some_and(|said| !said.known().is_empty())
    }

    fn parcel(&self, round: Result<Round, String>) -> Parcel {
        let round = match round {
            Ok(round) => round,
            Err(why) => {
                return Parcel {
                    bodies: 1,
                    wanted: Wanted::Unreadable(why),
                    dropped: 0,
                    is_full: true,
                };
            }
        };
        let lane = |share: Vec<Sent>| share.into_iter().map(|sent| self.request(sent)).collect();
        Parcel {
            bodies: round.kept,
            wanted: match round.shares.is_empty() {
                true => Wanted::Nothing,
                false => Wanted::Lanes(round.shares.into_iter().map(lane).collect()),
            },
            dropped: round.dropped,
            is_full: round.is_full,
        }
    }

    fn request(&self, sent: Sent) -> Request {
        Request {
            contents: sent.contents,
            write: write(self.outgoing.version, sent.body),
        }
    }
}

impl Prepare for Preparing {
    fn is_quick(&self, writes: &[&Write], is_behind: bool) -> bool {
        let kept: Vec<Kept> = writes.iter().map(|write| kept(write)).collect();
        !is_behind && self.outgoing.is_quick(&kept, self.tells())
    }

    fn prepare(&self, writes: &[&Write], _bytes_max: usize, is_behind: bool) -> Vec<Parcel> {
        let kept: Vec<Kept> = writes.iter().map(|write| kept(write)).collect();
        let known = self.said.as_ref().map(|said| said.known());
        let known = known.unwrap_or_default();
        let rounds = self
            .outgoing
            .rounds(&kept, (&known, is_behind), &self.limits);
        rounds.into_iter().map(|round| self.parcel(round)).collect()
    }
}
