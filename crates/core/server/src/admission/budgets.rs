//! Memory budgets of requests: shares of the process's budget for request heads, forms and queries.
//!
//! A quarter of the memory of queries and forms is reserved for small ones. A dashboard panel can
//! therefore always be answered, independent of the number of large queries and long forms.

use super::limits::ServerLimits;
use firn_model::budget::Budget;

/// Divisor of the total query memory up to which a query counts as small; a panel needs less.
/// Larger queries share three quarters of the memory.
const SMALL_QUERY_SHARE: usize = 16;

/// Size up to which a form counts as small, sufficient for expressions of people and panels. Longer
/// forms share three quarters of the memory, so that they never delay an ordinary query.
const SMALL_FORM_BYTES: usize = 64 << 10;

/// The budgets from which requests reserve memory before they allocate. One instance exists per
/// server.
#[derive(Debug)]
pub(crate) struct RequestBudgets {
    /// Memory of request lines and headers beyond the buffer of each connection.
    pub(crate) heads: Budget,
    /// Memory of all queries and of responses that are not sent yet.
    queries: Budget,
    /// Memory of queries beyond the size of small ones.
    large_queries: Budget,
    query_bytes_max: usize,
    small_query_bytes_max: usize,
    /// Memory of forms that are being received or processed.
    forms: Budget,
    /// Memory of forms beyond the size of small ones.
    large_forms: Budget,
    forms_bytes_max: usize,
}

impl RequestBudgets {
    /// Creates the budgets as children of `memory`, with the sizes in `limits`.
    pub(crate) fn new(memory: &Budget, limits: &ServerLimits) -> Self {
        Self {
            heads: memory.create_share("request heads", limits.heads_bytes_max),
            queries: memory.create_child("all queries", limits.queries_bytes_max),
            large_queries: Budget::new("large queries", limits.queries_bytes_max / 4 * 3),
            query_bytes_max: limits.query_bytes_max,
            small_query_bytes_max: limits.queries_bytes_max / SMALL_QUERY_SHARE,
            forms: memory.create_share("forms", limits.forms_bytes_max),
            large_forms: Budget::new("large forms", limits.large_forms_bytes_max()),
            forms_bytes_max: limits.forms_bytes_max,
        }
    }

    /// Creates the budget of one query, limited on its own and as a part of all queries.
    pub(crate) fn query(&self) -> Budget {
        self.queries.create_child_beyond(
            "query",
            self.query_bytes_max,
            self.small_query_bytes_max,
            &self.large_queries,
        )
    }

    /// Creates the budget of one form, limited on its own and as a part of all forms.
    pub(crate) fn form(&self) -> Budget {
        self.forms.create_child_beyond(
            "form",
            self.forms_bytes_max,
            SMALL_FORM_BYTES,
            &self.large_forms,
        )
    }
}
