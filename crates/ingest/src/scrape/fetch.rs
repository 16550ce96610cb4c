//! The interface for fetching the metrics of a target.

use super::settings::JobSettings;
use super::target::Target;
use firn_http_client::Body;
use firn_model::error::Error;
use firn_model::trace::Span;
use std::pin::Pin;
use std::sync::Arc;

/// The future of a running fetch, which resolves to the body, or to the error of the scrape.
pub type Fetching<'f> = Pin<Box<dyn Future<Output = Result<Body, Error>> + Send + 'f>>;

/// Fetches the metrics of a target: over HTTP, or from this process itself. Implementations limit
/// the size of the body. The caller limits the time, by dropping the future.
pub trait Fetch: Send + Sync {
    /// Starts one fetch, whose span becomes a child of `scrape`.
    fn fetch<'f>(&'f self, scrape: &'f Span) -> Fetching<'f>;
}

/// Creates fetchers for the targets of one job, which may share connections.
pub(super) trait MakeFetch: Send + Sync {
    fn make(&self, job: &JobSettings, target: &Target) -> Arc<dyn Fetch>;
}

/// Uses the same fetcher for every target, for the scrape of this process itself.
pub(super) struct Always(pub(super) Arc<dyn Fetch>);

impl MakeFetch for Always {
    fn make(&self, _: &JobSettings, _: &Target) -> Arc<dyn Fetch> {
        self.0.clone()
    }
}
