//! What a discovery is: something that publishes lists until it is dropped, or that is asked for
//! its list again and again.
//!
//! Invariant: a request that fails leaves the list that was published last as it is.

use super::group::Group;
use super::published::Published;
use firn_model::error::Error;
use std::future::Future;
use std::pin::Pin;
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

/// [`Refresh`] as a trait object. One loop serves all sources: a copy of it, and of the runtime's
/// task, for each of them took a tenth of the build of this crate.
trait RefreshObject: Send {
    fn interval(&self) -> Duration;
    fn deadline(&self) -> Duration;
    fn name(&self) -> String;
    fn refresh(&mut self) -> BoxFuture<'_, Result<Vec<Group>, Error>>;
}

impl<R: Refresh> RefreshObject for R {
    fn interval(&self) -> Duration {
        Refresh::interval(self)
    }

    fn deadline(&self) -> Duration {
        Refresh::deadline(self)
    }

    fn name(&self) -> String {
        Refresh::name(self)
    }

    fn refresh(&mut self) -> BoxFuture<'_, Result<Vec<Group>, Error>> {
        Box::pin(Refresh::refresh(self))
    }
}

/// A future behind a pointer, so that tasks of all kinds have one type.
pub(super) type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Refreshes a source at its interval.
pub(super) struct Refreshed(Box<dyn RefreshObject>);

/// An interval of zero is one of this: Prometheus takes such a config, and does not start with it.
const INTERVAL_OF_ZERO: Duration = Duration::from_secs(1);

impl Discover for Refreshed {
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

impl Refreshed {
    pub(super) fn new(source: impl Refresh) -> Self {
        Self(Box::new(source))
    }

    /// Asks once, and publishes the list if there is one.
    pub(super) async fn once(&mut self, to: &Published) {
        let source = self.0.as_mut();
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
