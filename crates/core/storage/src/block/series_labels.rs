//! Reads the label sets of series, decoding them unit by unit.

use super::reader::Block;
use super::series::{RUN_SERIES, SeriesUnit, UNIT_SERIES};
use crate::error::StorageError;
use firn_model::labels::LabelsRef;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// Memory for the label pairs of a lookup in bytes. Neighbouring series share most of their pairs.
const MEMORY_BYTES: usize = 1 << 20;

/// Memory for the label pairs of a reader of a whole block, in bytes. In block order, the targets
/// recur with each metric; this holds the pairs of about ten thousand targets with four labels
/// each.
const WHOLE_MEMORY_BYTES: usize = 4 << 20;

/// Reads the label sets of one block in ascending order of the ordinals, and caches the pairs that
/// series share across calls. A reader must not be used with a second block.
pub struct LabelsReader {
    run: SeriesLabelRun,
    pairs: LabelPairCache,
    /// Scratch buffer in which the label set of a series is assembled.
    labels: Vec<u8>,
}

/// A cache of encoded pairs of label name and value, keyed by term.
struct LabelPairCache {
    bytes: Vec<u8>,
    bytes_max: usize,
    places: FxHashMap<u32, Range<usize>>,
    /// Number of times that the cache was cleared.
    cleared: u64,
}

/// The decoded value numbers of a run of series, one column for each label of the unit.
#[derive(Default)]
struct SeriesLabelRun {
    /// Number of the run in the block.
    number: Option<usize>,
    unit: Option<(usize, Arc<SeriesUnit>)>,
    columns: Vec<SeriesLabelColumn>,
}

/// The column of one label in the current run.
#[derive(Default)]
struct SeriesLabelColumn {
    label: u32,
    /// One plus the value number of each series, or 0 for a series without the label.
    numbers: Vec<i64>,
    /// Number, cache generation and location of the last pair used. The next series often has the
    /// same pair.
    newest: (i64, u64, Range<usize>),
}

impl LabelsReader {
    /// Creates a reader for the series of one lookup.
    pub(super) fn for_lookup() -> Self {
        Self::with_memory(MEMORY_BYTES)
    }

    fn with_memory(bytes_max: usize) -> Self {
        Self {
            run: SeriesLabelRun::default(),
            pairs: LabelPairCache {
                bytes: Vec::new(),
                bytes_max,
                places: FxHashMap::default(),
                cleared: 0,
            },
            labels: Vec::new(),
        }
    }

    /// Creates a reader with enough memory to read all series of a block in order.
    pub fn for_whole_block() -> Self {
        Self::with_memory(WHOLE_MEMORY_BYTES)
    }

    /// Calls `each` with the index in `ordinals` and the label set of each of these series.
    /// `ordinals` must ascend.
    pub fn read(
        &mut self,
        block: &Block,
        ordinals: impl IntoIterator<Item = u32>,
        each: &mut dyn FnMut(usize, LabelsRef<'_>),
    ) -> Result<(), StorageError> {
        let Self { run, pairs, labels } = self;
        for (index, ordinal) in ordinals.into_iter().enumerate() {
            run.load_run(block, ordinal)?;
            labels.clear();
            for column in &mut run.columns {
                let number = column.numbers.get(ordinal as usize % RUN_SERIES);
                let number = number.copied().unwrap_or(-1);
                if number == 0 {
                    continue;
                }
                if (column.newest.0, column.newest.1) != (number, pairs.cleared) {
                    let place = pairs.cache_pair(block, column.label, number - 1)?;
                    column.newest = (number, pairs.cleared, place);
                }
                labels.extend_from_slice(&pairs.bytes[column.newest.2.clone()]);
            }
            each(index, LabelsRef::from_canonical(labels));
        }
        Ok(())
    }
}

/// Calls `each` with the index in `ordinals` and the terms of each of these series, sorted by label
/// name. `ordinals` must ascend.
pub(super) fn read_label_terms(
    block: &Block,
    ordinals: &[u32],
    each: &mut dyn FnMut(usize, &[u32]),
) -> Result<(), StorageError> {
    let (mut run, mut terms) = (SeriesLabelRun::default(), Vec::new());
    for (index, ordinal) in ordinals.iter().enumerate() {
        run.load_run(block, *ordinal)?;
        terms.clear();
        for column in &run.columns {
            let number = column.numbers.get(*ordinal as usize % RUN_SERIES);
            match number.copied().unwrap_or(-1) {
                0 => {}
                number => {
                    let files = &block.files;
                    terms.push(
                        block
                            .terms
                            .find_value_term(files, column.label, number - 1)?,
                    );
                }
            }
        }
        each(index, &terms);
    }
    Ok(())
}

impl SeriesLabelRun {
    /// Decodes the run that contains a series, unless it is the current one.
    fn load_run(&mut self, block: &Block, ordinal: u32) -> Result<(), StorageError> {
        let number = ordinal as usize / RUN_SERIES;
        if self.number == Some(number) {
            return Ok(());
        }
        self.number = None;
        let index = (ordinal / UNIT_SERIES) as usize;
        let unit = match self.unit.take() {
            Some((known, unit)) if known == index => unit,
            _ => block.series.unit(&block.files, index)?,
        };
        let of_unit = number % (UNIT_SERIES as usize / RUN_SERIES);
        let mut count = 0;
        for label in unit.labels() {
            if self.columns.len() == count {
                self.columns.push(SeriesLabelColumn::default());
            }
            let column = &mut self.columns[count];
            if column.label != label {
                (column.label, column.newest.0) = (label, 0);
            }
            let read = unit.read_run(label, of_unit, &mut column.numbers);
            read.map_err(|e| block.files.malformed_unit(block.series.units.get(index), e))?;
            count += 1;
        }
        self.columns.truncate(count);
        self.unit = Some((index, unit));
        self.number = Some(number);
        Ok(())
    }
}

impl LabelPairCache {
    /// Returns the location of an encoded pair in the cache, adding it if necessary.
    fn cache_pair(
        &mut self,
        block: &Block,
        label: u32,
        value: i64,
    ) -> Result<Range<usize>, StorageError> {
        let term = block.terms.find_value_term(&block.files, label, value)?;
        if let Some(place) = self.places.get(&term) {
            return Ok(place.clone());
        }
        if self.bytes.len() > self.bytes_max {
            self.bytes.clear();
            self.places.clear();
            self.cleared += 1;
        }
        let start = self.bytes.len();
        block.push_pair(term, &mut self.bytes)?;
        self.places.insert(term, start..self.bytes.len());
        Ok(start..self.bytes.len())
    }
}
