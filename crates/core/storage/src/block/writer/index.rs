//! Writes the file `index`: units while series are pushed, and the sections that need all series at
//! the end.

use super::dictionary::BlockLabelDictionary;
use super::output::{BlockFileWriter, IndexFilePair};
use crate::block::exemplars::ExemplarsDraft;
use crate::block::labels::{BlockLabel, LabelTable, TermsTable};
use crate::block::layout::{BlockSectionKind, Footer, SectionDirectory, SectionEntry, VERSION};
use crate::block::meta::{BlockMeta, FileMeta};
use crate::block::metadata::{MetadataDraft, MetricMetadataHistory};
use crate::block::pages::{self, BlockPageEntry, UNIT_PAGES};
use crate::block::series::{SeriesDraft, SpilledSeriesUnit};
use crate::block::terms::{TermPostings, TermsDraft};
use crate::block::times::TimesWriter;
use crate::block::unit::{UnitEntry, UnitTable};
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::page::planner::IntRunPlanner;
use firn_model::exemplar::TimedExemplar;

/// Number of bytes of posting lists after which their unit ends. A list is never split.
const POSTINGS_BYTES: usize = 32 << 10;

/// The part of the index that is written while series are pushed. Its memory consists of one unit
/// of each section and the tables of units, about 24 bytes for every 64 KiB.
pub(super) struct BlockIndexWriter {
    output: IndexFilePair,
    /// Temporary file of label columns, until the final numbers of their values are determined.
    spill: BlockFileWriter,
    /// First series, offset and length of each spilled unit.
    spilled: Vec<(u64, u64, usize)>,
    planner: IntRunPlanner,
    series: SeriesDraft,
    series_count: u32,
    pages: Vec<BlockPageEntry>,
    pages_table: UnitTable,
    times_table: UnitTable,
    exemplars: ExemplarsDraft,
    metadata: MetadataDraft,
}

/// Final numbers of labels and values, indexed by their temporary numbers in order of first use.
struct FinalLabelNumbers {
    labels: Vec<u32>,
    values: Vec<Vec<u32>>,
}

/// The sections that contain labels, terms and posting lists.
struct TermSections {
    labels: LabelTable,
    terms: TermsTable,
    postings: UnitTable,
}

impl BlockIndexWriter {
    /// Creates a writer of the index files `output`, with `spill` as its temporary file.
    pub(super) fn new(output: IndexFilePair, spill: BlockFileWriter) -> Self {
        Self {
            output,
            spill,
            spilled: Vec::new(),
            planner: IntRunPlanner::default(),
            series: SeriesDraft::default(),
            series_count: 0,
            pages: Vec::new(),
            pages_table: UnitTable::default(),
            times_table: UnitTable::default(),
            exemplars: ExemplarsDraft::default(),
            metadata: MetadataDraft::default(),
        }
    }

    /// Starts the next series; its labels are added with `set_label`.
    pub(super) fn begin_series(&mut self) -> Result<(), StorageError> {
        if self.series.is_full() {
            self.end_series_unit()?;
        }
        self.series.begin_series();
        self.series_count += 1;
        Ok(())
    }

    /// Sets the value of a label of the current series.
    pub(super) fn set_label(&mut self, label: u32, value: u32) {
        self.series.set_label(label, value);
    }

    /// Adds the entry of a data page. Writes a unit of entries when enough have been collected.
    pub(super) fn push_page(&mut self, page: BlockPageEntry) -> Result<(), StorageError> {
        self.pages.push(page);
        if self.pages.len() >= UNIT_PAGES {
            self.end_pages_unit()
        } else {
            Ok(())
        }
    }

    /// Adds an exemplar of the current series. Exemplars of one series must be in order.
    pub(super) fn push_exemplar(&mut self, one: &TimedExemplar<'_>) -> Result<(), StorageError> {
        if self.exemplars.push(self.series_count - 1, one) {
            self.end_exemplars_unit()
        } else {
            Ok(())
        }
    }

    fn end_exemplars_unit(&mut self) -> Result<(), StorageError> {
        let output = &mut self.output;
        self.exemplars
            .end_unit(|first, bytes| append_unit(output, first, bytes))
    }

    /// Adds the metadata of a metric; names must ascend.
    pub(super) fn push_metadata(
        &mut self,
        saying: MetricMetadataHistory<'_>,
    ) -> Result<(), StorageError> {
        if self.metadata.push(saying) {
            self.end_metadata_unit()
        } else {
            Ok(())
        }
    }

    fn end_metadata_unit(&mut self) -> Result<(), StorageError> {
        let output = &mut self.output;
        self.metadata
            .end_unit(|first, bytes| append_unit(output, first, bytes))
    }

    /// Ends the current unit of time columns and writes it.
    pub(super) fn end_times_unit(&mut self, times: &mut TimesWriter) -> Result<(), StorageError> {
        if let Some((first, bytes)) = times.end_unit(&mut self.planner) {
            let entry = append_unit(&mut self.output, first, &bytes)?;
            self.times_table.push(entry);
        }
        Ok(())
    }

    /// Returns the number of series so far.
    pub(super) fn series_count(&self) -> u32 {
        self.series_count
    }

    /// Returns the length of one index file so far, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.output.len()
    }

    fn end_series_unit(&mut self) -> Result<(), StorageError> {
        let first = u64::from(self.series_count) - self.series.len() as u64;
        let columns = self.series.end_unit();
        let offset = self.spill.append(&columns)?;
        self.spilled.push((first, offset, columns.len()));
        Ok(())
    }

    fn end_pages_unit(&mut self) -> Result<(), StorageError> {
        let Some(first) = self.pages.first() else {
            return Ok(());
        };
        let key = first.key();
        let bytes = pages::encode_pages(&self.pages, &mut self.planner);
        let entry = append_unit(&mut self.output, key, &bytes)?;
        self.pages_table.push(entry);
        self.pages.clear();
        Ok(())
    }

    /// Completes the index and its copy after all pages and time columns have been added. `meta`
    /// lists the data files; the entries of the two index files are returned.
    pub(super) fn finish(
        mut self,
        mut dictionary: BlockLabelDictionary,
        meta: &BlockMeta,
    ) -> Result<[FileMeta; 2], StorageError> {
        self.end_pages_unit()?;
        self.end_exemplars_unit()?;
        self.end_metadata_unit()?;
        if self.series.len() > 0 {
            self.end_series_unit()?;
        }
        let (terms, numbers) = self.write_terms(&mut dictionary)?;
        let series_table = self.write_series(&numbers)?;
        let mut tables = vec![
            (BlockSectionKind::Labels, terms.labels.encode()),
            (
                BlockSectionKind::Terms,
                terms.terms.encode(&mut self.planner),
            ),
        ];
        for (kind, table) in [
            (BlockSectionKind::Series, &series_table),
            (BlockSectionKind::Postings, &terms.postings),
            (BlockSectionKind::Times, &self.times_table),
            (BlockSectionKind::Pages, &self.pages_table),
        ] {
            let mut bytes = Vec::new();
            table.encode(&mut self.planner, &mut bytes);
            tables.push((kind, bytes));
        }
        if let Some(exemplars) = std::mem::take(&mut self.exemplars).into_table() {
            let mut bytes = Vec::new();
            exemplars.encode(&mut self.planner, &mut bytes);
            tables.push((BlockSectionKind::Exemplars, bytes));
        }
        if let Some(metadata) = std::mem::take(&mut self.metadata).into_table() {
            let mut bytes = Vec::new();
            metadata.encode(&mut self.planner, &mut bytes);
            tables.push((BlockSectionKind::Metadata, bytes));
        }
        tables.push((BlockSectionKind::Meta, meta.encode()));
        self.write_tail(tables, meta)?;
        self.output.finish()
    }

    /// Writes the sections, their directory and the footer, which together form the tail of the
    /// index.
    fn write_tail(
        &mut self,
        tables: Vec<(BlockSectionKind, Vec<u8>)>,
        meta: &BlockMeta,
    ) -> Result<(), StorageError> {
        let mut sections = SectionDirectory::default();
        for (kind, bytes) in tables {
            let offset = self.output.append(&bytes)?;
            sections.push(SectionEntry::new(kind, offset, &bytes));
        }
        let directory = sections.encode();
        let footer = Footer {
            version: VERSION,
            id: meta.id,
            series: meta.series,
            samples: meta.samples,
            directory_offset: self.output.append(&directory)?,
            directory_bytes: directory.len() as u32,
            directory_crc: crc32c::crc32c(&directory),
            body_crc: self.output.crc()?,
        };
        self.output.append(&footer.encode())?;
        Ok(())
    }

    /// Writes the terms and posting lists in order, and returns the final numbers of labels and
    /// values.
    fn write_terms(
        &mut self,
        dictionary: &mut BlockLabelDictionary,
    ) -> Result<(TermSections, FinalLabelNumbers), StorageError> {
        let labels = dictionary.labels().len();
        let mut numbers = FinalLabelNumbers {
            labels: vec![0; labels],
            values: vec![Vec::new(); labels],
        };
        let mut sections = TermSections {
            labels: LabelTable::default(),
            terms: TermsTable::default(),
            postings: UnitTable::default(),
        };
        let (mut draft, mut lists) = (TermsDraft::default(), PostingsUnitWriter::default());
        let (mut term, mut ranges) = (0u32, Vec::new());
        for (own, label) in (0u32..).zip(dictionary.sort_labels()) {
            let of_label = dictionary.label_mut(label);
            let order = of_label.sort_values();
            let mut values = vec![0; order.len()];
            let start = term;
            for (rank, number) in (0u32..).zip(order) {
                values[number as usize] = rank;
                let list = std::mem::take(&mut of_label.terms[number as usize]);
                let at = lists.push_list(self, &mut sections.postings, list)?;
                let bytes = at.bytes as usize;
                draft.push(of_label.value(number), at.series, at.offset, bytes);
                term += 1;
                if draft.is_full() {
                    self.end_terms_unit(&mut draft, term, &mut sections.terms)?;
                }
            }
            ranges.push(start..term);
            numbers.labels[label as usize] = own;
            numbers.values[label as usize] = values;
        }
        if draft.len() > 0 {
            self.end_terms_unit(&mut draft, term, &mut sections.terms)?;
        }
        // The lists of the labels follow those of the terms, which must be consecutive.
        for (label, terms) in dictionary.sort_labels().into_iter().zip(ranges) {
            let of_label = dictionary.label_mut(label);
            let present = std::mem::take(&mut of_label.present);
            let name = std::str::from_utf8(&of_label.name);
            sections.labels.push(BlockLabel {
                name: name.expect("names of labels are UTF-8").into(),
                terms,
                present: lists.push_list(self, &mut sections.postings, present)?,
            });
        }
        lists.end_unit(self, &mut sections.postings)?;
        Ok((sections, numbers))
    }

    fn end_terms_unit(
        &mut self,
        draft: &mut TermsDraft,
        end: u32,
        table: &mut TermsTable,
    ) -> Result<(), StorageError> {
        let first = u64::from(end) - draft.len() as u64;
        let (value, bytes) = draft.end_unit(&mut self.planner);
        table
            .units
            .push(append_unit(&mut self.output, first, &bytes)?);
        table.push_first_value(value);
        Ok(())
    }

    /// Writes the units of label columns with the final numbers.
    fn write_series(&mut self, numbers: &FinalLabelNumbers) -> Result<UnitTable, StorageError> {
        let mut table = UnitTable::default();
        for (first, offset, bytes) in std::mem::take(&mut self.spilled) {
            let bytes = self.spill.read(offset, bytes)?;
            let damaged = |e: DecodeError| StorageError::Damaged {
                path: self.spill.path().to_path_buf(),
                offset,
                what: e.to_string(),
            };
            let unit = SpilledSeriesUnit::read(&bytes).map_err(damaged)?;
            let of_label = |label: u32| {
                let label = label as usize;
                (numbers.labels[label], numbers.values[label].as_slice())
            };
            let bytes = unit.encode(&mut self.planner, of_label);
            table.push(append_unit(&mut self.output, first, &bytes)?);
        }
        Ok(table)
    }
}

/// Posting lists, collected into units of whole lists that are written when they are full.
#[derive(Default)]
struct PostingsUnitWriter {
    /// Total bytes of the lists in the units written so far.
    before: u64,
    unit: Vec<u8>,
}

impl PostingsUnitWriter {
    /// Adds a list and returns its location. Writes the current unit if that is full.
    fn push_list(
        &mut self,
        index: &mut BlockIndexWriter,
        table: &mut UnitTable,
        list: crate::block::postings::PostingsBuilder,
    ) -> Result<TermPostings, StorageError> {
        let at = self.unit.len();
        let series = list.len();
        list.encode(index.series_count, &mut index.planner, &mut self.unit);
        let place = TermPostings {
            series,
            offset: self.before + at as u64,
            bytes: (self.unit.len() - at) as u32,
        };
        if self.unit.len() >= POSTINGS_BYTES {
            self.end_unit(index, table)?;
        }
        Ok(place)
    }

    fn end_unit(
        &mut self,
        index: &mut BlockIndexWriter,
        table: &mut UnitTable,
    ) -> Result<(), StorageError> {
        if self.unit.is_empty() {
            return Ok(());
        }
        table.push(append_unit(&mut index.output, self.before, &self.unit)?);
        self.before += self.unit.len() as u64;
        self.unit.clear();
        Ok(())
    }
}

fn append_unit(
    output: &mut IndexFilePair,
    first: u64,
    bytes: &[u8],
) -> Result<UnitEntry, StorageError> {
    Ok(UnitEntry {
        first,
        offset: output.append(bytes)?,
        bytes: bytes.len() as u32,
        crc: crc32c::crc32c(bytes),
    })
}
