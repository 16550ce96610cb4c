//! The file of exemplars: a copy of the ring, so that the log can be trimmed.
//!
//! ```text
//! exemplars/00000000000000000001.exemplars       frames: docs/format/log.md
//! payload = version u8 | position varint | exemplars of `code`
//! ```
//!
//! New exemplars are appended whenever the log is about to be trimmed. Once most of the file is no
//! longer in the ring, it is rewritten under another name. Each write ends with a payload that
//! contains the position up to which the exemplars of the log are in the file. The other payloads
//! contain zero, so that a torn write has no effect on the position. Invariant: a write is durable
//! when it returns.

use super::code::{ExemplarEncoder, read_exemplars};
use super::ring::{ExemplarRing, UnwrittenExemplars};
use crate::damage::{Damage, DamageKind};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint};
use crate::error::StorageError;
use crate::file::append_only::{self, AppendOnlyFile, FileKind};
use crate::file::frame::FrameKind;
use crate::file::header::EXEMPLARS_MAGIC;
use crate::ids::SeriesSlot;
use crate::manifest::ManifestFileEntry;
use firn_model::env::Env;
use firn_model::exemplar::SeriesExemplars;
use firn_model::log::LogPosition;
use std::path::{Path, PathBuf};

/// The files of exemplars, of which the one with the highest number is current.
pub(crate) const EXEMPLARS: FileKind = FileKind {
    magic: EXEMPLARS_MAGIC,
    suffix: ".exemplars",
    frame: FrameKind::Exemplars,
};

const VERSION: u8 = 1;

/// Size at which a payload is closed, in bytes, which limits the effect of damage.
const PAYLOAD_BYTES: usize = 4 << 10;

/// Size below which a file is not rewritten, in bytes.
const WHOLE_BYTES_MIN: u64 = 256 << 10;

/// The file of exemplars of a store. Opened at startup, written by maintenance.
pub(crate) struct ExemplarFile {
    env: Env,
    dir: PathBuf,
    /// `None` before the first write.
    file: Option<AppendOnlyFile>,
    /// Number of the next file.
    next: LogPosition,
    /// Entries of the ring before this number are in the file.
    has: u64,
    /// Size of the file after its last rewrite, in bytes.
    whole_bytes: u64,
}

impl ExemplarFile {
    /// Opens the newest file in `dir`, if the folder exists, and removes the remains of an
    /// interrupted rewrite. The file with the number in `known` had at least that many durable
    /// bytes.
    pub(crate) fn open_newest(
        env: &Env,
        dir: &Path,
        known: ManifestFileEntry,
    ) -> Result<Self, StorageError> {
        let newest = EXEMPLARS.open_newest(env, dir, known)?;
        Ok(Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            file: newest.file,
            next: newest.next,
            // The first write after a start rewrites the file.
            has: 0,
            whole_bytes: 0,
        })
    }

    /// Returns number and length of the file, if there is an undamaged one.
    pub(crate) fn manifest_entry(&self) -> Option<ManifestFileEntry> {
        let file = self.file.as_ref().filter(|file| file.is_whole())?;
        Some(ManifestFileEntry {
            number: file.first(),
            bytes: file.durable_bytes(),
        })
    }

    /// Returns the file with its length, if there is one that can be read.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        let file = self.file.iter().filter(|file| !file.is_unreadable());
        file.map(|file| (file.path(), file.bytes()))
    }

    /// Returns the size of the file on disk, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, AppendOnlyFile::bytes)
    }

    /// Returns the damage of the file found at startup; `known` as in
    /// [`ExemplarFile::open_newest`].
    pub(crate) fn damages(&self, known: ManifestFileEntry) -> Option<Damage> {
        let (path, what) = match &self.file {
            Some(file) if file.is_whole() => return None,
            Some(file) => (file.path().to_path_buf(), file.describe_damage()),
            None if known.number == LogPosition(0) => return None,
            None => {
                let path = EXEMPLARS.path(&self.dir, known.number);
                (path, "the file is missing".to_owned())
            }
        };
        let what = format!("{what}; the exemplars in it are lost");
        Some(Damage::for_file(DamageKind::Exemplars, &path, what))
    }

    /// Returns the number of the first entry of the ring that must be written. Zero if most of the
    /// file is no longer in the ring, so that the next write rewrites it.
    pub(crate) fn first_unwritten(&self) -> u64 {
        let bytes = self.file.as_ref().map_or(0, AppendOnlyFile::bytes);
        if bytes > WHOLE_BYTES_MIN.max(2 * self.whole_bytes) {
            0
        } else {
            self.has
        }
    }

    /// Reads the file into `ring`. Skips damage, and reports payloads that are malformed within a
    /// valid frame.
    pub(crate) fn read_into_ring(&self, ring: &mut ExemplarRing, report: &mut dyn FnMut(Damage)) {
        let Some(file) = &self.file else { return };
        file.for_each_frame(FrameKind::Exemplars, &mut |scanner, offset, header| {
            if let Err(e) = read_payload(scanner.payload(offset, header), ring) {
                let damage = Damage::for_file(DamageKind::Exemplars, file.path(), e.to_string());
                report(Damage {
                    offset: Some(offset),
                    ..damage
                });
            }
        });
    }

    /// Writes `news` durably. Returns the number of written bytes.
    pub(crate) fn write(&mut self, news: &UnwrittenExemplars) -> Result<u64, StorageError> {
        // Taken out, because a file whose write failed is not written again.
        let old = self.file.take();
        let (mut file, old) = match old {
            Some(file) if !news.is_whole => (file, None),
            old => (EXEMPLARS.begin(&self.env, &self.dir, self.next)?, old),
        };
        self.has = 0;
        let before = if news.is_whole { 0 } else { file.bytes() };
        append(&mut file, news)?;
        file.sync()?;
        if news.is_whole {
            EXEMPLARS.install_file(&self.env, &self.dir, &mut file)?;
            self.whole_bytes = file.bytes();
        }
        // A file that the disk cannot read is left as it is.
        if let Some(old) = old.filter(|old| !old.is_unreadable()) {
            append_only::remove(&self.env, old.path())?;
        }
        self.has = news.end;
        self.next = file.last().next();
        let written = file.bytes() - before;
        self.file = Some(file);
        Ok(written)
    }
}

/// Appends the payloads of a write, the last of which contains the position. Does not sync.
fn append(file: &mut AppendOnlyFile, news: &UnwrittenExemplars) -> Result<(), StorageError> {
    let mut encoder = ExemplarEncoder::default();
    let mut exemplars = Vec::new();
    let mut payload = Vec::new();
    for (slot, exemplar) in news.exemplars.iter() {
        encoder.push(&mut exemplars, SeriesSlot(slot), &exemplar);
        if exemplars.len() >= PAYLOAD_BYTES {
            begin(&mut payload, LogPosition(0));
            payload.append(&mut exemplars);
            file.append(&payload)?;
            encoder.clear();
        }
    }
    begin(&mut payload, news.position);
    payload.append(&mut exemplars);
    file.append(&payload)?;
    Ok(())
}

fn begin(payload: &mut Vec<u8>, position: LogPosition) {
    payload.clear();
    payload.push(VERSION);
    push_uvarint(payload, position.0);
}

/// Returns the number of exemplars in a payload.
pub(crate) fn count_payload(payload: &[u8]) -> Result<u64, DecodeError> {
    let (_, exemplars) = decode_payload(payload)?;
    Ok(exemplars.iter().count() as u64)
}

/// Decodes a payload into its position, which is zero for all but the last one of a write, and its
/// exemplars.
fn decode_payload(payload: &[u8]) -> Result<(LogPosition, SeriesExemplars), DecodeError> {
    let mut cursor = DecodeCursor::new(payload);
    if cursor.read_byte()? != VERSION {
        return Err(DecodeError("exemplars of an unknown version"));
    }
    let position = LogPosition(cursor.read_uvarint()?);
    let mut exemplars = SeriesExemplars::default();
    read_exemplars(cursor.read_bytes(cursor.len())?, &mut exemplars)?;
    Ok((position, exemplars))
}

/// Reads a payload, and adds its exemplars to `ring`.
fn read_payload(payload: &[u8], ring: &mut ExemplarRing) -> Result<(), DecodeError> {
    let (position, exemplars) = decode_payload(payload)?;
    for (slot, exemplar) in exemplars.iter() {
        ring.add(SeriesSlot(slot), &exemplar);
    }
    ring.set_position(position);
    Ok(())
}
