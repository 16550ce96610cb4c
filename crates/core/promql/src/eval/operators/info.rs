//! The function `info(v, {selector})`, which adds the labels of info series to the series that they
//! describe.
//!
//! ```text
//! base          up{instance="a", job="x"}                        value
//! info series   target_info{instance="a", job="x", zone="z"}     1
//! result        up{instance="a", job="x", zone="z"}              the base's value
//! ```
//!
//! An info series describes all series with equal identifying labels. The steps are processed in
//! order, and each uses the newest info sample, so one base series may result in several series.
//! Follows `promql/info.go` of Prometheus.

mod selection;

use crate::eval::account::{QueryAccount, grow};
use crate::eval::operators::stream::same_labelset_error;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::row::{HistogramPoint, StepRowBuffer, is_absent};
use crate::eval::rows::row_labels::{ALLOCATION_BYTES, RowLabels};
use crate::eval::run::EvalContext;
use crate::eval::tally::WindowExtent;
use crate::grid::StepGrid;
use crate::plan::PlanNode;
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use rustc_hash::FxHashMap;
use selection::{InfoMatchers, InfoSeries, is_never_seen};

/// The labels that identify the target of a series.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// Memory of an info series during the join in bytes, in addition to its identity: its name, the
/// indexes of its name and identity, and the newest series at a step, in maps with capacity for
/// twice as many.
const INFO_BYTES: usize = 2 * size_of::<([Vec<u8>; 2], &[u8], [(u32, u32); 2], [u32; 2])>();

/// Memory of a row in bytes, in addition to its labels and values: its index and its labels in the
/// result, in lists and maps with capacity for twice as many.
const ROW_BYTES: usize =
    2 * size_of::<(Labels, StepRowBuffer, Labels, usize, RowLabels)>() + ALLOCATION_BYTES;

/// Memory of a base series during the join in bytes: whether it is ignored, the index of its
/// identity, its previous result, and its index in the list of series with a value.
const BASE_BYTES: usize = size_of::<(bool, Option<u32>, ReusableInfoResult, usize)>();

/// Evaluates a call of `info`. `base` is the value of the first argument.
pub(crate) fn evaluate_info(
    run: &mut EvalContext<'_>,
    node: &PlanNode,
    args: &[PlanNode],
    mut base: SeriesFrame,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    let account = run.account;
    if base.has_mixed_steps() {
        base = base.keep_one_kind();
        if let Some(tally) = run.tally {
            let (rows, _) = tally.node_tallies(&args[0], grid.count, account)?;
            rows.recount((0..base.len()).map(|series| base.row(series)));
        }
    }
    let mut memory = account.reserve(base.len() * BASE_BYTES)?;
    // The label sets are needed at every step.
    base.row_labels_mut(account, &mut memory)?;
    let wanted = InfoMatchers::from_selector(args.get(1));
    let mut ignored = Vec::with_capacity(base.len());
    for series in 0..base.len() {
        account.check()?;
        ignored.push(wanted.names_match(base.labels(series).get(METRIC_NAME)));
    }
    let arg = &args[0];
    let infos = selection::select(run, arg, &base, &ignored, &wanted, grid, &mut memory)?;
    if let Some(tally) = run.tally {
        let (_, windows) = tally.node_tallies(node, grid.count, account)?;
        windows.add(0, count_info_series(&infos, grid.count));
    }
    let mut join = InfoJoin::new(&base, ignored, infos, wanted, account)?;
    for step in 0..grid.count {
        account.check()?;
        join.join_step(step)?;
        account.check_samples(join.samples)?;
    }
    join.into_frame(grid.count)
}

/// Returns the number of info series with a sample at each step, in the form of windows with one
/// sample.
fn count_info_series(infos: &[InfoSeries], steps: usize) -> WindowExtent {
    let seen = |step: usize| {
        infos
            .iter()
            .filter(|info| !is_never_seen(info.times[step]))
            .count() as u64
    };
    let held: Vec<u64> = (0..steps).map(seen).collect();
    WindowExtent {
        fresh: held.clone(),
        held,
        ..WindowExtent::default()
    }
}

/// Returns the values of the identifying labels of a series.
fn identity(labels: &Labels) -> [Vec<u8>; 2] {
    IDENTIFYING.map(|name| labels.get(name).to_vec())
}

/// The result of a base series at the previous step, for reuse as long as its info series are the
/// same.
#[derive(Clone, Debug, Default)]
struct ReusableInfoResult {
    /// The info series by index of the metric name.
    partners: Vec<Option<u32>>,
    /// The index of the row in the result, or `None` if the series is dropped.
    row: Option<usize>,
    is_known: bool,
}

/// The state of the join between base and info series.
struct InfoJoin<'a> {
    base: &'a SeriesFrame,
    ignored: Vec<bool>,
    infos: Vec<InfoSeries>,
    wanted: InfoMatchers,
    /// The index of each base series' identity, if an info series has the same identity.
    identities: Vec<Option<u32>>,
    /// The indexes of each info series' name and identity.
    keys: Vec<(u32, u32)>,
    name_count: usize,
    reuse: Vec<ReusableInfoResult>,
    rows: Vec<(Labels, StepRowBuffer)>,
    row_of: FxHashMap<Labels, usize>,
    samples: u64,
    account: &'a QueryAccount<'a>,
    /// The reservation for names, identities and partners, which are freed before the result is
    /// built.
    memory: Reservation,
    /// The reservation for the rows of the result, which is passed to the frame.
    rows_memory: Reservation,
}

impl<'a> InfoJoin<'a> {
    fn new(
        base: &'a SeriesFrame,
        ignored: Vec<bool>,
        infos: Vec<InfoSeries>,
        wanted: InfoMatchers,
        account: &'a QueryAccount<'a>,
    ) -> Result<Self, PromqlError> {
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
            reuse: vec![ReusableInfoResult::default(); base.len()],
            rows: Vec::new(),
            row_of: FxHashMap::default(),
            samples: 0,
            account,
            memory,
            rows_memory: account.reserve(0)?,
            infos,
        })
    }

    /// Joins the base series that have a value at a step.
    fn join_step(&mut self, step: usize) -> Result<(), PromqlError> {
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
        let newest = self.find_newest_infos(step)?;
        for series in present {
            self.account.check()?;
            let row = if self.ignored[series] {
                self.row_for(self.base.labels(series))?
            } else {
                match self.join_series(series, &newest)? {
                    Some(row) => row,
                    None => continue,
                }
            };
            self.put_value(series, step, row)?;
        }
        Ok(())
    }

    /// Returns the info series with the newest sample at a step, by name and identity. Fails if two
    /// series have samples with the same timestamp.
    fn find_newest_infos(&self, step: usize) -> Result<FxHashMap<(u32, u32), u32>, PromqlError> {
        let mut newest: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for (at, info) in self.infos.iter().enumerate() {
            self.account.check()?;
            let time = info.times[step];
            if is_never_seen(time) {
                continue;
            }
            let known = newest.entry(self.keys[at]).or_insert(at as u32);
            let other = &self.infos[*known as usize];
            let other_time = other.times[step];
            if other_time < time {
                *known = at as u32;
            } else if other_time == time && *known != at as u32 {
                return Err(PromqlError::Execution(format!(
                    "found duplicate series for info metric: existing {} @ {other_time}, \
                     new {} @ {time}",
                    other.labels, info.labels
                )));
            }
        }
        Ok(newest)
    }

    /// Returns the row to which a base series contributes, or `None` if it has no info series but
    /// requires one.
    fn join_series(
        &mut self,
        series: usize,
        newest: &FxHashMap<(u32, u32), u32>,
    ) -> Result<Option<usize>, PromqlError> {
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
        self.reuse[series] = ReusableInfoResult {
            partners,
            row,
            is_known: true,
        };
        Ok(row)
    }

    /// Returns the labels of a base series together with those of its info series.
    fn labels(
        &self,
        series: usize,
        partners: &[Option<u32>],
    ) -> Result<Option<Labels>, PromqlError> {
        let base = &self.base.labels(series);
        if partners.iter().all(Option::is_none) && !self.wanted.data_may_be_empty() {
            return Ok(None);
        }
        let mut added = LabelsBuilder::default();
        for partner in partners.iter().flatten() {
            for (name, value) in self.infos[*partner as usize].labels.iter() {
                if name == METRIC_NAME || !self.wanted.takes_label(name) {
                    continue;
                }
                let known = added.get(name);
                if !known.is_empty() && known != value {
                    return Err(PromqlError::Execution(format!("conflicting label: {name}")));
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

    fn row_for(&mut self, labels: Labels) -> Result<usize, PromqlError> {
        if let Some(known) = self.row_of.get(&labels) {
            return Ok(*known);
        }
        // The row and its copy in the result, with capacity for twice as many.
        let steps = self.base.steps();
        let row_bytes = 3 * steps * size_of::<f64>() + ROW_BYTES;
        grow(&mut self.rows_memory, row_bytes + labels.as_bytes().len())?;
        let mut row = StepRowBuffer::default();
        row.reset(steps);
        self.row_of.insert(labels.clone(), self.rows.len());
        self.rows.push((labels, row));
        Ok(self.rows.len() - 1)
    }

    /// Copies the value of a base series at a step to a row. Fails if the row already has a value.
    fn put_value(&mut self, series: usize, step: usize, row: usize) -> Result<(), PromqlError> {
        let from = self.base.row(series);
        let into = &mut self.rows[row].1;
        let is_taken = !is_absent(into.values[step])
            || into
                .histograms
                .last()
                .is_some_and(|(s, _)| *s as usize == step);
        if is_taken {
            return Err(same_labelset_error());
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

    /// Returns the rows as a frame. As in Prometheus, metric names are kept even if their removal
    /// was delayed.
    fn into_frame(self, steps: usize) -> Result<SeriesFrame, PromqlError> {
        let mut frame = SeriesFrame::new(steps);
        frame.hold_reservation(self.rows_memory);
        drop(self.memory);
        for (labels, row) in self.rows {
            self.account.check()?;
            frame.push(RowLabels::from_labels(labels), row.row());
        }
        Ok(frame)
    }
}
