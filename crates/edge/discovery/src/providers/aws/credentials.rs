//! Resolves AWS credentials from the sources of the AWS SDK, in the same order.
//!
//! ```text
//! config -> environment -> profile files -> web identity token -> container -> instance metadata
//!                                    ... then AssumeRole, if the config contains a role
//! ```
//!
//! Credentials are cached for five minutes, which is shorter than the minimum lifetime of temporary
//! credentials.

use super::request::{default_endpoint, sign_post, wrap_failure};
use super::settings::AwsSettings;
use super::sign::SigV4Scope;
use crate::api::{ApiClient, invalid_response_error, parse_header_value};
use crate::environment::Variables;
use crate::json;
use crate::once::send_once;
use crate::xml;
use firn_http_client::form_encode;
use firn_http_client::named_files::read_text_async;
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

/// Time after which credentials are resolved again, in milliseconds.
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
pub(in super::super) struct AwsCredentials {
    pub(in super::super) access_key: String,
    pub(in super::super) secret_key: String,
    /// Session token, which is sent with requests that use temporary credentials; empty for
    /// permanent keys.
    pub(in super::super) session: String,
}

/// Resolves credentials from the provider chain and caches them for [`LIFE_MS`].
pub(super) struct AwsCredentialChain {
    settings: AwsSettings,
    variables: Variables,
    clock: Arc<dyn Clock>,
    /// Cached credentials, with the time (in milliseconds) at which they were resolved.
    held: Option<(AwsCredentials, i64)>,
}

/// Credentials in the JSON format of the container endpoint and the instance metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AwsCredentialResponse {
    access_key_id: String,
    secret_access_key: String,
    token: String,
}

impl From<AwsCredentialResponse> for AwsCredentials {
    fn from(answered: AwsCredentialResponse) -> Self {
        Self {
            access_key: answered.access_key_id,
            secret_key: answered.secret_access_key,
            session: answered.token,
        }
    }
}

impl AwsCredentialChain {
    pub(super) fn new(settings: &AwsSettings, variables: Variables, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings: settings.clone(),
            variables,
            clock,
            held: None,
        }
    }

    /// Drops the cached credentials, so that the next request resolves them again.
    pub(super) fn clear_cache(&mut self) {
        self.held = None;
    }

    /// Returns the credentials that sign the next request, from the cache if they are recent
    /// enough.
    pub(super) async fn get_credentials(
        &mut self,
        api: &ApiClient,
        region: &str,
    ) -> Result<AwsCredentials, Error> {
        let now_ms = self.clock.now_ms();
        if let Some((held, since)) = &self.held
            && now_ms - since < LIFE_MS
        {
            return Ok(held.clone());
        }
        let own = self.resolve_own_credentials(api, region).await?;
        let keys = if self.settings.role_arn.is_empty() {
            own
        } else {
            self.assume_role(api, region, &own).await?
        };
        self.held = Some((keys.clone(), now_ms));
        Ok(keys)
    }

    async fn resolve_own_credentials(
        &self,
        api: &ApiClient,
        region: &str,
    ) -> Result<AwsCredentials, Error> {
        let s = &self.settings;
        if !s.access_key.is_empty() && !s.secret_key.is_empty() {
            return Ok(AwsCredentials {
                access_key: s.access_key.clone(),
                secret_key: s.secret_key.clone(),
                session: String::new(),
            });
        }
        if s.profile.is_empty()
            && let Some(keys) = self.read_environment()
        {
            return Ok(keys);
        }
        if let Some(keys) = self.read_files().await {
            return Ok(keys);
        }
        if let (Some(file), Some(role)) = (
            self.read_variable("AWS_WEB_IDENTITY_TOKEN_FILE"),
            self.read_variable("AWS_ROLE_ARN"),
        ) {
            return self.assume_workload_role(api, region, &file, &role).await;
        }
        match self.fetch_from_container(api).await? {
            Some(keys) => Ok(keys),
            None => self.fetch_from_instance(api).await,
        }
    }

    fn read_variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    fn read_environment(&self) -> Option<AwsCredentials> {
        Some(AwsCredentials {
            access_key: self.read_variable("AWS_ACCESS_KEY_ID")?,
            secret_key: self.read_variable("AWS_SECRET_ACCESS_KEY")?,
            session: self.read_variable("AWS_SESSION_TOKEN").unwrap_or_default(),
        })
    }

    /// Reads a setting of the selected profile from the user's `credentials` and `config`
    /// files.
    async fn read_profile_key(&self, key: &str) -> Option<String> {
        let name = match self.settings.profile.as_str() {
            "" => self.read_variable("AWS_PROFILE"),
            name => Some(name.to_owned()),
        };
        let name = name.unwrap_or_else(|| "default".into());
        for (variable, file) in [
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            ("AWS_CONFIG_FILE", "config"),
        ] {
            let path = match self.read_variable(variable) {
                Some(path) => PathBuf::from(path),
                None => PathBuf::from(self.read_variable("HOME")?)
                    .join(".aws")
                    .join(file),
            };
            let text = read_text_async(&path).await.unwrap_or_default();
            let value = find_ini_value(&text, &name, key);
            if value.is_some() {
                return value;
            }
        }
        None
    }

    async fn read_files(&self) -> Option<AwsCredentials> {
        Some(AwsCredentials {
            access_key: self.read_profile_key("aws_access_key_id").await?,
            secret_key: self.read_profile_key("aws_secret_access_key").await?,
            session: self
                .read_profile_key("aws_session_token")
                .await
                .unwrap_or_default(),
        })
    }

    fn sts_endpoint(&self, region: &str) -> String {
        let known = self.read_variable("AWS_ENDPOINT_URL_STS");
        known.unwrap_or_else(|| default_endpoint("sts", region))
    }

    /// Exchanges a web identity token for credentials (`AssumeRoleWithWebIdentity`). This request
    /// is not signed.
    async fn assume_workload_role(
        &self,
        api: &ApiClient,
        region: &str,
        file: &str,
        role: &str,
    ) -> Result<AwsCredentials, Error> {
        let token = read_text_async(Path::new(file)).await;
        let token = token.map_err(|e| invalid_response_error(format!("{file}: {e}")))?;
        let body = encode_form(&[
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", role),
            ("RoleSessionName", "firn"),
            ("WebIdentityToken", token.trim()),
        ]);
        let url = format!("{}/", self.sts_endpoint(region));
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(FORM))]);
        let answer = api
            .post(&url, &headers, body.into())
            .await?
            .require_success();
        parse_sts_credentials(
            answer
                .map_err(|e| wrap_failure("cannot assume role", &e))?
                .text()?,
        )
    }

    /// Exchanges `keys` for temporary credentials of the role in the config (`AssumeRole`).
    async fn assume_role(
        &self,
        api: &ApiClient,
        region: &str,
        keys: &AwsCredentials,
    ) -> Result<AwsCredentials, Error> {
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
        let (base, body) = (self.sts_endpoint(region), encode_form(&pairs));
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(FORM))]);
        let scope = SigV4Scope {
            region,
            service: "sts",
            now_ms: self.clock.now_ms(),
        };
        sign_post(&mut headers, &base, &body, keys, &scope)?;
        let answer = api.post(&format!("{base}/"), &headers, body.into()).await?;
        let answer = answer
            .require_success()
            .map_err(|e| wrap_failure("cannot assume role", &e))?;
        parse_sts_credentials(answer.text()?)
    }

    /// Returns the credentials of the container in which this process runs, or `None` if the
    /// environment names no container endpoint.
    async fn fetch_from_container(&self, api: &ApiClient) -> Result<Option<AwsCredentials>, Error> {
        let path = self.read_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = self.read_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let Some(url) = path.map(|path| format!("{CONTAINER}{path}")).or(full) else {
            return Ok(None);
        };
        let mut headers = HeaderMap::new();
        let mut token = self.read_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        if let Some(file) = self.read_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            let read = read_text_async(Path::new(&file)).await;
            token = Some(read.map_err(|e| invalid_response_error(format!("{file}: {e}")))?);
        }
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, parse_header_value(token.trim())?);
        }
        let answered: AwsCredentialResponse = api
            .get(&url, &headers)
            .await?
            .require_success()?
            .decode_json()
            .await?;
        Ok(Some(answered.into()))
    }

    /// Returns the credentials of the IAM role of this instance, from the instance metadata
    /// service.
    async fn fetch_from_instance(&self, api: &ApiClient) -> Result<AwsCredentials, Error> {
        let path = "/latest/meta-data/iam/security-credentials/";
        let asked = async {
            let role = self.get_metadata(api, path).await?;
            let text = self
                .get_metadata(api, &format!("{path}{}", role.trim()))
                .await?;
            let answered: AwsCredentialResponse = json::from_slice(text.as_bytes())
                .map_err(|e| invalid_response_error(format!("cannot read the answer: {e}")))?;
            Ok(answered.into())
        };
        let keys: Result<AwsCredentials, Error> = asked.await;
        keys.map_err(|e| {
            wrap_failure(
                "no credentials in config, environment, files or machine",
                &e,
            )
        })
    }

    /// Reads `path` from the instance metadata service, with a session token (IMDSv2).
    async fn get_metadata(&self, api: &ApiClient, path: &str) -> Result<String, Error> {
        let base = self
            .read_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")
            .unwrap_or_else(|| METADATA.into());
        let base = base.trim_end_matches('/');
        let asked = async {
            let token = request_session_token(base).await?;
            let mut headers = HeaderMap::new();
            headers.insert("x-aws-ec2-metadata-token", parse_header_value(&token)?);
            let answer = api
                .get(&format!("{base}{path}"), &headers)
                .await?
                .require_success()?;
            Ok(answer.text()?.to_owned())
        };
        let answer = timeout(METADATA_TIMEOUT, asked).await;
        answer.unwrap_or_else(|_| {
            Err(invalid_response_error(
                "no answer from the metadata of this machine",
            ))
        })
    }

    /// Returns the region from the settings, the environment, the profile files or the instance
    /// metadata, whichever has it first.
    pub(super) async fn resolve_region(&self, api: &ApiClient) -> Result<String, Error> {
        let named = match self.settings.region.as_str() {
            "" => self
                .read_variable("AWS_REGION")
                .or_else(|| self.read_variable("AWS_DEFAULT_REGION")),
            region => Some(region.to_owned()),
        };
        if let Some(region) = named {
            return Ok(region);
        }
        if let Some(region) = self.read_profile_key("region").await {
            return Ok(region);
        }
        let asked = self
            .get_metadata(api, "/latest/meta-data/placement/region")
            .await;
        asked.map_err(|e| {
            let why = wrap_failure("failed to get region from IMDS", &e);
            wrap_failure("could not determine AWS region", &why)
        })
    }
}

/// Requests a session token of the instance metadata service. It needs a PUT request, which the
/// shared HTTP client does not support.
async fn request_session_token(base: &str) -> Result<String, Error> {
    let uri: Uri = base
        .parse()
        .map_err(|e| invalid_response_error(format!("{base:?}: {e}")))?;
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|e| Error::unavailable(e.to_string()))?;
    let request = Request::put("/latest/api/token")
        .header(HOST, host)
        .header("x-aws-ec2-metadata-token-ttl-seconds", "300")
        .body(Empty::<Bytes>::new())
        .map_err(|e| invalid_response_error(e.to_string()))?;
    let answer = send_once(stream, request, BYTES_MAX)
        .await?
        .require_success()?;
    Ok(answer.text()?.trim().to_owned())
}

/// Extracts the credentials from the XML response of the security token service.
fn parse_sts_credentials(answer: &str) -> Result<AwsCredentials, Error> {
    let document = xml::parse(answer)?;
    let mut nodes = document.descendants();
    let found = nodes.find(|node| node.tag_name().name() == "Credentials");
    let keys = found.ok_or_else(|| invalid_response_error("no credentials in the answer"))?;
    let text = |name| xml::child_text(keys, name).to_owned();
    Ok(AwsCredentials {
        access_key: text("AccessKeyId"),
        secret_key: text("SecretAccessKey"),
        session: text("SessionToken"),
    })
}

/// Encodes parameters as an HTML form body (`application/x-www-form-urlencoded`).
pub(super) fn encode_form(pairs: &[(&str, &str)]) -> String {
    let coded = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", form_encode(value)));
    coded.collect::<Vec<_>>().join("&")
}

/// Returns the value of `key` in the section of `profile` in the text of an INI file.
fn find_ini_value(text: &str, profile: &str, key: &str) -> Option<String> {
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
