//! Applies the scrape configuration: the jobs of the config or, without a config file, Firn itself.

use crate::process::host;
use crate::settings::config::Config;
use firn_http_client::Body;
use firn_ingest::scrape::{Fetch, Fetching, Scraping};
use firn_model::trace::Span;
use firn_server::App;
use firn_wire::exposition::CONTENT_TYPE;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Fetches Firn's own `/metrics` response in the process, without a socket, for a server without
/// config.
struct Itself(App);

impl Fetch for Itself {
    fn fetch<'f>(&'f self, _: &'f Span) -> Fetching<'f> {
        Box::pin(async {
            Ok(Body {
                bytes: self.0.exposition(false).await?,
                content_type: CONTENT_TYPE.to_owned(),
                memory: None,
            })
        })
    }
}

/// Starts scraping `app` as the only target, with the address `localhost:port` in its labels.
pub fn start_itself(scraping: &Scraping, app: &App, port: u16) {
    let address = format!("localhost:{port}");
    scraping.scrape_itself(&address, Arc::new(Itself(app.clone())));
}

/// Applies the scrape jobs of `config`: starts new ones, and stops those that were removed.
pub fn apply(scraping: &Scraping, config: &Config) {
    scraping.apply(&config.jobs, seed(config));
}

/// Returns the seed of scrape offsets. It differs between servers that scrape the same targets: as
/// in Prometheus, it is a hash of the host name and the external labels.
fn seed(config: &Config) -> u64 {
    let mut hasher = DefaultHasher::new();
    (host::name(), config.external_labels.as_bytes()).hash(&mut hasher);
    hasher.finish()
}
