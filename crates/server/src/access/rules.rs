//! The rules in force: which credentials there are, and what each is good for.

use axum::http::{HeaderName, HeaderValue};
use firn_model::matcher::Matcher;
use firn_model::tenant::TenantId;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Any credentials: what says nothing about the data.
    Any,
    /// To look at data, and at how the server is.
    Read,
    /// To send samples.
    Write,
    /// To change rules.
    Rules,
    /// To change the server, and to look into its process.
    Admin,
}

impl Scope {
    /// Those that can be granted.
    pub const GRANTED: [Scope; 4] = [Scope::Read, Scope::Write, Scope::Rules, Scope::Admin];

    /// Its name in configs and documents.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Any => "any",
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Rules => "rules",
            Scope::Admin => "admin",
        }
    }

    /// The scope of that name that can be granted.
    pub fn named(name: &str) -> Option<Self> {
        Self::GRANTED.into_iter().find(|scope| scope.name() == name)
    }
}

/// What an answer shows to those who may see only a part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing of the data.
    Nothing,
    /// Only what they may see.
    Part,
    /// More than that: they are refused.
    Whole,
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// All of them.
    pub fn all() -> Self {
        Scope::GRANTED.into_iter().collect()
    }

    /// Whether `scope` is among them. Any credentials have [`Scope::Any`].
    pub fn has(self, scope: Scope) -> bool {
        scope == Scope::Any || self.0 & (1 << scope as u8) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(
            scopes
                .into_iter()
                .fold(0, |all, scope| all | 1 << scope as u8),
        )
    }
}

/// What a user or the bearer of a token may do.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// For people and logs: `user "a"`, `token "b"`.
    pub name: String,
    /// What for.
    pub scopes: Scopes,
    /// Whose data; empty for all. Of effect where requests name their tenant.
    pub tenants: Vec<TenantId>,
    /// Which series may be seen: those that all of these match.
    pub matchers: Vec<Matcher>,
}

impl Grant {
    /// Everything: what a user may do of whom the config says nothing.
    pub fn whole(name: String) -> Self {
        Self {
            name,
            scopes: Scopes::all(),
            tenants: Vec::new(),
            matchers: Vec::new(),
        }
    }

    /// Whether only a part of the data may be seen.
    pub fn is_restricted(&self) -> bool {
        !self.matchers.is_empty()
    }
}

/// A user of basic authentication. Not shown: it has a hash.
#[derive(Clone, PartialEq)]
pub struct User {
    /// bcrypt's hash of the password, checked by [`super::check_hash`].
    pub hash: String,
    /// What the user may do.
    pub grant: Arc<Grant>,
}

/// So many requests in a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Between two requests, in the long run.
    pub interval: Duration,
    /// Requests at once after a pause.
    pub burst: u64,
}

/// What holds for requests from now on. Not shown: it has hashes.
#[derive(Clone, Default, PartialEq)]
pub struct Rules {
    /// Headers of every answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How many requests are answered, if that is bounded.
    pub rate_limit: Option<RateLimit>,
    /// Users by name.
    pub users: BTreeMap<String, User>,
    /// Tokens by [`token_digest`]: finding one tells nothing about the others.
    pub tokens: HashMap<[u8; 32], Arc<Grant>>,
}

impl Rules {
    /// Whether requests need no credentials.
    pub fn is_open(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }
}

/// What a token is found by.
pub fn token_digest(token: &[u8]) -> [u8; 32] {
    let mut found = [0; 32];
    found.copy_from_slice(digest(&SHA256, token).as_ref());
    found
}
