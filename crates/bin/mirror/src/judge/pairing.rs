//! Pairs the series of one answer with those of another.

use super::answer::{AnswerPointValue, AnswerSeries, LabelSet};
use std::collections::HashMap;

/// Maximum number of unpaired series on either side that are searched for partners with different
/// labels: as many pairs as take one or two milliseconds.
const CANDIDATES_MAX: usize = 300;

/// The series of two answers, paired as far as possible: first by equal labels, then by equal
/// points.
#[derive(Debug, Default)]
pub struct PairedSeries<'s, 'a> {
    /// Pairs with the same labels in both answers.
    pub equal: Vec<(&'s AnswerSeries<'a>, &'s AnswerSeries<'a>)>,
    /// Pairs with the same points, whose labels differ in one.
    pub relabelled: Vec<(&'s AnswerSeries<'a>, &'s AnswerSeries<'a>)>,
    /// Series that are only in the first answer, without a partner.
    pub missing: Vec<&'s AnswerSeries<'a>>,
    /// Series that are only in the second answer, without a partner.
    pub extra: Vec<&'s AnswerSeries<'a>>,
}

/// Pairs series by their labels. Label sets that occur several times are paired in order.
pub fn pair<'s, 'a>(
    baseline: &'s [AnswerSeries<'a>],
    candidate: &'s [AnswerSeries<'a>],
) -> PairedSeries<'s, 'a> {
    let mut places: HashMap<&LabelSet, Vec<usize>> = HashMap::new();
    for (place, series) in candidate.iter().enumerate().rev() {
        places.entry(&series.labels).or_default().push(place);
    }
    let mut paired = PairedSeries::default();
    let mut is_taken = vec![false; candidate.len()];
    for series in baseline {
        match places.get_mut(&series.labels).and_then(Vec::pop) {
            None => paired.missing.push(series),
            Some(place) => {
                is_taken[place] = true;
                paired.equal.push((series, &candidate[place]));
            }
        }
    }
    let left = candidate.iter().zip(is_taken);
    paired.extra = left
        .filter(|(_, is_taken)| !is_taken)
        .map(|(s, _)| s)
        .collect();
    paired
}

impl<'s, 'a> PairedSeries<'s, 'a> {
    /// Pairs remaining series that have the same points if their labels differ in only one: another
    /// name, another value, an additional or a missing label.
    pub fn find_relabelled(
        mut self,
        accepts: &dyn Fn(&AnswerPointValue<'_>, &AnswerPointValue<'_>) -> bool,
    ) -> Self {
        let mut still_missing = Vec::new();
        for (number, b) in self.missing.into_iter().enumerate() {
            let mut candidates = self.extra.iter().take(CANDIDATES_MAX);
            let found = (number < CANDIDATES_MAX)
                .then(|| candidates.position(|c| is_relabelled(b, c, accepts)))
                .flatten();
            match found {
                None => still_missing.push(b),
                Some(place) => self.relabelled.push((b, self.extra.remove(place))),
            }
        }
        self.missing = still_missing;
        self
    }
}

fn is_relabelled(
    b: &AnswerSeries<'_>,
    c: &AnswerSeries<'_>,
    accepts: &dyn Fn(&AnswerPointValue<'_>, &AnswerPointValue<'_>) -> bool,
) -> bool {
    let only_in = |one: &LabelSet, other: &LabelSet| {
        let lone = one
            .iter()
            .filter(|(name, value)| other.get(*name) != Some(value));
        lone.count()
    };
    only_in(&b.labels, &c.labels) <= 1
        && only_in(&c.labels, &b.labels) <= 1
        && b.points.len() == c.points.len()
        && b.points
            .iter()
            .zip(&c.points)
            .all(|(b, c)| b.time_ms == c.time_ms && accepts(&b.value, &c.value))
}
