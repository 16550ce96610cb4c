//! The series catalogue: the labels of every series, so that the log may forget its births.
//!
//! ```text
//! series/00000000000000000001.series       blocks: docs/format/log.md
//! payload = version u8 | trimmed varint | next slot varint | series*
//! series  = slot varint (from the one before) | labels
//! ```
//!
//! It grows by the series born since it was written last, whenever the log is about to be trimmed,
//! and is written anew under another name once most of it is about series that are gone. *Trimmed*
//! is the position up to which the log is covered by catalogue and pages. Series are never taken
//! out: one without a sample anywhere is removed after the next start.

use crate::block_file::{BlockFile, FileKind};
use crate::codec::cursor::Cursor;
use crate::codec::{Malformed, push_uvarint};
use crate::error::StorageError;
use crate::log::block::BlockKind;
use crate::log::file_header::{FILE_HEADER_BYTES, SERIES_MAGIC};
use crate::log::scan::{Found, Scanner};
use crate::log_block::{LabelsEncoder, SeriesRecords};
use firn_model::env::Env;
use firn_model::labels::LabelsRef;
use firn_model::log::Position;
use std::path::{Path, PathBuf};

const SERIES: FileKind = FileKind {
    magic: SERIES_MAGIC,
    suffix: ".series",
    block: BlockKind::Series,
};

const VERSION: u8 = 1;

/// A payload is closed once it has so many bytes: enough that its header and its first label set,
/// which is written out, are nothing; few enough that several threads have some each.
const PAYLOAD_BYTES: usize = 256 << 10;

/// Below so many series that are gone it is not written anew.
const DEAD_MIN: u64 = 4_096;

/// See the module.
pub(crate) struct Catalogue {
    env: Env,
    dir: PathBuf,
    /// There from the first write on.
    file: Option<BlockFile>,
    /// The number of the next file.
    next: Position,
    /// Series in the file, those that are gone included.
    series: u64,
    /// Slots below are in it.
    end_slot: u32,
    trimmed: Position,
}

/// Receives payloads and damage.
pub(crate) type EachPayload<'a> = dyn FnMut(Result<&[u8], StorageError>) + 'a;

/// Writes series.
pub(crate) type Fill<'a> = dyn FnMut(&mut SeriesEncoder<'_>) -> Result<(), StorageError> + 'a;

/// What one payload says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The log is covered up to here.
    pub(crate) trimmed: Position,
    /// The first slot that was never given.
    pub(crate) next_slot: u32,
}

impl Catalogue {
    /// Opens the newest catalogue in `dir`, which exists, and removes what an interrupted rewrite
    /// left. What it says is read with [`Catalogue::payloads`].
    pub(crate) fn open(env: &Env, dir: &Path) -> Result<Self, StorageError> {
        let (file, next) = SERIES.open_newest(env, dir)?;
        let mut catalogue = Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            next,
            file,
            series: 0,
            end_slot: 0,
            trimmed: Position(0),
        };
        let mut headers = Vec::new();
        catalogue.payloads(&mut |payload| {
            // What is not readable is reported by whoever reads the series.
            let header = payload
                .ok()
                .and_then(|p| read_header(&mut Cursor::new(p)).ok());
            headers.extend(header);
        });
        for header in headers {
            catalogue.note(header);
        }
        Ok(catalogue)
    }

    /// Calls `each` with every payload in order; damage is an `Err` item.
    pub(crate) fn payloads(&self, each: &mut EachPayload<'_>) {
        let Some(file) = &self.file else { return };
        let range = FILE_HEADER_BYTES..file.bytes();
        let mut scanner = Scanner::new(file.file().clone(), file.first(), range);
        while let Some(found) = scanner.next() {
            match found {
                Found::Block { offset, header } => each(Ok(scanner.payload(offset, &header))),
                Found::Damage(range) => each(Err(StorageError::Damaged {
                    path: file.path().to_path_buf(),
                    offset: range.start,
                    what: format!("{} bytes are no block", range.end - range.start),
                })),
            }
        }
    }

    /// Says how many series a reader found in it.
    pub(crate) fn count(&mut self, series: u64) {
        self.series = series;
    }

    fn note(&mut self, header: Header) {
        self.end_slot = self.end_slot.max(header.next_slot);
        self.trimmed = self.trimmed.max(header.trimmed);
    }

    /// The log is covered up to here.
    pub(crate) fn trimmed(&self) -> Position {
        self.trimmed
    }

    /// Slots below are in it.
    pub(crate) fn end_slot(&self) -> u32 {
        self.end_slot
    }

    /// Whether most of it is about series that are gone, if there are `live` ones.
    pub(crate) fn is_mostly_dead(&self, live: u64) -> bool {
        self.series > 2 * live + DEAD_MIN
    }

    /// Adds what `fill` pushes; durable on return. With `is_whole` it is all there is to say, and
    /// the file is written anew.
    pub(crate) fn write(
        &mut self,
        header: Header,
        is_whole: bool,
        fill: &mut Fill<'_>,
    ) -> Result<u64, StorageError> {
        let mut fresh = None;
        if is_whole || self.file.is_none() {
            fresh = Some(SERIES.begin(&self.env, &self.dir, self.next)?);
        }
        let is_fresh = fresh.is_some();
        // Taken out: a file whose write failed is not written again.
        let mut file = match fresh {
            Some(file) => file,
            None => self.file.take().expect("there, or a fresh one was made"),
        };
        let before = file.bytes();
        let until_now = Header {
            trimmed: self.trimmed,
            next_slot: self.end_slot,
        };
        let mut encoder = SeriesEncoder::new(until_now, &mut file);
        fill(&mut encoder)?;
        let series = encoder.finish(header)?;
        file.sync()?;
        if is_fresh {
            self.series = 0;
            SERIES.replace(&self.env, &self.dir, &mut self.file, &mut file)?;
        }
        let bytes = file.bytes() - if is_fresh { 0 } else { before };
        self.next = file.last().next();
        self.file = Some(file);
        self.series += series;
        self.note(header);
        Ok(bytes)
    }

    /// Whether a write failed, so that only a whole one may follow.
    pub(crate) fn needs_whole(&self) -> bool {
        self.file.is_none() && self.series > 0
    }
}

/// Builds payloads and writes them.
pub(crate) struct SeriesEncoder<'a> {
    file: &'a mut BlockFile,
    /// What held before this write: all but its last payload say so, because the end of a write may
    /// be torn off.
    until_now: Header,
    /// The series of the payload under way.
    bytes: Vec<u8>,
    labels: LabelsEncoder,
    last_slot: u32,
    series: u64,
}

impl<'a> SeriesEncoder<'a> {
    fn new(until_now: Header, file: &'a mut BlockFile) -> Self {
        Self {
            file,
            until_now,
            bytes: Vec::new(),
            labels: LabelsEncoder::default(),
            last_slot: 0,
            series: 0,
        }
    }

    /// Writes the payload under way and begins the next.
    fn write(&mut self, header: Header) -> Result<(), StorageError> {
        let mut payload = Vec::with_capacity(self.bytes.len() + 16);
        payload.push(VERSION);
        push_uvarint(&mut payload, header.trimmed.0);
        push_uvarint(&mut payload, u64::from(header.next_slot));
        payload.append(&mut self.bytes);
        self.file.append(&payload)?;
        self.labels.clear();
        self.last_slot = 0;
        Ok(())
    }

    /// Adds a series; slots ascend.
    pub(crate) fn push(&mut self, slot: u32, labels: LabelsRef<'_>) -> Result<(), StorageError> {
        push_uvarint(&mut self.bytes, u64::from(slot - self.last_slot));
        self.last_slot = slot;
        self.labels.push(&mut self.bytes, labels);
        self.series += 1;
        if self.bytes.len() >= PAYLOAD_BYTES {
            self.write(self.until_now)?;
        }
        Ok(())
    }

    /// Writes the last payload. There is always one: it says what the log may forget.
    fn finish(mut self, header: Header) -> Result<u64, StorageError> {
        self.write(header)?;
        Ok(self.series)
    }
}

/// The series of a payload, and what it says beside them.
pub(crate) fn read_payload(payload: &[u8]) -> Result<(Header, SeriesRecords<'_>), Malformed> {
    let mut cursor = Cursor::new(payload);
    let header = read_header(&mut cursor)?;
    Ok((header, SeriesRecords::new(cursor.rest(), None)))
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<Header, Malformed> {
    if cursor.byte()? != VERSION {
        return Err(Malformed("catalogue payload of an unknown version"));
    }
    let trimmed = Position(cursor.uvarint()?);
    let next_slot = u32::try_from(cursor.uvarint()?);
    Ok(Header {
        trimmed,
        next_slot: next_slot.map_err(|_| Malformed("slot out of range"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim;
    use firn_model::labels::Labels;

    #[test]
    fn catalogue_of_which_a_write_was_torn_says_what_held_before() {
        let dir = Path::new("series");
        let sim = sim::env(1);
        sim.env.disk.create_dir_all(dir).unwrap();
        let header = |trimmed, next_slot| Header {
            trimmed: Position(trimmed),
            next_slot,
        };
        let write = |catalogue: &mut Catalogue, header: Header, first: u32| {
            let written = catalogue.write(header, false, &mut |encoder| {
                for slot in first..header.next_slot {
                    let labels = Labels::from_pairs([("a", format!("{slot}-{}", "x".repeat(999)))]);
                    encoder.push(slot, labels.as_ref())?;
                }
                Ok(())
            });
            written.unwrap();
        };
        let mut catalogue = Catalogue::open(&sim.env, dir).unwrap();
        write(&mut catalogue, header(7, 3), 0);
        let whole = catalogue.file.as_ref().map_or(0, BlockFile::bytes);
        write(&mut catalogue, header(9, 1_000), 3);
        let file = catalogue.file.as_ref().unwrap();
        let mut headers = Vec::new();
        catalogue.payloads(&mut |payload| {
            headers.push(read_payload(payload.unwrap()).unwrap().0);
        });
        assert!(headers.len() > 3, "{headers:?}");
        let (last, others) = headers.split_last().unwrap();
        assert_eq!(*last, header(9, 1_000));
        assert!(others.iter().all(|h| *h == header(7, 3)), "{headers:?}");
        assert!(file.bytes() > whole + 2 * PAYLOAD_BYTES as u64);
    }
}
