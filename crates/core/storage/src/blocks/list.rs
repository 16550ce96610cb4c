//! The versioned manifest of blocks: the existing blocks and the samples that they own.
//!
//! ```text
//! MANIFEST-<version>    text, one entry per line; written under a temporary name, synced, renamed
//! TOMBSTONES-<version>-<checksum>    the deleted samples, if there are any; synced before its
//!                       manifest. A repeated attempt to write a version keeps the earlier file.
//! ```
//!
//! The newest readable manifest is the current one. It is the only commit point: a block that it
//! does not list does not exist, and a block that it lists is complete on disk. Invariants:
//! versions ascend; the previous files are removed only after the new ones are durable; a block is
//! listed only after all its files are synced. `docs/format/data-folder.md` specifies the lines.

use super::tombstone_file::{TombstoneFileEntry, create_temporary, is_tombstone_file, read_file};
use crate::block::{BlockId, BlockMeta};
use crate::blocks::home::RestoredHome;
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::tombstones::StoreTombstones;
use firn_model::env::Disk;
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "MANIFEST-";

const TEMPORARY: &str = "MANIFEST.tmp";

const FIRST_LINE: &str = "firn blocks 1";

/// Maximum size of the file. A line has less than 256 bytes, and a year of blocks takes some
/// hundred lines.
const BYTES_MAX: u64 = 64 << 20;

/// The kind of a block, which determines whether it may overlap others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// Written from pages, or merged from blocks that include a main block. Main blocks do not
    /// overlap.
    Main,
    /// Written from late samples or by an import, or merged from late blocks only. It may overlap
    /// any other block.
    Late,
}

/// The entry of a block in the manifest, with the properties that compaction and retention need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// Id of the block, which is also the name of its folder.
    pub id: BlockId,
    /// Whether it may overlap others.
    pub kind: BlockKind,
    /// True if the block is quarantined: it could not be opened, stays unchanged in place and is
    /// not read.
    pub is_bad: bool,
    /// Order of arrival: of two late samples at the same time, the one in the block with the lower
    /// number arrived first. All blocks of one [`BlockSet`] have the same number.
    pub sequence: u64,
    /// 1 for a block from a cut, a flush or an import, plus one for each merge.
    pub level: u32,
    /// Time range from the oldest to the newest sample, both inclusive.
    pub range: TimeRange,
    /// Total size of its files in bytes.
    pub bytes: u64,
    /// Number of series.
    pub series: u64,
    /// Number of samples.
    pub samples: u64,
}

/// The content of a manifest of blocks: the blocks, and the samples that they own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockList {
    /// Version of the manifest, incremented by each commit.
    pub(crate) version: u64,
    /// Blocks own the in-order samples before this time, in milliseconds; pages and head own those
    /// from it on.
    pub(crate) cut: TimestampMs,
    /// Blocks contain the late samples of all WAL records up to and including this position.
    pub(crate) late_through: LogPosition,
    /// Sequence number of the next block.
    pub(crate) next_sequence: u64,
    /// The blocks by kind and then by sequence number. This is their order of precedence at equal
    /// times.
    pub(crate) blocks: Vec<BlockEntry>,
    /// The deleted samples of blocks, pages and head.
    pub(crate) tombstones: Arc<StoreTombstones>,
}

impl Default for BlockList {
    fn default() -> Self {
        Self {
            version: 0,
            cut: i64::MIN,
            late_through: LogPosition(0),
            next_sequence: 1,
            blocks: Vec::new(),
            tombstones: Arc::default(),
        }
    }
}

/// The result of reading the manifests in a folder at start.
pub(crate) struct LoadedBlockList {
    pub(crate) list: BlockList,
    /// Damage to manifests newer than `list`, which could not be read.
    pub(crate) damages: Vec<Damage>,
    /// Paths of older manifests and of files with tombstones that belong to none, which may be
    /// removed once `list` is in use.
    pub(crate) others: Vec<PathBuf>,
    /// The file with the tombstones of `list`, if there is one.
    tombstones: Option<TombstoneFileEntry>,
    /// Damage to the tombstones of `list`, whose deleted samples are visible again.
    pub(crate) lost_tombstones: Option<Damage>,
}

/// The content of a manifest, with size and checksum of its file with tombstones.
struct ParsedManifest {
    list: BlockList,
    tombstones: Option<TombstoneFileEntry>,
}

impl LoadedBlockList {
    /// Reads the tombstones of the list. Damage is kept for the caller; a disk fault is an error.
    fn read_tombstones(&mut self, disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
        if let Some(entry) = self.tombstones {
            match entry.read(disk, dir, self.list.version)? {
                Ok(set) => self.list.tombstones = Arc::new(set),
                Err(damage) => self.lost_tombstones = Some(damage),
            }
        }
        Ok(())
    }
}

impl BlockList {
    /// Returns the list of a home.
    pub(crate) fn from_restored(restored: RestoredHome) -> Self {
        let mut blocks = restored.blocks;
        blocks.sort_by_key(|block| (block.kind, block.sequence));
        let last = blocks.iter().map(|block| block.sequence).max();
        Self {
            version: 1,
            cut: restored.cut,
            late_through: restored.late_through,
            next_sequence: last.unwrap_or(0) + 1,
            blocks,
            tombstones: Arc::default(),
        }
    }

    /// Reads the newest readable manifest in `dir`, or returns an empty list if there is none. A
    /// disk fault is an error rather than a reason to fall back to an older manifest.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<LoadedBlockList, StorageError> {
        let names = disk.list(dir).map_err(StorageError::io("list", dir))?;
        let mut versions: Vec<u64> = names
            .iter()
            .filter_map(|name| parse_version(name))
            .collect();
        versions.sort_unstable();
        let mut found = LoadedBlockList {
            list: BlockList::default(),
            damages: Vec::new(),
            others: Vec::new(),
            tombstones: None,
            lost_tombstones: None,
        };
        let mut is_found = false;
        for version in versions.iter().rev() {
            let path = manifest_path(dir, *version);
            if is_found {
                found.others.push(path);
                continue;
            }
            let text =
                read_file(disk, &path, BYTES_MAX).map_err(StorageError::io("read", &path))?;
            let parsed = std::str::from_utf8(&text).ok().and_then(parse_manifest);
            match parsed.filter(|parsed| parsed.list.version == *version) {
                Some(parsed) => {
                    found.list = parsed.list;
                    is_found = true;
                    found.tombstones = parsed.tombstones;
                    found.read_tombstones(disk, dir)?;
                }
                None => {
                    let what = "content differs from its checksum".to_owned();
                    let damage = Damage::for_file(DamageKind::Manifest, &path, what);
                    found.damages.push(damage);
                }
            }
        }
        let current = found
            .tombstones
            .map(|entry| entry.file_name(found.list.version));
        let unused = |name: &&PathBuf| is_tombstone_file(name) && Some(*name) != current.as_ref();
        if is_found {
            found
                .others
                .extend(names.iter().filter(unused).map(|name| dir.join(name)));
        }
        // Never reuse the version of a damaged manifest.
        let newest = versions.last().copied().unwrap_or(0);
        found.list.version = found.list.version.max(newest);
        Ok(found)
    }

    /// Removes the tombstones that hide nothing any more.
    pub(crate) fn prune_tombstones(&mut self) {
        let is_listed = |id| self.contains(id);
        let pruned = self
            .tombstones
            .pruned(self.cut, self.late_through, is_listed);
        if let Some(pruned) = pruned {
            self.tombstones = Arc::new(pruned);
        }
    }

    /// Writes the list into `dir` under its version and removes the previous manifest. The new one
    /// is durable on return. After an error, a start may find either of them.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
        let temporary = dir.join(TEMPORARY);
        let io_error = StorageError::io("write manifest of blocks", &temporary);
        let written = self.write_file(disk, dir, &temporary);
        let current = written.map_err(io_error)?;
        // If this fails, the next start removes the old files.
        for name in disk.list(dir).unwrap_or_default() {
            if is_tombstone_file(&name) && Some(&name) != current.as_ref() {
                let _ = disk.remove_file(&dir.join(name));
            }
        }
        if let Some(before) = self.version.checked_sub(1)
            && disk.remove_file(&manifest_path(dir, before)).is_ok()
        {
            let _ = disk.sync_dir(dir);
        }
        Ok(())
    }

    /// Writes the files. Returns the name of that with the tombstones, if there are any.
    fn write_file(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        temporary: &Path,
    ) -> io::Result<Option<PathBuf>> {
        let tombstones = if self.tombstones.is_empty() {
            None
        } else {
            Some(TombstoneFileEntry::write(
                &self.tombstones,
                disk,
                dir,
                self.version,
            )?)
        };
        let file = create_temporary(disk, temporary)?;
        file.write_all_at(0, self.to_text(tombstones).as_bytes())?;
        file.sync_data()?;
        disk.rename(temporary, &manifest_path(dir, self.version))?;
        disk.sync_dir(dir)?;
        Ok(tombstones.map(|entry| entry.file_name(self.version)))
    }

    /// Returns whether `name` is the file name of a manifest or of its tombstones.
    pub(crate) fn is_manifest_name(name: &Path) -> bool {
        parse_version(name).is_some() || is_tombstone_file(name)
    }

    /// Returns whether the manifest lists a block.
    pub(crate) fn contains(&self, id: BlockId) -> bool {
        self.blocks.iter().any(|entry| entry.id == id)
    }

    /// Adds a block, keeping the list sorted by kind and sequence number.
    pub(crate) fn add(&mut self, entry: BlockEntry) {
        self.blocks.push(entry);
        self.blocks
            .sort_by_key(|block| (block.kind, block.sequence));
    }

    /// Panics unless the list may follow `before`, the current one: the cut and the position of
    /// late samples do not move back, and a new block is listed once.
    pub(super) fn assert_follows(&self, before: &Self) {
        let (cut, late) = (before.cut, before.late_through);
        assert!(cut <= self.cut, "cut moved from {cut} back to {}", self.cut);
        assert!(
            late <= self.late_through,
            "late samples from {late:?} back to {:?}",
            self.late_through
        );
        assert!(
            before.next_sequence <= self.next_sequence,
            "sequence numbers of blocks are not reused"
        );
        for added in self.blocks.iter().filter(|e| !before.contains(e.id)) {
            let same = self.blocks.iter().filter(|entry| entry.id == added.id);
            assert_eq!(same.count(), 1, "times that block {} is added", added.id);
        }
    }

    /// Returns the next sequence number and increments it, so that no two commits use the same one.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    fn to_text(&self, tombstones: Option<TombstoneFileEntry>) -> String {
        let (version, cut, late, next) = (
            self.version,
            self.cut,
            self.late_through.0,
            self.next_sequence,
        );
        let mut text =
            format!("{FIRST_LINE}\nversion {version}\ncut {cut}\nlate {late}\nnext {next}\n");
        for entry in &self.blocks {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", entry.to_line());
        }
        if let Some(TombstoneFileEntry { bytes, sum }) = tombstones {
            let _ = writeln!(text, "tombstones {bytes} {sum:08x}");
        }
        let sum = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        text
    }
}

impl BlockEntry {
    /// Creates the entry of an intact block from its metadata.
    pub(crate) fn from_meta(meta: &BlockMeta, kind: BlockKind, sequence: u64) -> Self {
        Self {
            id: meta.id,
            kind,
            is_bad: false,
            sequence,
            level: meta.level,
            range: meta.range,
            bytes: meta.file_bytes(),
            series: u64::from(meta.series),
            samples: meta.samples,
        }
    }

    fn to_line(&self) -> String {
        let kind = match self.kind {
            BlockKind::Main => "main",
            BlockKind::Late => "late-block",
        };
        let state = if self.is_bad { "bad" } else { "sound" };
        format!(
            "{kind} {} {state} {} {} {} {} {} {} {}",
            self.id,
            self.sequence,
            self.level,
            self.range.min,
            self.range.max,
            self.bytes,
            self.series,
            self.samples
        )
    }

    fn parse(kind: BlockKind, words: &[&str]) -> Option<Self> {
        let [id, state, sequence, level, min, max, bytes, series, samples] = words else {
            return None;
        };
        Some(Self {
            id: id.parse().ok()?,
            kind,
            is_bad: match *state {
                "bad" => true,
                "sound" => false,
                _ => return None,
            },
            sequence: sequence.parse().ok()?,
            level: level.parse().ok()?,
            range: TimeRange::new(min.parse().ok()?, max.parse().ok()?),
            bytes: bytes.parse().ok()?,
            series: series.parse().ok()?,
            samples: samples.parse().ok()?,
        })
    }
}

/// The blocks of one merge, each with a consecutive part of the series in block order, or a single
/// block. They have the same sequence number, and are merged and expire together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSet<'a>(&'a [BlockEntry]);

impl<'a> BlockSet<'a> {
    /// Returns the sets of blocks in the order of [`BlockList::blocks`].
    pub(crate) fn split_into_sets(blocks: &'a [BlockEntry]) -> impl Iterator<Item = Self> {
        blocks
            .chunk_by(|a, b| (a.kind, a.sequence) == (b.kind, b.sequence))
            .map(BlockSet)
    }

    /// Returns the blocks of the set; there is at least one.
    pub(crate) fn blocks(&self) -> &'a [BlockEntry] {
        self.0
    }

    pub(crate) fn kind(&self) -> BlockKind {
        self.0[0].kind
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.0[0].sequence
    }

    /// Returns whether at least one of the blocks is quarantined.
    pub(crate) fn is_bad(&self) -> bool {
        self.0.iter().any(|block| block.is_bad)
    }

    /// Returns the time range from the oldest to the newest sample of all blocks, both inclusive.
    pub(crate) fn range(&self) -> TimeRange {
        let min = self.0.iter().map(|block| block.range.min).min();
        let max = self.0.iter().map(|block| block.range.max).max();
        TimeRange::new(min.unwrap_or(i64::MAX), max.unwrap_or(i64::MIN))
    }

    /// Returns the total size of the blocks in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|block| block.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the highest level of the blocks.
    pub(crate) fn level(&self) -> u32 {
        self.0.iter().map(|block| block.level).max().unwrap_or(0)
    }
}

fn manifest_path(dir: &Path, version: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{version}"))
}

/// Returns the version in the file name of a manifest, or `None` for any other name.
fn parse_version(name: &Path) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(PREFIX)?;
    let version: u64 = digits.parse().ok()?;
    (version.to_string() == digits).then_some(version)
}

/// Parses the text of a manifest. Returns `None` unless it is exactly as [`BlockList::to_text`]
/// writes it.
fn parse_manifest(text: &str) -> Option<ParsedManifest> {
    let body = text.strip_suffix('\n')?;
    let (before, sum) = body.rsplit_once("\nsum ")?;
    let summed = text.get(..before.len() + 1)?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(summed.as_bytes()) {
        return None;
    }
    let mut lines = before.lines();
    if lines.next()? != FIRST_LINE {
        return None;
    }
    let (mut list, mut tombstones) = (BlockList::default(), None);
    for line in lines {
        let mut words = line.split(' ');
        let name = words.next()?;
        let words: Vec<&str> = words.collect();
        match (name, words.as_slice()) {
            ("version", [version]) => list.version = version.parse().ok()?,
            ("cut", [time]) => list.cut = time.parse().ok()?,
            ("late", [position]) => list.late_through = LogPosition(position.parse().ok()?),
            ("next", [sequence]) => list.next_sequence = sequence.parse().ok()?,
            ("main", words) => list.blocks.push(BlockEntry::parse(BlockKind::Main, words)?),
            ("late-block", words) => list.blocks.push(BlockEntry::parse(BlockKind::Late, words)?),
            ("tombstones", [bytes, sum]) => {
                let (bytes, sum) = (bytes.parse().ok()?, u32::from_str_radix(sum, 16).ok()?);
                tombstones = Some(TombstoneFileEntry { bytes, sum });
            }
            _ => return None,
        }
    }
    Some(ParsedManifest { list, tombstones })
}
