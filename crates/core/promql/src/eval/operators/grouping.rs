//! Assigns the series of an aggregation to groups.
//!
//! `by` reads only the columns of the grouping labels, encoded as numbers, and creates one
//! label set per group. `without` needs the complete label sets of all series.

use crate::ast::AggregateGrouping;
use crate::eval::account::{QueryAccount, grow};
use crate::eval::operators::stream::SeriesStream;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::label_sets::{ByteStringNumbers, retain_labels_into};
use crate::eval::rows::parts::{SERIES_PER_PART, run_in_parts};
use crate::eval::run::EvalContext;
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::columns::LabelColumn;
use firn_model::labels::{Labels, LabelsRef, METRIC_NAME};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// Memory of a group in bytes, in addition to its labels, in lists with capacity for twice as many.
const GROUP_BYTES: usize = 2 * size_of::<Labels>() + 32;

/// Memory of a map entry from a pair of numbers to a number, in a map with capacity for twice as
/// many.
const REFINED_BYTES: usize = 32;

/// The groups of the series in a stream, which aggregations fold into.
pub(crate) struct SeriesGroups {
    /// The index of the group of each series, in the order of the stream.
    pub(crate) of_series: Vec<u32>,
    /// The labels of each group, which are those of the result.
    pub(crate) labels: Vec<Labels>,
    /// The reservation for the memory of both lists, held as long as the groups exist.
    _memory: Reservation,
}

impl SeriesGroups {
    /// Assigns the series of `stream` to groups. Groups are numbered in order of their first
    /// series.
    pub(crate) fn from_stream(
        stream: &SeriesStream,
        grouping: &AggregateGrouping,
        run: &EvalContext<'_>,
    ) -> Result<Self, PromqlError> {
        let groups = match grouping {
            AggregateGrouping::By(names) => Self::group_by(stream, names, run.account),
            AggregateGrouping::Without(names) => Self::group_without(stream, names, run),
        }?;
        let (of_series, series) = (groups.of_series.len(), stream.len());
        assert_eq!(of_series, series, "series with a group, and series");
        let (count, last) = (groups.len(), groups.of_series.iter().max());
        debug_assert!(
            last.is_none_or(|last| (*last as usize) < count),
            "group {last:?} of {count}"
        );
        Ok(groups)
    }

    /// Assigns the series of a frame to groups, like [`SeriesGroups::from_stream`].
    pub(crate) fn from_frame(
        frame: &Arc<SeriesFrame>,
        grouping: &AggregateGrouping,
        run: &EvalContext<'_>,
    ) -> Result<Self, PromqlError> {
        Self::from_stream(&frame.clone().into(), grouping, run)
    }

    /// Returns the number of groups, which is zero if there are no series.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns the maximum size of the result of [`SeriesGroups::members`] in bytes. Its lists may
    /// have capacity for twice as many.
    pub(crate) fn members_bytes(&self) -> usize {
        self.len() * size_of::<Vec<u32>>() + 2 * size_of_val(&self.of_series[..])
    }

    /// Returns the series of each group in ascending order. Allocates; see
    /// [`SeriesGroups::members_bytes`].
    pub(crate) fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.len()];
        for (series, group) in self.of_series.iter().enumerate() {
            members[*group as usize].push(series as u32);
        }
        members
    }

    fn group_by(
        stream: &SeriesStream,
        names: &[String],
        account: &QueryAccount<'_>,
    ) -> Result<Self, PromqlError> {
        let ids_bytes = stream.len() * size_of::<u32>();
        let mut memory = account.reserve(ids_bytes)?;
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            account.check()?;
            columns.push((name, stream.label_column(name, account)?));
        }
        let mut of_series = vec![0u32; stream.len()];
        let mut count = usize::from(stream.len() > 0);
        for (_, (column, _)) in columns.iter().filter(|(_, (c, _))| c.values.len() > 1) {
            account.check()?;
            let pairs = stream.len().min(count.saturating_mul(column.values.len()));
            let _known = account.reserve(pairs * REFINED_BYTES)?;
            count = refine(&mut of_series, &column.ids, account)?;
        }
        let _first = account.reserve(count * size_of::<usize>())?;
        grow(&mut memory, count * GROUP_BYTES)?;
        let mut first = vec![usize::MAX; count];
        for (series, group) in of_series.iter().enumerate() {
            let first = &mut first[*group as usize];
            *first = (*first).min(series);
        }
        let mut labels = Vec::with_capacity(count);
        for series in first {
            account.check()?;
            let value = |column: &LabelColumn| {
                let id = column.ids.get(series).copied().unwrap_or(0);
                column.values.get(id as usize).cloned().unwrap_or_default()
            };
            let pairs = columns
                .iter()
                .map(|(name, (column, _))| (*name, value(column)));
            let of_group = Labels::from_pairs(pairs);
            grow(&mut memory, of_group.as_bytes().len())?;
            labels.push(of_group);
        }
        Ok(Self {
            of_series,
            labels,
            _memory: memory,
        })
    }

    /// Groups series by all labels except `names`. Parts of the series are grouped in parallel;
    /// then the groups of all parts are numbered.
    fn group_without(
        stream: &SeriesStream,
        names: &[String],
        run: &EvalContext<'_>,
    ) -> Result<Self, PromqlError> {
        let account = run.account;
        let keeps = |name: &str| name != METRIC_NAME && !names.iter().any(|n| n == name);
        let task = |part: Range<usize>| {
            let mut memory = account.reserve(part.len() * size_of::<u32>())?;
            let mut known = ByteStringNumbers::default();
            let (mut ids, mut labels) = (Vec::with_capacity(part.len()), Vec::new());
            let mut rest = Vec::new();
            for series in part {
                account.check()?;
                retain_labels_into(stream.labels(series).as_ref(), keeps, &mut rest);
                let (id, is_new) = known.intern(&rest);
                ids.push(id);
                if is_new {
                    grow(
                        &mut memory,
                        GROUP_BYTES + ByteStringNumbers::entry_bytes(&rest),
                    )?;
                    labels.push(LabelsRef::from_canonical(&rest).to_owned());
                }
            }
            Ok((ids, labels, memory))
        };
        let mut memory = account.reserve(stream.len() * size_of::<u32>())?;
        let mut known = ByteStringNumbers::default();
        let mut of_series = Vec::with_capacity(stream.len());
        let mut labels = Vec::new();
        let merge = |(ids, part_labels, _of_part): (Vec<u32>, Vec<Labels>, Reservation)| {
            let mut numbers = Vec::with_capacity(part_labels.len());
            for part_label in part_labels {
                let bytes = part_label.as_bytes();
                let (id, is_new) = known.intern(bytes);
                if is_new {
                    let label_bytes = GROUP_BYTES + bytes.len();
                    grow(
                        &mut memory,
                        label_bytes + ByteStringNumbers::entry_bytes(bytes),
                    )?;
                    labels.push(part_label);
                }
                numbers.push(id);
            }
            of_series.extend(ids.into_iter().map(|id| numbers[id as usize]));
            Ok(())
        };
        run_in_parts(run.ctx.compute, stream.len(), SERIES_PER_PART, task, merge)?;
        Ok(Self {
            of_series,
            labels,
            _memory: memory,
        })
    }
}

/// Splits groups by the values of one more label. Returns the new number of groups.
fn refine(
    of_series: &mut [u32],
    ids: &[u32],
    account: &QueryAccount<'_>,
) -> Result<usize, PromqlError> {
    let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut before = None;
    for (group, id) in of_series.iter_mut().zip(ids) {
        account.check()?;
        let key = (*group, *id);
        // Neighbouring series often belong to the same group.
        *group = match before {
            Some((same, number)) if same == key => number,
            _ => {
                let next = known.len() as u32;
                *known.entry(key).or_insert(next)
            }
        };
        before = Some((key, *group));
    }
    Ok(known.len())
}
