//! Resolves AWS credentials from the sources of the AWS SDK, in the same order.
//!
//! ```text
//! config -> environment -> profile files -> web identity token -> container -> instance metadata
//!                                    ... then AssumeRole, if the config contains a role
//! ```
//!
//! Credentials are cached for five minutes, which is shorter than the minimum lifetime of temporary
//! credentials.

use super::request::{add_signature, endpoint, failed};
use super::settings::AwsSettings;
use super::sign::Scope;
use crate::api::{Api, header_value, wrong};
use crate::environment::Variables;
use crate::json;
use crate::once::ask_once;
use crate::xml;
use firn_http_client::form_encode;
use firn_http_client::named_files::read_text_aside;
use firn_model::env::Clock;
use firn_model::error::Error;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Request, Uri};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long resolved credentials are reused before they are resolved again, in milliseconds.
const LIFE_MS: i64 = 5 * 60 * 1000;

/// Timeout of a request to the instance metadata service. Outside of AWS nothing answers at its
/// address, so the timeout must be short.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);

/// Default base URL of the EC2 instance metadata service; an environment variable can replace it.
const METADATA: &str = "http://169.254.169.254";

/// Base URL of the ECS endpoint that returns the credentials of a container.
const CONTAINER: &str = "http://169.254.170.2";

/// Maximum size, in bytes, of a response of the metadata service.
const BYTES_MAX: u64 = 1 << 20;

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// AWS access keys, with a session token if they are temporary.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Credentials {
    pub(in super::super) access_key: String,
    pub(in super::super) secret_key: String,
    /// Session token, which is sent with requests that use temporary credentials; empty for
    /// permanent keys.
    pub(in super::super) session: String,
}

/// Resolves credentials from the provider chain and caches them for [`LIFE_MS`].
pub(super) struct Chain {
    settings: AwsSettings,
    variables: Variables,
    clock: Arc<dyn Clock>,
    /// Cached credentials, with the time (in milliseconds) at which they were resolved.
    held: Option<(Credentials, i64)>,
}

/// Credentials in the JSON format of the container endpoint and the instance metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answered {
    access_key_id: String,
    secret_access_key: String,
    token: String,
}

impl From<Answered> for Credentials {
    fn from(answered: Answered) -> Self {
        Self {
            access_key: answered.access_key_id,
            secret_key: answered.secret_access_key,
            session: answered.token,
        }
    }
}

impl Chain {
    pub(super) fn new(settings: &AwsSettings, variables: Variables, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings: settings.clone(),
            variables,
            clock,
            held: None,
        }
    }

    /// Drops the cached credentials, so that the next request resolves them again.
    pub(super) fn forget(&mut self) {
        self.held = None;
    }

    /// Returns the credentials that sign the next request, from the cache if they are recent
    /// enough.
    pub(super) async fn credentials(
        &mut self,
        api: &Api,
        region: &str,
    ) -> Result<Credentials, Error> {
        let now_ms = self.clock.now_ms();
        if let Some((held, since)) = &self.held
            && now_ms - since < LIFE_MS
        {
            return Ok(held.clone());
        }
        let own = self.own(api, region).await?;
        let keys = match self.settings.role_arn.is_empty() {
            true => own,
            false => self.assume(api, region, &own).await?,
        };
        self.held = Some((keys.clone(), now_ms));
        Ok(keys)
    }

    async fn own(&self, api: &Api, region: &str) -> Result<Credentials, Error> {
        let s = &self.settings;
        if !s.access_key.is_empty() && !s.secret_key.is_empty() {
            return Ok(Credentials {
                access_key: s.access_key.clone(),
                secret_key: s.secret_key.clone(),
                session: String::new(),
            });
        }
        if s.profile.is_empty()
            && let Some(keys) = self.of_environment()
        {
            return Ok(keys);
        }
        if let Some(keys) = self.of_files().await {
            return Ok(keys);
        }
        if let (Some(file), Some(role)) = (
            self.variable("AWS_WEB_IDENTITY_TOKEN_FILE"),
            self.variable("AWS_ROLE_ARN"),
        ) {
            return self.of_workload(api, region, &file, &role).await;
        }
        match self.of_container(api).await? {
            Some(keys) => Ok(keys),
            None => self.of_machine(api).await,
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    fn of_environment(&self) -> Option<Credentials> {
        Some(Credentials {
            access_key: self.variable("AWS_ACCESS_KEY_ID")?,
            secret_key: self.variable("AWS_SECRET_ACCESS_KEY")?,
            session: self.variable("AWS_SESSION_TOKEN").unwrap_or_default(),
        })
    }

    /// Reads a setting of the selected profile from the user's `credentials` and `config` files.
    async fn profile(&self, key: &str) -> Option<String> {
        let name = match self.settings.profile.as_str() {
            "" => self.variable("AWS_PROFILE"),
            name => Some(name.to_owned()),
        };
        let name = name.unwrap_or_else(|| "default".into());
        for (variable, file) in [
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            ("AWS_CONFIG_FILE", "config"),
        ] {
            let path = match self.variable(variable) {
                Some(path) => PathBuf::from(path),
                None => PathBuf::from(self.variable("HOME")?)
                    .join(".aws")
                    .join(file),
            };
            let text = read_text_aside(&path).await.unwrap_or_default();
            let value = value_in(&text, &name, key);
            if value.is_some() {
                return value;
            }
        }
        None
    }

    async fn of_files(&self) -> Option<Credentials> {
        Some(Credentials {
            access_key: self.profile("aws_access_key_id").await?,
            secret_key: self.profile("aws_secret_access_key").await?,
            session: self.profile("aws_session_token").await.unwrap_or_default(),
        })
    }

    fn sts(&self, region: &str) -> String {
        let known = self.variable("AWS_ENDPOINT_URL_STS");
        known.unwrap_or_else(|| endpoint("sts", region))
    }

    /// Exchanges a web identity token for credentials (`AssumeRoleWithWebIdentity`). This request
    /// is not signed.
    async fn of_workload(
        &self,
        api: &Api,
        region: &str,
        file: &str,
        role: &str,
    ) -> Result<Credentials, Error> {
        let token = read_text_aside(Path::new(file)).await;
        let token = token.map_err(|e| wrong(format!("{file}: {e}")))?;
        let body = form(&[
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", role),
            ("RoleSessionName", "firn"),
            ("WebIdentityToken", token.trim()),
        ]);
        let url = format!("{}/", self.sts(region));
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(FORM))]);
        let answer = api.post(&url, &headers, body.into()).await?.good();
        keys_in(
            answer
                .map_err(|e| failed("cannot assume role", &e))?
                .text()?,
        )
    }

    /// Exchanges `keys` for temporary credentials of the role in the config (`AssumeRole`).
    async fn assume(
        &self,
        api: &Api,
        region: &str,
        keys: &Credentials,
    ) -> Result<Credentials, Error> {
        let s = &self.settings;
        let mut pairs = vec![
            ("Action", "AssumeRole"),
            ("Version", "2011-06-15"),
            ("RoleArn", s.role_arn.as_str()),
            ("RoleSessionName", "firn"),
        ];
        if !s.external_id.is_empty() {
            pairs.push(("ExternalId", &s.external_id));
        }
        let (base, body) = (self.sts(region), form(&pairs));
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(FORM))]);
        let scope = Scope {
            region,
            service: "sts",
            now_ms: self.clock.now_ms(),
        };
        add_signature(&mut headers, &base, &body, keys, &scope)?;
        let answer = api.post(&format!("{base}/"), &headers, body.into()).await?;
        let answer = answer
            .good()
            .map_err(|e| failed("cannot assume role", &e))?;
        keys_in(answer.text()?)
    }

    /// Returns the credentials of the container in which this process runs, or `None` if the
    /// environment names no container endpoint.
    async fn of_container(&self, api: &Api) -> Result<Option<Credentials>, Error> {
        let path = self.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = self.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let Some(url) = path.map(|path| format!("{CONTAINER}{path}")).or(full) else {
            return Ok(None);
        };
        let mut headers = HeaderMap::new();
        let mut token = self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        if let Some(file) = self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            let read = read_text_aside(Path::new(&file)).await;
            token = Some(read.map_err(|e| wrong(format!("{file}: {e}")))?);
        }
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, header_value(token.trim())?);
        }
        let answered: Answered = api.get(&url, &headers).await?.good()?.json().await?;
        Ok(Some(answered.into()))
    }

    /// Returns the credentials of the IAM role of this instance, from the instance metadata
    /// service.
    async fn of_machine(&self, api: &Api) -> Result<Credentials, Error> {
        let path = "/latest/meta-data/iam/security-credentials/";
        let asked = async {
            let role = self.metadata(api, path).await?;
            let text = self
                .metadata(api, &format!("{path}{}", role.trim()))
                .await?;
            let answered: Answered = json::from_slice(text.as_bytes())
                .map_err(|e| wrong(format!("cannot read the answer: {e}")))?;
            Ok(answered.into())
        };
        let keys: Result<Credentials, Error> = asked.await;
        keys.map_err(|e| {
            failed(
                "no credentials in config, environment, files or machine",
                &e,
            )
        })
    }

    /// Reads `path` from the instance metadata service, with a session token (IMDSv2).
    async fn metadata(&self, api: &Api, path: &str) -> Result<String, Error> {
        let base = self
            .variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")
            .unwrap_or_else(|| METADATA.into());
        let base = base.trim_end_matches('/');
        let asked = async {
            let token = session_token(base).await?;
            let mut headers = HeaderMap::new();
            headers.insert("x-aws-ec2-metadata-token", header_value(&token)?);
            let answer = api.get(&format!("{base}{path}"), &headers).await?.good()?;
            Ok(answer.text()?.to_owned())
        };
        let answer = timeout(METADATA_TIMEOUT, asked).await;
        answer.unwrap_or_else(|_| Err(wrong("no answer from the metadata of this machine")))
    }

    /// Returns the region from the settings, the environment, the profile files or the instance
    /// metadata, whichever has it first.
    pub(super) async fn region(&self, api: &Api) -> Result<String, Error> {
        let named = match self.settings.region.as_str() {
            "" => self
                .variable("AWS_REGION")
                .or_else(|| self.variable("AWS_DEFAULT_REGION")),
            region => Some(region.to_owned()),
        };
        if let Some(region) = named {
            return Ok(region);
        }
        if let Some(region) = self.profile("region").await {
            return Ok(region);
        }
        let asked = self
            .metadata(api, "/latest/meta-data/placement/region")
            .await;
        asked.map_err(|e| {
            let why = failed("failed to get region from IMDS", &e);
            failed("could not determine AWS region", &why)
        })
    }
}

/// Requests a session token of the instance metadata service. It needs a PUT request, which the
/// shared HTTP client does not support.
async fn session_token(base: &str) -> Result<String, Error> {
    let uri: Uri = base.parse().map_err(|e| wrong(format!("{base:?}: {e}")))?;
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|e| Error::unavailable(e.to_string()))?;
    let request = Request::put("/latest/api/token")
        .header(HOST, host)
        .header("x-aws-ec2-metadata-token-ttl-seconds", "300")
        .body(Empty::<Bytes>::new())
        .map_err(|e| wrong(e.to_string()))?;
    let answer = ask_once(stream, request, BYTES_MAX).await?.good()?;
    Ok(answer.text()?.trim().to_owned())
}

/// Extracts the credentials from the XML response of the security token service.
fn keys_in(answer: &str) -> Result<Credentials, Error> {
    let document = xml::parse(answer)?;
    let mut nodes = document.descendants();
    let found = nodes.find(|node| node.tag_name().name() == "Credentials");
    let keys = found.ok_or_else(|| wrong("no credentials in the answer"))?;
    let text = |name| xml::text(keys, name).to_owned();
    Ok(Credentials {
        access_key: text("AccessKeyId"),
        secret_key: text("SecretAccessKey"),
        session: text("SessionToken"),
    })
}

/// Encodes parameters as an HTML form body (`application/x-www-form-urlencoded`).
pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    let coded = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", form_encode(value)));
    coded.collect::<Vec<_>>().join("&")
}

/// Returns the value of `key` in the section of `profile` in the text of an INI file.
fn value_in(text: &str, profile: &str, key: &str) -> Option<String> {
    let mut is_inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let name = section.trim();
            is_inside = name.strip_prefix("profile ").unwrap_or(name).trim() == profile;
        } else if let Some((name, value)) = line.split_once('=')
            && is_inside
            && name.trim() == key
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}
