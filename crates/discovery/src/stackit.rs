//! Discovery of the servers of a STACKIT project.
//!
//! ```text
//! service account key -> signed assertion -> access token -> list of servers
//! ```
//!
//! The behaviour follows upstream's `discovery/stackit`, STACKIT's API, and the order in which its
//! SDK looks for the private key.

use super::api::{Api, wrong};
use super::discover::Refresh;
use super::group::Group;
use super::json::{self, answers};
use super::meta::{Meta, host_port, sanitize};
use super::tokens::{Issuer, Token, Tokens};
use crate::environment::{Variables, of_process};
use firn_http_client::named_files::read_aside;
use firn_http_client::{HttpSettings, Secret, SigningAlgorithm, form_encode, reveal, sign_claims};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::StatusCode;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use ring::rand::SystemRandom;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Token URL, used if the service account key contains none.
const TOKENS: &str = "https://service-account.api.stackit.cloud/token";

/// Lifetime of a signed assertion in seconds.
const STATEMENT_SECONDS: i64 = 3600;

/// Grant type of requests that exchange a signed JWT for a token.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

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

/// Discovery of STACKIT servers; each refresh lists all servers of the project.
pub(super) struct Servers {
    settings: StackitSettings,
    api: Api,
    tokens: Option<Tokens<Account>>,
}

/// Issuer of access tokens for a service account, used through [`Tokens`].
struct Account {
    key: Secret,
    settings: StackitSettings,
    api: Api,
    variables: Variables,
}

answers! {
    struct Key {
        credentials: KeyCredentials,
    }

    #[serde(rename_all = "camelCase")]
    struct KeyCredentials {
        aud: String,
        iss: String,
        kid: String,
        sub: String,
        private_key: String,
        token_endpoint: String,
    }

    struct List {
        items: Vec<Server>,
    }

    #[serde(rename_all = "camelCase")]
    struct Server {
        availability_zone: String,
        id: String,
        labels: BTreeMap<String, Value>,
        machine_type: String,
        name: String,
        nics: Vec<Nic>,
        power_status: String,
        status: String,
    }

    #[serde(rename_all = "camelCase")]
    struct Nic {
        network_name: String,
        ipv4: String,
        public_ip: String,
    }
}

impl Servers {
    pub(super) fn new(settings: &StackitSettings, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        let variables = of_process();
        Self::with(settings, bytes_max, clock, variables)
    }

    /// Creates a discovery like [`Self::new`] that reads environment variables from `variables`.
    pub(super) fn with(
        settings: &StackitSettings,
        bytes_max: u64,
        clock: Arc<dyn Clock>,
        variables: Variables,
    ) -> Self {
        let account = settings.service_account_key.as_ref().map(|key| Account {
            key: key.clone(),
            settings: settings.clone(),
            api: Api::new(&settings.client, bytes_max),
            variables,
        });
        Self {
            api: Api::new(&settings.client, bytes_max),
            settings: settings.clone(),
            tokens: account.map(|account| Tokens::new(account, clock)),
        }
    }
}

impl Refresh for Servers {
    fn interval(&self) -> Duration {
        self.settings.refresh
    }

    fn name(&self) -> String {
        self.settings.endpoint.clone()
    }

    async fn refresh(&mut self) -> Result<Vec<Group>, Error> {
        let s = &self.settings;
        let base = s.endpoint.trim_end_matches('/');
        let url = format!("{base}/v1/projects/{}/servers?details=true", s.project);
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(ACCEPT, json)]);
        if let Some(tokens) = &self.tokens {
            headers.insert(AUTHORIZATION, tokens.header().await?);
        }
        let answer = self.api.get(&url, &headers).await?;
        if answer.status != StatusCode::OK {
            if let Some(tokens) = &self.tokens {
                tokens.forget().await;
            }
            let status = answer.status.as_u16();
            let text = String::from_utf8_lossy(&answer.body.bytes);
            let shown: String = text.chars().take(300).collect();
            return Err(wrong(format!("unexpected status code {status}: {shown}")));
        }
        let list: List = answer.json().await?;
        let servers = list.items.iter();
        Ok(servers.filter_map(|server| server.target(s)).collect())
    }
}

impl Server {
    /// Builds the target of a server. Returns `None` if the server has no address.
    fn target(&self, settings: &StackitSettings) -> Option<Group> {
        let mut meta = Meta::new("stackit");
        meta.set_all([
            ("project", settings.project.as_str()),
            ("id", &self.id),
            ("name", &self.name),
            ("availability_zone", &self.availability_zone),
            ("status", &self.status),
            ("power_status", &self.power_status),
            ("type", &self.machine_type),
        ]);
        let first = |of: fn(&Nic) -> &str| {
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
        Some(meta.at(host_port(address, settings.port)))
    }
}

impl Account {
    fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// Returns the private key from the first of these that has one: the settings, the environment,
    /// the credentials file, the service account key.
    async fn private_key(&self, key: &Key) -> Result<String, Error> {
        if let Some(key) = &self.settings.private_key {
            return reveal(key, "private key").await;
        }
        let mut path = self.variable("STACKIT_PRIVATE_KEY_PATH");
        let mut text = self.variable("STACKIT_PRIVATE_KEY");
        if path.is_none() && text.is_none() {
            let file = self.credentials().await;
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
            key if key.is_empty() => Err(wrong("no private key for the service account")),
            key => Ok(key),
        }
    }

    /// Reads the credentials file. Returns `null` if there is none or it cannot be read.
    async fn credentials(&self) -> Value {
        let path = self.settings.credentials_file.clone();
        let path = path
            .or_else(|| self.variable("STACKIT_CREDENTIALS_PATH").map(PathBuf::from))
            .or_else(|| {
                let home = self.variable("HOME")?;
                Some(PathBuf::from(home).join(".stackit/credentials.json"))
            });
        let Some(path) = path else {
            return Value::Null;
        };
        let text = read_aside(&path).await.unwrap_or_default();
        json::from_slice(&text).unwrap_or_default()
    }
}

impl Issuer for Account {
    async fn issue(&self, now_ms: i64) -> Result<Token, Error> {
        let text = reveal(&self.key, "service account key").await?;
        let key: Key = json::from_slice(text.as_bytes())
            .map_err(|e| wrong(format!("unmarshalling service account key: {e}")))?;
        let id = ring::rand::generate::<[u8; 16]>(&SystemRandom::new());
        let id = id.map_err(|_| wrong("no randomness"))?.expose();
        let now = now_ms.div_euclid(1000);
        let claims = json!({
            "iss": key.credentials.iss,
            "sub": key.credentials.sub,
            "jti": format!("{:032x}", u128::from_be_bytes(id)),
            "aud": key.credentials.aud,
            "iat": now,
            "exp": now + STATEMENT_SECONDS,
        });
        let pem = self.private_key(&key).await?;
        let kid = &key.credentials.kid;
        let statement = sign_claims(&claims, pem.as_bytes(), kid, SigningAlgorithm::Rs512);
        let statement = statement.map_err(wrong)?;
        let custom = self.variable("STACKIT_TOKEN_BASEURL");
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
        let token = Token::read(answer).await;
        token.map_err(|e| wrong(format!("get new access token: {e}")))
    }
}
