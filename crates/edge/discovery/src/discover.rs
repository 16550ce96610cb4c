//! The two kinds of discovery: [`Discover`] publishes target lists until it is dropped, and
//! [`Refresh`] returns its current list whenever it is polled.
//!
//! Invariant: a failed refresh leaves the previously published list unchanged.

use super::group::TargetGroup;
use super::published::PublishedTargets;
use firn_model::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::warn;

/// A discovery mechanism that runs as a task and decides itself when to publish a list.
pub(super) trait Discover: Send + 'static {
    /// Publishes target lists to `to` until the future is dropped.
    fn run(self, to: Arc<PublishedTargets>) -> impl Future<Output = ()> + Send;
}

/// A source of targets that is polled for its complete list at an interval.
pub(super) trait Refresh: Send + 'static {
    /// Returns the time between the starts of two refreshes.
    fn interval(&self) -> Duration;

    /// Returns the timeout of one refresh; by default the same as the interval.
    fn deadline(&self) -> Duration {
        self.interval()
    }

    /// Returns the name of the source for log messages, usually its URL.
    fn name(&self) -> String;

    /// Returns the current list of targets. An error keeps the previously published list.
    fn refresh(&mut self) -> impl Future<Output = Result<Vec<TargetGroup>, Error>> + Send;
}

/// Object-safe form of [`Refresh`]. All sources share one loop: monomorphized copies of it and of
/// the runtime's task code took a tenth of the build time of this crate.
trait RefreshObject: Send {
    fn interval(&self) -> Duration;
    fn deadline(&self) -> Duration;
    fn name(&self) -> String;
    fn refresh(&mut self) -> BoxFuture<'_, Result<Vec<TargetGroup>, Error>>;
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

    fn refresh(&mut self) -> BoxFuture<'_, Result<Vec<TargetGroup>, Error>> {
        Box::pin(Refresh::refresh(self))
    }
}

/// A boxed future, so that the tasks of all sources have the same type.
pub(super) type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Adapter that turns a [`Refresh`] source into a [`Discover`] task.
pub(super) struct RefreshTask(Box<dyn RefreshObject>);

/// Interval used instead of zero, which tokio's timer does not accept. Prometheus accepts a config
/// with an interval of zero, but fails to start with it.
const INTERVAL_OF_ZERO: Duration = Duration::from_secs(1);

impl Discover for RefreshTask {
    async fn run(mut self, to: Arc<PublishedTargets>) {
        let every = match self.0.interval() {
            Duration::ZERO => INTERVAL_OF_ZERO,
            every => every,
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.refresh_once(&to).await;
        }
    }
}

impl RefreshTask {
    pub(super) fn new(source: impl Refresh) -> Self {
        Self(Box::new(source))
    }

    /// Refreshes the source once. Publishes the list on success; otherwise logs and counts the
    /// failure.
    pub(super) async fn refresh_once(&mut self, to: &PublishedTargets) {
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
