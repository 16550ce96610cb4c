//! An open block: the tables that are kept in memory, and access to the units that they locate.

use super::cache::{BlockCache, BlockUnit};
use super::cached::UnitKey;
use super::data_page::DataPage;
use super::exemplars::ExemplarsTable;
use super::file::OpenBlockFile;
use super::index::{BlockIndex, missing_as_damage};
use super::labels::{LabelTable, TermsTable};
use super::layout::{BlockSectionKind, INDEX};
use super::meta::{BlockMeta, META, META_BYTES_MAX};
use super::metadata::BlockMetadataTable;
use super::pages::{BlockPageEntry, PagesUnit};
use super::series::{SeriesUnit, UNIT_SERIES};
use super::tail::{BlockIdentity, IndexTail};
use super::terms::TermsUnit;
use super::times::TimesUnit;
use super::unit::{UnitEntry, UnitTable};
use crate::encoding::DecodeError;
use crate::error::StorageError;
use firn_model::env::{Disk, Env};
use firn_model::metrics::Counter;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

/// Number of the index in cache keys; the data files follow it.
const INDEX_FILE: u32 = 0;

/// An open block. Its units are read on demand through the shared cache.
#[derive(Debug)]
pub struct Block {
    meta: BlockMeta,
    cache: Arc<BlockCache>,
    /// Identifies the block in the keys of the cache.
    number: u64,
    pub(super) index: BlockIndex,
    pub(super) data: Vec<OpenBlockFile>,
    pub(super) labels: LabelTable,
    pub(super) terms: TermsTable,
    pub(super) tables: BlockUnitTables,
    /// Locations of its exemplars, if it has any.
    pub(super) exemplars: Option<ExemplarsTable>,
    /// Locations of its metric metadata, if it has any.
    pub(super) metadata: Option<BlockMetadataTable>,
}

/// Locations of the units of the sections that every block has, except those of terms.
#[derive(Debug)]
pub(super) struct BlockUnitTables {
    pub(super) series: UnitTable,
    pub(super) postings: UnitTable,
    pub(super) times: UnitTable,
    pub(super) pages: UnitTable,
}

/// The position of a page entry: the index of its unit and its index in that unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageEntryPosition {
    pub(super) unit: usize,
    pub(super) index: usize,
}

impl Block {
    /// Reads and verifies `meta.json` of the block in the folder `dir`, without opening its
    /// other files.
    pub(crate) fn read_meta(env: &Env, dir: &Path) -> Result<BlockMeta, StorageError> {
        read_meta(&*env.disk, dir, &Counter::default())
    }

    /// Opens the block in the folder `dir`. Reads and verifies `meta.json` and the end of the
    /// index, and checks the lengths of the files. If one of these is damaged, uses its second copy
    /// and reports the damage.
    pub fn open(env: &Env, dir: &Path, cache: &Arc<BlockCache>) -> Result<Self, StorageError> {
        let error = match read_meta(&*env.disk, dir, &cache.read_bytes) {
            Ok(meta) => return Self::open_with_meta(env, dir, cache, Some(meta)),
            Err(e @ StorageError::Format { .. }) => return Err(e),
            Err(e) => e,
        };
        match Self::open_with_meta(env, dir, cache, None) {
            Ok(block) => {
                cache.report_recovered(&missing_as_damage(error, &dir.join(META)), INDEX);
                Ok(block)
            }
            // After a disk fault the block may still be intact, so the fault is the error to
            // return.
            Err(e) if e.is_disk_fault() => Err(e),
            Err(_) => Err(error),
        }
    }

    /// Opens a block whose metadata is `meta`, or is read from the index if that is `None`.
    fn open_with_meta(
        env: &Env,
        dir: &Path,
        cache: &Arc<BlockCache>,
        meta: Option<BlockMeta>,
    ) -> Result<Self, StorageError> {
        let bytes = meta.as_ref().map(|meta| meta.files[0].bytes);
        let index = BlockIndex::open(&env.disk, dir, bytes)?;
        let name = dir.file_name().and_then(|name| name.to_str()?.parse().ok());
        let known = meta
            .as_ref()
            .map_or(BlockIdentity::Name(name), BlockIdentity::Meta);
        let tail = IndexTail::read(&index, &known, cache)?;
        let meta = match &meta {
            Some(meta) => meta.clone(),
            None => tail.read_meta(dir)?,
        };
        let data = open_data(&*env.disk, dir, &meta, cache)?;
        let labels = tail.decode(BlockSectionKind::Labels, |bytes| {
            LabelTable::decode(bytes, meta.series)
        })?;
        let terms = tail.decode(BlockSectionKind::Terms, |bytes| {
            TermsTable::decode(bytes, index.len())
        })?;
        let tables = BlockUnitTables {
            series: tail.decode_table(BlockSectionKind::Series)?,
            postings: tail.decode_table(BlockSectionKind::Postings)?,
            times: tail.decode_table(BlockSectionKind::Times)?,
            pages: tail.decode_table(BlockSectionKind::Pages)?,
        };
        let exemplars = tail.decode_optional(BlockSectionKind::Exemplars, |bytes| {
            ExemplarsTable::decode(bytes, index.len())
        })?;
        let metadata = tail.decode_optional(BlockSectionKind::Metadata, |bytes| {
            BlockMetadataTable::decode(bytes, index.len())
        })?;
        let block = Self {
            number: cache.allocate_block_number(),
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
        block.index.report_damage(cache);
        Ok(block)
    }

    /// Returns the description of the block from `meta.json`, or from its copy in the index.
    pub fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    /// Returns the time range from the first to the last sample, both inclusive.
    pub fn range(&self) -> TimeRange {
        self.meta.range
    }

    /// Returns the number of series in the block.
    pub fn series_count(&self) -> u32 {
        self.meta.series
    }

    /// Returns the memory of the block in bytes, excluding its units in the cache.
    pub fn memory_bytes(&self) -> usize {
        let BlockUnitTables {
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

    /// Validates the assumptions of the readers: each table begins with the first item of its
    /// section, and the units of series cover all series of the block.
    fn check_tables(&self) -> Result<(), StorageError> {
        let damaged = |what: &str| self.index.damage_error(self.index.len(), what);
        let series = u64::from(self.meta.series);
        let each = u64::from(UNIT_SERIES);
        let firsts = self.tables.series.iter().map(|unit| unit.first);
        let wanted = (0..series.div_ceil(each)).map(|unit| unit * each);
        if !firsts.eq(wanted) {
            return Err(damaged("number of units differs from the number of series"));
        }
        let begins = |table: &UnitTable| table.get(0).map(|unit| unit.first);
        let BlockUnitTables { times, pages, .. } = &self.tables;
        let has_terms = self.labels.term_count() == 0 || begins(&self.terms.units) == Some(0);
        let ends = |table: &UnitTable, end: u32| {
            let last = table.len().checked_sub(1).and_then(|last| table.get(last));
            last.is_none_or(|last| last.first < end.into())
        };
        if !ends(times, u32::MAX) || !ends(&self.terms.units, self.labels.term_count()) {
            return Err(damaged("units beyond the end of the data"));
        }
        if begins(times) != Some(0) || begins(pages) != Some(0) || !has_terms {
            return Err(damaged("section that does not start with its first unit"));
        }
        Ok(())
    }

    /// Returns the unit of series with this index from the cache, reading it if necessary.
    pub(super) fn series_unit(&self, unit: usize) -> Result<Arc<SeriesUnit>, StorageError> {
        let len = self.unit_series_count(unit);
        self.load_unit(self.tables.series.get(unit), |bytes| {
            SeriesUnit::open(bytes, len)
        })
    }

    /// Returns the unit of terms with this index and the number of its first term.
    pub(super) fn terms_unit(&self, unit: usize) -> Result<(u32, Arc<TermsUnit>), StorageError> {
        let entry = self.terms.units.get(unit);
        let first = entry.map_or(0, |entry| entry.first);
        let next = self.terms.units.get(unit + 1);
        let end = next.map_or(u64::from(self.labels.term_count()), |next| next.first);
        let len = end.saturating_sub(first) as usize;
        let opened = self.load_unit(entry, |bytes| TermsUnit::open(bytes, len))?;
        Ok((first as u32, opened))
    }

    /// Returns the unit of time columns with this index and the number of its first column.
    pub(super) fn times_unit(&self, unit: usize) -> Result<(u32, Arc<TimesUnit>), StorageError> {
        let entry = self.tables.times.get(unit);
        let first = entry.map_or(0, |entry| entry.first);
        Ok((first as u32, self.load_unit(entry, TimesUnit::open)?))
    }

    /// Returns the unit of page entries with this index from the cache, reading it if necessary.
    pub(super) fn pages_unit(&self, unit: usize) -> Result<Arc<PagesUnit>, StorageError> {
        self.load_unit(self.tables.pages.get(unit), |bytes| PagesUnit::open(&bytes))
    }

    /// Returns the position of the last page whose key is not greater than `key`: the only page
    /// that can contain this part of the series.
    pub(super) fn find_page(
        &self,
        key: u64,
    ) -> Result<(PageEntryPosition, Arc<PagesUnit>), StorageError> {
        let unit = self.tables.pages.find(key).unwrap_or(0);
        let pages = self.pages_unit(unit)?;
        let behind = pages.entries().partition_point(|page| page.key() <= key);
        let index = behind.saturating_sub(1);
        Ok((PageEntryPosition { unit, index }, pages))
    }

    /// Returns the position and entry of the page after `at`, or `None` at the end of the block.
    pub(super) fn next_page(
        &self,
        at: PageEntryPosition,
        pages: &Arc<PagesUnit>,
    ) -> Result<Option<(PageEntryPosition, Arc<PagesUnit>, BlockPageEntry)>, StorageError> {
        let (unit, index) = (at.unit, at.index + 1);
        if let Some(entry) = pages.entries().get(index) {
            return Ok(Some((
                PageEntryPosition { unit, index },
                pages.clone(),
                *entry,
            )));
        }
        if unit + 1 >= self.tables.pages.len() {
            return Ok(None);
        }
        let pages = self.pages_unit(unit + 1)?;
        let first = pages.entries().first().copied();
        let at = PageEntryPosition {
            unit: unit + 1,
            index: 0,
        };
        Ok(first.map(|entry| (at, pages, entry)))
    }

    /// Returns the data page from the cache, reading it if necessary.
    pub(super) fn load_page(&self, entry: &BlockPageEntry) -> Result<Arc<DataPage>, StorageError> {
        self.cache
            .get_or_load(self.page_key(entry), || self.read_page(entry))
    }

    /// Reads a data page from its file, without the cache, and verifies its checksum.
    pub(super) fn read_page(&self, entry: &BlockPageEntry) -> Result<DataPage, StorageError> {
        let file = self.data_file(entry)?;
        let bytes = file.read(entry.offset, entry.bytes as usize, &self.cache.read_bytes)?;
        self.open_page(entry, &bytes)
    }

    /// Verifies the checksum of a data page and decodes it.
    pub(super) fn open_page(
        &self,
        entry: &BlockPageEntry,
        bytes: &[u8],
    ) -> Result<DataPage, StorageError> {
        let file = self.data_file(entry)?;
        if crc32c::crc32c(bytes) != entry.crc {
            return Err(file.damage_error(entry.offset, "page fails its checksum"));
        }
        DataPage::open(bytes).map_err(file.malformed_error(entry.offset))
    }

    /// Returns the data file that contains a page, or an error if the block has no such file.
    pub(super) fn data_file(&self, entry: &BlockPageEntry) -> Result<&OpenBlockFile, StorageError> {
        let file = self.data.get(entry.file as usize);
        file.ok_or_else(|| {
            self.index
                .damage_error(0, "page in a file that does not exist")
        })
    }

    /// Returns the cache key of a data page.
    pub(super) fn page_key(&self, entry: &BlockPageEntry) -> UnitKey {
        UnitKey {
            block: self.number,
            file: INDEX_FILE + 1 + entry.file,
            offset: entry.offset,
        }
    }

    /// Returns the cache key of a unit of the index.
    pub(super) fn unit_key(&self, entry: &UnitEntry) -> UnitKey {
        UnitKey {
            block: self.number,
            file: INDEX_FILE,
            offset: entry.offset,
        }
    }

    /// Returns the cache that holds the units of the block.
    pub(super) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Returns the error for a malformed unit of the index.
    pub(super) fn malformed_unit(&self, unit: Option<&UnitEntry>, e: DecodeError) -> StorageError {
        let offset = unit.map_or(self.index.len(), |unit| unit.offset);
        self.index.malformed_error(offset)(e)
    }

    /// Returns a unit of the index from the cache, reading it and decoding it with `open` if
    /// necessary.
    pub(super) fn load_unit<U: BlockUnit>(
        &self,
        entry: Option<&UnitEntry>,
        open: impl FnOnce(Vec<u8>) -> Result<U, DecodeError>,
    ) -> Result<Arc<U>, StorageError> {
        let lacks = || {
            self.index
                .damage_error(self.index.len(), "number of no unit")
        };
        let entry = entry.ok_or_else(lacks)?;
        self.cache.get_or_load(self.unit_key(entry), || {
            let bytes = self.read_unit(entry)?;
            open(bytes).map_err(self.index.malformed_error(entry.offset))
        })
    }

    /// Reads the bytes of a unit of the index and verifies their checksum.
    pub(super) fn read_unit(&self, entry: &UnitEntry) -> Result<Vec<u8>, StorageError> {
        self.index.read_unit(entry, &self.cache)
    }

    fn unit_series_count(&self, unit: usize) -> usize {
        let before = unit as u64 * u64::from(UNIT_SERIES);
        let rest = u64::from(self.meta.series).saturating_sub(before);
        rest.min(UNIT_SERIES.into()) as usize
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // If the block is opened again, its units get new keys, so these would never be used.
        self.cache.evict_block(self.number);
    }
}

/// Opens the data files. A truncated file, or a missing one among several, makes only its own pages
/// unreadable. A missing or empty file is an error if it is the only data file.
fn open_data(
    disk: &dyn Disk,
    dir: &Path,
    meta: &BlockMeta,
    cache: &BlockCache,
) -> Result<Vec<OpenBlockFile>, StorageError> {
    let files = &meta.files[meta.index_file_count()..];
    let mut data = Vec::with_capacity(files.len());
    for file in files {
        let path = dir.join(&file.name);
        let opened = OpenBlockFile::open(disk, &path).map_err(|e| missing_as_damage(e, &path));
        let opened = match opened {
            Err(e @ StorageError::Damaged { .. }) if files.len() > 1 => {
                cache.report_damaged(&e);
                OpenBlockFile::new_missing(&path)
            }
            opened => opened?,
        };
        if opened.is_present() && opened.len() != file.bytes {
            let damage = opened.wrong_length_error(file.bytes);
            if files.len() == 1 && opened.len() == 0 {
                return Err(damage);
            }
            cache.report_damaged(&damage);
        }
        data.push(opened);
    }
    Ok(data)
}

/// Reads and verifies `meta.json`, and adds the bytes read to `count`.
pub(super) fn read_meta(
    disk: &dyn Disk,
    dir: &Path,
    count: &Counter,
) -> Result<BlockMeta, StorageError> {
    let path = dir.join(META);
    let file = OpenBlockFile::open(disk, &path)?;
    if file.len() > META_BYTES_MAX {
        return Err(file.damage_error(0, format!("{} bytes exceed the limit", file.len())));
    }
    let bytes = file.read(0, file.len() as usize, count)?;
    let meta = BlockMeta::decode(&bytes, &path)?;
    if meta.is_valid_block() {
        Ok(meta)
    } else {
        Err(file.damage_error(0, "other files than a block has, or no series"))
    }
}
