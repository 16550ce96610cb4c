//! Discovery of OVHcloud virtual private servers and dedicated servers.
//!
//! ```text
//! names -> details and addresses of each -> targets; a server is skipped if its requests fail
//! ```
//!
//! The behaviour follows upstream's `discovery/ovhcloud` and OVHcloud's API.

use crate::api::{ApiClient, invalid_response_error, parse_header_value};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::MetaLabels;
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{inline_secret, refresh_interval, require};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_http_client::{HttpSettings, Secret, form_encode, reveal};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::header::{HeaderMap, HeaderName};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde::de::DeserializeOwned;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Base URLs of the APIs by endpoint name.
const ENDPOINTS: [(&str, &str); 7] = [
    ("ovh-eu", "https://eu.api.ovh.com/1.0"),
    ("ovh-ca", "https://ca.api.ovh.com/1.0"),
    ("ovh-us", "https://api.us.ovhcloud.com/1.0"),
    ("kimsufi-eu", "https://eu.api.kimsufi.com/1.0"),
    ("kimsufi-ca", "https://ca.api.kimsufi.com/1.0"),
    ("soyoustart-eu", "https://eu.api.soyoustart.com/1.0"),
    ("soyoustart-ca", "https://ca.api.soyoustart.com/1.0"),
];

const APPLICATION: HeaderName = HeaderName::from_static("x-ovh-application");

/// The provider of `ovhcloud_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider =
    DiscoveryProvider::new("ovhcloud_sd_configs", &Shape::Section(&[KEYS]), read_entry);

const KEYS: &[ConfigKey] = &[
    key("endpoint", Shape::Text),
    key("application_key", Shape::Text),
    key("application_secret", Shape::Secret),
    key("consumer_key", Shape::Secret),
    key("refresh_interval", Shape::Duration),
    key("service", Shape::Text),
];

/// The kind of OVHcloud server that is discovered, one kind per config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OvhService {
    /// Virtual private servers (VPS).
    Vps,
    /// Dedicated (bare metal) servers.
    DedicatedServer,
}

/// An entry of `ovhcloud_sd_configs`: the kind of server to discover, and credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct OvhSettings {
    /// The `endpoint` key: name of an endpoint, such as `ovh-eu`, or the URL of an API.
    pub endpoint: String,
    /// The `application_key` key: id of the application that calls the API.
    pub application_key: String,
    /// The `application_secret` key: secret of the application, which signatures include.
    pub application_secret: Secret,
    /// The `consumer_key` key: credential with which a user has authorized the application.
    pub consumer_key: Secret,
    /// The `service` key: kind of server to discover.
    pub service: OvhService,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
}

impl DiscoveryMechanism for OvhSettings {
    fn mechanism(&self) -> &'static str {
        "ovhcloud"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(OvhDiscovery::new(
            self,
            starter.bytes_max,
            starter.clock.clone(),
        ))
    }
}

/// Reads an entry of `ovhcloud_sd_configs`, which needs an endpoint, a service and keys.
fn read_entry(node: &YamlNode, _: &Path) -> ReadResult {
    let endpoint = read::string_or(node, "endpoint", "ovh-eu");
    if endpoint.is_empty() {
        return Err(node.error("endpoint can not be empty"));
    }
    require(
        node,
        &[
            ("application_key", "application key can not be empty"),
            ("application_secret", "application secret can not be empty"),
            ("consumer_key", "consumer key can not be empty"),
        ],
    )?;
    let service = match read::string(node, "service").as_str() {
        "dedicated_server" => OvhService::DedicatedServer,
        "vps" => OvhService::Vps,
        service => return Err(node.error(format!("unknown service: {service}"))),
    };
    Ok(DiscoverySettings::provided(OvhSettings {
        endpoint,
        application_key: read::string(node, "application_key"),
        application_secret: inline_secret(node, "application_secret"),
        consumer_key: inline_secret(node, "consumer_key"),
        service,
        refresh: refresh_interval(node, 60),
    }))
}

/// Discovery of OVHcloud servers; each refresh reads the details of every server.
pub(super) struct OvhDiscovery {
    settings: OvhSettings,
    api: ApiClient,
    clock: Arc<dyn Clock>,
}

/// API endpoint and credentials for the requests of one refresh.
struct OvhSession {
    base: String,
    application_secret: String,
    consumer_key: String,
    /// Offset of the local clock to the server's clock, in seconds; positive if the local clock is
    /// ahead.
    ahead_seconds: i64,
}

answers! {
    #[serde(rename_all = "camelCase")]
    struct OvhVps {
        zone: String,
        model: OvhVpsModel,
        display_name: String,
        cluster: String,
        state: String,
        name: String,
        netboot_mode: String,
        memory_limit: i64,
        offer_type: String,
        vcore: i64,
    }

    #[serde(rename_all = "camelCase")]
    struct OvhVpsModel {
        #[serde(rename = "maximumAdditionnalIp")]
        maximum_additional_ip: i64,
        offer: String,
        datacenter: Vec<String>,
        vcore: i64,
        version: String,
        name: String,
        disk: i64,
        memory: i64,
    }

    #[serde(rename_all = "camelCase")]
    struct OvhDedicatedServer {
        state: String,
        commercial_range: String,
        link_speed: i64,
        rack: String,
        no_intervention: bool,
        os: String,
        support_level: String,
        server_id: i64,
        reverse: String,
        datacenter: String,
        name: String,
    }
}

/// Details of a server of one kind, as returned by the API, which provide its labels.
trait OvhServer: DeserializeOwned + Send + 'static {
    /// API path of the list of servers.
    const PATH: &'static str;

    /// Prefix of the label names, after `__meta_`.
    const PREFIX: &'static str;

    /// Returns the value of the `instance` label, and the other labels by name.
    fn labels(&self) -> (&str, Vec<(&'static str, String)>);
}

impl OvhDiscovery {
    pub(super) fn new(settings: &OvhSettings, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            api: ApiClient::new(&HttpSettings::default(), bytes_max),
            settings: settings.clone(),
            clock,
        }
    }

    fn find_base_url(&self) -> Result<String, Error> {
        let name = self.settings.endpoint.as_str();
        if name.contains('/') {
            return Ok(name.to_owned());
        }
        let known = ENDPOINTS.iter().find(|(known, _)| *known == name);
        let (_, url) =
            known.ok_or_else(|| invalid_response_error(format!("unknown endpoint '{name}'")))?;
        Ok((*url).to_owned())
    }

    async fn open_session(&self) -> Result<OvhSession, Error> {
        let base = self.find_base_url()?;
        let s = &self.settings;
        let application = parse_header_value(&s.application_key)?;
        let headers = HeaderMap::from_iter([(APPLICATION, application)]);
        let url = format!("{base}/auth/time");
        let theirs: i64 = self
            .api
            .get_success(&url, &headers)
            .await?
            .decode_json()
            .await?;
        Ok(OvhSession {
            base,
            application_secret: reveal(&s.application_secret, "application secret").await?,
            consumer_key: reveal(&s.consumer_key, "consumer key").await?,
            ahead_seconds: self.clock.now_ms().div_euclid(1000) - theirs,
        })
    }

    async fn get<T>(&self, session: &OvhSession, path: &str) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let url = format!("{}{path}", session.base);
        let time = self.clock.now_ms().div_euclid(1000) - session.ahead_seconds;
        let signature = compute_signature(session, &url, time);
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-ovh-application", self.settings.application_key.as_str()),
            ("x-ovh-consumer", &session.consumer_key),
            ("x-ovh-timestamp", &time.to_string()),
            ("x-ovh-signature", &signature),
        ] {
            headers.insert(name, parse_header_value(value)?);
        }
        self.api
            .get_success(&url, &headers)
            .await?
            .decode_json()
            .await
    }

    async fn fetch_servers<S: OvhServer>(&self) -> Result<Vec<TargetGroup>, Error> {
        let session = self.open_session().await?;
        let names: Vec<String> = self.get(&session, S::PATH).await?;
        let mut groups = Vec::new();
        for name in names {
            match self.fetch_server::<S>(&session, &name).await {
                Ok(group) => groups.push(group),
                Err(e) => warn!(server = name, error = %e, "cannot get details of a server"),
            }
        }
        Ok(groups)
    }

    async fn fetch_server<S: OvhServer>(
        &self,
        session: &OvhSession,
        name: &str,
    ) -> Result<TargetGroup, Error> {
        let path = format!("{}/{}", S::PATH, form_encode(name));
        let server: S = self.get(session, &path).await?;
        let ips: Vec<String> = self.get(session, &format!("{path}/ips")).await?;
        let ips = parse_addresses(&ips)?;
        let last = |is: fn(&IpAddr) -> bool| {
            let found = ips.iter().rev().find(|ip| is(ip));
            found.map_or(String::new(), IpAddr::to_string)
        };
        let (ipv4, ipv6) = (last(IpAddr::is_ipv4), last(IpAddr::is_ipv6));
        let mut meta = MetaLabels::new(S::PREFIX);
        let (instance, labels) = server.labels();
        meta.set_instance(instance);
        for (name, value) in labels {
            meta.set(name, value);
        }
        meta.set("ipv4", &ipv4);
        meta.set("ipv6", &ipv6);
        Ok(meta.into_target(if ipv4.is_empty() { ipv6 } else { ipv4 }))
    }
}

impl Refresh for OvhDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        format!("ovhcloud {}", self.settings.endpoint)
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        match self.settings.service {
            OvhService::Vps => self.fetch_servers::<OvhVps>().await,
            OvhService::DedicatedServer => self.fetch_servers::<OvhDedicatedServer>().await,
        }
    }
}

/// Computes the signature of a GET request: `$1$` followed by a SHA-1 hash, as the API requires.
fn compute_signature(session: &OvhSession, url: &str, time: i64) -> String {
    let (secret, key) = (&session.application_secret, &session.consumer_key);
    let text = format!("{secret}+{key}+GET+{url}++{time}");
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let hex: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!("$1${hex}")
}

/// Parses a list of addresses and networks. Of networks, only those with a prefix length of 32
/// count, as in upstream.
fn parse_addresses(list: &[String]) -> Result<Vec<IpAddr>, Error> {
    let none = || invalid_response_error("could not parse IP addresses from list");
    let mut found = Vec::new();
    for text in list {
        let address: IpAddr = match text.split_once('/') {
            None => text.parse().map_err(|_| none())?,
            Some((address, bits)) => {
                let address: IpAddr = address.parse().map_err(|_| none())?;
                let bits: u8 = bits.parse().map_err(|_| none())?;
                if bits > if address.is_ipv4() { 32 } else { 128 } {
                    return Err(none());
                }
                if bits != 32 {
                    continue;
                }
                address
            }
        };
        if !address.is_unspecified() {
            found.push(address);
        }
    }
    if found.is_empty() {
        Err(none())
    } else {
        Ok(found)
    }
}

impl OvhServer for OvhVps {
    const PATH: &'static str = "/vps";
    const PREFIX: &'static str = "ovhcloud_vps";

    fn labels(&self) -> (&str, Vec<(&'static str, String)>) {
        let model = &self.model;
        let labels = vec![
            ("offer", model.offer.clone()),
            ("datacenter", format!("[{}]", model.datacenter.join(" "))),
            ("model_vcore", model.vcore.to_string()),
            (
                "maximum_additional_ip",
                model.maximum_additional_ip.to_string(),
            ),
            ("version", model.version.clone()),
            ("model_name", model.name.clone()),
            ("disk", model.disk.to_string()),
            ("memory", model.memory.to_string()),
            ("zone", self.zone.clone()),
            ("display_name", self.display_name.clone()),
            ("cluster", self.cluster.clone()),
            ("state", self.state.clone()),
            ("name", self.name.clone()),
            ("netboot_mode", self.netboot_mode.clone()),
            ("memory_limit", self.memory_limit.to_string()),
            ("offer_type", self.offer_type.clone()),
            ("vcore", self.vcore.to_string()),
        ];
        (&self.name, labels)
    }
}

impl OvhServer for OvhDedicatedServer {
    const PATH: &'static str = "/dedicated/server";
    const PREFIX: &'static str = "ovhcloud_dedicated_server";

    fn labels(&self) -> (&str, Vec<(&'static str, String)>) {
        let labels = vec![
            ("state", self.state.clone()),
            ("commercial_range", self.commercial_range.clone()),
            ("link_speed", self.link_speed.to_string()),
            ("rack", self.rack.clone()),
            ("no_intervention", self.no_intervention.to_string()),
            ("os", self.os.clone()),
            ("support_level", self.support_level.clone()),
            ("server_id", self.server_id.to_string()),
            ("reverse", self.reverse.clone()),
            ("datacenter", self.datacenter.clone()),
            ("name", self.name.clone()),
        ];
        (&self.name, labels)
    }
}
