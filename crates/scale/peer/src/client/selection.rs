//! A selection that is open at a peer.
//!
//! ```text
//! open -> labels of the first series -> reads, columns, further labels -> dropped: freed there
//! ```
//!
//! Labels travel in chunks of [`LABELS_CHUNK`] series and are kept. The first chunk comes with the
//! look-up; if samples are not read, all chunks are fetched at once. [`Selection::labels`] cannot
//! fail, so a chunk that cannot be fetched later has four effects: the labels are empty, all later
//! reads fail, the query is canceled, and a loss warning names the reason. No result with wrong
//! labels is returned without an error or a warning.

use super::read_stream::{AnswerReader, ReadLimits, ReadStream};
use super::{PeerClient, PeerReadScope, series_request};
use crate::failure::{PeerFailure, decode_answer};
use crate::frames::answers::{
    LabelsChunk, decode_column, decode_labels, decode_opened, decode_texts, split_found,
};
use crate::frames::columns::decode_columns;
use crate::frames::requests::PeerReadRequest;
use crate::frames::{LABELS_CHUNK, ReadMessageKind};
use firn_model::budget::{Budget, Reservation};
use firn_model::cancel::{CancelReason, CancelToken};
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::store::{SelectRequest, Selection};
use firn_model::sync::lock;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of requests for labels that are sent before the first one is answered.
const LABELS_AHEAD: usize = 8;

/// A selection at a peer. Threads may read at the same time; the peer answers one after another.
pub(super) struct PeerSelection {
    stream: ReadStream,
    address: String,
    len: usize,
    labels: Mutex<PeerLabels>,
    losses: DataLossWarnings,
    /// The reason why labels are missing.
    failure: Mutex<Option<PeerFailure>>,
    cancel: CancelToken,
    budget: Budget,
    timeout: Duration,
}

/// The labels that have been fetched.
struct PeerLabels {
    chunks: Vec<Option<Arc<LabelsChunk>>>,
    memory: Vec<Reservation>,
}

impl PeerSelection {
    pub(super) fn open(
        client: &PeerClient,
        scope: &PeerReadScope,
        request: SelectRequest<'_>,
        is_labels_only: bool,
    ) -> Result<Self, PeerFailure> {
        let stream = ReadStream::open(client);
        let open = PeerReadRequest::Open {
            series: series_request(scope, &request),
            is_labels_only,
        };
        let mut answer = stream.request(open, ReadLimits::of_select(&request, scope))?;
        let message = answer.expect_message()?;
        let (found, opened) = split_found(&message.bytes)?;
        request.series.add_series(found)?;
        let opened = decode_opened(decode_answer(opened)?)?;
        let losses = DataLossWarnings::default();
        opened.losses.iter().for_each(|text| losses.add(text));
        let len = opened.series_count;
        let chunk_count = len.div_ceil(LABELS_CHUNK);
        let chunk_bytes = chunk_count.saturating_mul(size_of::<Option<Arc<LabelsChunk>>>());
        let memory = vec![request.budget.reserve(chunk_bytes)?];
        let chunks = vec![None; chunk_count];
        let first = (len > 0)
            .then(|| read_chunk(&mut answer, request.budget))
            .transpose()?;
        drop(answer);
        let selection = Self {
            stream,
            address: client.address().to_owned(),
            len,
            labels: Mutex::new(PeerLabels { chunks, memory }),
            losses,
            failure: Mutex::default(),
            cancel: request.cancel.clone(),
            budget: request.budget.clone(),
            timeout: scope.timeout,
        };
        if let Some(first) = first {
            selection.keep_chunk(0, first)?;
        }
        if is_labels_only {
            selection.fetch_all_labels()?;
        }
        Ok(selection)
    }

    fn limits(&self) -> ReadLimits<'_> {
        ReadLimits {
            cancel: &self.cancel,
            budget: &self.budget,
            timeout: self.timeout,
        }
    }

    fn chunk_range(&self, chunk: usize) -> Range<usize> {
        let start = chunk * LABELS_CHUNK;
        start..self.len.min(start + LABELS_CHUNK)
    }

    fn request_chunk(&self, chunk: usize) -> Result<AnswerReader<'_>, PeerFailure> {
        let labels = PeerReadRequest::Labels(self.chunk_range(chunk));
        self.stream.request(labels, self.limits())
    }

    fn fetch_all_labels(&self) -> Result<(), PeerFailure> {
        let count = self.len.div_ceil(LABELS_CHUNK);
        let mut requested = VecDeque::new();
        let mut next = 1;
        for chunk in 1..count {
            while next < count && requested.len() < LABELS_AHEAD {
                requested.push_back(self.request_chunk(next)?);
                next += 1;
            }
            if let Some(mut answer) = requested.pop_front() {
                self.keep_chunk(chunk, read_chunk(&mut answer, &self.budget)?)?;
            }
        }
        Ok(())
    }

    /// Keeps a fetched chunk, unless another thread has fetched it, too. Fails if it does not have
    /// the labels of all its series.
    fn keep_chunk(
        &self,
        chunk: usize,
        fetched: FetchedLabels,
    ) -> Result<Arc<LabelsChunk>, PeerFailure> {
        if fetched.labels.len() != self.chunk_range(chunk).len() {
            return Err(self.defect("labels").into());
        }
        let mut labels = lock(&self.labels);
        if let Some(known) = &labels.chunks[chunk] {
            return Ok(known.clone());
        }
        let kept = Arc::new(fetched.labels);
        labels.chunks[chunk] = Some(kept.clone());
        labels.memory.push(fetched.memory);
        Ok(kept)
    }

    fn chunk(&self, chunk: usize) -> Result<Arc<LabelsChunk>, PeerFailure> {
        if let Some(known) = &lock(&self.labels).chunks[chunk] {
            return Ok(known.clone());
        }
        let mut answer = self.request_chunk(chunk)?;
        self.keep_chunk(chunk, read_chunk(&mut answer, &self.budget)?)
    }

    /// Makes the query fail because labels are missing.
    fn fail(&self, failure: PeerFailure) {
        let address = &self.address;
        let text = format!("labels of series of peer {address} could not be read: {failure}");
        self.losses.add(&text);
        self.cancel.cancel(CancelReason::Canceled);
        lock(&self.failure).get_or_insert(failure);
    }

    fn check(&self) -> Result<(), PeerFailure> {
        match &*lock(&self.failure) {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// Returns the error of an answer with too few or too many items.
    fn defect(&self, items: &str) -> Error {
        let text = format!(
            "answer of peer {} has a wrong number of {items}",
            self.address
        );
        Error::new(ErrorKind::Internal, text)
    }

    fn fetch_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, PeerFailure> {
        self.check()?;
        let limits = ReadLimits {
            cancel,
            ..self.limits()
        };
        let mut answer = self
            .stream
            .request(PeerReadRequest::Column(name.to_owned()), limits)?;
        let message = answer.expect_message()?;
        let column = decode_column(&message.bytes, memory)?;
        if column.ids.len() != self.len {
            return Err(self.defect("label values").into());
        }
        Ok(column)
    }

    fn fetch_samples(
        &self,
        series: Range<usize>,
        into: &mut SeriesBatch,
    ) -> Result<(), PeerFailure> {
        self.check()?;
        let wanted = series.len();
        let mut answer = self
            .stream
            .request(PeerReadRequest::Read(series), self.limits())?;
        let mut received = 0;
        while let Some(message) = answer.next_message()? {
            match ReadMessageKind::split(&message.bytes)? {
                (ReadMessageKind::Columns, columns) => received += decode_columns(columns, into)?,
                (ReadMessageKind::Losses, texts) => {
                    decode_texts(texts)?
                        .iter()
                        .for_each(|text| self.losses.add(text));
                }
            }
        }
        if received != wanted {
            return Err(self.defect("series").into());
        }
        Ok(())
    }
}

/// The labels of an answer, and their memory.
struct FetchedLabels {
    labels: LabelsChunk,
    memory: Reservation,
}

fn read_chunk(
    answer: &mut AnswerReader<'_>,
    budget: &Budget,
) -> Result<FetchedLabels, PeerFailure> {
    let message = answer.expect_message()?;
    let mut memory = budget.create_reservation();
    let labels = decode_labels(&message.bytes, &mut memory)?;
    Ok(FetchedLabels { labels, memory })
}

impl Selection for PeerSelection {
    fn len(&self) -> usize {
        self.len
    }

    fn labels(&self, series: usize) -> Labels {
        assert!(series < self.len, "series {series} of {}", self.len);
        let labels = self.chunk(series / LABELS_CHUNK).and_then(|chunk| {
            let labels = chunk.labels(series % LABELS_CHUNK);
            labels.ok_or_else(|| self.defect("labels").into())
        });
        labels.unwrap_or_else(|failure| {
            self.fail(failure);
            Labels::empty()
        })
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        Ok(self.fetch_column(name, cancel, memory)?)
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        Ok(self.fetch_samples(series, into)?)
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.losses.clone()
    }
}
