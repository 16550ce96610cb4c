//! Several selections as one: the series of a selection follow those of the previous one.
//!
//! The caller guarantees that no two selections have a series in common, so nothing is merged.
//! Partitions of a cluster and series with different retentions are read this way.

use crate::budget::Reservation;
use crate::cancel::CancelToken;
use crate::columns::{COLUMN_VALUE_BYTES, LabelColumn, SeriesBatch};
use crate::error::Error;
use crate::labels::Labels;
use crate::losses::DataLossWarnings;
use crate::store::{ReadCosts, Selection};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Memory of a value in the dictionary of a column while columns are joined, in bytes.
const JOINED_VALUE_BYTES: usize = 2 * size_of::<(Arc<[u8]>, u32)>();

/// Several selections, one after another.
pub struct ConcatenatedSelection {
    /// The selections with series.
    parts: Vec<Arc<dyn Selection>>,
    /// The number of series before each part, and their total number.
    starts: Vec<usize>,
    losses: DataLossWarnings,
}

impl ConcatenatedSelection {
    /// Concatenates `parts`.
    pub fn new(parts: Vec<Arc<dyn Selection>>) -> Self {
        Self::with_losses(parts, DataLossWarnings::default())
    }

    /// Concatenates `parts`. The texts of `others` follow those of the parts.
    pub fn with_losses(mut parts: Vec<Arc<dyn Selection>>, others: DataLossWarnings) -> Self {
        let mut losses: Vec<_> = parts.iter().map(|part| part.loss_warnings()).collect();
        losses.push(others);
        parts.retain(|part| !part.is_empty());
        let mut starts = vec![0];
        let mut end = 0;
        for part in &parts {
            end += part.len();
            starts.push(end);
        }
        Self {
            parts,
            starts,
            losses: DataLossWarnings::join(losses),
        }
    }

    /// Returns the number of the part that contains a series.
    fn part_of(&self, series: usize) -> usize {
        self.starts.partition_point(|start| *start <= series) - 1
    }
}

impl Selection for ConcatenatedSelection {
    fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    fn labels(&self, series: usize) -> Labels {
        let part = self.part_of(series);
        self.parts[part].labels(series - self.starts[part])
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        let mut parts = self.parts.iter();
        let Some(first) = parts.next() else {
            return Ok(LabelColumn::default());
        };
        let mut joining = ColumnJoin::new(first.label_column(name, cancel, memory)?, memory)?;
        for part in parts {
            cancel.check()?;
            let before = memory.bytes();
            let column = part.label_column(name, cancel, memory)?;
            let column_bytes = memory.bytes() - before;
            joining.add(column, memory)?;
            memory.shrink_to(memory.bytes() - column_bytes);
        }
        Ok(joining.finish(memory))
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        let mut next = series.start;
        while next < series.end {
            let part = self.part_of(next);
            let (start, part_end) = (self.starts[part], self.starts[part + 1]);
            let end = series.end.min(part_end);
            self.parts[part].read(next - start..end - start, into)?;
            next = end;
        }
        Ok(())
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.losses.clone()
    }

    fn read_costs(&self) -> ReadCosts {
        let parts = self.parts.iter().map(|part| part.read_costs());
        parts.fold(ReadCosts::default(), |all, one| all + one)
    }
}

/// A column that is being joined from those of several parts.
struct ColumnJoin {
    column: LabelColumn,
    ids: HashMap<Arc<[u8]>, u32>,
    /// Memory of `ids` that is reserved, in bytes.
    ids_bytes: usize,
}

impl ColumnJoin {
    fn new(column: LabelColumn, memory: &mut Reservation) -> Result<Self, Error> {
        let ids_bytes = column.values.len() * JOINED_VALUE_BYTES;
        memory.grow(ids_bytes)?;
        let values = column.values.iter().cloned();
        Ok(Self {
            ids: values.zip(0..).collect(),
            ids_bytes,
            column,
        })
    }

    /// Adds the column of the next part. Reserves memory for its series and its new values.
    fn add(&mut self, part: LabelColumn, memory: &mut Reservation) -> Result<(), Error> {
        memory.grow(part.ids.len() * size_of::<u32>())?;
        let mut ids = Vec::with_capacity(part.values.len());
        for value in part.values {
            let known = self.ids.get(&value).copied();
            ids.push(match known {
                Some(id) => id,
                None => self.add_value(value, memory)?,
            });
        }
        let of_part = part.ids.into_iter().map(|id| ids[id as usize]);
        self.column.ids.extend(of_part);
        Ok(())
    }

    fn add_value(&mut self, value: Arc<[u8]>, memory: &mut Reservation) -> Result<u32, Error> {
        memory.grow(COLUMN_VALUE_BYTES + value.len() + JOINED_VALUE_BYTES)?;
        self.ids_bytes += JOINED_VALUE_BYTES;
        let id = self.column.values.len() as u32;
        self.column.values.push(value.clone());
        self.ids.insert(value, id);
        Ok(id)
    }

    /// Returns the column, and releases the memory that was needed to join it.
    fn finish(self, memory: &mut Reservation) -> LabelColumn {
        memory.shrink_to(memory.bytes() - self.ids_bytes);
        self.column
    }
}
