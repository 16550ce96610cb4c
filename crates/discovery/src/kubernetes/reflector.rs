//! Keeps a part of a store in sync with the objects of one kind in one namespace: it lists the
//! objects and then watches for changes.
//!
//! ```text
//! list, in pages if it is long -> version -> watch from there -> events -> version
//!  ^                                           |               '-- stream ends: watch again from
//!  '-- 410: version too old -------------------'                   the newest version
//! ```
//!
//! Invariant: only responses of the API change the store; failures remove nothing from it.

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

/// Time after which the server ends a watch, in seconds.
const WATCH_SECONDS: u64 = 420;

/// Additional time for the end of a watch; also the timeout of a list request.
const GRACE: Duration = Duration::from_secs(60);

/// Number of objects per page of a list that exceeds the size limit of a response.
const PAGE: &str = "500";

/// Maximum pause between attempts after repeated failures.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Task that keeps a part of a store in sync with the objects of one kind in one namespace.
pub(super) struct Reflector<T> {
    pub(super) cluster: Arc<Cluster>,
    /// Namespace to watch; empty for all namespaces.
    pub(super) namespace: String,
    pub(super) label: String,
    pub(super) field: String,
    pub(super) store: Arc<Store<T>>,
    pub(super) part: usize,
    pub(super) to: Arc<Published>,
    /// Pause after the first failure; each further failure doubles it.
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
    /// Token of the next page; empty on the last page.
    #[serde(rename = "continue")]
    next: String,
}

impl<T: Resource> Reflector<T> {
    /// Lists and watches until the future is dropped. Failures are logged, counted and retried.
    pub(super) async fn run(self) {
        let mut pause = self.retry;
        // Version 0 allows the API to answer the first list from its cache, which may be stale.
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

    /// Lists the objects, replaces the part of the store, and returns the version of the list. A
    /// list that exceeds the size limit is requested again in pages. The API can serve whole lists
    /// from its cache, but reads pages from its database.
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

    /// Requests the list page by page. Returns all objects and the version of the list.
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

    /// Watches from `version` on. Returns when a new list is necessary because the version is too
    /// old.
    async fn watch(&self, mut version: String) {
        let mut pause = self.retry;
        loop {
            let (before, begun) = (version.clone(), Instant::now());
            let deadline = Duration::from_secs(WATCH_SECONDS) + GRACE;
            let watched = timeout(deadline, self.watch_once(&mut version)).await;
            // The watch made progress before it ended, so the pause is reset.
            if version != before || begun.elapsed() >= RETRY_MAX {
                pause = self.retry;
            }
            match watched.unwrap_or_else(|_| Err(wrong("the watch does not end"))) {
                // The server ended the watch at the requested time.
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

    /// Runs one watch request until its stream ends. Returns [`ErrorKind::NotFound`] if the version
    /// is too old.
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
