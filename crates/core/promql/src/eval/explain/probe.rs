//! Reads recent samples of a few series of a selector, to determine their scrape interval and
//! whether they are floats.

use super::{PlannedExpr, ReportBuilder};
use crate::grid::SelectorWindow;
use crate::plan::PlanSelector;
use firn_model::columns::SeriesBatch;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::{TimeRange, is_stale};
use firn_model::series_limit::SeriesLimit;

/// Time before the end of the query in which samples are read, in milliseconds: several scrapes at
/// any usual interval.
const SEARCHED_MS: i64 = 30 * 60 * 1000;

/// Number of series that are read.
const SERIES: usize = 3;

/// Number of the newest samples of each series that are considered.
const SAMPLES: usize = 32;

/// Properties of the samples of some series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbedSamples {
    /// Median of the distances between two samples in milliseconds. `None` if no series has two.
    pub(super) interval_ms: Option<i64>,
    /// True if any sample is a float.
    pub(super) has_floats: bool,
}

impl ReportBuilder<'_> {
    /// Reads the series `known` of a selector, or some of its series if `known` is empty.
    pub(super) fn probe(
        &self,
        selector: &PlanSelector,
        known: &[Labels],
        at: PlannedExpr<'_>,
    ) -> Result<ProbedSamples, Error> {
        let window = SelectorWindow {
            range_ms: SEARCHED_MS,
            ..self.window_of(selector, at.node)
        };
        let end = window.end(at.grid.last());
        let range = TimeRange::new(end.saturating_sub(SEARCHED_MS), end);
        let found;
        let known = if known.is_empty() {
            found = self.find_some(selector, range)?;
            &found
        } else {
            known
        };
        let (mut distances, mut probed) = (Vec::new(), ProbedSamples::default());
        for labels in known.iter().filter(|labels| !labels.is_empty()) {
            self.read_series(labels, range, &mut distances, &mut probed)?;
        }
        distances.sort_unstable();
        probed.interval_ms = distances.get(distances.len() / 2).copied();
        Ok(probed)
    }

    /// Returns the labels of some series that a selector finds in `range`.
    fn find_some(&self, selector: &PlanSelector, range: TimeRange) -> Result<Vec<Labels>, Error> {
        let limit = SeriesLimit::new(self.options.series_max);
        let request = self.request(&selector.matchers, range, &limit);
        let selection = self.ctx.store.select(request)?;
        let count = selection.len().min(SERIES);
        Ok((0..count).map(|series| selection.labels(series)).collect())
    }

    fn read_series(
        &self,
        labels: &Labels,
        range: TimeRange,
        distances: &mut Vec<i64>,
        probed: &mut ProbedSamples,
    ) -> Result<(), Error> {
        let matchers: Result<Vec<Matcher>, Error> = labels
            .iter()
            .map(|(name, value)| Matcher::new(name, MatchOp::Equal, value))
            .collect();
        let matchers = matchers?;
        let limit = SeriesLimit::new(self.options.series_max);
        let request = self.request(&matchers, range, &limit);
        let selection = self.ctx.store.select(request)?;
        if selection.is_empty() {
            return Ok(());
        }
        let mut batch = SeriesBatch::default();
        selection.read(0..1, &mut batch)?;
        let series = batch.series(0);
        probed.has_floats |= series.histograms.len() < series.times.len();
        let values = series.times.iter().zip(series.values);
        let times: Vec<i64> = values
            .filter(|(_, value)| !is_stale(**value))
            .map(|(time, _)| *time)
            .collect();
        let newest = &times[times.len().saturating_sub(SAMPLES)..];
        distances.extend(newest.windows(2).map(|pair| pair[1] - pair[0]));
        Ok(())
    }
}
