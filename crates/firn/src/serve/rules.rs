//! Rules as they run: the groups of the config in force, each on a task of its own.
//!
//! ```text
//! config -> groups: those that did not change go on, the others are started, changed, ended
//! task of a group: firn_rules::machine says what to do; queries, appends, sends are done here
//! tick -> what groups keep over the end of the process is synced
//! ```
//!
//! Invariant: one configuration is taken over at a time, in order, by one task; a group whose file
//! changed ends its evaluation first.

mod backfill;
mod metrics;
mod progress;
mod runner;
mod under_way;

use crate::process::host;
use crate::settings::Settings;
use crate::settings::config::Config;
use backfill::Backfills;
use firn_ingest::{InstantAge, Pipeline};
use firn_model::env::Env;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_rules::alert::Alert;
use firn_rules::alerts::RestoreSettings;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::journal::{self, Journal};
use firn_rules::machine::{Machine, MachineSettings};
use firn_rules::rule::Outside;
use firn_rules::schedule::CatchUp;
use firn_rules::view::{BackfillError, BackfillRequest, BackfillView, GroupView, Groups};
use firn_server::App;
use firn_server::parts::OutsideUrl;
use metrics::RuleMetrics;
use progress::Progress;
use runner::Runner;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tracing::{info, warn};

/// The folder in the data folder.
const FOLDER: &str = "rules";

/// How long evaluations under way may take to end when the server stops; what does not end is made
/// up for at the next start.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The series of a group that is gone end after so many of its intervals: its rules may have moved
/// to another group.
const INTERVALS_BEFORE_END: u32 = 2;

/// Takes alerts that are due to be sent, with the expression of their rule. Must not block.
pub type Notify = Arc<dyn Fn(&str, Vec<Alert>) + Send + Sync>;

/// What flags say of rules.
#[derive(Clone, Copy, Debug)]
pub struct RuleFlags {
    /// How alerts go on after a stop.
    pub restore: RestoreSettings,
    /// `--rules.alert.resend-delay`
    pub resend_delay: Duration,
    /// `--rules.max-concurrent-evals`
    pub evaluations_max: usize,
    /// Queries that may be evaluated at one time.
    pub queries_max: usize,
}

impl RuleFlags {
    /// Those of a command line.
    pub fn of(settings: &Settings) -> Self {
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

/// The URL under which users reach a server that listens on `port`, without a slash at its end:
/// the one of the command line, or the machine's.
pub fn external_url(flag: &str, port: u16) -> String {
    if !flag.is_empty() {
        return flag.trim_end_matches('/').to_owned();
    }
    format!("http://{}:{port}", host::name())
}

/// What groups need of the server.
pub struct Surroundings {
    /// Answers queries.
    pub app: App,
    /// Takes samples.
    pub pipeline: Arc<Pipeline>,
    /// Time and files.
    pub env: Env,
    /// Takes alerts.
    pub notify: Notify,
    /// The URL under which users reach the server.
    pub external_url: String,
}

/// What all groups share.
struct Shared {
    around: Surroundings,
    flags: RuleFlags,
    tenant: TenantId,
    /// What groups keep over the end of the process; `None` if it cannot be kept.
    journal: Option<Arc<Mutex<Journal>>>,
    /// Evaluations of rules beside another one of their group.
    extra: Semaphore,
    /// Evaluations that may stand in the queue of queries.
    turns: Semaphore,
    outside: Mutex<Arc<Outside>>,
    metrics: RuleMetrics,
    progress: Progress,
    backfills: Backfills,
}

impl Shared {
    fn now(&self) -> Instant {
        Instant::from_ms(self.around.env.clock.now_ms())
    }

    fn outside(&self) -> Arc<Outside> {
        lock(&self.outside).clone()
    }
}

/// The groups of rules that run.
pub struct Rules {
    shared: Arc<Shared>,
    running: Mutex<BTreeMap<String, Runner>>,
    /// Those of the configuration in force.
    settings: Mutex<Option<MachineSettings>>,
    /// Takes over configurations as they come.
    following: Mutex<Option<JoinHandle<()>>>,
}

/// The file in the data folder that keeps the state.
pub fn state_file() -> PathBuf {
    Path::new(FOLDER).join(journal::NAME)
}

impl Rules {
    /// Groups that keep their state in `data_dir`; none runs before [`Rules::follow`].
    pub async fn open(around: Surroundings, flags: RuleFlags, data_dir: &Path) -> Self {
        let (disk, dir) = (around.env.disk.clone(), data_dir.join(FOLDER));
        let shown = dir.display().to_string();
        let opened = spawn_blocking(move || Journal::open(disk, &dir)).await;
        let journal = match opened {
            Ok(Ok(journal)) => Some(Arc::new(Mutex::new(journal))),
            Ok(Err(e)) => {
                warn!(error = %e, dir = shown, "state of rules is not kept across restarts");
                None
            }
            Err(_) => None,
        };
        let shared = Shared {
            tenant: TenantId::anonymous(),
            journal,
            extra: Semaphore::new(flags.evaluations_max),
            turns: Semaphore::new(flags.queries_max.max(1)),
            outside: Mutex::default(),
            metrics: RuleMetrics::default(),
            progress: Progress::default(),
            backfills: Backfills::default(),
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

    /// Takes over the groups of the configuration in force, then those of each that comes, one
    /// behind the other.
    pub async fn follow(self: &Arc<Self>, mut configs: watch::Receiver<Arc<Config>>) {
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

    /// Where templates say that users reach the server.
    pub fn outside_url(&self) -> OutsideUrl {
        let url = self.shared.around.external_url.clone();
        let path = path_of(&url).to_owned();
        OutsideUrl { url, path }
    }

    /// Takes over the groups of `config`. All that must end are told at once, and are shown until
    /// they have ended.
    async fn apply(&self, config: &Config) {
        *lock(&self.shared.outside) = Arc::new(Outside {
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
                    let runner = Runner::start(self.shared.clone(), machine);
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
        // Tasks that only wait do not fail.
        while let Some(Ok((machine, next))) = ending.join_next().await {
            match next {
                Some(group) => self.go_on(&machine, group, settings),
                None => self.end(&machine),
            }
        }
        self.forget_gone().await;
        let count = config.rule_groups.len();
        if count > 0 || !is_first {
            info!(groups = count, "rules loaded");
        }
    }

    /// Starts a group that changed, in the place of the one that has ended.
    fn go_on(&self, ended: &Mutex<Machine>, group: Arc<Group>, settings: MachineSettings) {
        let changed = lock(ended).changed(group.clone(), settings, self.shared.now());
        let runner = Runner::start(self.shared.clone(), changed);
        lock(&self.running).insert(group.key(), runner);
    }

    fn settings(&self, config: &Config) -> MachineSettings {
        let flags = &self.shared.flags;
        MachineSettings {
            catch_up: CatchUp {
                span: config.rules.catch_up,
                delay: config.rules.catch_up_delay,
            },
            restore: flags.restore,
            resend_delay: flags.resend_delay,
            query_offset: config.rule_query_offset,
            rules_at_once: 1 + flags.evaluations_max,
        }
    }

    /// A group that begins; with the process, if it `is_first`.
    fn machine(&self, group: Arc<Group>, settings: MachineSettings, is_first: bool) -> Machine {
        let now = self.shared.now();
        if !is_first {
            return Machine::added(group, settings, now);
        }
        let saved = match &self.shared.journal {
            None => None,
            Some(journal) => lock(journal).find(&group.file, &group.name),
        };
        Machine::start(group, settings, saved, now)
    }

    /// Forgets a group that is in no file any more and has ended.
    fn end(&self, ended: &Mutex<Machine>) {
        let shared = self.shared.clone();
        let (batch, group) = {
            let machine = lock(ended);
            (machine.end(shared.now()), machine.group().clone())
        };
        lock(&self.running).remove(&group.key());
        tokio::spawn(async move {
            tokio::time::sleep(group.interval * INTERVALS_BEFORE_END).await;
            let ends = runner::append(&shared, (&group, InstantAge::Live), batch, None);
            if let Err(e) = ends.await {
                warn!(
                    group = group.name,
                    error = %e,
                    "failed to mark the series of removed rules as stale"
                );
            }
        });
    }

    /// Drops what is kept of groups that do not run.
    async fn forget_gone(&self) {
        let Some(journal) = self.shared.journal.clone() else {
            return;
        };
        let keys: Vec<String> = lock(&self.running).keys().cloned().collect();
        let forget = move || lock(&journal).retain(|key| keys.iter().any(|k| k == key));
        report(spawn_blocking(forget).await);
    }

    /// Syncs what groups keep; the caller must call it about once a second.
    pub fn tick(&self) {
        if let Some(journal) = self.shared.journal.clone() {
            spawn_blocking(move || report(Ok(lock(&journal).sync())));
        }
    }

    /// Lets evaluations under way end, and begins no other.
    pub async fn stop(&self) {
        let following = lock(&self.following).take();
        let all = async {
            if let Some(following) = following {
                following.abort();
                // It was ended.
                let _ = following.await;
            }
            let mut running = std::mem::take(&mut *lock(&self.running));
            let stopping: Vec<_> = running.values_mut().map(Runner::stop).collect();
            for group in stopping {
                group.ended().await;
            }
        };
        // What is still under way ends with the process.
        let _ = tokio::time::timeout(STOP_MAX, all).await;
        if let Some(journal) = self.shared.journal.clone() {
            report(spawn_blocking(move || lock(&journal).sync()).await);
        }
    }
}

/// Logs that state could not be kept.
fn report(outcome: Result<std::io::Result<()>, tokio::task::JoinError>) {
    if let Ok(Err(e)) = outcome {
        warn!(error = %e, "failed to store the state of rules");
    }
}

/// The path of a URL, without a slash at its end.
fn path_of(url: &str) -> &str {
    let behind = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = behind.find('/').map_or("", |at| &behind[at..]);
    path.trim_end_matches('/')
}

impl Groups for Rules {
    fn groups(&self, with_alerts: bool) -> Vec<GroupView> {
        let running: Vec<_> = lock(&self.running).values().map(Runner::machine).collect();
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
            let mut found = running.values().map(Runner::group).filter(|group| {
                let files = ["", &group.file, group.shown_file()];
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
