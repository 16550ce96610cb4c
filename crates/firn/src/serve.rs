//! `firn serve`: from a command line to a running server and back to a clean stop.
//!
//! ```text
//! flags, config -> logs, warnings -> sockets -> store opens while the sockets answer 503
//!   -> ready: scrapes itself, ticks once a second
//!   -> SIGHUP: reads the config again     -> SIGTERM, SIGINT: drains, closes the store, ends
//! ```
//!
//! Invariant: whatever keeps the server from starting is one line on standard error and exit code
//! 1.

use crate::config::{self, Config, ConfigError, WalSync};
use crate::flags::{self, CommandLine, Request};
use crate::settings::Settings;
use crate::units::format_duration;
use crate::{console, documentation, logs, memory};
use firn_model::env;
use firn_model::error::Error;
use firn_storage::store::{Store, StoreOptions, SyncMode};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{Level, info, warn};

/// How often the store is asked to start background work that is due.
const TICK: Duration = Duration::from_secs(1);

/// Why the server did not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error("load config {0}")]
    Config(#[from] ConfigError),
    #[error("start threads: {0}")]
    Threads(std::io::Error),
    #[error("listen for signals: {0}")]
    Signals(std::io::Error),
    #[error("{0}")]
    Store(#[from] Error),
}

/// Runs `firn serve` with the arguments behind it.
pub fn run(args: &[OsString]) -> ExitCode {
    let line = match flags::parse(args.iter().cloned()) {
        Ok(Request::Run(line)) => line,
        Ok(Request::Help) => {
            console::out(&flags::help());
            return ExitCode::SUCCESS;
        }
        Ok(Request::Documentation) => {
            console::out(&documentation::page());
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            console::err(&format!("firn: {e}"));
            return ExitCode::from(2);
        }
    };
    match serve(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            console::err(&format!("firn: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(line: &CommandLine) -> Result<(), ServeError> {
    let settings = &line.settings;
    let config = match &settings.config_file {
        Some(file) => config::load(file)?,
        None => Config::default(),
    };
    logs::start(
        settings.log_level.unwrap_or(Level::INFO),
        settings.log_format,
    );
    warn_of_ignored(line, &config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Threads)?;
    runtime.block_on(run_server(settings, &config))
}

fn warn_of_ignored(line: &CommandLine, config: &Config) {
    for flag in &line.ignored {
        warn!(flag, "flag has no effect in Firn");
    }
    for key in &config.ignored {
        warn!(key, "config key has no effect in Firn");
    }
}

async fn run_server(settings: &Settings, config: &Config) -> Result<(), ServeError> {
    let memory_bytes = memory::limit_bytes(config.memory_limit);
    let options = store_options(settings, config);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        memory_bytes,
        data = %settings.data_dir.display(),
        retention = %format_duration(Duration::from_millis(options.retention_ms as u64)),
        "start"
    );
    let env = env::real::env().map_err(ServeError::Threads)?;
    let store = Store::open(env, options)?;
    info!("ready");
    wait_for_stop(&store).await?;
    info!("stop");
    store.close()?;
    Ok(())
}

fn store_options(settings: &Settings, config: &Config) -> StoreOptions {
    let defaults = StoreOptions::new(&settings.data_dir);
    let retention = config.retention.or(settings.retention_time);
    StoreOptions {
        sync: match config.wal_sync {
            WalSync::Always => SyncMode::Always,
            WalSync::Interval => SyncMode::Interval,
            WalSync::None => SyncMode::None,
        },
        retention_ms: retention.map_or(defaults.retention_ms, |d| d.as_millis() as i64),
        ..defaults
    }
}

async fn wait_for_stop(store: &Arc<Store>) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = tick.tick() => store.tick(),
        }
    }
}
