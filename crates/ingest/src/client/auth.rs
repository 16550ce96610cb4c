//! Credentials: the headers that are made of secrets.

use super::body::{self, Body, BodyLimit};
use super::places::Places;
use super::secret::reveal_optional;
use super::settings::{Auth, OAuth2Settings};
use super::transport::Transport;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firn_model::error::Error;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// What may stand as it is in a form and in a query; Go's choice.
const FORM: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A token that ends so soon is as good as none; Go's choice.
const EXPIRY_MARGIN: Duration = Duration::from_secs(10);

/// Bytes of an answer of a token server: tokens have a few thousand.
const TOKEN_BYTES_MAX: u64 = 1 << 20;

/// Text as a form and a query hold it.
pub fn form_encode(text: &str) -> String {
    utf8_percent_encode(text, FORM)
        .to_string()
        .replace("%20", "+")
}

/// Makes the `Authorization` header.
#[derive(Debug)]
pub(super) struct Authorizer {
    auth: Auth,
    tokens: Option<Tokens>,
}

impl Authorizer {
    pub(super) fn new(auth: &Auth) -> Self {
        let tokens = match auth {
            Auth::OAuth2(settings) => Some(Tokens::new(settings)),
            _ => None,
        };
        Self {
            auth: auth.clone(),
            tokens,
        }
    }

    /// The header, if there is to be one.
    pub(super) async fn header(&self) -> Result<Option<HeaderValue>, Error> {
        let text = match &self.auth {
            Auth::None => return Ok(None),
            Auth::Basic { username, password } => {
                let user = reveal_optional(username, "basic auth username").await?;
                let password = reveal_optional(password, "basic auth password").await?;
                basic(&user, &password)
            }
            Auth::Credentials {
                scheme,
                credentials,
            } => {
                let credentials = reveal_optional(credentials, "authorization credentials").await?;
                format!("{scheme} {credentials}")
            }
            Auth::OAuth2(settings) => match &self.tokens {
                Some(tokens) => tokens.header(settings).await?,
                None => return Ok(None),
            },
        };
        let mut value = HeaderValue::from_str(text.trim_end())
            .map_err(|_| Error::unavailable("credentials are not fit for a header"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn basic(user: &str, password: &str) -> String {
    format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{user}:{password}"))
    )
}

/// A token and when to ask for the next.
#[derive(Debug)]
struct Token {
    header: String,
    /// The secret that it was bought with.
    secret: String,
    end: Option<Instant>,
}

/// The tokens of one client, bought when needed.
#[derive(Debug)]
struct Tokens {
    transport: Transport,
    /// Held while a token is bought, so that many targets buy one.
    newest: Mutex<Option<Token>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    access_token: String,
    #[serde(default)]
    token_type: String,
    expires_in: Option<f64>,
}

impl Tokens {
    fn new(settings: &OAuth2Settings) -> Self {
        Self {
            transport: Transport::new(&settings.tls, &settings.proxy, true, Places::unlimited()),
            newest: Mutex::default(),
        }
    }

    async fn header(&self, settings: &OAuth2Settings) -> Result<String, Error> {
        let secret = reveal_optional(&settings.client_secret, "oauth2 client secret").await?;
        let mut newest = self.newest.lock().await;
        if let Some(token) = &*newest
            && token.secret == secret
            && token.end.is_none_or(|end| Instant::now() < end)
        {
            return Ok(token.header.clone());
        }
        let token = self.buy(settings, secret).await?;
        let header = token.header.clone();
        *newest = Some(token);
        Ok(header)
    }

    /// Asks with the secret in a header and, if that is refused, in the form: servers differ.
    async fn buy(&self, settings: &OAuth2Settings, secret: String) -> Result<Token, Error> {
        let in_header = self.ask(settings, &secret, true).await?;
        let (status, body) = match in_header {
            (status, _) if !status.is_success() => self.ask(settings, &secret, false).await?,
            answer => answer,
        };
        let wrong =
            |what: String| Error::unavailable(format!("oauth2: cannot fetch token: {what}"));
        if !status.is_success() {
            return Err(wrong(format!("server returned HTTP status {status}")));
        }
        let answer: TokenAnswer =
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
        Ok(Token {
            header: format!("{kind} {}", answer.access_token),
            secret,
            end: life
                .and_then(|life| Instant::now().checked_add(life.saturating_sub(EXPIRY_MARGIN))),
        })
    }

    async fn ask(
        &self,
        settings: &OAuth2Settings,
        secret: &str,
        is_in_header: bool,
    ) -> Result<(StatusCode, Vec<u8>), Error> {
        let failed = |e: String| {
            Error::unavailable(format!(
                "oauth2: cannot fetch token: Post \"{}\": {e}",
                settings.token_url
            ))
        };
        let mut pairs = vec![("grant_type", "client_credentials")];
        let scopes = settings.scopes.join(" ");
        if !scopes.is_empty() {
            pairs.push(("scope", &scopes));
        }
        let params = settings.endpoint_params.iter();
        pairs.extend(params.map(|(name, value)| (name.as_str(), value.as_str())));
        let mut request = Request::post(&settings.token_url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if is_in_header {
            let (id, secret) = (form_encode(&settings.client_id), form_encode(secret));
            request = request.header(AUTHORIZATION, basic(&id, &secret));
        } else {
            pairs.push(("client_id", &settings.client_id));
            pairs.push(("client_secret", secret));
        }
        let form: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{}={}", form_encode(name), form_encode(value)))
            .collect();
        let request = request
            .body(Full::new(Bytes::from(form.join("&"))))
            .map_err(|e| failed(e.to_string()))?;
        let response = self.transport.send(request).await.map_err(failed)?;
        let status = response.status();
        let Body { bytes, .. } = body::read(response, BodyLimit::bytes(TOKEN_BYTES_MAX)).await?;
        Ok((status, bytes))
    }
}
