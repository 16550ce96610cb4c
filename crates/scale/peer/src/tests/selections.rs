//! Selections at a peer that wait, fail, or are dropped, with doubles of a store.

use super::batches::labels;
use super::world::{Query, TestServer, TestService, client, open_store, scope};
use crate::{PeerFailure, PeerReadScope};
use firn_model::budget::Reservation;
use firn_model::cancel::{CancelReason, CancelToken};
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::store::{Select, SelectRequest, Selection};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Events of the doubles.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// A look-up or read waits for its cancel flag.
    Waits,
    /// A look-up or read was canceled.
    Canceled(ErrorKind),
    /// The selection was dropped.
    Dropped,
}

/// A store whose look-up or reads wait until they are canceled.
struct WaitingSelect {
    events: Mutex<Sender<Event>>,
    waits_in_select: bool,
}

struct WaitingSelection {
    events: Mutex<Sender<Event>>,
    cancel: CancelToken,
    losses: DataLossWarnings,
    len: usize,
}

fn wait_for_cancel(cancel: &CancelToken, events: &Sender<Event>) -> Error {
    let _ = events.send(Event::Waits);
    loop {
        if let Err(error) = cancel.check() {
            let _ = events.send(Event::Canceled(error.kind));
            return error;
        }
        std::thread::yield_now();
    }
}

impl Select for WaitingSelect {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let events = self.events.lock().unwrap().clone();
        if self.waits_in_select {
            return Err(wait_for_cancel(request.cancel, &events));
        }
        let losses = DataLossWarnings::default();
        losses.add("lost before");
        Ok(Arc::new(WaitingSelection {
            events: Mutex::new(events),
            cancel: request.cancel.clone(),
            losses,
            len: 2_000,
        }))
    }

    fn label_names(&self, _: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        Err(Error::new(ErrorKind::Corrupt, "names are damaged"))
    }

    fn label_values(&self, _: &str, _: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        panic!("a defect of the store")
    }
}

impl Drop for WaitingSelection {
    fn drop(&mut self) {
        let _ = self.events.lock().unwrap().send(Event::Dropped);
    }
}

impl Selection for WaitingSelection {
    fn len(&self) -> usize {
        self.len
    }

    fn labels(&self, series: usize) -> Labels {
        labels(series as u64)
    }

    fn label_column(
        &self,
        _: &str,
        _: &CancelToken,
        _: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        Ok(LabelColumn::default())
    }

    /// Waits for a range that begins at 100. Loses the samples of other ranges.
    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        if series.start == 100 {
            let events = self.events.lock().unwrap().clone();
            return Err(wait_for_cancel(&self.cancel, &events));
        }
        self.losses.add("lost in a read");
        series.for_each(|_| into.push(&[], &[], &[], []));
        Ok(())
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.losses.clone()
    }
}

/// A server with doubles, and their events.
struct WaitingWorld {
    server: TestServer,
    events: Receiver<Event>,
}

impl WaitingWorld {
    fn new(waits_in_select: bool) -> Self {
        let (sender, events) = channel();
        let select = Arc::new(WaitingSelect {
            events: Mutex::new(sender),
            waits_in_select,
        });
        let service = TestService::new(open_store(1), select);
        let server = TestServer::start(service);
        Self { server, events }
    }

    fn expect(&self, event: Event) {
        let received = self.events.recv_timeout(Duration::from_secs(30));
        assert_eq!(received, Ok(event));
    }

    fn select(&self, query: &Query) -> Arc<dyn Selection> {
        let selected = client(&self.server).select(&scope(), query.request());
        selected.expect("a selection")
    }
}

#[test]
fn canceled_look_up_ends_at_the_peer() {
    let world = WaitingWorld::new(true);
    let (query, client) = (Query::default(), client(&world.server));
    std::thread::scope(|threads| {
        let selecting = threads.spawn(|| client.select(&scope(), query.request()).err());
        world.expect(Event::Waits);
        query.cancel.cancel(CancelReason::Canceled);
        match selecting.join().unwrap() {
            Some(PeerFailure::Failed(error)) => assert_eq!(error.kind, ErrorKind::Canceled),
            other => panic!("{other:?}"),
        }
        world.expect(Event::Canceled(ErrorKind::Canceled));
    });
}

#[test]
fn look_up_that_takes_too_long_ends_at_both_sides() {
    let world = WaitingWorld::new(true);
    let short = PeerReadScope {
        timeout: Duration::from_millis(50),
        ..scope()
    };
    let selected = client(&world.server).select(&short, Query::default().request());
    match selected.err() {
        Some(PeerFailure::Unavailable(text)) => assert!(text.contains("within 50ms"), "{text}"),
        Some(PeerFailure::Failed(error)) => assert_eq!(error.kind, ErrorKind::Timeout),
        other => panic!("{other:?}"),
    }
    world.expect(Event::Waits);
    match world.events.recv_timeout(Duration::from_secs(30)) {
        Ok(Event::Canceled(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn dropped_selection_is_freed_at_the_peer() {
    let world = WaitingWorld::new(false);
    let query = Query::default();
    drop(world.select(&query));
    world.expect(Event::Dropped);
    // A read in progress is canceled, too.
    let selection = world.select(&query);
    std::thread::scope(|threads| {
        let reading = threads.spawn(|| {
            let read = selection.read(100..101, &mut SeriesBatch::default());
            read.unwrap_err().kind
        });
        world.expect(Event::Waits);
        query.cancel.cancel(CancelReason::Timeout);
        assert_eq!(reading.join().unwrap(), ErrorKind::Timeout);
    });
    drop(selection);
    world.expect(Event::Canceled(ErrorKind::Canceled));
    world.expect(Event::Dropped);
    assert_eq!(query.budget.used_bytes(), 0);
}

#[test]
fn losses_of_a_look_up_and_of_reads_reach_the_client() {
    let world = WaitingWorld::new(false);
    let query = Query::default();
    let selection = world.select(&query);
    let losses = selection.loss_warnings();
    assert_eq!(losses.texts(), ["lost before"]);
    selection
        .read(0..5, &mut SeriesBatch::default())
        .expect("series without samples");
    assert_eq!(losses.texts(), ["lost before", "lost in a read"]);
    let mut memory = query.budget.create_reservation();
    let column = selection.label_column("a", &query.cancel, &mut memory);
    let error = column.unwrap_err();
    assert!(
        error.message.contains("wrong number of label values"),
        "{error}"
    );
}

#[test]
fn labels_that_cannot_be_fetched_make_the_query_fail() {
    let mut world = WaitingWorld::new(false);
    let query = Query::default();
    let selection = world.select(&query);
    assert_eq!(selection.labels(7), labels(7));
    world.server.kill();
    assert_eq!(selection.labels(8), labels(8), "labels of the first chunk");
    assert_eq!(selection.labels(1_500), Labels::empty());
    let error = selection
        .read(0..1, &mut SeriesBatch::default())
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(query.cancel.check().is_err());
    let texts = selection.loss_warnings().texts();
    assert!(
        texts.iter().any(|text| text.contains("could not be read")),
        "{texts:?}"
    );
}

#[test]
fn errors_and_defects_of_a_store_reach_the_client() {
    let world = WaitingWorld::new(false);
    let (client, query) = (client(&world.server), Query::default());
    let names = client.label_names(&scope(), query.request());
    let error = Error::new(ErrorKind::Corrupt, "names are damaged");
    assert_eq!(names, Err(PeerFailure::Failed(error)));
    let values = client.label_values("a", &scope(), query.request());
    match values {
        Err(PeerFailure::Unavailable(text)) => assert!(text.contains("panicked"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(client.label_names(&scope(), query.request()).is_err());
}

#[test]
fn server_that_stops_ends_open_selections() {
    let mut world = WaitingWorld::new(false);
    let query = Query::default();
    let selection = world.select(&query);
    world.server.stop();
    world.expect(Event::Dropped);
    let error = selection
        .read(0..1, &mut SeriesBatch::default())
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("shuts down"), "{error}");
}
