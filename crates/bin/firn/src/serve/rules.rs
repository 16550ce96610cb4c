//! Running rules: each group of the active configuration has its own task.
//!
//! ```text
//! config         -> groups: unchanged ones continue, others are started, changed or ended
//! task per group -> firn_rules::machine returns actions; this module queries, appends and sends
//! tick           -> the persistent state of the groups is synced
//! ```
//!
//! Invariant: one task applies configurations in order, one at a time. A changed group ends its
//! current evaluation before its successor starts.

mod backfill;
mod metrics;
mod progress;
mod runner;
mod under_way;

use crate::process::host;
use backfill::BackfillManager;
use firn_config::Settings;
use firn_config::config::Config;
use firn_ingest::{InstantAge, Pipeline};
use firn_model::env::Env;
use firn_model::sync::lock;
use firn_rules::alert::Alert;
use firn_rules::alerts::RestoreSettings;
use firn_rules::group::RuleGroup;
use firn_rules::instant::RuleInstant;
use firn_rules::journal::{self, RuleJournal};
use firn_rules::machine::{GroupMachine, GroupMachineSettings};
use firn_rules::rule::TemplateServerSettings;
use firn_rules::schedule::CatchUpSettings;
use firn_rules::view::{BackfillError, BackfillRequest, BackfillView, GroupView, RuleGroups};
use firn_server::ServerApp;
use firn_server::parts::ExternalUrl;
use metrics::RuleMetrics;
use progress::RuleGroupOrder;
use runner::RuleGroupRunner;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tracing::{info, warn};

/// Name of the folder for the state of rules, relative to the data folder.
const FOLDER: &str = "rules";

/// Maximum time that running evaluations get when the server stops. Unfinished ones are caught up
/// after the next start.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Number of intervals after which the series of a removed group end. They may continue earlier in
/// another group.
const INTERVALS_BEFORE_END: u32 = 2;

/// Function that receives the alerts to send, with the expression of their rule. Must not block.
pub type Notify = Arc<dyn Fn(&str, Vec<Alert>) + Send + Sync>;

/// Settings of rules that are determined by flags and constant while the process runs.
#[derive(Clone, Copy, Debug)]
pub struct RuleFlags {
    /// How the state of alerts is restored after a restart.
    pub restore: RestoreSettings,
    /// `--rules.alert.resend-delay`: minimum time between two notifications of the same alert.
    pub resend_delay: Duration,
    /// `--rules.max-concurrent-evals`: maximum number of rules evaluated concurrently within their
    /// groups.
    pub evaluations_max: usize,
    /// Maximum number of queries that the server evaluates concurrently.
    pub queries_max: usize,
}

impl RuleFlags {
    /// Returns the settings of rules on a command line.
    pub fn from_command_line(settings: &Settings) -> Self {
        Self {
            restore: RestoreSettings {
                outage_tolerance: settings.alert_outage_tolerance,
                grace_period: settings.alert_grace_period,
            },
            resend_delay: settings.alert_resend_delay,
            evaluations_max: settings.rule_evaluations_max,
            queries_max: settings.query_concurrency,
        }
    }
}

/// Returns the URL under which users reach a server that listens on `port`, without a trailing
/// slash: the URL of the flag, else one with the host name.
pub fn external_url(flag: &str, port: u16) -> String {
    if !flag.is_empty() {
        return flag.trim_end_matches('/').to_owned();
    }
    format!("http://{}:{port}", host::name())
}

/// Parts of the server that rule groups use, passed in by the start of the server before any group
/// runs.
pub struct RuleDependencies {
    /// Server that evaluates the queries of rules, through its query queue.
    pub app: ServerApp,
    /// Pipeline that stores the samples of rules.
    pub pipeline: Arc<Pipeline>,
    /// Clock, and the disk for the state of the groups.
    pub env: Env,
    /// Function that receives the alerts to send to Alertmanagers.
    pub notify: Notify,
    /// URL under which users reach the server, for links in notifications and templates.
    pub external_url: String,
}

/// State shared by all groups and backfills of a server, created when the rules are opened.
struct RuleManagerState {
    around: RuleDependencies,
    flags: RuleFlags,
    /// Persistent state of the groups, or `None` if it cannot be stored.
    journal: Option<Arc<Mutex<RuleJournal>>>,
    /// Permits for evaluating a rule concurrently with another one of its group.
    extra: Semaphore,
    /// Permits for entering the query queue, as many as the server evaluates queries concurrently.
    turns: Semaphore,
    outside: Mutex<Arc<TemplateServerSettings>>,
    metrics: RuleMetrics,
    progress: RuleGroupOrder,
    backfills: BackfillManager,
}

impl RuleManagerState {
    fn now(&self) -> RuleInstant {
        RuleInstant::from_ms(self.around.env.clock.now_ms())
    }

    fn outside(&self) -> Arc<TemplateServerSettings> {
        lock(&self.outside).clone()
    }
}

/// The running rule groups of a server. Follows the configuration from
/// [`RuleManager::follow_config`] until [`RuleManager::stop`].
pub struct RuleManager {
    shared: Arc<RuleManagerState>,
    running: Mutex<BTreeMap<String, RuleGroupRunner>>,
    /// Settings of the active configuration, or `None` before the first one.
    settings: Mutex<Option<GroupMachineSettings>>,
    /// Task that applies new configurations, until the rules are stopped.
    following: Mutex<Option<JoinHandle<()>>>,
}

/// Returns the path of the state file, relative to the data folder.
pub fn state_file() -> PathBuf {
    Path::new(FOLDER).join(journal::NAME)
}

impl RuleManager {
    /// Opens the state of the groups in `data_dir`. No group runs before
    /// [`RuleManager::follow_config`]. If the state cannot be opened, rules run without it.
    pub async fn open(around: RuleDependencies, flags: RuleFlags, data_dir: &Path) -> Self {
        let (disk, dir) = (around.env.disk.clone(), data_dir.join(FOLDER));
        let shown = dir.display().to_string();
        let opened = spawn_blocking(move || RuleJournal::open(disk, &dir)).await;
        let journal = match opened {
            Ok(Ok(journal)) => Some(Arc::new(Mutex::new(journal))),
            Ok(Err(e)) => {
                warn!(error = %e, dir = shown, "state of rules is not kept across restarts");
                None
            }
            Err(_) => None,
        };
        let shared = RuleManagerState {
            journal,
            extra: Semaphore::new(flags.evaluations_max),
            turns: Semaphore::new(flags.queries_max.max(1)),
            outside: Mutex::default(),
            metrics: RuleMetrics::default(),
            progress: RuleGroupOrder::default(),
            backfills: BackfillManager::default(),
            around,
            flags,
        };
        Self {
            shared: Arc::new(shared),
            running: Mutex::default(),
            settings: Mutex::default(),
            following: Mutex::default(),
        }
    }

    /// Applies the groups of the active configuration and then, in a task, those of each new one in
    /// order.
    pub async fn follow_config(self: &Arc<Self>, mut configs: watch::Receiver<Arc<Config>>) {
        let first = configs.borrow_and_update().clone();
        self.apply(&first).await;
        let rules = self.clone();
        let following = tokio::spawn(async move {
            while configs.changed().await.is_ok() {
                let config = configs.borrow_and_update().clone();
                rules.apply(&config).await;
            }
        });
        *lock(&self.following) = Some(following);
    }

    /// Returns the external URL of the server, in the form that templates use.
    pub fn outside_url(&self) -> ExternalUrl {
        let url = self.shared.around.external_url.clone();
        let path = path_of(&url).to_owned();
        ExternalUrl { url, path }
    }

    /// Applies the groups of `config`. All groups that must end are notified at once, and are
    /// listed by the API until they have ended.
    async fn apply(&self, config: &Config) {
        *lock(&self.shared.outside) = Arc::new(TemplateServerSettings {
            external_labels: config.external_labels.clone(),
            external_url: self.shared.around.external_url.clone(),
            path_prefix: path_of(&self.shared.around.external_url).to_owned(),
        });
        let settings = self.settings(config);
        let is_first = lock(&self.settings).replace(settings).is_none();
        self.shared.progress.take_over(&config.rule_groups);
        let mut ending = JoinSet::new();
        for group in &config.rule_groups {
            let mut running = lock(&self.running);
            match running.get_mut(&group.key()) {
                Some(runner) if runner.group() == group => runner.set_settings(settings),
                Some(runner) => {
                    let (stopping, next) = (runner.stop(), group.clone());
                    ending.spawn(async move { (stopping.ended().await, Some(next)) });
                }
                None => {
                    let machine = self.machine(group.clone(), settings, is_first);
                    let runner = RuleGroupRunner::start(self.shared.clone(), machine);
                    running.insert(group.key(), runner);
                }
            }
        }
        let keys: HashSet<String> = config.rule_groups.iter().map(|g| g.key()).collect();
        for (key, runner) in lock(&self.running).iter_mut() {
            if !keys.contains(key) {
                let stopping = runner.stop();
                ending.spawn(async move { (stopping.ended().await, None) });
            }
        }
        // These tasks only wait and cannot fail.
        while let Some(Ok((machine, next))) = ending.join_next().await {
            match next {
                Some(group) => self.restart_group(&machine, group, settings),
                None => self.end(&machine),
            }
        }
        self.forget_gone().await;
        let count = config.rule_groups.len();
        if count > 0 || !is_first {
            info!(groups = count, "rules loaded");
        }
    }

    /// Starts a changed group in place of the ended one, with its state.
    fn restart_group(
        &self,
        ended: &Mutex<GroupMachine>,
        group: Arc<RuleGroup>,
        settings: GroupMachineSettings,
    ) {
        let changed = lock(ended).start_successor(group.clone(), settings, self.shared.now());
        let runner = RuleGroupRunner::start(self.shared.clone(), changed);
        lock(&self.running).insert(group.key(), runner);
    }

    fn settings(&self, config: &Config) -> GroupMachineSettings {
        let flags = &self.shared.flags;
        GroupMachineSettings {
            catch_up: CatchUpSettings {
                span: config.rules.catch_up,
                delay: config.rules.catch_up_delay,
            },
            restore: flags.restore,
            resend_delay: flags.resend_delay,
            query_offset: config.rule_query_offset,
            rules_at_once: 1 + flags.evaluations_max,
        }
    }

    /// Creates the machine of a new group. If `is_first`, the group starts with the process and
    /// restores its stored state.
    fn machine(
        &self,
        group: Arc<RuleGroup>,
        settings: GroupMachineSettings,
        is_first: bool,
    ) -> GroupMachine {
        let now = self.shared.now();
        if !is_first {
            return GroupMachine::start_added(group, settings, now);
        }
        let saved = match &self.shared.journal {
            None => None,
            Some(journal) => lock(journal).find(&group.file, &group.name),
        };
        GroupMachine::start(group, settings, saved, now)
    }

    /// Removes an ended group that is no longer configured, and ends its series after some
    /// intervals.
    fn end(&self, ended: &Mutex<GroupMachine>) {
        let shared = self.shared.clone();
        let (batch, group) = {
            let machine = lock(ended);
            (machine.end(shared.now()), machine.group().clone())
        };
        lock(&self.running).remove(&group.key());
        tokio::spawn(async move {
            tokio::time::sleep(group.interval * INTERVALS_BEFORE_END).await;
            let ends = runner::append(&shared, &group, InstantAge::Live, batch, None);
            if let Err(e) = ends.await {
                warn!(
                    group = group.name,
                    error = %e,
                    "failed to mark the series of removed rules as stale"
                );
            }
        });
    }

    /// Removes the stored state of groups that do not run.
    async fn forget_gone(&self) {
        let Some(journal) = self.shared.journal.clone() else {
            return;
        };
        let keys: Vec<String> = lock(&self.running).keys().cloned().collect();
        let forget = move || lock(&journal).retain(|key| keys.iter().any(|k| k == key));
        report(spawn_blocking(forget).await);
    }

    /// Syncs the stored state of groups. The caller must call it about once a second.
    pub fn tick(&self) {
        if let Some(journal) = self.shared.journal.clone() {
            spawn_blocking(move || report(Ok(lock(&journal).sync())));
        }
    }

    /// Waits for running evaluations, up to [`STOP_MAX`], and starts no new ones.
    pub async fn stop(&self) {
        let following = lock(&self.following).take();
        let all = async {
            if let Some(following) = following {
                following.abort();
                // The task was aborted above.
                let _ = following.await;
            }
            let mut running = std::mem::take(&mut *lock(&self.running));
            let stopping: Vec<_> = running.values_mut().map(RuleGroupRunner::stop).collect();
            for group in stopping {
                group.ended().await;
            }
        };
        // Evaluations that are still running end with the process.
        let _ = tokio::time::timeout(STOP_MAX, all).await;
        if let Some(journal) = self.shared.journal.clone() {
            report(spawn_blocking(move || lock(&journal).sync()).await);
        }
    }
}

/// Logs a warning if the state of groups could not be stored.
fn report(outcome: Result<std::io::Result<()>, tokio::task::JoinError>) {
    if let Ok(Err(e)) = outcome {
        warn!(error = %e, "failed to store the state of rules");
    }
}

/// Returns the path of a URL, without a trailing slash.
fn path_of(url: &str) -> &str {
    let behind = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = behind.find('/').map_or("", |at| &behind[at..]);
    path.trim_end_matches('/')
}

impl RuleGroups for RuleManager {
    fn groups(&self, with_alerts: bool) -> Vec<GroupView> {
        let running: Vec<_> = lock(&self.running)
            .values()
            .map(RuleGroupRunner::machine)
            .collect();
        let views = running.iter();
        let mut views: Vec<GroupView> = views.map(|m| lock(m).view(with_alerts)).collect();
        views.sort_by(|a, b| {
            let key = |view: &GroupView| (view.group.file.clone(), view.group.name.clone());
            key(a).cmp(&key(b))
        });
        views
    }

    fn backfill(&self, request: BackfillRequest) -> Result<BackfillView, BackfillError> {
        let group = {
            let running = lock(&self.running);
            let mut found = running
                .values()
                .map(RuleGroupRunner::group)
                .filter(|group| {
                    let files = ["", &group.file, group.api_file_name()];
                    group.name == request.group && files.contains(&request.file.as_str())
                });
            match (found.next(), found.next()) {
                (Some(group), None) => group.clone(),
                (None, _) => return Err(BackfillError::NoGroup(request.group)),
                (Some(_), Some(_)) => return Err(BackfillError::SeveralGroups(request.group)),
            }
        };
        let settings = (*lock(&self.settings)).ok_or(BackfillError::NotYet)?;
        let backfills = &self.shared.backfills;
        backfills.begin(self.shared.clone(), &group, settings, request)
    }

    fn backfills(&self) -> Vec<BackfillView> {
        self.shared.backfills.views()
    }
}
