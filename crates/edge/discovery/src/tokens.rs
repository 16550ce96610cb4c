//! Cache of access tokens: a token is requested when needed and reused until shortly before it
//! expires.
//!
//! The [`AccessTokenIssuer`] defines how a token is obtained: with a secret, a signed assertion or
//! a managed identity. Discoveries use the tokens directly, and HTTP clients of other crates
//! through [`RequestSigner`].

use super::api::{ApiResponse, invalid_response_error, parse_header_value};
use super::json::answers;
use firn_http_client::{RequestSigner, Signing, UnsignedRequest};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Time before its expiry at which a token is replaced, in milliseconds.
const MARGIN_MS: i64 = 5 * 60 * 1000;

/// An access token as issued, with its lifetime.
#[derive(Clone)]
pub(super) struct IssuedToken {
    pub(super) text: String,
    /// Lifetime in milliseconds, from the time of the request.
    pub(super) life_ms: i64,
}

/// A source of access tokens, such as a service account.
pub(super) trait AccessTokenIssuer: Send + Sync + 'static {
    /// Requests a new token. `now_ms` is the current time in milliseconds, for signed assertions.
    fn issue_token(&self, now_ms: i64) -> impl Future<Output = Result<IssuedToken, Error>> + Send;
}

/// Access tokens of one issuer; the latest one is cached.
pub(super) struct AccessTokenCache<I> {
    issuer: I,
    clock: Arc<dyn Clock>,
    /// Cached token, with the time at which it is replaced. Locked while a token is requested, so
    /// that concurrent callers share one request.
    held: Mutex<Option<(IssuedToken, i64)>>,
}

answers! {
    struct AccessTokenResponse {
        access_token: String,
        /// Lifetime in seconds. Some servers send the number as a string.
        expires_in: serde_json::Value,
    }
}

impl IssuedToken {
    /// Decodes the response of a token endpoint. Fails if it contains no token.
    pub(super) async fn read_response(answer: ApiResponse) -> Result<Self, Error> {
        let granted: AccessTokenResponse = answer.require_success()?.decode_json().await?;
        if granted.access_token.is_empty() {
            return Err(invalid_response_error("no token in the answer"));
        }
        let seconds = match &granted.expires_in {
            serde_json::Value::String(text) => text.parse().unwrap_or(0.0),
            number => number.as_f64().unwrap_or(0.0),
        };
        Ok(Self {
            text: granted.access_token,
            life_ms: (seconds * 1000.0) as i64,
        })
    }
}

impl<I: AccessTokenIssuer> AccessTokenCache<I> {
    pub(super) fn new(issuer: I, clock: Arc<dyn Clock>) -> Self {
        Self {
            issuer,
            clock,
            held: Mutex::default(),
        }
    }

    /// Returns the value of an `Authorization` header with a valid token.
    pub(super) async fn authorization_header(&self) -> Result<HeaderValue, Error> {
        let now_ms = self.clock.now_ms();
        let mut held = self.held.lock().await;
        if let Some((token, end_ms)) = &*held
            && now_ms < *end_ms
        {
            return build_bearer_header(&token.text);
        }
        let token = self.issuer.issue_token(now_ms).await?;
        let header = build_bearer_header(&token.text)?;
        // A token with a short lifetime is used for half of it.
        let life_ms = (token.life_ms - MARGIN_MS).max(token.life_ms / 2);
        *held = Some((token, now_ms.saturating_add(life_ms)));
        Ok(header)
    }

    /// Drops the cached token, which a server may have rejected.
    pub(super) async fn clear_cache(&self) {
        *self.held.lock().await = None;
    }
}

fn build_bearer_header(token: &str) -> Result<HeaderValue, Error> {
    let mut value = parse_header_value(&format!("Bearer {token}"))
        .map_err(|_| invalid_response_error("the token is not fit for a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl<I: AccessTokenIssuer> RequestSigner for AccessTokenCache<I> {
    fn sign<'a>(&'a self, _: UnsignedRequest<'a>) -> Signing<'a> {
        Box::pin(async {
            Ok(HeaderMap::from_iter([(
                AUTHORIZATION,
                self.authorization_header().await?,
            )]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimClock;
    use std::sync::atomic::{AtomicI64, Ordering};

    /// Issuer of tokens with consecutive numbers, each with a lifetime of one hour.
    struct Numbered(AtomicI64);

    impl AccessTokenIssuer for Numbered {
        async fn issue_token(&self, _: i64) -> Result<IssuedToken, Error> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            Ok(IssuedToken {
                text: number.to_string(),
                life_ms: 60 * 60 * 1000,
            })
        }
    }

    #[tokio::test]
    async fn token_is_kept_until_shortly_before_its_end() {
        let clock = Arc::new(SimClock::default());
        let tokens = AccessTokenCache::new(Numbered(AtomicI64::new(0)), clock.clone());
        let mut got = Vec::new();
        for advance_minutes in [0, 54, 1, 54, 1] {
            clock.advance_ms(advance_minutes * 60 * 1000);
            got.push(tokens.authorization_header().await.unwrap());
        }
        tokens.clear_cache().await;
        got.push(tokens.authorization_header().await.unwrap());
        assert_eq!(
            got,
            [
                "Bearer 0", "Bearer 0", "Bearer 1", "Bearer 1", "Bearer 2", "Bearer 3"
            ]
        );
    }
}
