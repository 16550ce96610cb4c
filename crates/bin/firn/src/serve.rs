//! The command `firn serve`: from the command line to a running server and to a clean stop.
//!
//! ```text
//! flags, config -> logs, warnings -> sockets -> store opens while requests are answered with 503
//!   -> ready: scrapes its targets, or itself; ticks once a second
//!   -> SIGHUP: reloads the config    -> SIGTERM, SIGINT: drains, closes the store, exits
//! ```
//!
//! Invariant: any error that prevents the start is one line on standard error, and the exit code is
//! 1.

mod address;
mod agent;
mod aggregating;
mod backend;
mod cluster;
mod damages;
mod error;
mod features;
mod listen;
mod locks;
mod main_loop;
mod metadata;
pub mod mirror;
mod notify;
mod opened_data;
mod parts;
mod reading;
mod resources;
mod rule_folder;
pub mod rules;
mod running;
mod scraping;
mod sending;
mod shutdown;
pub mod signals;
mod spans;
pub mod store_settings;
mod subscribers;
mod subsystems;

use crate::process::descriptors::Descriptors;
use crate::process::pressure::MemoryPressure;
use crate::process::{logs, metrics, runtime};
use crate::{console, documentation, version};
use address::{ExternalUrlSource, announce};
use cluster::ClusterMember;
use error::ServeError;
use firn_cluster::partitions::store::PartitionedStore;
use firn_config::Settings;
use firn_config::config::{self, Config, JobFeatures};
use firn_config::flags::{self, CommandLine, Request};
use firn_config::retention::RetentionSettings;
use firn_http_client::ConnectionSlots;
use firn_model::budget::Budget;
use firn_model::env::{Env, real};
use firn_model::shares::BudgetShares;
use firn_model::trace::Tracer;
use firn_server::ServerApp;
use firn_server::parts::Provider;
use firn_storage::data_dir::DataDir;
use firn_storage::store::StoreOptions;
use listen::HttpServerTasks;
use locks::wrap_server;
use notify::NotifierFlags;
use opened_data::{OpenedData, open_data, take_folder};
use parts::AppPartsInputs;
use resources::{
    begin_spans, memory_limit, open_locks, raise_descriptors, retention_provider, start_running,
};
use rules::RuleFlags;
use running::ActiveConfig;
use shutdown::ShutdownSequence;
use signals::Signals;
use spans::SpanExportManager;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store_settings::{keeps_exemplars, store_options};
use subscribers::{ConfigSubscribers, follow_apart};
use tokio::sync::mpsc;
use tracing::{Level, info, warn};

/// Runs `firn serve` with the arguments after the command, and returns its exit code.
pub fn run(args: &[OsString]) -> ExitCode {
    let line = match flags::parse(args.iter().cloned()) {
        Ok(Request::Run(line)) => line,
        Ok(Request::Help(text)) => {
            console::out(&text);
            return ExitCode::SUCCESS;
        }
        Ok(Request::Version) => {
            console::out(&version::text());
            return ExitCode::SUCCESS;
        }
        Ok(Request::Documentation(page)) => {
            console::out(&documentation::page(page));
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            console::err(&format!("firn: {e}"));
            if let Some(hint) = e.suggest_alternative() {
                console::err(&format!("  {hint}"));
            }
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
        Some(file) => config::load_with_rules(file, JobFeatures::from_command_line(settings))?,
        None => Config::built_in(),
    };
    logs::start(
        settings.log_level.unwrap_or(Level::INFO),
        settings.log_format,
    );
    warn_of_ignored(line, &config);
    runtime::run(run_server(line, config)).map_err(ServeError::Threads)?
}

fn log_start(settings: &Settings, limit_bytes: usize, retention: &RetentionSettings) {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        memory_limit_bytes = limit_bytes,
        data = %settings.data_dir.display(),
        %retention,
        "start"
    );
    retention.warn();
}

fn warn_of_ignored(line: &CommandLine, config: &Config) {
    for flag in &line.ignored {
        warn!(flag, "flag has no effect in Firn");
    }
    for key in &config.ignored {
        running::warn_of_ignored(key);
    }
}

async fn run_server(line: &CommandLine, config: Config) -> Result<(), ServeError> {
    let (node, dir) = StartingServer::start(line, config).await?;
    node.run(dir).await
}

/// A server with open sockets and a locked data folder, before and while its store is open.
struct StartingServer {
    env: Env,
    memory: Budget,
    pressure: Arc<MemoryPressure>,
    /// Memory of the program itself in bytes, before it holds data.
    own_bytes: usize,
    options: StoreOptions,
    /// Provider of the retention in the active configuration, which changes with reloads.
    retention: Provider<RetentionSettings>,
    keeps_exemplars: bool,
    queries_max: usize,
    rule_flags: RuleFlags,
    notifier_flags: NotifierFlags,
    /// `--web.external-url`: URL under which users reach the server, or empty.
    external_url: String,
    /// URL of the web page, which is logged when the server is ready.
    url: String,
    /// Lookback of instant selectors, and time after which a source without samples ends in
    /// aggregation.
    lookback: Duration,
    descriptors: Descriptors,
    running: Arc<ActiveConfig>,
    /// Interval of checks for a changed configuration, if they are enabled.
    reload_every: Option<Duration>,
    app: ServerApp,
    servers: HttpServerTasks,
    signals: Signals,
    /// Exporter of spans, stopped at the end.
    spans: Arc<SpanExportManager>,
    /// The store, shared with the HTTP handlers and set once it is open.
    opened: Arc<OnceLock<Arc<PartitionedStore>>>,
    /// Receiver of the requests to `/-/quit`. One that waits is enough; no second one fits.
    quitting: mpsc::Receiver<()>,
    /// The bucket of the log, or `None` if the log is in the data folder.
    member: Option<ClusterMember>,
}

impl StartingServer {
    /// Handles signals, locks the data folder, then opens the sockets, so that clients only reach
    /// the process that owns the folder.
    async fn start(line: &CommandLine, config: Config) -> Result<(Self, DataDir), ServeError> {
        let signals = Signals::new().map_err(ServeError::Signals)?;
        let settings = &line.settings;
        let limit_bytes = memory_limit(&config);
        let retention = RetentionSettings::resolve_retention(line, config.retention);
        let shares = BudgetShares::from_limit(limit_bytes);
        let limits = retention.limits(config.retention_rules.clone());
        let options = store_options(settings, &config, limits, &shares);
        log_start(settings, limit_bytes, &retention);
        let descriptors = raise_descriptors(settings)?;
        let env = real::system_env().map_err(ServeError::Threads)?;
        retention.check_disk(&*env.disk, &settings.data_dir)?;
        let memory = Budget::new("process", limit_bytes);
        let pressure = Arc::new(MemoryPressure::new(limit_bytes));
        let running = start_running(settings, config, &env)?;
        let retention = retention_provider(line, &running);
        let locks = Arc::new(open_locks(settings, &running, &env)?);
        let opened = Arc::new(OnceLock::new());
        let (quit, quitting) = mpsc::channel(1);
        let member = ClusterMember::open_if_set(&running.config(), settings, &env)?;
        let (tracer, spans) = begin_spans(&env, &running.config());
        let parts = parts::build(AppPartsInputs {
            line,
            connections_max: descriptors.connections,
            running: running.clone(),
            locks: locks.clone(),
            env: env.clone(),
            tracer,
            memory: memory.clone(),
            pressure: pressure.clone(),
            retention: retention.clone(),
            replaying: options.replaying.clone(),
            store: opened.clone(),
            quit,
            cluster: member.as_ref().map(ClusterMember::control),
        })?;
        let page = ExternalUrlSource::from_external_url(&parts.web, &settings.external_url);
        let app = ServerApp::new(parts);
        locks.follow_config(&wrap_server(&app));
        running.tell_of_reloads(&app);
        let dir = take_folder(&env, &options, member.is_some()).await?;
        let servers = HttpServerTasks::start(&settings.listen, &locks, &app).await?;
        let node = Self {
            url: page.url(&locks, servers.first),
            env,
            memory,
            pressure,
            own_bytes: metrics::resident_bytes(),
            options,
            retention,
            keeps_exemplars: keeps_exemplars(settings),
            queries_max: settings.query_concurrency,
            rule_flags: RuleFlags::from_command_line(settings),
            notifier_flags: NotifierFlags::from_command_line(settings),
            external_url: settings.external_url.clone(),
            lookback: settings.lookback,
            descriptors,
            running,
            reload_every: settings.reload_every(),
            app,
            servers,
            signals,
            spans,
            opened,
            quitting,
            member,
        };
        Ok((node, dir))
    }

    /// Opens the store, serves until a signal or a request ends the process, and closes the store.
    async fn run(mut self, dir: DataDir) -> Result<(), ServeError> {
        let Some((mut data, _scratch)) = self.open_data(dir).await? else {
            return Ok(());
        };
        let store = data.store.clone();
        // Changes of the configuration from here on are applied.
        let configs = self.running.subscribe();
        // A process opens its store once.
        let _ = self.opened.set(store.clone());
        let pipeline = Arc::new(self.pipeline(&data));
        let sending = self.begin_sending(&pipeline).await?;
        let places = ConnectionSlots::new(self.descriptors.fetches);
        let scraping = Arc::new(self.scrape_manager(&pipeline, &places));
        subsystems::connect_metadata(&data, &sending, &pipeline, &scraping);
        let aggregating = self.begin_aggregation(&store, &pipeline, &scraping).await?;
        if !self.scrapes_itself() {
            scraping::apply(&scraping, &self.running.config());
        }
        let notifier = Arc::new(self.notifier(places, scraping.discovery_context()));
        let rules = Arc::new(self.open_rules(&pipeline, &notifier).await);
        let reading = Arc::new(self.begin_reading(&data));
        self.app.open(backend::backend(backend::BackendParts {
            env: self.env.clone(),
            store: store.clone(),
            tenants: data.tenants.clone(),
            local: data.reads.clone(),
            cluster: self.cluster_reads(&data),
            pipeline: pipeline.clone(),
            scraping: scraping.clone(),
            rules: rules.clone(),
            notifier: notifier.clone(),
            sending: sending.clone(),
            spans: self.spans.clone(),
            reading: reading.clone(),
            running: self.running.clone(),
            active: self.open_active_queries().await?,
        }));
        announce(&self.url);
        rules.follow_config(self.running.subscribe()).await;
        if self.scrapes_itself() {
            scraping::start_itself(&scraping, &self.app, &self.own_instance());
        }
        let following = ConfigSubscribers {
            data: &data,
            pipeline: &pipeline,
            scraping: &scraping,
            rules: &rules,
            notifier: &notifier,
            aggregating: &aggregating,
            reading: &reading,
        };
        let apart = follow_apart(configs.clone(), aggregating.clone(), sending.clone());
        let watching = self.watch_bucket(data.node.as_ref());
        self.serve(configs, &following).await?;
        drop((apart, watching));
        let stopping = ShutdownSequence {
            scraping,
            rules,
            notifier,
            servers: self.servers,
            pipeline,
            sending,
            spans: self.spans,
            store,
            tenants: data.tenants.clone(),
            peers: data.peers.take(),
        };
        stopping.stop_unless(self.signals).await
    }

    /// Opens the data, unless a signal ends the process before. The caller holds the lock of a
    /// scratch folder until the process ends.
    async fn open_data(
        &mut self,
        dir: DataDir,
    ) -> Result<Option<(OpenedData, Option<DataDir>)>, ServeError> {
        let member = self.member.as_ref();
        let config = self.running.config();
        let tenancy = store_settings::tenancy(&config, self.common_retention());
        let opening = open_data(member, dir, &self.env, &self.options, &self.memory, tenancy);
        tokio::select! {
            opened = opening => opened.map(Some),
            () = self.signals.stop() => Ok(None),
        }
    }

    fn tracer(&self) -> Arc<Tracer> {
        self.spans.tracer().clone()
    }

    /// Returns whether the server scrapes itself without a job in the config: without a config, and
    /// in a cluster, which does not support jobs yet.
    fn scrapes_itself(&self) -> bool {
        self.running.is_built_in() || self.member.is_some()
    }

    /// Returns the label `instance` of the server's own metrics.
    fn own_instance(&self) -> String {
        match &self.member {
            None => format!("localhost:{}", self.servers.first_port()),
            Some(member) => member.name().to_owned(),
        }
    }

    fn outside_url(&self) -> String {
        rules::external_url(&self.external_url, self.servers.first_port())
    }
}
