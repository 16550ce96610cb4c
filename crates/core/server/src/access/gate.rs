//! Checks the credentials of requests: passwords of users, bearer tokens and the request rate.

use super::passwords::{GivenPassword, PasswordChecker};
use super::rate::TokenBucket;
use super::rules::{AccessRules, WebUser, token_digest};
use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firn_model::access::AccessGrant;
use firn_model::env::Env;
use firn_model::sync::{read, write};
use std::sync::{Arc, RwLock};

/// Reason for the rejection of a request by [`AccessGate::admit`], which decides the status of the
/// response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessRefusal {
    /// The request has no credentials, or invalid ones.
    Unknown,
    /// Too many passwords are waiting to be checked.
    Busy,
}

/// Credentials from the `Authorization` header of a request, not validated yet.
#[derive(Debug, PartialEq, Eq)]
enum RequestCredentials<'a> {
    Basic { user: Vec<u8>, password: Vec<u8> },
    Bearer(&'a [u8]),
}

/// Authenticates requests with the current rules. One instance exists per server; the rules are
/// replaced by each reload of the configuration.
pub(crate) struct AccessGate {
    rules: RwLock<Arc<AccessRules>>,
    passwords: PasswordChecker,
    bucket: TokenBucket,
    env: Env,
}

impl AccessGate {
    /// Creates an instance without rules, which admits all requests until [`AccessGate::set`] is
    /// called.
    pub(crate) fn new(env: &Env) -> Self {
        Self {
            rules: RwLock::default(),
            passwords: PasswordChecker::new(&*env.rng),
            bucket: TokenBucket::default(),
            env: env.clone(),
        }
    }

    /// Replaces the rules. Requests that were already admitted are not affected.
    pub(crate) fn set(&self, rules: Arc<AccessRules>) {
        *write(&self.rules) = rules;
    }

    /// Returns the rules that are currently in force. The caller uses them for the whole request.
    pub(crate) fn rules(&self) -> Arc<AccessRules> {
        read(&self.rules).clone()
    }

    /// Returns the number of passwords that wait to be checked, for metrics.
    pub(crate) fn waiting(&self) -> usize {
        self.passwords.waiting()
    }

    /// Takes a request from the rate limit. Returns whether it may be processed now.
    pub(crate) fn is_within_rate(&self, rules: &AccessRules) -> bool {
        let now = self.env.clock.monotonic();
        rules
            .rate_limit
            .is_none_or(|limit| self.bucket.take_token(limit, now))
    }

    /// Returns the grant of the request with these headers; `None` if no credentials are required.
    /// Waits for a password check if its result is not cached.
    pub(crate) async fn admit(
        &self,
        rules: &AccessRules,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<AccessGrant>>, AccessRefusal> {
        if rules.is_open() {
            return Ok(None);
        }
        let grant = match credentials(headers) {
            Some(RequestCredentials::Bearer(token)) => {
                let grant = rules.tokens.get(&token_digest(token));
                grant.cloned().ok_or(AccessRefusal::Unknown)?
            }
            Some(RequestCredentials::Basic { user, password }) => {
                self.user(rules, &user, &password).await?
            }
            None => return Err(AccessRefusal::Unknown),
        };
        Ok(Some(grant))
    }

    async fn user(
        &self,
        rules: &AccessRules,
        user: &[u8],
        password: &[u8],
    ) -> Result<Arc<AccessGrant>, AccessRefusal> {
        let name = std::str::from_utf8(user).ok();
        let known = name.and_then(|name| rules.users.get(name));
        // For an unknown user, a check of the slowest hash takes the same time, so that the
        // duration does not reveal user names.
        let Some(against) = known.or_else(|| find_slowest_user(rules)) else {
            return Err(AccessRefusal::Unknown);
        };
        let given = GivenPassword {
            user,
            password,
            hash: &against.hash,
            is_user: known.is_some(),
        };
        let is_right = match self.passwords.cached_result(&given) {
            Some(is_right) => is_right,
            None => {
                let checked = self.passwords.check(&given).await;
                checked.ok_or(AccessRefusal::Busy)?
            }
        };
        match known {
            Some(user) if is_right => Ok(user.grant.clone()),
            _ => Err(AccessRefusal::Unknown),
        }
    }
}

/// Returns the user whose password takes longest to check, according to the cost of the hash.
fn find_slowest_user(rules: &AccessRules) -> Option<&WebUser> {
    let cost = |user: &&WebUser| {
        let parts = user.hash.parse::<bcrypt::HashParts>();
        parts.map_or(0, |parts| parts.get_cost())
    };
    rules.users.values().max_by_key(cost)
}

/// Parses the `Authorization` header; `None` if it is missing, malformed or of an unsupported
/// scheme.
fn credentials(headers: &HeaderMap) -> Option<RequestCredentials<'_>> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let space = value.iter().position(|b| *b == b' ')?;
    let (scheme, rest) = (&value[..space], &value[space + 1..]);
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(RequestCredentials::Bearer(rest.trim_ascii()));
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let mut user = STANDARD.decode(rest).ok()?;
    let colon = user.iter().position(|b| *b == b':')?;
    let password = user.split_off(colon + 1);
    user.truncate(colon);
    Some(RequestCredentials::Basic { user, password })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use firn_model::access::AccessScope;
    use firn_model::env::real;

    fn headers(authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !authorization.is_empty() {
            let value = HeaderValue::from_str(authorization).unwrap();
            headers.insert(header::AUTHORIZATION, value);
        }
        headers
    }

    fn rules() -> AccessRules {
        let mut rules = AccessRules::default();
        let user = WebUser {
            hash: bcrypt::hash("secret", 4).unwrap(),
            grant: Arc::new(AccessGrant::whole("user \"alice\"".into())),
        };
        rules.users.insert("alice".into(), user);
        let grant = AccessGrant {
            scopes: [AccessScope::Read].into_iter().collect(),
            ..AccessGrant::whole("token \"panel\"".into())
        };
        let digest = token_digest(b"0123456789abcdef");
        rules.tokens.insert(digest, Arc::new(grant));
        rules
    }

    #[tokio::test]
    async fn admit_takes_what_the_rules_know_and_nothing_else() {
        let access = AccessGate::new(&real::system_env().unwrap());
        let rules = rules();
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let cases = [
            (basic("alice:secret"), Ok("user \"alice\"")),
            (
                basic("alice:secret").replace("Basic", "bASIC"),
                Ok("user \"alice\""),
            ),
            ("Bearer 0123456789abcdef".into(), Ok("token \"panel\"")),
            ("bearer  0123456789abcdef".into(), Ok("token \"panel\"")),
            (basic("alice:Secret"), Err(AccessRefusal::Unknown)),
            (basic("alice:"), Err(AccessRefusal::Unknown)),
            (basic("alice"), Err(AccessRefusal::Unknown)),
            (basic("bob:secret"), Err(AccessRefusal::Unknown)),
            (basic(":secret"), Err(AccessRefusal::Unknown)),
            ("Basic !!!".into(), Err(AccessRefusal::Unknown)),
            ("Basic".into(), Err(AccessRefusal::Unknown)),
            ("Bearer 0123456789abcde".into(), Err(AccessRefusal::Unknown)),
            ("Bearer".into(), Err(AccessRefusal::Unknown)),
            ("Digest x".into(), Err(AccessRefusal::Unknown)),
            (String::new(), Err(AccessRefusal::Unknown)),
        ];
        for (authorization, want) in cases {
            let got = access.admit(&rules, &headers(&authorization)).await;
            let got = got.map(|grant| grant.unwrap().name.clone());
            assert_eq!(got, want.map(str::to_owned), "{authorization}");
        }
        let open = AccessRules::default();
        assert_eq!(access.admit(&open, &headers("")).await, Ok(None));
    }
}
