//! Resources of the process that a server takes before it opens its data: memory, file
//! descriptors, the configuration, locks.

use super::error::ServeError;
use super::locks::WebConfigHolder;
use super::running::ActiveConfig;
use super::spans::SpanExportManager;
use crate::process::descriptors::Descriptors;
use crate::process::memory;
use firn_config::Settings;
use firn_config::config::{Config, JobFeatures};
use firn_config::flags::CommandLine;
use firn_config::retention::RetentionSettings;
use firn_config::web_config::WebConfigError;
use firn_model::env::Env;
use firn_model::trace::Tracer;
use firn_server::parts::Provider;
use std::sync::Arc;
use tracing::{info, warn};

/// Creates the tracer, which starts spans, and the exporter that sends them to the collector.
pub(super) fn begin_spans(env: &Env, config: &Config) -> (Arc<Tracer>, Arc<SpanExportManager>) {
    let tracer = Tracer::new(env.clock.clone(), env.rng.clone());
    let spans = SpanExportManager::new(tracer.clone());
    spans.apply_config(config);
    (tracer, Arc::new(spans))
}

/// Creates the holder of the active configuration, which is initially `config`.
pub(super) fn start_running(
    settings: &Settings,
    config: Config,
    env: &Env,
) -> Result<Arc<ActiveConfig>, ServeError> {
    let (file, clock) = (settings.config_file.clone(), env.clock.clone());
    let features = JobFeatures::from_command_line(settings);
    Ok(Arc::new(ActiveConfig::start(
        file, features, config, clock,
    )?))
}

pub(super) fn memory_limit(config: &Config) -> usize {
    usize::try_from(memory::limit_bytes(config.memory_limit)).unwrap_or(usize::MAX)
}

pub(super) fn open_locks(
    settings: &Settings,
    running: &Arc<ActiveConfig>,
    env: &Env,
) -> Result<WebConfigHolder, WebConfigError> {
    let (file, now) = (settings.web_config_file.as_deref(), running.clone());
    WebConfigHolder::open(file, Box::new(move || now.config()), env.clock.clone())
}

/// Returns a provider of the retention in the active configuration.
pub(super) fn retention_provider(
    line: &CommandLine,
    running: &Arc<ActiveConfig>,
) -> Provider<RetentionSettings> {
    let (line, running) = (line.clone(), running.clone());
    Arc::new(move || RetentionSettings::resolve_retention(&line, running.config().retention))
}

/// Raises the limit of open files and logs it. Warns if it is lower than the configured number of
/// connections requires.
pub(super) fn raise_descriptors(settings: &Settings) -> Result<Descriptors, ServeError> {
    let (all, before) = Descriptors::raise().map_err(ServeError::Descriptors)?;
    info!(
        before,
        limit = all.limit,
        connections = all.connections.min(settings.connections_max),
        scrape_connections = all.fetches,
        "limits on open files"
    );
    if all.connections < settings.connections_max {
        warn!(
            wanted = settings.connections_max,
            limit = all.connections,
            open_files = all.limit,
            "fewer connections than --web.max-connections: raise the hard limit on open files"
        );
    }
    Ok(all)
}
