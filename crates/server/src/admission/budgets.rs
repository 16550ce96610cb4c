//! Memory of requests: shares of the process's budget for heads, forms and queries.
//!
//! Small queries and forms have a quarter of their share to themselves, so that a panel is answered
//! beside any number of large queries and never waits for a long form.

use super::limits::Limits;
use firn_model::budget::Budget;

/// A query is small up to this part of the memory of all queries: a panel takes less. The others
/// have three quarters together, so that panels are answered beside any number of them.
const SMALL_QUERY_SHARE: usize = 16;

/// A form is small up to so many bytes: expressions of people and panels are. Longer ones have
/// three quarters of the memory of all forms, so that an ordinary query never waits for a long one.
const SMALL_FORM_BYTES: usize = 64 << 10;

/// The budgets that requests reserve from.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// Memory of request lines and headers beyond what each connection has of its own.
    pub(crate) heads: Budget,
    /// Memory of all queries and of answers not yet sent.
    queries: Budget,
    /// What queries take that are not small.
    large_queries: Budget,
    query_bytes_max: usize,
    small_query_bytes_max: usize,
    /// Memory of forms being received or worked on.
    forms: Budget,
    /// What forms take that are not small.
    large_forms: Budget,
    forms_bytes_max: usize,
}

impl Budgets {
    /// Divides `memory` as `limits` say.
    pub(crate) fn new(memory: &Budget, limits: &Limits) -> Self {
        Self {
            heads: memory.share("request heads", limits.heads_bytes_max),
            queries: memory.child("all queries", limits.queries_bytes_max),
            large_queries: Budget::new("large queries", limits.queries_bytes_max / 4 * 3),
            query_bytes_max: limits.query_bytes_max,
            small_query_bytes_max: limits.queries_bytes_max / SMALL_QUERY_SHARE,
            forms: memory.share("forms", limits.forms_bytes_max),
            large_forms: Budget::new("large forms", limits.large_forms_bytes_max()),
            forms_bytes_max: limits.forms_bytes_max,
        }
    }

    /// What one more query may take.
    pub(crate) fn query(&self) -> Budget {
        let beyond = (self.small_query_bytes_max, &self.large_queries);
        self.queries
            .child_beyond("query", self.query_bytes_max, beyond)
    }

    /// What one more form may take.
    pub(crate) fn form(&self) -> Budget {
        let beyond = (SMALL_FORM_BYTES, &self.large_forms);
        self.forms
            .child_beyond("form", self.forms_bytes_max, beyond)
    }
}
