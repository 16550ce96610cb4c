//! Google access tokens, from a service account key, user credentials or the metadata server.

use crate::api::{ApiClient, invalid_response_error};
use crate::environment::{Variables, process_environment};
use crate::json::{self, answers};
use crate::tokens::{AccessTokenCache, AccessTokenIssuer, IssuedToken};
use firn_http_client::named_files::read_async;
use firn_http_client::{HttpSettings, RequestSigner, SigningAlgorithm, form_encode, sign_claims};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// OAuth scope that permits writing metrics.
const WRITE_METRICS: &str = "https://www.googleapis.com/auth/monitoring.write";

/// Default host of the metadata server.
const METADATA: &str = "metadata.google.internal";

/// Header that the metadata server requires, as protection against forwarded requests.
const FLAVOR: HeaderName = HeaderName::from_static("metadata-flavor");

/// Timeout of a request to the metadata server. Outside of Google Cloud nothing answers at its
/// address.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Token URL, used if the credentials file contains none.
const TOKENS: &str = "https://oauth2.googleapis.com/token";

/// Lifetime of a signed assertion in seconds.
const STATEMENT_SECONDS: i64 = 3600;

/// Grant type of requests that exchange a signed JWT for a token.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Maximum size, in bytes, of a response with a token.
const BYTES_MAX: u64 = 1 << 20;

/// The `google_iam` key: how requests that write metrics are authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoogleIamSettings {
    /// The `credentials_file` key: file with the key of a service account.
    pub credentials_file: Option<PathBuf>,
}

impl GoogleIamSettings {
    /// Creates the signer that these settings describe. It adds an access token to each request and
    /// refreshes it before it expires.
    pub fn build_signer(&self, clock: Arc<dyn Clock>) -> Arc<dyn RequestSigner> {
        let account = GoogleAccount::new(WRITE_METRICS, self.credentials_file.clone());
        Arc::new(AccessTokenCache::new(account, clock))
    }
}

/// Requests access tokens for a service account, a user or the machine.
pub(super) struct GoogleAccount {
    scope: &'static str,
    /// Credentials file from the config; it takes precedence over the environment.
    file: Option<PathBuf>,
    api: ApiClient,
    variables: Variables,
}

answers! {
    struct GoogleCredentials {
        #[serde(rename = "type")]
        kind: String,
        client_email: String,
        private_key_id: String,
        private_key: String,
        token_uri: String,
        client_id: String,
        client_secret: String,
        refresh_token: String,
    }
}

impl GoogleAccount {
    /// Creates an account whose tokens are valid for `scope`. `file` replaces the credentials of
    /// the environment.
    pub(super) fn new(scope: &'static str, file: Option<PathBuf>) -> Self {
        let variables = process_environment();
        Self::with_variables(scope, file, variables)
    }

    /// Creates an account like [`Self::new`] that reads environment variables from `variables`.
    pub(super) fn with_variables(
        scope: &'static str,
        file: Option<PathBuf>,
        variables: Variables,
    ) -> Self {
        Self {
            scope,
            file,
            api: ApiClient::new(&HttpSettings::default(), BYTES_MAX),
            variables,
        }
    }

    fn read_variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// Reads the credentials file of the config, of the environment or of the user's home folder.
    /// Returns `None` if there is none.
    async fn find_credentials(&self) -> Result<Option<GoogleCredentials>, Error> {
        let named = self.file.clone();
        let variable = || {
            self.read_variable("GOOGLE_APPLICATION_CREDENTIALS")
                .map(PathBuf::from)
        };
        if let Some(path) = named.or_else(variable) {
            return read_credentials_file(&path).await.map(Some);
        }
        let Some(home) = self.read_variable("HOME") else {
            return Ok(None);
        };
        let usual = Path::new(&home).join(".config/gcloud/application_default_credentials.json");
        match tokio::fs::try_exists(&usual).await {
            Ok(true) => read_credentials_file(&usual).await.map(Some),
            _ => Ok(None),
        }
    }

    async fn request_token(
        &self,
        credentials: &GoogleCredentials,
        pairs: &[(&str, &str)],
    ) -> Result<IssuedToken, Error> {
        let url = match credentials.token_uri.as_str() {
            "" => TOKENS,
            url => url,
        };
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, form)]);
        let body: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}={}", form_encode(value)))
            .collect();
        let answer = self.api.post(url, &headers, body.join("&").into()).await?;
        IssuedToken::read_response(answer).await
    }

    async fn request_service_account_token(
        &self,
        credentials: &GoogleCredentials,
        now_ms: i64,
    ) -> Result<IssuedToken, Error> {
        let now = now_ms.div_euclid(1000);
        let audience = match credentials.token_uri.as_str() {
            "" => TOKENS,
            url => url,
        };
        let claims = json!({
            "iss": credentials.client_email,
            "scope": self.scope,
            "aud": audience,
            "iat": now,
            "exp": now + STATEMENT_SECONDS,
        });
        let (key, id) = (&credentials.private_key, &credentials.private_key_id);
        let statement = sign_claims(&claims, key.as_bytes(), id, SigningAlgorithm::Rs256);
        let statement = statement.map_err(invalid_response_error)?;
        let pairs = [
            ("assertion", statement.as_str()),
            ("grant_type", JWT_BEARER),
        ];
        self.request_token(credentials, &pairs).await
    }

    async fn request_user_token(
        &self,
        credentials: &GoogleCredentials,
    ) -> Result<IssuedToken, Error> {
        let pairs = [
            ("client_id", credentials.client_id.as_str()),
            ("client_secret", &credentials.client_secret),
            ("grant_type", "refresh_token"),
            ("refresh_token", &credentials.refresh_token),
        ];
        self.request_token(credentials, &pairs).await
    }

    async fn request_machine_token(&self) -> Result<IssuedToken, Error> {
        let host = self.read_variable("GCE_METADATA_HOST");
        let host = host.unwrap_or_else(|| METADATA.into());
        let url = format!(
            "http://{host}/computeMetadata/v1/instance/service-accounts/default/token?scopes={}",
            form_encode(self.scope)
        );
        let google = HeaderValue::from_static("Google");
        let headers = HeaderMap::from_iter([(FLAVOR, google)]);
        let asked = async { IssuedToken::read_response(self.api.get(&url, &headers).await?).await };
        let token = timeout(METADATA_TIMEOUT, asked).await;
        let token = token.unwrap_or_else(|_| Err(invalid_response_error("no answer")));
        token.map_err(|e| {
            invalid_response_error(format!(
                "google: could not find default credentials in config, environment, files or \
                 machine: {e}"
            ))
        })
    }
}

async fn read_credentials_file(path: &Path) -> Result<GoogleCredentials, Error> {
    let failed = |e: String| invalid_response_error(format!("{}: {e}", path.display()));
    let bytes = read_async(path).await;
    let bytes = bytes.map_err(|e| failed(e.to_string()))?;
    json::from_slice(&bytes).map_err(failed)
}

impl AccessTokenIssuer for GoogleAccount {
    async fn issue_token(&self, now_ms: i64) -> Result<IssuedToken, Error> {
        let Some(credentials) = self.find_credentials().await? else {
            return self.request_machine_token().await;
        };
        match credentials.kind.as_str() {
            "service_account" => {
                self.request_service_account_token(&credentials, now_ms)
                    .await
            }
            "authorized_user" if self.file.is_none() => self.request_user_token(&credentials).await,
            kind => Err(invalid_response_error(format!(
                "credentials of the type {kind:?} are not spoken: service_account and, of a user, \
                 authorized_user are"
            ))),
        }
    }
}
