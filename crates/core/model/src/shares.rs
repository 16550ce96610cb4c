//! The division of the memory limit between its users, in one table.
//!
//! ```text
//! memory limit (firn.memory_limit; by default 60 % of the control group's or machine's memory)
//!   queries 23/64 | head 16/64 | writes 10/64 | scrape caches 9/64 | scrape bodies 2/64
//!   | pages 1/64 | forms 1/64 | request heads 1/64 | results cache 1/64
//! ```
//!
//! The remaining memory of the machine, by default 40 %, is for everything else: the program,
//! stacks, pages retained by the allocator, and socket buffers of the kernel.
//!
//! Invariant: the sum of all shares never exceeds the limit. Every other limit on bytes that are
//! held for a client or a target is derived from one of them.

/// Number of parts into which the limit is divided.
const PARTS: usize = 64;

/// Maximum size of the share for writes in bytes: thirty of the largest writes, or a thousand
/// ordinary ones.
const WRITES_BYTES_MAX: usize = 1 << 30;

/// Maximum size of the share for pages in bytes: two hours of 300,000 series.
const PAGES_BYTES_MAX: usize = 64 << 20;

/// Maximum size of the share for forms in bytes: twelve of the longest forms.
const FORMS_BYTES_MAX: usize = 256 << 20;

/// Maximum size of the share for request heads in bytes: 250 of the longest heads.
const HEADS_BYTES_MAX: usize = 256 << 20;

/// The shares of one memory limit, in bytes, from which all budgets are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetShares {
    /// The whole limit, from which the shares are computed.
    pub limit: usize,
    /// All queries, and results that have not been sent yet.
    pub queries: usize,
    /// One query. This is a part of `queries` and leaves a third of it to other queries.
    pub query: usize,
    /// The series of the head, their index, and their unsealed samples.
    pub head: usize,
    /// The caches of the series of scrape targets. A series needs as much memory as in the head,
    /// but not all series are scraped.
    pub scrape_caches: usize,
    /// Requests of remote write: bodies, messages, and batches on the way to the log.
    pub writes: usize,
    /// Response bodies of targets while they are received and parsed. A typical body has 100 KB.
    pub scrape_bodies: usize,
    /// The cache of opened pages, which later reads of the same samples use.
    pub pages: usize,
    /// HTTP forms of POST requests while they are received and processed.
    pub forms: usize,
    /// Request lines and headers beyond the buffer of each connection.
    pub heads: usize,
    /// The cache of results of range queries.
    pub results: usize,
}

impl BudgetShares {
    /// Returns the shares of a limit of `limit` bytes.
    pub fn from_limit(limit: usize) -> Self {
        // The division is first, so that no product overflows.
        let parts = |count: usize| limit / PARTS * count;
        Self {
            limit,
            queries: parts(23),
            query: parts(16),
            head: parts(16),
            scrape_caches: parts(9),
            writes: parts(10).min(WRITES_BYTES_MAX),
            scrape_bodies: parts(2),
            pages: parts(1).min(PAGES_BYTES_MAX),
            forms: parts(1).min(FORMS_BYTES_MAX),
            heads: parts(1).min(HEADS_BYTES_MAX),
            results: parts(1),
        }
    }

    /// Returns each share with its name, except that of one query, which is a part of another.
    pub fn named_shares(&self) -> [(&'static str, usize); 9] {
        [
            ("queries", self.queries),
            ("head", self.head),
            ("scrape_caches", self.scrape_caches),
            ("writes", self.writes),
            ("scrape_bodies", self.scrape_bodies),
            ("pages", self.pages),
            ("forms", self.forms),
            ("request_heads", self.heads),
            ("results_cache", self.results),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_any_limit_are_never_more_than_it_together() {
        for mib in [1, 77, 128, 154, 256, 307, 512, 1 << 10, 16 << 10, 1 << 20] {
            let shares = BudgetShares::from_limit(mib << 20);
            let sum: usize = shares.named_shares().iter().map(|(_, bytes)| bytes).sum();
            assert!(sum <= shares.limit, "{mib} MiB: {sum} of {}", shares.limit);
            let least = shares.limit / PARTS * 9 / 10;
            for (name, bytes) in shares.named_shares() {
                let is_capped = mib > 1 << 10;
                assert!(bytes >= least || is_capped, "{mib} MiB: {name} {bytes}");
            }
        }
        let sum: usize = BudgetShares::from_limit(usize::MAX)
            .named_shares()
            .iter()
            .map(|(_, b)| b)
            .sum();
        assert!(sum < usize::MAX);
    }

    #[test]
    fn shares_of_small_limits_hold_ordinary_work() {
        // A control group with 128 MB.
        let shares = BudgetShares::from_limit(77 << 20);
        // Four requests of 2,000 samples at the same time.
        assert!(shares.writes >= 4 * (2 << 20));
        // A request head of the maximum length.
        assert!(shares.heads >= 1 << 20);
        assert!(shares.scrape_bodies >= 2 << 20);
    }
}
