//! The file of exemplars: what the ring holds, so that the log may be trimmed.
//!
//! ```text
//! exemplars/00000000000000000001.exemplars       frames: docs/format/log.md
//! payload = version u8 | position varint | exemplars of `code`
//! ```
//!
//! It grows by what came since it was written last, whenever the log is about to be trimmed, and is
//! written anew under another name once most of it is out of the ring. Each write ends with the
//! payload that has the position up to which the log is in it; the others have zero, so that a
//! write that was cut off says nothing. Invariant: what a write returned for is durable.

use super::code::{ExemplarEncoder, read_exemplars};
use super::ring::{News, Ring};
use crate::damage::{Damage, DamageKind};
use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, push_uvarint};
use crate::error::StorageError;
use crate::file::append_only::{self, AppendOnlyFile, FileKind};
use crate::file::frame::FrameKind;
use crate::file::header::EXEMPLARS_MAGIC;
use crate::ids::Slot;
use crate::manifest::KnownFile;
use firn_model::env::Env;
use firn_model::exemplar::SeriesExemplars;
use firn_model::log::Position;
use std::path::{Path, PathBuf};

/// The files of exemplars.
pub(crate) const EXEMPLARS: FileKind = FileKind {
    magic: EXEMPLARS_MAGIC,
    suffix: ".exemplars",
    frame: FrameKind::Exemplars,
};

const VERSION: u8 = 1;

/// A payload is closed once it has so many bytes, so that damage costs no more.
const PAYLOAD_BYTES: usize = 4 << 10;

/// Below so many bytes a file is not written anew.
const WHOLE_BYTES_MIN: u64 = 256 << 10;

/// See the module.
pub(crate) struct ExemplarFile {
    env: Env,
    dir: PathBuf,
    /// There from the first write on.
    file: Option<AppendOnlyFile>,
    /// The number of the next file.
    next: Position,
    /// Entries of the ring before this number are in the file.
    has: u64,
    /// The size of the file when it was written anew.
    whole_bytes: u64,
}

impl ExemplarFile {
    /// Opens the newest file in `dir`, if there is such a folder, and removes what an interrupted
    /// rewrite left. The file with the number in `known` had so many bytes at least.
    pub(crate) fn find(env: &Env, dir: &Path, known: KnownFile) -> Result<Self, StorageError> {
        let newest = EXEMPLARS.open_newest(env, dir, known)?;
        Ok(Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            file: newest.file,
            next: newest.next,
            // The first write after a start is a whole one.
            has: 0,
            whole_bytes: 0,
        })
    }

    /// The number and the length of the file, if there is one.
    pub(crate) fn place(&self) -> Option<KnownFile> {
        let file = self.file.as_ref().filter(|file| file.is_whole())?;
        Some(KnownFile {
            number: file.first(),
            bytes: file.durable_bytes(),
        })
    }

    /// The file with its length, if there is one that can be read.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        let file = self.file.iter().filter(|file| !file.is_unreadable());
        file.map(|file| (file.path(), file.bytes()))
    }

    /// Its bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, AppendOnlyFile::bytes)
    }

    /// What is damaged of what a start found; `known` as in [`ExemplarFile::find`].
    pub(crate) fn damages(&self, known: KnownFile) -> Option<Damage> {
        let (path, what) = match &self.file {
            Some(file) if file.is_whole() => return None,
            Some(file) => (file.path().to_path_buf(), file.trouble()),
            None if known.number == Position(0) => return None,
            None => {
                let path = EXEMPLARS.path(&self.dir, known.number);
                (path, "the file is missing".to_owned())
            }
        };
        let what = format!("{what}; the exemplars in it are lost");
        Some(Damage::of_file(DamageKind::Exemplars, &path, what))
    }

    /// Entries of the ring before this number need not be written. None once the file holds more
    /// of the past than of the ring: it is written anew then.
    pub(crate) fn has(&self) -> u64 {
        let bytes = self.file.as_ref().map_or(0, AppendOnlyFile::bytes);
        match bytes > WHOLE_BYTES_MIN.max(2 * self.whole_bytes) {
            true => 0,
            false => self.has,
        }
    }

    /// Fills `ring`; damage is passed over, and reported where a sound frame says what is none.
    pub(crate) fn read(&self, ring: &mut Ring, report: &mut dyn FnMut(Damage)) {
        let Some(file) = &self.file else { return };
        file.each_frame(FrameKind::Exemplars, &mut |scanner, offset, header| {
            if let Err(e) = read_payload(scanner.payload(offset, header), ring) {
                let damage = Damage::of_file(DamageKind::Exemplars, file.path(), e.to_string());
                report(Damage {
                    offset: Some(offset),
                    ..damage
                });
            }
        });
    }

    /// Adds `news`; returns the bytes written.
    pub(crate) fn write(&mut self, news: &News) -> Result<u64, StorageError> {
        // Taken out: a file whose write failed is not written again.
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
            EXEMPLARS.put_in_place(&self.env, &self.dir, &mut file)?;
            self.whole_bytes = file.bytes();
        }
        // One that the disk does not deliver is left as it is.
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

/// Appends the payloads of a write.
fn append(file: &mut AppendOnlyFile, news: &News) -> Result<(), StorageError> {
    let mut encoder = ExemplarEncoder::default();
    let mut exemplars = Vec::new();
    let mut payload = Vec::new();
    for (slot, exemplar) in news.exemplars.iter() {
        encoder.push(&mut exemplars, Slot(slot), &exemplar);
        if exemplars.len() >= PAYLOAD_BYTES {
            begin(&mut payload, Position(0));
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

fn begin(payload: &mut Vec<u8>, position: Position) {
    payload.clear();
    payload.push(VERSION);
    push_uvarint(payload, position.0);
}

/// How many exemplars a payload has.
pub(crate) fn count_payload(payload: &[u8]) -> Result<u64, Malformed> {
    let (_, exemplars) = decode_payload(payload)?;
    Ok(exemplars.iter().count() as u64)
}

fn decode_payload(payload: &[u8]) -> Result<(Position, SeriesExemplars), Malformed> {
    let mut cursor = Cursor::new(payload);
    if cursor.byte()? != VERSION {
        return Err(Malformed("exemplars of an unknown version"));
    }
    let position = Position(cursor.uvarint()?);
    let mut exemplars = SeriesExemplars::default();
    read_exemplars(cursor.bytes(cursor.len())?, &mut exemplars)?;
    Ok((position, exemplars))
}

/// Reads a payload into `ring`.
fn read_payload(payload: &[u8], ring: &mut Ring) -> Result<(), Malformed> {
    let (position, exemplars) = decode_payload(payload)?;
    for (slot, exemplar) in exemplars.iter() {
        ring.add(Slot(slot), &exemplar);
    }
    ring.note(position);
    Ok(())
}
