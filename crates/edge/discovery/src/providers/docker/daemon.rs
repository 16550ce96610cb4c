//! Client of a Docker engine over HTTP or a Unix socket, and the labels of its networks.

use super::DockerFilter;
use crate::api::{ApiClient, ApiResponse, invalid_response_error};
use crate::group::or_default;
use crate::meta::MetaLabels;
use crate::once::send_once;
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
pub(super) struct DockerClient {
    place: DockerHost,
    host: String,
    bytes_max: u64,
}

#[derive(Debug)]
enum DockerHost {
    Http {
        base: String,
        api: Box<ApiClient>,
    },
    Unix(PathBuf),
    /// The `host` address has an unsupported scheme; every request fails.
    Nowhere,
}

impl DockerClient {
    /// Creates a client for the engine at `host`. The settings `client` apply only to `http` and
    /// `https` addresses, as in upstream.
    pub(super) fn new(host: &str, client: &HttpSettings, bytes_max: u64) -> Self {
        let place = match host.split_once("://") {
            Some(("unix", path)) => DockerHost::Unix(PathBuf::from(path)),
            Some(("http" | "https", _)) => DockerHost::Http {
                base: host.trim_end_matches('/').to_owned(),
                api: Box::new(ApiClient::new(client, bytes_max)),
            },
            Some(("tcp", rest)) => DockerHost::Http {
                base: format!("http://{}", rest.trim_end_matches('/')),
                api: Box::new(ApiClient::new(&HttpSettings::default(), bytes_max)),
            },
            _ => DockerHost::Nowhere,
        };
        Self {
            place,
            host: host.to_owned(),
            bytes_max,
        }
    }

    /// Returns the list at `path`, restricted by `filters`. A response of `null` is an empty list.
    pub(super) async fn get_list<T>(
        &self,
        path: &str,
        filters: &[DockerFilter],
    ) -> Result<Vec<T>, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let path = if filters.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?filters={}", form_encode(&encode_filters(filters)))
        };
        let answer = match &self.place {
            DockerHost::Http { base, api } => {
                api.get(&format!("{base}{path}"), &HeaderMap::new()).await?
            }
            DockerHost::Unix(socket) => {
                let asked = send_to_socket(socket, &path, self.bytes_max).await;
                asked.map_err(|e| invalid_response_error(format!("{}: {e}", self.host)))?
            }
            DockerHost::Nowhere => {
                let host = &self.host;
                return Err(invalid_response_error(format!(
                    "unable to parse docker host {host:?}"
                )));
            }
        };
        let list: Option<Vec<T>> = answer.require_success()?.decode_json().await?;
        Ok(list.unwrap_or_default())
    }

    /// Returns the labels of all networks, by network id; label names begin with `prefix`.
    pub(super) async fn get_network_labels(
        &self,
        prefix: &'static str,
    ) -> Result<BTreeMap<String, MetaLabels>, Error> {
        let networks: Vec<DockerNetwork> = self.get_list("/networks", &[]).await?;
        let labels = networks.into_iter().map(|network| {
            let mut meta = MetaLabels::new(prefix);
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
struct DockerNetwork {
    id: String,
    name: String,
    scope: String,
    internal: bool,
    ingress: bool,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
}

/// Encodes filters in Docker's JSON format: `{"name": {"value": true}}`.
fn encode_filters(filters: &[DockerFilter]) -> String {
    let mut map: BTreeMap<&str, BTreeMap<&str, bool>> = BTreeMap::new();
    for filter in filters {
        let values = map.entry(&filter.name).or_default();
        values.extend(filter.values.iter().map(|value| (value.as_str(), true)));
    }
    serde_json::json!(map).to_string()
}

async fn send_to_socket(
    socket: &PathBuf,
    path: &str,
    bytes_max: u64,
) -> Result<ApiResponse, Error> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|e| Error::unavailable(e.to_string()))?;
    let request = Request::get(path)
        .header(HOST, "docker")
        .header(AGENT, USER_AGENT)
        .body(Empty::<Bytes>::new())
        .map_err(|e| invalid_response_error(e.to_string()))?;
    send_once(stream, request, bytes_max).await
}
