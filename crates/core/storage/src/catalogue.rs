//! The series catalogue: the labels of every series on disk, so that the log can be trimmed.
//!
//! ```text
//! series/00000000000000000001.series       frames: docs/format/log.md
//! series/00000000000000000001.copy         the same bytes once more
//! payload: a header and deflated series, see [`payload`]
//! series  = slot varint (from the one before) | labels
//! ```
//!
//! The series created since the last write are appended whenever the log is about to be trimmed.
//! Once most of the catalogue belongs to removed series, it is rewritten under another name.
//! *Trimmed* is the position up to which catalogue and pages cover the log. Series are never
//! removed from the catalogue in place: a series without any sample is removed after the next
//! start.
//!
//! Without its labels no sample of a series can be found, so the labels are on disk twice. Both
//! files are synced before a write returns. Parts that are missing in one of them at startup are
//! read from the other, and the next write rewrites both. Invariant: nothing is appended to a pair
//! with a damaged file.

pub(crate) mod checkpoint;
pub(crate) mod payload;

use crate::damage::{Damage, DamageKind};
use crate::encoding::push_uvarint;
use crate::error::StorageError;
use crate::file::append_only::{self, AppendOnlyFile, FileKind};
use crate::file::frame::FrameKind;
use crate::file::header::SERIES_MAGIC;
use crate::ids::SeriesSlot;
use crate::manifest::ManifestFileEntry;
use firn_model::env::Env;
use firn_model::label_code::LabelsEncoder;
use firn_model::labels::LabelsRef;
use firn_model::log::LogPosition;
use payload::{CataloguePayloadHeader, PayloadDeflater, decode_header};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The main files of the catalogue, of which the one with the highest number is current.
pub(crate) const SERIES: FileKind = FileKind {
    magic: SERIES_MAGIC,
    suffix: ".series",
    frame: FrameKind::Series,
};

/// The copies of the main files, with the same bytes. Parts that are damaged in one are read from
/// the other.
pub(crate) const COPY: FileKind = FileKind {
    suffix: ".copy",
    ..SERIES
};

/// Size of the series in a payload at which it is closed, in bytes. Large enough that the overhead
/// of the header and of the first label set, which is stored in full, is negligible; small enough
/// that damage to both files at once affects about a thousand series.
const PAYLOAD_BYTES: usize = 32 << 10;

/// Number of removed series below which the catalogue is not rewritten.
const DEAD_MIN: u64 = 4_096;

/// The catalogue of a store. Opened at startup, written by maintenance.
pub(crate) struct Catalogue {
    env: Env,
    dir: PathBuf,
    /// `None` before the first write, and if the files found cannot be appended to.
    files: Option<CatalogueFilePair>,
    /// The files found at startup, until they are read.
    found: Vec<AppendOnlyFile>,
    /// True if only a complete rewrite is possible.
    needs_whole: bool,
    /// Number of the files that the next rewrite creates.
    next: LogPosition,
    /// Number of series in the files, removed ones included.
    series: u64,
    /// All series with lower slots are in the catalogue.
    end_slot: SeriesSlot,
    trimmed: LogPosition,
}

/// The file and its copy, which have the same contents.
struct CatalogueFilePair {
    main: AppendOnlyFile,
    copy: AppendOnlyFile,
}

impl CatalogueFilePair {
    fn begin(env: &Env, dir: &Path, number: LogPosition) -> Result<Self, StorageError> {
        Ok(Self {
            main: SERIES.begin(env, dir, number)?,
            copy: COPY.begin(env, dir, number)?,
        })
    }

    fn append(&mut self, payload: &[u8]) -> Result<(), StorageError> {
        self.main.append(payload)?;
        self.copy.append(payload)?;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        self.main.sync()?;
        self.copy.sync()
    }

    fn bytes(&self) -> u64 {
        self.main.bytes() + self.copy.bytes()
    }
}

/// Callback that receives the payload of each valid frame, in the order of the file.
pub(crate) type EachPayload<'a> = dyn FnMut(&[u8]) + 'a;

/// Callback that passes series, in ascending order of slots, to the encoder of a write.
pub(crate) type FillSeries<'a> =
    dyn FnMut(&mut CatalogueSeriesEncoder<'_>) -> Result<(), StorageError> + 'a;

impl Catalogue {
    /// Opens the newest catalogue in the existing folder `dir`, and removes the remains of an
    /// interrupted rewrite. The file with the number in `known` had at least that many durable
    /// bytes. The contents are read with [`Catalogue::for_each_payload`].
    pub(crate) fn open(
        env: &Env,
        dir: &Path,
        known: ManifestFileEntry,
    ) -> Result<Self, StorageError> {
        let main = SERIES.open_newest(env, dir, known)?;
        let copy = COPY.open_newest(env, dir, known)?;
        let mut catalogue = Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            files: None,
            found: main.file.into_iter().chain(copy.file).collect(),
            needs_whole: false,
            next: main.next.max(copy.next),
            series: 0,
            end_slot: SeriesSlot(0),
            trimmed: LogPosition(0),
        };
        let mut headers = Vec::new();
        catalogue.for_each_payload(&mut |payload| headers.extend(decode_header(payload)));
        for header in headers {
            catalogue.advance_to_header(header);
        }
        Ok(catalogue)
    }

    /// Calls `each` with every payload found at startup, in order. If the file is incomplete, also
    /// calls it with those of the copy.
    pub(crate) fn for_each_payload(&self, each: &mut EachPayload<'_>) {
        for file in &self.found {
            read_file_payloads(file, each);
            if self.is_pair() {
                return;
            }
        }
    }

    /// Returns whether startup found both files, undamaged and equal.
    fn is_pair(&self) -> bool {
        let [main, copy] = self.found.as_slice() else {
            return false;
        };
        let place = |file: &AppendOnlyFile| (file.first(), file.last(), file.bytes());
        main.is_whole() && copy.is_whole() && place(main) == place(copy)
    }

    /// Returns the damage of the files found at startup; `known` as in [`Catalogue::open`]. The
    /// copy of a file that is not in the manifest yet may be missing, because the copy is written
    /// second.
    pub(crate) fn damages(&self, known: ManifestFileEntry) -> Vec<Damage> {
        if self.is_pair() {
            return Vec::new();
        }
        let newest = self.found.iter().map(AppendOnlyFile::first).max();
        let newest = newest.unwrap_or_default().max(known.number);
        let held: BTreeSet<LogPosition> =
            self.found.iter().flat_map(list_payload_positions).collect();
        let last = self.found.iter().map(AppendOnlyFile::last).max();
        let all = newest.0..=last.unwrap_or_default().0;
        let is_lost = self.found.is_empty() || all.clone().any(|p| !held.contains(&LogPosition(p)));
        let cost = if is_lost {
            "series without labels are lost with it"
        } else {
            "the other copy of the file contains the missing data"
        };
        let mut damages = Vec::new();
        for kind in [SERIES, COPY] {
            let path = kind.path(&self.dir, newest);
            let what = match self.found.iter().find(|file| file.path() == path) {
                Some(file) if file.is_whole() => continue,
                Some(file) => file.describe_damage(),
                None if newest > known.number || newest == LogPosition(0) => continue,
                None => "the file is missing".to_owned(),
            };
            let what = format!("{what}; {cost}");
            damages.push(Damage::for_file(DamageKind::Catalogue, &path, what));
        }
        damages
    }

    /// Completes startup after the files were read: a pair will be appended to, other files will be
    /// rewritten.
    pub(crate) fn complete_startup(&mut self) {
        let is_pair = self.is_pair();
        let mut found = std::mem::take(&mut self.found).into_iter();
        self.needs_whole = !is_pair && found.len() > 0;
        if let (true, Some(main), Some(copy)) = (is_pair, found.next(), found.next()) {
            self.files = Some(CatalogueFilePair { main, copy });
        }
    }

    /// Returns number and length of the files, if there are any.
    pub(crate) fn manifest_entry(&self) -> Option<ManifestFileEntry> {
        let files = self.files.as_ref().map(|files| &files.main);
        let main = files.or_else(|| self.found.first().filter(|_| self.is_pair()))?;
        Some(ManifestFileEntry {
            number: main.first(),
            bytes: main.durable_bytes(),
        })
    }

    /// Returns the files that a write appends to, with their lengths; none before the first write.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        let files = self
            .files
            .iter()
            .flat_map(|files| [&files.main, &files.copy]);
        files.map(|file| (file.path(), file.bytes()))
    }

    /// Returns the bytes of the files on disk.
    pub(crate) fn bytes(&self) -> u64 {
        let found: u64 = self.found.iter().map(AppendOnlyFile::bytes).sum();
        found + self.files.as_ref().map_or(0, CatalogueFilePair::bytes)
    }

    /// Sets the number of series that a reader found in the catalogue.
    pub(crate) fn set_series_count(&mut self, series: u64) {
        self.series = series;
    }

    /// Advances covered position and end slot to those of a payload's header.
    fn advance_to_header(&mut self, header: CataloguePayloadHeader) {
        self.end_slot = self.end_slot.max(header.next_slot);
        self.trimmed = self.trimmed.max(header.trimmed);
    }

    /// Returns the position up to which the log is covered.
    pub(crate) fn trimmed(&self) -> LogPosition {
        self.trimmed
    }

    /// Returns the slot below which all series are in the catalogue.
    pub(crate) fn end_slot(&self) -> SeriesSlot {
        self.end_slot
    }

    /// Returns whether most of the catalogue belongs to removed series, if there are `live` others.
    pub(crate) fn is_mostly_dead(&self, live: u64) -> bool {
        self.series > 2 * live + DEAD_MIN
    }

    /// Writes the series that `fill` adds, durably. With `is_whole` they replace the previous
    /// contents, and the files are rewritten. Returns the number of written bytes.
    pub(crate) fn write(
        &mut self,
        header: CataloguePayloadHeader,
        is_whole: bool,
        fill: &mut FillSeries<'_>,
    ) -> Result<u64, StorageError> {
        // Taken out, because files whose write failed are not written again.
        let old = self.files.take();
        self.needs_whole |= old.is_some();
        let (mut files, old) = match old {
            Some(files) if !is_whole => (files, None),
            old => (
                CatalogueFilePair::begin(&self.env, &self.dir, self.next)?,
                Some(old),
            ),
        };
        let before = old.as_ref().map_or(files.bytes(), |_| 0);
        let until_now = CataloguePayloadHeader {
            trimmed: self.trimmed,
            next_slot: self.end_slot,
        };
        let mut append = |payload: &[u8]| files.append(payload);
        let mut encoder = CatalogueSeriesEncoder::new(until_now, &mut append);
        fill(&mut encoder)?;
        let series = encoder.finish(header)?;
        files.sync()?;
        if let Some(old) = old {
            SERIES.install_file(&self.env, &self.dir, &mut files.main)?;
            COPY.install_file(&self.env, &self.dir, &mut files.copy)?;
            for file in old.iter().flat_map(|old| [&old.main, &old.copy]) {
                append_only::remove(&self.env, file.path())?;
            }
            self.series = 0;
        }
        self.next = files.main.last().next();
        let bytes = files.bytes() - before;
        self.files = Some(files);
        self.needs_whole = false;
        self.series += series;
        self.advance_to_header(header);
        Ok(bytes)
    }

    /// Returns whether only a complete rewrite is possible, because a write failed or startup found
    /// damage.
    pub(crate) fn needs_whole(&self) -> bool {
        self.needs_whole
    }
}

/// Calls `each` with the payloads of a file.
fn read_file_payloads(file: &AppendOnlyFile, each: &mut EachPayload<'_>) {
    file.for_each_frame(FrameKind::Series, &mut |scanner, offset, header| {
        each(scanner.payload(offset, header));
    });
}

/// Returns the positions of the payloads in a file.
fn list_payload_positions(file: &AppendOnlyFile) -> Vec<LogPosition> {
    let mut positions = Vec::new();
    file.for_each_frame(FrameKind::Series, &mut |_, _, header| {
        positions.push(header.position);
    });
    positions
}

/// Callback that stores a payload.
type AppendPayload<'a> = dyn FnMut(&[u8]) -> Result<(), StorageError> + 'a;

/// Encodes series into payloads and passes each to a callback.
pub(crate) struct CatalogueSeriesEncoder<'a> {
    append: &'a mut AppendPayload<'a>,
    /// The header before this write. All payloads but the last contain it, because the end of a
    /// write may be torn off.
    until_now: CataloguePayloadHeader,
    /// The series of the current payload.
    bytes: Vec<u8>,
    labels: LabelsEncoder,
    deflater: PayloadDeflater,
    last_slot: SeriesSlot,
    series: u64,
}

impl<'a> CatalogueSeriesEncoder<'a> {
    fn new(until_now: CataloguePayloadHeader, append: &'a mut AppendPayload<'a>) -> Self {
        Self {
            append,
            until_now,
            bytes: Vec::new(),
            labels: LabelsEncoder::default(),
            deflater: PayloadDeflater::default(),
            last_slot: SeriesSlot(0),
            series: 0,
        }
    }

    /// Writes the current payload and starts the next one.
    fn write(&mut self, header: CataloguePayloadHeader) -> Result<(), StorageError> {
        (self.append)(&payload::write(header, &self.bytes, &mut self.deflater))?;
        self.bytes.clear();
        self.labels.clear();
        self.last_slot = SeriesSlot(0);
        Ok(())
    }

    /// Adds a series. Slots must be in ascending order.
    pub(crate) fn push(
        &mut self,
        slot: SeriesSlot,
        labels: LabelsRef<'_>,
    ) -> Result<(), StorageError> {
        let is_first = self.bytes.is_empty();
        assert!(is_first || self.last_slot < slot, "slots ascend");
        push_uvarint(&mut self.bytes, slot.0 - self.last_slot.0);
        self.last_slot = slot;
        self.labels.push(&mut self.bytes, labels);
        self.series += 1;
        if self.bytes.len() >= PAYLOAD_BYTES {
            self.write(self.until_now)?;
        }
        Ok(())
    }

    /// Writes the last payload, which is always present because it contains the new header. Returns
    /// the number of series.
    fn finish(mut self, header: CataloguePayloadHeader) -> Result<u64, StorageError> {
        self.write(header)?;
        Ok(self.series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim;
    use firn_model::labels::Labels;

    #[test]
    fn catalogue_of_which_a_write_was_torn_says_what_held_before() {
        let dir = Path::new("series");
        let sim = sim::sim_env(1);
        sim.env.disk.create_dir_all(dir).unwrap();
        let header = |trimmed, next_slot| CataloguePayloadHeader {
            trimmed: LogPosition(trimmed),
            next_slot: SeriesSlot(next_slot),
        };
        let write = |catalogue: &mut Catalogue, header: CataloguePayloadHeader, first: u64| {
            let written = catalogue.write(header, false, &mut |encoder| {
                for slot in first..header.next_slot.0 {
                    let labels = Labels::from_pairs([("a", format!("{slot}-{}", "x".repeat(999)))]);
                    encoder.push(SeriesSlot(slot), labels.as_ref())?;
                }
                Ok(())
            });
            written.unwrap();
        };
        let open = || Catalogue::open(&sim.env, dir, ManifestFileEntry::default()).unwrap();
        let mut catalogue = open();
        write(&mut catalogue, header(7, 3), 0);
        let whole = catalogue.manifest_entry().unwrap().bytes;
        write(&mut catalogue, header(9, 1_000), 3);
        drop(catalogue);
        sim.disk.crash();
        let catalogue = open();
        let mut headers = Vec::new();
        catalogue.for_each_payload(&mut |payload| headers.push(decode_header(payload).unwrap()));
        assert!(headers.len() > 3, "{headers:?}");
        let (last, others) = headers.split_last().unwrap();
        assert_eq!(*last, header(9, 1_000));
        assert!(others.iter().all(|h| *h == header(7, 3)), "{headers:?}");
        assert!(catalogue.manifest_entry().unwrap().bytes > whole);
    }
}
