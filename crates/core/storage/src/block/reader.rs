//! An open block: its files, and the sections that locate its units.
//!
//! The sections are kept in memory, the units are read on demand. This file opens a block and
//! delegates each query to the reader of the sections that it needs: [`BlockLookup`],
//! [`BlockColumnReader`], [`LabelsReader`], [`BlockPrefetcher`] or [`BlockVerifier`].

use super::cache::BlockCache;
use super::columns::BlockColumnReader;
use super::exemplars::ExemplarsTable;
use super::file::OpenBlockFile;
use super::files::BlockFiles;
use super::index::{BlockIndex, missing_as_damage};
use super::labels::{LabelTable, TermsTable};
use super::layout::{BlockSectionKind, INDEX};
use super::lookup::BlockLookup;
use super::meta::{BlockMeta, META, META_BYTES_MAX};
use super::metadata::{BlockMetadataTable, MetricMetadataSet};
use super::prefetch::BlockPrefetcher;
use super::sections::{PagesSection, PostingsSection, SeriesSection, TimesSection};
use super::series_labels::{LabelsReader, read_label_terms};
use super::tail::{BlockIdentity, IndexTail};
use super::terms_section::TermsSection;
use super::unit::UnitTable;
use super::verify::{BlockFault, BlockVerifier};
use crate::error::StorageError;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::env::{Disk, Env};
use firn_model::error::Error;
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::LabelsRef;
use firn_model::matcher::Matcher;
use firn_model::metrics::Counter;
use firn_model::sample::TimeRange;
use firn_model::store::MatcherCost;
use std::path::Path;
use std::sync::Arc;

/// An open block. Its units are read on demand through the shared cache.
#[derive(Debug)]
pub struct Block {
    meta: BlockMeta,
    pub(super) files: BlockFiles,
    pub(super) series: SeriesSection,
    pub(super) terms: TermsSection,
    pub(super) postings: PostingsSection,
    pub(super) times: TimesSection,
    pub(super) pages: PagesSection,
    /// Locations of its exemplars, if it has any.
    pub(super) exemplars: Option<ExemplarsTable>,
    /// Locations of its metric metadata, if it has any.
    pub(super) metadata: Option<BlockMetadataTable>,
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
            Err(e) if e.is_home_fault() => return Err(e),
            Err(e) => e,
        };
        match Self::open_with_meta(env, dir, cache, None) {
            Ok(block) => {
                cache.report_recovered(&missing_as_damage(error, &dir.join(META)), INDEX);
                Ok(block)
            }
            // After a fault the block may still be intact, so the fault is the error to return.
            Err(e) if e.is_disk_fault() || e.is_home_fault() => Err(e),
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
        let exemplars = tail.decode_optional(BlockSectionKind::Exemplars, |bytes| {
            ExemplarsTable::decode(bytes, index.len())
        })?;
        let metadata = tail.decode_optional(BlockSectionKind::Metadata, |bytes| {
            BlockMetadataTable::decode(bytes, index.len())
        })?;
        let block = Self {
            series: SeriesSection {
                units: tail.decode_table(BlockSectionKind::Series)?,
                count: meta.series,
            },
            postings: PostingsSection {
                units: tail.decode_table(BlockSectionKind::Postings)?,
                series: meta.series,
            },
            times: TimesSection {
                units: tail.decode_table(BlockSectionKind::Times)?,
            },
            pages: PagesSection {
                units: tail.decode_table(BlockSectionKind::Pages)?,
            },
            terms: TermsSection { labels, terms },
            exemplars,
            metadata,
            files: BlockFiles::new(cache, index, data),
            meta,
        };
        block.check_tables()?;
        block.files.index.report_damage(cache);
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
        let (series, postings) = (&self.series.units, &self.postings.units);
        let tables = [series, postings, &self.times.units, &self.pages.units];
        let exemplars = self.exemplars.iter().map(|table| &table.units);
        let metadata = self.metadata.iter().map(|table| &table.units);
        let tables = tables.into_iter().chain(exemplars).chain(metadata);
        let tables: usize = tables.map(UnitTable::memory_bytes).sum();
        let TermsSection { labels, terms } = &self.terms;
        size_of::<Self>() + tables + labels.memory_bytes() + terms.memory_bytes()
    }

    /// Validates the assumptions of the readers: each table begins with the first item of its
    /// section, and the units of series cover all series of the block.
    fn check_tables(&self) -> Result<(), StorageError> {
        let index = &self.files.index;
        let damaged = |what: &str| index.damage_error(index.len(), what);
        if !self.series.is_complete() {
            return Err(damaged("number of units differs from the number of series"));
        }
        let begins = |table: &UnitTable| table.get(0).map(|unit| unit.first);
        let (times, pages) = (&self.times.units, &self.pages.units);
        let TermsSection { labels, terms } = &self.terms;
        let has_terms = labels.term_count() == 0 || begins(&terms.units) == Some(0);
        let ends = |table: &UnitTable, end: u32| {
            let last = table.len().checked_sub(1).and_then(|last| table.get(last));
            last.is_none_or(|last| last.first < end.into())
        };
        if !ends(times, u32::MAX) || !ends(&terms.units, labels.term_count()) {
            return Err(damaged("units beyond the end of the data"));
        }
        if begins(times) != Some(0) || begins(pages) != Some(0) || !has_terms {
            return Err(damaged("section that does not start with its first unit"));
        }
        Ok(())
    }

    /// Returns the sections that lookups read.
    fn begin_lookup(&self) -> BlockLookup<'_> {
        BlockLookup {
            files: &self.files,
            series: &self.series,
            terms: &self.terms,
            postings: &self.postings,
        }
    }

    /// Returns the ordinals of the series that satisfy all matchers, in ascending order. On return,
    /// `memory` has grown by the size of the result.
    pub fn lookup(
        &self,
        matchers: &[Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<u32>, Error> {
        let lookup = self.begin_lookup();
        lookup.find_matching_series(matchers, cancel, memory)
    }

    /// Returns the part of each matcher in such a lookup.
    pub fn explain(
        &self,
        matchers: &[Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<MatcherCost>, Error> {
        self.begin_lookup().explain(matchers, cancel, memory)
    }

    /// Returns the sorted label names of the series that match.
    pub fn label_names(
        &self,
        matchers: &[Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<String>, Error> {
        self.begin_lookup().label_names(matchers, cancel, memory)
    }

    /// Returns the sorted values of the label `name` of the series that match.
    pub fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let lookup = self.begin_lookup();
        lookup.label_values(name, matchers, cancel, memory)
    }

    /// Calls `each` with the index in `ordinals` and the label set of each of these series.
    /// `ordinals` must ascend.
    pub fn read_labels(
        &self,
        ordinals: &[u32],
        each: &mut dyn FnMut(usize, LabelsRef<'_>),
    ) -> Result<(), StorageError> {
        LabelsReader::for_lookup().read(self, ordinals.iter().copied(), each)
    }

    /// Calls `each` with the index in `ordinals` and the terms of each of these series, sorted by
    /// label name. `ordinals` must ascend.
    pub fn read_label_terms(
        &self,
        ordinals: &[u32],
        each: &mut dyn FnMut(usize, &[u32]),
    ) -> Result<(), StorageError> {
        read_label_terms(self, ordinals, each)
    }

    /// Appends the label name and value of a term in the encoding of label sets.
    pub fn push_pair(&self, term: u32, into: &mut Vec<u8>) -> Result<(), StorageError> {
        self.terms.push_pair(&self.files, term, into)
    }

    /// Creates a reader of the block's columns. It reads nothing until its first call.
    pub fn reader(&self) -> BlockColumnReader<'_> {
        BlockColumnReader::new(self)
    }

    /// Loads the pages that contain samples of the series in `range`, and their time columns, into
    /// the cache, reading adjacent units together. `ordinals` must ascend. Units that are cached or
    /// that another thread is reading are skipped. Callers should limit each request to a fraction
    /// of the cache. Returns the number of units that were read.
    pub fn prefetch(&self, ordinals: &[u32], range: TimeRange) -> Result<usize, StorageError> {
        let prefetcher = BlockPrefetcher {
            files: &self.files,
            pages: &self.pages,
            times: &self.times,
        };
        prefetcher.load(ordinals, range)
    }

    /// Returns the number of exemplars in the block, which is 0 for blocks without that section.
    pub fn exemplar_count(&self) -> u64 {
        self.exemplars.as_ref().map_or(0, |table| table.count)
    }

    /// Returns whether the block may contain exemplars in `range`, without reading any of them.
    pub fn has_exemplars_in(&self, range: TimeRange) -> bool {
        let table = self.exemplars.as_ref();
        table.is_some_and(|table| table.range.overlaps(&range))
    }

    /// Calls `each` with every exemplar of the series with these ordinals, along with the index of
    /// the series in `series`. Stops at the first error that `each` returns.
    pub fn read_exemplars<E: From<StorageError>>(
        &self,
        series: &[u32],
        each: impl FnMut(usize, TimedExemplar<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.exemplars {
            Some(table) => table.read(&self.files, series, each),
            None => Ok(()),
        }
    }

    /// Returns the number of metrics that the block has metadata for.
    pub fn metadata_count(&self) -> u64 {
        self.metadata.as_ref().map_or(0, |table| table.metrics)
    }

    /// Adds the metadata of `metric`, or of all metrics if it is `None`, to `into`.
    pub fn read_metadata(
        &self,
        metric: Option<&str>,
        into: &mut MetricMetadataSet,
    ) -> Result<(), StorageError> {
        match &self.metadata {
            Some(table) => table.read(&self.files, metric, into),
            None => Ok(()),
        }
    }

    /// Returns the reader that verifies the whole block.
    fn verifier(&self) -> BlockVerifier<'_> {
        BlockVerifier {
            block: self,
            files: &self.files,
        }
    }

    /// Reads all bytes, units and pages, and calls `each` with every damage found. Damage
    /// to one place can be reported twice: for the file, whose checksum does not match, and for the
    /// unit that cannot be read.
    pub fn verify(&self, each: &mut dyn FnMut(BlockFault)) {
        self.verifier().verify(each);
    }

    /// Restores the damaged files in the folder `dir` of the block from their second copies. If the
    /// index and its copy are both damaged, they are left unchanged.
    pub(crate) fn restore(&self, env: &Env, dir: &Path) -> Result<(), StorageError> {
        self.verifier().restore(env, dir)
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
