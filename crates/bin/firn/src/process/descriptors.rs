//! Limit of open files: raised to the hard limit, and divided between the parts of the process.
//!
//! ```text
//! storage 24/64 | connections of clients 18/64 | connections to targets 18/64 | program 4/64
//! ```
//!
//! The default soft limit is low for programs that use `select`; Firn does not use it. The division
//! isolates the parts from each other: storage can open its files and clients can connect, for any
//! number of targets and clients.

use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;

/// Number of equal parts that the limit is divided into. The header lists their owners.
const PARTS: usize = 64;

/// Descriptors per fetch: the connection to a target, and a socket for the lookup of its name.
const PER_FETCH: usize = 2;

/// Number of descriptors that replaces an unlimited limit: more than all parts together can use.
const UNLIMITED: u64 = 1 << 24;

/// Maximum number of open files of each part of the process. Created once at the start, from the
/// raised limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Limit of open files of the whole process, of which the other fields are shares.
    pub limit: usize,
    /// Maximum number of client connections that may be open at a time.
    pub connections: usize,
    /// Maximum number of fetches from targets that may run at a time.
    pub fetches: usize,
}

impl Descriptors {
    /// Divides `limit` between the parts. Each part gets at least one descriptor.
    pub fn divide_limit(limit: usize) -> Self {
        let parts = |count: usize| limit * count / PARTS;
        Self {
            limit,
            connections: parts(18).max(1),
            fetches: (parts(18) / PER_FETCH).max(1),
        }
    }

    /// Raises the soft limit to the hard limit and divides it. Also returns the previous soft
    /// limit.
    pub fn raise() -> io::Result<(Self, usize)> {
        let number = |limit: Option<u64>| limit.unwrap_or(UNLIMITED).min(UNLIMITED) as usize;
        let mut limit = getrlimit(Resource::Nofile);
        let before = number(limit.current);
        let wanted = number(limit.maximum);
        if before < wanted {
            limit.current = limit.maximum;
            setrlimit(Resource::Nofile, limit)?;
        }
        Ok((Self::divide_limit(wanted), before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_any_limit_leave_enough_for_storage() {
        for limit in [64, 256, 1024, 20_000, UNLIMITED as usize] {
            let all = Descriptors::divide_limit(limit);
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
