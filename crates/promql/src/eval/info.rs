//! `info(v, {selector})`: adds the labels of info series to the series that they tell of.
//!
//! ```text
//! base          up{instance="a", job="x"}                        value
//! info series   target_info{instance="a", job="x", zone="z"}     1
//! result        up{instance="a", job="x", zone="z"}              the base's value
//! ```
//!
//! Series belong together where the identifying labels are equal. Steps are walked in order, and at
//! each the info sample that was written last counts; so one base series may become several.
//! Follows upstream's `promql/info.go`.

mod selection;

use crate::eval::evaluator::Evaluator;
use crate::eval::frame::{Frame, RowBuffer, is_absent};
use crate::eval::grid::Grid;
use crate::eval::heads::Head;
use crate::eval::stream::{Stream, same_labelset};
use crate::plan::Node;
use crate::value::QueryError;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use rustc_hash::FxHashMap;
use selection::{InfoSeries, Wanted, never_seen};

/// The labels that say which info series belongs to a series.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// The value of a call.
pub(crate) fn vector(
    evaluator: &mut Evaluator<'_>,
    args: &[Node],
    grid: Grid,
) -> Result<Stream, QueryError> {
    let held = evaluator.account.held();
    let mut base = evaluator.own_frame(&args[0], grid)?;
    if base.holds_both() {
        base = base.of_one_kind();
    }
    // They are asked for at every step.
    base.heads_mut();
    let wanted = Wanted::of(args.get(1));
    let ignored: Vec<bool> = (0..base.len())
        .map(|series| wanted.names_match(base.labels(series).get(METRIC_NAME)))
        .collect();
    let infos = selection::select(evaluator, &args[0], (&base, &ignored), &wanted, grid)?;
    let bytes = infos.len() * (grid.count * size_of::<i64>() + size_of::<InfoSeries>())
        + base.len() * size_of::<Reuse>();
    let _memory = evaluator.account.reserve(bytes)?;
    let mut join = Join::new(&base, ignored, infos, wanted);
    for step in 0..grid.count {
        evaluator.account.check()?;
        join.step(step)?;
        evaluator.account.admit(join.samples)?;
    }
    let frame = join.into_frame(grid.count);
    let bytes = frame.len() * (grid.count * size_of::<f64>() + size_of::<Head>());
    let mut frame = frame;
    frame.keep(evaluator.account.reserve(bytes)?);
    evaluator.account.settle(held, frame.samples())?;
    Ok(frame.into())
}

/// The identifying labels of a series.
fn identity(labels: &Labels) -> [Vec<u8>; 2] {
    IDENTIFYING.map(|name| labels.get(name).to_vec())
}

/// What a base series became at the step before, to be taken again while nothing changes.
#[derive(Clone, Debug, Default)]
struct Reuse {
    /// Info series by number of the info metric's name.
    partners: Vec<Option<u32>>,
    /// The row, or none if the series is left out.
    row: Option<usize>,
    is_known: bool,
}

/// Base and info series on their way to a result.
struct Join<'a> {
    base: &'a Frame,
    ignored: Vec<bool>,
    infos: Vec<InfoSeries>,
    wanted: Wanted,
    /// For each base series the number of its identity, if some info series has it.
    identities: Vec<Option<u32>>,
    /// For each info series the number of its name and of its identity.
    keys: Vec<(u32, u32)>,
    name_count: usize,
    reuse: Vec<Reuse>,
    rows: Vec<(Labels, RowBuffer)>,
    row_of: FxHashMap<Labels, usize>,
    samples: u64,
}

impl<'a> Join<'a> {
    fn new(base: &'a Frame, ignored: Vec<bool>, infos: Vec<InfoSeries>, wanted: Wanted) -> Self {
        let mut names: Vec<&[u8]> = infos.iter().map(|i| i.labels.get(METRIC_NAME)).collect();
        names.sort_unstable();
        names.dedup();
        let mut numbers = FxHashMap::default();
        let mut keys = Vec::with_capacity(infos.len());
        for info in &infos {
            let next = numbers.len() as u32;
            let number = *numbers.entry(identity(&info.labels)).or_insert(next);
            let name = info.labels.get(METRIC_NAME);
            let name = names.partition_point(|known| *known < name) as u32;
            keys.push((name, number));
        }
        let of_base = |series| {
            let labels = &base.labels(series);
            numbers.get(&identity(labels)).copied()
        };
        Self {
            base,
            ignored,
            wanted,
            identities: (0..base.len()).map(of_base).collect(),
            keys,
            name_count: names.len(),
            reuse: vec![Reuse::default(); base.len()],
            rows: Vec::new(),
            row_of: FxHashMap::default(),
            samples: 0,
            infos,
        }
    }

    /// Joins what is there at a step.
    fn step(&mut self, step: usize) -> Result<(), QueryError> {
        let has_value = |series: &usize| {
            let row = self.base.row(*series);
            !is_absent(row.values[step]) || row.histogram(step).is_some()
        };
        let present: Vec<usize> = (0..self.base.len()).filter(has_value).collect();
        if present.is_empty() {
            return Ok(());
        }
        let newest = self.newest(step)?;
        for series in present {
            let row = match self.ignored[series] {
                true => self.row_for(self.base.labels(series)),
                false => match self.joined(series, &newest)? {
                    Some(row) => row,
                    None => continue,
                },
            };
            self.put(series, step, row)?;
        }
        Ok(())
    }

    /// The info series of every name and identity whose sample at a step was written last.
    fn newest(&self, step: usize) -> Result<FxHashMap<(u32, u32), u32>, QueryError> {
        let mut newest: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for (at, info) in self.infos.iter().enumerate() {
            let time = info.times[step];
            if never_seen(time) {
                continue;
            }
            let known = newest.entry(self.keys[at]).or_insert(at as u32);
            let other = &self.infos[*known as usize];
            let other_time = other.times[step];
            if other_time < time {
                *known = at as u32;
            } else if other_time == time && *known != at as u32 {
                return Err(QueryError::Execution(format!(
                    "found duplicate series for info metric: existing {} @ {other_time}, \
                     new {} @ {time}",
                    other.labels, info.labels
                )));
            }
        }
        Ok(newest)
    }

    /// The row that a base series adds to; none if it has no partner and must have one.
    fn joined(
        &mut self,
        series: usize,
        newest: &FxHashMap<(u32, u32), u32>,
    ) -> Result<Option<usize>, QueryError> {
        let identity = self.identities[series];
        let partner = |name| identity.and_then(|id| newest.get(&(name, id)).copied());
        let names = 0..self.name_count as u32;
        let known = &self.reuse[series];
        if known.is_known
            && names
                .clone()
                .map(partner)
                .eq(known.partners.iter().copied())
        {
            return Ok(known.row);
        }
        let partners: Vec<Option<u32>> = names.map(partner).collect();
        let labels = self.labels(series, &partners)?;
        let row = labels.map(|labels| self.row_for(labels));
        self.reuse[series] = Reuse {
            partners,
            row,
            is_known: true,
        };
        Ok(row)
    }

    /// The labels of a base series and its partners.
    fn labels(
        &self,
        series: usize,
        partners: &[Option<u32>],
    ) -> Result<Option<Labels>, QueryError> {
        let base = &self.base.labels(series);
        if partners.iter().all(Option::is_none) && !self.wanted.data_may_be_empty() {
            return Ok(None);
        }
        let mut added = LabelsBuilder::default();
        for partner in partners.iter().flatten() {
            for (name, value) in self.infos[*partner as usize].labels.iter() {
                if name == METRIC_NAME || !self.wanted.takes(name) {
                    continue;
                }
                let known = added.get(name);
                if !known.is_empty() && known != value {
                    return Err(QueryError::Execution(format!("conflicting label: {name}")));
                }
                if base.get(name).is_empty() {
                    added.set(name, value);
                }
            }
        }
        let mut labels = LabelsBuilder::from_labels(base.as_ref());
        for (name, value) in added.iter() {
            labels.set(name, value);
        }
        Ok(Some(labels.build()))
    }

    fn row_for(&mut self, labels: Labels) -> usize {
        let steps = self.base.steps();
        let rows = &mut self.rows;
        *self.row_of.entry(labels).or_insert_with_key(|labels| {
            let mut row = RowBuffer::default();
            row.reset(steps);
            rows.push((labels.clone(), row));
            rows.len() - 1
        })
    }

    /// Copies the value of a base series at a step to a row.
    fn put(&mut self, series: usize, step: usize, row: usize) -> Result<(), QueryError> {
        let from = self.base.row(series);
        let into = &mut self.rows[row].1;
        let is_taken = !is_absent(into.values[step])
            || into
                .histograms
                .last()
                .is_some_and(|(s, _)| *s as usize == step);
        if is_taken {
            return Err(same_labelset());
        }
        match from.histogram(step) {
            Some(histogram) => into.histograms.push((step as u32, histogram.clone())),
            None => into.values[step] = from.values[step],
        }
        self.samples += 1;
        Ok(())
    }

    /// The rows. As upstream, a name whose removal was put off stays.
    fn into_frame(self, steps: usize) -> Frame {
        let mut frame = Frame::new(steps);
        for (labels, row) in self.rows {
            let head = Head {
                labels,
                drops_name: false,
            };
            frame.push(head, row.row());
        }
        frame
    }
}
