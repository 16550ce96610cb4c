//! Cache of access tokens: a token is requested when needed and reused until shortly before it
//! expires.
//!
//! The [`Issuer`] defines how a token is obtained: with a secret, a signed assertion or a managed
//! identity. Discoveries use the tokens directly, and HTTP clients of other crates through
//! [`Sign`].

use super::api::{Answer, header_value, wrong};
use super::json::answers;
use firn_http_client::{Sign, Signing, ToSign};
use firn_model::env::Clock;
use firn_model::error::Error;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::Mutex;

/// How long before its expiry a token is replaced, in milliseconds.
const MARGIN_MS: i64 = 5 * 60 * 1000;

/// An access token as issued, with its lifetime.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) text: String,
    /// Lifetime in milliseconds, from the time of the request.
    pub(super) life_ms: i64,
}

/// A source of access tokens, such as a service account.
pub(super) trait Issuer: Send + Sync + 'static {
    /// Requests a new token. `now_ms` is the current time in milliseconds, for signed assertions.
    fn issue(&self, now_ms: i64) -> impl Future<Output = Result<Token, Error>> + Send;
}

/// Access tokens of one issuer; the latest one is cached.
pub(super) struct Tokens<I> {
    issuer: I,
    clock: Arc<dyn Clock>,
    /// Cached token, with the time at which it is replaced. Locked while a token is requested, so
    /// that concurrent callers share one request.
    held: Mutex<Option<(Token, i64)>>,
}

answers! {
    struct Granted {
        access_token: String,
        /// Lifetime in seconds. Some servers send the number as a string.
        expires_in: serde_json::Value,
    }
}

impl Token {
    /// Decodes the response of a token endpoint. Fails if it contains no token.
    pub(super) async fn read(answer: Answer) -> Result<Self, Error> {
        let granted: Granted = answer.good()?.json().await?;
        if granted.access_token.is_empty() {
            return Err(wrong("no token in the answer"));
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

impl<I: Issuer> Tokens<I> {
    pub(super) fn new(issuer: I, clock: Arc<dyn Clock>) -> Self {
        Self {
            issuer,
            clock,
            held: Mutex::default(),
        }
    }

    /// Returns the value of an `Authorization` header with a valid token.
    pub(super) async fn header(&self) -> Result<HeaderValue, Error> {
        let now_ms = self.clock.now_ms();
        let mut held = self.held.lock().await;
        if let Some((token, end_ms)) = &*held
            && now_ms < *end_ms
        {
            return bearer(&token.text);
        }
        let token = self.issuer.issue(now_ms).await?;
        let header = bearer(&token.text)?;
        // A token with a short lifetime is used for half of it.
        let life_ms = (token.life_ms - MARGIN_MS).max(token.life_ms / 2);
        *held = Some((token, now_ms.saturating_add(life_ms)));
        Ok(header)
    }

    /// Drops the cached token, which a server may have rejected.
    pub(super) async fn forget(&self) {
        *self.held.lock().await = None;
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut value = header_value(&format!("Bearer {token}"))
        .map_err(|_| wrong("the token is not fit for a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl<I: Issuer> Sign for Tokens<I> {
    fn sign<'a>(&'a self, _: ToSign<'a>) -> Signing<'a> {
        Box::pin(async {
            Ok(HeaderMap::from_iter([(
                AUTHORIZATION,
                self.header().await?,
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

    impl Issuer for Numbered {
        async fn issue(&self, _: i64) -> Result<Token, Error> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Token {
                text: number.to_string(),
                life_ms: 60 * 60 * 1000,
            })
        }
    }

    #[tokio::test]
    async fn token_is_kept_until_shortly_before_its_end() {
        let clock = Arc::new(SimClock::default());
        let tokens = Tokens::new(Numbered(AtomicI64::new(0)), clock.clone());
        let mut got = Vec::new();
        for advance_minutes in [0, 54, 1, 54, 1] {
            clock.advance_ms(advance_minutes * 60 * 1000);
            got.push(tokens.header().await.unwrap());
        }
        tokens.forget().await;
        got.push(tokens.header().await.unwrap());
        assert_eq!(
            got,
            [
                "Bearer 0", "Bearer 0", "Bearer 1", "Bearer 1", "Bearer 2", "Bearer 3"
            ]
        );
    }
}
