//! Sending on: `remote_write` of the config, wired to a queue on disk.
//!
//! The queue is the log of bodies of `firn mirror`, in the folder `sending` of the data folder: a
//! request is kept once, with a cursor for each receiver. It is opened when the config first names
//! a receiver.

use super::mirror::Client;
use crate::settings::config::Config;
use crate::settings::config::remote_write::RemoteWrite;
use firn_ingest::forward::Forward;
use firn_ingest::sending::{Outgoing, Rewritten, SendOn};
use firn_mirror::tee::{Filtered, Mirror, PASSED_HEADERS, Prepare, TargetSettings, Write};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::metrics::{Collect, Sink, Value};
use firn_model::store::{Appended, Ticket};
use firn_model::sync::lock;
use firn_wire::WireLimits;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::{error, info};

/// The folder of the queue, in the data folder.
const FOLDER: &str = "sending";

/// The receivers in force, and what waits for them.
pub struct Sending {
    env: Env,
    dir: PathBuf,
    limits: WireLimits,
    queue: OnceLock<Arc<Mirror>>,
    /// Whether there is a receiver: asked for each batch, without the lock.
    is_on: AtomicBool,
    /// What stores cursors. Held while a configuration is taken over, which waits for the disk.
    keeping: Mutex<Option<JoinHandle<()>>>,
    runtime: Handle,
}

impl Sending {
    /// Sends nothing yet; the data folder is `data_dir`. Must be called inside the runtime.
    pub fn new(env: Env, data_dir: &std::path::Path, limits: WireLimits) -> Self {
        Self {
            env,
            dir: data_dir.join(FOLDER),
            limits,
            queue: OnceLock::new(),
            is_on: AtomicBool::new(false),
            keeping: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// Sends as `config` says from here on. May block.
    pub fn follow(&self, config: &Config) {
        let mut keeping = lock(&self.keeping);
        if config.remote_write.is_empty() && self.queue.get().is_none() {
            return;
        }
        let _inside = self.runtime.enter();
        let settings = config.remote_write.iter();
        let settings: Result<Vec<TargetSettings>, String> = settings
            .map(|receiver| self.settings(receiver, config))
            .collect();
        match settings.and_then(|settings| Ok((self.open(&mut keeping)?, settings))) {
            Ok((queue, settings)) => {
                self.is_on.store(!settings.is_empty(), Ordering::Relaxed);
                let receivers = settings.len();
                queue.apply(settings);
                queue.store_cursors();
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
                },
                limits: self.limits,
            }),
            timeout: receiver.timeout,
            backoff_min: receiver.backoff.0,
            backoff_max: receiver.backoff.1,
            deliver: Arc::new(Client(Forward::new(&receiver.url, receiver.http.clone())?)),
        })
    }

    /// Lets attempts under way end, and notes how far receivers are.
    pub async fn stop(&self) {
        if let Some(keeping) = lock(&self.keeping).take() {
            keeping.abort();
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

    fn keep(&self, body: Vec<u8>) -> Ticket {
        let Some(queue) = self.queue.get() else {
            return Ticket::ready(Ok(Appended::default()));
        };
        let headers = ["application/x-protobuf", "snappy", "0.1.0"];
        let headers = headers.iter().enumerate();
        let write = Write {
            headers: headers.map(|(at, text)| (at, (*text).into())).collect(),
            body: body.into(),
        };
        debug_assert_eq!(PASSED_HEADERS[2], "x-prometheus-remote-write-version");
        let (ticket, resolver) = Ticket::new();
        queue.append(write, move |outcome| {
            let outcome = outcome.map(|()| Appended::default());
            resolver.resolve(outcome.map_err(Error::unavailable));
        });
        ticket
    }
}

/// Makes what one receiver gets.
struct Preparing {
    outgoing: Outgoing,
    limits: WireLimits,
}

impl Prepare for Preparing {
    fn passes_all(&self) -> bool {
        false
    }

    fn prepare(&self, write: &Write, _bytes_max: usize) -> Filtered {
        match self.outgoing.rewrite(&write.body, &self.limits) {
            Ok(Rewritten::Same) => Filtered::Body(write.body.clone()),
            Ok(Rewritten::Body(body)) => Filtered::Body(body.into()),
            Ok(Rewritten::Nothing) => Filtered::Nothing,
            Err(why) => Filtered::Unreadable(why),
        }
    }
}

/// The queue's metrics under names of their own.
impl Collect for Sending {
    fn collect(&self, sink: &mut dyn Sink) {
        if let Some(queue) = self.queue.get() {
            queue.collect(&mut Renamed(sink));
        }
    }
}

struct Renamed<'a>(&'a mut dyn Sink);

impl Sink for Renamed<'_> {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Value<'_>) {
        let rest = name.strip_prefix("firn_mirror_").unwrap_or(name);
        let name = format!("firn_sending_{rest}");
        self.0.metric(&name, help, labels, value);
    }
}
