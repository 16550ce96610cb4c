//! Queries of exemplars by the labels of their series: from the ring in memory and from blocks.
//!
//! The ring identifies series by slots, so its exemplars are found while the index contains the
//! series. From the cut on, the blocks contain the exemplars too. The view of the blocks is taken
//! after the lookup in the index, so a series that leaves the index in between is in a block of the
//! view. Exemplars that are in both are returned once.

use super::StoreReader;
use super::union::report_block_loss;
use crate::block::Block;
use crate::blocks::OpenBlock;
use crate::error::StorageError;
use crate::ids::SeriesRef;
use crate::parts::retention_rules::RetentionCutoffs;
use firn_model::budget::Reservation;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::{ExemplarResult, SeriesExemplarResult, SeriesExemplars, TimedExemplar};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_model::store::ExemplarRequest;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Number of series between two checks of the cancel flag: about 100 us.
const CANCEL_EACH: usize = 256;

/// Memory of an exemplar without its labels, in bytes: the struct and an allocation, twice because
/// of the sort.
const EXEMPLAR_BYTES: usize = 2 * (size_of::<ExemplarResult>() + 32);

/// Exemplars found so far, by the labels of their series.
struct ExemplarCollector {
    series: BTreeMap<Labels, SeriesExemplars>,
    /// The first time that is kept for each series, if there are rules.
    cutoffs: Option<RetentionCutoffs>,
    memory: Reservation,
}

impl ExemplarCollector {
    fn add(&mut self, series: Labels, of_series: &SeriesExemplars) -> Result<(), Error> {
        let labels = of_series.iter().map(|(_, e)| e.labels.as_bytes().len());
        let bytes = labels
            .map(|bytes| EXEMPLAR_BYTES + 2 * bytes)
            .sum::<usize>();
        self.memory.grow(series.as_bytes().len() + bytes)?;
        let cutoff = match &self.cutoffs {
            Some(cutoffs) => cutoffs.of_series(series.as_ref()),
            None => i64::MIN,
        };
        let kept = of_series.iter().filter(|(_, e)| e.time >= cutoff);
        let mut kept = kept.peekable();
        if kept.peek().is_some() {
            let all = self.series.entry(series).or_default();
            kept.for_each(|(_, e)| all.push(0, e));
        }
        Ok(())
    }

    /// Returns the result: each exemplar once, in order.
    fn into_found(self) -> Vec<SeriesExemplarResult> {
        let series = self.series.into_iter();
        let found = series.map(|(series, all)| {
            let mut all: Vec<TimedExemplar<'_>> = all.iter().map(|(_, e)| e).collect();
            all.sort_by(TimedExemplar::compare);
            all.dedup_by(|a, b| a.compare(b) == Ordering::Equal);
            let exemplars = all.into_iter().map(|exemplar| ExemplarResult {
                labels: exemplar.labels.to_owned(),
                value: exemplar.value,
                time: exemplar.time,
            });
            SeriesExemplarResult {
                exemplars: exemplars.collect(),
                series,
            }
        });
        found.collect()
    }
}

impl StoreReader {
    /// Returns the exemplars of the series that any of the sets matches, in order of their labels.
    pub(crate) fn select_exemplars(
        &self,
        request: ExemplarRequest<'_>,
    ) -> Result<Vec<SeriesExemplarResult>, Error> {
        if *request.tenant != self.parts.options.tenant {
            return Ok(Vec::new());
        }
        let mut found = ExemplarCollector {
            series: BTreeMap::new(),
            cutoffs: self.parts.retention_policy().cutoffs(),
            memory: request.budget.create_reservation(),
        };
        self.collect_ring_exemplars(request, &mut found)?;
        let view = self.parts.blocks.view();
        for open in &view.blocks {
            if open.block.has_exemplars_in(request.range) {
                request.cancel.check()?;
                self.collect_block_exemplars(open, request, &mut found)?;
            }
        }
        Ok(found.into_found())
    }

    /// Adds the exemplars in the ring of all series that match.
    fn collect_ring_exemplars(
        &self,
        request: ExemplarRequest<'_>,
        found: &mut ExemplarCollector,
    ) -> Result<(), Error> {
        let _generation = self.parts.head.index.generation();
        let slots = self.parts.exemplars.slots();
        let mut matching = BTreeSet::new();
        for matchers in request.sets {
            let looked_up =
                self.parts
                    .head
                    .index
                    .lookup(matchers, TimeRange::ALL, request.cancel)?;
            let has_any = |series: &SeriesRef| {
                let slot = self.parts.head.numbers.slot(*series);
                slots.binary_search(&slot).is_ok()
            };
            matching.extend(looked_up.slots().filter(has_any));
        }
        let mut of_series = SeriesExemplars::default();
        for (i, series) in matching.into_iter().enumerate() {
            if i.is_multiple_of(CANCEL_EACH) {
                request.cancel.check()?;
            }
            of_series.clear();
            let slot = self.parts.head.numbers.slot(series);
            self.parts
                .exemplars
                .copy_series(slot, request.range, &mut of_series);
            if !of_series.is_empty() {
                found.add(
                    self.parts.head.index.dictionary.series_labels(series),
                    &of_series,
                )?;
            }
        }
        Ok(())
    }

    /// Adds the exemplars of a block. If the block is damaged, reports the damage, so that all
    /// queries of its range return a warning.
    fn collect_block_exemplars(
        &self,
        open: &OpenBlock,
        request: ExemplarRequest<'_>,
        found: &mut ExemplarCollector,
    ) -> Result<(), Error> {
        let mut memory = request.budget.create_reservation();
        let mut matching = Vec::new();
        for matchers in request.sets.iter().filter(|set| open.may_match(set)) {
            match open.block.lookup(matchers, request.cancel, &mut memory) {
                Ok(ordinals) => matching.extend(ordinals),
                Err(e) if e.kind == ErrorKind::Corrupt => {
                    self.report_lookup_loss(open, &e);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        matching.sort_unstable();
        matching.dedup();
        let mut of_series = SeriesExemplars::default();
        for (i, ordinal) in matching.into_iter().enumerate() {
            if i.is_multiple_of(CANCEL_EACH) {
                request.cancel.check()?;
            }
            of_series.clear();
            match read(&open.block, ordinal, request.range, &mut of_series) {
                Ok(Some(labels)) => found.add(labels, &of_series)?,
                Ok(None) => {}
                Err(e) => {
                    report_block_loss(&self.parts.damages, open, e)?;
                }
            }
        }
        Ok(())
    }
}

/// Reads the exemplars in `range` of a series of a block into `into`, and returns its labels if
/// there are any. A block contains at most some thousand exemplars per series.
fn read(
    block: &Block,
    ordinal: u32,
    range: TimeRange,
    into: &mut SeriesExemplars,
) -> Result<Option<Labels>, StorageError> {
    block.read_exemplars(&[ordinal], |_, exemplar| {
        if range.contains(exemplar.time) {
            into.push(0, exemplar);
        }
        Ok::<(), StorageError>(())
    })?;
    let mut labels = None;
    if !into.is_empty() {
        block.read_labels(&[ordinal], &mut |_, found| labels = Some(found.to_owned()))?;
    }
    Ok(labels)
}
