//! Groups series by metric name, the first sort key of series in blocks.

use super::core::Index;
use super::series_table::SeriesCursor;
use crate::ids::{SeriesRef, TermId};
use rustc_hash::FxHashMap;

/// Name of the label with the metric name.
const METRIC: &str = "__name__";

impl Index {
    /// Returns the series of `slots` that are not removed, in one list per metric: series without a
    /// name first, then in order of the names. No two series have the same labels, although a
    /// removed series may still exist beside a new one with the same labels.
    pub(crate) fn group_by_metric(&self, slots: &[SeriesRef]) -> Vec<Vec<SeriesRef>> {
        let label = self.dictionary.label(METRIC).map(|label| label.id);
        let members = self.members();
        let mut cursor = SeriesCursor::new(&self.dictionary);
        let mut of_terms: FxHashMap<Option<TermId>, Vec<SeriesRef>> = FxHashMap::default();
        for slot in slots {
            if members.contains(*slot) && cursor.place(*slot).is_some() {
                let term = label.and_then(|label| cursor.find_term(*slot, label));
                of_terms.entry(term).or_default().push(*slot);
            }
        }
        let name_of = |term: Option<TermId>| {
            let term = term.and_then(|id| self.dictionary.term(id));
            term.map(|term| term.value.to_vec()).unwrap_or_default()
        };
        let named = of_terms
            .into_iter()
            .map(|(term, slots)| (name_of(term), slots));
        let mut named: Vec<_> = named.collect();
        named.sort_unstable();
        named.into_iter().map(|(_, slots)| slots).collect()
    }
}
