//! Durable forwarding of remote-write bodies to several targets. `firn mirror` forwards the bodies
//! that it receives, and `firn serve` sends the samples that it stores to its `remote_write`
//! targets.
//!
//! ```text
//! body -> bodies (one log on disk, synced) -> 204
//!           |- cursor of a target -> its courier -> filter -> POST, repeated until it is answered
//!           |- ..
//! ```
//!
//! All targets share one log: a body is written once, regardless of the number of targets, and the
//! queue of a target is the range from its cursor to the end. The limits of a target move only its
//! own cursor, so that an unavailable target costs the others nothing but disk space. Cursors are
//! stored twice a second: after a kill, a target may receive the bodies since then again, in order.
//!
//! Invariant: a body that [`Mirror::store_body`] acknowledged is durable. Each target receives the
//! bodies in the order of acknowledgement, unless they are counted as lost with a reason. HTTP is
//! left to the caller: bodies enter through [`Mirror::store_body`] and leave through
//! [`DeliveryTransport`].

mod attempts;
mod bodies;
mod courier;
mod cursors;
mod filter;
mod metrics;
mod pace;
mod target;
#[cfg(test)]
mod tests;
mod verdict;

pub use bodies::{PASSED_HEADERS, ReceivedWrite};
pub use filter::TargetSeriesFilter;
pub use firn_wire::thinning::WriteMessageCounts;
pub use target::{
    Delivering, DeliveryTarget, DeliveryTransport, PostAttempt, Request, RequestContentCounters,
    RequestParcel, RequestPreparer, TargetSettings, WantedBodies,
};
pub use verdict::{DeliveryMode, TargetResponse};

use bodies::BodyLog;
use courier::Courier;
use cursors::{Cursors, StoredCursorsError};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::metrics::Counter;
use firn_model::sync::lock;
use firn_wire::thinning::{self, WriteMessageType};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

/// Interval at which cursors are stored. It is half of the second within which bodies may be sent
/// twice after a kill, as documented.
const CURSORS_PERIOD: Duration = Duration::from_millis(500);

/// Time that running attempts may take to finish at shutdown. Orchestrators kill after 30 s, of
/// which the connections of senders use ten.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Length of a body from which its contents are counted on a blocking thread. For smaller ones,
/// counting takes less time than the switch.
const COUNT_HERE_BYTES_MAX: usize = 256 << 10;

/// The log of bodies, the targets, and the tasks that deliver to them. `firn mirror` has one for
/// all its targets, and `firn serve` uses one for its `remote_write` targets.
pub struct Mirror {
    env: Env,
    dir: PathBuf,
    bodies: BodyLog,
    message_bytes_max: usize,
    /// The targets that bodies are delivered to, by their keys.
    targets: Mutex<BTreeMap<String, RunningTarget>>,
    /// Stored cursors of the previous process, until the first configuration is applied.
    found: Mutex<Option<StoredPositions>>,
    /// The cursors that this process stored last. The lock is held while cursors are stored.
    stored: Mutex<Option<Cursors>>,
    stopping: watch::Sender<bool>,
    taken: Arc<ReceivedBodyCounters>,
    cursors_failed: Counter,
}

/// Counters of received bodies, shared with the callbacks of pending writes.
#[derive(Debug, Default)]
struct ReceivedBodyCounters {
    bodies: Counter,
    bytes: Counter,
    refused: Counter,
}

/// A target, the channel for its configuration, and the task that delivers to it.
struct RunningTarget {
    target: Arc<DeliveryTarget>,
    settings: watch::Sender<Arc<TargetSettings>>,
    /// The courier's task, which is taken when the process stops.
    task: Option<JoinHandle<()>>,
}

impl RunningTarget {
    fn abort(&self) {
        self.task.iter().for_each(JoinHandle::abort);
    }
}

/// The stored positions from which targets continue after a start of the process.
enum StoredPositions {
    /// Stored positions; a target that is not among them is new.
    Cursors(Cursors),
    /// No positions have been stored, so that all targets begin with the oldest body.
    Nothing,
}

impl Mirror {
    /// Opens the log in `dir`, which is created if necessary. Uncompressed messages are limited to
    /// `message_bytes_max` bytes.
    pub fn open(env: Env, dir: &Path, message_bytes_max: usize) -> Result<Self, Error> {
        let found = match cursors::load(&*env.disk, dir) {
            Ok(Some(cursors)) => StoredPositions::Cursors(cursors),
            Ok(None) => StoredPositions::Nothing,
            Err(e @ StoredCursorsError::Damaged(_)) => {
                warn!(error = %e, "delivery positions are lost: sending all stored bodies again");
                StoredPositions::Nothing
            }
            Err(e) => return Err(Error::unavailable(format!("{}: {e}", dir.display()))),
        };
        let least_end = match &found {
            StoredPositions::Cursors(cursors) => cursors.values().copied().max().unwrap_or(0),
            StoredPositions::Nothing => 0,
        };
        let bodies = BodyLog::open(env.clone(), dir, least_end)?;
        Ok(Self {
            env,
            dir: dir.to_owned(),
            bodies,
            message_bytes_max,
            targets: Mutex::default(),
            found: Mutex::new(Some(found)),
            stored: Mutex::default(),
            stopping: watch::Sender::new(false),
            taken: Arc::default(),
            cursors_failed: Counter::default(),
        })
    }

    /// Applies a configuration. An existing target continues at its position, a new one begins with
    /// the next body, and a removed one is dropped with its queue. Must be called inside a tokio
    /// runtime; the keys must be distinct.
    pub fn apply(&self, wanted: Vec<TargetSettings>) {
        let mut targets = lock(&self.targets);
        let found = lock(&self.found).take();
        let mut old = std::mem::take(&mut *targets);
        for settings in wanted {
            let working = match old.remove(&settings.key) {
                Some(working) if working.target.label == settings.label => {
                    working.settings.send_replace(Arc::new(settings.clone()));
                    working
                }
                Some(renamed) => {
                    renamed.abort();
                    self.start(&settings, renamed.target.cursor())
                }
                None => self.start(&settings, self.first_cursor(&settings.key, found.as_ref())),
            };
            targets.insert(settings.key, working);
        }
        for gone in old.into_values() {
            gone.abort();
            let bytes = self.bodies.end() - gone.target.cursor();
            let label = &gone.target.label;
            info!(
                to = label,
                bytes, "target removed, with the bodies queued for it"
            );
        }
        if targets.is_empty() && self.bodies.bytes() > 0 {
            let bytes = self.bodies.bytes();
            info!(bytes, "no targets left: removing all queued bodies");
        }
    }

    /// Returns the current targets and their keys, in the order of the keys.
    pub fn targets(&self) -> Vec<(String, Arc<DeliveryTarget>)> {
        let targets = lock(&self.targets);
        let each =
            |(key, working): (&String, &RunningTarget)| (key.clone(), working.target.clone());
        targets.iter().map(each).collect()
    }

    /// Returns whether a file with this name belongs to the log of bodies and holds queued data.
    pub fn is_of_queue(name: &Path) -> bool {
        bodies::is_segment(name)
    }

    /// Returns the number of bytes that are queued for `target`.
    pub fn waiting_bytes(&self, target: &DeliveryTarget) -> u64 {
        self.bodies.end().saturating_sub(target.cursor())
    }

    /// Returns the number of bodies that could not be written to disk.
    pub fn refused_bodies(&self) -> u64 {
        self.taken.refused.get()
    }

    /// Returns the position at which a target that is not running begins: its stored one, or an end
    /// of the log.
    fn first_cursor(&self, key: &str, found: Option<&StoredPositions>) -> u64 {
        let (start, end) = (self.bodies.start(), self.bodies.end());
        let cursor = match found {
            None => end,
            Some(StoredPositions::Nothing) => start,
            Some(StoredPositions::Cursors(cursors)) => cursors.get(key).copied().unwrap_or(end),
        };
        cursor.clamp(start, end)
    }

    fn start(&self, settings: &TargetSettings, cursor: u64) -> RunningTarget {
        let target = Arc::new(DeliveryTarget::new(settings.label.clone(), cursor));
        let bytes = self.bodies.end() - cursor;
        info!(to = settings.label, bytes, "starting to send to target");
        let changes = watch::Sender::new(Arc::new(settings.clone()));
        let courier = Courier {
            target: target.clone(),
            bodies: self.bodies.clone(),
            env: self.env.clone(),
            message_bytes_max: self.message_bytes_max,
            settings: changes.subscribe(),
            stopping: self.stopping.subscribe(),
        };
        RunningTarget {
            target,
            settings: changes,
            task: Some(tokio::spawn(courier.run())),
        }
    }

    /// Makes a body durable. For a request of version 2.0, whose receivers report written samples,
    /// returns its counts if it can be decoded. Fails with
    /// [`firn_model::error::ErrorKind::Unavailable`] while the disk rejects writes.
    pub async fn store_body(
        &self,
        write: ReceivedWrite,
    ) -> Result<Option<WriteMessageCounts>, Error> {
        let counts = match filter::message_type(&write) {
            WriteMessageType::V1 => None,
            WriteMessageType::V2 => self.count(&write).await,
        };
        let (told, outcome) = oneshot::channel();
        self.append(write, move |outcome| {
            // If the sender has disconnected, the body is forwarded nevertheless.
            let _ = told.send(outcome);
        });
        match outcome.await {
            Ok(Ok(())) => Ok(counts),
            Ok(Err(why)) => Err(Error::unavailable(why)),
            Err(_) => Err(Error::unavailable(
                "the log of bodies has stopped: see the server's log",
            )),
        }
    }

    /// Makes a body durable, in the order of the calls, and passes the result to `done`. That is
    /// called on the thread of the log and must not block.
    pub fn append(
        &self,
        write: ReceivedWrite,
        done: impl FnOnce(Result<(), String>) + Send + 'static,
    ) {
        let bytes = write.body.len() as u64;
        let counted = self.taken.clone();
        let done = move |outcome: Result<(), String>| {
            match outcome {
                Ok(()) => {
                    counted.bodies.inc();
                    counted.bytes.add(bytes);
                }
                Err(_) => counted.refused.inc(),
            }
            done(outcome);
        };
        self.bodies.append(write, Box::new(done));
    }

    async fn count(&self, write: &ReceivedWrite) -> Option<WriteMessageCounts> {
        let (bytes_max, write) = (self.message_bytes_max, write.clone());
        let is_small = write.body.len() <= COUNT_HERE_BYTES_MAX;
        let count = move || {
            let message = filter::unpack(&write, bytes_max).ok()?;
            thinning::count_message(&message).ok()
        };
        if is_small {
            count()
        } else {
            // A panic of the task has already been logged.
            spawn_blocking(count).await.unwrap_or(None)
        }
    }

    /// Stores cursors and trims the log periodically. Runs until the future is dropped.
    pub async fn store_cursors_periodically(self: Arc<Self>) {
        let mut ticks = interval(CURSORS_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mirror = self.clone();
            // A panic of the task has already been logged; the next tick tries again.
            let _ = spawn_blocking(move || mirror.store_cursors()).await;
        }
    }

    /// Stores the cursors if they have moved, and trims the log. May block.
    pub fn store_cursors(&self) {
        let mut stored = lock(&self.stored);
        let end = self.bodies.end();
        let cursors: Cursors = {
            let targets = lock(&self.targets);
            if lock(&self.found).is_some() {
                // Before the first configuration, it is unknown which targets need the bodies.
                return;
            }
            let now = self.env.clock.monotonic();
            let cursor = |(key, working): (&String, &RunningTarget)| {
                working.target.keep_pace(now, end);
                (key.clone(), working.target.cursor())
            };
            targets.iter().map(cursor).collect()
        };
        if stored.as_ref() != Some(&cursors) {
            match cursors::save(&*self.env.disk, &self.dir, &cursors) {
                Ok(()) => *stored = Some(cursors.clone()),
                Err(e) => {
                    self.cursors_failed.inc();
                    tracing::debug!(error = %e, "failed to store cursors");
                }
            }
        }
        // The log is trimmed even if cursors could not be stored, because lack of space may be the
        // reason. A cursor before the start of the log is moved to its start after a restart.
        let trimmed = match cursors.values().copied().min() {
            Some(needed) => self.bodies.trim(needed),
            // No target needs any of the bodies, and a new one begins after them.
            None => self.bodies.clear(end),
        };
        if let Err(e) = trimmed {
            warn!(error = %e, "failed to remove delivered bodies");
        }
    }

    /// Stops all targets: waits some seconds for running attempts and stores the cursors.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut tasks: Vec<JoinHandle<()>> = {
            let mut targets = lock(&self.targets);
            let tasks = targets.values_mut().map(|one| one.task.take());
            tasks.flatten().collect()
        };
        let ending = async {
            for task in &mut tasks {
                // A panic of the task has already been logged.
                let _ = task.await;
            }
        };
        if timeout(STOP_GRACE, ending).await.is_err() {
            warn!("requests cut off at shutdown: their bodies are sent again after the next start");
        }
        tasks.iter().for_each(JoinHandle::abort);
        self.store_cursors();
    }
}
