//! What a discovery is: something that publishes lists until it is dropped, or that is asked for
//! its list again and again.
//!
//! Invariant: a request that fails leaves the list that was published last as it is.

use super::group::Group;
use super::published::Published;
use firn_model::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::warn;

/// A way to find targets.
pub(super) trait Discover: Send + 'static {
    /// Publishes lists until the future is dropped.
    fn run(self, to: Arc<Published>) -> impl Future<Output = ()> + Send;
}

/// A source that is asked for its whole list.
pub(super) trait Refresh: Send + 'static {
    /// From one question to the next.
    fn interval(&self) -> Duration;

    /// How long one may take.
    fn deadline(&self) -> Duration {
        self.interval()
    }

    /// What is asked, for the log.
    fn name(&self) -> String;

    /// The list as it is now.
    fn refresh(&mut self) -> impl Future<Output = Result<Vec<Group>, Error>> + Send;
}

/// Asks a source at its interval.
#[derive(Debug)]
pub(super) struct Refreshed<R>(pub(super) R);

/// An interval of zero is one of this: Prometheus takes such a config, and does not start with it.
const INTERVAL_OF_ZERO: Duration = Duration::from_secs(1);

impl<R: Refresh> Discover for Refreshed<R> {
    async fn run(mut self, to: Arc<Published>) {
        let every = match self.0.interval() {
            Duration::ZERO => INTERVAL_OF_ZERO,
            every => every,
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.once(&to).await;
        }
    }
}

impl<R: Refresh> Refreshed<R> {
    /// Asks once, and publishes the list if there is one.
    pub(super) async fn once(&mut self, to: &Published) {
        let source = &mut self.0;
        let begin = Instant::now();
        let answer = timeout(source.deadline(), source.refresh()).await;
        to.refreshes.observe(begin.elapsed());
        match answer {
            Ok(Ok(groups)) => {
                to.publish(groups);
                return;
            }
            Ok(Err(e)) => {
                warn!(source = source.name(), error = %e, "cannot refresh targets");
            }
            Err(_) => {
                warn!(source = source.name(), "refresh of targets timed out");
            }
        }
        to.failures.inc();
    }
}
