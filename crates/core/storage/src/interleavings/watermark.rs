//! Batches that complete in any order, and their visibility to readers.

use super::check;
use crate::failpoints::StoreFlaw;
use crate::head::watermark::Watermark;
use firn_model::log::LogPosition;
use firn_model::store::{AppendOutcome, Ticket};
use shuttle::sync::Mutex;
use shuttle::thread::{JoinHandle, spawn};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

const BATCHES_PER_WRITER: u64 = 3;
const WRITERS: u64 = 3;

type Complete = Arc<Mutex<BTreeSet<u64>>>;

/// The newest position of the log, whose callbacks run one after the other. Every other batch needs
/// no record.
type Log = Arc<Mutex<u64>>;

fn is_resolved(ticket: &mut Ticket) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(ticket).poll(&mut context).is_ready()
}

/// Completes batches, and registers each before that. Every reader that begins after a ticket
/// resolved must see its batch.
fn write(watermark: Arc<Watermark>, complete: Complete, log: Log) -> JoinHandle<()> {
    spawn(move || {
        for _ in 0..BATCHES_PER_WRITER {
            let taken = watermark.begin_batch();
            let sequence = taken.sequence;
            complete.lock().unwrap().insert(sequence);
            let (mut ticket, resolver) = Ticket::new();
            if sequence.is_multiple_of(2) {
                taken.complete(None, resolver, AppendOutcome::default());
            } else {
                let mut last = log.lock().unwrap();
                *last += 1;
                let position = Some(LogPosition(*last));
                taken.complete(position, resolver, AppendOutcome::default());
            }
            if is_resolved(&mut ticket) {
                assert!(
                    watermark.begin_read().sequence >= sequence,
                    "acked and not seen"
                );
            }
        }
    })
}

/// Reads, and checks that everything visible is complete and above the floor.
fn read(watermark: Arc<Watermark>, complete: Complete) -> JoinHandle<()> {
    spawn(move || {
        let mut before = 0;
        for _ in 0..2 {
            let reading = watermark.begin_read();
            let complete = complete.lock().unwrap().clone();
            assert!(
                (1..=reading.sequence).all(|s| complete.contains(&s)),
                "reads up to {}, complete are {complete:?}",
                reading.sequence
            );
            assert!(reading.sequence >= before, "time ran backwards");
            assert!(
                watermark.visible_to_all() <= reading.sequence,
                "the floor overtook"
            );
            before = reading.sequence;
        }
    })
}

#[test]
fn watermark_shows_only_what_is_complete_and_keeps_its_floor_below_every_reader() {
    let flaws = [StoreFlaw::ShowsOutOfOrder, StoreFlaw::RaisesFloorEarly];
    check(800, &flaws, || {
        let watermark = Arc::new(Watermark::default());
        let complete = Complete::default();
        let log = Log::default();
        let writers = (0..WRITERS).map(|_| write(watermark.clone(), complete.clone(), log.clone()));
        let readers = (0..2).map(|_| read(watermark.clone(), complete.clone()));
        let threads: Vec<_> = writers.chain(readers).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let all = WRITERS * BATCHES_PER_WRITER;
        assert_eq!(watermark.begin_read().sequence, all);
        assert_eq!(
            watermark.visible_position(),
            (all, LogPosition(all.div_ceil(2)))
        );
    });
}
