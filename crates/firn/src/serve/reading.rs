//! Reading from other servers: `remote_read` of the config, as a store beside the own one.
//!
//! ```text
//! select -> which servers hold something of it -> all are asked at once -> the own store
//!        -> one selection (`joined`): own samples stay where a server has one of the same time
//! ```
//!
//! Invariant: without a server that is concerned a look-up goes to the own store as it came. A
//! server that fails costs an answer its series and a warning that says so, and nothing else; the
//! memory of a query holds for what servers answer, too.

mod joined;

use crate::settings::config::Config;
use crate::settings::config::remote_read::RemoteRead;
use firn_ingest::remote_read::{Reader, collect};
use firn_model::budget::Reservation;
use firn_model::cancel::Cancel;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::FoundExemplars;
use firn_model::labels::{Labels, LabelsBuilder};
use firn_model::losses::Losses;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metadata::MetadataBatch;
use firn_model::metrics::{Collect, Sink};
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{ExemplarRequest, MetadataRequest, Select, SelectRequest, Selection};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::SpanContext;
use firn_wire::remote_read::{Question, ReadSeries};
use futures_util::future::join_all;
use joined::Joined;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tracing::error;

/// How much later than its first sample a store is taken to be whole: as upstream, two of the
/// ranges that it cuts.
const WHOLE_AFTER_MS: i64 = 4 * 3_600_000;

/// How often it is looked whether a query was ended while servers are asked.
const LOOK: Duration = Duration::from_millis(20);

/// The header that names a tenant.
const TENANT_HEADER: &str = "x-scope-orgid";

/// What is said where labels are looked for and a server is concerned.
const NO_LABELS: &str = "remote_read: label names and values are those of this server only";

/// Says when the store's data begins, if that is known.
type Since = Box<dyn Fn() -> Option<TimestampMs> + Send + Sync>;

/// One server, and what follows from the configuration beside it.
struct Server {
    settings: RemoteRead,
    /// Labels that its series have and that are not shown.
    external: Labels,
    reader: Arc<Reader>,
}

/// See the module.
pub struct Reading {
    local: Arc<dyn Select>,
    since: Since,
    clock: Arc<dyn Clock>,
    servers: Mutex<Arc<[Server]>>,
    runtime: Handle,
}

/// What one server is asked.
struct Asked<'s> {
    server: &'s Server,
    range: TimeRange,
    matchers: Vec<Matcher>,
    /// Labels that were asked for beside what the query says.
    added: Vec<String>,
}

/// What servers answered.
#[derive(Default)]
struct Answers {
    series: Vec<ReadSeries>,
    memory: Vec<Reservation>,
    /// What servers that failed said.
    failures: Vec<String>,
}

impl Reading {
    /// Asks no server beside `local` yet, whose data begins when `since` says. Must be called
    /// inside the runtime.
    pub fn new(local: Arc<dyn Select>, since: Since, clock: Arc<dyn Clock>) -> Self {
        Self {
            local,
            since,
            clock,
            servers: Mutex::new(Arc::new([])),
            runtime: Handle::current(),
        }
    }

    /// Asks the servers of `config` from here on. Those that stay keep their connections.
    pub fn follow(&self, config: &Config) {
        let before = self.servers();
        let server = |settings: &RemoteRead| {
            let known = before.iter().find(|known| known.settings == *settings);
            let reader = match known {
                Some(known) => known.reader.clone(),
                None => Arc::new(Reader::new(settings.reader.clone())?),
            };
            Ok(Server {
                external: match settings.filters_external_labels {
                    true => config.external_labels.clone(),
                    false => Labels::empty(),
                },
                settings: settings.clone(),
                reader,
            })
        };
        let servers: Result<Vec<Server>, String> = config.remote_read.iter().map(server).collect();
        match servers {
            Ok(servers) => *lock(&self.servers) = servers.into(),
            Err(e) => error!(error = %e, "reads from remote servers are disabled"),
        }
    }

    fn servers(&self) -> Arc<[Server]> {
        lock(&self.servers).clone()
    }

    /// The part of `range` for which `server` is asked; `None` if the own store has all of it.
    fn range_of(&self, server: &Server, range: TimeRange) -> Option<TimeRange> {
        if server.settings.reads_recent {
            return Some(range);
        }
        let since = (self.since)().unwrap_or_else(|| self.clock.now_ms());
        let whole_since = since.saturating_add(WHOLE_AFTER_MS);
        let part = TimeRange::new(range.min, range.max.min(whole_since));
        (range.min <= whole_since).then_some(part)
    }

    /// What is asked of each server that is concerned.
    fn asked<'s>(&self, servers: &'s [Server], request: &SelectRequest<'_>) -> Vec<Asked<'s>> {
        let concerned = servers
            .iter()
            .filter(|server| server.settings.takes(request.matchers));
        let asked = concerned.filter_map(|server| {
            let range = self.range_of(server, request.range)?;
            let (matchers, added) = with_external(request.matchers, &server.external);
            Some(Asked {
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
        let of_store = |request| match is_about_series {
            true => self.local.select_labels(request),
            false => self.local.select(request),
        };
        let servers = self.servers();
        let asked = self.asked(&servers, &request);
        if asked.is_empty() {
            return of_store(request);
        }
        let answers = self.ask(&asked, &request, is_about_series)?;
        let local = of_store(request)?;
        for failure in &answers.failures {
            local.losses().add(&format!("remote_read: {failure}"));
        }
        if answers.series.is_empty() {
            return Ok(local);
        }
        let joined = Joined::new(local, answers.series, answers.memory, request.cancel)?;
        request.series.count(joined.series_beside_local())?;
        Ok(Arc::new(joined))
    }

    /// Asks all servers at once, on the thread of the query, which waits for them.
    fn ask(
        &self,
        asked: &[Asked<'_>],
        request: &SelectRequest<'_>,
        is_about_series: bool,
    ) -> Result<Answers, Error> {
        let all = asked.iter().map(|asked| async move {
            let mut memory = request.budget.hold();
            let question = Question {
                range: asked.range,
                matchers: &asked.matchers,
                is_about_series,
            };
            let from = (request.tenant, request.span);
            let read = self.read(asked, question, from, &mut memory).await;
            (read, memory)
        });
        let outcomes = self.runtime.block_on(async {
            tokio::select! {
                outcomes = join_all(all) => Ok(outcomes),
                error = ended(request.cancel) => Err(error),
            }
        })?;
        let mut answers = Answers::default();
        for ((read, memory), asked) in outcomes.into_iter().zip(asked) {
            match read {
                Ok(series) => {
                    answers.series.extend(without(series, &asked.added));
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
        asked: &Asked<'_>,
        question: Question<'_>,
        (tenant, span): (&TenantId, Option<&SpanContext>),
        memory: &mut Reservation,
    ) -> Result<Vec<ReadSeries>, Error> {
        let Server {
            settings, reader, ..
        } = asked.server;
        let header = (*tenant != TenantId::anonymous()).then(|| (TENANT_HEADER, tenant.as_str()));
        let read = reader.read(question, (header, span), &*self.clock, memory);
        match timeout(settings.timeout, read).await {
            Ok(read) => read,
            Err(_) => Err(Error::unavailable(format!(
                "error sending request: Post {:?}: request timed out after {:?}",
                settings.reader.url, settings.timeout
            ))),
        }
    }
}

/// Resolves once a query is no longer wanted.
async fn ended(cancel: &Cancel) -> Error {
    loop {
        if let Err(e) = cancel.check() {
            return e;
        }
        sleep(LOOK).await;
    }
}

/// The matchers and those of the external labels about which they say nothing, and the names of
/// these labels.
fn with_external(matchers: &[Matcher], external: &Labels) -> (Vec<Matcher>, Vec<String>) {
    let mut all = matchers.to_vec();
    let mut added = Vec::new();
    for (name, value) in external.iter() {
        if matchers.iter().any(|matcher| matcher.name() == name) {
            continue;
        }
        // Equality with a value is always a matcher.
        if let Ok(matcher) = Matcher::new(name, MatchOp::Equal, value) {
            all.push(matcher);
            added.push(name.to_owned());
        }
    }
    (all, added)
}

/// The series without these labels.
fn without(mut series: Vec<ReadSeries>, names: &[String]) -> Vec<ReadSeries> {
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

impl Select for Reading {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.look_up(request, false)
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.look_up(request, true)
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.local.label_names(request)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.local.label_values(name, request)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<FoundExemplars>, Error> {
        self.local.exemplars(request)
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        self.local.metadata(request)
    }

    fn losses(&self, tenant: &TenantId, range: TimeRange) -> Losses {
        self.local.losses(tenant, range)
    }

    fn label_losses(&self, tenant: &TenantId, range: TimeRange) -> Losses {
        let losses = self.local.label_losses(tenant, range);
        let servers = self.servers();
        if servers
            .iter()
            .any(|server| self.range_of(server, range).is_some())
        {
            losses.add(NO_LABELS);
        }
        losses
    }
}

impl Collect for Reading {
    fn collect(&self, sink: &mut dyn Sink) {
        let servers = self.servers();
        let readers: Vec<Arc<Reader>> = servers.iter().map(|s| s.reader.clone()).collect();
        collect(&readers, sink);
    }
}
