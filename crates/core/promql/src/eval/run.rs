//! The state of one evaluation that operators access.

use crate::eval::account::QueryAccount;
use crate::eval::annotations::QueryAnnotations;
use crate::eval::tally::SampleTally;
use crate::request::{Options, QueryContext};

/// The context, the limits and the annotations of one evaluation.
pub(crate) struct EvalContext<'a> {
    /// The store, the threads and the memory of the query.
    pub(crate) ctx: &'a QueryContext<'a>,
    /// The account of the resources that the query uses.
    pub(crate) account: &'a QueryAccount<'a>,
    /// The limits and features of the query, as the caller passed them.
    pub(crate) options: &'a Options,
    /// The tally for the samples of all nodes, if samples are counted.
    pub(crate) tally: Option<&'a SampleTally>,
    /// The warnings and infos that operators have added so far.
    pub(crate) notes: QueryAnnotations,
}

impl EvalContext<'_> {
    /// Returns whether metric names are removed at the end of the evaluation instead of by each
    /// operator.
    pub(crate) fn delays_names(&self) -> bool {
        self.options.features.delayed_name_removal
    }
}
