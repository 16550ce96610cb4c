//! One merge: reads all inputs in parallel, series by series in block order, and writes one block,
//! or several consecutive shards if one would be too large.

use crate::block::{
    Block, BlockColumnReader, BlockId, BlockMeta, BlockSpec, BlockWriter, LabelsReader,
    MetricMetadataSet, compare_block_order, remove_folder,
};
use crate::blocks::plan::MergePlan;
use crate::blocks::{BlockEntry, BlockKind, Blocks};
use crate::chunk::DuplicatePolicy;
use crate::chunk::SampleColumns;
use crate::error::StorageError;
use crate::parts::options::{BlockSizeLimit, StoreOptions};
use crate::parts::retention_rules::RetentionCutoffs;
use crate::tombstones::{DeletedRuns, hide_deleted};
use firn_model::env::Env;
use firn_model::exemplar::SeriesExemplars;
use firn_model::labels::LabelsRef;
use firn_model::sample::TimeRange;
use std::cmp::Ordering;
use std::path::PathBuf;
use std::sync::Arc;

/// Number of series whose labels are read together.
const LABELS_AHEAD: u32 = 512;

/// Memory of the unit cache shared by all inputs of a merge, in bytes; enough for a few units of
/// each.
const CACHE_BYTES: usize = 32 << 20;

/// The error that ended a merge. `input` is the block that could not be read, if any, with its time
/// range.
pub(super) struct MergeFailure {
    pub(super) error: StorageError,
    pub(super) input: Option<(BlockId, TimeRange)>,
}

/// An input block. The series before `next` are merged.
struct MergeInput {
    entry: BlockEntry,
    block: Arc<Block>,
    next: u32,
    labels: LabelsReader,
    /// Labels of the following series, read in advance. `peek_labels` returns the first.
    ahead: LabelsReadAhead,
    /// The tombstones at the start of the merge.
    deleted: Option<Arc<DeletedRuns>>,
}

/// A complete merge, whose blocks are synced.
pub(super) struct MergeResult {
    pub(super) plan: MergePlan,
    /// The output blocks; none if no sample is kept.
    pub(super) metas: Vec<BlockMeta>,
    /// The tombstones that were applied to each input.
    pub(super) deleted: Vec<(BlockId, Option<Arc<DeletedRuns>>)>,
}

/// Labels of consecutive series, the first `taken` of which are consumed.
#[derive(Default)]
struct LabelsReadAhead {
    bytes: Vec<u8>,
    /// End of the labels of each series in `bytes`.
    ends: Vec<usize>,
    taken: usize,
}

impl LabelsReadAhead {
    fn push(&mut self, labels: LabelsRef<'_>) {
        self.bytes.extend_from_slice(labels.as_bytes());
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
    }

    /// Returns the labels of the next series.
    fn peek_labels(&self) -> Option<LabelsRef<'_>> {
        let end = *self.ends.get(self.taken)?;
        let before = self.taken.checked_sub(1);
        let start = before.map_or(0, |before| self.ends[before]);
        Some(LabelsRef::from_canonical(&self.bytes[start..end]))
    }
}

/// A merge in progress. Created by [`MergeJob::new`], advanced in shares, and ended by `finish` or
/// `abandon`.
pub(super) struct MergeJob {
    env: Env,
    /// Folder that contains the blocks.
    dir: PathBuf,
    merge: MergePlan,
    inputs: Vec<MergeInput>,
    /// The current output block, and the complete shards before it.
    writer: BlockWriter,
    written: Vec<BlockMeta>,
    source: BlockSpec,
    block_max: BlockSizeLimit,
    duplicates: DuplicatePolicy,
    /// The first time that is kept for each series, at the start of the merge; `None` if all
    /// samples of the inputs are kept.
    cutoffs: Option<RetentionCutoffs>,
    columns: SampleColumns,
    exemplars: SeriesExemplars,
    /// The metric metadata of all inputs.
    metadata: MetricMetadataSet,
    /// Labels of the series to merge next: the first in block order.
    next_labels: Vec<u8>,
    /// Indexes of the inputs that contain this series.
    next_inputs: Vec<usize>,
    /// Number of samples of all inputs.
    pub(super) samples_in: u64,
    /// Number of samples read so far.
    pub(super) samples_done: u64,
    /// Number of series without a sample that is kept.
    omitted_series: u64,
}

impl MergeInput {
    /// Reads the labels of the next series ahead, if there is a next series.
    fn read_labels(&mut self) -> Result<(), StorageError> {
        if self.ahead.peek_labels().is_some() {
            return Ok(());
        }
        self.ahead.clear();
        let (ahead, first) = (&mut self.ahead, self.next);
        let end = self.block.series_count().min(first + LABELS_AHEAD);
        let mut push = |_, labels: LabelsRef<'_>| ahead.push(labels);
        self.labels.read(&self.block, first..end, &mut push)
    }
}

impl MergeJob {
    /// Starts `merge`: opens its inputs and creates the output block.
    pub(super) fn new(
        env: &Env,
        blocks: &Blocks,
        merge: MergePlan,
        options: &StoreOptions,
        cutoffs: Option<RetentionCutoffs>,
    ) -> Result<Self, MergeFailure> {
        // A separate cache, so that the merge does not displace the units that queries use.
        let cache = blocks.new_separate_cache(CACHE_BYTES);
        let tombstones = blocks.view().tombstones.clone();
        let mut inputs = Vec::with_capacity(merge.inputs.len());
        for entry in &merge.inputs {
            let opened = Block::open(env, &blocks.block_dir(entry.id), &cache);
            let block = opened.map_err(|error| MergeFailure::from_input(entry, error))?;
            inputs.push(MergeInput {
                entry: entry.clone(),
                block: Arc::new(block),
                next: 0,
                labels: LabelsReader::for_whole_block(),
                ahead: LabelsReadAhead::default(),
                deleted: tombstones.of_block(entry.id).cloned(),
            });
        }
        let mut metadata = MetricMetadataSet::default();
        for MergeInput { entry, block, .. } in &inputs {
            let read = block.read_metadata(None, &mut metadata);
            read.map_err(|error| MergeFailure::from_input(entry, error))?;
        }
        let mut sources: Vec<_> = inputs
            .iter()
            .flat_map(|input| input.block.meta().sources.iter().copied())
            .collect();
        sources.sort_unstable();
        sources.dedup();
        let source = BlockSpec {
            id: merge.output_id(0),
            is_late: merge.kind == BlockKind::Late,
            level: merge.level,
            sources,
            range: Some(merge.range),
        };
        // An earlier attempt whose commit failed may have left folders with these ids.
        let created = blocks
            .prepare_block_dir(source.id)
            .and_then(|dir| BlockWriter::create(env, &dir, source.clone()));
        let mut writer = created.map_err(|error| MergeFailure { error, input: None })?;
        writer.expect_exemplars(count_exemplars(&inputs));
        Ok(Self {
            env: env.clone(),
            dir: blocks.dir().to_path_buf(),
            samples_in: merge.inputs.iter().map(|block| block.samples).sum(),
            samples_done: 0,
            omitted_series: 0,
            cutoffs: cutoffs.filter(|cutoffs| merge.range.min < cutoffs.latest()),
            merge,
            inputs,
            writer,
            written: Vec::new(),
            source,
            block_max: options.block_max,
            duplicates: options.duplicates,
            columns: SampleColumns::default(),
            exemplars: SeriesExemplars::default(),
            metadata,
            next_labels: Vec::new(),
            next_inputs: Vec::new(),
        })
    }
}

impl MergeJob {
    /// Returns the number of series of all inputs; a series in several inputs is counted for each.
    pub(super) fn total_series(&self) -> u64 {
        let inputs = self.inputs.iter();
        inputs.map(|i| u64::from(i.block.series_count())).sum()
    }

    /// Returns the number of series merged so far, counted like [`MergeJob::total_series`].
    pub(super) fn merged_series(&self) -> u64 {
        self.inputs.iter().map(|input| u64::from(input.next)).sum()
    }

    /// Returns the bytes of all output blocks so far.
    pub(super) fn written_bytes(&self) -> u64 {
        let written: u64 = self.written.iter().map(BlockMeta::file_bytes).sum();
        written + self.writer.written_bytes()
    }

    /// Merges series until `samples` more samples were read. Returns true if the merge is complete.
    pub(super) fn advance(&mut self, samples: u64) -> Result<bool, MergeFailure> {
        let enough = self.samples_done.saturating_add(samples);
        let blocks: Vec<Arc<Block>> = self.inputs.iter().map(|i| i.block.clone()).collect();
        let mut readers: Vec<BlockColumnReader<'_>> =
            blocks.iter().map(|block| block.reader()).collect();
        while self.samples_done < enough {
            self.find_next_series()?;
            if self.next_inputs.is_empty() {
                return Ok(true);
            }
            self.merge_series(&mut readers)?;
        }
        Ok(false)
    }

    /// Finds the first labels in block order among the next series of all inputs, and the inputs
    /// that have them. `having` is empty at the end.
    fn find_next_series(&mut self) -> Result<(), MergeFailure> {
        let (least, having) = (&mut self.next_labels, &mut self.next_inputs);
        having.clear();
        for (at, input) in self.inputs.iter_mut().enumerate() {
            if let Err(error) = input.read_labels() {
                return Err(MergeFailure::from_input(&input.entry, error));
            }
            let Some(next) = input.ahead.peek_labels() else {
                continue;
            };
            let order = if having.is_empty() {
                Ordering::Less
            } else if next.as_bytes() == least.as_slice() {
                // Usually all inputs have the same next series.
                Ordering::Equal
            } else {
                compare_block_order(next, LabelsRef::from_canonical(least))
            };
            if order == Ordering::Greater {
                continue;
            }
            if order == Ordering::Less {
                having.clear();
                least.clear();
                least.extend_from_slice(next.as_bytes());
            }
            having.push(at);
        }
        Ok(())
    }

    /// Merges the next series of the inputs in `having`.
    fn merge_series(&mut self, readers: &mut [BlockColumnReader<'_>]) -> Result<(), MergeFailure> {
        let columns = &mut self.columns;
        columns.clear();
        let mut has_deleted = false;
        for at in &self.next_inputs {
            let (input, reader) = (&mut self.inputs[*at], &mut readers[*at]);
            let before = columns.times.len();
            let read = reader.read(input.next, TimeRange::ALL, columns);
            read.map_err(|error| MergeFailure::from_input(&input.entry, error))?;
            self.samples_done += (columns.times.len() - before) as u64;
            if let Some(deleted) = &input.deleted {
                let times = deleted.find(u64::from(input.next));
                hide_deleted(columns, before, times);
                has_deleted |= !times.is_empty();
            }
            match input.entry.kind {
                BlockKind::Main => columns.merge_from(before),
                BlockKind::Late => columns.merge_late(before, self.duplicates),
            }
            let exemplars = &mut self.exemplars;
            let taken = input.block.read_exemplars(&[input.next], |_, exemplar| {
                exemplars.push(0, exemplar);
                Ok(())
            });
            taken.map_err(|error| MergeFailure::from_input(&input.entry, error))?;
            input.ahead.taken += 1;
            input.next += 1;
        }
        if has_deleted {
            columns.forget_reset_hints();
        }
        if let Some(cutoffs) = &self.cutoffs {
            let cutoff = cutoffs.of_series(LabelsRef::from_canonical(&self.next_labels));
            columns.remove_from(0, |time| time < cutoff);
        }
        if columns.times.is_empty() {
            self.exemplars.clear();
            self.omitted_series += 1;
            return Ok(());
        }
        self.write_series()
            .map_err(|error| MergeFailure { error, input: None })
    }

    /// Writes the merged series to the output block.
    fn write_series(&mut self) -> Result<(), StorageError> {
        let is_full = self.writer.series_count() >= self.block_max.series
            || self.writer.written_bytes() >= self.block_max.bytes;
        if is_full && self.writer.series_count() > 0 {
            self.begin_shard()?;
        }
        let labels = LabelsRef::from_canonical(&self.next_labels);
        self.writer.push(labels, &self.columns)?;
        let exemplars = self.exemplars.iter().map(|(_, exemplar)| exemplar);
        self.writer.push_exemplars(exemplars)?;
        self.exemplars.clear();
        Ok(())
    }

    /// Ends the current output block as a shard, and starts the next one.
    fn begin_shard(&mut self) -> Result<(), StorageError> {
        let number = self.written.len() as u32;
        let source = BlockSpec {
            id: self.merge.output_id(number + 1),
            ..self.source.clone()
        };
        let dir = self.dir.join(source.id.to_string());
        let mut next = BlockWriter::create(&self.env, &dir, source)?;
        next.expect_exemplars(count_exemplars(&self.inputs));
        let mut full = std::mem::replace(&mut self.writer, next);
        full.push_metadata(&self.metadata)?;
        let set = self.source.id;
        self.written.push(full.finish_shard(set, number, false)?);
        Ok(())
    }

    /// Ends the merge.
    pub(super) fn finish(mut self) -> Result<MergeResult, StorageError> {
        let number = self.written.len() as u32;
        if self.writer.series_count() == 0 {
            self.writer.abandon()?;
        } else {
            self.writer.push_metadata(&self.metadata)?;
            self.written.push(match number {
                0 => self.writer.finish()?,
                _ => self.writer.finish_shard(self.source.id, number, true)?,
            });
        }
        assert_complete(
            &self.inputs,
            &self.written,
            self.samples_done,
            self.omitted_series,
        );
        let deleted = self.inputs.into_iter();
        Ok(MergeResult {
            plan: self.merge,
            metas: self.written,
            deleted: deleted
                .map(|input| (input.entry.id, input.deleted))
                .collect(),
        })
    }

    /// Removes all output blocks after a failure, so that only the input blocks remain.
    pub(super) fn abandon(self) {
        let _ = self.writer.abandon();
        for shard in self.written {
            let _ = remove_folder(&self.env, &self.dir.join(shard.id.to_string()));
        }
    }
}

/// Panics if a series of an input, except for the `omitted` ones, is missing in the output, or if
/// the output has more samples than the merge read. The commit deletes the inputs, so an error here
/// would lose data.
fn assert_complete(inputs: &[MergeInput], written: &[BlockMeta], read: u64, omitted: u64) {
    let (mut most, mut all) = (0, 0);
    for input in inputs {
        let count = input.block.series_count();
        assert_eq!(input.next, count, "merged series of {}", input.entry.id);
        most = most.max(u64::from(count));
        all += u64::from(count);
    }
    let series: u64 = written.iter().map(|meta| u64::from(meta.series)).sum();
    let series = series + omitted;
    assert!(
        (most..=all).contains(&series),
        "{series} series of {all}, {most} of them in one input"
    );
    let samples: u64 = written.iter().map(|meta| meta.samples).sum();
    assert!(samples <= read, "{samples} samples of {read}");
}

fn count_exemplars(inputs: &[MergeInput]) -> u64 {
    let counts = inputs.iter().map(|input| input.block.exemplar_count());
    counts.sum()
}

impl MergeFailure {
    fn from_input(entry: &BlockEntry, error: StorageError) -> Self {
        Self {
            error,
            input: Some((entry.id, entry.range)),
        }
    }
}
