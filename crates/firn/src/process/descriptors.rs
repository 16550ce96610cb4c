//! Open files: the soft limit is raised to the hard one, and divided.
//!
//! ```text
//! storage 24/64 | connections of clients 18/64 | connections to targets 18/64 | program 4/64
//! ```
//!
//! The soft limit is low for the sake of programs that use `select`, which this one does not. What
//! is divided keeps the parts from each other: however many targets there are, and however many
//! clients, storage can open its files and clients find a listener.

use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;

/// Parts that the limit is divided into.
const PARTS: usize = 64;

/// A connection to a target, and what the look-up of its name opens for a moment.
const PER_FETCH: usize = 2;

/// What counts as no limit: more than all parts together have a use for.
const UNLIMITED: u64 = 1 << 24;

/// How many files each part of the process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// All.
    pub limit: usize,
    /// Connections of clients.
    pub connections: usize,
    /// Connections to targets.
    pub fetches: usize,
}

impl Descriptors {
    /// Divides `limit`.
    pub fn of(limit: usize) -> Self {
        let parts = |count: usize| limit * count / PARTS;
        Self {
            limit,
            connections: parts(18).max(1),
            fetches: (parts(18) / PER_FETCH).max(1),
        }
    }

    /// Raises the soft limit to the hard one and divides that; says what the soft one was.
    pub fn raise() -> io::Result<(Self, usize)> {
        let number = |limit: Option<u64>| limit.unwrap_or(UNLIMITED).min(UNLIMITED) as usize;
        let mut limit = getrlimit(Resource::Nofile);
        let before = number(limit.current);
        let wanted = number(limit.maximum);
        if before < wanted {
            limit.current = limit.maximum;
            setrlimit(Resource::Nofile, limit)?;
        }
        Ok((Self::of(wanted), before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_any_limit_leave_enough_for_storage() {
        for limit in [64, 256, 1024, 20_000, UNLIMITED as usize] {
            let all = Descriptors::of(limit);
            let outside = all.connections + all.fetches * PER_FETCH;
            assert!(outside <= limit * 36 / 64, "{all:?}");
            assert!(all.connections >= 16 && all.fetches >= 8, "{all:?}");
        }
    }

    #[test]
    fn raise_leaves_the_soft_limit_at_the_hard_one() {
        let (all, before) = Descriptors::raise().unwrap();
        assert!(before <= all.limit);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
