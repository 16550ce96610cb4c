//! The state of a stream of reads, and the computation of answers. Runs on threads that may wait.
//!
//! Invariants: memory of the session counts in a budget that is limited by that of the client, and
//! of the server. The messages of a read contain as many series as fit into [`READ_BYTES`], so an
//! answer needs the memory of one message, regardless of its length.

use super::reads::AnswerWriter;
use crate::failure::{PeerFailure, encode_answer};
use crate::frames::answers::{
    OpenedSelection, encode_column, encode_exemplars, encode_labels, encode_metadata,
    encode_opened, encode_strings, push_found,
};
use crate::frames::columns::encode_columns;
use crate::frames::requests::{
    MatcherText, PeerReadRequest, SeriesRequest, TenantScope, TimedReadRequest,
};
use crate::frames::{LABELS_CHUNK, ReadMessageKind};
use crate::service::PeerService;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::error::{Error, ErrorKind};
use firn_model::matcher::Matcher;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{ExemplarRequest, MetadataRequest, Select, SelectRequest, Selection};
use std::ops::Range;
use std::sync::Arc;

/// The size of a message with samples that is aimed at, in bytes.
const READ_BYTES: usize = 1 << 20;

/// Number of series in the first message of a read, and the factor by which it grows at most.
const FIRST_SERIES: usize = 8;
const GROWTH_MAX: usize = 4;

/// The state of one stream.
pub(super) struct ReadSession {
    service: Arc<dyn PeerService>,
    cancel: CancelToken,
    server_budget: Budget,
    /// The budget of the session, from the first request on.
    budget: Option<Budget>,
    opened: Option<OpenedReads>,
}

/// The open selection of a stream.
struct OpenedReads {
    selection: Arc<dyn Selection>,
    /// Number of loss warnings that the client has received.
    losses_sent: usize,
}

impl ReadSession {
    pub(super) fn new(service: Arc<dyn PeerService>, server_budget: Budget) -> Self {
        Self {
            service,
            cancel: CancelToken::new(),
            server_budget,
            budget: None,
            opened: None,
        }
    }

    /// Returns the flag that cancels all work of the stream.
    pub(super) fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    /// Computes the answer of a request and sends its messages.
    pub(super) fn answer(
        &mut self,
        timed: &TimedReadRequest,
        answer: &mut AnswerWriter,
    ) -> Result<(), PeerFailure> {
        let budget = self.budget(timed.budget_bytes);
        match &timed.request {
            PeerReadRequest::Open {
                series,
                is_labels_only,
            } => self.open(series, *is_labels_only, &budget, answer),
            PeerReadRequest::Column(name) => self.send_column(name, &budget, answer),
            PeerReadRequest::Labels(series) => self.send_labels(series.clone(), answer),
            PeerReadRequest::Read(series) => self.send_samples(series.clone(), &budget, answer),
            PeerReadRequest::LabelNames(series) => {
                let look_up =
                    |store: &dyn Select, request: SelectRequest<'_>| store.label_names(request);
                self.send_strings(series, &budget, answer, look_up)
            }
            PeerReadRequest::LabelValues { name, series } => {
                let look_up = |store: &dyn Select, request: SelectRequest<'_>| {
                    store.label_values(name, request)
                };
                self.send_strings(series, &budget, answer, look_up)
            }
            PeerReadRequest::Exemplars { scope, sets } => {
                self.send_exemplars(scope, sets, &budget, answer)
            }
            PeerReadRequest::Metadata { tenant, metric } => {
                let request = MetadataRequest {
                    tenant,
                    metric: metric.as_deref(),
                    cancel: &self.cancel,
                    budget: &budget,
                };
                let mut message = Vec::new();
                encode_metadata(&self.service.metadata(request)?, &mut message);
                answer.message(&message)
            }
            PeerReadRequest::Losses {
                scope,
                is_of_labels,
            } => self.send_losses(scope, *is_of_labels, answer),
        }
    }

    fn budget(&mut self, client_bytes: u64) -> Budget {
        let create = || {
            let client_bytes = usize::try_from(client_bytes).unwrap_or(usize::MAX);
            let limit = client_bytes.min(self.server_budget.limit_bytes());
            self.server_budget.create_child("read of a peer", limit)
        };
        self.budget.get_or_insert_with(create).clone()
    }

    fn reader(&self, scope: &TenantScope) -> Result<Arc<dyn Select>, PeerFailure> {
        let partitions = &scope.partitions;
        let (numbers, consistency) = (&partitions.partitions, partitions.consistency);
        self.service.reader(numbers, consistency)
    }

    /// Performs a look-up. Returns the number of series that it counted, and its result.
    fn look_up<T>(
        &self,
        series: &SeriesRequest,
        budget: &Budget,
        look_up: impl FnOnce(&dyn Select, SelectRequest<'_>) -> Result<T, Error>,
    ) -> (usize, Result<T, PeerFailure>) {
        let limit = SeriesLimit::new(usize::try_from(series.series_max).unwrap_or(usize::MAX));
        let run = || {
            let matchers = compile(&series.matchers)?;
            let request = SelectRequest {
                tenant: &series.scope.tenant,
                matchers: &matchers,
                range: series.scope.range,
                newest_only: series.is_newest_only,
                cancel: &self.cancel,
                budget,
                series: &limit,
                span: None,
            };
            request.bind_matchers();
            let store = self.reader(&series.scope)?;
            Ok(look_up(&*store, request)?)
        };
        let result = run();
        (limit.found(), result)
    }

    fn open(
        &mut self,
        series: &SeriesRequest,
        is_labels_only: bool,
        budget: &Budget,
        answer: &mut AnswerWriter,
    ) -> Result<(), PeerFailure> {
        if self.opened.is_some() {
            return Err(invalid("the stream has an open selection"));
        }
        let (found, selected) = self.look_up(series, budget, |store, request| {
            if is_labels_only {
                store.select_labels(request)
            } else {
                store.select(request)
            }
        });
        let opened = selected.as_ref().map(|selection| OpenedSelection {
            series_count: selection.len(),
            losses: selection.loss_warnings().texts(),
        });
        let opened = opened.map_err(PeerFailure::clone);
        let mut message = Vec::new();
        push_found(found, &mut message);
        message.append(&mut encode_answer(&opened, encode_opened));
        answer.message(&message)?;
        let (Ok(selection), Ok(opened)) = (selected, opened) else {
            return Ok(());
        };
        self.opened = Some(OpenedReads {
            selection,
            losses_sent: opened.losses.len(),
        });
        let first = 0..opened.series_count.min(LABELS_CHUNK);
        if first.is_empty() {
            return Ok(());
        }
        self.send_labels(first, answer)
    }

    /// Returns the open selection, which must have the series of `range`.
    fn opened(&mut self, range: &Range<usize>) -> Result<&mut OpenedReads, PeerFailure> {
        let opened = self.opened.as_mut();
        let opened = opened.ok_or_else(|| invalid("the stream has no open selection"))?;
        let count = opened.selection.len();
        if range.start > range.end || range.end > count {
            return Err(invalid(&format!(
                "series {range:?} of a selection of {count}"
            )));
        }
        Ok(opened)
    }

    fn send_column(
        &mut self,
        name: &str,
        budget: &Budget,
        answer: &mut AnswerWriter,
    ) -> Result<(), PeerFailure> {
        let cancel = self.cancel.clone();
        let selection = &self.opened(&(0..0))?.selection;
        let mut memory = budget.create_reservation();
        let column = selection.label_column(name, &cancel, &mut memory)?;
        let mut message = Vec::new();
        encode_column(&column, &mut message);
        answer.message(&message)
    }

    fn send_labels(
        &mut self,
        series: Range<usize>,
        answer: &mut AnswerWriter,
    ) -> Result<(), PeerFailure> {
        if series.len() > LABELS_CHUNK {
            let count = series.len();
            return Err(invalid(&format!(
                "labels of {count} series, limit {LABELS_CHUNK}"
            )));
        }
        let selection = &self.opened(&series)?.selection;
        let mut message = Vec::new();
        encode_labels(series.map(|index| selection.labels(index)), &mut message);
        answer.message(&message)
    }

    fn send_samples(
        &mut self,
        series: Range<usize>,
        budget: &Budget,
        answer: &mut AnswerWriter,
    ) -> Result<(), PeerFailure> {
        let cancel = self.cancel.clone();
        let opened = self.opened(&series)?;
        let mut memory = budget.create_reservation();
        let (mut batch, mut message) = (SeriesBatch::default(), Vec::new());
        let (mut next, mut count) = (series.start, FIRST_SERIES);
        while next < series.end {
            cancel.check()?;
            let end = series.end.min(next + count);
            batch.clear();
            opened.selection.read(next..end, &mut batch)?;
            message.clear();
            message.push(ReadMessageKind::Columns.number());
            encode_columns(&batch, 0..batch.len(), &mut message);
            let used = batch.memory_bytes() + message.capacity();
            memory.grow(used.saturating_sub(memory.bytes()))?;
            answer.message(&message)?;
            let fitting = count.saturating_mul(READ_BYTES) / message.len();
            count = fitting.clamp(1, count.saturating_mul(GROWTH_MAX));
            next = end;
        }
        let losses = opened.selection.loss_warnings().texts();
        if losses.len() > opened.losses_sent {
            opened.losses_sent = losses.len();
            message.clear();
            message.push(ReadMessageKind::Losses.number());
            encode_strings(&losses, &mut message);
            answer.message(&message)?;
        }
        Ok(())
    }

    fn send_strings<S: AsRef<[u8]>>(
        &self,
        series: &SeriesRequest,
        budget: &Budget,
        answer: &mut AnswerWriter,
        look_up: impl FnOnce(&dyn Select, SelectRequest<'_>) -> Result<Vec<S>, Error>,
    ) -> Result<(), PeerFailure> {
        let (found, strings) = self.look_up(series, budget, look_up);
        let mut message = Vec::new();
        push_found(found, &mut message);
        message.append(&mut encode_answer(&strings, |strings, into| {
            encode_strings(strings, into);
        }));
        answer.message(&message)
    }

    fn send_exemplars(
        &self,
        scope: &TenantScope,
        sets: &[Vec<MatcherText>],
        budget: &Budget,
        answer: &mut AnswerWriter,
    ) -> Result<(), PeerFailure> {
        let sets: Result<Vec<_>, Error> = sets.iter().map(|set| compile(set)).collect();
        let sets = sets?;
        let matchers = sets.iter().flatten();
        matchers.for_each(|matcher| matcher.bind(budget, &self.cancel));
        let exemplars = self.reader(scope)?.exemplars(ExemplarRequest {
            tenant: &scope.tenant,
            sets: &sets,
            range: scope.range,
            cancel: &self.cancel,
            budget,
        })?;
        let mut message = Vec::new();
        encode_exemplars(&exemplars, &mut message);
        answer.message(&message)
    }

    fn send_losses(
        &self,
        scope: &TenantScope,
        is_of_labels: bool,
        answer: &mut AnswerWriter,
    ) -> Result<(), PeerFailure> {
        let store = self.reader(scope)?;
        let losses = if is_of_labels {
            store.label_loss_warnings(&scope.tenant, scope.range)
        } else {
            store.loss_warnings(&scope.tenant, scope.range)
        };
        let mut message = Vec::new();
        encode_strings(&losses.texts(), &mut message);
        answer.message(&message)
    }
}

fn compile(matchers: &[MatcherText]) -> Result<Vec<Matcher>, Error> {
    matchers.iter().map(MatcherText::compile).collect()
}

fn invalid(text: &str) -> PeerFailure {
    Error::new(ErrorKind::Invalid, text).into()
}
