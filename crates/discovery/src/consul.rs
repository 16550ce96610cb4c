//! Targets from Consul: instances of services, watched with blocking queries.
//!
//! ```text
//! agent: which datacenter -> catalog: which services -> a watch for each: its instances
//! ```
//!
//! Facts are from upstream's `discovery/consul` and Consul's API: what is asked with which
//! parameters, what an answer with an index that is known means, how instances become targets.

mod instance;
#[cfg(test)]
mod tests;

use super::api::{Answer, Api, header_value, wrong};
use super::discover::Discover;
use super::parts::{News, TIMING, Timing, assemble};
use super::published::Published;
use firn_http_client::{HttpSettings, form_encode};
use firn_model::error::Error;
use hyper::HeaderMap;
use instance::{Instance, Tagging};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tracing::warn;

/// How long Consul may hold a query back while nothing changes.
const WATCH: Duration = Duration::from_secs(120);

/// How much longer than that an answer may take.
const GRACE: Duration = Duration::from_secs(15);

/// News on their way to the list.
const NEWS_MAX: usize = 64;

const INDEX: &str = "x-consul-index";
const TOKEN: &str = "x-consul-token";

/// One of `consul_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct ConsulSettings {
    /// `server`
    pub server: String,
    /// `scheme`
    pub scheme: String,
    /// `path_prefix`
    pub path_prefix: String,
    /// `token`
    pub token: Token,
    /// `datacenter`
    pub datacenter: String,
    /// `namespace`
    pub namespace: String,
    /// `partition`
    pub partition: String,
    /// `tag_separator`
    pub tag_separator: String,
    /// `allow_stale`
    pub allow_stale: bool,
    /// `services`; none is all.
    pub services: Vec<String>,
    /// `tags`
    pub tags: Vec<String>,
    /// `node_meta`
    pub node_meta: BTreeMap<String, String>,
    /// `filter`
    pub filter: String,
    /// `health_filter`
    pub health_filter: String,
    /// `refresh_interval`: from one query to the next, at least.
    pub refresh: Duration,
    /// How the agent is reached.
    pub client: HttpSettings,
}

/// A token of Consul's, which never shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(pub String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

/// Watches the services of a Consul.
pub(super) struct Watch {
    shared: Arc<Shared>,
    to: Arc<Published>,
}

struct Shared {
    settings: ConsulSettings,
    base: String,
    api: Api,
    timing: Timing,
}

#[derive(Deserialize)]
struct Agent {
    #[serde(rename = "Config")]
    config: AgentConfig,
}

#[derive(Deserialize)]
struct AgentConfig {
    #[serde(rename = "Datacenter")]
    datacenter: String,
}

/// Names of services and their tags.
type Catalog = BTreeMap<String, Option<Vec<String>>>;

impl Watch {
    pub(super) fn new(settings: &ConsulSettings, bytes_max: u64, to: Arc<Published>) -> Self {
        Self::paced(settings, bytes_max, to, TIMING)
    }

    fn paced(s: &ConsulSettings, bytes_max: u64, to: Arc<Published>, timing: Timing) -> Self {
        Self {
            shared: Arc::new(Shared {
                base: base(s),
                api: Api::new(&s.client, bytes_max),
                settings: s.clone(),
                timing,
            }),
            to,
        }
    }
}

impl Discover for Watch {
    async fn run(self, to: Arc<Published>) {
        let (sender, receiver) = channel(NEWS_MAX);
        let timing = self.shared.timing;
        tokio::join!(self.watch(sender), assemble(receiver, to, timing));
    }
}

impl Watch {
    async fn watch(self, news: Sender<News>) {
        let datacenter = self.datacenter().await;
        let s = &self.shared.settings;
        let mut watches = JoinSet::new();
        let start = |name: &str, watches: &mut JoinSet<()>| {
            let service = Service {
                name: name.to_owned(),
                datacenter: datacenter.clone(),
                shared: self.shared.clone(),
                to: self.to.clone(),
            };
            watches.spawn(service.watch(news.clone()))
        };
        if !s.services.is_empty() && s.tags.is_empty() && s.filter.is_empty() {
            // What there is to watch is known.
            let names: BTreeSet<String> = s.services.iter().cloned().collect();
            // Said before anyone watches: the groups of a service that is not known are dropped.
            let _ = news.send(News::Sources(names.clone())).await;
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
            match self.shared.catalog(index).await {
                Ok((newer, catalog)) if newer != index => {
                    index = newer;
                    running.retain(|name, watch| {
                        let stays = catalog.contains_key(name);
                        if !stays {
                            watch.abort();
                        }
                        stays
                    });
                    let wanted = catalog.iter().filter(|(name, tags)| s.wants(name, tags));
                    let wanted: Vec<&String> = wanted.map(|(name, _)| name).collect();
                    let names = wanted.iter().copied().chain(running.keys()).cloned();
                    let _ = news.send(News::Sources(names.collect())).await;
                    for name in wanted {
                        if !running.contains_key(name) {
                            running.insert(name.clone(), start(name, &mut watches));
                        }
                    }
                    while watches.try_join_next().is_some() {}
                }
                // Nothing changed while the query was held back.
                Ok(_) => {}
                Err(e) => self.shared.failed("services", &e, &self.to).await,
            }
            pace.tick().await;
        }
    }

    /// The datacenter, asked for until it is known.
    async fn datacenter(&self) -> String {
        if !self.shared.settings.datacenter.is_empty() {
            return self.shared.settings.datacenter.clone();
        }
        loop {
            let url = format!("{}/v1/agent/self", self.shared.base);
            match self.shared.ask::<Agent>(url).await {
                Ok((_, agent)) => return agent.config.datacenter,
                Err(e) => self.shared.failed("datacenter", &e, &self.to).await,
            }
        }
    }
}

impl ConsulSettings {
    fn wants(&self, name: &str, tags: &Option<Vec<String>>) -> bool {
        let tags = tags.as_deref().unwrap_or_default();
        (self.services.is_empty() || self.services.iter().any(|service| service == name))
            && self.tags.iter().all(|tag| tags.contains(tag))
    }
}

impl Shared {
    /// The services, and the index of the answer.
    async fn catalog(&self, index: u64) -> Result<(u64, Catalog), Error> {
        let query = self.query(index, &self.settings.filter, &[]);
        let url = format!("{}/v1/catalog/services?{query}", self.base);
        self.indexed(url).await
    }

    /// The parameters of a query that is held back while there is nothing newer than `index`.
    fn query(&self, index: u64, filter: &str, more: &[(&str, &str)]) -> String {
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

    async fn indexed<T>(&self, url: String) -> Result<(u64, T), Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let (index, value) = self.ask(url).await?;
        match index {
            Some(index) => Ok((index, value)),
            None => Err(wrong("the response has no X-Consul-Index")),
        }
    }

    async fn ask<T>(&self, url: String) -> Result<(Option<u64>, T), Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let mut headers = HeaderMap::new();
        let Token(token) = &self.settings.token;
        if !token.is_empty() {
            headers.insert(TOKEN, header_value(token)?);
        }
        let asked = timeout(WATCH + GRACE, self.api.get(&url, &headers)).await;
        let answer: Answer = asked.map_err(|_| wrong("no answer"))??.good()?;
        let index = answer.header(INDEX).parse().ok();
        Ok((index, answer.json().await?))
    }

    async fn failed(&self, what: &str, error: &Error, to: &Published) {
        to.failures.inc();
        warn!(server = self.base, what, error = %error, "Consul request failed");
        sleep(self.timing.retry).await;
    }
}

/// The URL before paths of the API; a server may have a scheme and a path of its own.
fn base(settings: &ConsulSettings) -> String {
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

/// A service that is watched.
struct Service {
    name: String,
    datacenter: String,
    shared: Arc<Shared>,
    to: Arc<Published>,
}

impl Service {
    async fn watch(self, news: Sender<News>) {
        let s = &self.shared.settings;
        let tags: Vec<(&str, &str)> = s.tags.iter().map(|tag| ("tag", tag.as_str())).collect();
        let tagging = Tagging {
            service: &self.name,
            datacenter: &self.datacenter,
            separator: &s.tag_separator,
        };
        let mut index = 0;
        let mut pace = interval_at(Instant::now() + s.refresh, s.refresh);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let query = self.shared.query(index, &s.health_filter, &tags);
            let name = form_encode(&self.name).replace('+', "%20");
            let url = format!("{}/v1/health/service/{name}?{query}", self.shared.base);
            match self.shared.indexed::<Vec<Instance>>(url).await {
                Ok((newer, instances)) if newer != index => {
                    index = newer;
                    let groups = instances.iter().map(|one| one.target(&tagging)).collect();
                    let sent = news.send(News::Groups(self.name.clone(), groups)).await;
                    if sent.is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(e) => self.shared.failed(&self.name, &e, &self.to).await,
            }
            pace.tick().await;
        }
    }
}
