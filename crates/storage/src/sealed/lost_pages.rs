//! The pages of which something could not be read, by place.

use crate::damage::Damage;
use crate::sync::{Mutex, lock};
use firn_model::log::Position;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A page's place: the number of its segment and its offset.
pub(super) type Key = (u64, u64);

/// The pages of which something could not be read, and what.
#[derive(Debug, Default)]
pub(super) struct LostPages {
    pub(super) known: Mutex<FxHashMap<Key, Arc<Damage>>>,
}

impl LostPages {
    /// Forgets those of a segment that is gone.
    pub(super) fn forget(&self, segment: Position) {
        let mut known = lock(&self.known);
        known.retain(|(number, _), _| *number != segment.0);
    }
}
