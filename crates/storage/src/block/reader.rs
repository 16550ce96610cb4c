//! An open block: what of it is in memory, and its units.

use super::cache::{BlockCache, Unit};
use super::cached::Place;
use super::data_page::DataPage;
use super::exemplars::ExemplarsTable;
use super::file::BlockRanges;
use super::index::{BlockIndex, lost};
use super::labels::{LabelTable, TermsTable};
use super::layout::{INDEX, Section};
use super::meta::{BlockMeta, META, META_BYTES_MAX};
use super::metadata::MetadataTable;
use super::pages::{PageEntry, PagesUnit};
use super::series::{SeriesUnit, UNIT_SERIES};
use super::tail::{Known, Tail};
use super::terms::TermsUnit;
use super::times::TimesUnit;
use super::unit::{UnitEntry, UnitTable};
use crate::encoding::Malformed;
use crate::error::StorageError;
use firn_model::env::{Disk, Env};
use firn_model::metrics::Counter;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

/// The number of the index among the files of a block; files of pages follow.
const INDEX_FILE: u32 = 0;

/// An open block. Its units are read when they are asked for.
#[derive(Debug)]
pub struct Block {
    meta: BlockMeta,
    cache: Arc<BlockCache>,
    /// What its units are called in the cache.
    number: u64,
    pub(super) index: BlockIndex,
    pub(super) data: Vec<BlockRanges>,
    pub(super) labels: LabelTable,
    pub(super) terms: TermsTable,
    pub(super) tables: Tables,
    /// Where its exemplars are, if it has any.
    pub(super) exemplars: Option<ExemplarsTable>,
    /// Where it lies what was said of its metrics, if anything was.
    pub(super) metadata: Option<MetadataTable>,
}

/// Where the units of the other sections are.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) series: UnitTable,
    pub(super) postings: UnitTable,
    pub(super) times: UnitTable,
    pub(super) pages: UnitTable,
}

/// A page among those of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageAt {
    pub(super) unit: usize,
    pub(super) index: usize,
}

impl Block {
    /// What the block in the folder `dir` says of itself, without a look at its other files.
    pub(crate) fn read_meta(env: &Env, dir: &Path) -> Result<BlockMeta, StorageError> {
        read_meta(&*env.disk, dir, &Counter::default())
    }

    /// Opens the block in the folder `dir`: reads `meta.json` and the end of the index, and checks
    /// them and the lengths of the files. Reads the second copy of damaged parts, and reports the
    /// damage.
    pub fn open(env: &Env, dir: &Path, cache: &Arc<BlockCache>) -> Result<Self, StorageError> {
        let error = match read_meta(&*env.disk, dir, &cache.read_bytes) {
            Ok(meta) => return Self::open_as(env, dir, cache, Some(meta)),
            Err(e @ StorageError::Format { .. }) => return Err(e),
            Err(e) => e,
        };
        match Self::open_as(env, dir, cache, None) {
            Ok(block) => {
                cache.report_recovered(&lost(error, &dir.join(META)), INDEX);
                Ok(block)
            }
            // What is not delivered may say what the block is.
            Err(e) if e.is_disk_fault() => Err(e),
            Err(_) => Err(error),
        }
    }

    /// Opens a block of which `meta` is known, or what the index says of it.
    fn open_as(
        env: &Env,
        dir: &Path,
        cache: &Arc<BlockCache>,
        meta: Option<BlockMeta>,
    ) -> Result<Self, StorageError> {
        let bytes = meta.as_ref().map(|meta| meta.files[0].bytes);
        let index = BlockIndex::open(&env.disk, dir, bytes)?;
        let name = dir.file_name().and_then(|name| name.to_str()?.parse().ok());
        let known = meta.as_ref().map_or(Known::Name(name), Known::Meta);
        let tail = Tail::read(&index, &known, cache)?;
        let meta = match &meta {
            Some(meta) => meta.clone(),
            None => tail.meta(dir)?,
        };
        let data = open_data(&*env.disk, dir, &meta, cache)?;
        let labels = tail.decode(Section::Labels, |bytes| {
            LabelTable::decode(bytes, meta.series)
        })?;
        let terms = tail.decode(Section::Terms, |bytes| {
            TermsTable::decode(bytes, index.len())
        })?;
        let tables = Tables {
            series: tail.table(Section::Series)?,
            postings: tail.table(Section::Postings)?,
            times: tail.table(Section::Times)?,
            pages: tail.table(Section::Pages)?,
        };
        let exemplars = tail.decode_optional(Section::Exemplars, |bytes| {
            ExemplarsTable::decode(bytes, index.len())
        })?;
        let metadata = tail.decode_optional(Section::Metadata, |bytes| {
            MetadataTable::decode(bytes, index.len())
        })?;
        let block = Self {
            number: cache.next_block(),
            cache: cache.clone(),
            meta,
            index,
            data,
            labels,
            terms,
            tables,
            exemplars,
            metadata,
        };
        block.check_tables()?;
        block.index.report(cache);
        Ok(block)
    }

    /// What the block is.
    pub fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    /// From its first sample to its last.
    pub fn range(&self) -> TimeRange {
        self.meta.range
    }

    /// How many series.
    pub fn series_count(&self) -> u32 {
        self.meta.series
    }

    /// Bytes of memory, those in the cache aside.
    pub fn memory_bytes(&self) -> usize {
        let Tables {
            series,
            postings,
            times,
            pages,
        } = &self.tables;
        let tables = [series, postings, times, pages];
        let tables = tables.into_iter();
        let exemplars = self.exemplars.iter().map(|table| &table.units);
        let metadata = self.metadata.iter().map(|table| &table.units);
        let tables = tables.chain(exemplars).chain(metadata);
        let tables: usize = tables.map(UnitTable::memory_bytes).sum();
        size_of::<Self>() + tables + self.labels.memory_bytes() + self.terms.memory_bytes()
    }

    /// What readers rely on of the tables: each has a unit for what is looked up first, and all
    /// series that are said are in units.
    fn check_tables(&self) -> Result<(), StorageError> {
        let damaged = |what: &str| self.index.damaged(self.index.len(), what);
        let series = u64::from(self.meta.series);
        let each = u64::from(UNIT_SERIES);
        let firsts = self.tables.series.iter().map(|unit| unit.first);
        let wanted = (0..series.div_ceil(each)).map(|unit| unit * each);
        if !firsts.eq(wanted) {
            return Err(damaged("number of units differs from the number of series"));
        }
        let begins = |table: &UnitTable| table.get(0).map(|unit| unit.first);
        let Tables { times, pages, .. } = &self.tables;
        let has_terms = self.labels.terms() == 0 || begins(&self.terms.units) == Some(0);
        let ends = |table: &UnitTable, end: u32| {
            let last = table.len().checked_sub(1).and_then(|last| table.get(last));
            last.is_none_or(|last| last.first < end.into())
        };
        if !ends(times, u32::MAX) || !ends(&self.terms.units, self.labels.terms()) {
            return Err(damaged("units beyond the end of the data"));
        }
        if begins(times) != Some(0) || begins(pages) != Some(0) || !has_terms {
            return Err(damaged("section that does not start with its first unit"));
        }
        Ok(())
    }

    /// The unit of series with this index.
    pub(super) fn series_unit(&self, unit: usize) -> Result<Arc<SeriesUnit>, StorageError> {
        let len = self.unit_series(unit);
        self.unit(self.tables.series.get(unit), |bytes| {
            SeriesUnit::open(bytes, len)
        })
    }

    /// The unit of terms with this index, and the number of its first term.
    pub(super) fn terms_unit(&self, unit: usize) -> Result<(u32, Arc<TermsUnit>), StorageError> {
        let entry = self.terms.units.get(unit);
        let first = entry.map_or(0, |entry| entry.first);
        let next = self.terms.units.get(unit + 1);
        let end = next.map_or(u64::from(self.labels.terms()), |next| next.first);
        let len = end.saturating_sub(first) as usize;
        let opened = self.unit(entry, |bytes| TermsUnit::open(bytes, len))?;
        Ok((first as u32, opened))
    }

    /// The unit of times with this index, and the number of its first column.
    pub(super) fn times_unit(&self, unit: usize) -> Result<(u32, Arc<TimesUnit>), StorageError> {
        let entry = self.tables.times.get(unit);
        let first = entry.map_or(0, |entry| entry.first);
        Ok((first as u32, self.unit(entry, TimesUnit::open)?))
    }

    /// The unit of pages with this index.
    pub(super) fn pages_unit(&self, unit: usize) -> Result<Arc<PagesUnit>, StorageError> {
        self.unit(self.tables.pages.get(unit), |bytes| PagesUnit::open(&bytes))
    }

    /// The page that holds this part of a series, or would.
    pub(super) fn find_page(&self, key: u64) -> Result<(PageAt, Arc<PagesUnit>), StorageError> {
        let unit = self.tables.pages.find(key).unwrap_or(0);
        let pages = self.pages_unit(unit)?;
        let behind = pages.entries().partition_point(|page| page.key() <= key);
        let index = behind.saturating_sub(1);
        Ok((PageAt { unit, index }, pages))
    }

    /// The page behind one, if there is any.
    pub(super) fn next_page(
        &self,
        at: PageAt,
        pages: &Arc<PagesUnit>,
    ) -> Result<Option<(PageAt, Arc<PagesUnit>, PageEntry)>, StorageError> {
        let (unit, index) = (at.unit, at.index + 1);
        if let Some(entry) = pages.entries().get(index) {
            return Ok(Some((PageAt { unit, index }, pages.clone(), *entry)));
        }
        if unit + 1 >= self.tables.pages.len() {
            return Ok(None);
        }
        let pages = self.pages_unit(unit + 1)?;
        let first = pages.entries().first().copied();
        let at = PageAt {
            unit: unit + 1,
            index: 0,
        };
        Ok(first.map(|entry| (at, pages, entry)))
    }

    /// A page.
    pub(super) fn page(&self, entry: &PageEntry) -> Result<Arc<DataPage>, StorageError> {
        self.cache
            .get(self.page_place(entry), || self.read_page(entry))
    }

    /// Reads a page.
    pub(super) fn read_page(&self, entry: &PageEntry) -> Result<DataPage, StorageError> {
        let file = self.data_file(entry)?;
        let bytes = file.read(entry.offset, entry.bytes as usize, &self.cache.read_bytes)?;
        self.open_page(entry, &bytes)
    }

    /// Opens the bytes of a page, unless they are not those that were written.
    pub(super) fn open_page(
        &self,
        entry: &PageEntry,
        bytes: &[u8],
    ) -> Result<DataPage, StorageError> {
        let file = self.data_file(entry)?;
        if crc32c::crc32c(bytes) != entry.crc {
            return Err(file.damaged(entry.offset, "page fails its checksum"));
        }
        DataPage::open(bytes).map_err(file.malformed(entry.offset))
    }

    /// The file that holds a page.
    pub(super) fn data_file(&self, entry: &PageEntry) -> Result<&BlockRanges, StorageError> {
        let file = self.data.get(entry.file as usize);
        file.ok_or_else(|| self.index.damaged(0, "page in a file that does not exist"))
    }

    /// What a page is called in the cache.
    pub(super) fn page_place(&self, entry: &PageEntry) -> Place {
        Place {
            block: self.number,
            file: INDEX_FILE + 1 + entry.file,
            offset: entry.offset,
        }
    }

    /// What a unit of the index is called in the cache.
    pub(super) fn unit_place(&self, entry: &UnitEntry) -> Place {
        Place {
            block: self.number,
            file: INDEX_FILE,
            offset: entry.offset,
        }
    }

    /// The cache that it uses.
    pub(super) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The error for a unit of the index that is malformed.
    pub(super) fn malformed_unit(&self, unit: Option<&UnitEntry>, e: Malformed) -> StorageError {
        let offset = unit.map_or(self.index.len(), |unit| unit.offset);
        self.index.malformed(offset)(e)
    }

    /// A unit of the index.
    pub(super) fn unit<U: Unit>(
        &self,
        entry: Option<&UnitEntry>,
        open: impl FnOnce(Vec<u8>) -> Result<U, Malformed>,
    ) -> Result<Arc<U>, StorageError> {
        let lacks = || self.index.damaged(self.index.len(), "number of no unit");
        let entry = entry.ok_or_else(lacks)?;
        self.cache.get(self.unit_place(entry), || {
            let bytes = self.read_unit(entry)?;
            open(bytes).map_err(self.index.malformed(entry.offset))
        })
    }

    /// The bytes of a unit of the index, unless they are not those that were written.
    pub(super) fn read_unit(&self, entry: &UnitEntry) -> Result<Vec<u8>, StorageError> {
        self.index.read_unit(entry, &self.cache)
    }

    fn unit_series(&self, unit: usize) -> usize {
        let before = unit as u64 * u64::from(UNIT_SERIES);
        let rest = u64::from(self.meta.series).saturating_sub(before);
        rest.min(UNIT_SERIES.into()) as usize
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // What is opened again has another number.
        self.cache.forget(self.number);
    }
}

/// Opens the files of pages. One that is cut, or one of several that is missing, costs its pages; a
/// block without any is an error.
fn open_data(
    disk: &dyn Disk,
    dir: &Path,
    meta: &BlockMeta,
    cache: &BlockCache,
) -> Result<Vec<BlockRanges>, StorageError> {
    let files = &meta.files[meta.index_files()..];
    let mut data = Vec::with_capacity(files.len());
    for file in files {
        let path = dir.join(&file.name);
        let opened = BlockRanges::at(disk, &path).map_err(|e| lost(e, &path));
        let opened = match opened {
            Err(e @ StorageError::Damaged { .. }) if files.len() > 1 => {
                cache.report_damaged(&e);
                BlockRanges::missing(&path)
            }
            opened => opened?,
        };
        if opened.is_there() && opened.len() != file.bytes {
            let damage = opened.of_other_length(file.bytes);
            if files.len() == 1 && opened.len() == 0 {
                return Err(damage);
            }
            cache.report_damaged(&damage);
        }
        data.push(opened);
    }
    Ok(data)
}

/// Reads `meta.json`.
pub(super) fn read_meta(
    disk: &dyn Disk,
    dir: &Path,
    count: &Counter,
) -> Result<BlockMeta, StorageError> {
    let path = dir.join(META);
    let file = BlockRanges::at(disk, &path)?;
    if file.len() > META_BYTES_MAX {
        return Err(file.damaged(0, format!("{} bytes exceed the limit", file.len())));
    }
    let bytes = file.read(0, file.len() as usize, count)?;
    let meta = BlockMeta::decode(&bytes, &path)?;
    match meta.is_of_a_block() {
        true => Ok(meta),
        false => Err(file.damaged(0, "other files than a block has, or no series")),
    }
}
