//! The active configuration of the server, and its reloads.
//!
//! Invariant: a config that cannot be read, or with files that cannot be opened, changes only the
//! metrics of the last reload.

use firn_config::config::{self, Config, JobFeatures};
use firn_model::env::Clock;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::sample::TimestampMs;
use firn_server::ServerApp;
use firn_server::query_log::QueryLog;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

/// Holder of the active configuration. It reloads the file on request, and other parts subscribe to
/// the changes.
pub struct ActiveConfig {
    file: Option<PathBuf>,
    features: JobFeatures,
    clock: Arc<dyn Clock>,
    config: watch::Sender<Arc<Config>>,
    state: Mutex<ActiveConfigState>,
    app: OnceLock<ServerApp>,
    /// Held while the file is read and applied, so that the version read last is the active one.
    reloading: Mutex<()>,
    query_log: Arc<QueryLog>,
}

/// Error of opening the query log of the config. It prevents the start of a server and makes a
/// reload fail.
#[derive(Debug, thiserror::Error)]
#[error("global.query_log_file: open {}: {source}", path.display())]
pub struct QueryLogError {
    path: PathBuf,
    source: std::io::Error,
}

struct ActiveConfigState {
    /// Hash of the configuration files at the last check, or `None` before the first one.
    fingerprint: Option<u64>,
    last_reload: LastReload,
}

/// The outcome of the last reload of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReload {
    /// True if the newest configuration was applied.
    pub is_successful: bool,
    /// Time of the last successful reload.
    pub success_time: TimestampMs,
}

impl ActiveConfig {
    /// Creates the holder with `config`, which was read from `file` under `features`.
    pub fn new(
        file: Option<PathBuf>,
        features: JobFeatures,
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let state = Mutex::new(ActiveConfigState {
            fingerprint: None,
            last_reload: LastReload {
                is_successful: true,
                success_time: clock.now_ms(),
            },
        });
        Self {
            file,
            features,
            clock,
            config: watch::Sender::new(Arc::new(config)),
            state,
            app: OnceLock::new(),
            reloading: Mutex::new(()),
            query_log: Arc::default(),
        }
    }

    /// Like [`ActiveConfig::new`], but also opens the query log that the configuration names. May
    /// block.
    pub fn start(
        file: Option<PathBuf>,
        features: JobFeatures,
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryLogError> {
        let running = Self::new(file, features, config, clock);
        running.open_query_log(&running.config())?;
        Ok(running)
    }

    /// Returns the active configuration, which stays unchanged while the caller holds it.
    pub fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// Returns a channel with the active configuration and its changes.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// Returns the query log, whose file follows the configuration.
    pub fn query_log(&self) -> Arc<QueryLog> {
        self.query_log.clone()
    }

    fn open_query_log(&self, config: &Config) -> Result<(), QueryLogError> {
        let path = config.query_log_file.as_deref();
        self.query_log
            .set_file(path)
            .map_err(|source| QueryLogError {
                path: path.unwrap_or(Path::new("")).to_owned(),
                source,
            })
    }

    /// Returns the features of the command line that affect jobs.
    pub fn features(&self) -> JobFeatures {
        self.features
    }

    /// Returns whether the server runs without a config file, with the built-in config.
    pub fn is_built_in(&self) -> bool {
        self.file.is_none()
    }

    /// Returns the outcome of the last reload.
    pub fn last_reload(&self) -> LastReload {
        self.with(|state| state.last_reload)
    }

    /// Reads and applies the file again. Changed keys that need a restart are named in a warning.
    /// An invalid file is an error and changes nothing. May block.
    pub fn reload(&self) -> Result<(), String> {
        let Some(file) = &self.file else {
            info!("no config file to reload");
            return Ok(());
        };
        let _alone = self
            .reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let loaded = config::load_with_rules(file, self.features).map_err(|e| e.to_string());
        let opened = loaded.and_then(|config| {
            let opened = self.open_query_log(&config);
            opened.map(|()| config).map_err(|e| e.to_string())
        });
        match opened {
            Ok(config) => {
                self.take_over(config);
                self.report_reload(true);
                Ok(())
            }
            Err(e) => {
                self.with(|state| state.last_reload.is_successful = false);
                self.report_reload(false);
                error!(error = %e, "failed to reload the config: keeping the previous one");
                Err(e)
            }
        }
    }

    /// Like [`ActiveConfig::reload`], but only if a configuration file changed since the last call.
    /// The first call only records the current files. May block.
    pub fn reload_if_changed(&self) {
        let Some(file) = &self.file else { return };
        let now = match config::fingerprint(file) {
            Ok(now) => now,
            // Files that are being replaced exist again at the next check.
            Err(e) => return debug!(error = %e, "failed to check the config for changes"),
        };
        let before = self.with(|state| state.fingerprint.replace(now));
        if before.is_some_and(|before| before != now) {
            info!("config file changed");
            // `reload` logs its own errors.
            let _ = self.reload();
        }
    }

    /// Sets the server that is notified of the outcome of each reload.
    pub fn tell_of_reloads(&self, app: &ServerApp) {
        // A process has one server.
        let _ = self.app.set(app.clone());
    }

    fn report_reload(&self, is_good: bool) {
        if let Some(app) = self.app.get() {
            app.note_reload(is_good);
        }
    }

    fn take_over(&self, config: Config) {
        for key in &config.ignored {
            warn_of_ignored(key);
        }
        for key in self.config().list_restart_keys(&config) {
            warn!(key, "config key takes effect at the next start only");
        }
        let now = self.clock.now_ms();
        self.config.send_replace(Arc::new(config));
        self.with(|state| {
            state.last_reload = LastReload {
                is_successful: true,
                success_time: now,
            };
        });
        info!("config reloaded");
    }

    fn with<T>(&self, act: impl FnOnce(&mut ActiveConfigState) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Warns of a key that is set but has no effect in Firn.
pub fn warn_of_ignored(key: &str) {
    warn!(key, "config key has no effect in Firn");
}

impl Collect for ActiveConfig {
    fn collect(&self, sink: &mut dyn MetricSink) {
        collect_reload(sink, self.last_reload());
    }
}

/// Writes the metrics of the last reload: whether it succeeded, and the time of the last success.
pub fn collect_reload(sink: &mut dyn MetricSink, last: LastReload) {
    sink.metric(
        "firn_config_last_reload_successful",
        "1 if the last reload of the configuration was successful.",
        &[],
        MetricValue::Gauge(f64::from(u8::from(last.is_successful))),
    );
    sink.metric(
        "firn_config_last_reload_success_timestamp_seconds",
        "Time of the last successful reload of the configuration.",
        &[],
        MetricValue::Gauge(last.success_time as f64 / 1000.0),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimClock;
    use std::time::Duration;

    #[test]
    fn reload_of_a_bad_file_keeps_the_old_config() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("firn.yml");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write("global: {evaluation_interval: 10s}\n");
        let clock = Arc::new(SimClock::default());
        let features = JobFeatures::default();
        let config = config::load(&file, features).unwrap();
        let running = ActiveConfig::new(Some(file.clone()), features, config, clock.clone());
        let last = |is_successful, success_time| LastReload {
            is_successful,
            success_time,
        };
        let interval = || running.config().evaluation_interval;
        assert_eq!(interval(), Duration::from_secs(10));
        clock.set_ms(7);
        write("global: {evaluation_interval: 20}\n");
        let e = running.reload().unwrap_err();
        assert!(
            e.ends_with("1:31: global.evaluation_interval: not a valid duration string: \"20\"")
        );
        assert_eq!(
            (interval(), running.last_reload()),
            (Duration::from_secs(10), last(false, 0))
        );
        write("global: {evaluation_interval: 20s}\n");
        running.reload().unwrap();
        assert_eq!(
            (interval(), running.last_reload()),
            (Duration::from_secs(20), last(true, 7))
        );
    }
}
