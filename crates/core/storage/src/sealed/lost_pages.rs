//! The pages with damage that reads found, by location.

use crate::damage::Damage;
use crate::sync::{Mutex, lock};
use firn_model::log::LogPosition;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The location of a page: the number of its segment and its offset in the file.
pub(super) type LostPageKey = (u64, u64);

/// The damage that reads found, keyed by the location of the page.
#[derive(Debug, Default)]
pub(super) struct LostPages {
    pub(super) known: Mutex<FxHashMap<LostPageKey, Arc<Damage>>>,
}

impl LostPages {
    /// Removes the entries of a segment that was removed, since its damage affects no further read.
    pub(super) fn forget(&self, segment: LogPosition) {
        let mut known = lock(&self.known);
        known.retain(|(number, _), _| *number != segment.0);
    }
}
