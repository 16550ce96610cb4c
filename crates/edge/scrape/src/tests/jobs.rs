//! Tests jobs under tokio's paused clock, which jumps to the next timer when all tasks wait.

use super::{body, lines};
use crate::fetch::FetchFactory;
use crate::plan::ScrapeJobLifecycle;
use crate::{Fetch, Fetching, ScrapeJobSettings, ScrapeManager};
use firn_discovery::{DiscoverySettings, TargetGroup};
use firn_http_client::ConnectionSlots;
use firn_ingest::IngestLimits;
use firn_ingest::Pipeline;
use firn_ingest::relabel::{RelabelAction, RelabelRuleSettings};
use firn_ingest::targets::{ScrapePoolView, ScrapeTarget, TargetHealth};
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::env::Clock;
use firn_model::names::NameScheme;
use firn_model::sample::TimestampMs;
use firn_model::shares::BudgetShares;
use firn_model::store::{Append, AppendBounds, AppendOutcome, Ticket};
use firn_model::tenant::TenantId;
use firn_model::trace::{TraceSpan, Tracer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Keeps every batch as lines of text.
#[derive(Default)]
struct Batches(Mutex<Vec<Vec<String>>>);

impl Append for Batches {
    fn append(&self, _: &TenantId, batch: &Batch, _: AppendBounds) -> Ticket {
        self.0.lock().unwrap().push(lines(batch));
        Ticket::resolved(Ok(AppendOutcome {
            stored: batch.sample_count(),
            ..AppendOutcome::default()
        }))
    }
}

/// Tokio's clock as wall-clock time that starts at zero.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now_ms(&self) -> TimestampMs {
        self.0.elapsed().as_millis() as i64
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The behaviour of targets by address: their latency, and their body.
type Behaviour = Arc<Mutex<BTreeMap<String, (Duration, String)>>>;

struct Fakes(Behaviour);

struct Fake {
    behaviour: Behaviour,
    url: String,
}

impl FetchFactory for Fakes {
    fn make_fetcher(&self, _: &ScrapeJobSettings, target: &ScrapeTarget) -> Arc<dyn Fetch> {
        Arc::new(Fake {
            behaviour: self.0.clone(),
            url: target.url.clone(),
        })
    }
}

impl Fetch for Fake {
    fn start_fetch<'f>(&'f self, _: &'f TraceSpan) -> Fetching<'f> {
        Box::pin(async {
            let address = self.url.split('/').nth(2).unwrap_or_default();
            let known = self.behaviour.lock().unwrap().get(address).cloned();
            let (takes, text) = known.unwrap_or((Duration::ZERO, "a 1\n".into()));
            sleep(takes).await;
            Ok(body(&text))
        })
    }
}

struct Bench {
    scraping: ScrapeManager,
    pipeline: Arc<Pipeline>,
    batches: Arc<Batches>,
    behaviour: Behaviour,
    start: Instant,
}

impl Bench {
    fn new() -> Self {
        let start = Instant::now();
        let clock = Arc::new(PausedClock(start));
        let batches = Arc::new(Batches::default());
        let memory = Budget::new("process", 1 << 30);
        let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(1 << 30));
        let pipeline = Pipeline::new(batches.clone(), clock.clone(), limits, &memory);
        let pipeline = Arc::new(pipeline);
        Self {
            scraping: ScrapeManager::new(
                pipeline.clone(),
                clock.clone(),
                Tracer::new(clock, Arc::new(firn_model::env::sim::SimRng::new(1))),
                &memory,
                ConnectionSlots::unlimited(),
            ),
            pipeline,
            batches,
            behaviour: Behaviour::default(),
            start,
        }
    }

    /// Starts a job, or reloads it with new settings.
    fn apply(&self, job: ScrapeJobSettings, begins_at_once: bool) {
        let job = Arc::new(job);
        let mut pools = self.scraping.lock_pools();
        if let Some(pool) = pools.get(&job.name) {
            return pool.reload_job(job);
        }
        let manner = ScrapeJobLifecycle {
            maker: Arc::new(Fakes(self.behaviour.clone())),
            begins_at_once,
            marks_at_stop: begins_at_once,
        };
        pools.insert(job.name.clone(), self.scraping.start_pool(job, manner));
    }

    fn behave(&self, address: &str, takes: Duration, text: &str) {
        let mut behaviour = self.behaviour.lock().unwrap();
        behaviour.insert(address.to_owned(), (takes, text.to_owned()));
    }

    /// Waits until this many seconds after the start.
    async fn until(&self, seconds: u64) {
        tokio::time::sleep_until(self.start + Duration::from_secs(seconds)).await;
    }

    /// Returns the lines so far that contain `what`, and removes all lines.
    fn drain(&self, what: &str) -> Vec<String> {
        let batches = std::mem::take(&mut *self.batches.0.lock().unwrap());
        let lines = batches.into_iter().flatten();
        lines.filter(|line| line.contains(what)).collect()
    }

    fn view(&self) -> Arc<ScrapePoolView> {
        self.scraping.pool_views()[0].clone()
    }
}

/// Returns a job `test` that scrapes `targets` every ten seconds.
fn job(targets: &[&str]) -> ScrapeJobSettings {
    let mut job = ScrapeJobSettings::new("test");
    job.interval = Duration::from_secs(10);
    job.discoveries = vec![DiscoverySettings::Static(vec![TargetGroup {
        targets: targets.iter().map(|t| (*t).to_owned()).collect(),
        ..TargetGroup::default()
    }])];
    job
}

#[tokio::test(start_paused = true)]
async fn job_scrapes_at_once_then_on_schedule_and_marks_at_stop() {
    let bench = Bench::new();
    bench.apply(job(&["here"]), true);
    bench.until(15).await;
    bench.behave("here", Duration::from_secs(11), "a 2\n");
    bench.until(39).await;
    bench.scraping.stop_all().await;
    let wanted = [
        "{\"a\"} 1@0",
        "{\"a\"} 1@10000",
        "{\"a\"} stale@20000",
        "{\"a\"} stale@39000",
    ];
    // The second slow scrape was still running, so that no series is left to mark.
    assert_eq!(bench.drain("{\"a\"}"), wanted[..3]);
    let metrics = bench.pipeline.metrics();
    assert_eq!(metrics.scrapes_succeeded.get(), 2);
    assert_eq!(metrics.scrapes_failed.get(), 1);
    assert_eq!(metrics.scrape_targets.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn job_reports_a_slow_target_and_goes_on_with_the_others() {
    let bench = Bench::new();
    bench.behave("slow", Duration::from_secs(60), "");
    bench.behave("good", Duration::from_millis(100), "a 1\n");
    bench.apply(job(&["slow", "good"]), true);
    bench.until(55).await;
    let active = bench.view().active_targets();
    let urls: Vec<_> = active.iter().map(|a| a.target.url.as_str()).collect();
    assert_eq!(urls, ["http://good/metrics", "http://slow/metrics"]);
    let (good, slow) = (
        active[0].status.last_scrape(),
        active[1].status.last_scrape(),
    );
    assert_eq!((good.health, &good.error[..]), (TargetHealth::Up, ""));
    assert_eq!(good.duration, Duration::from_millis(100));
    assert_eq!(slow.health, TargetHealth::Down);
    assert_eq!(
        slow.error,
        "Get \"http://slow/metrics\": context deadline exceeded"
    );
    assert_eq!(
        bench
            .drain("instance=\"good\"")
            .iter()
            .filter(|l| l.contains("\"a\""))
            .count(),
        6
    );
    bench.scraping.stop_all().await;
}

#[tokio::test(start_paused = true)]
async fn job_target_that_goes_is_marked_late_and_one_that_returns_is_not() {
    let bench = Bench::new();
    bench.apply(job(&["x", "y"]), true);
    bench.until(5).await;
    bench.apply(job(&[]), true);
    bench.until(15).await;
    bench.apply(job(&["y"]), true);
    bench.until(40).await;
    let stale = bench.drain("stale");
    let of = |instance: &str| -> Vec<&String> {
        let label = format!("instance=\"{instance}\"");
        stale.iter().filter(|l| l.contains(&label)).collect()
    };
    assert_eq!(of("y"), Vec::<&String>::new());
    let x = of("x");
    assert_eq!(x.len(), 6, "{stale:?}");
    assert!(x.iter().all(|l| l.ends_with("stale@10000")), "{x:?}");
    bench.scraping.stop_all().await;
    assert_eq!(bench.pipeline.metrics().scrape_targets.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn job_reloaded_keeps_series_schedule_and_targets() {
    let bench = Bench::new();
    bench.apply(job(&["here"]), false);
    bench.until(29).await;
    let before = bench.drain("{\"a\"}");
    let second = |line: &str| line.rsplit_once('@').unwrap().1.parse::<u64>().unwrap() % 10_000;
    let phase = second(&before[0]);
    let mut changed = job(&["here"]);
    changed.limits.samples = 5;
    bench.apply(changed, false);
    bench.until(59).await;
    let after = bench.drain("");
    let samples: Vec<_> = after.iter().filter(|l| l.contains("{\"a\"}")).collect();
    assert_eq!(samples.len(), 3, "{after:?}");
    assert!(samples.iter().all(|l| second(l) == phase), "{samples:?}");
    assert!(!after.iter().any(|l| l.contains("stale")));
    let added: Vec<_> = after
        .iter()
        .filter(|l| l.contains("series_added"))
        .collect();
    assert!(added.iter().all(|l| l.contains("} 0@")), "{added:?}");
    // Another interval has another schedule, but no series becomes stale.
    let mut faster = job(&["here"]);
    faster.interval = Duration::from_secs(5);
    faster.timeout = Duration::from_secs(5);
    bench.apply(faster, false);
    bench.until(109).await;
    let after = bench.drain("");
    let samples = after.iter().filter(|l| l.contains("{\"a\"}")).count();
    assert_eq!(samples, 10);
    assert!(!after.iter().any(|l| l.contains("stale")));
    bench.scraping.stop_all().await;
}

#[tokio::test(start_paused = true)]
async fn job_with_too_many_targets_scrapes_none() {
    let bench = Bench::new();
    let mut limited = job(&["x", "y", "x"]);
    limited.limits.targets = 1;
    bench.apply(limited, true);
    bench.until(5).await;
    for active in bench.view().active_targets() {
        assert_eq!(
            active.status.last_scrape().error,
            "target_limit exceeded (number of targets: 2, limit: 1)"
        );
    }
    assert!(bench.drain("{\"a\"").is_empty());
    bench.apply(job(&["x"]), true);
    bench.until(25).await;
    assert_eq!(bench.drain("{\"a\"").len(), 2);
    bench.scraping.stop_all().await;
}

#[tokio::test(start_paused = true)]
async fn job_shows_the_last_of_targets_that_differ_in_discovered_labels() {
    let bench = Bench::new();
    let group = |name: &str| TargetGroup {
        targets: vec!["x:1".into()],
        labels: [("__meta_name".to_owned(), name.to_owned())].into(),
    };
    let orders = [["one", "two"], ["two", "one"], ["one", "three"]];
    for (names, seconds) in orders.into_iter().zip([5, 6, 7]) {
        let mut repeating = job(&[]);
        repeating.limits.targets = 1;
        repeating.discoveries = vec![DiscoverySettings::Static(names.map(group).into())];
        bench.apply(repeating, true);
        bench.until(seconds).await;
        let active = bench.view().active_targets();
        let shown: Vec<_> = active
            .iter()
            .map(|active| active.target.discovered.get("__meta_name").to_owned())
            .collect();
        assert_eq!(shown, [names[1].as_bytes()]);
        assert_eq!(active[0].status.last_scrape().error, "");
    }
    bench.scraping.stop_all().await;
}

#[tokio::test(start_paused = true)]
async fn job_shows_what_relabelling_dropped() {
    let bench = Bench::new();
    let mut keeping = job(&["x:1", "y:1", "z:1", "u/v"]);
    let keep = RelabelRuleSettings {
        source_labels: Some(vec!["__address__".into()]),
        regex: Some("x.*|u.*".into()),
        action: RelabelAction::Keep,
        ..RelabelRuleSettings::default()
    };
    keeping.relabel = Arc::new(vec![keep.compile(NameScheme::Utf8).unwrap()]);
    keeping.keep_dropped_targets = 1;
    bench.apply(keeping, true);
    bench.until(5).await;
    let view = bench.view();
    assert_eq!(view.active_targets().len(), 1);
    assert_eq!((view.dropped_targets().len(), view.dropped_count()), (1, 2));
    assert_eq!(view.dropped_targets()[0].get("__address__"), b"y:1");
    bench.scraping.stop_all().await;
}

#[tokio::test(start_paused = true)]
async fn job_that_is_gone_ends_as_its_targets_would() {
    let bench = Bench::new();
    bench.apply(job(&["x"]), true);
    bench.until(5).await;
    bench.scraping.apply_config(&[], 0);
    assert!(bench.scraping.pool_views().is_empty());
    bench.until(22).await;
    let lines = bench.drain("{\"a\"");
    assert_eq!(
        lines,
        [
            "{\"a\", instance=\"x\", job=\"test\"} 1@0",
            "{\"a\", instance=\"x\", job=\"test\"} stale@10000"
        ]
    );
}
