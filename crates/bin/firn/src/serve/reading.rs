//! Reads from other servers (`remote_read` in the config) and joins the result with the local
//! store.
//!
//! ```text
//! select -> servers whose matchers and time range apply -> all of them are queried at once
//!        -> the local store -> one selection (`joined`): local samples win at equal times
//! ```
//!
//! Invariant: a request that concerns no server is passed unchanged to the local store. If a server
//! fails, the answer lacks its series and contains a warning, with no other effect. The memory of
//! responses is part of the query's budget.

mod joined;

use firn_config::config::Config;
use firn_config::config::remote_read::RemoteReadServerSettings;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::labels::{Labels, LabelsBuilder};
use firn_model::losses::DataLossWarnings;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metadata::MetadataBatch;
use firn_model::metrics::{Collect, MetricSink};
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, Select, SelectRequest, Selection, StoreVersion,
};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::SpanContext;
use firn_remote_write::remote_read::{RemoteReadClient, collect};
use firn_wire::remote_read::{OutgoingReadRequest, RemoteReadSeries};
use futures_util::future::join_all;
use joined::JoinedSelection;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tracing::error;

/// Time after the store's first sample, in milliseconds, from which its data counts as complete: as
/// upstream, twice the range of a new block.
const WHOLE_AFTER_MS: i64 = 4 * 3_600_000;

/// Interval of checks for a cancelled query while servers are queried.
const LOOK: Duration = Duration::from_millis(20);

/// HTTP header with the name of the tenant that a request is about.
const TENANT_HEADER: &str = "x-scope-orgid";

/// Warning of label requests for which a server would be read.
const NO_LABELS: &str = "remote_read: label names and values are those of this server only";

/// Function that returns the start of the local data, or `None` if the store has no block yet.
type Since = Box<dyn Fn() -> Option<TimestampMs> + Send + Sync>;

/// One remote server, with its reader and the values derived from the global configuration.
struct RemoteReadServer {
    settings: RemoteReadServerSettings,
    /// External labels that are added to matchers and removed from the server's series. Empty if
    /// `filter_external_labels` is false.
    external: Labels,
    reader: Arc<RemoteReadClient>,
}

/// A store that reads from the local store and from the configured servers. See the module.
pub struct RemoteReadStore {
    local: Arc<dyn Select>,
    since: Since,
    clock: Arc<dyn Clock>,
    servers: Mutex<Arc<[RemoteReadServer]>>,
    runtime: Handle,
}

/// The request to one server: its part of the time range, and the matchers with external labels.
struct RemoteReadQuery<'s> {
    server: &'s RemoteReadServer,
    range: TimeRange,
    matchers: Vec<Matcher>,
    /// Names of external labels whose matchers were added to those of the query.
    added: Vec<String>,
}

/// Responses of all servers to one request, with the memory reserved for them.
#[derive(Default)]
struct RemoteReadResponses {
    series: Vec<RemoteReadSeries>,
    memory: Vec<Reservation>,
    /// Error messages of servers that failed, which become warnings of the answer.
    failures: Vec<String>,
}

impl RemoteReadStore {
    /// Creates a store that reads only `local` until [`RemoteReadStore::apply_config`] adds
    /// servers. `since` returns the start of the local data. Must be called inside the runtime.
    pub fn new(local: Arc<dyn Select>, since: Since, clock: Arc<dyn Clock>) -> Self {
        Self {
            local,
            since,
            clock,
            servers: Mutex::new(Arc::new([])),
            runtime: Handle::current(),
        }
    }

    /// Applies the servers of `config`. Servers with unchanged settings keep their connections.
    pub fn apply_config(&self, config: &Config) {
        let before = self.servers();
        let server = |settings: &RemoteReadServerSettings| {
            let known = before.iter().find(|known| known.settings == *settings);
            let reader = match known {
                Some(known) => known.reader.clone(),
                None => Arc::new(RemoteReadClient::new(settings.reader.clone())?),
            };
            Ok(RemoteReadServer {
                external: if settings.filters_external_labels {
                    config.external_labels.clone()
                } else {
                    Labels::empty()
                },
                settings: settings.clone(),
                reader,
            })
        };
        let servers: Result<Vec<RemoteReadServer>, String> =
            config.remote_read.iter().map(server).collect();
        match servers {
            Ok(servers) => *lock(&self.servers) = servers.into(),
            Err(e) => error!(error = %e, "reads from remote servers are disabled"),
        }
    }

    fn servers(&self) -> Arc<[RemoteReadServer]> {
        lock(&self.servers).clone()
    }

    /// Returns the part of `range` that is read from `server`, or `None` if the local store has all
    /// of it.
    fn remote_range(&self, server: &RemoteReadServer, range: TimeRange) -> Option<TimeRange> {
        if server.settings.reads_recent {
            return Some(range);
        }
        let since = (self.since)().unwrap_or_else(|| self.clock.now_ms());
        let whole_since = since.saturating_add(WHOLE_AFTER_MS);
        let part = TimeRange::new(range.min, range.max.min(whole_since));
        (range.min <= whole_since).then_some(part)
    }

    /// Returns the request to each server whose required matchers and time range apply.
    fn build_queries<'s>(
        &self,
        servers: &'s [RemoteReadServer],
        request: &SelectRequest<'_>,
    ) -> Vec<RemoteReadQuery<'s>> {
        let concerned = servers
            .iter()
            .filter(|server| server.settings.accepts_selector(request.matchers));
        let asked = concerned.filter_map(|server| {
            let range = self.remote_range(server, request.range)?;
            let (matchers, added) = with_external(request.matchers, &server.external);
            Some(RemoteReadQuery {
                server,
                range,
                matchers,
                added,
            })
        });
        asked.collect()
    }

    fn look_up(
        &self,
        request: SelectRequest<'_>,
        is_about_series: bool,
    ) -> Result<Arc<dyn Selection>, Error> {
        let of_store = |request| {
            if is_about_series {
                self.local.select_labels(request)
            } else {
                self.local.select(request)
            }
        };
        let servers = self.servers();
        let asked = self.build_queries(&servers, &request);
        if asked.is_empty() {
            return of_store(request);
        }
        let answers = self.query_servers(&asked, &request, is_about_series)?;
        let local = of_store(request)?;
        for failure in &answers.failures {
            local
                .loss_warnings()
                .add(&format!("remote_read: {failure}"));
        }
        if answers.series.is_empty() {
            return Ok(local);
        }
        let joined = JoinedSelection::new(local, answers.series, answers.memory, request.cancel)?;
        request
            .series
            .add_series(joined.count_remote_only_series())?;
        Ok(Arc::new(joined))
    }

    /// Queries all servers at once, and blocks the thread of the query until all have responded.
    fn query_servers(
        &self,
        asked: &[RemoteReadQuery<'_>],
        request: &SelectRequest<'_>,
        is_about_series: bool,
    ) -> Result<RemoteReadResponses, Error> {
        let all = asked.iter().map(|asked| async move {
            let mut memory = request.budget.create_reservation();
            let question = OutgoingReadRequest {
                range: asked.range,
                matchers: &asked.matchers,
                is_about_series,
            };
            let (tenant, span) = (request.tenant, request.span);
            let read = self.read(asked, question, tenant, span, &mut memory).await;
            (read, memory)
        });
        let outcomes = self.runtime.block_on(async {
            tokio::select! {
                outcomes = join_all(all) => Ok(outcomes),
                error = ended(request.cancel) => Err(error),
            }
        })?;
        let mut answers = RemoteReadResponses::default();
        for ((read, memory), asked) in outcomes.into_iter().zip(asked) {
            match read {
                Ok(series) => {
                    answers.series.extend(remove_labels(series, &asked.added));
                    answers.memory.push(memory);
                }
                Err(e) if e.kind == ErrorKind::Limited => return Err(e),
                Err(e) => answers.failures.push(e.message),
            }
        }
        Ok(answers)
    }

    async fn read(
        &self,
        asked: &RemoteReadQuery<'_>,
        question: OutgoingReadRequest<'_>,
        tenant: &TenantId,
        span: Option<&SpanContext>,
        memory: &mut Reservation,
    ) -> Result<Vec<RemoteReadSeries>, Error> {
        let RemoteReadServer {
            settings, reader, ..
        } = asked.server;
        let header = (*tenant != TenantId::anonymous()).then(|| (TENANT_HEADER, tenant.as_str()));
        let read = reader.read_series(question, header, span, &*self.clock, memory);
        match timeout(settings.timeout, read).await {
            Ok(read) => read,
            Err(_) => Err(Error::unavailable(format!(
                "error sending request: Post {:?}: request timed out after {:?}",
                settings.reader.url, settings.timeout
            ))),
        }
    }
}

/// Polls `cancel`, and resolves with its error once the query is cancelled.
async fn ended(cancel: &CancelToken) -> Error {
    loop {
        if let Err(e) = cancel.check() {
            return e;
        }
        sleep(LOOK).await;
    }
}

/// Adds an equality matcher for each external label that has no matcher yet. Also returns the names
/// of the added labels.
fn with_external(matchers: &[Matcher], external: &Labels) -> (Vec<Matcher>, Vec<String>) {
    let mut all = matchers.to_vec();
    let mut added = Vec::new();
    for (name, value) in external.iter() {
        if matchers.iter().any(|matcher| matcher.name() == name) {
            continue;
        }
        // An equality matcher with a plain value is always valid.
        if let Ok(matcher) = Matcher::new(name, MatchOp::Equal, value) {
            all.push(matcher);
            added.push(name.to_owned());
        }
    }
    (all, added)
}

/// Removes the labels with these names from the series. Does nothing if there are no names.
fn remove_labels(mut series: Vec<RemoteReadSeries>, names: &[String]) -> Vec<RemoteReadSeries> {
    if names.is_empty() {
        return series;
    }
    for one in &mut series {
        let mut labels = LabelsBuilder::from_labels(one.labels.as_ref());
        labels.retain(|name| !names.iter().any(|removed| removed == name));
        one.labels = labels.build();
    }
    series
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Select for RemoteReadStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.look_up(request, false)
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.look_up(request, true)
    }

    /// Returns the costs of matchers in the local store.
    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        self.local.explain(request)
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.local.label_names(request)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.local.label_values(name, request)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        self.local.exemplars(request)
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        self.local.metadata(request)
    }

    fn version(&self, tenant: &TenantId) -> Option<StoreVersion> {
        // Changes at other servers are not known.
        let is_local = self.servers().is_empty();
        self.local.version(tenant).filter(|_| is_local)
    }

    fn unchanged_before(&self, tenant: &TenantId, version: &StoreVersion) -> TimestampMs {
        if self.servers().is_empty() {
            self.local.unchanged_before(tenant, version)
        } else {
            TimestampMs::MIN
        }
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.local.loss_warnings(tenant, range)
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        let losses = self.local.label_loss_warnings(tenant, range);
        let servers = self.servers();
        if servers
            .iter()
            .any(|server| self.remote_range(server, range).is_some())
        {
            losses.add(NO_LABELS);
        }
        losses
    }
}

impl Collect for RemoteReadStore {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let servers = self.servers();
        let readers: Vec<Arc<RemoteReadClient>> =
            servers.iter().map(|s| s.reader.clone()).collect();
        collect(&readers, sink);
    }
}
