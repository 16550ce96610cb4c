//! Access tokens of Microsoft Entra ID, from a client secret, a certificate, a managed identity or
//! a workload identity.

use super::certificate::AzureClientCertificate;
use crate::api::{ApiClient, invalid_response_error, parse_header_value};
use crate::environment::{Variables, process_environment};
use crate::tokens::{AccessTokenCache, AccessTokenIssuer, IssuedToken};
use firn_http_client::named_files::read_async;
use firn_http_client::{HttpSettings, RequestSigner, Secret, form_encode, reveal};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Base URL of the Azure instance metadata service, which issues tokens for managed identities.
const MACHINE: &str = "http://169.254.169.254";

/// Timeout of a request to the instance metadata service. Outside of Azure nothing answers at its
/// address.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(5);

/// Default path of the workload identity token, used if the environment does not set it.
const WORKLOAD_TOKEN: &str = "/var/run/secrets/azure/tokens/azure-identity-token";

/// Assertion type of requests that authenticate with a signed JWT.
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Maximum size, in bytes, of a response with a token.
const BYTES_MAX: u64 = 1 << 20;

/// The Azure cloud environment, which determines the authority that issues tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AzureCloud {
    /// `AzurePublic`: the public cloud, which is the default.
    #[default]
    Public,
    /// `AzureGovernment`: the cloud for agencies of the US government.
    Government,
    /// `AzureChina`: the cloud operated in China.
    China,
}

/// The identity for which tokens are requested. Empty ids are replaced by those in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AzureIdentity {
    /// An application that is registered at Microsoft Entra ID and authenticates with a client
    /// secret.
    Secret {
        /// The `tenant_id` key: directory (tenant) in which the application is registered.
        tenant: String,
        /// The `client_id` key: id of the registered application.
        client: String,
        /// The `client_secret` key: secret of the application, read for each token.
        secret: Secret,
    },
    /// An application that authenticates with a certificate and its private key.
    Certificate {
        /// The `tenant_id` key: directory (tenant) in which the application is registered.
        tenant: String,
        /// The `client_id` key: id of the registered application.
        client: String,
        /// The `certificate_path` key: file with the certificate, in PEM or PKCS #12.
        file: PathBuf,
        /// The `certificate_key_path` key: file with the private key, if it is separate.
        key_file: Option<PathBuf>,
        /// The `certificate_password` key: password of the certificate file; empty for none.
        password: Secret,
        /// The `send_certificate_chain` key: send all certificates, not only the thumbprint of the
        /// first.
        sends_chain: bool,
    },
    /// The managed identity of the machine or service in which this process runs.
    Managed {
        /// The `client_id` key: id of a user-assigned identity; empty for the system-assigned one.
        client: String,
    },
    /// A Kubernetes workload that exchanges its service account token for an access token.
    Workload {
        /// The `tenant_id` key: directory (tenant) of the application; empty for that in the
        /// environment.
        tenant: String,
        /// The `client_id` key: id of the application; empty for that in the environment.
        client: String,
        /// The `token_file_path` key: file with the service account token; `None` for that in the
        /// environment.
        file: Option<PathBuf>,
    },
    /// The first available identity of the environment, in this order: client secret, certificate,
    /// workload identity, managed identity.
    Sdk {
        /// The `tenant_id` key: directory (tenant) that is used if the environment names none.
        tenant: String,
    },
}

/// The credentials of an application that authenticates with a certificate, for one request of a
/// token.
#[derive(Clone, Copy)]
struct AzureCertificateLogin<'a> {
    tenant: &'a str,
    client: &'a str,
    file: &'a Path,
    key_file: Option<&'a Path>,
    password: &'a Secret,
    sends_chain: bool,
}

/// The `azuread` key of remote write: how requests to Azure services are authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureAdSettings {
    /// The `cloud` key: environment whose authority issues the tokens.
    pub cloud: AzureCloud,
    /// Identity for which tokens are requested, with its credentials.
    pub identity: AzureIdentity,
    /// The `scope` key: scope of the tokens; empty for the default scope of Azure Monitor metrics.
    pub scope: String,
}

impl AzureAdSettings {
    /// Creates the signer that these settings describe. It adds an access token to each request and
    /// refreshes it before it expires.
    pub fn build_signer(&self, clock: Arc<dyn Clock>) -> Arc<dyn RequestSigner> {
        let scope = match self.scope.as_str() {
            "" => self.cloud.metrics_scope(),
            scope => scope,
        };
        let account =
            AzureTokenIssuer::new(self.cloud, &self.identity, scope, &HttpSettings::default());
        Arc::new(AccessTokenCache::new(account, clock))
    }
}

impl AzureCloud {
    /// Returns the base URL of the authority that issues tokens in this cloud.
    fn authority_url(self) -> &'static str {
        match self {
            Self::Public => "https://login.microsoftonline.com",
            Self::Government => "https://login.microsoftonline.us",
            Self::China => "https://login.chinacloudapi.cn",
        }
    }

    fn metrics_scope(self) -> &'static str {
        match self {
            Self::Public => "https://monitor.azure.com//.default",
            Self::Government => "https://monitor.azure.us//.default",
            Self::China => "https://monitor.azure.cn//.default",
        }
    }
}

/// Issuer of access tokens for one identity and one scope, used through [`AccessTokenCache`].
pub(super) struct AzureTokenIssuer {
    pub(super) authority: String,
    identity: AzureIdentity,
    scope: String,
    api: ApiClient,
    pub(super) variables: Variables,
}

impl AzureTokenIssuer {
    /// Creates an account whose tokens are valid for `scope`. Requests use the HTTP settings
    /// `client`.
    pub(super) fn new(
        cloud: AzureCloud,
        identity: &AzureIdentity,
        scope: &str,
        client: &HttpSettings,
    ) -> Self {
        Self {
            authority: cloud.authority_url().to_owned(),
            identity: identity.clone(),
            scope: scope.to_owned(),
            api: ApiClient::new(client, BYTES_MAX),
            variables: process_environment(),
        }
    }

    fn read_variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// Returns the configured value, or the environment variable `name` if the value is empty.
    /// Fails if both are empty.
    fn value_or_variable(&self, value: &str, name: &str) -> Result<String, Error> {
        match value {
            "" => self
                .read_variable(name)
                .ok_or_else(|| invalid_response_error(format!("no {name} in the environment"))),
            value => Ok(value.to_owned()),
        }
    }

    fn token_url(&self, tenant: &str) -> String {
        format!("{}/{tenant}/oauth2/v2.0/token", self.authority)
    }

    /// Requests a token from the authority. `proof` contains the form parameters that authenticate
    /// the client.
    async fn request_token(
        &self,
        tenant: &str,
        client: &str,
        proof: &[(&str, &str)],
    ) -> Result<IssuedToken, Error> {
        let url = self.token_url(tenant);
        let mut pairs = vec![
            ("client_id", client),
            ("grant_type", "client_credentials"),
            ("scope", &self.scope),
        ];
        pairs.extend(proof);
        let body: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}={}", form_encode(value)))
            .collect();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, form)]);
        let answer = self.api.post(&url, &headers, body.join("&").into()).await?;
        IssuedToken::read_response(answer).await
    }

    /// Requests a token with an assertion that a certificate signs. The files are read every time,
    /// so that replaced certificates take effect.
    async fn request_certificate_token(
        &self,
        login: AzureCertificateLogin<'_>,
        now_ms: i64,
    ) -> Result<IssuedToken, Error> {
        let read = async |path: &Path, what| {
            let read = read_async(path).await;
            read.map_err(|e| {
                invalid_response_error(format!("failed to read {what} {}: {e}", path.display()))
            })
        };
        let mut data = read(login.file, "certificate file").await?;
        if let Some(key) = login.key_file {
            data.push(b'\n');
            data.extend(read(key, "private key file").await?);
        }
        let password = reveal(login.password, "certificate password").await?;
        let parsed = AzureClientCertificate::parse_certificate(&data, &password);
        let parsed = parsed.map_err(|e| {
            invalid_response_error(format!("failed to parse certificate data: {e}"))
        })?;
        let AzureCertificateLogin { tenant, client, .. } = login;
        let audience = self.token_url(tenant);
        let statement = parsed.sign_assertion(client, &audience, now_ms / 1000, login.sends_chain);
        let statement = statement.map_err(invalid_response_error)?;
        let proof = [
            ("client_assertion", statement.as_str()),
            ("client_assertion_type", JWT_BEARER),
        ];
        self.request_token(tenant, client, &proof).await
    }

    async fn request_workload_token(
        &self,
        tenant: &str,
        client: &str,
        file: Option<PathBuf>,
    ) -> Result<IssuedToken, Error> {
        let named = || {
            self.read_variable("AZURE_FEDERATED_TOKEN_FILE")
                .map(PathBuf::from)
        };
        let file = file.or_else(named).unwrap_or_else(|| WORKLOAD_TOKEN.into());
        let statement = reveal(&Secret::File(file), "token of the workload").await?;
        let tenant = self.value_or_variable(tenant, "AZURE_TENANT_ID")?;
        let client = self.value_or_variable(client, "AZURE_CLIENT_ID")?;
        let proof = [
            ("client_assertion", statement.as_str()),
            ("client_assertion_type", JWT_BEARER),
        ];
        self.request_token(&tenant, &client, &proof).await
    }

    /// Requests a token from the managed identity endpoint of this machine or of the service in
    /// which this process runs.
    async fn request_managed_token(&self, client: &str) -> Result<IssuedToken, Error> {
        let resource = self.scope.strip_suffix("/.default").unwrap_or(&self.scope);
        let service = (
            self.read_variable("IDENTITY_ENDPOINT"),
            self.read_variable("IDENTITY_HEADER"),
        );
        let mut headers = HeaderMap::new();
        let (base, version) = match service {
            (Some(url), Some(secret)) => {
                let name = HeaderName::from_static("x-identity-header");
                headers.insert(name, parse_header_value(&secret)?);
                (url, "2019-08-01")
            }
            _ => {
                let name = HeaderName::from_static("metadata");
                headers.insert(name, HeaderValue::from_static("true"));
                let host = self.read_variable("AZURE_POD_IDENTITY_AUTHORITY_HOST");
                let host = host.unwrap_or_else(|| MACHINE.into());
                let host = host.trim_end_matches('/');
                (
                    format!("{host}/metadata/identity/oauth2/token"),
                    "2018-02-01",
                )
            }
        };
        let resource = form_encode(resource);
        let mut url = format!("{base}?api-version={version}&resource={resource}");
        if !client.is_empty() {
            url += &format!("&client_id={}", form_encode(client));
        }
        let asked = async { IssuedToken::read_response(self.api.get(&url, &headers).await?).await };
        let token = timeout(MACHINE_TIMEOUT, asked).await;
        let token = token.unwrap_or_else(|_| Err(invalid_response_error("no answer")));
        token.map_err(|e| {
            invalid_response_error(format!("cannot get the token of this machine: {e}"))
        })
    }

    async fn request_sdk_token(&self, tenant: &str, now_ms: i64) -> Result<IssuedToken, Error> {
        if let (Some(secret), Some(client)) = (
            self.read_variable("AZURE_CLIENT_SECRET"),
            self.read_variable("AZURE_CLIENT_ID"),
        ) {
            // The environment takes precedence over the config, as in the library that upstream
            // uses.
            let named = self.read_variable("AZURE_TENANT_ID");
            let tenant = named.unwrap_or_else(|| tenant.to_owned());
            let proof = [("client_secret", secret.as_str())];
            return self.request_token(&tenant, &client, &proof).await;
        }
        if let (Some(file), Some(client)) = (
            self.read_variable("AZURE_CLIENT_CERTIFICATE_PATH"),
            self.read_variable("AZURE_CLIENT_ID"),
        ) {
            let named = self.read_variable("AZURE_TENANT_ID");
            let tenant = named.unwrap_or_else(|| tenant.to_owned());
            let password = self.read_variable("AZURE_CLIENT_CERTIFICATE_PASSWORD");
            let password = Secret::Inline(password.unwrap_or_default());
            let sends_chain = self.read_variable("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN");
            let login = AzureCertificateLogin {
                tenant: &tenant,
                client: &client,
                file: Path::new(&file),
                key_file: None,
                password: &password,
                sends_chain: sends_chain.is_some_and(|value| value == "1" || value == "true"),
            };
            return self.request_certificate_token(login, now_ms).await;
        }
        if self.read_variable("AZURE_FEDERATED_TOKEN_FILE").is_some() {
            return self.request_workload_token(tenant, "", None).await;
        }
        let client = self.read_variable("AZURE_CLIENT_ID").unwrap_or_default();
        self.request_managed_token(&client).await
    }
}

impl AccessTokenIssuer for AzureTokenIssuer {
    async fn issue_token(&self, now_ms: i64) -> Result<IssuedToken, Error> {
        let token = match &self.identity {
            AzureIdentity::Secret {
                tenant,
                client,
                secret,
            } => {
                let secret = reveal(secret, "client secret").await?;
                let proof = [("client_secret", secret.as_str())];
                self.request_token(tenant, client, &proof).await
            }
            AzureIdentity::Certificate {
                tenant,
                client,
                file,
                key_file,
                password,
                sends_chain,
            } => {
                let login = AzureCertificateLogin {
                    tenant,
                    client,
                    file,
                    key_file: key_file.as_deref(),
                    password,
                    sends_chain: *sends_chain,
                };
                self.request_certificate_token(login, now_ms).await
            }
            AzureIdentity::Managed { client } => self.request_managed_token(client).await,
            AzureIdentity::Workload {
                tenant,
                client,
                file,
            } => {
                self.request_workload_token(tenant, client, file.clone())
                    .await
            }
            AzureIdentity::Sdk { tenant } => self.request_sdk_token(tenant, now_ms).await,
        };
        token.map_err(|e| invalid_response_error(format!("Failed to get access token: {e}")))
    }
}
