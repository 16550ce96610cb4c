//! Access rules from the configuration: users, tokens and their grants.

use axum::http::{HeaderName, HeaderValue};
use firn_model::matcher::Matcher;
use firn_model::tenant::TenantId;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Permission that a route requires. Users and tokens are granted a set of them in the
/// configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessScope {
    /// No particular permission: valid credentials are sufficient. For routes that reveal nothing
    /// about the data.
    Any,
    /// Permission to read data and the status of the server.
    Read,
    /// Permission to send samples.
    Write,
    /// Permission to change rules.
    Rules,
    /// Permission for administration, shutdown and profiling.
    Admin,
}

impl AccessScope {
    /// The scopes that a configuration can grant: all except [`AccessScope::Any`].
    pub const GRANTED: [AccessScope; 4] = [
        AccessScope::Read,
        AccessScope::Write,
        AccessScope::Rules,
        AccessScope::Admin,
    ];

    /// Returns the name of the scope in configurations and API documents.
    pub fn name(self) -> &'static str {
        match self {
            AccessScope::Any => "any",
            AccessScope::Read => "read",
            AccessScope::Write => "write",
            AccessScope::Rules => "rules",
            AccessScope::Admin => "admin",
        }
    }

    /// Returns the scope with that name; `None` if it cannot be granted.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::GRANTED.into_iter().find(|scope| scope.name() == name)
    }
}

/// Data that a response contains for clients which may only read some series. Declared for each
/// route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseVisibility {
    /// The response contains no data of series.
    Nothing,
    /// The response contains only data that the client may read.
    Part,
    /// The response would contain more, so restricted clients are rejected.
    Whole,
}

/// A set of scopes, stored as a bit mask. Empty by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessScopeSet(u8);

impl AccessScopeSet {
    /// Returns the set of all scopes that can be granted, the default of a user.
    pub fn all() -> Self {
        AccessScope::GRANTED.into_iter().collect()
    }

    /// Returns whether the set contains `scope`. All credentials have [`AccessScope::Any`].
    pub fn has(self, scope: AccessScope) -> bool {
        scope == AccessScope::Any || self.0 & (1 << scope as u8) != 0
    }
}

impl FromIterator<AccessScope> for AccessScopeSet {
    fn from_iter<I: IntoIterator<Item = AccessScope>>(scopes: I) -> Self {
        Self(
            scopes
                .into_iter()
                .fold(0, |all, scope| all | 1 << scope as u8),
        )
    }
}

/// Permissions of a user or token: scopes, tenants and visible series. Attached to each
/// authenticated request.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessGrant {
    /// Name for logs and error messages: `user "a"`, `token "b"`.
    pub name: String,
    /// Scopes that the credentials have.
    pub scopes: AccessScopeSet,
    /// Tenants whose data may be used; empty for all. Only effective if requests select a tenant.
    pub tenants: Vec<TenantId>,
    /// Matchers that restrict the visible series: all of them must match. Empty for no restriction.
    pub matchers: Vec<Matcher>,
}

impl AccessGrant {
    /// Creates an unrestricted grant, the default for a user without further configuration.
    pub fn whole(name: String) -> Self {
        Self {
            name,
            scopes: AccessScopeSet::all(),
            tenants: Vec::new(),
            matchers: Vec::new(),
        }
    }

    /// Returns whether only some series are visible, so that matchers must be applied.
    pub fn is_restricted(&self) -> bool {
        !self.matchers.is_empty()
    }
}

/// A user of basic authentication from the web configuration. Does not implement `Debug`, because
/// it contains a hash.
#[derive(Clone, PartialEq)]
pub struct WebUser {
    /// Bcrypt hash of the password, validated by [`super::check_hash`].
    pub hash: String,
    /// Permissions of the user.
    pub grant: Arc<AccessGrant>,
}

/// Limit of the request rate, as a token bucket, for all clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRateLimit {
    /// Minimum average time between two requests.
    pub interval: Duration,
    /// Maximum number of requests in a burst.
    pub burst: u64,
}

/// Rules that apply to all requests, from the web configuration. Does not implement `Debug`,
/// because it contains hashes.
#[derive(Clone, Default, PartialEq)]
pub struct AccessRules {
    /// Headers that are added to every response.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Limit of the request rate; `None` for no limit.
    pub rate_limit: Option<RequestRateLimit>,
    /// Users of basic authentication by name.
    pub users: BTreeMap<String, WebUser>,
    /// Bearer tokens by their [`token_digest`], so that the time of a look-up reveals nothing about
    /// valid tokens.
    pub tokens: HashMap<[u8; 32], Arc<AccessGrant>>,
}

impl AccessRules {
    /// Returns whether requests need no credentials, because neither users nor tokens are
    /// configured.
    pub fn is_open(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }
}

/// Returns the SHA-256 digest of a token, the key under which it is stored.
pub fn token_digest(token: &[u8]) -> [u8; 32] {
    let mut found = [0; 32];
    found.copy_from_slice(digest(&SHA256, token).as_ref());
    found
}
