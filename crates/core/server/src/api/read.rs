//! `/api/v1/read`: remote read for other servers.
//!
//! ```text
//! body -> decoded -> query queue: selections, sorted by labels -> SAMPLES: one message
//!                                                             `-> chunks: frames, streamed
//! ```
//!
//! Invariant: a stream holds its selections, the piece being written and a few queued pieces. A
//! client that does not read delays only its own request.

use super::call::{ApiCall, not_ready};
use super::refusals::{QueryLanguage, check_ranges, check_texts};
use crate::admission::run::{ENDED, QueryPhase, QueryRun};
use crate::app::ServerApp;
use crate::http::blocking::run_blocking;
use crate::http::body;
use crate::http::channel::ChannelBody;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::metrics::ServerEndpoint;
use crate::parts::Backend;
use crate::watched::WatchedStore;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::order::{list_sort_bytes, sort_list_checked};
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Select, SelectRequest, Selection};
use firn_wire::remote_read::{
    self, ChunkedResponseBuilder, ReadQuery, ReadRequest, ReadResponseType, SamplesResponseBuilder,
};
use std::io;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Sender;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// Number of series between two checks of cancellation.
const SERIES_PER_CHECK: usize = 128;

/// Size of a piece of a stream in bytes, and the number of pieces that may be queued for the
/// client.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_WAITING: usize = 4;

/// Memory of a series in the result list without its labels, allowing for growth of the list.
const PLACE_BYTES: usize = 2 * size_of::<(Labels, usize)>();

/// Answers a remote read with samples in one message or a stream of chunks, whichever the request
/// prefers. Errors are answered in plain text.
pub(crate) async fn remote_read(app: ServerApp, request: Request) -> Response {
    let backend = match app.backend() {
        Ok(backend) => backend,
        Err(state) => return not_ready(state),
    };
    match answer(&app, backend, request).await {
        Ok(response) => response,
        Err(failure) => failure.into_plain(),
    }
}

/// The series of one query, sorted by labels, with their indices in the selection. Samples are read
/// later.
struct ReadQuerySeries {
    query: ReadQuery,
    selection: Arc<dyn Selection>,
    series: Vec<(Labels, usize)>,
}

/// The selections of all queries in a request with their memory, ready to be sent.
struct ReadSelections {
    selected: Vec<ReadQuerySeries>,
    external: Labels,
    run: Arc<QueryRun>,
    memory: Reservation,
}

async fn answer(
    app: &ServerApp,
    backend: Arc<Backend>,
    request: Request,
) -> Result<Response, ApiFailure> {
    let (head, body) = request.into_parts();
    let head = Request::from_parts(head, Body::empty());
    let call = ApiCall::read(app, backend, ServerEndpoint::Read, head).await?;
    // The number of waiting requests is limited by the number of connections.
    let place = app.read_slots.clone().acquire_owned().await;
    let place = place.map_err(|_| ApiFailure::internal("the queue of reads is closed"))?;
    let request = read_request(app, body).await?;
    let response_type = request.response_type().map_err(ApiFailure::request)?;
    let deadline = Instant::now() + app.query_timeout(&call.tenant);
    let (store, tenant) = (call.backend.store.clone(), call.tenant.clone());
    let clock = app.parts.env.clock.clone();
    let external = (app.parts.external_labels)();
    let texts: Vec<String> = request.queries.iter().map(format_selector).collect();
    check_ranges(&call, request.queries.iter().map(|query| query.range))?;
    check_texts(&call, &texts, QueryLanguage::Matchers).await?;
    let samples_max = app.limits().read_samples_max;
    let read = call.compute_asking(&texts, deadline, move |run| {
        let (budget, cancel) = (run.budget(), run.cancel());
        let store = WatchedStore::new(store, run, clock);
        let mut reading = ReadSelections {
            selected: Vec::new(),
            external,
            run: run.clone(),
            memory: budget.create_reservation(),
        };
        for query in request.queries {
            let matchers = remove_external_matchers(&query.matchers, &reading.external)?;
            let selection = store.select(SelectRequest {
                tenant: &tenant,
                matchers: &matchers,
                range: query.range,
                newest_only: false,
                cancel,
                budget,
                series: &SeriesLimit::unlimited(),
                span: None,
            });
            let selection = selection.map_err(ApiFailure::execution)?;
            let series = sorted(&*selection, cancel, &mut reading.memory);
            reading.selected.push(ReadQuerySeries {
                query,
                selection,
                series: series.map_err(ApiFailure::execution)?,
            });
        }
        Ok(match response_type {
            ReadResponseType::Samples => {
                let (message, memory) = reading.samples(samples_max)?;
                ReadResult::Samples { message, memory }
            }
            ReadResponseType::StreamedXorChunks => ReadResult::Chunks(reading),
        })
    });
    Ok(match read.await? {
        ReadResult::Samples { message, memory } => samples_response(message, memory),
        ReadResult::Chunks(reading) => {
            stream_response(reading, app.limits().read_frame_bytes_max, deadline, place)
        }
    })
}

enum ReadResult {
    Samples {
        message: Vec<u8>,
        memory: Reservation,
    },
    Chunks(ReadSelections),
}

async fn read_request(app: &ServerApp, body: Body) -> Result<ReadRequest, ApiFailure> {
    let mut held = app.budgets.form().create_reservation();
    let unavailable =
        |e: Error| ApiFailure::new(FailureCause::Request(ErrorKind::Unavailable), e.message);
    let hold = |bytes: usize| {
        let more = bytes.saturating_sub(held.bytes());
        held.grow(more).map_err(unavailable)
    };
    let limits = app.limits();
    let metrics = app.metrics.endpoint(ServerEndpoint::Read);
    let bytes_max = limits.form_body_bytes_max;
    let bytes = body::read(limits, metrics, body, Vec::new(), bytes_max, hold).await?;
    // Decoding compiles regular expressions, which may take long.
    let decoded = run_blocking(move || {
        let decoded = remote_read::decode(&bytes);
        drop(held);
        decoded
    });
    decoded.await?.map_err(ApiFailure::request)
}

/// Returns the query as a selector in PromQL's syntax, for the record of active queries and for
/// `firn.blocked_queries`, in the same form as Mimir.
fn format_selector(query: &ReadQuery) -> String {
    let matchers: Vec<_> = query.matchers.iter().map(Matcher::to_string).collect();
    format!("{{{}}}", matchers.join(","))
}

/// Adapts matchers to the store, which has no external labels: a matcher for the value of an
/// external label becomes one for the empty value.
fn remove_external_matchers(
    matchers: &[Matcher],
    external: &Labels,
) -> Result<Vec<Matcher>, ApiFailure> {
    let local = |m: &Matcher| match m.op() {
        MatchOp::Equal if external.get(m.name()) == m.value() => {
            Matcher::new(m.name(), MatchOp::Equal, b"")
        }
        _ => Ok(m.clone()),
    };
    let matchers = matchers.iter().map(local).collect::<Result<_, _>>();
    matchers.map_err(ApiFailure::execution)
}

/// Returns the series of a selection, sorted by labels, as the protocol requires.
fn sorted(
    selection: &dyn Selection,
    cancel: &CancelToken,
    memory: &mut Reservation,
) -> Result<Vec<(Labels, usize)>, Error> {
    let mut series: Vec<(Labels, usize)> = Vec::with_capacity(selection.len());
    for start in (0..selection.len()).step_by(SERIES_PER_CHECK) {
        cancel.check()?;
        let end = selection.len().min(start + SERIES_PER_CHECK);
        series.extend((start..end).map(|index| (selection.labels(index), index)));
        let bytes = |(labels, _): &(Labels, usize)| labels.as_bytes().len() + PLACE_BYTES;
        memory.grow(series[start..].iter().map(bytes).sum())?;
    }
    memory.grow(list_sort_bytes(&series))?;
    sort_list_checked(&mut series, || cancel.check(), Ord::cmp)?;
    Ok(series)
}

impl ReadSelections {
    /// Encodes all samples as one compressed message. Returns it with the reservation of its
    /// memory. Fails if there are more than `samples_max` samples.
    fn samples(mut self, samples_max: u64) -> Result<(Vec<u8>, Reservation), ApiFailure> {
        self.run.set_phase(QueryPhase::Encode);
        let mut message = SamplesResponseBuilder::default();
        let mut batch = SeriesBatch::default();
        let (mut count, mut held) = (0, 0);
        for selected in &self.selected {
            for (i, (labels, index)) in selected.series.iter().enumerate() {
                if i % SERIES_PER_CHECK == 0 {
                    let cancel = self.run.cancel();
                    cancel.check().map_err(ApiFailure::execution)?;
                }
                batch.clear();
                if !selected.query.is_about_series {
                    let read = selected.selection.read(*index..*index + 1, &mut batch);
                    read.map_err(ApiFailure::execution)?;
                    count += batch.sample_count() as u64;
                    if samples_max > 0 && count > samples_max {
                        let message = format!("exceeded sample limit ({samples_max})");
                        return Err(ApiFailure::bad_data(message));
                    }
                }
                let samples = (!batch.is_empty()).then(|| batch.series(0));
                message.push(labels.as_ref(), &self.external, samples);
                // The buffer grows by doubling and exists a second time during compression.
                let needed = 3 * message.len();
                if needed > held {
                    self.memory
                        .grow(needed - held)
                        .map_err(ApiFailure::execution)?;
                    held = needed;
                }
            }
            message.end_query();
        }
        Ok((message.finish(), self.memory))
    }

    /// Sends the frames of all series in pieces, until the client disconnects, the query is ended
    /// or `deadline` passes. Blocks while the client does not read.
    fn send(
        &self,
        frame_bytes_max: usize,
        deadline: Instant,
        sender: &Sender<io::Result<Bytes>>,
    ) -> io::Result<()> {
        let mut frames = ChunkedResponseBuilder::new(frame_bytes_max, self.external.clone());
        let mut batch = SeriesBatch::default();
        let mut piece = Vec::new();
        self.run.set_phase(QueryPhase::Encode);
        for (query, selected) in self.selected.iter().enumerate() {
            for (labels, index) in &selected.series {
                if self.run.is_ended() {
                    return Err(io::Error::other(ENDED));
                }
                if selected.query.is_about_series {
                    frames.push_labels(&mut piece, query, labels.as_ref());
                } else {
                    batch.clear();
                    let read = selected.selection.read(*index..*index + 1, &mut batch);
                    read.map_err(|e| io::Error::other(e.message))?;
                    let pushed = frames.push(&mut piece, query, labels.as_ref(), batch.series(0));
                    pushed.map_err(io::Error::other)?;
                }
                if piece.len() >= PIECE_BYTES {
                    if Instant::now() > deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    send_piece(sender, &self.run, &mut piece)?;
                }
            }
        }
        send_piece(sender, &self.run, &mut piece)
    }
}

/// Sends a piece. Blocks until the client has read earlier ones or the query is ended.
fn send_piece(
    sender: &Sender<io::Result<Bytes>>,
    run: &QueryRun,
    piece: &mut Vec<u8>,
) -> io::Result<()> {
    let bytes = Bytes::from(std::mem::take(piece));
    Handle::current().block_on(async {
        tokio::select! {
            biased;
            () = run.ended() => Err(io::Error::other(ENDED)),
            sent = sender.send(Ok(bytes)) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
        }
    })
}

fn samples_response(message: Vec<u8>, memory: Reservation) -> Response {
    let mut response = Response::new(ChannelBody::whole(message.into(), memory));
    let headers = [
        (header::CONTENT_TYPE, "application/x-protobuf"),
        (header::CONTENT_ENCODING, "snappy"),
    ];
    for (name, value) in headers {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

fn stream_response(
    reading: ReadSelections,
    frame_bytes_max: usize,
    deadline: Instant,
    place: OwnedSemaphorePermit,
) -> Response {
    let (body, sender) = ChannelBody::open(PIECES_WAITING, Some(reading.run.clone()));
    spawn_blocking(move || {
        if let Err(e) = reading.send(frame_bytes_max, deadline, &sender) {
            // The client receives a truncated stream; after a disconnect the error is ignored. The
            // body of an ended query ends with an error by itself.
            if !reading.run.is_ended() {
                let _ = sender.blocking_send(Err(e));
            }
        }
        drop(place);
    });
    let mut response = Response::new(body);
    let media_type = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
