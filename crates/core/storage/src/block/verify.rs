//! Verification of a block: reads all of its data without the cache and reports all damage.

use super::data_page::DataPage;
use super::exemplars::ExemplarsUnit;
use super::file::OpenBlockFile;
use super::files::BlockFiles;
use super::index::missing_as_damage;
use super::labels::BlockLabel;
use super::layout::INDEX_COPY;
use super::meta::{FileMeta, META};
use super::metadata::MetadataUnit;
use super::pages::{BlockPageEntry, PagesUnit};
use super::postings::{self, PostingsUnit};
use super::reader::{Block, read_meta};
use super::series::{RUN_SERIES, SeriesUnit};
use super::terms::{TermPostings, TermsUnit};
use super::times::TimesUnit;
use super::unit::UnitTable;
use crate::chunk::SampleColumns;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::page::values::FloatColumnReader;
use std::path::Path;

/// The callback that receives each damage found.
type Each<'a> = dyn FnMut(StorageError) + 'a;

/// Damage found while a block was verified, and whether a second copy of the data exists.
#[derive(Debug)]
pub struct BlockFault {
    /// The location and the kind of the damage.
    pub error: StorageError,
    /// True if no data is lost, because a second copy is intact.
    pub is_recovered: bool,
}

/// Verifies a block, without the cache.
pub(super) struct BlockVerifier<'a> {
    pub(super) block: &'a Block,
    pub(super) files: &'a BlockFiles,
}

impl BlockVerifier<'_> {
    /// Reads all bytes, units and pages, and calls `each` with every damage found. Damage
    /// to one place can be reported twice: for the file, whose checksum does not match, and for the
    /// unit that cannot be read.
    pub(super) fn verify(&self, each: &mut dyn FnMut(BlockFault)) {
        for error in self.list_recovered_damage() {
            each(BlockFault {
                error,
                is_recovered: true,
            });
        }
        let each = &mut |error| {
            each(BlockFault {
                error,
                is_recovered: false,
            });
        };
        let mut files = self.files.data.iter().collect::<Vec<_>>();
        if self.block.meta().index_file_count() == 1 {
            files.insert(0, self.files.index.first());
        }
        let behind = self.block.meta().files.len() - files.len();
        for (file, meta) in files.into_iter().zip(&self.block.meta().files[behind..]) {
            if let Err(e) = self.check_file(file, meta) {
                each(e);
            }
        }
        self.check_series(each);
        self.check_terms(each);
        self.check_pages(each);
        self.check_exemplars(each);
        self.check_metadata(each);
    }

    /// Returns the damage to `meta.json`, to the index and to its copy. None of these files is a
    /// loss on its own.
    pub(super) fn list_recovered_damage(&self) -> Vec<StorageError> {
        let dir = self.files.index.first().path().parent();
        let dir = dir.unwrap_or(Path::new(""));
        let read = read_meta(self.files.index.disk(), dir, &self.files.cache().read_bytes);
        let meta = read.map_err(|e| missing_as_damage(e, &dir.join(META)));
        let mut found: Vec<StorageError> = meta.err().into_iter().collect();
        if let [first, copy, _, ..] = self.block.meta().files.as_slice()
            && self.block.meta().index_file_count() == 2
        {
            let missing = OpenBlockFile::new_missing(&dir.join(INDEX_COPY));
            let of_copy = self.files.index.copy().unwrap_or(&missing);
            found.extend(self.check_file(self.files.index.first(), first).err());
            found.extend(self.check_file(of_copy, copy).err());
        }
        found
    }

    pub(super) fn check_file(
        &self,
        file: &OpenBlockFile,
        meta: &FileMeta,
    ) -> Result<(), StorageError> {
        if file.len() != meta.bytes {
            return Err(file.wrong_length_error(meta.bytes));
        }
        if file.checksum(&self.files.cache().read_bytes)? == meta.crc {
            Ok(())
        } else {
            Err(file.damage_error(0, "the file fails its checksum"))
        }
    }

    /// Reads and decodes each unit of a table and calls `check` with it and its index.
    fn check_units<U>(
        &self,
        table: &UnitTable,
        each: &mut Each<'_>,
        open: impl Fn(usize, Vec<u8>) -> Result<U, DecodeError>,
        mut check: impl FnMut(usize, U) -> Result<(), DecodeError>,
    ) {
        for (index, entry) in table.iter().enumerate() {
            let malformed = |e| self.files.malformed_unit(Some(entry), e);
            let read = self.files.read_unit(entry);
            let checked = read.and_then(|bytes| {
                let unit = open(index, bytes).map_err(malformed)?;
                check(index, unit).map_err(malformed)
            });
            if let Err(e) = checked {
                each(e);
            }
        }
    }

    fn check_series(&self, each: &mut Each<'_>) {
        let len = |unit: usize| self.block.series.unit_series_count(unit);
        let open = |unit, bytes| SeriesUnit::open(bytes, len(unit));
        let mut numbers = Vec::new();
        self.check_units(&self.block.series.units, each, open, |index, unit| {
            for label in unit.labels() {
                let values = self
                    .block
                    .terms
                    .labels
                    .get(label)
                    .map_or(0, BlockLabel::value_count);
                for run in 0..len(index).div_ceil(RUN_SERIES) {
                    unit.read_run(label, run, &mut numbers)?;
                    if numbers.iter().any(|n| !(0..=i64::from(values)).contains(n)) {
                        return Err(DecodeError("series with a value that does not exist"));
                    }
                }
            }
            Ok(())
        });
    }

    fn check_terms(&self, each: &mut Each<'_>) {
        let mut lists: Vec<TermPostings> = self
            .block
            .terms
            .labels
            .iter()
            .map(|label| label.present)
            .collect();
        let table = &self.block.terms.terms.units;
        let len = |index: usize| self.block.terms.unit_term_count(index);
        let open = |index, bytes| TermsUnit::open(bytes, len(index));
        self.check_units(table, each, open, |_, unit| {
            lists.extend((0..unit.len()).filter_map(|at| unit.postings(at)));
            let mut last: Option<Vec<u8>> = None;
            let mut falls = 0;
            unit.for_each_value(
                0..unit.len(),
                |_, value| {
                    let is_next = last.as_ref().is_none_or(|last| **last < *value);
                    falls += usize::from(!is_next);
                    last = Some(value.to_vec());
                    if value.is_empty() {
                        Err(DecodeError("empty value of a label"))
                    } else {
                        Ok(())
                    }
                },
                |e| e,
            )?;
            // Values start over at the first term of each label.
            if falls < self.block.terms.labels.iter().count() {
                Ok(())
            } else {
                Err(DecodeError("values of a label out of order"))
            }
        });
        let open = |_, bytes| Ok(PostingsUnit(bytes));
        lists.sort_by_key(|list| (list.offset, list.bytes));
        let table = &self.block.postings.units;
        self.check_units(table, each, open, |index, unit| {
            let first = table.get(index).map_or(0, |unit| unit.first);
            let end = first.saturating_add(unit.0.len() as u64);
            let from = lists.partition_point(|list| list.offset < first);
            let of_unit = lists[from..].iter().take_while(|list| list.offset < end);
            let mut series = Vec::new();
            for list in of_unit.filter(|list| list.bytes > 0) {
                let at = (list.offset - first) as usize;
                let bytes = unit
                    .0
                    .get(at..)
                    .and_then(|rest| rest.get(..list.bytes as usize));
                let bytes = bytes.ok_or(DecodeError("list of series outside of its unit"))?;
                series.clear();
                postings::read_postings(
                    bytes,
                    list.series,
                    self.block.series_count(),
                    &mut series,
                )?;
            }
            Ok(())
        });
    }

    fn check_exemplars(&self, each: &mut Each<'_>) {
        let Some(table) = &self.block.exemplars else {
            return;
        };
        let first = |index: usize| table.units.get(index).map_or(0, |unit| unit.first);
        let open = |index, bytes: Vec<u8>| ExemplarsUnit::open(&bytes, first(index));
        let (mut count, mut is_whole) = (0, true);
        let mut note = |e| {
            is_whole = false;
            each(e);
        };
        self.check_units(&table.units, &mut note, open, |_, unit| {
            count += unit.check(self.block.series_count())?;
            Ok(())
        });
        if is_whole && count != table.count {
            let what = format!("{count} exemplars instead of {}", table.count);
            each(self.files.index.damage_error(0, what));
        }
    }

    fn check_metadata(&self, each: &mut Each<'_>) {
        let Some(table) = &self.block.metadata else {
            return;
        };
        let (mut metrics, mut last, mut is_whole) = (0, String::new(), true);
        let mut note = |e| {
            is_whole = false;
            each(e);
        };
        let open = |_, bytes| MetadataUnit::open(bytes);
        self.check_units(&table.units, &mut note, open, |_, unit| {
            let (first, behind, count) = unit.name_range();
            if metrics > 0 && *last >= *first {
                return Err(DecodeError("metadata out of order"));
            }
            metrics += count;
            behind.clone_into(&mut last);
            Ok(())
        });
        if is_whole && metrics != table.metrics {
            let what = format!(
                "metadata of {metrics} metrics where it was of {}",
                table.metrics
            );
            each(self.files.index.damage_error(0, what));
        }
    }

    fn check_pages(&self, each: &mut Each<'_>) {
        let mut counts = Vec::new();
        let open = |_, bytes| TimesUnit::open(bytes);
        self.check_units(&self.block.times.units, each, open, |index, unit| {
            let first = self
                .block
                .times
                .units
                .get(index)
                .map_or(0, |unit| unit.first);
            if first != counts.len() as u64 {
                return Err(DecodeError(
                    "unit of other time columns than it should have",
                ));
            }
            for at in 0..unit.len() {
                counts.push(unit.entry(at)?.count);
                unit.times(at)?;
            }
            Ok(())
        });
        let mut entries = Vec::new();
        let open = |_, bytes: Vec<u8>| PagesUnit::open(&bytes);
        self.check_units(&self.block.pages.units, each, open, |_, unit| {
            entries.extend_from_slice(unit.entries());
            Ok(())
        });
        let mut samples = 0;
        let mut is_whole = true;
        for (at, entry) in entries.iter().enumerate() {
            let end = entries
                .get(at + 1)
                .map_or(self.block.series_count(), |next| match next.part {
                    0 => next.first,
                    _ => next.first.saturating_add(1),
                });
            match self.check_page(entry, end, &counts) {
                Ok(count) => samples += count,
                Err(e) => {
                    is_whole = false;
                    each(e);
                }
            }
        }
        if is_whole && samples != self.block.meta().samples {
            let what = format!("{samples} samples instead of {}", self.block.meta().samples);
            each(self.files.index.damage_error(0, what));
        }
    }

    /// Decodes all columns of a page that ends before the series `end`, and returns the number of
    /// samples.
    fn check_page(
        &self,
        entry: &BlockPageEntry,
        end: u32,
        counts: &[usize],
    ) -> Result<u64, StorageError> {
        let file = self.files.data_file(entry)?;
        let count = &self.files.cache().read_bytes;
        let bytes = file.read(entry.offset, entry.bytes as usize, count)?;
        let page = self.files.open_page(entry, &bytes)?;
        let checked = if entry.first.checked_add(page.len() as u32) == Some(end) {
            check_columns(&page, counts)
        } else {
            Err(DecodeError(
                "page whose series differ from its directory entry",
            ))
        };
        checked.map_err(file.malformed_error(entry.offset))
    }
}

fn check_columns(page: &DataPage, counts: &[usize]) -> Result<u64, DecodeError> {
    let (mut reader, mut columns) = (FloatColumnReader::default(), SampleColumns::default());
    let mut samples = 0;
    for at in 0..page.len() {
        let Some(column) = page.column(at) else {
            break;
        };
        let count = counts.get(column.times as usize).copied();
        let count = count.ok_or(DecodeError("number of no time column"))?;
        columns.clear();
        page.read(&column, count, 0..count, &mut reader, &mut columns)?;
        if columns.values.len() != count {
            return Err(DecodeError(
                "column does not contain the number of samples that it declares",
            ));
        }
        samples += count as u64;
    }
    Ok(samples)
}
