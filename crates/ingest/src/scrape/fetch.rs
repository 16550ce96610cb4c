//! What fetches the exposition of a target.

use super::settings::JobSettings;
use super::target::Target;
use firn_http_client::Body;
use firn_model::error::Error;
use firn_model::trace::Span;
use std::pin::Pin;
use std::sync::Arc;

/// A fetch under way.
pub type Fetching<'f> = Pin<Box<dyn Future<Output = Result<Body, Error>> + Send + 'f>>;

/// Gets the exposition of a target: over HTTP, or from this process itself. It bounds the size of
/// what it returns. The caller bounds the time: it drops the future.
pub trait Fetch: Send + Sync {
    /// Asks once, which is a part of `scrape`.
    fn fetch<'f>(&'f self, scrape: &'f Span) -> Fetching<'f>;
}

/// Makes what fetches the targets of one job.
pub(super) trait MakeFetch: Send + Sync {
    fn make(&self, job: &JobSettings, target: &Target) -> Arc<dyn Fetch>;
}

/// Fetches every target by one fetch.
pub(super) struct Always(pub(super) Arc<dyn Fetch>);

impl MakeFetch for Always {
    fn make(&self, _: &JobSettings, _: &Target) -> Arc<dyn Fetch> {
        self.0.clone()
    }
}
