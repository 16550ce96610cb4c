//! The files of an open block: reads its units and data pages through the shared cache.
//!
//! Invariant: the bytes of a unit or of a page are decoded only if they match their checksum. Which
//! unit contains an item is left to the sections ([`super::sections`]).

use super::cache::{BlockCache, BlockUnit};
use super::cached::UnitKey;
use super::data_page::DataPage;
use super::file::OpenBlockFile;
use super::index::BlockIndex;
use super::pages::BlockPageEntry;
use super::unit::UnitEntry;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use std::sync::Arc;

/// Number of the index in cache keys; the data files follow it.
const INDEX_FILE: u32 = 0;

/// The index and the data files of a block, and the cache of their units.
#[derive(Debug)]
pub(super) struct BlockFiles {
    cache: Arc<BlockCache>,
    /// Identifies the block in the keys of the cache.
    number: u64,
    pub(super) index: BlockIndex,
    pub(super) data: Vec<OpenBlockFile>,
}

impl BlockFiles {
    /// Returns the open files, whose units are read through `cache`.
    pub(super) fn new(
        cache: &Arc<BlockCache>,
        index: BlockIndex,
        data: Vec<OpenBlockFile>,
    ) -> Self {
        Self {
            number: cache.allocate_block_number(),
            cache: cache.clone(),
            index,
            data,
        }
    }

    /// Returns the cache that holds the units of the block.
    pub(super) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
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

    /// Returns the error for a malformed unit of the index.
    pub(super) fn malformed_unit(&self, unit: Option<&UnitEntry>, e: DecodeError) -> StorageError {
        let offset = unit.map_or(self.index.len(), |unit| unit.offset);
        self.index.malformed_error(offset)(e)
    }

    /// Returns the error for a series with a number of no label value.
    pub(super) fn missing_value_error(&self) -> StorageError {
        self.index
            .damage_error(self.index.len(), "series with a value that does not exist")
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
}

impl Drop for BlockFiles {
    fn drop(&mut self) {
        // If the block is opened again, its units get new keys, so these would never be used.
        self.cache.evict_block(self.number);
    }
}
