//! The labels of series, decoded unit by unit.

use super::reader::Block;
use super::series::{RUN_SERIES, SeriesUnit, UNIT_SERIES};
use crate::encoding::Malformed;
use crate::error::StorageError;
use firn_model::labels::{LabelsRef, push_pair};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of values that a look-up remembers: neighbours share most of them.
const MEMORY_BYTES: usize = 1 << 20;

/// Bytes that a reader of a whole block remembers. In its order each metric goes through all
/// targets once more: those of some ten thousand with four labels of their own.
const WHOLE_MEMORY_BYTES: usize = 4 << 20;

/// Reads the labels of one block, ascending by series, and remembers what they share from one call
/// to the next. It is for one block.
pub struct LabelsReader {
    run: Run,
    pairs: Pairs,
    /// The labels of a series, as they are put together.
    labels: Vec<u8>,
}

/// Pairs of a name and a value as they stand in label sets, by term.
struct Pairs {
    bytes: Vec<u8>,
    bytes_max: usize,
    places: FxHashMap<u32, Range<usize>>,
    /// How often they were forgotten.
    cleared: u64,
}

/// A run of series whose numbers were decoded.
#[derive(Default)]
struct Run {
    /// Which of all.
    number: Option<usize>,
    unit: Option<(usize, Arc<SeriesUnit>)>,
    columns: Vec<RunColumn>,
}

/// A label of a run.
#[derive(Default)]
struct RunColumn {
    label: u32,
    /// One more than the number of the value of each series; zero without the label.
    numbers: Vec<i64>,
    /// The pair of the series before, and which it was: mostly the next one's too.
    newest: (i64, u64, Range<usize>),
}

impl LabelsReader {
    fn with_memory(bytes_max: usize) -> Self {
        Self {
            run: Run::default(),
            pairs: Pairs {
                bytes: Vec::new(),
                bytes_max,
                places: FxHashMap::default(),
                cleared: 0,
            },
            labels: Vec::new(),
        }
    }

    /// A reader of all series of a block.
    pub fn of_whole() -> Self {
        Self::with_memory(WHOLE_MEMORY_BYTES)
    }

    /// Calls `each` with the index and the labels of each of `ordinals` of `block`, which ascend.
    pub fn read(
        &mut self,
        block: &Block,
        ordinals: impl IntoIterator<Item = u32>,
        each: &mut dyn FnMut(usize, LabelsRef<'_>),
    ) -> Result<(), StorageError> {
        let Self { run, pairs, labels } = self;
        for (index, ordinal) in ordinals.into_iter().enumerate() {
            run.turn_to(block, ordinal)?;
            labels.clear();
            for column in &mut run.columns {
                let number = column.numbers.get(ordinal as usize % RUN_SERIES);
                let number = number.copied().unwrap_or(-1);
                if number == 0 {
                    continue;
                }
                if (column.newest.0, column.newest.1) != (number, pairs.cleared) {
                    let place = pairs.place(block, column.label, number - 1)?;
                    column.newest = (number, pairs.cleared, place);
                }
                labels.extend_from_slice(&pairs.bytes[column.newest.2.clone()]);
            }
            each(index, LabelsRef::from_canonical(labels));
        }
        Ok(())
    }
}

impl Block {
    /// Calls `each` with the index and the labels of each of `ordinals`, which ascend.
    pub fn labels(
        &self,
        ordinals: &[u32],
        each: &mut dyn FnMut(usize, LabelsRef<'_>),
    ) -> Result<(), StorageError> {
        let mut reader = LabelsReader::with_memory(MEMORY_BYTES);
        reader.read(self, ordinals.iter().copied(), each)
    }

    /// Calls `each` with the index and the terms of the labels of each of `ordinals`, which ascend;
    /// terms are in the order of the labels' names.
    pub fn label_terms(
        &self,
        ordinals: &[u32],
        each: &mut dyn FnMut(usize, &[u32]),
    ) -> Result<(), StorageError> {
        let (mut run, mut terms) = (Run::default(), Vec::new());
        for (index, ordinal) in ordinals.iter().enumerate() {
            run.turn_to(self, *ordinal)?;
            terms.clear();
            for column in &run.columns {
                let number = column.numbers.get(*ordinal as usize % RUN_SERIES);
                match number.copied().unwrap_or(-1) {
                    0 => {}
                    number => terms.push(self.term_of(column.label, number - 1)?),
                }
            }
            each(index, &terms);
        }
        Ok(())
    }

    /// Appends the name and the value of a term as they stand in a label set.
    pub fn push_pair(&self, term: u32, into: &mut Vec<u8>) -> Result<(), StorageError> {
        let label = self
            .labels
            .of_term(term)
            .ok_or_else(|| self.lacks_value())?;
        push_pair(into, label.name.as_bytes(), &self.term_value(term)?);
        Ok(())
    }

    /// The term of a label's value with this number.
    fn term_of(&self, label: u32, value: i64) -> Result<u32, StorageError> {
        let of_label = self.labels.get(label).ok_or_else(|| self.lacks_value())?;
        let value = u32::try_from(value).ok().filter(|v| *v < of_label.values());
        Ok(of_label.terms.start + value.ok_or_else(|| self.lacks_value())?)
    }

    fn lacks_value(&self) -> StorageError {
        self.index
            .damaged(self.index.len(), "series with a value that does not exist")
    }
}

impl Run {
    /// Decodes the run of a series, unless it is decoded.
    fn turn_to(&mut self, block: &Block, ordinal: u32) -> Result<(), StorageError> {
        let number = ordinal as usize / RUN_SERIES;
        if self.number == Some(number) {
            return Ok(());
        }
        self.number = None;
        let index = (ordinal / UNIT_SERIES) as usize;
        let unit = match self.unit.take() {
            Some((known, unit)) if known == index => unit,
            _ => block.series_unit(index)?,
        };
        let of_unit = number % (UNIT_SERIES as usize / RUN_SERIES);
        let mut count = 0;
        for label in unit.labels() {
            if self.columns.len() == count {
                self.columns.push(RunColumn::default());
            }
            let column = &mut self.columns[count];
            if column.label != label {
                (column.label, column.newest.0) = (label, 0);
            }
            let read = unit.run(label, of_unit, &mut column.numbers);
            read.map_err(|e| block.malformed_unit(block.tables.series.get(index), e))?;
            count += 1;
        }
        self.columns.truncate(count);
        self.unit = Some((index, unit));
        self.number = Some(number);
        Ok(())
    }
}

impl Pairs {
    /// Where the pair of a label and its value with this number is.
    fn place(
        &mut self,
        block: &Block,
        label: u32,
        value: i64,
    ) -> Result<Range<usize>, StorageError> {
        let term = block.term_of(label, value)?;
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

impl Block {
    /// The value of a term.
    pub(super) fn term_value(&self, term: u32) -> Result<Vec<u8>, StorageError> {
        let index = self.terms.units.find(term.into()).unwrap_or(0);
        let (first, unit) = self.terms_unit(index)?;
        let mut value = Vec::new();
        let read = unit.value(term.saturating_sub(first) as usize, &mut value);
        let has_bytes = (!value.is_empty()).then_some(());
        let read = read.and(has_bytes.ok_or(Malformed("empty value of a label")));
        read.map_err(|e| self.malformed_unit(self.terms.units.get(index), e))?;
        Ok(value)
    }
}
