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
mod metadata;
pub mod mirror;
mod notify;
mod opened_data;
mod parts;
mod reading;
mod rule_folder;
pub mod rules;
mod running;
mod scraping;
mod sending;
pub mod signals;
mod spans;
pub mod store_settings;

use crate::console;
use crate::documentation;
use crate::process::descriptors::Descriptors;
use crate::process::pressure::MemoryPressure;
use crate::process::{logs, memory, metrics, runtime};
use crate::version;
use address::{ExternalUrlSource, announce};
use agent::DiscardingStore;
use aggregating::AggregationConfigurator;
use backend::ClusterBackendParts;
use cluster::ClusterMember;
use cluster::peers::PeerMembership;
use error::ServeError;
use firn_cluster::node::ClusterNode;
use firn_cluster::partitions::store::PartitionedStore;
use firn_config::Settings;
use firn_config::config::{self, Config, JobFeatures};
use firn_config::flags::{self, CommandLine, Request};
use firn_config::retention::RetentionSettings;
use firn_config::web_config::WebConfigError;
use firn_discovery::DiscoveryContext;
use firn_http_client::ConnectionSlots;
use firn_ingest::{IngestLimits, Pipeline};
use firn_model::budget::Budget;
use firn_model::env::{Env, real};
use firn_model::metrics::Collect;
use firn_model::shares::BudgetShares;
use firn_model::store::Append;
use firn_model::trace::Tracer;
use firn_scrape::ScrapeManager;
use firn_server::ActiveQueries;
use firn_server::ServerApp;
use firn_server::parts::Provider;
use firn_storage::data_dir::DataDir;
use firn_storage::store::StoreOptions;
use listen::HttpServerTasks;
use locks::{WebConfigHolder, wrap_server};
use notify::{Notifier, NotifierFlags, NotifierSettings};
use opened_data::{OpenedData, close_data, open_data, take_folder};
use parts::AppPartsInputs;
use reading::RemoteReadStore;
use rules::{RuleDependencies, RuleFlags, RuleManager};
use running::ActiveConfig;
use sending::{RemoteWriteManager, SendingMode};
use signals::{SignalEvent, Signals};
use spans::SpanExportManager;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store_settings::{keeps_exemplars, late_window_ms, store_options};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tracing::{Level, info, warn};

/// Interval at which the store may start background work that is due.
const TICK: Duration = Duration::from_secs(1);

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

/// Creates the tracer, which starts spans, and the exporter that sends them to the collector.
fn begin_spans(env: &Env, config: &Config) -> (Arc<Tracer>, Arc<SpanExportManager>) {
    let tracer = Tracer::new(env.clock.clone(), env.rng.clone());
    let spans = SpanExportManager::new(tracer.clone());
    spans.apply_config(config);
    (tracer, Arc::new(spans))
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
    let signals = Signals::new().map_err(ServeError::Signals)?;
    let (node, dir) = StartingServer::start(line, config, signals).await?;
    node.run(dir).await
}

/// Parts that end with the process, in the order of their stop: sources of samples first, the store
/// last.
struct ShutdownSequence {
    scraping: Arc<ScrapeManager>,
    rules: Arc<RuleManager>,
    notifier: Arc<Notifier>,
    servers: HttpServerTasks,
    pipeline: Arc<Pipeline>,
    sending: Arc<RemoteWriteManager>,
    spans: Arc<SpanExportManager>,
    store: Arc<PartitionedStore>,
    peers: Option<PeerMembership>,
}

impl ShutdownSequence {
    /// Stops all parts. A second signal ends the process immediately.
    async fn stop_unless(self, mut signals: Signals) -> Result<(), ServeError> {
        info!("stop");
        let pipeline = self.pipeline.clone();
        tokio::select! {
            closed = self.stop() => closed,
            () = signals.stop() => {
                warn!("second signal: exiting immediately");
                pipeline.log_remaining_rejections();
                Ok(())
            }
        }
    }

    /// Stops all parts. The store is closed last, when no part writes samples any more.
    async fn stop(self) -> Result<(), ServeError> {
        let Self {
            scraping,
            rules,
            notifier,
            servers,
            pipeline,
            sending,
            spans,
            store,
            peers,
        } = self;
        scraping.stop_all().await;
        rules.stop().await;
        notifier.stop().await;
        servers.stop().await;
        sending.stop().await;
        spans.stop().await;
        pipeline.log_remaining_rejections();
        spawn_blocking(move || {
            aggregating::finish(&pipeline);
            metadata::store_if_due(&pipeline, true);
        })
        .await?;
        close_data(peers, store).await?.map_err(ServeError::Close)
    }
}

/// Parts that follow the configuration, borrowed by the main loop.
struct ConfigSubscribers<'a> {
    data: &'a OpenedData,
    pipeline: &'a Arc<Pipeline>,
    scraping: &'a ScrapeManager,
    rules: &'a RuleManager,
    notifier: &'a Notifier,
    aggregating: &'a Arc<AggregationConfigurator>,
    reading: &'a RemoteReadStore,
}

/// Applies configurations in order, in a separate task, to the parts that may wait for the WAL or
/// for a folder. The task ends when the returned set is dropped.
fn follow_apart(
    mut configs: watch::Receiver<Arc<Config>>,
    aggregating: Arc<AggregationConfigurator>,
    sending: Arc<RemoteWriteManager>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while configs.changed().await.is_ok() {
            let config = configs.borrow_and_update().clone();
            let (aggregating, sending) = (aggregating.clone(), sending.clone());
            let work = move || {
                aggregating.apply_config(&config);
                // `follow` logs its own errors and retries.
                let _ = sending.apply_config(&config);
            };
            // The panic of the thread was logged by its hook.
            let _ = spawn_blocking(work).await;
        }
    });
    tasks
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
    /// Locks the data folder, then opens the sockets, so that clients only reach the process that
    /// owns the folder.
    async fn start(
        line: &CommandLine,
        config: Config,
        signals: Signals,
    ) -> Result<(Self, DataDir), ServeError> {
        let settings = &line.settings;
        let limit_bytes = memory_limit(&config);
        let retention = RetentionSettings::resolve_retention(line, config.retention);
        let shares = BudgetShares::from_limit(limit_bytes);
        let options = store_options(settings, &config, retention.limits(), &shares);
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
        let pipeline = Arc::new(self.pipeline(&store));
        let sending = self.begin_sending(&pipeline).await?;
        let places = ConnectionSlots::new(self.descriptors.fetches);
        let timing = (self.env.clock.clone(), self.tracer());
        let scraping = ScrapeManager::new(pipeline.clone(), timing, &self.memory, places.clone());
        let scraping = Arc::new(scraping);
        metadata::set_metadata_sources(&store, &sending, &pipeline, &scraping);
        if let Some(peers) = &data.peers {
            peers.set_metadata_sources(&pipeline, &scraping);
        }
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
        let opening = open_data(member, dir, &self.env, &self.options, &self.memory);
        tokio::select! {
            opened = opening => opened.map(Some),
            () = self.signals.stop() => Ok(None),
        }
    }

    /// Creates the pipeline of samples into `store`, or only to the receivers of an agent.
    fn pipeline(&self, store: &Arc<PartitionedStore>) -> Pipeline {
        let features = self.running.features();
        let into: Arc<dyn Append> = if features.is_agent {
            Arc::new(DiscardingStore)
        } else {
            store.clone()
        };
        let pipeline = Pipeline::new(
            into,
            self.env.clock.clone(),
            IngestLimits::from_write_share(&BudgetShares::from_limit(self.memory.limit_bytes())),
            &self.memory,
        )
        .with_type_labels(features.type_and_unit_labels)
        .with_zero_samples(features.start_times.make_zeros)
        .with_otlp_settings(features.deltas, self.lookback);
        pipeline.set_translation(self.running.config().otlp.clone());
        pipeline
    }

    fn tracer(&self) -> Arc<Tracer> {
        self.spans.tracer().clone()
    }

    /// Starts remote write. No sample is stored before this, so that every sample is queued for the
    /// receivers.
    async fn begin_sending(
        &self,
        pipeline: &Pipeline,
    ) -> Result<Arc<RemoteWriteManager>, ServeError> {
        let (env, tracer) = (self.env.clone(), self.tracer());
        let (dir, limits) = (&self.options.dir, pipeline.limits().wire);
        let (is_agent, app) = (self.running.features().is_agent, self.app.clone());
        let duty = SendingMode {
            is_agent,
            tell: Box::new(move |is_good| app.note_sending(is_good)),
        };
        let sending = Arc::new(RemoteWriteManager::new(env, tracer, dir, limits, duty));
        pipeline.set_receiver_queue(sending.clone());
        let (begun, config) = (sending.clone(), self.running.config());
        let followed = spawn_blocking(move || begun.apply_config(&config)).await?;
        match followed {
            // An agent stores samples nowhere else.
            Err(e) if is_agent => Err(ServeError::Sending(e)),
            // A server stores samples, logs the error, and retries.
            _ => Ok(sending),
        }
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

    /// Returns the reads and metrics of a cluster, or `None` if the log is in the data folder.
    fn cluster_reads(&self, data: &OpenedData) -> Option<ClusterBackendParts> {
        let member = self.member.as_ref()?;
        let mut collectors: Vec<Arc<dyn Collect>> = vec![member.metrics(), member.state_metrics()];
        if let Some(peers) = &data.peers {
            collectors.push(peers.metrics());
        }
        Some(ClusterBackendParts {
            partial: data.partial.clone(),
            collectors,
        })
    }

    fn watch_bucket(&self, node: Option<&Arc<ClusterNode>>) -> JoinSet<()> {
        match (&self.member, node) {
            (Some(member), Some(node)) => member.watch_store(node, &self.env),
            _ => JoinSet::new(),
        }
    }

    /// Creates the reader of the local store and of the remote servers in the config.
    fn begin_reading(&self, data: &OpenedData) -> RemoteReadStore {
        let of_blocks = data.store.clone();
        let since = Box::new(move || of_blocks.first_block_ms());
        let reading = RemoteReadStore::new(data.reads.clone(), since, self.env.clock.clone());
        reading.apply_config(&self.running.config());
        reading
    }

    /// Starts aggregation. No sample is stored before its state is restored.
    async fn begin_aggregation(
        &self,
        store: &Arc<PartitionedStore>,
        pipeline: &Arc<Pipeline>,
        scraping: &Arc<ScrapeManager>,
    ) -> Result<Arc<AggregationConfigurator>, ServeError> {
        let sources_max = self.options.series_max;
        let (env, lookback) = (self.env.clone(), self.lookback);
        let (pipeline, of_metadata) = (pipeline.clone(), pipeline.clone());
        let aggregating = AggregationConfigurator::new(pipeline, store, env, lookback, sources_max);
        aggregating.set_targets(scraping);
        let aggregating = Arc::new(aggregating);
        let (begun, config) = (aggregating.clone(), self.running.config());
        let (env, dir) = (self.env.clone(), self.options.dir.clone());
        spawn_blocking(move || {
            // The type of a metric determines its aggregation.
            metadata::open(&of_metadata, &env, &dir);
            begun.apply_config(&config);
        })
        .await?;
        Ok(aggregating)
    }

    /// Opens the list of running queries. The store has locked the data folder before.
    async fn open_active_queries(&self) -> Result<ActiveQueries, ServeError> {
        let (env, dir) = (self.env.clone(), self.options.dir.clone());
        let slots = self.queries_max;
        let opened = spawn_blocking(move || ActiveQueries::open(&env, &dir, slots));
        Ok(opened.await?)
    }

    /// Creates the notifier, which sends alerts to the Alertmanagers of the config.
    fn notifier(&self, places: ConnectionSlots, lent: DiscoveryContext) -> Notifier {
        let notifier = Notifier::new(NotifierSettings {
            flags: self.notifier_flags,
            external_url: self.outside_url(),
            places,
            lent,
        });
        let config = self.running.config();
        notifier.apply(&config.alerting, &config.external_labels);
        notifier
    }

    fn outside_url(&self) -> String {
        rules::external_url(&self.external_url, self.servers.first_port())
    }

    /// Opens the state of rules. No rule runs yet, because rules query the server, which must be
    /// ready first.
    async fn open_rules(&self, pipeline: &Arc<Pipeline>, notifier: &Arc<Notifier>) -> RuleManager {
        let notifier = notifier.clone();
        let around = RuleDependencies {
            app: self.app.clone(),
            pipeline: pipeline.clone(),
            env: self.env.clone(),
            notify: Arc::new(move |expression, alerts| notifier.send(&alerts, expression)),
            external_url: self.outside_url(),
        };
        RuleManager::open(around, self.rule_flags, &self.options.dir).await
    }

    /// Runs periodic work until a signal or a request ends the process.
    async fn serve(
        &mut self,
        mut configs: watch::Receiver<Arc<Config>>,
        following: &ConfigSubscribers<'_>,
    ) -> Result<(), ServeError> {
        let ConfigSubscribers { data, pipeline, .. } = *following;
        let store = &data.store;
        let mut retention = (self.retention)();
        let mut tick = tokio::time::interval(TICK);
        let mut looking = tokio::time::interval(self.reload_every.unwrap_or(TICK).max(TICK));
        let mut held = self.memory.create_reservation();
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    if let Some(fault) = data.fault() {
                        return Err(ServeError::LostPartition(fault));
                    }
                    store.tick();
                    pipeline.log_due_rejections();
                    following.rules.tick();
                    let pressure = self.pressure.clone();
                    // A check that returns much memory to the system takes tenths of a second.
                    let aggregating = Arc::clone(following.aggregating);
                    let of_metadata = pipeline.clone();
                    spawn_blocking(move || {
                        pressure.update_decay_time();
                        aggregating.apply();
                        metadata::store_if_due(&of_metadata, false);
                    });
                    let state = pipeline.aggregation_bytes() + pipeline.deltas_bytes();
                    held.set(self.own_bytes + store.memory_bytes() + state);
                }
                _ = looking.tick(), if self.reload_every.is_some() => self.look_for_changes(),
                Some(()) = self.quitting.recv() => return Ok(()),
                Ok(()) = configs.changed() => {
                    let config = configs.borrow_and_update().clone();
                    self.keep_by_config(&mut retention, store);
                    self.apply_config(&config, following);
                }
                wish = self.signals.next() => match wish {
                    SignalEvent::Stop => return Ok(()),
                    SignalEvent::Reload => {
                        let running = self.running.clone();
                        // `reload` logs its own errors.
                        let _ = spawn_blocking(move || running.reload()).await?;
                    }
                }
            }
        }
    }

    /// Applies a new configuration to all parts that follow it.
    fn apply_config(&self, config: &Arc<Config>, following: &ConfigSubscribers<'_>) {
        let store = &following.data.store;
        if self.keeps_exemplars {
            store.set_exemplars_max(config.exemplars_max);
        }
        store.set_late_window_ms(late_window_ms(config));
        following.pipeline.set_translation(config.otlp.clone());
        if !self.scrapes_itself() {
            scraping::apply(following.scraping, config);
        }
        let notifier = following.notifier;
        notifier.apply(&config.alerting, &config.external_labels);
        following.reading.apply_config(config);
        self.spans.apply_config(config);
    }

    /// Reloads the configuration if it changed, on a thread for blocking work.
    fn look_for_changes(&self) {
        let running = self.running.clone();
        spawn_blocking(move || running.reload_if_changed());
    }

    /// Applies the retention of a new configuration to the store, if it differs from the `known`
    /// one.
    fn keep_by_config(&self, known: &mut RetentionSettings, store: &PartitionedStore) {
        let retention = (self.retention)();
        if std::mem::replace(known, retention) == retention {
            return;
        }
        info!(%retention, "retention changed");
        retention.warn();
        if let Err(e) = retention.check_disk(&*self.env.disk, &self.options.dir) {
            warn!(
                error = %e,
                "cannot apply the retention percentage: using the retention size only"
            );
        }
        store.set_retention(retention.limits());
    }
}

/// Creates the holder of the active configuration, which is initially `config`.
fn start_running(
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

fn memory_limit(config: &Config) -> usize {
    usize::try_from(memory::limit_bytes(config.memory_limit)).unwrap_or(usize::MAX)
}

fn open_locks(
    settings: &Settings,
    running: &Arc<ActiveConfig>,
    env: &Env,
) -> Result<WebConfigHolder, WebConfigError> {
    let (file, now) = (settings.web_config_file.as_deref(), running.clone());
    WebConfigHolder::open(file, Box::new(move || now.config()), env.clock.clone())
}

/// Returns a provider of the retention in the active configuration.
fn retention_provider(
    line: &CommandLine,
    running: &Arc<ActiveConfig>,
) -> Provider<RetentionSettings> {
    let (line, running) = (line.clone(), running.clone());
    Arc::new(move || RetentionSettings::resolve_retention(&line, running.config().retention))
}

/// Raises the limit of open files and logs it. Warns if it is lower than the configured number of
/// connections requires.
fn raise_descriptors(settings: &Settings) -> Result<Descriptors, ServeError> {
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
