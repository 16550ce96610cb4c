//! Queries for the label names and label values of a block.

use super::lookup::BlockLookup;
use super::series::RUN_SERIES;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use firn_model::matcher::Matcher;

impl<'a> BlockLookup<'a> {
    /// Returns the sorted label names of the series that match.
    pub(super) fn label_names(
        &self,
        matchers: &'a [Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<String>, Error> {
        let found = self.find_series(matchers, cancel, memory)?;
        let all = self.series.count as usize;
        let mut names = Vec::new();
        for (number, label) in (0u32..).zip(self.terms.labels.iter()) {
            cancel.check()?;
            let is_there = match &found {
                None => true,
                Some(found) if found.is_empty() => false,
                // Fewer than `found.len()` series lack the label, so at least one of those
                // found has it.
                Some(found) if label.present.series as usize + found.len() > all => true,
                Some(found) => self.has_label_in(number, found)?,
            };
            if is_there {
                memory.grow(label.name.len() + size_of::<String>())?;
                names.push(label.name.to_string());
            }
        }
        Ok(names)
    }

    /// Returns the sorted values of the label `name` of the series that match.
    pub(super) fn label_values(
        &self,
        name: &str,
        matchers: &'a [Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let number = self.terms.labels.find(name);
        let found = number.and_then(|number| Some((number, self.terms.labels.get(number)?)));
        let Some((number, label)) = found else {
            return Ok(Vec::new());
        };
        let wanted = match self.find_series(matchers, cancel, memory)? {
            None => None,
            Some(found) => {
                memory.grow(label.value_count() as usize)?;
                Some(self.find_used_values(number, &found, cancel)?)
            }
        };
        let mut values = Vec::new();
        self.terms
            .for_each_term(self.files, label.terms.clone(), &mut |listed, value| {
                cancel.check()?;
                let at = (listed.term - label.terms.start) as usize;
                if wanted
                    .as_ref()
                    .is_none_or(|wanted| wanted.get(at) == Some(&true))
                {
                    memory.grow(value.len() + size_of::<Vec<u8>>())?;
                    values.push(value.to_vec());
                }
                Ok(())
            })?;
        Ok(values)
    }

    /// Returns the series that match, or `None` for all series if there are no matchers.
    fn find_series(
        &self,
        matchers: &'a [Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Option<Vec<u32>>, Error> {
        if matchers.is_empty() {
            Ok(None)
        } else {
            self.find_matching_series(matchers, cancel, memory)
                .map(Some)
        }
    }

    /// Returns whether any of the series has the label. `series` must ascend.
    fn has_label_in(&self, label: u32, series: &[u32]) -> Result<bool, Error> {
        for series in series.chunk_by(|a, b| run_index(*a) == run_index(*b)) {
            let numbers =
                self.series
                    .read_value_numbers(self.files, label, run_index(series[0]))?;
            let has = |s: &u32| {
                numbers
                    .get(*s as usize % RUN_SERIES)
                    .is_some_and(|n| *n != 0)
            };
            if series.iter().any(has) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns, for each value of the label, whether one of the series has it. `series` must
    /// ascend.
    fn find_used_values(
        &self,
        label: u32,
        series: &[u32],
        cancel: &CancelToken,
    ) -> Result<Vec<bool>, Error> {
        let values = self
            .terms
            .labels
            .get(label)
            .map_or(0, |label| label.value_count());
        let mut seen = vec![false; values as usize];
        for series in series.chunk_by(|a, b| run_index(*a) == run_index(*b)) {
            cancel.check()?;
            let numbers =
                self.series
                    .read_value_numbers(self.files, label, run_index(series[0]))?;
            for one in series {
                let number = numbers
                    .get(*one as usize % RUN_SERIES)
                    .copied()
                    .unwrap_or(0);
                let value = number.checked_sub(1).and_then(|v| usize::try_from(v).ok());
                if let Some(seen) = value.and_then(|value| seen.get_mut(value)) {
                    *seen = true;
                }
            }
        }
        Ok(seen)
    }
}

fn run_index(series: u32) -> usize {
    series as usize / RUN_SERIES
}
