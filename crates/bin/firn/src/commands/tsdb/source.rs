//! Data folder of a Prometheus that is not running, opened for reading.
//!
//! ```text
//! 01HX..                  blocks, as a start of Prometheus would open them
//! wal, wbl, chunks_head   the head
//! ```
//!
//! Invariant: nothing in the folder is changed or created.

use firn_model::env::{self, Disk, Env, OpenMode};
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_prometheus_tsdb::{
    ChunkSegments, HeadChunkFile, HeadFiles, IndexReader, NamedRangeFile, ReadRanges, Tombstones,
    TsdbBlockMeta, TsdbBlockReader, Ulid,
};
use std::collections::BTreeSet;
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum bytes of a `meta.json` or of a file of tombstones.
const SMALL_BYTES_MAX: u64 = 1 << 30;

/// An open file of the folder with its length, implementing the file trait of the `tsdb` format
/// readers.
#[derive(Clone)]
pub struct TsdbSourceFile {
    file: Arc<dyn env::DiskFile>,
    bytes: u64,
}

impl std::fmt::Debug for TsdbSourceFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SourceFile({} bytes)", self.bytes)
    }
}

impl ReadRanges for TsdbSourceFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < into.len() {
            let read = self.file.read_at(offset + done as u64, &mut into[done..]);
            match read.map_err(|e| Error::unavailable(e.to_string()))? {
                0 => {
                    return Err(Error::unavailable(
                        "the file was truncated while it was read",
                    ));
                }
                count => done += count,
            }
        }
        Ok(())
    }
}

/// A block of the folder: its path and its metadata. Index and chunks are opened by
/// [`TsdbSource::reader`].
#[derive(Clone, Debug)]
pub struct TsdbSourceBlock {
    /// Contents of the block's `meta.json`.
    pub meta: TsdbBlockMeta,
    dir: PathBuf,
}

/// An opened data folder of Prometheus, which is only read. See the module.
pub struct TsdbSource {
    disk: Arc<dyn Disk>,
    root: PathBuf,
}

impl TsdbSource {
    /// Opens the folder at `root`. Fails if it is not a data folder of Prometheus.
    pub fn open(env: &Env, root: &Path) -> Result<Self, Error> {
        let source = Self {
            disk: env.disk.clone(),
            root: root.to_path_buf(),
        };
        let names = source.disk.list(root);
        let names = names.map_err(|e| unreadable("list", root, &e))?;
        let is_block = |name: &PathBuf| ulid_of(name).is_some();
        let is_known = |name: &PathBuf| name.as_os_str() == "wal" || is_block(name);
        if names.iter().any(is_known) {
            Ok(source)
        } else {
            Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "folder {} is not a data folder of Prometheus: it contains neither a block \
                 nor a wal",
                    root.display()
                ),
            ))
        }
    }

    /// Returns the blocks that a start of Prometheus would open, the oldest first, without blocks
    /// that were compacted into others.
    pub fn blocks(&self) -> Result<Vec<TsdbSourceBlock>, Error> {
        let mut blocks = Vec::new();
        for name in self.list(&self.root)? {
            let dir = self.root.join(&name);
            if ulid_of(&name).is_none() || !self.has(&dir, "meta.json")? {
                continue;
            }
            let path = dir.join("meta.json");
            let meta = TsdbBlockMeta::read(&path.display().to_string(), &self.bytes(&path)?)?;
            blocks.push(TsdbSourceBlock { meta, dir });
        }
        let parents = blocks.iter().flat_map(|b| &b.meta.compaction.parents);
        let replaced: BTreeSet<Ulid> = parents.map(|parent| parent.ulid).collect();
        blocks.retain(|block| !replaced.contains(&block.meta.ulid));
        blocks.sort_by_key(|block| (block.meta.min_time, block.meta.ulid));
        Ok(blocks)
    }

    /// Opens a block for reading its series and samples, without those that tombstones delete.
    pub fn reader(
        &self,
        block: &TsdbSourceBlock,
    ) -> Result<TsdbBlockReader<TsdbSourceFile>, Error> {
        let index = IndexReader::open(self.file(&block.dir.join("index"))?)?;
        let chunks = self.numbered(&block.dir.join("chunks"))?;
        let segments = ChunkSegments::open(chunks.into_iter().map(|(_, file)| file).collect())?;
        let path = block.dir.join("tombstones");
        let tombstones = if self.has(&block.dir, "tombstones")? {
            let bytes = self.bytes(&path)?;
            Some(Tombstones::read(&path.display().to_string(), &bytes)?)
        } else {
            None
        };
        Ok(TsdbBlockReader::new(index, segments, tombstones))
    }

    /// Opens the files of the head: the newest checkpoint, WAL, WBL and head chunks.
    pub fn head(&self) -> Result<HeadFiles<TsdbSourceFile>, Error> {
        let wal = self.root.join("wal");
        let (mut checkpoint, mut covered) = (Vec::new(), None);
        let names = self.list(&wal)?;
        let numbers = names.iter().filter_map(|name| {
            let number = name.to_str()?.strip_prefix("checkpoint.")?;
            Some((number.parse::<u32>().ok()?, name))
        });
        if let Some((number, name)) = numbers.max() {
            checkpoint = self.numbered(&wal.join(name))?;
            covered = Some(number);
        }
        let mut segments = self.numbered(&wal)?;
        segments.retain(|(number, _)| covered.is_none_or(|covered| *number > covered));
        let files = |numbered: Vec<(u32, NamedRangeFile<TsdbSourceFile>)>| {
            numbered.into_iter().map(|(_, file)| file).collect()
        };
        let chunks = self.numbered(&self.root.join("chunks_head"))?.into_iter();
        Ok(HeadFiles {
            checkpoint: files(checkpoint),
            wal: files(segments),
            wbl: files(self.numbered(&self.root.join("wbl"))?),
            chunks: chunks
                .map(|(number, file)| HeadChunkFile { number, file })
                .collect(),
        })
    }

    /// Returns the names in a folder, or none if it does not exist.
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>, Error> {
        match self.disk.list(dir) {
            Err(e) if e.kind() == IoErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(|e| unreadable("list", dir, &e)),
        }
    }

    fn has(&self, dir: &Path, name: &str) -> Result<bool, Error> {
        let names = self.list(dir)?;
        Ok(names.iter().any(|known| known.as_os_str() == name))
    }

    /// Opens the files of a folder that have a number as their name, in order. Returns none if the
    /// folder does not exist.
    fn numbered(&self, dir: &Path) -> Result<Vec<(u32, NamedRangeFile<TsdbSourceFile>)>, Error> {
        let names = self.list(dir)?;
        let numbers = names.iter().filter_map(|name| {
            let text = name.to_str()?;
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().ok().map(|number| (number, name)))?
        });
        let mut numbers: Vec<(u32, &PathBuf)> = numbers.collect();
        numbers.sort();
        let open = |(number, name): (u32, &PathBuf)| Ok((number, self.file(&dir.join(name))?));
        numbers.into_iter().map(open).collect()
    }

    fn file(&self, path: &Path) -> Result<NamedRangeFile<TsdbSourceFile>, Error> {
        let opened = self.disk.open(path, OpenMode::Read);
        let opened = opened.and_then(|file| Ok((file.len()?, file)));
        let (bytes, file) = opened.map_err(|e| unreadable("open", path, &e))?;
        let name = path.display().to_string();
        Ok(NamedRangeFile::new(name, TsdbSourceFile { file, bytes }))
    }

    /// Reads a file of at most [`SMALL_BYTES_MAX`] completely.
    fn bytes(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let file = self.disk.open(path, OpenMode::Read);
        let file = file.and_then(|file| Ok((file.len()?, file)));
        let (bytes, file) = file.map_err(|e| unreadable("open", path, &e))?;
        if bytes > SMALL_BYTES_MAX {
            let what = format!("{bytes} bytes, limit {SMALL_BYTES_MAX}");
            let message = format!("{}: {what}", path.display());
            return Err(Error::new(ErrorKind::Limited, message));
        }
        let mut all = vec![0; bytes as usize];
        TsdbSourceFile { file, bytes }.read(0, &mut all)?;
        Ok(all)
    }
}

/// Returns the end of the newest block whose samples arrived in order, or `None` if there is no
/// such block.
pub fn min_valid_time(blocks: &[TsdbSourceBlock]) -> Option<TimestampMs> {
    let in_order = blocks.iter().filter(|block| !block.meta.is_out_of_order());
    in_order.map(|block| block.meta.max_time).max()
}

fn ulid_of(name: &Path) -> Option<Ulid> {
    name.to_str()?.parse().ok()
}

fn unreadable(action: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!("{action} {}: {error}", path.display()))
}
