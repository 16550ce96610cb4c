//! Access rules from the configuration: users, tokens and their grants.

use axum::http::{HeaderName, HeaderValue};
use firn_model::access::{AccessGrant, RequestRateLimit};
use ring::digest::{SHA256, digest};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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

/// A user of basic authentication from the web configuration. Does not implement `Debug`, because
/// it contains a hash.
#[derive(Clone, PartialEq)]
pub struct WebUser {
    /// Bcrypt hash of the password, validated when the configuration was read.
    pub hash: String,
    /// Permissions of the user.
    pub grant: Arc<AccessGrant>,
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
    /// True if the files of the web page, which contain no data, need no credentials. A browser
    /// cannot send a token before the page has prompted for it.
    pub is_page_public: bool,
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
