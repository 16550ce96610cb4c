//! One thread for the timers of all logs of a node.

use crate::engine::BucketLog;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A thread that calls [`BucketLog::run_timers`] of some logs until it is dropped.
pub(super) struct LogTimer(Arc<AtomicBool>);

impl LogTimer {
    /// Starts the thread. It runs ten times per flush interval, so that a segment is created at most
    /// a tenth of the interval too late.
    pub(super) fn start(logs: &[BucketLog], flush_interval: Duration) -> io::Result<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (logs, stopped) = (logs.to_vec(), is_stopped.clone());
        let pause = flush_interval / 10;
        let pause = pause.clamp(Duration::from_millis(5), Duration::from_millis(100));
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                logs.iter().for_each(BucketLog::run_timers);
                std::thread::sleep(pause);
            }
        };
        let thread = std::thread::Builder::new().name("firn-log-timer".to_owned());
        thread.spawn(run)?;
        Ok(Self(is_stopped))
    }
}

impl Drop for LogTimer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
