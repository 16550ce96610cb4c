//! The section `firn.access`: bearer tokens, and the grants of tokens and of the users in the web
//! config.

use ConfigValueShape::{Choice, List, Map, Secret, Section, Text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, TEXTS, key};
use firn_config_schema::section::ConfigSection;
use firn_model::access::{AccessGrant, AccessScope};
use firn_model::matcher::Matcher;
use firn_model::tenant::TenantId;
use firn_yaml::YamlError;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Minimum length of a token in bytes. Tokens are checked without delay, so that shorter ones could
/// be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;

/// Keys of the section, with their texts for `docs/settings.md`.
pub const KEYS: &[ConfigKey] = &[
    key("tokens", List(&Section(&[TOKEN, GRANT]))).explained(
        "[]",
        "Bearer tokens, see [security.md](security.md). If the list is not empty, every request \
         needs credentials. A config reload applies changes; Firn reloads a `token_file` when it \
         changes.",
    ),
    key("page", Choice(&["public", "closed"])).explained(
        "public",
        "With `public` and tokens, the files of the web page, which contain no data, need no \
         credentials, and the page prompts for a token. With `closed` they need credentials.",
    ),
    key("users", Map(&Section(&[GRANT]))).explained(
        "{}",
        "Permissions of the users in `--web.config.file`, by user name. Users that are not listed \
         have all permissions. A config reload applies changes.",
    ),
];

const TOKEN: &[ConfigKey] = &[
    key("name", Text).required(),
    key("token", Secret),
    key("token_file", ConfigValueShape::Path),
    key("token_sha256", Secret),
];

const GRANT: &[ConfigKey] = &[
    key("scopes", TEXTS).required(),
    key("tenants", TEXTS),
    key("match", Text),
];

/// Source of a token's value. Its debug output never contains the token or its digest.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// The token itself.
    Token(String),
    /// SHA-256 digest of the token.
    Digest([u8; 32]),
    /// Path of a file with the token; surrounding white space is removed.
    File(PathBuf),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(_) | Self::Digest(_) => f.write_str("<secret>"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A bearer token of the config, with the permissions of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct BearerTokenSettings {
    /// Source of the token's value: the config or a file.
    pub source: TokenSource,
    /// Permissions of the requests that present this token.
    pub grant: Arc<AccessGrant>,
}

/// Settings of the section `firn.access`. Without the section there are no tokens, and users have
/// all permissions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessSettings {
    /// `tokens`: bearer tokens, whose names are unique.
    pub tokens: Vec<BearerTokenSettings>,
    /// `users`: permissions of users in the web config, by user name.
    pub users: Vec<(String, Arc<AccessGrant>)>,
    /// `page`: whether the files of the web page need credentials although tokens are configured.
    pub is_page_closed: bool,
}

/// Reads the section.
pub fn access(
    section: ConfigSection<'_>,
    is_multitenant: bool,
) -> Result<AccessSettings, YamlError> {
    let mut settings = AccessSettings::default();
    for token in section.sections("tokens") {
        let name = format!("token {:?}", token.text("name"));
        if settings.tokens.iter().any(|known| known.grant.name == name) {
            return Err(token.error(format!("firn.access.tokens: duplicate token name: {name}")));
        }
        settings.tokens.push(BearerTokenSettings {
            source: source(token)?,
            grant: Arc::new(grant(token, name, is_multitenant)?),
        });
    }
    settings.is_page_closed = section.text_if_set("page") == Some("closed");
    for (user, granted) in section.named_sections("users") {
        let name = format!("user {user:?}");
        let grant = grant(granted, name, is_multitenant)?;
        settings.users.push((user.to_owned(), Arc::new(grant)));
    }
    Ok(settings)
}

fn source(token: ConfigSection<'_>) -> Result<TokenSource, YamlError> {
    let set = |key| token.text_if_set(key);
    match (set("token"), token.path("token_file"), set("token_sha256")) {
        (Some(value), None, None) => {
            check_token(value.as_bytes()).map_err(|why| token.error(why))?;
            Ok(TokenSource::Token(value.to_owned()))
        }
        (None, Some(file), None) => Ok(TokenSource::File(file)),
        (None, None, Some(hex)) => match digest_of_hex(hex) {
            Some(digest) => Ok(TokenSource::Digest(digest)),
            None => Err(token.error(
                "token_sha256: expected 64 hexadecimal digits, as `printf %s \"$TOKEN\" | \
                 sha256sum` prints them",
            )),
        },
        _ => Err(token.error("exactly one of token, token_file & token_sha256 must be configured")),
    }
}

/// Validates a token. Fails if it is too short.
pub fn check_token(token: &[u8]) -> Result<(), String> {
    match token.len() {
        bytes if bytes < TOKEN_BYTES_MIN => Err(format!(
            "token is too short: {bytes} bytes, minimum {TOKEN_BYTES_MIN}"
        )),
        _ => Ok(()),
    }
}

fn digest_of_hex(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if hex.len() != 2 * digest.len() || !hex.is_ascii() {
        return None;
    }
    for (i, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(digest)
}

fn grant(
    section: ConfigSection<'_>,
    name: String,
    is_multitenant: bool,
) -> Result<AccessGrant, YamlError> {
    let mut scopes = Vec::new();
    for scope in section.texts("scopes").unwrap_or_default() {
        scopes.push(AccessScope::from_name(&scope).ok_or_else(|| {
            let known = AccessScope::GRANTED.map(AccessScope::name).join(", ");
            section.error(format!("scopes: not one of {known}: {scope:?}"))
        })?);
    }
    if scopes.is_empty() {
        return Err(section.error(format!("{name} has no scopes")));
    }
    let mut tenants = Vec::new();
    for tenant in section.texts("tenants").unwrap_or_default() {
        let tenant = TenantId::new(&tenant).map_err(|e| section.error(e.message))?;
        tenants.push(tenant);
    }
    if !tenants.is_empty() && !is_multitenant {
        return Err(section.error("tenants: requires firn.multitenancy"));
    }
    Ok(AccessGrant {
        name,
        scopes: scopes.into_iter().collect(),
        tenants,
        matchers: matchers(section)?,
    })
}

/// Parses the matchers of the selector `match`, which restricts visible series.
fn matchers(section: ConfigSection<'_>) -> Result<Vec<Matcher>, YamlError> {
    let Some(node) = section.get("match") else {
        return Ok(Vec::new());
    };
    let Some(text) = node.text() else {
        return Ok(Vec::new());
    };
    let matchers = firn_promql::parser::parse_selector(text);
    let matchers = matchers.map_err(|e| node.error(format!("match: {e}")))?;
    if matchers.is_empty() {
        Err(node.error("match: the selector has no matcher"))
    } else {
        Ok(matchers)
    }
}
