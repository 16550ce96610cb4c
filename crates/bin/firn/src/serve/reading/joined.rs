//! Selection that joins the series of the local store with series read from other servers.
//!
//! Invariants: each label set occurs once. The series of the local store are first, in its order;
//! series that only the servers have follow, sorted by labels. If both have a sample at the same
//! time, the local sample is used; between two servers, the one that is configured first.

use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn, SeriesBatch};
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::store::{ReadCosts, Selection};
use firn_wire::remote_read::RemoteReadSeries;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Number of series that are processed between two checks whether the query was cancelled.
const SERIES_PER_CHECK: usize = 1024;

/// A selection of local and remote series, created for one query. It holds all remote samples in
/// memory; local ones are read on demand.
pub(super) struct JoinedSelection {
    local: Arc<dyn Selection>,
    /// Remote samples of series that the local store has too, by the index of the local series.
    shared: BTreeMap<usize, RemoteReadSeries>,
    /// Series that only the servers have, sorted by labels and without duplicates.
    others: Vec<RemoteReadSeries>,
    /// Memory reservations of the remote series, released with the selection.
    _memory: Vec<Reservation>,
}

impl JoinedSelection {
    /// Joins `found`, whose memory is reserved by `memory`, with `local`. Fails once `cancel` is
    /// set.
    pub fn new(
        local: Arc<dyn Selection>,
        found: Vec<RemoteReadSeries>,
        memory: Vec<Reservation>,
        cancel: &CancelToken,
    ) -> Result<Self, Error> {
        let mut by_labels: HashMap<Labels, RemoteReadSeries> = HashMap::with_capacity(found.len());
        for series in found {
            match by_labels.get_mut(&series.labels) {
                Some(known) => known.merge(series),
                None => drop(by_labels.insert(series.labels.clone(), series)),
            }
        }
        let mut shared = BTreeMap::new();
        for i in 0..local.len() {
            if i % SERIES_PER_CHECK == 0 {
                cancel.check()?;
            }
            if let Some(series) = by_labels.remove(&local.labels(i)) {
                shared.insert(i, series);
            }
        }
        let mut others: Vec<RemoteReadSeries> = by_labels.into_values().collect();
        others.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        Ok(Self {
            local,
            shared,
            others,
            _memory: memory,
        })
    }

    /// Returns the number of series that the local store does not have.
    pub fn count_remote_only_series(&self) -> usize {
        self.others.len()
    }

    /// Appends a series that both have, with its samples merged by time.
    fn read_shared(
        &self,
        number: usize,
        theirs: &RemoteReadSeries,
        own: &mut SeriesBatch,
        into: &mut SeriesBatch,
    ) -> Result<(), Error> {
        own.clear();
        self.local.read(number..number + 1, own)?;
        let mut merged = theirs.clone();
        merged.merge_columns(own.series(0));
        merged.append_to(into);
        Ok(())
    }
}

impl Selection for JoinedSelection {
    fn len(&self) -> usize {
        self.local.len() + self.others.len()
    }

    fn labels(&self, series: usize) -> Labels {
        match series.checked_sub(self.local.len()) {
            None => self.local.labels(series),
            Some(other) => self.others[other].labels.clone(),
        }
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        let mut column = self.local.label_column(name, cancel, memory)?;
        memory.grow(self.others.len() * size_of::<u32>())?;
        let known = column.values.iter().enumerate();
        let mut ids: HashMap<Arc<[u8]>, u32> = known
            .map(|(id, value)| (value.clone(), id as u32))
            .collect();
        for series in &self.others {
            let value = series.labels.get(name);
            let id = match ids.get(value) {
                Some(id) => *id,
                None => {
                    memory.grow(COLUMN_VALUE_BYTES + value.len())?;
                    let (id, value) = (column.values.len() as u32, Arc::<[u8]>::from(value));
                    column.values.push(value.clone());
                    ids.insert(value, id);
                    id
                }
            };
            column.ids.push(id);
        }
        Ok(column)
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        let len = self.local.len();
        let of_local = series.start.min(len)..series.end.min(len);
        let mut own = SeriesBatch::default();
        let mut at = of_local.start;
        for (number, theirs) in self.shared.range(of_local.clone()) {
            self.local.read(at..*number, into)?;
            self.read_shared(*number, theirs, &mut own, into)?;
            at = number + 1;
        }
        if at < of_local.end {
            self.local.read(at..of_local.end, into)?;
        }
        let of_others = series.start.max(len) - len..series.end.max(len) - len;
        for other in &self.others[of_others] {
            other.append_to(into);
        }
        Ok(())
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.local.loss_warnings()
    }

    fn read_costs(&self) -> ReadCosts {
        self.local.read_costs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::budget::Budget;
    use firn_model::sample::START_UNKNOWN;
    use firn_wire::remote_read::ReadSample;

    /// Samples as pairs of time and value.
    type Plain = Vec<(i64, f64)>;

    /// A selection of float series.
    struct Fixed(Vec<(Labels, Plain)>);

    impl Selection for Fixed {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn labels(&self, series: usize) -> Labels {
            self.0[series].0.clone()
        }

        fn label_column(
            &self,
            name: &str,
            _cancel: &CancelToken,
            _memory: &mut Reservation,
        ) -> Result<LabelColumn, Error> {
            let values = self.0.iter().map(|(labels, _)| labels.get(name).into());
            Ok(LabelColumn {
                ids: (0..self.0.len() as u32).collect(),
                values: values.collect(),
            })
        }

        fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
            for (_, samples) in &self.0[series] {
                let (times, values): (Vec<_>, Vec<_>) = samples.iter().copied().unzip();
                into.push(&times, &values, &[], []);
            }
            Ok(())
        }
    }

    fn labels(name: &str) -> Labels {
        Labels::from_pairs([("__name__", "m"), ("a", name)])
    }

    fn theirs(name: &str, samples: &[(i64, f64)]) -> RemoteReadSeries {
        let sample = |(time, value): &(i64, f64)| ReadSample {
            time: *time,
            start_time: START_UNKNOWN,
            value: *value,
            histogram: None,
        };
        RemoteReadSeries {
            labels: labels(name),
            samples: samples.iter().map(sample).collect(),
        }
    }

    /// Joins both inputs, reads the result in ranges of every length, and compares each series.
    fn check(
        own: &[(&str, &[(i64, f64)])],
        found: Vec<RemoteReadSeries>,
        want: &[(&str, &[(i64, f64)])],
    ) {
        let own = own
            .iter()
            .map(|(name, samples)| (labels(name), samples.to_vec()));
        let local = Arc::new(Fixed(own.collect()));
        let joined = JoinedSelection::new(local, found, Vec::new(), &CancelToken::new()).unwrap();
        assert_eq!(joined.len(), want.len());
        for stretch in 1..=want.len() {
            let mut batch = SeriesBatch::default();
            for start in (0..want.len()).step_by(stretch) {
                let end = want.len().min(start + stretch);
                joined.read(start..end, &mut batch).unwrap();
            }
            for (i, (name, samples)) in want.iter().enumerate() {
                let read = batch.series(i);
                let read: Plain = read
                    .times
                    .iter()
                    .copied()
                    .zip(read.values.iter().copied())
                    .collect();
                assert_eq!(joined.labels(i), labels(name));
                assert_eq!(&read, samples, "{name} in stretches of {stretch}");
            }
        }
        let mut memory = Budget::new("test", 1 << 20).create_reservation();
        let column = joined
            .label_column("a", &CancelToken::new(), &mut memory)
            .unwrap();
        let values: Vec<&[u8]> = column
            .ids
            .iter()
            .map(|id| &*column.values[*id as usize])
            .collect();
        let names: Vec<&[u8]> = want.iter().map(|(name, _)| name.as_bytes()).collect();
        assert_eq!(values, names);
    }

    #[test]
    fn joined_series_are_there_once_and_own_samples_stay() {
        check(
            &[("x", &[(2, 2.0), (3, 3.0)]), ("y", &[(1, 1.0)])],
            vec![
                theirs("z", &[(9, 9.0)]),
                theirs("x", &[(1, -1.0), (2, -2.0)]),
                theirs("b", &[(5, 5.0)]),
                theirs("z", &[(8, 8.0), (9, -9.0)]),
            ],
            &[
                ("x", &[(1, -1.0), (2, 2.0), (3, 3.0)]),
                ("y", &[(1, 1.0)]),
                ("b", &[(5, 5.0)]),
                ("z", &[(8, 8.0), (9, 9.0)]),
            ],
        );
    }

    #[test]
    fn joined_with_an_empty_store_is_what_servers_gave() {
        check(
            &[],
            vec![theirs("b", &[(1, 1.0)]), theirs("a", &[])],
            &[("a", &[]), ("b", &[(1, 1.0)])],
        );
    }
}
