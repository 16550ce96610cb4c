//! Selects series in all partitions, and concatenates the selections.
//!
//! No two partitions have a series in common, so nothing is merged: the series of one partition
//! follow those of the previous one. Invariant: names, values, exemplars and metadata have the
//! order in which a single store returns them, and the limits of a request apply to all partitions
//! together.

use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn, SeriesBatch};
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::{MetadataBatch, MetricMetadata};
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{ExemplarRequest, MetadataRequest, Select, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Memory of a value in the dictionary of a column while columns are joined, in bytes.
const JOINED_VALUE_BYTES: usize = 2 * size_of::<(Arc<[u8]>, u32)>();

/// All partitions as one store that can be read. Partitions are read one after another; with one
/// partition, requests pass unchanged at no cost.
pub struct PartitionedSelect {
    partitions: Vec<Arc<dyn Select>>,
}

impl PartitionedSelect {
    /// Joins `partitions`, in the order of their numbers. Their series must be disjoint.
    pub fn new(partitions: Vec<Arc<dyn Select>>) -> Self {
        Self { partitions }
    }

    /// Selects series with `select` in all partitions.
    ///
    /// Once the limit on series is exceeded, the other partitions only count theirs, because the
    /// text of the error contains the number of all series.
    fn select_with(
        &self,
        request: SelectRequest<'_>,
        select: impl Fn(&dyn Select, SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error>,
    ) -> Result<Arc<dyn Selection>, Error> {
        if let [one] = &self.partitions[..] {
            return select(&**one, request);
        }
        let mut remaining = request.series.remaining();
        let mut found = 0;
        let mut parts = Vec::with_capacity(self.partitions.len());
        for partition in &self.partitions {
            request.cancel.check()?;
            let limit = SeriesLimit::new(remaining);
            let series = &limit;
            let selected = select(&**partition, SelectRequest { series, ..request });
            found += limit.found();
            match selected {
                Ok(part) => parts.push(part),
                Err(_) if limit.found() > remaining => parts.clear(),
                Err(e) => return Err(e),
            }
            remaining = limit.remaining();
        }
        request.series.add_series(found)?;
        Ok(Arc::new(ConcatenatedSelection::new(parts)))
    }

    /// Returns the items of all partitions, sorted and each once.
    fn collect_sorted<T: Ord>(
        &self,
        collect: impl Fn(&dyn Select) -> Result<Vec<T>, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for partition in &self.partitions {
            all.append(&mut collect(&**partition)?);
        }
        if self.partitions.len() > 1 {
            all.sort_unstable();
            all.dedup();
        }
        Ok(all)
    }

    fn collect_losses(
        &self,
        losses_of: impl Fn(&dyn Select) -> DataLossWarnings,
    ) -> DataLossWarnings {
        match &self.partitions[..] {
            [one] => losses_of(&**one),
            several => DataLossWarnings::join(several.iter().map(|p| losses_of(&**p)).collect()),
        }
    }
}

impl Select for PartitionedSelect {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_with(request, |partition, request| partition.select(request))
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_with(request, |partition, request| {
            partition.select_labels(request)
        })
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.collect_sorted(|partition| partition.label_names(request))
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.collect_sorted(|partition| partition.label_values(name, request))
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        let mut all = Vec::new();
        for partition in &self.partitions {
            all.append(&mut partition.exemplars(request)?);
        }
        if self.partitions.len() > 1 {
            all.sort_unstable_by(|a, b| a.series.cmp(&b.series));
        }
        Ok(all)
    }

    /// Returns the metadata of the first partition that has a metric. Partitions get their metadata
    /// from the same sources, and it contains no time by which the newest could be found.
    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        if let [one] = &self.partitions[..] {
            return one.metadata(request);
        }
        let partitions = self.partitions.iter();
        let batches: Result<Vec<MetadataBatch>, Error> =
            partitions.map(|p| p.metadata(request)).collect();
        Ok(join_metadata(&batches?))
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.collect_losses(|partition| partition.loss_warnings(tenant, range))
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.collect_losses(|partition| partition.label_loss_warnings(tenant, range))
    }
}

/// Joins metadata: of each metric that of the first batch that contains it, sorted by name.
pub fn join_metadata(batches: &[MetadataBatch]) -> MetadataBatch {
    let mut all: Vec<MetricMetadata<'_>> = batches.iter().flat_map(|b| b.iter()).collect();
    all.sort_by_key(|metadata| metadata.name);
    all.dedup_by_key(|metadata| metadata.name);
    let mut joined = MetadataBatch::default();
    all.into_iter().for_each(|metadata| joined.push(metadata));
    joined
}

/// The selections of several partitions, one after another.
pub(crate) struct ConcatenatedSelection {
    /// The selections with series.
    parts: Vec<Arc<dyn Selection>>,
    /// The number of series before each part, and their total number.
    starts: Vec<usize>,
    losses: DataLossWarnings,
}

impl ConcatenatedSelection {
    fn new(parts: Vec<Arc<dyn Selection>>) -> Self {
        Self::with_losses(parts, DataLossWarnings::default())
    }

    /// Concatenates `parts`. The texts of `others` follow those of the parts.
    pub(crate) fn with_losses(
        mut parts: Vec<Arc<dyn Selection>>,
        others: DataLossWarnings,
    ) -> Self {
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
