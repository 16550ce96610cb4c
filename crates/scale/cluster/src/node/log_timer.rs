//! One thread for the timers of all logs of a node.

use crate::engine::BucketLog;
use firn_model::sync::lock;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The longest pause of the thread, which notices its end after it.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A thread that calls [`BucketLog::run_timers`] of some logs until it is dropped.
pub(super) struct LogTimer {
    logs: Arc<Mutex<Vec<BucketLog>>>,
    is_stopped: Arc<AtomicBool>,
}

impl LogTimer {
    /// Starts the thread. It runs when a segment is due, and ten times per flush interval while
    /// anything else may be due, which is then at most a tenth of the interval too late.
    pub(super) fn start(flush_interval: Duration) -> io::Result<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let logs: Arc<Mutex<Vec<BucketLog>>> = Arc::default();
        let (timed, stopped) = (logs.clone(), is_stopped.clone());
        let pause = flush_interval / 10;
        let pause = pause.clamp(Duration::from_millis(5), Duration::from_millis(100));
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                let logs = lock(&timed).clone();
                logs.iter().for_each(BucketLog::run_timers);
                let pauses = logs.iter().map(|log| log.timer_pause(pause));
                std::thread::sleep(pauses.min().unwrap_or(flush_interval).min(PAUSE_MAX));
            }
        };
        let thread = std::thread::Builder::new().name("firn-log-timer".to_owned());
        thread.spawn(run)?;
        Ok(Self { logs, is_stopped })
    }

    /// Creates a timer whose logs the test runs.
    #[cfg(test)]
    pub(super) fn without_thread() -> Self {
        Self {
            logs: Arc::default(),
            is_stopped: Arc::default(),
        }
    }

    /// Adds a log, and drops those that have ended.
    pub(super) fn add(&self, log: &BucketLog) {
        let mut logs = lock(&self.logs);
        logs.retain(|log| log.ended().is_none());
        logs.push(log.clone());
    }
}

impl Drop for LogTimer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}
