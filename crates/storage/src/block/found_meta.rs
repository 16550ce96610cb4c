//! Reconstructs the content of `meta.json` for a block of version 1 from its index and its pages.
//!
//! Blocks of later versions have a copy of `meta.json` in their index. Sources, nominal range,
//! shard and the number of histograms cannot be derived. The reconstruction reads all pages of the
//! block.

use super::cache::BlockCache;
use super::data_page::DataPage;
use super::file::BlockRanges;
use super::index::BlockIndex;
use super::layout::{Footer, INDEX, data_name};
use super::meta::{BlockMeta, FileMeta};
use super::pages::{PageEntry, PagesUnit};
use super::unit::UnitTable;
use crate::error::StorageError;
use firn_model::sample::TimeRange;
use std::path::Path;

/// Reconstructs the metadata of the block in `dir` from its `footer` and the `table` of its pages.
pub(super) fn find_meta(
    index: &BlockIndex,
    footer: &Footer,
    table: &UnitTable,
    dir: &Path,
    cache: &BlockCache,
) -> Result<BlockMeta, StorageError> {
    let mut files = vec![index.first().summed(INDEX, cache)?];
    let mut data = Vec::new();
    // Data files are numbered without gaps, so the first missing one is the end.
    while let Ok(file) = BlockRanges::at(index.disk(), &dir.join(data_name(data.len()))) {
        files.push(file.summed(&data_name(data.len()), cache)?);
        data.push(file);
    }
    let (mut range, mut columns) = (None, 0);
    for entry in table.iter() {
        let bytes = index.read_unit(entry, cache)?;
        let unit = PagesUnit::open(&bytes).map_err(index.malformed(entry.offset))?;
        for page in unit.entries() {
            range = TimeRange::hull_of(range, Some(page.range));
            columns += columns_of(page, &data, cache);
        }
    }
    let lacks = || index.damaged(index.len(), "block without pages");
    Ok(BlockMeta {
        format: footer.version,
        id: footer.id,
        is_late: true,
        level: 1,
        sources: vec![footer.id],
        range: range.ok_or_else(lacks)?,
        nominal: None,
        samples: footer.samples,
        histograms: 0,
        series: footer.series,
        columns,
        shard: None,
        files,
    })
}

/// Returns the number of columns in a page, or 0 if the page is damaged.
fn columns_of(page: &PageEntry, data: &[BlockRanges], cache: &BlockCache) -> u64 {
    let read = data.get(page.file as usize).and_then(|file| {
        let bytes = file.read(page.offset, page.bytes as usize, &cache.read_bytes);
        let bytes = bytes.ok()?;
        let is_sound = crc32c::crc32c(&bytes) == page.crc;
        is_sound.then(|| DataPage::open(&bytes).ok()).flatten()
    });
    read.map_or(0, |page| page.len() as u64)
}

impl BlockRanges {
    /// Returns the file's entry for `meta.json`, with a checksum computed from its current content.
    fn summed(&self, name: &str, cache: &BlockCache) -> Result<FileMeta, StorageError> {
        Ok(FileMeta {
            name: name.to_owned(),
            bytes: self.len(),
            crc: self.checksum(&cache.read_bytes)?,
        })
    }
}
