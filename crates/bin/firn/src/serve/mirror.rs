//! `firn mirror`: wires the mirror to its HTTP server, its targets' clients, signals and config.
//!
//! ```text
//! config or flags -> log of bodies opened -> sockets -> ready
//!   -> SIGHUP, POST /-/reload: targets anew   -> SIGTERM, SIGINT: drains, stores cursors, ends
//! ```
//!
//! Invariant: an error at the start is one line on standard error and exit code 1. A failed reload
//! keeps the previous config and is visible in a metric.

use super::listen::{ListenError, ListenerProtection, bind_all};
use super::locks::{AccessControlled, WebConfigHolder, wrap_server};
use super::running::{LastReload, collect_reload};
use super::signals::{SignalEvent, Signals};
use crate::process::descriptors::Descriptors;
use crate::process::metrics::ProcessCollector;
use crate::process::{logs, memory, runtime};
use firn_config::LogFormat;
use firn_config::config::mirror::{MirrorTarget, load, targets_from_urls};
use firn_config::config::{Config, ConfigError};
use firn_config::web_config::WebConfigError;
use firn_http_client::HttpSettings;
use firn_ingest::IngestLimits;
use firn_model::budget::Budget;
use firn_model::env::{Clock, real};
use firn_model::error::Error;
use firn_model::metrics::{Collect, MetricSink};
use firn_model::shares::BudgetShares;
use firn_model::sync::lock;
use firn_remote_write::forward::ForwardClient;
use firn_remote_write::queue::{
    Delivering, DeliveryMode, DeliveryTransport, Mirror, PASSED_HEADERS, PostAttempt,
    ReceivedWrite, TargetResponse, TargetSettings, WriteMessageCounts,
};
use firn_server::ServerLimits;
use firn_server::access::AccessRules;
use firn_server::reflector::{
    BodyReceiver, ForwardedBody, MirrorServer, MirrorServerParts, Taking,
};
use firn_server::tls::{TlsConfigs, TlsListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tracing::{Level, error, info, warn};

/// The arguments of `firn mirror`.
pub struct MirrorArguments {
    /// `host:port`, one or more.
    pub listen: Vec<String>,
    /// Where bodies wait.
    pub data_dir: PathBuf,
    /// Where they go.
    pub source: MirrorTargetSource,
    /// TLS and users of senders.
    pub web_config: Option<PathBuf>,
    /// The least severe level that is logged.
    pub log_level: Level,
    /// How log lines look.
    pub log_format: LogFormat,
}

/// Where targets are named.
#[derive(Clone)]
pub enum MirrorTargetSource {
    /// In a config.
    File(PathBuf),
    /// On the command line.
    Urls(Vec<String>),
}

/// Why the mirror did not start.
#[derive(Debug, thiserror::Error)]
pub enum MirrorStartError {
    /// The config cannot be used.
    #[error("load config {0}")]
    Config(#[from] ConfigError),
    /// A URL of the command line cannot be used.
    #[error("flag --target: {0}")]
    Target(String),
    /// The web config cannot be used.
    #[error("load web config: {0}")]
    Locks(#[from] WebConfigError),
    /// No socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system gave no threads.
    #[error("start threads: {0}")]
    Threads(std::io::Error),
    /// The system gave no descriptors.
    #[error("raise the limit of open files: {0}")]
    Descriptors(std::io::Error),
    /// The system gave no signals.
    #[error("listen for signals: {0}")]
    Signals(std::io::Error),
    /// The folder cannot be used.
    #[error("open data folder: {0}")]
    Open(Error),
}

/// Runs `firn mirror` until a signal ends it.
pub fn run(line: &MirrorArguments) -> Result<(), MirrorStartError> {
    let targets = read(&line.source)?;
    logs::start(line.log_level, line.log_format);
    runtime::run(serve(line, targets)).map_err(MirrorStartError::Threads)?
}

fn read(source: &MirrorTargetSource) -> Result<Vec<TargetSettings>, MirrorStartError> {
    let targets = match source {
        MirrorTargetSource::File(file) => load(file)?,
        MirrorTargetSource::Urls(urls) => {
            targets_from_urls(urls).map_err(MirrorStartError::Target)?
        }
    };
    targets.into_iter().map(settings).collect()
}

/// Converts a target of the config into the settings of its queue and its client.
fn settings(target: MirrorTarget) -> Result<TargetSettings, MirrorStartError> {
    // Most redirects make a GET of a POST, and its 200 would confirm a body that no receiver got.
    let http = HttpSettings {
        follow_redirects: false,
        ..target.http
    };
    let forward = ForwardClient::new(&target.url, http).map_err(MirrorStartError::Target)?;
    Ok(TargetSettings {
        key: target.key,
        label: target.label,
        queue_bytes_max: target.queue_bytes_max,
        queue_age_max: target.queue_age_max,
        sample_age_max: None,
        prepare: Arc::new(target.filter),
        fill: Duration::ZERO,
        timeout: target.timeout,
        backoff_min: target.backoff.0,
        backoff_max: target.backoff.1,
        manner: DeliveryMode::Patient,
        deliver: Arc::new(MirrorTransport(forward)),
    })
}

/// The client of one receiver.
pub struct MirrorTransport(pub ForwardClient);

impl DeliveryTransport for MirrorTransport {
    fn post(&self, posting: PostAttempt) -> Delivering<'_> {
        Box::pin(async move {
            let answer = self.0.post_body(posting.headers, posting.body).await;
            let answer = answer.map_err(|e| e.message)?;
            Ok(TargetResponse {
                status: answer.status,
                retry_after: answer.retry_after,
                location: answer.location,
                written: answer.written,
                text: answer.text,
            })
        })
    }
}

/// The mirror as its server sees it.
struct MirrorReceiver(Arc<Mirror>);

impl BodyReceiver for MirrorReceiver {
    fn store_body(&self, passed: ForwardedBody) -> Taking {
        let mirror = self.0.clone();
        let write = ReceivedWrite {
            headers: passed.headers,
            contents: None,
            body: passed.body,
        };
        Box::pin(async move {
            let counts = mirror.store_body(write).await?;
            Ok(counts
                .map(parse_written_counts)
                .into_iter()
                .flatten()
                .collect())
        })
    }
}

/// Returns the response headers with the counts of written samples. Remote write 2.0 requires them:
/// Prometheus treats a response without them as a loss.
fn parse_written_counts(counts: WriteMessageCounts) -> [(&'static str, u64); 3] {
    [
        ("x-prometheus-remote-write-samples-written", counts.samples),
        (
            "x-prometheus-remote-write-histograms-written",
            counts.histograms,
        ),
        (
            "x-prometheus-remote-write-exemplars-written",
            counts.exemplars,
        ),
    ]
}

impl AccessControlled for MirrorServer {
    fn set_rules(&self, rules: Arc<AccessRules>) {
        MirrorServer::set_rules(self, rules);
    }
}

/// Reads the targets again.
struct MirrorReloader {
    source: MirrorTargetSource,
    mirror: Arc<Mirror>,
    clock: Arc<dyn Clock>,
    /// The outcome of the last reload. Locked during a reload.
    last: Mutex<LastReload>,
}

impl MirrorReloader {
    /// May block, and must be called inside the runtime.
    fn reload(&self) -> Result<(), String> {
        let mut last = lock(&self.last);
        if matches!(self.source, MirrorTargetSource::Urls(_)) {
            info!("no config file to reload");
            return Ok(());
        }
        match read(&self.source) {
            Ok(targets) => {
                self.mirror.apply(targets);
                self.mirror.store_cursors();
                *last = LastReload {
                    is_successful: true,
                    success_time: self.clock.now_ms(),
                };
                info!("config reloaded");
                Ok(())
            }
            Err(e) => {
                last.is_successful = false;
                error!(error = %e, "failed to reload the config: keeping the previous one");
                Err(e.to_string())
            }
        }
    }
}

impl Collect for MirrorReloader {
    fn collect(&self, sink: &mut dyn MetricSink) {
        collect_reload(sink, *lock(&self.last));
    }
}

/// TLS and users of the web config. The config of targets has no section about access: a user may
/// do all.
fn open_locks(
    line: &MirrorArguments,
    clock: Arc<dyn Clock>,
) -> Result<WebConfigHolder, WebConfigError> {
    let config = Arc::new(Config::default());
    let web = line.web_config.as_deref();
    WebConfigHolder::open(web, Box::new(move || config.clone()), clock)
}

/// Returns the limits of the server: those of its shares of memory, with no more connections than
/// the process has descriptors for.
fn server_limits(shares: &BudgetShares, descriptors: &Descriptors) -> ServerLimits {
    let limits = ServerLimits::from_shares(shares);
    ServerLimits {
        connections_max: descriptors.connections.min(limits.connections_max),
        ..limits
    }
}

async fn serve(
    line: &MirrorArguments,
    targets: Vec<TargetSettings>,
) -> Result<(), MirrorStartError> {
    let mut signals = Signals::new().map_err(MirrorStartError::Signals)?;
    let (descriptors, _) = Descriptors::raise().map_err(MirrorStartError::Descriptors)?;
    let env = real::system_env().map_err(MirrorStartError::Threads)?;
    let limit_bytes = memory::limit_bytes(Config::default().memory_limit);
    let shares = BudgetShares::from_limit(usize::try_from(limit_bytes).unwrap_or(usize::MAX));
    let wire = IngestLimits::from_write_share(&shares).wire;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        data = %line.data_dir.display(),
        targets = targets.len(),
        body_bytes_max = wire.body_bytes_max,
        "starting mirror"
    );
    let mirror = Mirror::open(env.clone(), &line.data_dir, wire.message_bytes_max);
    let mirror = Arc::new(mirror.map_err(MirrorStartError::Open)?);
    let locks = Arc::new(open_locks(line, env.clock.clone())?);
    let listeners = bind_all(&line.listen, ListenerProtection::from_web_config(&locks)).await?;
    mirror.apply(targets);
    let keeping = tokio::spawn(mirror.clone().store_cursors_periodically());
    let reloading = Arc::new(MirrorReloader {
        source: line.source.clone(),
        mirror: mirror.clone(),
        clock: env.clock.clone(),
        last: Mutex::new(LastReload {
            is_successful: true,
            success_time: env.clock.now_ms(),
        }),
    });
    let memory = Budget::new("process", shares.limit);
    let parts = MirrorServerParts {
        limits: server_limits(&shares, &descriptors),
        bodies: memory.create_share("bodies", shares.writes),
        body_bytes_max: wire.body_bytes_max,
        heads: memory.create_share("request heads", shares.heads),
        passed_headers: &PASSED_HEADERS,
        passing: Arc::new(MirrorReceiver(mirror.clone())),
        collectors: vec![
            Arc::new(ProcessCollector::new(memory)),
            reloading.clone(),
            mirror.clone(),
            locks.clone(),
        ],
        reload: {
            let reloading = reloading.clone();
            Arc::new(move || reloading.reload())
        },
        env: env.clone(),
    };
    let reflector = MirrorServer::new(parts);
    locks.follow_config(&wrap_server(&reflector));
    let handshakes = locks.handshakes(&wrap_server(&reflector));
    let servers = MirrorServerTasks::start(listeners, &reflector, handshakes);
    info!("ready");
    run_until_stopped(&mut signals, &reloading).await;
    info!("stop");
    let stopping = async {
        servers.stop().await;
        keeping.abort();
        mirror.stop().await;
    };
    tokio::select! {
        () = stopping => {}
        () = signals.stop() => warn!("second signal: exiting immediately"),
    }
    Ok(())
}

async fn run_until_stopped(signals: &mut Signals, reloading: &Arc<MirrorReloader>) {
    while signals.next().await == SignalEvent::Reload {
        let reloading = reloading.clone();
        // The reload logs its errors.
        let _ = spawn_blocking(move || reloading.reload()).await;
    }
}

/// The tasks that serve the sockets.
struct MirrorServerTasks {
    tasks: JoinSet<()>,
    stopping: watch::Sender<bool>,
}

impl MirrorServerTasks {
    fn start(
        listeners: Vec<TcpListener>,
        reflector: &MirrorServer,
        handshakes: Option<TlsConfigs>,
    ) -> Self {
        let stopping = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let mut stop = stopping.subscribe();
            let stopped = async move {
                // An error means that the sender is gone, which is a stop too.
                let _ = stop.wait_for(|stop| *stop).await;
            };
            let reflector = reflector.clone();
            match handshakes.clone() {
                None => tasks.spawn(reflector.serve(listener, stopped)),
                Some(handshakes) => {
                    let listener = TlsListener::new(listener, handshakes);
                    tasks.spawn(reflector.serve(listener, stopped))
                }
            };
        }
        Self { tasks, stopping }
    }

    /// Takes no more requests and waits for those under way.
    async fn stop(self) {
        self.stopping.send_replace(true);
        self.tasks.join_all().await;
    }
}
