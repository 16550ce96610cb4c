//! A simple store in memory for the tests of scripts.

use super::super::ScriptStore;
use crate::value::QueryPointValue;
use firn_model::batch::Batch;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{HISTOGRAM_PLACEHOLDER, LabelColumn, SeriesBatch};
use firn_model::error::Error;
use firn_model::histogram::Histogram;
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use firn_model::store::{Select, SelectRequest, Selection};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The value and the start timestamp of a sample.
type Sample = (QueryPointValue, TimestampMs);

#[derive(Clone, Debug, Default)]
struct Series {
    labels: Labels,
    samples: BTreeMap<TimestampMs, Sample>,
}

/// The series in order of their creation.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryStore(Vec<Series>);

impl MemoryStore {
    fn series_mut(&mut self, labels: Labels) -> &mut Series {
        let known = self.0.iter().position(|s| s.labels == labels);
        let place = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(Series {
                labels,
                samples: BTreeMap::new(),
            });
        }
        &mut self.0[place]
    }

    /// Returns the histograms of a series in time order.
    pub(super) fn samples_of(&self, labels: &Labels) -> Vec<Arc<Histogram>> {
        let series = self.0.iter().filter(|s| s.labels == *labels);
        series
            .flat_map(|s| s.samples.values())
            .filter_map(|(value, _)| match value {
                QueryPointValue::Histogram(histogram) => Some(histogram.clone()),
                QueryPointValue::Float(_) => None,
            })
            .collect()
    }
}

impl ScriptStore for MemoryStore {
    fn clear(&mut self) -> Result<(), Error> {
        self.0.clear();
        Ok(())
    }

    fn append(&mut self, batch: &Batch) -> Result<(), Error> {
        for series in batch.iter() {
            let into = self.series_mut(series.labels.to_owned());
            for (i, (time, value)) in series.times.iter().zip(series.values).enumerate() {
                let start = series.start_times.get(i).copied().unwrap_or(START_UNKNOWN);
                into.samples
                    .insert(*time, (QueryPointValue::Float(*value), start));
            }
            for sample in series.histograms {
                let value = QueryPointValue::Histogram(Arc::new(sample.histogram.clone()));
                into.samples.insert(sample.time, (value, sample.start_time));
            }
        }
        Ok(())
    }

    fn select(&self) -> &dyn Select {
        self
    }
}

impl Select for MemoryStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let matches = |s: &&Series| {
            let mut matchers = request.matchers.iter();
            matchers.all(|m| m.matches(s.labels.get(m.name())))
                && s.samples.keys().any(|time| request.range.contains(*time))
        };
        let series = self.0.iter().filter(matches).cloned().collect();
        Ok(Arc::new(Found {
            series,
            range: request.range,
        }))
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        let found = Select::select(self, request)?;
        let mut names: Vec<String> = (0..found.len())
            .flat_map(|i| {
                let labels = found.labels(i);
                labels
                    .iter()
                    .map(|(name, _)| name.to_owned())
                    .collect::<Vec<_>>()
            })
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let found = Select::select(self, request)?;
        let mut values: Vec<Vec<u8>> = (0..found.len())
            .map(|i| found.labels(i).get(name).to_vec())
            .collect();
        values.retain(|value| !value.is_empty());
        values.sort();
        values.dedup();
        Ok(values)
    }
}

struct Found {
    series: Vec<Series>,
    range: TimeRange,
}

impl Selection for Found {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.series[series].labels.clone()
    }

    fn label_column(
        &self,
        name: &str,
        _cancel: &CancelToken,
        _memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        let mut column = LabelColumn::default();
        for series in &self.series {
            let value = series.labels.get(name);
            let known = column.values.iter().position(|v| **v == *value);
            let id = known.unwrap_or(column.values.len());
            if known.is_none() {
                column.values.push(value.into());
            }
            column.ids.push(id as u32);
        }
        Ok(column)
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        for series in &self.series[series] {
            let (mut times, mut values, mut starts) = (Vec::new(), Vec::new(), Vec::new());
            let mut histograms = Vec::new();
            for (time, (value, start)) in series.samples.range(self.range.min..=self.range.max) {
                match value {
                    QueryPointValue::Float(value) => values.push(*value),
                    QueryPointValue::Histogram(histogram) => {
                        histograms.push((times.len() as u32, histogram.clone()));
                        values.push(HISTOGRAM_PLACEHOLDER);
                    }
                }
                times.push(*time);
                starts.push(*start);
            }
            into.push(&times, &values, &starts, histograms);
        }
        Ok(())
    }
}
