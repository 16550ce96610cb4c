//! Firn as its own target: the exposition is taken from the process, not over a socket.

use firn_ingest::Pipeline;
use firn_ingest::scrape::{Fetch, Fetching, Scraper, Target};
use firn_model::env::Env;
use firn_server::App;
use std::sync::Arc;

/// What `/metrics` would answer.
struct Itself(App);

impl Fetch for Itself {
    fn fetch(&self) -> Fetching<'_> {
        Box::pin(async { Ok(self.0.exposition()) })
    }
}

/// Starts scraping `app`, which listens on `port`.
pub fn start(app: &App, port: u16, pipeline: Arc<Pipeline>, env: &Env) -> Scraper {
    let target = Target::itself(&format!("localhost:{port}"));
    Scraper::start(
        target,
        Arc::new(Itself(app.clone())),
        pipeline,
        env.clock.clone(),
    )
}
