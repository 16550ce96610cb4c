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

use super::access::KubernetesCluster;
use super::events::{EVENT_BYTES_MAX, GONE, KubernetesEventApplier};
use super::objects::KubernetesResource;
use super::store::KubernetesStore;
use crate::api::{ApiResponse, invalid_response_error};
use crate::group::or_default;
use crate::published::PublishedTargets;
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
pub(super) struct KubernetesReflector<T> {
    pub(super) cluster: Arc<KubernetesCluster>,
    /// Namespace to watch; empty for all namespaces.
    pub(super) namespace: String,
    pub(super) label: String,
    pub(super) field: String,
    pub(super) store: Arc<KubernetesStore<T>>,
    pub(super) part: usize,
    pub(super) to: Arc<PublishedTargets>,
    /// Pause after the first failure; each further failure doubles it.
    pub(super) retry: Duration,
}

#[derive(Deserialize)]
#[serde(bound = "T: serde::de::DeserializeOwned")]
struct KubernetesList<T> {
    #[serde(default)]
    metadata: KubernetesListMeta,
    #[serde(default, deserialize_with = "or_default")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KubernetesListMeta {
    resource_version: String,
    /// Token of the next page; empty on the last page.
    #[serde(rename = "continue")]
    next: String,
}

impl<T: KubernetesResource> KubernetesReflector<T> {
    /// Lists and watches until the future is dropped. Failures are logged, counted and retried.
    pub(super) async fn run(self) {
        let mut pause = self.retry;
        // Version 0 allows the API to answer the first list from its cache, which may be stale.
        let mut version = "0".to_owned();
        loop {
            match self.list_objects(&version).await {
                Ok(newest) => {
                    pause = self.retry;
                    self.watch_objects(newest).await;
                    version = String::new();
                }
                Err(e) => {
                    self.report_failure("list", &e);
                    sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Lists the objects, replaces the part of the store, and returns the version of the list. A
    /// list that exceeds the size limit is requested again in pages. The API can serve whole lists
    /// from its cache, but reads pages from its database.
    async fn list_objects(&self, version: &str) -> Result<String, Error> {
        let (items, version) = match self.get_list_page(&[("resourceVersion", version)]).await {
            Ok(list) => (list.items, list.metadata.resource_version),
            Err(e) if e.kind == ErrorKind::Limited => self.list_pages().await?,
            Err(e) => return Err(e),
        };
        self.store.replace_part(self.part, items);
        Ok(version)
    }

    async fn get_list_page(&self, parameters: &[(&str, &str)]) -> Result<KubernetesList<T>, Error> {
        let url = self.build_url(parameters);
        let asked = timeout(GRACE, self.cluster.api.get_json(&url)).await;
        asked.map_err(|_| invalid_response_error("no answer"))?
    }

    /// Requests the list page by page. Returns all objects and the version of the list.
    async fn list_pages(&self) -> Result<(Vec<T>, String), Error> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let list = self
                .get_list_page(&[("limit", PAGE), ("continue", &next)])
                .await?;
            items.extend(list.items);
            let KubernetesListMeta {
                resource_version,
                next: behind,
            } = list.metadata;
            if behind.is_empty() {
                return Ok((items, resource_version));
            }
            if behind == next {
                return Err(invalid_response_error(
                    "a page of the list refers to itself",
                ));
            }
            next = behind;
        }
    }

    /// Watches from `version` on. Returns when a new list is necessary because the version is too
    /// old.
    async fn watch_objects(&self, mut version: String) {
        let mut pause = self.retry;
        loop {
            let (before, begun) = (version.clone(), Instant::now());
            let deadline = Duration::from_secs(WATCH_SECONDS) + GRACE;
            let watched = timeout(deadline, self.watch_once(&mut version)).await;
            // The watch made progress before it ended, so the pause is reset.
            if version != before || begun.elapsed() >= RETRY_MAX {
                pause = self.retry;
            }
            match watched.unwrap_or_else(|_| Err(invalid_response_error("the watch does not end")))
            {
                // The server ended the watch at the requested time.
                Ok(()) if version != before => continue,
                Ok(()) => {}
                Err(e) if e.kind == ErrorKind::NotFound => {
                    debug!(kind = T::PLURAL, error = %e, "listing Kubernetes objects again");
                    return;
                }
                Err(e) => self.report_failure("watch", &e),
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Runs one watch request until its stream ends. Returns [`ErrorKind::NotFound`] if the version
    /// is too old.
    async fn watch_once(&self, version: &mut String) -> Result<(), Error> {
        let seconds = WATCH_SECONDS.to_string();
        let url = self.build_url(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", &seconds),
        ]);
        let mut response = self
            .cluster
            .api
            .open_stream(&url, &HeaderMap::new())
            .await?;
        if !response.status().is_success() {
            let code = response.status().as_u16();
            let error = match ApiResponse::read_response(response, EVENT_BYTES_MAX as u64)
                .await?
                .require_success()
            {
                Ok(_) => invalid_response_error("not an answer"),
                Err(e) => e,
            };
            return Err(match code {
                GONE => Error::new(ErrorKind::NotFound, error.message),
                _ => error,
            });
        }
        let mut events = KubernetesEventApplier::new(&self.store, self.part);
        while let Some(frame) = response.frame().await {
            let frame = frame.map_err(|e| Error::unavailable(e.to_string()))?;
            if let Ok(data) = frame.into_data() {
                events.apply_bytes(&data, version)?;
            }
        }
        Ok(())
    }

    fn build_url(&self, parameters: &[(&str, &str)]) -> String {
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

    fn report_failure(&self, what: &str, error: &Error) {
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
