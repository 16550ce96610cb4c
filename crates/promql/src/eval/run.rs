//! The state of one evaluation that operators access.

use crate::eval::account::Account;
use crate::eval::annotations::Annotations;
use crate::eval::tally::Tally;
use crate::request::{Context, Options};

/// The context, the limits and the annotations of one evaluation.
pub(crate) struct Run<'a> {
    /// The store, the threads and the memory of the query.
    pub(crate) ctx: &'a Context<'a>,
    /// The account of the resources that the query uses.
    pub(crate) account: &'a Account<'a>,
    /// The limits and features of the query, as the caller passed them.
    pub(crate) options: &'a Options,
    /// The tally for the samples of all nodes, if samples are counted.
    pub(crate) tally: Option<&'a Tally>,
    /// The warnings and infos that operators have added so far.
    pub(crate) notes: Annotations,
}

impl Run<'_> {
    /// Returns whether metric names are removed at the end of the evaluation instead of by each
    /// operator.
    pub(crate) fn delays_names(&self) -> bool {
        self.options.features.delayed_name_removal
    }
}
