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

use crate::eval::account::{Account, grow};
use crate::eval::operators::stream::same_labelset;
use crate::eval::rows::frame::Frame;
use crate::eval::rows::row::{HistogramPoint, RowBuffer, is_absent};
use crate::eval::rows::row_labels::{ALLOCATION_BYTES, RowLabels};
use crate::eval::run::Run;
use crate::eval::tally::WindowExtent;
use crate::grid::Grid;
use crate::plan::Node;
use crate::value::QueryError;
use firn_model::budget::Reservation;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use rustc_hash::FxHashMap;
use selection::{InfoSeries, Wanted, never_seen};

/// The labels that say which info series belongs to a series.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// What an info series takes while it is joined, beside its identity: its name, the numbers of
/// both, and those of the newest at a step, in maps that may have room for twice as many.
const INFO_BYTES: usize = 2 * size_of::<([Vec<u8>; 2], &[u8], [(u32, u32); 2], [u32; 2])>();

/// What a row takes beside its labels and values: its place, its row_labels, and lists and maps
/// that may have room for as many again.
const ROW_BYTES: usize =
    2 * size_of::<(Labels, RowBuffer, Labels, usize, RowLabels)>() + ALLOCATION_BYTES;

/// What a base series takes while it is joined: whether it is ignored, the number of its identity,
/// what it became, and its place among those that are there at a step.
const BASE_BYTES: usize = size_of::<(bool, Option<u32>, Reuse, usize)>();

/// The value of a call whose first argument has the value `base`.
pub(crate) fn frame(
    run: &mut Run<'_>,
    (node, args): (&Node, &[Node]),
    mut base: Frame,
    grid: Grid,
) -> Result<Frame, QueryError> {
    let account = run.account;
    if base.holds_both() {
        base = base.of_one_kind();
        if let Some(tally) = run.tally {
            let (rows, _) = tally.of(&args[0], grid.count, account)?;
            rows.recount((0..base.len()).map(|series| base.row(series)));
        }
    }
    let mut memory = account.reserve(base.len() * BASE_BYTES)?;
    // They are asked for at every step.
    base.row_labels_mut(account, &mut memory)?;
    let wanted = Wanted::of(args.get(1));
    let mut ignored = Vec::with_capacity(base.len());
    for series in 0..base.len() {
        account.check()?;
        ignored.push(wanted.names_match(base.labels(series).get(METRIC_NAME)));
    }
    let asked = (&base, &ignored[..]);
    let infos = selection::select(run, &args[0], asked, &wanted, (grid, &mut memory))?;
    if let Some(tally) = run.tally {
        let (_, windows) = tally.of(node, grid.count, account)?;
        windows.add(0, seen_at(&infos, grid.count));
    }
    let mut join = Join::new(&base, ignored, infos, wanted, account)?;
    for step in 0..grid.count {
        account.check()?;
        join.step(step)?;
        account.admit(join.samples)?;
    }
    join.into_frame(grid.count)
}

/// How many info series have a sample at each step, as windows of one sample.
fn seen_at(infos: &[InfoSeries], steps: usize) -> WindowExtent {
    let seen = |step: usize| {
        infos
            .iter()
            .filter(|info| !never_seen(info.times[step]))
            .count() as u64
    };
    let held: Vec<u64> = (0..steps).map(seen).collect();
    WindowExtent {
        fresh: held.clone(),
        held,
        ..WindowExtent::default()
    }
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
    account: &'a Account<'a>,
    /// Of the names, identities and partners.
    memory: Reservation,
    /// Of the rows.
    rows_memory: Reservation,
}

impl<'a> Join<'a> {
    fn new(
        base: &'a Frame,
        ignored: Vec<bool>,
        infos: Vec<InfoSeries>,
        wanted: Wanted,
        account: &'a Account<'a>,
    ) -> Result<Self, QueryError> {
        let mut memory = account.reserve(infos.len() * INFO_BYTES)?;
        let mut names: Vec<&[u8]> = infos.iter().map(|i| i.labels.get(METRIC_NAME)).collect();
        names.sort_unstable();
        names.dedup();
        let mut numbers = FxHashMap::default();
        let mut keys = Vec::with_capacity(infos.len());
        for info in &infos {
            account.check()?;
            let next = numbers.len() as u32;
            let identity = identity(&info.labels);
            grow(&mut memory, identity.iter().map(Vec::len).sum())?;
            let number = *numbers.entry(identity).or_insert(next);
            let name = info.labels.get(METRIC_NAME);
            let name = names.partition_point(|known| *known < name) as u32;
            keys.push((name, number));
        }
        let mut identities = Vec::with_capacity(base.len());
        for series in 0..base.len() {
            account.check()?;
            let labels = &base.labels(series);
            identities.push(numbers.get(&identity(labels)).copied());
        }
        let partners_bytes = names.len() * size_of::<Option<u32>>();
        grow(&mut memory, base.len() * partners_bytes)?;
        Ok(Self {
            base,
            ignored,
            wanted,
            identities,
            keys,
            name_count: names.len(),
            reuse: vec![Reuse::default(); base.len()],
            rows: Vec::new(),
            row_of: FxHashMap::default(),
            samples: 0,
            account,
            memory,
            rows_memory: account.reserve(0)?,
            infos,
        })
    }

    /// Joins what is there at a step.
    fn step(&mut self, step: usize) -> Result<(), QueryError> {
        let has_value = |series: &usize| {
            let row = self.base.row(*series);
            !is_absent(row.values[step]) || row.histogram(step).is_some()
        };
        let mut present = Vec::new();
        for series in 0..self.base.len() {
            self.account.check()?;
            present.extend(Some(series).filter(has_value));
        }
        if present.is_empty() {
            return Ok(());
        }
        let newest = self.newest(step)?;
        for series in present {
            self.account.check()?;
            let row = match self.ignored[series] {
                true => self.row_for(self.base.labels(series))?,
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
            self.account.check()?;
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
        let row = match labels {
            Some(labels) => Some(self.row_for(labels)?),
            None => None,
        };
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

    fn row_for(&mut self, labels: Labels) -> Result<usize, QueryError> {
        if let Some(known) = self.row_of.get(&labels) {
            return Ok(*known);
        }
        // The row, and its copy in the result, which may have room for as much again.
        let steps = self.base.steps();
        let row_bytes = 3 * steps * size_of::<f64>() + ROW_BYTES;
        grow(&mut self.rows_memory, row_bytes + labels.as_bytes().len())?;
        let mut row = RowBuffer::default();
        row.reset(steps);
        self.row_of.insert(labels.clone(), self.rows.len());
        self.rows.push((labels, row));
        Ok(self.rows.len() - 1)
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
            Some(histogram) => {
                grow(&mut self.rows_memory, 3 * size_of::<HistogramPoint>())?;
                into.histograms.push((step as u32, histogram.clone()));
            }
            None => into.values[step] = from.values[step],
        }
        self.samples += 1;
        Ok(())
    }

    /// The rows. As upstream, a name whose removal was put off stays.
    fn into_frame(self, steps: usize) -> Result<Frame, QueryError> {
        let mut frame = Frame::new(steps);
        frame.keep(self.rows_memory);
        drop(self.memory);
        for (labels, row) in self.rows {
            self.account.check()?;
            frame.push(RowLabels::kept(labels), row.row());
        }
        Ok(frame)
    }
}
