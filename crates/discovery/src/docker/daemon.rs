//! Client of a Docker engine over HTTP or a Unix socket, and the labels of its networks.

use super::Filter;
use crate::api::{Answer, Api, wrong};
use crate::group::or_default;
use crate::meta::Meta;
use crate::once::ask_once;
use firn_http_client::{HttpSettings, USER_AGENT, form_encode};
use firn_model::error::Error;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{HOST, USER_AGENT as AGENT};
use hyper::{HeaderMap, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::net::UnixStream;

/// A Docker engine, reached at the `host` address of the config.
#[derive(Debug)]
pub(super) struct Daemon {
    place: Place,
    host: String,
    bytes_max: u64,
}

#[derive(Debug)]
enum Place {
    Http {
        base: String,
        api: Box<Api>,
    },
    Unix(PathBuf),
    /// The `host` address has an unsupported scheme; every request fails.
    Nowhere,
}

impl Daemon {
    /// Creates a client for the engine at `host`. The settings `client` apply only to `http` and
    /// `https` addresses, as in upstream.
    pub(super) fn new(host: &str, client: &HttpSettings, bytes_max: u64) -> Self {
        let place = match host.split_once("://") {
            Some(("unix", path)) => Place::Unix(PathBuf::from(path)),
            Some(("http" | "https", _)) => Place::Http {
                base: host.trim_end_matches('/').to_owned(),
                api: Box::new(Api::new(client, bytes_max)),
            },
            Some(("tcp", rest)) => Place::Http {
                base: format!("http://{}", rest.trim_end_matches('/')),
                api: Box::new(Api::new(&HttpSettings::default(), bytes_max)),
            },
            _ => Place::Nowhere,
        };
        Self {
            place,
            host: host.to_owned(),
            bytes_max,
        }
    }

    /// Returns the list at `path`, restricted by `filters`. A response of `null` is an empty list.
    pub(super) async fn list<T>(&self, path: &str, filters: &[Filter]) -> Result<Vec<T>, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let path = match filters.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?filters={}", form_encode(&written(filters))),
        };
        let answer = match &self.place {
            Place::Http { base, api } => {
                api.get(&format!("{base}{path}"), &HeaderMap::new()).await?
            }
            Place::Unix(socket) => {
                let asked = ask_socket(socket, &path, self.bytes_max).await;
                asked.map_err(|e| wrong(format!("{}: {e}", self.host)))?
            }
            Place::Nowhere => {
                let host = &self.host;
                return Err(wrong(format!("unable to parse docker host {host:?}")));
            }
        };
        let list: Option<Vec<T>> = answer.good()?.json().await?;
        Ok(list.unwrap_or_default())
    }

    /// Returns the labels of all networks, by network id; label names begin with `prefix`.
    pub(super) async fn networks(
        &self,
        prefix: &'static str,
    ) -> Result<BTreeMap<String, Meta>, Error> {
        let networks: Vec<Network> = self.list("/networks", &[]).await?;
        let labels = networks.into_iter().map(|network| {
            let mut meta = Meta::new(prefix);
            meta.set("network_id", &network.id);
            meta.set("network_name", network.name);
            meta.set("network_scope", network.scope);
            meta.set("network_internal", network.internal.to_string());
            meta.set("network_ingress", network.ingress.to_string());
            meta.set_each("network_label_", &network.labels);
            (network.id, meta)
        });
        Ok(labels.collect())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Network {
    id: String,
    name: String,
    scope: String,
    internal: bool,
    ingress: bool,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
}

/// Encodes filters in Docker's JSON format: `{"name": {"value": true}}`.
fn written(filters: &[Filter]) -> String {
    let mut map: BTreeMap<&str, BTreeMap<&str, bool>> = BTreeMap::new();
    for filter in filters {
        let values = map.entry(&filter.name).or_default();
        values.extend(filter.values.iter().map(|value| (value.as_str(), true)));
    }
    serde_json::json!(map).to_string()
}

async fn ask_socket(socket: &PathBuf, path: &str, bytes_max: u64) -> Result<Answer, Error> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|e| Error::unavailable(e.to_string()))?;
    let request = Request::get(path)
        .header(HOST, "docker")
        .header(AGENT, USER_AGENT)
        .body(Empty::<Bytes>::new())
        .map_err(|e| wrong(e.to_string()))?;
    ask_once(stream, request, bytes_max).await
}
