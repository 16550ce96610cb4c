//! One thread for the timers of all logs of a node.

use crate::engine::BucketLog;
use firn_model::sync::lock;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A thread that calls [`BucketLog::run_timers`] of some logs until it is dropped.
pub(super) struct LogTimer {
    logs: Arc<Mutex<Vec<BucketLog>>>,
    is_stopped: Arc<AtomicBool>,
}

impl LogTimer {
    /// Starts the thread. It runs ten times per flush interval, so that a segment is created at
    /// most a tenth of the interval too late.
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
                std::thread::sleep(pause);
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
