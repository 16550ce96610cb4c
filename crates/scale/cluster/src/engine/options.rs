//! The options of a log in a bucket.

use crate::log::LogCoreOptions;
use std::sync::Arc;
use std::time::Duration;

/// A clock that counts suspends of the machine: the time since a fixed moment.
pub type EngineClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Lets the time of a simulation pass, in place of a thread that waits. Called without a lock.
pub(crate) type SimulatedWait = Arc<dyn Fn() + Send + Sync>;

/// The options of a log in a bucket. [`BucketLogOptions::new`] returns the defaults.
#[derive(Clone)]
pub struct BucketLogOptions {
    /// The settings of the log core. The bound of its queue must not be lower than
    /// `queue_bytes_max`, since the engine rejects appends before they are encoded.
    pub core: Arc<LogCoreOptions>,
    /// The clock of all events.
    pub clock: EngineClock,
    /// Bytes of encoded records after which a unit ends: 64 MiB. A replay begins at a unit.
    pub unit_bytes: u64,
    /// Time after which a unit ends: ten minutes.
    pub unit_age: Duration,
    /// Memory of records that are not durable, in bytes, from which appends are rejected.
    pub queue_bytes_max: usize,
    /// Time after which a record that is not durable counts as an outage, although no request has
    /// failed.
    pub slow_after: Duration,
    /// Time of failed requests after which they count as an outage.
    pub failing_after: Duration,
    /// Bytes of replayed records that wait for the store, from which segments are held back.
    pub replay_bytes_max: usize,
    /// The longest wait of a thread for a signal, after which it looks at the clock.
    pub poll_interval: Duration,
    /// Maximum time for which a close waits for the bucket.
    pub close_timeout: Duration,
    /// Free space in bytes that the files of the store must leave on the disk.
    pub free_bytes_min: u64,
    /// Lets time pass where a thread would wait, for tests with one thread.
    #[cfg(test)]
    pub(crate) pass_time: Option<SimulatedWait>,
}

impl BucketLogOptions {
    /// Returns the default options of a log with these core settings.
    pub fn new(core: LogCoreOptions, clock: EngineClock) -> Self {
        Self {
            core: Arc::new(core),
            clock,
            unit_bytes: 64 << 20,
            unit_age: Duration::from_secs(600),
            queue_bytes_max: 64 << 20,
            slow_after: Duration::from_secs(5),
            failing_after: Duration::from_secs(1),
            replay_bytes_max: 64 << 20,
            poll_interval: Duration::from_millis(20),
            close_timeout: Duration::from_secs(30),
            free_bytes_min: 128 << 20,
            #[cfg(test)]
            pass_time: None,
        }
    }

    /// Returns the wait of a simulation, in which no thread may wait.
    #[cfg(test)]
    pub(super) fn simulated_wait(&self) -> Option<&SimulatedWait> {
        self.pass_time.as_ref()
    }

    /// Returns the wait of a simulation, which exists only in tests.
    #[cfg(not(test))]
    pub(super) fn simulated_wait(&self) -> Option<&SimulatedWait> {
        None
    }
}
