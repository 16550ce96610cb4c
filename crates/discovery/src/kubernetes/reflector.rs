//! Keeps a part of a store like the objects of one kind in one namespace: lists, then watches.
//!
//! ```text
//! list, in pages if it is long -> version -> watch from there -> events -> version
//!  ^                                           |               '-- the stream ends: watch from the
//!  '-- 410: too old ---------------------------'                   newest version
//! ```
//!
//! Invariant: a store changes by what the API said alone: nothing is lost from it by a failure.

use super::access::Cluster;
use super::events::{EVENT_BYTES_MAX, Events, GONE};
use super::objects::Resource;
use super::store::Store;
use crate::api::{Answer, wrong};
use crate::group::or_default;
use crate::published::Published;
use firn_http_client::form_encode;
use firn_model::error::{Error, ErrorKind};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

/// How long a watch goes on before the server ends it, in seconds.
const WATCH_SECONDS: u64 = 420;

/// How much longer than that an answer may take; how long a list may take at all.
const GRACE: Duration = Duration::from_secs(60);

/// Objects of a page of a list that is longer than an answer may be.
const PAGE: &str = "500";

/// After many failures.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Follows one kind of objects in one namespace.
pub(super) struct Reflector<T> {
    pub(super) cluster: Arc<Cluster>,
    /// Of which namespace; empty is all.
    pub(super) namespace: String,
    pub(super) label: String,
    pub(super) field: String,
    pub(super) store: Arc<Store<T>>,
    pub(super) part: usize,
    pub(super) to: Arc<Published>,
    /// After the first failure.
    pub(super) retry: Duration,
}

#[derive(Deserialize)]
#[serde(bound = "T: serde::de::DeserializeOwned")]
struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default, deserialize_with = "or_default")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    /// What asks for the next page; empty at the last one.
    #[serde(rename = "continue")]
    next: String,
}

impl<T: Resource> Reflector<T> {
    /// Goes on until the future is dropped.
    pub(super) async fn run(self) {
        let mut pause = self.retry;
        // What the API has at hand will do for a start; it may be old.
        let mut version = "0".to_owned();
        loop {
            match self.list(&version).await {
                Ok(newest) => {
                    pause = self.retry;
                    self.watch(newest).await;
                    version = String::new();
                }
                Err(e) => {
                    self.failed("list", &e);
                    sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Lists the objects; returns the version of the list. One that is too long for an answer is
    /// asked for in pages: what the API has at hand comes whole, pages come from its database.
    async fn list(&self, version: &str) -> Result<String, Error> {
        let (items, version) = match self.page(&[("resourceVersion", version)]).await {
            Ok(list) => (list.items, list.metadata.resource_version),
            Err(e) if e.kind == ErrorKind::Limited => self.pages().await?,
            Err(e) => return Err(e),
        };
        self.store.replace(self.part, items);
        Ok(version)
    }

    async fn page(&self, parameters: &[(&str, &str)]) -> Result<List<T>, Error> {
        let url = self.url(parameters);
        let asked = timeout(GRACE, self.cluster.api.json(&url)).await;
        asked.map_err(|_| wrong("no answer"))?
    }

    /// All objects, page by page, and the version of the list.
    async fn pages(&self) -> Result<(Vec<T>, String), Error> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let list = self.page(&[("limit", PAGE), ("continue", &next)]).await?;
            items.extend(list.items);
            let ListMeta {
                resource_version,
                next: behind,
            } = list.metadata;
            if behind.is_empty() {
                return Ok((items, resource_version));
            }
            if behind == next {
                return Err(wrong("a page of the list refers to itself"));
            }
            next = behind;
        }
    }

    /// Watches from `version` on; returns when a new list is needed.
    async fn watch(&self, mut version: String) {
        let mut pause = self.retry;
        loop {
            let (before, begun) = (version.clone(), Instant::now());
            let deadline = Duration::from_secs(WATCH_SECONDS) + GRACE;
            let watched = timeout(deadline, self.watch_once(&mut version)).await;
            // Whatever ended it, it worked.
            if version != before || begun.elapsed() >= RETRY_MAX {
                pause = self.retry;
            }
            match watched.unwrap_or_else(|_| Err(wrong("the watch does not end"))) {
                // Ended by the server, as agreed.
                Ok(()) if version != before => continue,
                Ok(()) => {}
                Err(e) if e.kind == ErrorKind::NotFound => {
                    debug!(kind = T::PLURAL, error = %e, "listing Kubernetes objects again");
                    return;
                }
                Err(e) => self.failed("watch", &e),
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// One request of a watch; [`ErrorKind::NotFound`] if the version is too old.
    async fn watch_once(&self, version: &mut String) -> Result<(), Error> {
        let seconds = WATCH_SECONDS.to_string();
        let url = self.url(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", &seconds),
        ]);
        let mut response = self.cluster.api.open(&url, &HeaderMap::new()).await?;
        if !response.status().is_success() {
            let code = response.status().as_u16();
            let error = match Answer::read(response, EVENT_BYTES_MAX as u64).await?.good() {
                Ok(_) => wrong("not an answer"),
                Err(e) => e,
            };
            return Err(match code {
                GONE => Error::new(ErrorKind::NotFound, error.message),
                _ => error,
            });
        }
        let mut events = Events::new(&self.store, self.part);
        while let Some(frame) = response.frame().await {
            let frame = frame.map_err(|e| Error::unavailable(e.to_string()))?;
            if let Ok(data) = frame.into_data() {
                events.take(&data, version)?;
            }
        }
        Ok(())
    }

    fn url(&self, parameters: &[(&str, &str)]) -> String {
        let namespace = match self.namespace.as_str() {
            "" => String::new(),
            _ if !T::IS_NAMESPACED => String::new(),
            name => format!("/namespaces/{name}"),
        };
        let selectors = [
            ("fieldSelector", self.field.as_str()),
            ("labelSelector", &self.label),
        ];
        let pairs: Vec<String> = parameters
            .iter()
            .chain(&selectors)
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={}", form_encode(value)))
            .collect();
        let (base, group, plural) = (&self.cluster.base, T::GROUP, T::PLURAL);
        let mark = if pairs.is_empty() { "" } else { "?" };
        format!("{base}{group}{namespace}/{plural}{mark}{}", pairs.join("&"))
    }

    fn failed(&self, what: &str, error: &Error) {
        self.to.failures.inc();
        let namespace = &self.namespace;
        warn!(
            what,
            kind = T::PLURAL,
            namespace,
            error = %error,
            "cannot watch Kubernetes objects"
        );
    }
}
