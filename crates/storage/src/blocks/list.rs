//! The numbered manifest of blocks: which blocks there are, and what they own.
//!
//! ```text
//! MANIFEST-<version>      text, a line each; written under another name, synced, renamed
//! ```
//!
//! The newest one that reads is what counts. It is the only commit point: a block that it does not
//! name is not there, and one that it names is whole on disk. Invariants: versions ascend; the file
//! before is removed only after the new one is durable; it never names a block of which a file was
//! not synced. `docs/format/data-folder.md` draws the lines.

use crate::block::{BlockId, BlockMeta};
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use firn_model::env::{Disk, OpenMode};
use firn_model::log::Position;
use firn_model::sample::{TimeRange, TimestampMs};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "MANIFEST-";

const TEMPORARY: &str = "MANIFEST.tmp";

const FIRST_LINE: &str = "firn blocks 1";

/// A line has less than 256 bytes; a year of blocks is some hundred lines.
const BYTES_MAX: u64 = 64 << 20;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BlockKind {
    /// Made of pages, or of blocks among which was such a one. Main blocks do not overlap.
    Main,
    /// Made of late samples or of an import. It may overlap anything.
    Late,
}

/// A block as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    /// Its name.
    pub(crate) id: BlockId,
    pub(crate) kind: BlockKind,
    /// Whether it is in quarantine: it did not open, is left as it is where it is, and not read.
    pub(crate) is_bad: bool,
    /// Its place in the order of arrival: of two late samples at one time that of the lower number
    /// came first. Blocks of one [`BlockSet`] share it.
    pub(crate) sequence: u64,
    /// How often its samples were merged.
    pub(crate) level: u32,
    /// From its oldest sample to its newest.
    pub(crate) range: TimeRange,
    /// Of all its files.
    pub(crate) bytes: u64,
    pub(crate) series: u64,
    pub(crate) samples: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockList {
    /// Ascends with every commit.
    pub(crate) version: u64,
    /// Blocks own the in-order samples before this time, pages and head those from it on.
    pub(crate) cut: TimestampMs,
    /// Late samples of log records up to here are in blocks.
    pub(crate) late_through: Position,
    /// The sequence number of the next block.
    pub(crate) next_sequence: u64,
    /// By kind, then by sequence number: the order in which they win at one time.
    pub(crate) blocks: Vec<BlockEntry>,
}

impl Default for BlockList {
    fn default() -> Self {
        Self {
            version: 0,
            cut: i64::MIN,
            late_through: Position(0),
            next_sequence: 1,
            blocks: Vec::new(),
        }
    }
}

/// What a start found of the manifests in a folder.
pub(crate) struct FoundList {
    pub(crate) list: BlockList,
    /// Manifests that could not be read; an older one counts then.
    pub(crate) damages: Vec<Damage>,
    /// Files of other versions, which may be removed once the list is in use.
    pub(crate) others: Vec<PathBuf>,
}

impl BlockList {
    /// The newest manifest in `dir` that reads; an empty one if there is none. A disk that fails is
    /// an error: an older manifest must not count then.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<FoundList, StorageError> {
        let names = disk.list(dir).map_err(StorageError::io("list", dir))?;
        let mut versions: Vec<u64> = names.iter().filter_map(|name| version_of(name)).collect();
        versions.sort_unstable();
        let mut found = FoundList {
            list: BlockList::default(),
            damages: Vec::new(),
            others: Vec::new(),
        };
        let mut is_found = false;
        for version in versions.iter().rev() {
            let path = path_of(dir, *version);
            if is_found {
                found.others.push(path);
                continue;
            }
            let text = read_file(disk, &path).map_err(StorageError::io("read", &path))?;
            let list = std::str::from_utf8(&text).ok().and_then(parse);
            match list.filter(|list| list.version == *version) {
                Some(list) => {
                    found.list = list;
                    is_found = true;
                }
                None => {
                    let what = "content differs from its checksum".to_owned();
                    let damage = Damage::of_file(DamageKind::Manifest, &path, what);
                    found.damages.push(damage);
                }
            }
        }
        // A number is not given twice.
        let newest = versions.last().copied().unwrap_or(0);
        found.list.version = found.list.version.max(newest);
        Ok(found)
    }

    /// Writes the list into `dir` under its version; durable on return. The one before is removed.
    /// After a failure a start may find this one or that.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
        let temporary = dir.join(TEMPORARY);
        let io_error = StorageError::io("write manifest of blocks", &temporary);
        self.put(disk, dir, &temporary).map_err(io_error)?;
        // What is left of a failure here goes with the next start.
        if let Some(before) = self.version.checked_sub(1)
            && disk.remove_file(&path_of(dir, before)).is_ok()
        {
            let _ = disk.sync_dir(dir);
        }
        Ok(())
    }

    fn put(&self, disk: &dyn Disk, dir: &Path, temporary: &Path) -> io::Result<()> {
        match disk.remove_file(temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = disk.open(temporary, OpenMode::CreateNew)?;
        file.write_all_at(0, self.text().as_bytes())?;
        file.sync_data()?;
        disk.rename(temporary, &path_of(dir, self.version))?;
        disk.sync_dir(dir)
    }

    /// Whether a file of this name is a manifest.
    pub(crate) fn is_name(name: &Path) -> bool {
        version_of(name).is_some()
    }

    /// Whether it names a block.
    pub(crate) fn names(&self, id: BlockId) -> bool {
        self.blocks.iter().any(|entry| entry.id == id)
    }

    /// Adds a block behind all of its kind.
    pub(crate) fn add(&mut self, entry: BlockEntry) {
        self.blocks.push(entry);
        self.blocks
            .sort_by_key(|block| (block.kind, block.sequence));
    }

    /// The next sequence number.
    pub(crate) fn take_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    fn text(&self) -> String {
        let (version, cut, late, next) = (
            self.version,
            self.cut,
            self.late_through.0,
            self.next_sequence,
        );
        let mut text =
            format!("{FIRST_LINE}\nversion {version}\ncut {cut}\nlate {late}\nnext {next}\n");
        for entry in &self.blocks {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", entry.line());
        }
        let sum = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        text
    }
}

impl BlockEntry {
    /// The entry of a block with `meta`.
    pub(crate) fn of(meta: &BlockMeta, kind: BlockKind, sequence: u64) -> Self {
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

    fn line(&self) -> String {
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

/// Blocks of one merge, a stretch of the block order each, or one block alone: they share their
/// sequence number, are merged together and leave the retention together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSet<'a>(&'a [BlockEntry]);

impl<'a> BlockSet<'a> {
    /// The sets of blocks in the order of [`BlockList::blocks`].
    pub(crate) fn all(blocks: &'a [BlockEntry]) -> impl Iterator<Item = Self> {
        blocks
            .chunk_by(|a, b| (a.kind, a.sequence) == (b.kind, b.sequence))
            .map(BlockSet)
    }

    /// Its blocks, one at least.
    pub(crate) fn blocks(&self) -> &'a [BlockEntry] {
        self.0
    }

    pub(crate) fn kind(&self) -> BlockKind {
        self.0[0].kind
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.0[0].sequence
    }

    /// Whether one of them is damaged.
    pub(crate) fn is_bad(&self) -> bool {
        self.0.iter().any(|block| block.is_bad)
    }

    /// From the oldest sample of all to the newest.
    pub(crate) fn range(&self) -> TimeRange {
        let min = self.0.iter().map(|block| block.range.min).min();
        let max = self.0.iter().map(|block| block.range.max).max();
        TimeRange::new(min.unwrap_or(i64::MAX), max.unwrap_or(i64::MIN))
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|block| block.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// How often their samples were merged.
    pub(crate) fn level(&self) -> u32 {
        self.0.iter().map(|block| block.level).max().unwrap_or(0)
    }
}

fn path_of(dir: &Path, version: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{version}"))
}

/// The version of a manifest with this name.
fn version_of(name: &Path) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(PREFIX)?;
    let version: u64 = digits.parse().ok()?;
    (version.to_string() == digits).then_some(version)
}

fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let bytes = file.len()?;
    if bytes > BYTES_MAX {
        let what = format!("{bytes} bytes, limit {BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut read = vec![0; bytes as usize];
    let count = file.read_at(0, &mut read)?;
    read.truncate(count);
    Ok(read)
}

/// The list that `text` is; none if it is not what [`BlockList::text`] makes.
fn parse(text: &str) -> Option<BlockList> {
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
    let mut list = BlockList::default();
    for line in lines {
        let mut words = line.split(' ');
        let name = words.next()?;
        let words: Vec<&str> = words.collect();
        match (name, words.as_slice()) {
            ("version", [version]) => list.version = version.parse().ok()?,
            ("cut", [time]) => list.cut = time.parse().ok()?,
            ("late", [position]) => list.late_through = Position(position.parse().ok()?),
            ("next", [sequence]) => list.next_sequence = sequence.parse().ok()?,
            ("main", words) => list.blocks.push(BlockEntry::parse(BlockKind::Main, words)?),
            ("late-block", words) => list.blocks.push(BlockEntry::parse(BlockKind::Late, words)?),
            _ => return None,
        }
    }
    Some(list)
}
