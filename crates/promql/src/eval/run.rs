//! One evaluation of a query, as operators see it.

use crate::eval::account::Account;
use crate::eval::annotations::Annotations;
use crate::eval::tally::Tally;
use crate::request::{Context, Options};

/// The context, the limits and the remarks of one evaluation.
pub(crate) struct Run<'a> {
    /// The store, the threads and the memory of the query.
    pub(crate) ctx: &'a Context<'a>,
    /// What the query uses.
    pub(crate) account: &'a Account<'a>,
    /// The bounds and switches of the query.
    pub(crate) options: &'a Options,
    /// Where nodes are noted if samples are counted.
    pub(crate) tally: Option<&'a Tally>,
    /// The warnings and infos so far.
    pub(crate) notes: Annotations,
}

impl Run<'_> {
    /// Whether metric names are dropped at the end of the evaluation instead of by each operator.
    pub(crate) fn delays_names(&self) -> bool {
        self.options.features.delayed_name_removal
    }
}
