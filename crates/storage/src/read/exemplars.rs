//! Exemplars, found by the labels of their series.

use super::Reader;
use crate::ids::SeriesRef;
use firn_model::error::Error;
use firn_model::exemplar::FoundExemplars;
use firn_model::sample::TimeRange;
use firn_model::store::ExemplarRequest;
use std::collections::BTreeSet;

/// Series between two looks at the cancel flag: some 100 us.
const CANCEL_EACH: usize = 256;

impl Reader {
    /// The exemplars of the series that any of the sets matches, by labels.
    pub(crate) fn select_exemplars(
        &self,
        request: ExemplarRequest<'_>,
    ) -> Result<Vec<FoundExemplars>, Error> {
        if *request.tenant != self.options.tenant {
            return Ok(Vec::new());
        }
        let generation = self.index.generation();
        let slots = self.exemplars.slots();
        let mut matching = BTreeSet::new();
        for matchers in request.sets {
            let found = self
                .index
                .lookup(matchers, TimeRange::ALL, request.cancel)?;
            let has_any = |slot: &SeriesRef| slots.binary_search(slot).is_ok();
            matching.extend(found.slots().filter(has_any));
        }
        let mut answer = Vec::new();
        for (i, slot) in matching.into_iter().enumerate() {
            if i.is_multiple_of(CANCEL_EACH) {
                request.cancel.check()?;
            }
            let exemplars = self.exemplars.of_series(slot, request.range);
            if !exemplars.is_empty() {
                let series = self.index.series_labels(slot);
                answer.push(FoundExemplars { series, exemplars });
            }
        }
        drop(generation);
        answer.sort_by(|a, b| a.series.cmp(&b.series));
        Ok(answer)
    }
}
