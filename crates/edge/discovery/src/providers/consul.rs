//! Discovery of service instances in Consul, watched with blocking queries.
//!
//! ```text
//! agent: datacenter -> catalog: services -> one watch per service: its instances
//! ```
//!
//! The behaviour follows upstream's `discovery/consul` and Consul's API: request parameters,
//! responses whose index did not change, and the labels of an instance.

mod instance;
mod settings;
#[cfg(test)]
mod tests;

pub(super) use settings::PROVIDER;
pub use settings::{ConsulSettings, ConsulToken};

use crate::api::{ApiClient, ApiResponse, invalid_response_error, parse_header_value};
use crate::combined_lists::{TIMING, WatchTiming, WatchUpdate, publish_combined};
use crate::discover::Discover;
use crate::provider::{DiscoveryMechanism, DiscoveryStarter, DiscoveryTask};
use crate::published::PublishedTargets;
use firn_http_client::form_encode;
use firn_model::error::Error;
use hyper::HeaderMap;
use instance::{ConsulInstance, ConsulServiceContext};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tracing::warn;

/// Maximum time for which Consul may block a query while nothing changes.
const WATCH: Duration = Duration::from_secs(120);

/// Additional time for the response of a blocking query.
const GRACE: Duration = Duration::from_secs(15);

/// Capacity of the channel from the watches to the assembled target list.
const NEWS_MAX: usize = 64;

const INDEX: &str = "x-consul-index";
const TOKEN: &str = "x-consul-token";

/// Discovery that watches the services of a Consul datacenter and publishes their instances.
pub(super) struct ConsulDiscovery {
    shared: Arc<ConsulClient>,
    to: Arc<PublishedTargets>,
}

struct ConsulClient {
    settings: ConsulSettings,
    base: String,
    api: ApiClient,
    timing: WatchTiming,
}

#[derive(Deserialize)]
struct ConsulAgent {
    #[serde(rename = "Config")]
    config: ConsulAgentConfig,
}

#[derive(Deserialize)]
struct ConsulAgentConfig {
    #[serde(rename = "Datacenter")]
    datacenter: String,
}

/// Services of the catalog by name, each with its tags, which can be null.
type Catalog = BTreeMap<String, Option<Vec<String>>>;

impl ConsulDiscovery {
    pub(super) fn new(
        settings: &ConsulSettings,
        bytes_max: u64,
        to: Arc<PublishedTargets>,
    ) -> Self {
        Self::with_timing(settings, bytes_max, to, TIMING)
    }

    fn with_timing(
        s: &ConsulSettings,
        bytes_max: u64,
        to: Arc<PublishedTargets>,
        timing: WatchTiming,
    ) -> Self {
        Self {
            shared: Arc::new(ConsulClient {
                base: build_base_url(s),
                api: ApiClient::new(&s.client, bytes_max),
                settings: s.clone(),
                timing,
            }),
            to,
        }
    }
}

impl DiscoveryMechanism for ConsulSettings {
    fn mechanism(&self) -> &'static str {
        "consul"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        let to = starter.to.clone();
        starter.watch(ConsulDiscovery::new(self, starter.bytes_max, to))
    }
}

impl Discover for ConsulDiscovery {
    async fn run(self, to: Arc<PublishedTargets>) {
        let (sender, receiver) = channel(NEWS_MAX);
        let timing = self.shared.timing;
        tokio::join!(
            self.watch_services(sender),
            publish_combined(receiver, to, timing)
        );
    }
}

impl ConsulDiscovery {
    async fn watch_services(self, news: Sender<WatchUpdate>) {
        let datacenter = self.find_datacenter().await;
        let s = &self.shared.settings;
        let mut watches = JoinSet::new();
        let start = |name: &str, watches: &mut JoinSet<()>| {
            let service = ConsulServiceWatch {
                name: name.to_owned(),
                datacenter: datacenter.clone(),
                shared: self.shared.clone(),
                to: self.to.clone(),
            };
            watches.spawn(service.watch_instances(news.clone()))
        };
        if !s.services.is_empty() && s.tags.is_empty() && s.filter.is_empty() {
            // The config names all services, so no catalog query is necessary.
            let names: BTreeSet<String> = s.services.iter().cloned().collect();
            // Must precede the watches, because groups of an unlisted service are dropped.
            let _ = news.send(WatchUpdate::Sources(names.clone())).await;
            for name in &names {
                start(name, &mut watches);
            }
            while watches.join_next().await.is_some() {}
            return;
        }
        let mut running: BTreeMap<String, AbortHandle> = BTreeMap::new();
        let mut index = 0;
        let mut pace = interval_at(Instant::now() + s.refresh, s.refresh);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            match self.shared.query_catalog(index).await {
                Ok((newer, catalog)) if newer != index => {
                    index = newer;
                    running.retain(|name, watch| {
                        let stays = catalog.contains_key(name);
                        if !stays {
                            watch.abort();
                        }
                        stays
                    });
                    let wanted = catalog
                        .iter()
                        .filter(|(name, tags)| s.selects_service(name, tags));
                    let wanted: Vec<&String> = wanted.map(|(name, _)| name).collect();
                    let names = wanted.iter().copied().chain(running.keys()).cloned();
                    let _ = news.send(WatchUpdate::Sources(names.collect())).await;
                    for name in wanted {
                        if !running.contains_key(name) {
                            running.insert(name.clone(), start(name, &mut watches));
                        }
                    }
                    while watches.try_join_next().is_some() {}
                }
                // The blocking query timed out without a change.
                Ok(_) => {}
                Err(e) => self.shared.report_failure("services", &e, &self.to).await,
            }
            pace.tick().await;
        }
    }

    /// Returns the datacenter from the settings, or requests it from the agent until the agent
    /// responds.
    async fn find_datacenter(&self) -> String {
        if !self.shared.settings.datacenter.is_empty() {
            return self.shared.settings.datacenter.clone();
        }
        loop {
            let url = format!("{}/v1/agent/self", self.shared.base);
            match self.shared.send_query::<ConsulAgent>(url).await {
                Ok((_, agent)) => return agent.config.datacenter,
                Err(e) => self.shared.report_failure("datacenter", &e, &self.to).await,
            }
        }
    }
}

impl ConsulSettings {
    fn selects_service(&self, name: &str, tags: &Option<Vec<String>>) -> bool {
        let tags = tags.as_deref().unwrap_or_default();
        (self.services.is_empty() || self.services.iter().any(|service| service == name))
            && self.tags.iter().all(|tag| tags.contains(tag))
    }
}

impl ConsulClient {
    /// Queries the services in the catalog. Blocks while the catalog has no index newer than
    /// `index`; returns the new index and the services.
    async fn query_catalog(&self, index: u64) -> Result<(u64, Catalog), Error> {
        let query = self.build_query(index, &self.settings.filter, &[]);
        let url = format!("{}/v1/catalog/services?{query}", self.base);
        self.get_indexed(url).await
    }

    /// Returns the parameters of a query that Consul blocks until there is data newer than `index`.
    /// An index of zero does not block.
    fn build_query(&self, index: u64, filter: &str, more: &[(&str, &str)]) -> String {
        let s = &self.settings;
        let wait = format!("{}ms", WATCH.as_millis());
        let index = match index {
            0 => String::new(),
            index => index.to_string(),
        };
        let mut pairs = vec![
            ("dc", s.datacenter.as_str()),
            ("ns", &s.namespace),
            ("partition", &s.partition),
            ("index", &index),
            ("wait", &wait),
            ("filter", filter),
        ];
        pairs.retain(|(_, value)| !value.is_empty());
        pairs.extend(more);
        let mut parts: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}={}", form_encode(value)))
            .collect();
        if s.allow_stale {
            parts.push("stale=".into());
        }
        for (key, value) in &s.node_meta {
            let pair = form_encode(&format!("{key}:{value}"));
            parts.push(format!("node-meta={pair}"));
        }
        parts.join("&")
    }

    async fn get_indexed<T>(&self, url: String) -> Result<(u64, T), Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let (index, value) = self.send_query(url).await?;
        match index {
            Some(index) => Ok((index, value)),
            None => Err(invalid_response_error("the response has no X-Consul-Index")),
        }
    }

    async fn send_query<T>(&self, url: String) -> Result<(Option<u64>, T), Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let mut headers = HeaderMap::new();
        let ConsulToken(token) = &self.settings.token;
        if !token.is_empty() {
            headers.insert(TOKEN, parse_header_value(token)?);
        }
        let asked = timeout(WATCH + GRACE, self.api.get(&url, &headers)).await;
        let answer: ApiResponse = asked
            .map_err(|_| invalid_response_error("no answer"))??
            .require_success()?;
        let index = answer.header(INDEX).parse().ok();
        Ok((index, answer.decode_json().await?))
    }

    async fn report_failure(&self, what: &str, error: &Error, to: &PublishedTargets) {
        to.failures.inc();
        warn!(server = self.base, what, error = %error, "Consul request failed");
        sleep(self.timing.retry).await;
    }
}

/// Returns the base URL of the API. A scheme of `https` or a path in `server` takes precedence over
/// the other keys.
fn build_base_url(settings: &ConsulSettings) -> String {
    let (scheme, rest) = match settings.server.split_once("://") {
        Some(("https", rest)) => ("https", rest),
        Some((_, rest)) => (settings.scheme.as_str(), rest),
        None => (settings.scheme.as_str(), settings.server.as_str()),
    };
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) => (host, path.trim_end_matches('/')),
        None => (rest, ""),
    };
    let prefix = settings.path_prefix.trim_matches('/');
    let path = if path.is_empty() { prefix } else { path };
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{host}{slash}{path}")
}

/// Watch of one service, which reports its instances whenever they change.
struct ConsulServiceWatch {
    name: String,
    datacenter: String,
    shared: Arc<ConsulClient>,
    to: Arc<PublishedTargets>,
}

impl ConsulServiceWatch {
    async fn watch_instances(self, news: Sender<WatchUpdate>) {
        let s = &self.shared.settings;
        let tags: Vec<(&str, &str)> = s.tags.iter().map(|tag| ("tag", tag.as_str())).collect();
        let tagging = ConsulServiceContext {
            service: &self.name,
            datacenter: &self.datacenter,
            separator: &s.tag_separator,
        };
        let mut index = 0;
        let mut pace = interval_at(Instant::now() + s.refresh, s.refresh);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let query = self.shared.build_query(index, &s.health_filter, &tags);
            let name = form_encode(&self.name).replace('+', "%20");
            let url = format!("{}/v1/health/service/{name}?{query}", self.shared.base);
            match self.shared.get_indexed::<Vec<ConsulInstance>>(url).await {
                Ok((newer, instances)) if newer != index => {
                    index = newer;
                    let groups = instances
                        .iter()
                        .map(|one| one.build_target(&tagging))
                        .collect();
                    let sent = news
                        .send(WatchUpdate::Groups(self.name.clone(), groups))
                        .await;
                    if sent.is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(e) => self.shared.report_failure(&self.name, &e, &self.to).await,
            }
            pace.tick().await;
        }
    }
}
