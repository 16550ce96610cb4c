//! Test doubles of the crates behind the server: a store of label sets, a scripted engine, and a
//! log that accepts everything.

// Each test file is a separate crate and uses only some of these items.
#![allow(dead_code)]

use axum::body::Body;
use axum::http::{HeaderMap, Request};
use firn_ingest::{IngestLimits, Pipeline};
use firn_model::batch::Batch;
use firn_model::budget::{Budget, Reservation};
use firn_model::cancel::{CancelReason, CancelToken};
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::env::real;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::{ExemplarResult, SeriesExemplarResult};
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::matcher::Matcher;
use firn_model::metrics::{Collect, MetricSink, MetricValue as Metric};
use firn_model::sample::TimeRange;
use firn_model::shares::BudgetShares;
use firn_model::stats::{BlockStats, BlockStoreStats, BlockWorkStats, NamedStat, StoreStats};
use firn_model::store::{
    Append, AppendBounds, AppendOutcome, ExemplarRequest, RejectedSamples, SampleRejection, Select,
    SelectRequest, Selection, Ticket,
};
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::TenantLimits;
use firn_model::trace::Tracer;
use firn_promql::value::{
    MatrixSeries, PromqlError, QueryPointValue, QueryResult, QueryStats, QueryValue, VectorElement,
};
use firn_promql::{EvalTime, Features, Options, QueryContext};
use firn_server::ActiveQueries;
use firn_server::ServerLimits;
use firn_server::engine::QueryEngine;
use firn_server::parts::{
    AppParts, Backend, BuildInfo, ExternalUrl, Lifecycle, QuerySettings, RuleDefaults, RuleEditor,
    RuntimeInfo, WebSettings,
};
use firn_server::{ServerApp, router};
use firn_storage::store::Store;
use http_body_util::BodyExt;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tower::ServiceExt;

/// Memory limit of the process under test, in bytes.
pub const MEMORY_BYTES: usize = 512 << 20;

/// Memory that the write pipeline under test assumes, in bytes.
const WRITE_MEMORY_BYTES: usize = 64 << 20;

/// A store of label sets without samples.
pub struct FakeStore(pub Vec<Labels>);

impl FakeStore {
    fn matching(&self, request: &SelectRequest<'_>) -> Vec<Labels> {
        let is_wanted = |labels: &&Labels| {
            let matches = |m: &Matcher| m.matches(labels.get(m.name()));
            request.matchers.iter().all(matches)
        };
        self.0.iter().filter(is_wanted).cloned().collect()
    }
}

impl Select for FakeStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        if request.range.min > request.range.max {
            return Err(Error::new(ErrorKind::Unavailable, "store is not open"));
        }
        Ok(Arc::new(FakeSelection {
            series: self.matching(&request),
            losses: self.loss_warnings(request.tenant, request.range),
        }))
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = Vec::new();
        for labels in self.matching(&request) {
            names.extend(labels.iter().map(|(name, _)| name.to_owned()));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let found = self.matching(&request);
        let mut values: Vec<Vec<u8>> = found.iter().map(|l| l.get(name).to_vec()).collect();
        values.retain(|value| !value.is_empty());
        values.sort();
        values.dedup();
        Ok(values)
    }

    /// Reports a loss for look-ups that start at second seven.
    fn loss_warnings(&self, _tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        let losses = DataLossWarnings::default();
        if range.min == 7_000 {
            losses.add("damage: \"<file>\" is damaged");
        }
        losses
    }

    /// Returns two exemplars for each series, one second apart.
    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        let mut answer = Vec::new();
        for labels in &self.0 {
            let matches = |m: &Matcher| m.matches(labels.get(m.name()));
            if !request.sets.iter().any(|set| set.iter().all(matches)) {
                continue;
            }
            let exemplar = |(time, value)| ExemplarResult {
                labels: Labels::from_pairs([("trace_id", "<1>")]),
                value,
                time,
            };
            let all = [(1_500, 0.25), (2_000, f64::INFINITY)].map(exemplar);
            let in_range = all.into_iter().filter(|e| request.range.contains(e.time));
            answer.push(SeriesExemplarResult {
                series: labels.clone(),
                exemplars: in_range.collect(),
            });
        }
        Ok(answer)
    }
}

struct FakeSelection {
    series: Vec<Labels>,
    losses: DataLossWarnings,
}

impl Selection for FakeSelection {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.series[series].clone()
    }

    fn label_column(
        &self,
        _name: &str,
        _cancel: &CancelToken,
        _memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        Ok(LabelColumn::default())
    }

    fn read(&self, _series: Range<usize>, _into: &mut SeriesBatch) -> Result<(), Error> {
        Ok(())
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.losses.clone()
    }
}

/// An engine whose result depends on the text of the query.
#[derive(Default)]
pub struct FakeEngine {
    /// Number of queries that wait for their cancellation.
    pub blocked: AtomicUsize,
    /// Reasons for the cancellation of waiting queries.
    pub reasons: Mutex<Vec<CancelReason>>,
    /// Time and lookback of each query.
    pub asked: Mutex<Vec<(EvalTime, i64)>>,
}

impl FakeEngine {
    fn value(&self, text: &str, time: EvalTime) -> QueryValue {
        let labels =
            |i: usize| Labels::from_pairs([("__name__", "up".into()), ("i", i.to_string())]);
        let (at, end) = match time {
            EvalTime::Instant(at) => (at, at),
            EvalTime::Range { start, end, .. } => (start, end),
        };
        match text.split_once(' ').unwrap_or((text, "1")) {
            ("vector", n) => {
                let element = |i| VectorElement {
                    labels: labels(i),
                    time: at,
                    value: QueryPointValue::Float(i as f64),
                };
                QueryValue::Vector((0..n.parse().unwrap()).map(element).collect())
            }
            ("matrix", n) => {
                let series = |i| MatrixSeries {
                    labels: labels(i),
                    floats: vec![(at, 0.5), (end, i as f64)],
                    histograms: Vec::new(),
                };
                QueryValue::Matrix((0..n.parse().unwrap()).map(series).collect())
            }
            _ => QueryValue::Scalar(at, 1.0),
        }
    }

    fn block(&self, context: &QueryContext<'_>) -> PromqlError {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        let reason = loop {
            match context.cancel.reason() {
                Some(reason) => break reason,
                None => std::thread::yield_now(),
            }
        };
        self.reasons.lock().unwrap().push(reason);
        self.blocked.fetch_sub(1, Ordering::SeqCst);
        PromqlError::Canceled("query was canceled in test".into())
    }
}

impl QueryEngine for FakeEngine {
    fn query(
        &self,
        context: &QueryContext<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, PromqlError> {
        self.asked.lock().unwrap().push((time, options.lookback_ms));
        let message = text.to_owned();
        match text {
            "parse error" => return Err(PromqlError::Parse("1:7: parse error: no".into())),
            "execution" => return Err(PromqlError::Execution(message)),
            "timeout" => return Err(PromqlError::Timeout(message)),
            "canceled" => return Err(PromqlError::Canceled(message)),
            "limited" => return Err(PromqlError::Limited(message)),
            "storage" => {
                let e = Error::new(ErrorKind::Corrupt, message);
                return Err(PromqlError::Storage(e));
            }
            "block" => return Err(self.block(context)),
            "panic" => panic!("as the test asked"),
            _ => {}
        }
        let noted = text == "noted";
        let value = self.value(text, time);
        let bytes = match &value {
            QueryValue::Vector(elements) => size_of_val(&elements[..]),
            _ => 0,
        };
        let memory = context.budget.reserve(bytes);
        let memory = memory.map_err(|e| PromqlError::Limited(e.message))?;
        Ok(QueryResult {
            value,
            warnings: noted
                .then(|| "PromQL warning: w".to_owned())
                .into_iter()
                .collect(),
            infos: noted
                .then(|| "PromQL info: <i>".to_owned())
                .into_iter()
                .collect(),
            stats: QueryStats::default(),
            counts: None,
            depends_on_range: true,
            memory,
        })
    }

    fn selector(&self, text: &str, memory: &mut Reservation) -> Result<Vec<Matcher>, PromqlError> {
        firn_promql::parser::parse_selector_within(text, memory)
    }

    fn format(
        &self,
        text: &str,
        _features: Features,
        _memory: &mut Reservation,
    ) -> Result<String, PromqlError> {
        let nothing = "1:1: parse error: no expression found in input";
        match text {
            "" => Err(PromqlError::Parse(nothing.into())),
            text => Ok(text.replace(',', ",\n")),
        }
    }
}

/// A log whose outcome depends on the metric name: `late` is rejected, `broken` fails the batch.
#[derive(Default)]
pub struct FakeLog {
    /// Number of stored samples by tenant.
    pub stored: Mutex<Vec<(String, usize)>>,
    /// Error of the disk, if writes fail.
    pub fault: Mutex<Option<String>>,
}

impl Append for FakeLog {
    fn append(&self, tenant: &TenantId, batch: &Batch, _bounds: AppendBounds) -> Ticket {
        let mut appended = AppendOutcome::default();
        for (number, series) in batch.iter_with_index() {
            match series.labels.get("__name__") {
                b"broken" => {
                    let e = Error::new(ErrorKind::Unavailable, "log is closed");
                    return Ticket::resolved(Err(e));
                }
                b"panic" => panic!("as the test asked"),
                b"late" => appended.rejected.push(RejectedSamples {
                    rejection: SampleRejection::OutOfOrder,
                    count: series.times.len(),
                    first_labels: series.labels.to_owned(),
                    first_time: series.times[0],
                    first_series: number as usize,
                    limit: None,
                }),
                _ => appended.stored += series.times.len(),
            }
        }
        let mut stored = self.stored.lock().unwrap();
        stored.push((tenant.as_str().to_owned(), appended.stored));
        Ticket::resolved(Ok(appended))
    }
}

/// Returns a remote-write body with one sample for each metric.
pub fn write_body(metrics: &[&str]) -> Vec<u8> {
    let mut batch = Batch::default();
    for name in metrics {
        let labels = Labels::from_pairs([("__name__", *name)]);
        batch.push_series(labels.as_ref(), &[(1_000, 1.0)]);
    }
    firn_wire::remote_write::encode(&batch)
}

struct FakeMetrics;

impl Collect for FakeMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let labels = [("path", "a\"b\\c\nd")];
        sink.metric("firn_test_bytes", "Help.", &labels, Metric::Gauge(1.5));
    }
}

/// A server under test with its test doubles.
pub struct Fixture {
    pub app: ServerApp,
    pub engine: Arc<FakeEngine>,
    pub quits: Arc<AtomicUsize>,
    pub log: Arc<FakeLog>,
    /// Memory budget of the process under test.
    pub memory: Budget,
}

impl Fixture {
    /// Creates a server that is ready, after `change` was applied to its parts.
    pub fn ready(change: impl FnOnce(&mut AppParts)) -> Self {
        let fixture = Self::starting(change);
        fixture.open();
        fixture
    }

    /// Creates a server whose log replay is not finished.
    pub fn starting(change: impl FnOnce(&mut AppParts)) -> Self {
        let engine = Arc::new(FakeEngine::default());
        let quits = Arc::new(AtomicUsize::new(0));
        let mut parts = parts(engine.clone(), quits.clone());
        change(&mut parts);
        let memory = parts.memory.clone();
        Self {
            memory,
            app: ServerApp::new(parts),
            engine,
            quits,
            log: Arc::default(),
        }
    }

    /// Finishes the replay with the fake store.
    pub fn open(&self) {
        self.app.open(backend(self.log.clone()));
    }

    /// Finishes the replay with a real store.
    pub fn open_with(&self, store: Arc<Store>) {
        let (stats_of, blocks_of) = (store.clone(), store.clone());
        self.app.open(Backend {
            stats: Arc::new(move |_, top| Ok(stats_of.stats(top))),
            blocks: Arc::new(move |_| Ok(blocks_of.block_stats())),
            local: store.clone(),
            eventual: None,
            partial: None,
            store,
            ..backend(self.log.clone())
        });
    }

    pub fn router(&self) -> axum::Router {
        router(self.app.clone())
    }
}

fn backend(log: Arc<FakeLog>) -> Backend {
    let series = |name: &str, job: &str, path: &str| {
        Labels::from_pairs([("__name__", name), ("job", job), ("path", path)])
    };
    let store = Arc::new(FakeStore(vec![
        series("up", "b", ""),
        series("up", "a", ""),
        series("http_requests_total", "a", "/<x>&\"y\""),
    ]));
    let stats = StoreStats {
        series: 3,
        label_pairs: 5,
        chunks: 4,
        min_time: Some(1000),
        max_time: Some(2000),
        series_count_by_metric_name: vec![NamedStat {
            name: "up".into(),
            value: 2,
        }],
        ..StoreStats::default()
    };
    let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(WRITE_MEMORY_BYTES));
    let memory = Budget::new("writes", WRITE_MEMORY_BYTES);
    let clock = real::system_env().unwrap().clock;
    let faulty = log.clone();
    let pipeline = Arc::new(Pipeline::new(log, clock.clone(), limits, &memory));
    Backend {
        write_fault: Arc::new(move || faulty.fault.lock().unwrap().clone()),
        scrape_pools: Arc::new(Vec::new),
        pipeline,
        rules: Arc::new(()),
        alertmanagers: Arc::new(Default::default),
        rule_editor: Arc::new(NoRules),
        active: ActiveQueries::none(),
        local: store.clone(),
        eventual: None,
        partial: None,
        store,
        stats: Arc::new(move |_, _| Ok(stats.clone())),
        open_tenants: Arc::new(|| vec![TenantId::anonymous()]),
        blocks: Arc::new(|_| Ok(blocks_stats())),
        snapshot: Arc::new(|skips_head| {
            if !skips_head {
                Ok("20060102T150405Z-0123456789abcdef".to_owned())
            } else {
                Err(Error::new(ErrorKind::Unavailable, "the disk is full"))
            }
        }),
        delete_series: Arc::new(|request| {
            let text = format!("{:?} {:?}", request.sets, request.range);
            Err(Error::new(ErrorKind::Unavailable, text))
        }),
        clean_tombstones: Arc::new(|_| Ok(())),
        collectors: vec![Arc::new(FakeMetrics)],
        outside: ExternalUrl {
            url: "http://firn.example.org/f".to_owned(),
            path: "/f".to_owned(),
        },
    }
}

/// Returns a block from a cut, a shard of late samples, and a running merge.
fn blocks_stats() -> BlockStoreStats {
    let cut = BlockStats {
        id: "01K9XFT7G0000000000000002D".to_owned(),
        range: TimeRange::new(0, 7_199_999),
        sample_range: TimeRange::new(5, 7_185_000),
        samples: 10,
        histograms: 3,
        series: 2,
        columns: 2,
        exemplars: 4,
        level: 1,
        sources: vec!["01K9XFT7G0000000000000002D".to_owned()],
        bytes: 4_096,
        is_late: false,
        is_bad: false,
        shard: None,
    };
    let late = BlockStats {
        id: "01K9XFT7G0000000000000003D".to_owned(),
        histograms: 0,
        level: 2,
        sources: Vec::new(),
        is_late: true,
        is_bad: true,
        shard: Some(1),
        ..cut.clone()
    };
    BlockStoreStats {
        blocks: vec![cut, late],
        cut_time: Some(7_200_000),
        cut: BlockWorkStats {
            last_ms: 1_500,
            ..BlockWorkStats::default()
        },
        compaction: BlockWorkStats {
            is_running: true,
            series: 9,
            series_done: 4,
            written_bytes: 77,
            last_ms: 0,
        },
    }
}

fn parts(engine: Arc<FakeEngine>, quits: Arc<AtomicUsize>) -> AppParts {
    let env = real::system_env().unwrap();
    AppParts {
        tracer: Tracer::new(env.clock.clone(), env.rng.clone()),
        env,
        limits: ServerLimits::from_shares(&BudgetShares::from_limit(MEMORY_BYTES)),
        memory: Budget::new("process", MEMORY_BYTES),
        engine,
        query: QuerySettings {
            features: Features::default(),
            per_step_stats: true,
            lookback_ms: 300_000,
            samples_max: 50_000_000,
            limits: Arc::new(|_| Arc::default()),
            default_subquery_step_ms: Arc::new(|| 60_000),
        },
        query_log: Arc::default(),
        search: Some(10_000),
        replaying: Arc::default(),
        features: Vec::new(),
        external_labels: Arc::new(|| Labels::from_pairs([("region", "eu"), ("team", "x")])),
        multitenancy: false,
        tenant_limits: Arc::new(|_| TenantLimits::default()),
        web: WebSettings::default(),
        build: BuildInfo {
            version: "3.14.0".into(),
            revision: "r".into(),
            branch: "b".into(),
            build_user: "u".into(),
            build_date: "d".into(),
            go_version: "rustc".into(),
            firn_version: "0.1.0".into(),
        },
        edits_rules: Arc::new(|| false),
        flags: BTreeMap::from([("web.listen-address".into(), "<addr>".into())]),
        settings: Vec::new(),
        rule_defaults: Arc::new(RuleDefaults::default),
        parse_relabel_rules: Arc::new(|_| Ok(Vec::new())),
        config: Arc::new(|| "global: {}\n".into()),
        runtime: Arc::new(|| RuntimeInfo {
            start_time: 1_000,
            working_dir: "/data".into(),
            hostname: "h".into(),
            reload_config_success: true,
            last_config_time: 2_000,
            corruption_count: 0,
            thread_count: 7,
            cores: 2,
            memory_limit_bytes: 42,
            storage_retention: "15d".into(),
        }),
        collectors: Vec::new(),
        lifecycle: Some(Lifecycle {
            reload: Arc::new(|| Err("line 3: <bad>".into())),
            quit: Arc::new(move || quits.fetch_add(1, Ordering::SeqCst) == 0),
        }),
        cluster: None,
        is_admin_enabled: true,
        is_agent: false,
        profiler: None,
        watch_memory: Arc::new(|| {}),
    }
}

/// Waits until `done` returns true. Fails after ten seconds.
pub async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A response with its decompressed body.
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends a request to the router and returns the response.
pub async fn send(fixture: &Fixture, request: Request<Body>) -> Reply {
    let response = fixture.router().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let mut text = Vec::new();
    match head.headers.get("content-encoding") {
        Some(_) => drop(
            flate2::read::GzDecoder::new(&bytes[..])
                .read_to_end(&mut text)
                .unwrap(),
        ),
        None => text.extend_from_slice(&bytes),
    }
    Reply {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8(text).unwrap(),
    }
}

/// Returns a GET request. Quotes in the path are encoded.
pub fn get(path: &str) -> Request<Body> {
    Request::get(path.replace('"', "%22"))
        .body(Body::empty())
        .unwrap()
}

/// Returns a POST request with a form.
pub fn post(path: &str, form: &'static str) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
    request.body(Body::from(form)).unwrap()
}

/// A rule editor that stores nothing.
struct NoRules;

impl RuleEditor for NoRules {
    fn list(&self, _: Option<&str>) -> Result<String, Error> {
        Ok("{}\n".to_owned())
    }

    fn group(&self, _: &str, _: &str) -> Result<String, Error> {
        Err(Error::new(ErrorKind::NotFound, "group does not exist"))
    }

    fn put(&self, _: &str, _: &str) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Internal, "rules are not stored"))
    }

    fn remove(&self, _: &str, _: Option<&str>) -> Result<(), Error> {
        Err(Error::new(ErrorKind::NotFound, "group does not exist"))
    }
}
