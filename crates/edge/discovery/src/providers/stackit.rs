//! Discovery of the servers of a STACKIT project.
//!
//! ```text
//! service account key -> signed assertion -> access token -> list of servers
//! ```
//!
//! The behaviour follows upstream's `discovery/stackit`, STACKIT's API, and the order in which its
//! SDK looks for the private key.

use crate::api::{ApiClient, invalid_response_error};
use crate::discover::Refresh;
use crate::environment::{Variables, process_environment};
use crate::group::TargetGroup;
use crate::json::{self, answers};
use crate::meta::{MetaLabels, join_host_port, sanitize};
use crate::provider::{
    DiscoveryMechanism, DiscoveryProvider, DiscoverySettings, DiscoveryStarter, DiscoveryTask,
    ReadResult,
};
use crate::section_values::{refresh_interval, secret};
use crate::tokens::{AccessTokenCache, AccessTokenIssuer, IssuedToken};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, key};
use firn_config_schema::{go_url, read};
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_http_client::named_files::read_async;
use firn_http_client::{HttpSettings, Secret, SigningAlgorithm, form_encode, reveal, sign_claims};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_yaml::YamlNode;
use hyper::StatusCode;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use ring::rand::SystemRandom;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Token URL, used if the service account key contains none.
const TOKENS: &str = "https://service-account.api.stackit.cloud/token";

/// Lifetime of a signed assertion in seconds.
const STATEMENT_SECONDS: i64 = 3600;

/// Grant type of requests that exchange a signed JWT for a token.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// The provider of `stackit_sd_configs`.
pub(super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "stackit_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT]),
    read_entry,
);

const KEYS: &[ConfigKey] = &[
    key("project", Shape::Text),
    key("refresh_interval", Shape::Duration),
    key("port", Shape::Integer),
    key("region", Shape::Text),
    key("endpoint", Shape::Text),
    key("service_account_key", Shape::Secret),
    key("private_key", Shape::Secret),
    key("service_account_key_path", Shape::Text),
    key("private_key_path", Shape::Text),
    key("credentials_file_path", Shape::Text),
];

/// An entry of `stackit_sd_configs`: the project whose servers are discovered, and credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct StackitSettings {
    /// The `project` key: id of the project whose servers are discovered.
    pub project: String,
    /// The `endpoint` key: URL of the API. If missing, the default endpoint of `region`.
    pub endpoint: String,
    /// The `service_account_key` or `service_account_key_path` key: key of a service account in
    /// JSON.
    pub service_account_key: Option<Secret>,
    /// The `private_key` or `private_key_path` key: private key of the service account in PEM.
    pub private_key: Option<Secret>,
    /// The `credentials_file_path` key: JSON file that may contain the private key or its path.
    pub credentials_file: Option<PathBuf>,
    /// The `port` key: port in the addresses of all targets, which relabelling can replace.
    pub port: i64,
    /// The `refresh_interval` key: time between two refreshes, and the timeout of one.
    pub refresh: Duration,
    /// Settings of the HTTP client that calls the API: credentials, TLS, proxies and redirects.
    pub client: HttpSettings,
}

impl DiscoveryMechanism for StackitSettings {
    fn mechanism(&self) -> &'static str {
        "stackit"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(StackitDiscovery::new(
            self,
            starter.bytes_max,
            starter.clock.clone(),
        ))
    }
}

/// Reads an entry of `stackit_sd_configs`, which needs an endpoint or a region.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
    let (endpoint, region) = (
        read::string(node, "endpoint"),
        read::string_or(node, "region", "eu01"),
    );
    if endpoint.is_empty() && region.is_empty() {
        return Err(node.error("stackit_sd: endpoint and region missing"));
    }
    go_url::parse(&endpoint)
        .map_err(|e| node.error(format!("stackit_sd: invalid endpoint {endpoint:?}: {e}")))?;
    // Paths of these files are not relative to the folder of the config.
    let key = |key: &str| {
        secret(node, key, dir).or_else(|| read_file_secret(node, &format!("{key}_path")))
    };
    let credentials = read::text(node, "credentials_file_path").filter(|path| !path.is_empty());
    Ok(DiscoverySettings::provided(StackitSettings {
        project: read::string(node, "project"),
        endpoint: if endpoint.is_empty() {
            format!("https://iaas.api.{region}.stackit.cloud")
        } else {
            endpoint
        },
        service_account_key: key("service_account_key"),
        private_key: key("private_key"),
        credentials_file: credentials.map(PathBuf::from),
        port: read::integer_or(node, "port", 80),
        refresh: refresh_interval(node, 60),
        client: http(node, dir)?,
    }))
}

fn read_file_secret(node: &YamlNode, key: &str) -> Option<Secret> {
    let path = read::text(node, key).filter(|path| !path.is_empty());
    path.map(|path| Secret::File(PathBuf::from(path)))
}

/// Discovery of STACKIT servers; each refresh lists all servers of the project.
pub(super) struct StackitDiscovery {
    settings: StackitSettings,
    api: ApiClient,
    tokens: Option<AccessTokenCache<StackitServiceAccount>>,
}

/// Issuer of access tokens for a service account, used through [`AccessTokenCache`].
struct StackitServiceAccount {
    key: Secret,
    settings: StackitSettings,
    api: ApiClient,
    variables: Variables,
}

answers! {
    struct StackitAccountKey {
        credentials: StackitKeyCredentials,
    }

    #[serde(rename_all = "camelCase")]
    struct StackitKeyCredentials {
        aud: String,
        iss: String,
        kid: String,
        sub: String,
        private_key: String,
        token_endpoint: String,
    }

    struct StackitServerList {
        items: Vec<StackitServer>,
    }

    #[serde(rename_all = "camelCase")]
    struct StackitServer {
        availability_zone: String,
        id: String,
        labels: BTreeMap<String, Value>,
        machine_type: String,
        name: String,
        nics: Vec<StackitNic>,
        power_status: String,
        status: String,
    }

    #[serde(rename_all = "camelCase")]
    struct StackitNic {
        network_name: String,
        ipv4: String,
        public_ip: String,
    }
}

impl StackitDiscovery {
    pub(super) fn new(settings: &StackitSettings, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        let variables = process_environment();
        Self::with_variables(settings, bytes_max, clock, variables)
    }

    /// Creates a discovery like [`Self::new`] that reads environment variables from `variables`.
    pub(super) fn with_variables(
        settings: &StackitSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
        variables: Variables,
    ) -> Self {
        let account = settings
            .service_account_key
            .as_ref()
            .map(|key| StackitServiceAccount {
                key: key.clone(),
                settings: settings.clone(),
                api: ApiClient::new(&settings.client, bytes_max),
                variables,
            });
        Self {
            api: ApiClient::new(&settings.client, bytes_max),
            settings: settings.clone(),
            tokens: account.map(|account| AccessTokenCache::new(account, clock)),
        }
    }
}

impl Refresh for StackitDiscovery {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<TargetGroup>, Error> {
        let s = &self.settings;
        let base = s.endpoint.trim_end_matches('/');
        let url = format!("{base}/v1/projects/{}/servers?details=true", s.project);
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(ACCEPT, json)]);
        if let Some(tokens) = &self.tokens {
            headers.insert(AUTHORIZATION, tokens.authorization_header().await?);
        }
        let answer = self.api.get(&url, &headers).await?;
        if answer.status != StatusCode::OK {
            if let Some(tokens) = &self.tokens {
                tokens.clear_cache().await;
            }
            let status = answer.status.as_u16();
            let text = String::from_utf8_lossy(&answer.body.bytes);
            let shown: String = text.chars().take(300).collect();
            return Err(invalid_response_error(format!(
                "unexpected status code {status}: {shown}"
            )));
        }
        let list: StackitServerList = answer.decode_json().await?;
        let servers = list.items.iter();
        Ok(servers
            .filter_map(|server| server.build_target(s))
            .collect())
    }
}

impl StackitServer {
    /// Builds the target of a server. Returns `None` if the server has no address.
    fn build_target(&self, settings: &StackitSettings) -> Option<TargetGroup> {
        let mut meta = MetaLabels::new("stackit");
        meta.set_all([
            ("project", settings.project.as_str()),
            ("id", &self.id),
            ("name", &self.name),
            ("availability_zone", &self.availability_zone),
            ("status", &self.status),
            ("power_status", &self.power_status),
            ("type", &self.machine_type),
        ]);
        let first = |of: fn(&StackitNic) -> &str| {
            let found = self.nics.iter().map(of);
            found.into_iter().find(|ip| !ip.is_empty())
        };
        let public = first(|nic| &nic.public_ip);
        for nic in &self.nics {
            let name = format!("private_ipv4_{}", sanitize(&nic.network_name));
            if !nic.ipv4.is_empty() {
                meta.set(&name, &nic.ipv4);
            }
        }
        meta.set("public_ipv4", public.unwrap_or_default());
        for (key, value) in &self.labels {
            if let Value::String(value) = value {
                meta.set(&format!("labelpresent_{}", sanitize(key)), "true");
                meta.set(&format!("label_{}", sanitize(key)), value);
            }
        }
        let address = public.or_else(|| first(|nic| &nic.ipv4))?;
        Some(meta.into_target(join_host_port(address, settings.port)))
    }
}

impl StackitServiceAccount {
    fn read_variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// Returns the private key from the first of these that has one: the settings, the environment,
    /// the credentials file, the service account key.
    async fn find_private_key(&self, key: &StackitAccountKey) -> Result<String, Error> {
        if let Some(key) = &self.settings.private_key {
            return reveal(key, "private key").await;
        }
        let mut path = self.read_variable("STACKIT_PRIVATE_KEY_PATH");
        let mut text = self.read_variable("STACKIT_PRIVATE_KEY");
        if path.is_none() && text.is_none() {
            let file = self.read_credentials().await;
            let of = |name: &str| {
                let value = file.get(name).and_then(Value::as_str);
                value.filter(|value| !value.is_empty()).map(str::to_owned)
            };
            path = of("STACKIT_PRIVATE_KEY_PATH");
            text = of("STACKIT_PRIVATE_KEY");
        }
        if let Some(path) = path {
            return reveal(&Secret::File(path.into()), "private key").await;
        }
        match text.unwrap_or_else(|| key.credentials.private_key.clone()) {
            key if key.is_empty() => Err(invalid_response_error(
                "no private key for the service account",
            )),
            key => Ok(key),
        }
    }

    /// Reads the credentials file. Returns `null` if there is none or it cannot be read.
    async fn read_credentials(&self) -> Value {
        let path = self.settings.credentials_file.clone();
        let path = path
            .or_else(|| {
                self.read_variable("STACKIT_CREDENTIALS_PATH")
                    .map(PathBuf::from)
            })
            .or_else(|| {
                let home = self.read_variable("HOME")?;
                Some(PathBuf::from(home).join(".stackit/credentials.json"))
            });
        let Some(path) = path else {
            return Value::Null;
        };
        let text = read_async(&path).await.unwrap_or_default();
        json::from_slice(&text).unwrap_or_default()
    }
}

impl AccessTokenIssuer for StackitServiceAccount {
    async fn issue_token(&self, now_ms: i64) -> Result<IssuedToken, Error> {
        let text = reveal(&self.key, "service account key").await?;
        let key: StackitAccountKey = json::from_slice(text.as_bytes()).map_err(|e| {
            invalid_response_error(format!("unmarshalling service account key: {e}"))
        })?;
        let id = ring::rand::generate::<[u8; 16]>(&SystemRandom::new());
        let id = id
            .map_err(|_| invalid_response_error("no randomness"))?
            .expose();
        let now = now_ms.div_euclid(1000);
        let claims = json!({
            "iss": key.credentials.iss,
            "sub": key.credentials.sub,
            "jti": format!("{:032x}", u128::from_be_bytes(id)),
            "aud": key.credentials.aud,
            "iat": now,
            "exp": now + STATEMENT_SECONDS,
        });
        let pem = self.find_private_key(&key).await?;
        let kid = &key.credentials.kid;
        let statement = sign_claims(&claims, pem.as_bytes(), kid, SigningAlgorithm::Rs512);
        let statement = statement.map_err(invalid_response_error)?;
        let custom = self.read_variable("STACKIT_TOKEN_BASEURL");
        let url = match (custom, key.credentials.token_endpoint.as_str()) {
            (Some(url), _) => url,
            (None, "") => TOKENS.to_owned(),
            (None, url) => url.to_owned(),
        };
        let body = format!(
            "assertion={}&grant_type={}",
            form_encode(&statement),
            form_encode(JWT_BEARER)
        );
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, form)]);
        let answer = self.api.post(&url, &headers, body.into()).await?;
        let token = IssuedToken::read_response(answer).await;
        token.map_err(|e| invalid_response_error(format!("get new access token: {e}")))
    }
}
