//! A store in memory for tests and benchmarks. It has no index and no limits, and returns columns
//! as they were passed in.

pub mod random;

use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn, SeriesBatch};
use firn_model::error::Error;
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_model::store::{Select, SelectRequest, Selection};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// A series and its samples.
#[derive(Clone, Debug)]
pub struct Series {
    /// The label set of the series.
    pub labels: Labels,
    /// The timestamps in ascending order, possibly shared with other series.
    pub times: Arc<Vec<i64>>,
    /// The values; one for each timestamp.
    pub values: Vec<f64>,
}

/// The store: all series in the order in which they were added.
#[derive(Debug, Default)]
pub struct MemoryStore {
    series: Arc<Vec<Series>>,
    columns: Arc<HashMap<String, LabelColumn>>,
    /// The series of each metric, so that a look-up takes little time compared with the evaluation.
    by_name: HashMap<Vec<u8>, Vec<usize>>,
}

impl MemoryStore {
    /// Creates a store that contains `series`.
    pub fn new(series: Vec<Series>) -> Self {
        let mut names = BTreeSet::new();
        for one in &series {
            names.extend(one.labels.iter().map(|(name, _)| name.to_owned()));
        }
        let column = |name: &String| (name.clone(), column_of(&series, name));
        let columns = names.iter().map(column).collect();
        let mut by_name: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (at, one) in series.iter().enumerate() {
            let name = one.labels.get(METRIC_NAME).to_vec();
            by_name.entry(name).or_default().push(at);
        }
        Self {
            by_name,
            series: Arc::new(series),
            columns: Arc::new(columns),
        }
    }

    fn matching(&self, matchers: &[Matcher]) -> Vec<usize> {
        let is_name = |m: &&Matcher| m.name() == METRIC_NAME && m.op() == MatchOp::Equal;
        let rest: Vec<&Matcher> = matchers.iter().filter(|m| !is_name(m)).collect();
        let matches = |labels: &Labels| rest.iter().all(|m| m.matches(labels.get(m.name())));
        let filtered = |at: &usize| matches(&self.series[*at].labels);
        match matchers.iter().find(is_name) {
            Some(name) => {
                let named = self.by_name.get(name.value()).cloned().unwrap_or_default();
                if rest.is_empty() {
                    named
                } else {
                    named.into_iter().filter(filtered).collect()
                }
            }
            None => (0..self.series.len()).filter(filtered).collect(),
        }
    }
}

fn column_of(series: &[Series], name: &str) -> LabelColumn {
    let mut ids: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut column = LabelColumn::default();
    for one in series {
        let value = one.labels.get(name);
        let id = *ids.entry(value.to_vec()).or_insert_with(|| {
            column.values.push(value.into());
            column.values.len() as u32 - 1
        });
        column.ids.push(id);
    }
    column
}

impl Select for MemoryStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let found = self.matching(request.matchers);
        request.series.add_series(found.len())?;
        Ok(Arc::new(Found {
            found,
            range: request.range,
            series: self.series.clone(),
            columns: self.columns.clone(),
        }))
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        let found = self.matching(request.matchers);
        let names = found.iter().flat_map(|at| {
            self.series[*at]
                .labels
                .iter()
                .map(|(name, _)| name.to_owned())
        });
        Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let found = self.matching(request.matchers);
        let values = found
            .iter()
            .map(|at| self.series[*at].labels.get(name).to_vec());
        let values: BTreeSet<_> = values.filter(|value| !value.is_empty()).collect();
        Ok(values.into_iter().collect())
    }
}

struct Found {
    found: Vec<usize>,
    range: TimeRange,
    series: Arc<Vec<Series>>,
    columns: Arc<HashMap<String, LabelColumn>>,
}

impl Selection for Found {
    fn len(&self) -> usize {
        self.found.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.series[self.found[series]].labels.clone()
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        cancel.check()?;
        memory.grow(self.found.len() * size_of::<u32>())?;
        let Some(column) = self.columns.get(name) else {
            return Ok(LabelColumn {
                ids: vec![0; self.found.len()],
                values: vec![[].into()],
            });
        };
        let values = column.values.iter().map(|v| v.len() + COLUMN_VALUE_BYTES);
        memory.grow(values.sum())?;
        Ok(LabelColumn {
            ids: self.found.iter().map(|at| column.ids[*at]).collect(),
            values: column.values.clone(),
        })
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        for at in &self.found[series] {
            let one = &self.series[*at];
            let Range { start, end } = self.range.indexes(&one.times);
            into.push(&one.times[start..end], &one.values[start..end], &[], []);
        }
        Ok(())
    }
}
