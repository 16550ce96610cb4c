//! The part of each matcher in a look-up.

use super::StoreReader;
use firn_model::error::{Error, ErrorKind};
use firn_model::store::{MatcherCost, SelectRequest};

impl StoreReader {
    /// Implements [`firn_model::store::Select::explain`]. Head and blocks have indexes of their own
    /// with mostly the same series, so the largest number of series of any index is returned.
    pub(crate) fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        let none = MatcherCost {
            series: Some(0),
            is_deferred: false,
        };
        let mut costs = vec![none; request.matchers.len()];
        if *request.tenant != self.parts.options.tenant {
            return Ok(costs);
        }
        request.bind_matchers();
        let (matchers, range, cancel) = (request.matchers, request.range, request.cancel);
        // Held so that no series or term of the index is freed.
        let _generation = self.parts.head.index.generation();
        add_index(
            &mut costs,
            &self.parts.head.index.explain(matchers, range, cancel)?,
        );
        let mut memory = request.budget.create_reservation();
        let view = self.parts.blocks.view();
        for open in view.find_matching(range, matchers) {
            cancel.check()?;
            match open.block.explain(matchers, cancel, &mut memory) {
                Ok(of_block) => add_index(&mut costs, &of_block),
                // The look-up of the query reports the damage.
                Err(e) if e.kind == ErrorKind::Corrupt => {}
                Err(e) => return Err(e),
            }
        }
        Ok(costs)
    }
}

fn add_index(costs: &mut [MatcherCost], of_index: &[MatcherCost]) {
    for (cost, one) in costs.iter_mut().zip(of_index) {
        cost.series = cost.series.max(one.series);
        cost.is_deferred |= one.is_deferred;
    }
}
