//! The interface for fetching the metrics of a target.

use super::settings::ScrapeJobSettings;
use firn_http_client::DecodedBody;
use firn_ingest::targets::ScrapeTarget;
use firn_model::error::Error;
use firn_model::trace::TraceSpan;
use std::pin::Pin;
use std::sync::Arc;

/// The future of a running fetch, which resolves to the body, or to the error of the scrape.
pub type Fetching<'f> = Pin<Box<dyn Future<Output = Result<DecodedBody, Error>> + Send + 'f>>;

/// Fetches the metrics of a target: over HTTP, or from this process itself. Implementations limit
/// the size of the body. The caller limits the time, by dropping the future.
pub trait Fetch: Send + Sync {
    /// Starts one fetch, whose span becomes a child of `scrape`.
    fn start_fetch<'f>(&'f self, scrape: &'f TraceSpan) -> Fetching<'f>;
}

/// Creates fetchers for the targets of one job, which may share connections.
pub(super) trait FetchFactory: Send + Sync {
    fn make_fetcher(&self, job: &ScrapeJobSettings, target: &ScrapeTarget) -> Arc<dyn Fetch>;
}

/// Uses the same fetcher for every target, for the scrape of this process itself.
pub(super) struct FixedFetchFactory(pub(super) Arc<dyn Fetch>);

impl FetchFactory for FixedFetchFactory {
    fn make_fetcher(&self, _: &ScrapeJobSettings, _: &ScrapeTarget) -> Arc<dyn Fetch> {
        self.0.clone()
    }
}
