//! The task of one job: keeps a runner for each target that its discoveries find.
//!
//! ```text
//! discoveries --groups--> targets --compare--> runners: start, continue, leave
//! ```
//!
//! Invariant: each target (labels and URL) has at most one runner, including leaving ones: a target
//! that returns soon continues with its old runner.

use super::plan::{ScrapeJobLifecycle, ScrapePlan};
use super::resources::ScrapeResources;
use super::runner::{ScrapeLoopHandle, ScrapeLoopOrder};
use super::settings::ScrapeJobSettings;
use super::target::{TargetCandidate, first_scrape_delay, target_from_address};
use firn_discovery::{Discovery, DiscoveryOwner, DiscoverySettings, TargetGroup};
use firn_ingest::targets::{ActiveTarget, ScrapePoolSnapshot, ScrapePoolView, ScrapeTarget};
use firn_model::labels::Labels;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

/// Time for which the targets of a changed job are kept while its new discoveries have not returned
/// a list.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest number of dropped targets to remember, if the job sets no limit.
const DROPPED_MAX: usize = 100_000;

/// An order to the task of a job; a later one replaces one that was not handled yet.
#[derive(Clone)]
enum ScrapePoolOrder {
    Run(Arc<ScrapeJobSettings>),
    /// The job was removed from the configuration.
    Leave,
    /// The server stops and waits for the job.
    Stop,
}

/// Handle of the task of one scrape job, which runs until it gets the order to leave or stop.
pub(super) struct ScrapePool {
    orders: watch::Sender<ScrapePoolOrder>,
    view: Arc<ScrapePoolView>,
    task: JoinHandle<()>,
}

impl ScrapePool {
    pub(super) fn start_task(
        job: Arc<ScrapeJobSettings>,
        manner: ScrapeJobLifecycle,
        resources: Arc<ScrapeResources>,
    ) -> Self {
        let (orders, follows) = watch::channel(ScrapePoolOrder::Run(job.clone()));
        let view = Arc::new(ScrapePoolView::new(&job.name, job.relabel.clone()));
        let work = ScrapePoolTask {
            manner,
            resources,
            changed: Arc::new(Notify::new()),
            discoveries: Vec::new(),
            runners: HashMap::new(),
            leaving: HashMap::new(),
            view: view.clone(),
            job,
            waits_until: None,
        };
        Self {
            orders,
            view,
            task: tokio::spawn(work.run(follows)),
        }
    }

    /// Continues with new settings; does nothing if they are equal to the current ones.
    pub(super) fn reload_job(&self, job: Arc<ScrapeJobSettings>) {
        self.orders.send_if_modified(|order| {
            let is_same = matches!(order, ScrapePoolOrder::Run(old) if **old == *job);
            if !is_same {
                *order = ScrapePoolOrder::Run(job);
            }
            !is_same
        });
    }

    /// Ends the job in the background, as if all its targets had vanished.
    pub(super) fn leave_in_background(self) {
        self.orders.send_replace(ScrapePoolOrder::Leave);
    }

    /// Ends the job; the returned future resolves when everything is stored.
    pub(super) fn stop_job(self) -> impl Future<Output = ()> {
        self.orders.send_replace(ScrapePoolOrder::Stop);
        async move {
            if let Err(e) = self.task.await {
                warn!(job = self.view.name(), error = %e, "scrape job failed");
            }
        }
    }

    pub(super) fn view(&self) -> Arc<ScrapePoolView> {
        self.view.clone()
    }
}

type Identity = (Labels, String);

struct ScrapePoolTask {
    manner: ScrapeJobLifecycle,
    resources: Arc<ScrapeResources>,
    /// Notified when a discovery has a new list.
    changed: Arc<Notify>,
    discoveries: Vec<(DiscoverySettings, Discovery)>,
    runners: HashMap<Identity, ScrapeLoopHandle>,
    leaving: HashMap<Identity, ScrapeLoopHandle>,
    view: Arc<ScrapePoolView>,
    job: Arc<ScrapeJobSettings>,
    /// Deadline until which targets are kept although no discovery has returned them again.
    waits_until: Option<Instant>,
}

/// The targets in the groups of all discoveries, without duplicates, and those that relabelling
/// dropped.
#[derive(Default)]
struct ScrapePoolTargets {
    active: HashMap<Identity, Arc<ScrapeTarget>>,
    dropped: Vec<Labels>,
    dropped_count: usize,
}

impl ScrapePoolTargets {
    /// Adds a target. It replaces an earlier one that differs in discovered labels only, as in
    /// Prometheus.
    fn add_target(&mut self, target: ScrapeTarget) {
        self.active.insert(target.identity(), Arc::new(target));
    }
}

impl ScrapePoolTask {
    async fn run(mut self, mut orders: watch::Receiver<ScrapePoolOrder>) {
        self.start_discoveries();
        let end = loop {
            let changed = self.changed.clone();
            let waits_until = self.waits_until;
            tokio::select! {
                biased;
                order = orders.changed() => {
                    let order = match order {
                        Ok(()) => orders.borrow_and_update().clone(),
                        Err(_) => ScrapePoolOrder::Stop,
                    };
                    match order {
                        ScrapePoolOrder::Run(job) => {
                            self.job = job;
                            self.start_discoveries();
                            self.sync_runners().await;
                        }
                        end => break end,
                    }
                }
                () = changed.notified() => self.sync_runners().await,
                () = wait_until(waits_until) => {
                    self.waits_until = None;
                    self.sync_runners().await;
                }
            }
        };
        self.end_runners(end).await;
    }

    /// Starts the new discoveries of the job, keeps unchanged ones, and stops the others.
    fn start_discoveries(&mut self) {
        let mut old = std::mem::take(&mut self.discoveries);
        let owner = DiscoveryOwner {
            purpose: "scrape",
            config: self.job.name.clone(),
        };
        for settings in &self.job.discoveries {
            let known = old.iter().position(|(known, _)| known == settings);
            let discovery = match known {
                Some(at) => old.swap_remove(at).1,
                None => {
                    let lent = self.resources.discovery_context();
                    Discovery::start(settings, &lent, &owner, self.changed.clone())
                }
            };
            self.discoveries.push((settings.clone(), discovery));
        }
        self.waits_until = Some(Instant::now() + PATIENCE);
    }

    /// Returns the groups of all discoveries; `None` while one has not returned a list and the
    /// deadline has not passed.
    fn discovered_groups(&mut self) -> Option<Vec<Arc<Vec<TargetGroup>>>> {
        let lists: Vec<_> = self.discoveries.iter().map(|(_, d)| d.groups()).collect();
        let is_complete = lists.iter().all(Option::is_some);
        if is_complete {
            self.waits_until = None;
        }
        // Without running targets there is no reason to wait.
        let waits = self.waits_until.is_some() && !self.runners.is_empty();
        (!waits).then(|| lists.into_iter().flatten().collect())
    }

    /// Starts, updates and ends runners according to the lists of the discoveries.
    async fn sync_runners(&mut self) {
        let Some(groups) = self.discovered_groups() else {
            return;
        };
        let job = self.job.clone();
        let Ok(targets) = spawn_blocking(move || find_targets(&job, &groups)).await else {
            error!(job = self.job.name, "failed to create targets");
            return;
        };
        self.leaving.retain(|_, runner| !runner.is_finished());
        let refusal = self.target_limit_error(targets.active.len());
        let mut old = std::mem::take(&mut self.runners);
        for (identity, target) in targets.active {
            let known = old.remove(&identity);
            let runner = match known.or_else(|| self.leaving.remove(&identity)) {
                Some(runner) => self.continue_runner(runner, target, &refusal),
                None => {
                    let offset = self.first_scrape_delay(&target);
                    ScrapeLoopHandle::start_task(
                        self.build_plan(target, &refusal),
                        offset,
                        self.resources.clone(),
                    )
                }
            };
            self.runners.insert(identity, runner);
        }
        for (identity, runner) in old {
            runner.send_order(ScrapeLoopOrder::Leave);
            self.leaving.insert(identity, runner);
        }
        self.update_view(targets.dropped, targets.dropped_count);
    }

    fn build_plan(&self, target: Arc<ScrapeTarget>, refusal: &Option<String>) -> Arc<ScrapePlan> {
        Arc::new(ScrapePlan {
            fetch: self.manner.maker.make_fetcher(&self.job, &target),
            job: self.job.clone(),
            target,
            refusal: refusal.clone(),
        })
    }

    /// Continues a runner, with the same plan if nothing has changed, so that its schedule remains.
    fn continue_runner(
        &self,
        mut runner: ScrapeLoopHandle,
        target: Arc<ScrapeTarget>,
        refusal: &Option<String>,
    ) -> ScrapeLoopHandle {
        let plan = runner.plan();
        let is_same =
            Arc::ptr_eq(&plan.job, &self.job) && plan.target == target && plan.refusal == *refusal;
        let plan = if is_same {
            plan.clone()
        } else {
            self.build_plan(target, refusal)
        };
        runner.run_plan(plan);
        runner
    }

    fn first_scrape_delay(&self, target: &ScrapeTarget) -> Duration {
        if self.manner.begins_at_once {
            Duration::ZERO
        } else {
            first_scrape_delay(target, self.resources.clock.now_ms(), self.resources.seed())
        }
    }

    /// Returns why none of `count` targets may be scraped, if their number exceeds the limit.
    fn target_limit_error(&self, count: usize) -> Option<String> {
        let limit = self.job.limits.targets;
        (limit > 0 && count as u64 > limit)
            .then(|| format!("target_limit exceeded (number of targets: {count}, limit: {limit})"))
    }

    fn update_view(&self, dropped: Vec<Labels>, dropped_count: usize) {
        let runners = self.runners.values();
        let mut active: Vec<ActiveTarget> = runners
            .map(|runner| ActiveTarget {
                target: runner.plan().target.clone(),
                status: runner.status().clone(),
            })
            .collect();
        active.sort_by(|a, b| {
            let key = |t: &ActiveTarget| t.target.identity();
            (&a.target.url, key(a)).cmp(&(&b.target.url, key(b)))
        });
        self.view.update(ScrapePoolSnapshot {
            relabel: self.job.relabel.clone(),
            active,
            dropped: Arc::new(dropped),
            dropped_count,
        });
    }

    /// Ends all runners, with or without staleness markers, and waits for them.
    async fn end_runners(mut self, end: ScrapePoolOrder) {
        self.discoveries.clear();
        let runners: Vec<ScrapeLoopHandle> =
            self.runners.drain().map(|(_, runner)| runner).collect();
        let leaving: Vec<ScrapeLoopHandle> =
            self.leaving.drain().map(|(_, runner)| runner).collect();
        for runner in &runners {
            runner.send_order(match end {
                ScrapePoolOrder::Leave => ScrapeLoopOrder::Leave,
                _ if self.manner.marks_at_stop => ScrapeLoopOrder::EndMarked,
                _ => ScrapeLoopOrder::EndSilently,
            });
        }
        if !matches!(end, ScrapePoolOrder::Leave) {
            for runner in &leaving {
                runner.send_order(ScrapeLoopOrder::EndSilently);
            }
        }
        for runner in runners.into_iter().chain(leaving) {
            runner.wait_until_finished().await;
        }
    }
}

async fn wait_until(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Creates targets from all addresses in `groups`.
fn find_targets(job: &ScrapeJobSettings, groups: &[Arc<Vec<TargetGroup>>]) -> ScrapePoolTargets {
    let kept_max = match job.keep_dropped_targets {
        0 => DROPPED_MAX,
        max => usize::try_from(max).unwrap_or(DROPPED_MAX),
    };
    let mut targets = ScrapePoolTargets::default();
    for group in groups.iter().flat_map(|list| list.iter()) {
        for address in &group.targets {
            match target_from_address(job, address, group) {
                Ok(TargetCandidate::Target(target)) => targets.add_target(*target),
                Ok(TargetCandidate::Dropped(labels)) => {
                    targets.dropped_count += 1;
                    if targets.dropped.len() < kept_max {
                        targets.dropped.push(labels);
                    }
                }
                Err(e) => error!(
                    job = job.name,
                    address,
                    error = e,
                    "failed to create target"
                ),
            }
        }
    }
    targets
}
