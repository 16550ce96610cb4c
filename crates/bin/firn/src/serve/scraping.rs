//! Applies the scrape configuration: the jobs of the config or, without a config file, Firn itself.

use crate::process::host;
use firn_config::config::Config;
use firn_http_client::DecodedBody;
use firn_model::trace::TraceSpan;
use firn_scrape::{Fetch, Fetching, ScrapeManager};
use firn_server::ServerApp;
use firn_wire::exposition::CONTENT_TYPE;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Fetches Firn's own `/metrics` response in the process, without a socket, for a server without
/// config.
struct SelfScrapeFetcher(ServerApp);

impl Fetch for SelfScrapeFetcher {
    fn start_fetch<'f>(&'f self, _: &'f TraceSpan) -> Fetching<'f> {
        Box::pin(async {
            Ok(DecodedBody {
                bytes: self.0.exposition(false).await?,
                content_type: CONTENT_TYPE.to_owned(),
                memory: None,
            })
        })
    }
}

/// Starts scraping `app` as the only target, with the label `instance`.
pub fn start_itself(scraping: &ScrapeManager, app: &ServerApp, instance: &str) {
    scraping.scrape_itself(instance, Arc::new(SelfScrapeFetcher(app.clone())));
}

/// Applies the scrape jobs of `config`: starts new ones, and stops those that were removed.
pub fn apply(scraping: &ScrapeManager, config: &Config) {
    scraping.apply_config(&config.jobs, seed(config));
}

/// Returns the seed of scrape offsets. It differs between servers that scrape the same targets: as
/// in Prometheus, it is a hash of the host name and the external labels.
fn seed(config: &Config) -> u64 {
    let mut hasher = DefaultHasher::new();
    (host::name(), config.external_labels.as_bytes()).hash(&mut hasher);
    hasher.finish()
}
