//! TLS and access rules of the web config, of the section `firn.access`, and of the files that both
//! name. Changes apply while the process runs.
//!
//! ```text
//! every second, and with each handshake -> did a file or the config change?
//!   -> users, tokens, headers: read again, active at once
//!   -> certificates: read again, active for new handshakes
//! ```
//!
//! Invariant: a file that cannot be read or is incomplete changes only the log and the metric of
//! the last reload: a certificate that is being replaced never fails a handshake. Whether TLS is
//! used at all is decided at the start.

use firn_config::config::{AccessSettings, Config, TokenSource, check_token};
use firn_config::web_config::{self, TlsInput, WebConfig, WebConfigError};
use firn_http_client::named_files;
use firn_model::access::AccessGrant;
use firn_model::env::Clock;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::sync::lock;
use firn_server::ServerApp;
use firn_server::access::{AccessRules, WebUser, token_digest};
use firn_server::tls::TlsConfigs;
use rustls::server::ServerConfig;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

/// Pause between two checks whether the files or the config changed.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Age in milliseconds from which a modification time is reliable: a younger file may change again
/// without a new time, because the clock of a file system is coarse.
const SETTLED_AFTER_MS: i64 = 2_000;

/// A server whose access rules can be replaced while it runs: the main server or a mirror.
pub trait AccessControlled: Send + Sync {
    /// Replaces the access rules. Requests that begin afterwards use the new ones.
    fn set_rules(&self, rules: Arc<AccessRules>);
}

impl AccessControlled for ServerApp {
    fn set_rules(&self, rules: Arc<AccessRules>) {
        ServerApp::set_rules(self, rules);
    }
}

/// Wraps a server as a [`AccessControlled`] trait object, for [`WebConfigHolder::follow_config`].
pub fn wrap_server<T: AccessControlled + Clone + 'static>(server: &T) -> Arc<dyn AccessControlled> {
    Arc::new(server.clone())
}

/// Function that returns the active configuration, whose section `firn.access` applies.
pub type ConfigNow = Box<dyn Fn() -> Arc<Config> + Send + Sync>;

/// TLS configuration and access rules, which follow their files. Created at the start of a server
/// and shared by all its listeners.
pub struct WebConfigHolder {
    file: Option<PathBuf>,
    config: ConfigNow,
    clock: Arc<dyn Clock>,
    kept: Mutex<ActiveWebConfig>,
}

/// The TLS configuration and rules that are active now, with the state of the files they were read
/// from.
struct ActiveWebConfig {
    /// Configuration whose access section is active, to detect a reload.
    config: Arc<Config>,
    seen: Vec<FileVersion>,
    web: Option<WebConfig>,
    tls: Option<(TlsInput, Arc<ServerConfig>)>,
    rules: Arc<AccessRules>,
    /// Error that prevents the newest files from being applied, logged once.
    trouble: Option<String>,
}

/// A file with its state before it was read, to detect later changes.
#[derive(Clone, PartialEq)]
struct FileVersion {
    path: PathBuf,
    stamp: Option<FileStamp>,
    /// True if a later change would have a different modification time.
    is_settled: bool,
}

/// Metadata of a file that changes with its content. Times are seconds and nanoseconds.
#[derive(Clone, Copy, PartialEq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl WebConfigHolder {
    /// Reads the web config and all files with tokens and certificates. An error prevents the start
    /// of the server.
    pub fn open(
        file: Option<&Path>,
        config_now: ConfigNow,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, WebConfigError> {
        let config = config_now();
        let mut seen = Vec::new();
        let web = match file {
            Some(file) => {
                seen.push(FileVersion::read_version(file, &*clock));
                Some(web_config::read(file)?)
            }
            None => None,
        };
        for warning in web.iter().flat_map(|web| &web.warnings) {
            warn!(
                why = warning,
                "web config has a setting that Firn does not support fully"
            );
        }
        let tls = match web.as_ref().and_then(|web| web.tls.as_ref()) {
            Some(section) => {
                seen.extend(
                    section
                        .files()
                        .iter()
                        .map(|file| FileVersion::read_version(file, &*clock)),
                );
                let input = section.load()?;
                let config = input.server_config()?;
                Some((input, config))
            }
            None => None,
        };
        seen.extend(
            token_files(&config.access).map(|file| FileVersion::read_version(file, &*clock)),
        );
        let rules = Arc::new(rules(web.as_ref(), &config.access)?);
        let kept = Mutex::new(ActiveWebConfig {
            config,
            seen,
            web,
            tls,
            rules,
            trouble: None,
        });
        Ok(Self {
            file: file.map(Path::to_owned),
            config: config_now,
            clock,
            kept,
        })
    }

    /// Returns whether connections use TLS. This never changes after the start.
    pub fn has_tls(&self) -> bool {
        lock(&self.kept).tls.is_some()
    }

    /// Returns whether requests need credentials, or connections a client certificate.
    pub fn requires_credentials(&self) -> bool {
        let kept = lock(&self.kept);
        let of_clients = kept
            .tls
            .as_ref()
            .is_some_and(|(input, _)| input.requires_client_certificate());
        !kept.rules.is_open() || of_clients
    }

    /// Applies the rules to `locked`, and starts to follow the files and the config.
    pub fn follow_config(self: &Arc<Self>, locked: &Arc<dyn AccessControlled>) {
        locked.set_rules(lock(&self.kept).rules.clone());
        let (locks, locked) = (self.clone(), locked.clone());
        tokio::spawn(async move {
            let mut looks = tokio::time::interval(LOOK_PAUSE);
            loop {
                looks.tick().await;
                let (locks, locked) = (locks.clone(), locked.clone());
                let looked = spawn_blocking(move || locks.apply_changed_files(&*locked));
                if let Err(e) = looked.await {
                    error!(error = %e, "failed to check the web config for changes");
                }
            }
        });
    }

    /// Returns a function with the TLS configuration of the next handshake, from the files at that
    /// time. `None` without TLS.
    pub fn handshakes(self: &Arc<Self>, locked: &Arc<dyn AccessControlled>) -> Option<TlsConfigs> {
        let first = lock(&self.kept).tls.as_ref()?.1.clone();
        let (locks, locked) = (self.clone(), locked.clone());
        Some(Arc::new(move || {
            locks.apply_changed_files(&*locked);
            let kept = lock(&locks.kept);
            let now = kept.tls.as_ref().map(|(_, config)| config.clone());
            now.unwrap_or_else(|| first.clone())
        }))
    }

    /// Applies changed files. Handshakes that begin during the check wait for it.
    fn apply_changed_files(&self, locked: &dyn AccessControlled) {
        let mut kept = lock(&self.kept);
        let config = (self.config)();
        let is_same_config = Arc::ptr_eq(&config, &kept.config);
        let is_same = |seen: &FileVersion| seen.is_settled && stamp(&seen.path) == seen.stamp;
        if is_same_config && kept.seen.iter().all(is_same) {
            return;
        }
        kept.config = config;
        let mut troubles = Vec::new();
        let seen = self.read_again(&mut kept, &mut troubles);
        kept.seen = seen;
        match rules(kept.web.as_ref(), &kept.config.access) {
            Ok(rules) if rules != *kept.rules => {
                kept.rules = Arc::new(rules);
                locked.set_rules(kept.rules.clone());
                info!("users, tokens and headers reloaded");
            }
            Ok(_) => {}
            Err(e) => troubles.push(e.to_string()),
        }
        let trouble = (!troubles.is_empty()).then(|| troubles.join("; "));
        if let Some(why) = &trouble
            && kept.trouble.as_ref() != Some(why)
        {
            error!(
                error = why,
                "failed to reload the web config: keeping the previous users, tokens and \
                 certificates"
            );
        }
        kept.trouble = trouble;
    }

    /// Reads the web config and its certificates again. Returns the state of all files before they
    /// were read.
    fn read_again(
        &self,
        kept: &mut ActiveWebConfig,
        troubles: &mut Vec<String>,
    ) -> Vec<FileVersion> {
        let mut seen = Vec::new();
        if let Some(file) = &self.file {
            seen.push(FileVersion::read_version(file, &*self.clock));
            match web_config::read(file) {
                Ok(web) if web.tls.is_some() == kept.tls.is_some() => kept.web = Some(web),
                Ok(_) => troubles.push("TLS is switched on or off with a start only".into()),
                Err(e) => troubles.push(e.to_string()),
            }
        }
        if let Some(section) = kept.web.as_ref().and_then(|web| web.tls.as_ref()) {
            let files = section.files();
            seen.extend(
                files
                    .iter()
                    .map(|file| FileVersion::read_version(file, &*self.clock)),
            );
            match build_changed_tls(section.load(), kept.tls.as_ref().map(|(input, _)| input)) {
                Ok(None) => {}
                Ok(Some(tls)) => {
                    kept.tls = Some(tls);
                    info!("certificates reloaded");
                }
                Err(e) => troubles.push(e.to_string()),
            }
        }
        let tokens = token_files(&kept.config.access);
        seen.extend(tokens.map(|file| FileVersion::read_version(file, &*self.clock)));
        seen
    }
}

/// Returns the TLS configuration if the loaded input differs from `known`. An unchanged
/// configuration stays in use, with the sessions that clients resume.
fn build_changed_tls(
    loaded: Result<TlsInput, WebConfigError>,
    known: Option<&TlsInput>,
) -> Result<Option<(TlsInput, Arc<ServerConfig>)>, WebConfigError> {
    let input = loaded?;
    if known == Some(&input) {
        return Ok(None);
    }
    let config = input.server_config()?;
    Ok(Some((input, config)))
}

/// Returns the paths of the files that contain tokens, in the order of the config.
fn token_files(access: &AccessSettings) -> impl Iterator<Item = &Path> {
    access
        .tokens
        .iter()
        .filter_map(|token| match &token.source {
            TokenSource::File(path) => Some(path.as_path()),
            TokenSource::Token(_) | TokenSource::Digest(_) => None,
        })
}

/// Builds the access rules from the web config and the access section.
fn rules(web: Option<&WebConfig>, access: &AccessSettings) -> Result<AccessRules, WebConfigError> {
    let mut rules = AccessRules::default();
    if let Some(web) = web {
        rules.headers = web.headers.clone();
        rules.rate_limit = web.rate_limit;
        for (name, hash) in &web.users {
            let granted = access.users.iter().find(|(user, _)| user == name);
            let whole = || Arc::new(AccessGrant::whole(format!("user {name:?}")));
            let grant = granted.map_or_else(whole, |(_, grant)| grant.clone());
            let hash = hash.clone();
            rules.users.insert(name.clone(), WebUser { hash, grant });
        }
    }
    for (name, _) in &access.users {
        if !rules.users.contains_key(name) {
            return Err(WebConfigError::from(format!(
                "firn.access.users: {name:?} is not a user of the web config"
            )));
        }
    }
    rules.tokens = tokens(access)?;
    // Without tokens the browser itself prompts for the user name and password.
    rules.is_page_public = !rules.tokens.is_empty() && !access.is_page_closed;
    Ok(rules)
}

fn tokens(access: &AccessSettings) -> Result<HashMap<[u8; 32], Arc<AccessGrant>>, WebConfigError> {
    let mut tokens = HashMap::new();
    for token in &access.tokens {
        let name = &token.grant.name;
        let failed = |why: String| WebConfigError::from(format!("{name}: {why}"));
        let digest = match &token.source {
            TokenSource::Token(token) => token_digest(token.as_bytes()),
            TokenSource::Digest(digest) => *digest,
            TokenSource::File(path) => {
                let read = named_files::read(path);
                let text = read.map_err(|e| failed(format!("{}: {e}", path.display())))?;
                let token = text.trim_ascii();
                check_token(token).map_err(failed)?;
                token_digest(token)
            }
        };
        if tokens.insert(digest, token.grant.clone()).is_some() {
            return Err(failed("another token is the same".into()));
        }
    }
    Ok(tokens)
}

impl FileVersion {
    fn read_version(path: &Path, clock: &dyn Clock) -> Self {
        let stamp = stamp(path);
        let newest_ms = stamp.map_or(0, |s| s.modified.0.max(s.changed.0).saturating_mul(1000));
        Self {
            path: path.to_owned(),
            stamp,
            is_settled: newest_ms.saturating_add(SETTLED_AFTER_MS) < clock.now_ms(),
        }
    }
}

/// Returns the current metadata of the file, or `None` if it does not exist.
fn stamp(path: &Path) -> Option<FileStamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileStamp {
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

impl Collect for WebConfigHolder {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let is_sound = lock(&self.kept).trouble.is_none();
        sink.metric(
            "firn_access_last_reload_successful",
            "1 if the last reload of users, tokens and certificates was successful.",
            &[],
            MetricValue::Gauge(f64::from(u8::from(is_sound))),
        );
    }
}
