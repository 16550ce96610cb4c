//! Discovery of exporter endpoints on the systems that a Uyuni server manages.
//!
//! The behaviour follows upstream's `discovery/uyuni` and Uyuni's API.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::group::TargetGroup;
use crate::json::answers;
use crate::meta::MetaLabels;
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{inline_secret, refresh_interval, require};
use crate::xmlrpc::{XmlRpcParam, call_method};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_config_schema::{go_url, read};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::{HttpSettings, Secret, reveal};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_yaml::YamlNode;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Lifetime of a login in seconds; it is renewed after half of that.
const LOGIN_SECONDS: i64 = 600;

/// The provider of `uyuni_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "uyuni_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("server", Shape::Text),
    key("username", Shape::Text),
    key("password", Shape::Secret),
    key("entitlement", Shape::Text),
    key("separator", Shape::Text),
    key("refresh_interval", Shape::Duration),
];

/// An entry of `uyuni_sd_configs`: the Uyuni server whose monitored systems are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct UyuniSettings {
    /// The `server` key: base URL of the server, without the path of its API.
    pub server: String,
    /// The `username` key: name of the user that logs in to the API.
    pub username: String,
    /// The `password` key: password of the user, read at each login.
    pub password: Secret,
    /// The `entitlement` key: entitlement that systems must have to be discovered.
    pub entitlement: String,
    /// The `separator` key: separator of the system groups in the label `groups`.
    pub separator: String,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the server: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for UyuniSettings {
    fn mechanism(&self) -> &'static str {
        "uyuni"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(UyuniDiscovery::new(
            self,
            starter.bytes_max,
            starter.clock.clone(),
        ))
    }
}

/// Reads an entry of `uyuni_sd_configs`, which needs a server and credentials.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    require(
        node,
        &[("server", "Uyuni SD configuration requires server host")],
    )?;
    let server = read::string(node, "server");
    go_url::parse(&server)
        .map_err(|e| node.error(format!("Uyuni Server URL is not valid: {e}")))?;
    require(
        node,
        &[
            ("username", "Uyuni SD configuration requires a username"),
            ("password", "Uyuni SD configuration requires a password"),
        ],
    )?;
    Ok(DiscoverySettings::provided(UyuniSettings {
        server,
        username: read::string(node, "username"),
        password: inline_secret(node, "password"),
        entitlement: read::string_or(node, "entitlement", "monitoring_entitled"),
        separator: read::string_or(node, "separator", ","),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

/// Discovery of the endpoints of a Uyuni server; keeps its login between refreshes.
pub(super) struct UyuniDiscovery {
    settings: UyuniSettings,
    api: ApiClient,
    url: String,
    clock: Arc<dyn Clock>,
    /// Session token of the login, with the time of its renewal in milliseconds.
    login: Option<(String, i64)>,
}

answers! {
    struct UyuniSystem {
        id: i64,
        system_groups: Vec<UyuniSystemGroup>,
    }

    struct UyuniSystemGroup {
        name: String,
    }

    struct UyuniNetwork {
        system_id: i64,
        hostname: String,
        primary_fqdn: String,
    }

    struct UyuniEndpoint {
        system_id: i64,
        endpoint_name: String,
        port: i64,
        path: String,
        module: String,
        exporter_name: String,
        tls_enabled: bool,
    }
}

impl UyuniDiscovery {
    pub(super) fn new(settings: &UyuniSettings, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            url: format!("{}/rpc/api", settings.server.trim_end_matches('/')),
            settings: settings.clone(),
            clock,
            login: None,
        }
    }

    async fn login_token(&mut self) -> Result<String, Error> {
        let now_ms = self.clock.now_ms();
        if let Some((token, end_ms)) = &self.login
            && now_ms <= *end_ms
        {
            return Ok(token.clone());
        }
        let password = reveal(&self.settings.password, "password").await?;
        let params = [
            XmlRpcParam::Text(&self.settings.username),
            XmlRpcParam::Text(&password),
            XmlRpcParam::Number(LOGIN_SECONDS),
        ];
        let token: Result<String, Error> =
            call_method(&self.api, &self.url, "auth.login", &params).await;
        let token = token
            .map_err(|e| invalid_response_error(format!("unable to login to Uyuni API: {e}")))?;
        self.login = Some((token.clone(), now_ms + LOGIN_SECONDS * 1000 / 2));
        Ok(token)
    }

    async fn fetch_targets(&self, token: &str) -> Result<Vec<TargetGroup>, Error> {
        let ask = (&self.api, self.url.as_str());
        let method = "system.listSystemGroupsForSystemsWithEntitlement";
        let params = [
            XmlRpcParam::Text(token),
            XmlRpcParam::Text(&self.settings.entitlement),
        ];
        let systems: Result<Vec<UyuniSystem>, Error> =
            call_method(ask.0, ask.1, method, &params).await;
        let systems = systems.map_err(|e| {
            let what = "unable to get the managed system groups information of monitored clients";
            invalid_response_error(format!("{what}: {e}"))
        })?;
        let systems: BTreeMap<i64, Vec<UyuniSystemGroup>> = systems
            .into_iter()
            .map(|system| (system.id, system.system_groups))
            .collect();
        let ids: Vec<i64> = systems.keys().copied().collect();
        let params = [XmlRpcParam::Text(token), XmlRpcParam::Numbers(&ids)];
        let method = "system.monitoring.listEndpoints";
        let endpoints: Result<Vec<UyuniEndpoint>, Error> =
            call_method(ask.0, ask.1, method, &params).await;
        let endpoints = endpoints.map_err(|e| {
            invalid_response_error(format!("unable to get endpoints information: {e}"))
        })?;
        let method = "system.getNetworkForSystems";
        let networks: Result<Vec<UyuniNetwork>, Error> =
            call_method(ask.0, ask.1, method, &params).await;
        let networks = networks.map_err(|e| {
            invalid_response_error(format!(
                "unable to get the systems network information: {e}"
            ))
        })?;
        let networks: BTreeMap<i64, UyuniNetwork> = networks
            .into_iter()
            .map(|one| (one.system_id, one))
            .collect();
        let nowhere = UyuniNetwork::default();
        Ok(endpoints
            .iter()
            .map(|endpoint| {
                let id = endpoint.system_id;
                let groups = systems.get(&id).map_or(&[][..], Vec::as_slice);
                let network = networks.get(&id).unwrap_or(&nowhere);
                endpoint.build_target(groups, network, &self.settings.separator)
            })
            .collect())
    }
}

impl Refresh for UyuniDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.url.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let token = self.login_token().await?;
        let targets = self.fetch_targets(&token).await;
        if targets.is_err() {
            self.login = None;
        }
        targets
    }
}

impl UyuniEndpoint {
    fn build_target(
        &self,
        groups: &[UyuniSystemGroup],
        network: &UyuniNetwork,
        separator: &str,
    ) -> TargetGroup {
        let groups: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        let mut meta = MetaLabels::new("uyuni");
        meta.set_all([
            ("minion_hostname", network.hostname.as_str()),
            ("primary_fqdn", &network.primary_fqdn),
            ("system_id", &self.system_id.to_string()),
            ("groups", &groups.join(separator)),
            ("endpoint_name", &self.endpoint_name),
            ("exporter", &self.exporter_name),
            ("proxy_module", &self.module),
            ("metrics_path", &self.path),
            ("scheme", if self.tls_enabled { "https" } else { "http" }),
        ]);
        meta.into_target(format!("{}:{}", network.hostname, self.port))
    }
}
