//! Reconstructs the content of `meta.json` for a block of version 1 from its index and its pages.
//!
//! Blocks of later versions have a copy of `meta.json` in their index. Sources, nominal range,
//! shard and the number of histograms cannot be derived. The reconstruction reads all pages of the
//! block.

use super::cache::BlockCache;
use super::data_page::DataPage;
use super::file::OpenBlockFile;
use super::index::BlockIndex;
use super::layout::{Footer, INDEX, data_file_name};
use super::meta::{BlockMeta, FileMeta};
use super::pages::{BlockPageEntry, PagesUnit};
use super::unit::UnitTable;
use crate::error::StorageError;
use firn_model::sample::TimeRange;
use std::path::Path;

/// Reconstructs the metadata of the block in `dir` from its `footer` and the `table` of its pages.
pub(super) fn reconstruct_meta(
    index: &BlockIndex,
    footer: &Footer,
    table: &UnitTable,
    dir: &Path,
    cache: &BlockCache,
) -> Result<BlockMeta, StorageError> {
    let mut files = vec![index.first().compute_file_meta(INDEX, cache)?];
    let mut data = Vec::new();
    // Data files are numbered without gaps, so the first missing one is the end.
    while let Ok(file) = OpenBlockFile::open(index.disk(), &dir.join(data_file_name(data.len()))) {
        files.push(file.compute_file_meta(&data_file_name(data.len()), cache)?);
        data.push(file);
    }
    let (mut range, mut columns) = (None, 0);
    for entry in table.iter() {
        let bytes = index.read_unit(entry, cache)?;
        let unit = PagesUnit::open(&bytes).map_err(index.malformed_error(entry.offset))?;
        for page in unit.entries() {
            range = TimeRange::hull_of(range, Some(page.range));
            columns += count_page_columns(page, &data, cache);
        }
    }
    let lacks = || index.damage_error(index.len(), "block without pages");
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
fn count_page_columns(page: &BlockPageEntry, data: &[OpenBlockFile], cache: &BlockCache) -> u64 {
    let read = data.get(page.file as usize).and_then(|file| {
        let bytes = file.read(page.offset, page.bytes as usize, &cache.read_bytes);
        let bytes = bytes.ok()?;
        let is_sound = crc32c::crc32c(&bytes) == page.crc;
        is_sound.then(|| DataPage::open(&bytes).ok()).flatten()
    });
    read.map_or(0, |page| page.len() as u64)
}

impl OpenBlockFile {
    /// Returns the file's entry for `meta.json`, with a checksum computed from its current content.
    fn compute_file_meta(&self, name: &str, cache: &BlockCache) -> Result<FileMeta, StorageError> {
        Ok(FileMeta {
            name: name.to_owned(),
            bytes: self.len(),
            crc: self.checksum(&cache.read_bytes)?,
        })
    }
}
