//! Credentials: builds `Authorization` headers from secrets, and requests OAuth 2.0 tokens.

use super::assertion::sign;
use super::body::{self, BodyLimit, DecodedBody};
use super::exec::ExecTokenCache;
use super::places::ConnectionSlots;
use super::pool::ResponseBody;
use super::redirect::{REQUESTS_MAX, RedirectHop};
use super::secret::reveal_optional;
use super::settings::{AssertionSettings, AuthMethod, OAuth2Settings};
use super::transport::Transport;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use firn_model::error::Error;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use ring::rand::SystemRandom;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Characters that are encoded in forms and queries; the unreserved ones are not, as in Go.
const FORM: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Time before its expiry at which a token is no longer used. Go uses the same value.
pub(super) const EXPIRY_MARGIN: Duration = Duration::from_secs(10);

/// Lifetime of a client assertion in seconds. Prometheus uses the same value.
const STATEMENT_SECONDS: i64 = 600;

/// Grant type of a request with a signed assertion.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Maximum size in bytes of a token server's response. Tokens have a few thousand bytes.
const TOKEN_BYTES_MAX: u64 = 1 << 20;

/// Encodes a text as a value in a form or query; spaces become `+`.
pub fn form_encode(text: &str) -> String {
    form_encode_bytes(text.as_bytes())
}

fn form_encode_bytes(bytes: &[u8]) -> String {
    percent_encode(bytes, FORM).to_string().replace("%20", "+")
}

/// Builds the `Authorization` header of requests and caches the tokens that this needs.
#[derive(Debug)]
pub(super) struct RequestAuthorizer {
    auth: AuthMethod,
    tokens: Option<OAuth2TokenCache>,
    of_program: ExecTokenCache,
}

impl RequestAuthorizer {
    pub(super) fn new(auth: &AuthMethod) -> Self {
        let tokens = match auth {
            AuthMethod::OAuth2(settings) => Some(OAuth2TokenCache::new(settings)),
            _ => None,
        };
        Self {
            auth: auth.clone(),
            tokens,
            of_program: ExecTokenCache::default(),
        }
    }

    /// Returns the header, or `None` without authentication. Secrets are read each time, so that
    /// changed files take effect.
    pub(super) async fn authorization_header(&self) -> Result<Option<HeaderValue>, Error> {
        let value = match &self.auth {
            AuthMethod::None => return Ok(None),
            AuthMethod::Basic { username, password } => {
                let user = reveal_optional(username, "basic auth username").await?;
                let password = reveal_optional(password, "basic auth password").await?;
                encode_basic(&user, &password).into_bytes()
            }
            AuthMethod::Credentials {
                scheme,
                credentials,
            } => {
                let credentials = reveal_optional(credentials, "authorization credentials").await?;
                [scheme.as_bytes(), b" ", &credentials].concat()
            }
            AuthMethod::OAuth2(settings) => match &self.tokens {
                Some(tokens) => tokens.authorization_header(settings).await?.into_bytes(),
                None => return Ok(None),
            },
            AuthMethod::Exec(settings) => self
                .of_program
                .authorization_header(settings)
                .await?
                .into_bytes(),
        };
        let mut value = HeaderValue::from_bytes(value.trim_ascii_end())
            .map_err(|_| Error::unavailable("credentials are not fit for a header"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Returns the `Authorization` header for the `user:password` of a URL, which are percent-encoded.
pub(super) fn basic_header_from_url(user: &str) -> Result<HeaderValue, Error> {
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let decode = |text| percent_decode_str(text).collect::<Vec<u8>>();
    let text = encode_basic(&decode(user), &decode(password));
    HeaderValue::from_str(&text)
        .map_err(|_| Error::unavailable("credentials are not fit for a header"))
}

fn encode_basic(user: &[u8], password: &[u8]) -> String {
    let pair = [user, b":", password].concat();
    format!("Basic {}", BASE64_STANDARD.encode(pair))
}

/// How a client authenticates to a token server: with a secret or a signed assertion.
#[derive(Clone, Copy)]
enum OAuth2ClientAuth<'p> {
    SecretInHeader(&'p [u8]),
    SecretInForm(&'p [u8]),
    Statement(&'p str),
}

/// Builds and signs the client assertion. Claims in the config replace the standard ones.
fn sign_client_assertion(
    settings: &OAuth2Settings,
    assertion: &AssertionSettings,
    key: &[u8],
) -> Result<String, String> {
    let or = |text: &str, other: &str| match text {
        "" => other.to_owned(),
        text => text.to_owned(),
    };
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let id = ring::rand::generate::<[u8; 16]>(&SystemRandom::new());
    let id = id.map_err(|_| "no randomness".to_owned())?.expose();
    let mut claims = json!({
        "iss": or(&assertion.issuer, &settings.client_id),
        "sub": settings.client_id,
        "jti": format!("{:032x}", u128::from_be_bytes(id)),
        "aud": or(&assertion.audience, &settings.token_url),
        "iat": now,
        "exp": now + STATEMENT_SECONDS,
    });
    if !settings.scopes.is_empty() {
        claims["scope"] = settings.scopes.join(" ").into();
    }
    for (name, value) in assertion.claims.as_object().into_iter().flatten() {
        claims[name] = value.clone();
    }
    sign(&claims, key, &assertion.key_id, assertion.algorithm)
}

/// A token, with the secret and the expiry that limit its use.
#[derive(Debug)]
struct AccessToken {
    header: String,
    /// Secret with which the token was requested. A changed secret invalidates the token.
    secret: Vec<u8>,
    end: Option<Instant>,
}

/// OAuth 2.0 tokens of one client, requested when needed; the latest one is cached.
#[derive(Debug)]
struct OAuth2TokenCache {
    transport: Transport,
    /// Latest token. Locked while a token is requested, so that many targets share one request.
    newest: Mutex<Option<AccessToken>>,
}

#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    access_token: String,
    #[serde(default)]
    token_type: String,
    expires_in: Option<f64>,
}

impl OAuth2TokenCache {
    fn new(settings: &OAuth2Settings) -> Self {
        Self {
            transport: Transport::new(
                &settings.tls,
                &settings.proxy,
                true,
                ConnectionSlots::unlimited(),
            ),
            newest: Mutex::default(),
        }
    }

    async fn authorization_header(&self, settings: &OAuth2Settings) -> Result<String, Error> {
        let (secret, what) = match &settings.assertion {
            None => (&settings.client_secret, "oauth2 client secret"),
            Some(assertion) => (&assertion.key, "oauth2 client certificate key"),
        };
        let secret = reveal_optional(secret, what).await?;
        let mut newest = self.newest.lock().await;
        if let Some(token) = &*newest
            && token.secret == secret
            && token.end.is_none_or(|end| Instant::now() < end)
        {
            return Ok(token.header.clone());
        }
        let token = self.request_new_token(settings, secret).await?;
        let header = token.header.clone();
        *newest = Some(token);
        Ok(header)
    }

    async fn request_new_token(
        &self,
        settings: &OAuth2Settings,
        secret: Vec<u8>,
    ) -> Result<AccessToken, Error> {
        let (status, body) = match &settings.assertion {
            None => self.request_token_with_secret(settings, &secret).await?,
            Some(assertion) => {
                let statement = sign_client_assertion(settings, assertion, &secret);
                let statement =
                    statement.map_err(|e| Error::unavailable(format!("oauth2: {e}")))?;
                self.request_token(settings, OAuth2ClientAuth::Statement(&statement))
                    .await?
            }
        };
        let wrong =
            |what: String| Error::unavailable(format!("oauth2: cannot fetch token: {what}"));
        if !status.is_success() {
            return Err(wrong(format!("server returned HTTP status {status}")));
        }
        let answer: TokenResponse =
            serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
        if answer.access_token.is_empty() {
            return Err(wrong("server response missing access_token".into()));
        }
        let kind = match answer.token_type.to_ascii_lowercase().as_str() {
            "" | "bearer" => "Bearer",
            "mac" => "MAC",
            "basic" => "Basic",
            _ => answer.token_type.as_str(),
        };
        let life = answer
            .expires_in
            .filter(|seconds| *seconds > 0.0)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(AccessToken {
            header: format!("{kind} {}", answer.access_token),
            secret,
            end: life
                .and_then(|life| Instant::now().checked_add(life.saturating_sub(EXPIRY_MARGIN))),
        })
    }

    /// Requests a token with the secret in the `Authorization` header and, if the server rejects
    /// that, in the form. Servers differ in the supported method.
    async fn request_token_with_secret(
        &self,
        settings: &OAuth2Settings,
        secret: &[u8],
    ) -> Result<(StatusCode, Vec<u8>), Error> {
        match self
            .request_token(settings, OAuth2ClientAuth::SecretInHeader(secret))
            .await?
        {
            (status, _) if !status.is_success() => {
                self.request_token(settings, OAuth2ClientAuth::SecretInForm(secret))
                    .await
            }
            answer => Ok(answer),
        }
    }

    async fn request_token(
        &self,
        settings: &OAuth2Settings,
        proof: OAuth2ClientAuth<'_>,
    ) -> Result<(StatusCode, Vec<u8>), Error> {
        let failed = |e: String| {
            Error::unavailable(format!(
                "oauth2: cannot fetch token: Post \"{}\": {e}",
                settings.token_url
            ))
        };
        let grant = match proof {
            OAuth2ClientAuth::Statement(_) => JWT_BEARER,
            _ => "client_credentials",
        };
        // A grant type in the config takes precedence, as in upstream.
        let params = &settings.endpoint_params;
        let grant = params.get("grant_type").map_or(grant, String::as_str);
        let mut pairs = vec![("grant_type", grant.as_bytes())];
        let scopes = settings.scopes.join(" ");
        if !scopes.is_empty() {
            pairs.push(("scope", scopes.as_bytes()));
        }
        let others = params.iter().filter(|(name, _)| *name != "grant_type");
        pairs.extend(others.map(|(name, value)| (name.as_str(), value.as_bytes())));
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, form_type)]);
        match proof {
            OAuth2ClientAuth::SecretInHeader(secret) => {
                let (id, secret) = (form_encode(&settings.client_id), form_encode_bytes(secret));
                let value = HeaderValue::from_str(&encode_basic(id.as_bytes(), secret.as_bytes()));
                headers.insert(AUTHORIZATION, value.map_err(|e| failed(e.to_string()))?);
            }
            OAuth2ClientAuth::SecretInForm(secret) => {
                pairs.push(("client_id", settings.client_id.as_bytes()));
                pairs.push(("client_secret", secret));
            }
            OAuth2ClientAuth::Statement(statement) => {
                pairs.push(("assertion", statement.as_bytes()))
            }
        }
        let form: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{}={}", form_encode(name), form_encode_bytes(value)))
            .collect();
        let uri = settings.token_url.parse();
        let uri = uri.map_err(|e| failed(format!("{e}")))?;
        let hop = RedirectHop::new(Method::POST, uri, headers);
        let response = self.send(hop, form.join("&").into()).await;
        let response = response.map_err(failed)?;
        let status = response.status();
        let DecodedBody { bytes, .. } =
            body::read(response, BodyLimit::from_bytes_max(TOKEN_BYTES_MAX)).await?;
        Ok((status, bytes))
    }

    /// Sends a request and follows redirects, but never to another host, because the form may
    /// contain the secret.
    async fn send(
        &self,
        mut hop: RedirectHop,
        form: Bytes,
    ) -> Result<Response<ResponseBody>, String> {
        for _ in 0..REQUESTS_MAX {
            let request = hop.build_request(&form).map_err(|e| e.message)?;
            let response = self.transport.send(request).await?;
            if !hop.follow(response.status(), response.headers())? {
                return Ok(response);
            }
            if !hop.is_trusted {
                return Err(format!(
                    "token_url redirects to another host, {}: set token_url to it",
                    hop.uri
                ));
            }
        }
        Err(format!("stopped after {REQUESTS_MAX} redirects"))
    }
}
