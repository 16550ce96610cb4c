//! Tests of the log core: an exhaustive model of whole clusters, and single rules.

mod diary;
mod judge;
mod moves;
mod process;
mod rules;
mod scenarios;
mod search;
mod world;

use super::{CoreState, LogCore};
use crate::ids::{Epoch, SegmentSequence};
use std::time::Duration;

impl LogCore {
    /// Returns the key at which a segment may be created now.
    fn room(&self) -> Option<SegmentSequence> {
        match &self.state {
            CoreState::Leading(leading) => leading.room(&self.options),
            _ => None,
        }
    }

    /// Returns the epoch that the core leads.
    fn epoch(&self) -> Option<Epoch> {
        match &self.state {
            CoreState::Leading(leading) => Some(leading.epoch()),
            _ => None,
        }
    }

    /// Returns whether a tick makes the leader ready.
    fn awaits_tick(&self, now: Duration) -> bool {
        match &self.state {
            CoreState::Leading(leading) => leading.awaits_tick(now),
            _ => false,
        }
    }

    fn instants(&mut self) -> Vec<&mut Duration> {
        match &mut self.state {
            CoreState::Fencing(fencing) => fencing.instants(),
            CoreState::Replaying(replaying) => replaying.instants(),
            CoreState::Leading(leading) => leading.instants(),
            CoreState::Following | CoreState::Fenced => Vec::new(),
        }
    }

    /// Returns whether there is an instant from `now` on.
    fn is_fresh(&mut self, now: Duration) -> bool {
        self.instants().iter().any(|instant| **instant >= now)
    }

    /// Moves all instants from `now` on to zero, long ago.
    fn age(&mut self, now: Duration) {
        for instant in self.instants() {
            if *instant >= now {
                *instant = Duration::ZERO;
            }
        }
        self.instants();
    }
}
