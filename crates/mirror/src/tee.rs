//! `firn mirror`: takes remote write in and passes each body on to every target.
//!
//! ```text
//! body -> bodies (one log on disk, synced) -> 204
//!           |- cursor of a target -> its courier -> filter -> POST, again until it is answered
//!           |- ..
//! ```
//!
//! One log for all targets: a body is written once, however many targets there are, and what waits
//! for a target is the stretch from its cursor to the end. A target's bound moves its own cursor,
//! so a dead one costs the others nothing but disk space. Cursors are stored twice a second:
//! after a kill a target may get again, in order, what it got since.
//!
//! Invariant: what [`Mirror::take`] acknowledged is on the disk, and reaches each target in the
//! order of acknowledgement or is counted as lost for a reason. HTTP is left to the caller: bodies
//! come in by [`Mirror::take`] and go out by [`Deliver`].

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

pub use bodies::{PASSED_HEADERS, Write};
pub use filter::Filter;
pub use firn_wire::thinning::Counts;
pub use target::{
    Deliver, Delivering, Parcel, Posting, Prepare, Request, Tally, Target, TargetSettings, Wanted,
};
pub use verdict::{Answer, Manner};

use bodies::Bodies;
use courier::Courier;
use cursors::{Cursors, CursorsError};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::metrics::Counter;
use firn_model::sync::lock;
use firn_wire::thinning::{self, Message};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

/// How often cursors are stored: what a kill sends twice is half of the second that is promised.
const CURSORS_PERIOD: Duration = Duration::from_millis(500);

/// How long attempts under way may take to end when the process does. An orchestrator kills after
/// 30 s, and connections of senders have ten of them.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Counting what a body holds goes to a thread that may wait beyond so many bytes: below it takes
/// less than the way there.
const COUNT_HERE_BYTES_MAX: usize = 256 << 10;

/// The log, the targets and their couriers.
pub struct Mirror {
    env: Env,
    dir: PathBuf,
    bodies: Bodies,
    message_bytes_max: usize,
    /// By key.
    targets: Mutex<BTreeMap<String, Working>>,
    /// What the process before stored of its targets, until the first configuration.
    found: Mutex<Option<Found>>,
    /// Held while cursors are stored, and what this process stored last.
    stored: Mutex<Option<Cursors>>,
    stopping: watch::Sender<bool>,
    taken: Arc<Taken>,
    cursors_failed: Counter,
}

/// What became of the bodies that came in.
#[derive(Debug, Default)]
struct Taken {
    bodies: Counter,
    bytes: Counter,
    refused: Counter,
}

/// A target and its task.
struct Working {
    target: Arc<Target>,
    settings: watch::Sender<Arc<TargetSettings>>,
    /// None once the process ends.
    task: Option<JoinHandle<()>>,
}

impl Working {
    fn abort(&self) {
        self.task.iter().for_each(JoinHandle::abort);
    }
}

/// Where targets begin that are not at work yet.
enum Found {
    /// Where they were; one that is not named is new.
    Cursors(Cursors),
    /// Nothing is known of any: all begin with the oldest body.
    Nothing,
}

impl Mirror {
    /// Opens the log in `dir`, which is created if it is not there. A message may have
    /// `message_bytes_max` bytes once it is unpacked.
    pub fn open(env: Env, dir: &Path, message_bytes_max: usize) -> Result<Self, Error> {
        let found = match cursors::load(&*env.disk, dir) {
            Ok(Some(cursors)) => Found::Cursors(cursors),
            Ok(None) => Found::Nothing,
            Err(e @ CursorsError::Damaged(_)) => {
                warn!(error = %e, "delivery positions are lost: sending all stored bodies again");
                Found::Nothing
            }
            Err(e) => return Err(Error::unavailable(format!("{}: {e}", dir.display()))),
        };
        let least_end = match &found {
            Found::Cursors(cursors) => cursors.values().copied().max().unwrap_or(0),
            Found::Nothing => 0,
        };
        let bodies = Bodies::open(env.clone(), dir, least_end)?;
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

    /// Takes over a configuration: a target that stays goes on where it is, a new one begins with
    /// the next body, and one that is gone is forgotten with what waits for it. Must be called
    /// inside a tokio runtime; keys differ.
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

    /// The targets at work, by their keys.
    pub fn targets(&self) -> Vec<(String, Arc<Target>)> {
        let targets = lock(&self.targets);
        let each = |(key, working): (&String, &Working)| (key.clone(), working.target.clone());
        targets.iter().map(each).collect()
    }

    /// Whether a file of this name holds bodies.
    pub fn is_of_queue(name: &Path) -> bool {
        bodies::is_segment(name)
    }

    /// Bytes that wait for `target`.
    pub fn waiting_bytes(&self, target: &Target) -> u64 {
        self.bodies.end().saturating_sub(target.cursor())
    }

    /// Bodies that the disk did not take.
    pub fn refused_bodies(&self) -> u64 {
        self.taken.refused.get()
    }

    /// Where a target begins that was not at work.
    fn first_cursor(&self, key: &str, found: Option<&Found>) -> u64 {
        let (start, end) = (self.bodies.start(), self.bodies.end());
        let cursor = match found {
            None => end,
            Some(Found::Nothing) => start,
            Some(Found::Cursors(cursors)) => cursors.get(key).copied().unwrap_or(end),
        };
        cursor.clamp(start, end)
    }

    fn start(&self, settings: &TargetSettings, cursor: u64) -> Working {
        let target = Arc::new(Target::new(settings.label.clone(), cursor));
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
        Working {
            target,
            settings: changes,
            task: Some(tokio::spawn(courier.run())),
        }
    }

    /// Makes a body durable. Says what it holds if it is of 2.0, whose receivers report that, and
    /// can be read. Fails with [`firn_model::error::ErrorKind::Unavailable`] while the disk takes
    /// nothing.
    pub async fn take(&self, write: Write) -> Result<Option<Counts>, Error> {
        let counts = match filter::message_of(&write) {
            Message::V1 => None,
            Message::V2 => self.count(&write).await,
        };
        let (told, outcome) = oneshot::channel();
        self.append(write, move |outcome| {
            // The sender may have gone; the body is passed on all the same.
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

    /// Makes a body durable, in the order of the calls, and tells `done` or why it cannot be, on a
    /// thread that must not be held up.
    pub fn append(&self, write: Write, done: impl FnOnce(Result<(), String>) + Send + 'static) {
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

    async fn count(&self, write: &Write) -> Option<Counts> {
        let (bytes_max, write) = (self.message_bytes_max, write.clone());
        let is_small = write.body.len() <= COUNT_HERE_BYTES_MAX;
        let count = move || {
            let message = filter::unpack(&write, bytes_max).ok()?;
            thinning::count(&message).ok()
        };
        match is_small {
            true => count(),
            // A task that failed has said so.
            false => spawn_blocking(count).await.unwrap_or(None),
        }
    }

    /// Stores cursors and removes what no target needs any more, until it is dropped.
    pub async fn keep(self: Arc<Self>) {
        let mut ticks = interval(CURSORS_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mirror = self.clone();
            // A task that failed has said so; the next one tries again.
            let _ = spawn_blocking(move || mirror.store_cursors()).await;
        }
    }

    /// Stores cursors that moved, and trims the log. May block.
    pub fn store_cursors(&self) {
        let mut stored = lock(&self.stored);
        let end = self.bodies.end();
        let cursors: Cursors = {
            let targets = lock(&self.targets);
            if lock(&self.found).is_some() {
                // No configuration yet: whose bodies these are is not known.
                return;
            }
            let now = self.env.clock.monotonic();
            let cursor = |(key, working): (&String, &Working)| {
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
        // Also where cursors could not be stored: that may be for want of the very space. A cursor
        // that points before the log begins is moved to its beginning at the next start.
        let trimmed = match cursors.values().copied().min() {
            Some(needed) => self.bodies.trim(needed),
            // No target is left that needs any of them, and a new one begins behind them.
            None => self.bodies.clear(end),
        };
        if let Err(e) = trimmed {
            warn!(error = %e, "failed to remove delivered bodies");
        }
    }

    /// Lets attempts under way end, for some seconds, and stores cursors.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut tasks: Vec<JoinHandle<()>> = {
            let mut targets = lock(&self.targets);
            let tasks = targets.values_mut().map(|one| one.task.take());
            tasks.flatten().collect()
        };
        let ending = async {
            for task in &mut tasks {
                // One that panicked has said so.
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
