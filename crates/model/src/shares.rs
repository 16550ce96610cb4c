//! How one limit of memory is divided between its users, all in one table.
//!
//! ```text
//! memory limit (firn.memory_limit; by default 60 % of what the group or the machine has)
//!   queries 24/64 | head 16/64 | writes 10/64 | scrape caches 9/64 | scrape bodies 2/64
//!   | pages 1/64 | forms 1/64 | request heads 1/64
//! ```
//!
//! What is not divided (the program, stacks, pages that the allocator keeps, the kernel's buffers
//! of sockets) has what the limit leaves of the machine: 40 % by default.
//!
//! Invariant: the shares of a limit are never more than the limit together. Every other bound on
//! bytes that are held for a client or a target derives from one of them.

/// Parts that the limit is divided into.
const PARTS: usize = 64;

/// Beyond this a share has no use for more: thirty of the largest writes, a thousand ordinary ones.
const WRITES_BYTES_MAX: usize = 1 << 30;

/// Two hours of 300,000 series.
const PAGES_BYTES_MAX: usize = 64 << 20;

/// Twelve of the longest forms.
const FORMS_BYTES_MAX: usize = 256 << 20;

/// Two hundred and fifty of the longest heads.
const HEADS_BYTES_MAX: usize = 256 << 20;

/// The shares of one limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The limit.
    pub limit: usize,
    /// All queries, and answers that are not yet sent.
    pub queries: usize,
    /// One query, of what all queries have: one leaves others a third.
    pub query: usize,
    /// Series, their index and what of their samples is not sealed yet.
    pub head: usize,
    /// What is known of the series of targets. One takes as much as in the head; not all series
    /// are scraped.
    pub scrape_caches: usize,
    /// Requests of remote write: bodies, messages, batches and their way to the log.
    pub writes: usize,
    /// Bodies of targets while they are fetched and read. An ordinary one has 100 KB.
    pub scrape_bodies: usize,
    /// Opened pages that are kept.
    pub pages: usize,
    /// Forms while they are received and worked on.
    pub forms: usize,
    /// Lines and headers of requests beyond what each connection has of its own.
    pub heads: usize,
}

impl Shares {
    /// The shares of `limit` bytes.
    pub fn of(limit: usize) -> Self {
        // Divided first: no product of a limit overflows.
        let parts = |count: usize| limit / PARTS * count;
        Self {
            limit,
            queries: parts(24),
            query: parts(16),
            head: parts(16),
            scrape_caches: parts(9),
            writes: parts(10).min(WRITES_BYTES_MAX),
            scrape_bodies: parts(2),
            pages: parts(1).min(PAGES_BYTES_MAX),
            forms: parts(1).min(FORMS_BYTES_MAX),
            heads: parts(1).min(HEADS_BYTES_MAX),
        }
    }

    /// Each share by its name; one query's is a part of another.
    pub fn each(&self) -> [(&'static str, usize); 8] {
        [
            ("queries", self.queries),
            ("head", self.head),
            ("scrape_caches", self.scrape_caches),
            ("writes", self.writes),
            ("scrape_bodies", self.scrape_bodies),
            ("pages", self.pages),
            ("forms", self.forms),
            ("request_heads", self.heads),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_any_limit_are_never_more_than_it_together() {
        for mib in [1, 77, 128, 154, 256, 307, 512, 1 << 10, 16 << 10, 1 << 20] {
            let shares = Shares::of(mib << 20);
            let sum: usize = shares.each().iter().map(|(_, bytes)| bytes).sum();
            assert!(sum <= shares.limit, "{mib} MiB: {sum} of {}", shares.limit);
            let least = shares.limit / PARTS * 9 / 10;
            for (name, bytes) in shares.each() {
                let is_capped = mib > 1 << 10;
                assert!(bytes >= least || is_capped, "{mib} MiB: {name} {bytes}");
            }
        }
        let sum: usize = Shares::of(usize::MAX).each().iter().map(|(_, b)| b).sum();
        assert!(sum < usize::MAX);
    }

    #[test]
    fn shares_of_small_limits_hold_ordinary_work() {
        // A control group of 128 MB.
        let shares = Shares::of(77 << 20);
        // Four requests of 2,000 samples at one time.
        assert!(shares.writes >= 4 * (2 << 20));
        // A head as long as may be.
        assert!(shares.heads >= 1 << 20);
        assert!(shares.scrape_bodies >= 2 << 20);
    }
}
