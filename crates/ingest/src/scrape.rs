//! Scraping: fetching what a target exposes, at fixed times, into the store.

use firn_model::error::Error;
use std::future::Future;
use std::pin::Pin;

/// What a target answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The exposition.
    pub body: Vec<u8>,
}

/// A fetch under way.
pub type Fetching<'f> = Pin<Box<dyn Future<Output = Result<Fetched, Error>> + Send + 'f>>;

/// Gets what a target exposes: over HTTP, or from this process itself. Timeouts and cancellation are
/// the caller's, who drops the future.
pub trait Fetch: Send + Sync {
    /// Asks once.
    fn fetch(&self) -> Fetching<'_>;
}
