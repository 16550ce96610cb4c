//! Permissions of clients: scopes, tenants and visible series.
//!
//! A config grants them, and the server enforces them.

use crate::matcher::Matcher;
use crate::tenant::TenantId;
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

/// Limit of the request rate, as a token bucket, for all clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRateLimit {
    /// Minimum average time between two requests.
    pub interval: Duration,
    /// Maximum number of requests in a burst.
    pub burst: u64,
}
