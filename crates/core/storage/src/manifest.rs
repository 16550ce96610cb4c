//! The manifest of the data folder: the files that must exist, their minimum lengths and a summary
//! of their content.
//!
//! ```text
//! MANIFEST        text, one entry per line; replaced by rename, never changed in place
//! ```
//!
//! The frames of a growing file prove which of its bytes are intact, but not that bytes or whole
//! files are missing. The manifest closes this gap: it is written before the WAL drops samples that
//! the files contain, and whenever a segment of pages is completed or removed. A start compares the
//! files with it and reports what is missing. Invariants: no data depends on the manifest, so a
//! store without one can be opened; it never lists more than was durable when it was written.
//! `docs/format/data-folder.md` specifies the lines.

use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use firn_model::env::{Disk, OpenMode};
use firn_model::fingerprint::FingerprintSeed;
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// Name of the manifest in the data folder.
pub(crate) const NAME: &str = "MANIFEST";

/// Name of the manifest while it is written.
pub(crate) const TEMPORARY: &str = "MANIFEST.tmp";

const FIRST_LINE: &str = "firn manifest 1";

/// Maximum size of the file; a larger one is not a manifest. A line has less than 128 bytes and
/// represents a segment of 128 MiB or two hours.
const BYTES_MAX: u64 = 64 << 20;

/// The current file of a kind that has one file at a time, and its durable length. All zeros if
/// there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestFileEntry {
    /// Number in the file name.
    pub(crate) number: LogPosition,
    /// Number of bytes that were durable.
    pub(crate) bytes: u64,
}

impl ManifestFileEntry {
    /// Returns the number of bytes that were durable in the file with this number.
    pub(crate) fn durable_bytes(self, number: LogPosition) -> u64 {
        if self.number == number { self.bytes } else { 0 }
    }
}

/// The entry of a segment of pages, from which a start detects missing and truncated files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageSegmentEntry {
    /// Number in the file name.
    pub(crate) number: LogPosition,
    /// Current state of the segment.
    pub(crate) state: PageSegmentState,
    /// Number of durable bytes; the length of the file once the segment is complete.
    pub(crate) bytes: u64,
    /// CRC-32C of the file, or `None` for an incomplete segment and for one whose writer did not
    /// compute it.
    pub(crate) crc: Option<u32>,
    /// Number of pages in the segment.
    pub(crate) pages: u64,
    /// Number of samples in the pages, or `None` if it is not recorded.
    pub(crate) samples: Option<u64>,
    /// Time range from the oldest to the newest sample, both inclusive; `None` without a page.
    pub(crate) range: Option<TimeRange>,
}

/// The state of a segment of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageSegmentState {
    /// Pages are still appended to it.
    Growing,
    /// It ends with its page directory and does not change any more.
    Complete,
    /// All or part of it is missing; the entry describes the missing part.
    Lost,
}

/// The content of the manifest of a data folder. The store writes it, and a start compares the
/// files with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Position up to which pages and blocks cover the WAL.
    pub(crate) trimmed: LogPosition,
    /// Position up to which the WAL had been written.
    pub(crate) logged: LogPosition,
    /// Number of the newest WAL segment; zero if there was none.
    pub(crate) log: LogPosition,
    pub(crate) catalogue: ManifestFileEntry,
    pub(crate) exemplars: ManifestFileEntry,
    /// Seed of the fingerprint keys. Without it, a start generates a new one.
    pub(crate) seed: Option<FingerprintSeed>,
    /// The segments of pages, in ascending order of their numbers.
    pub(crate) segments: Vec<PageSegmentEntry>,
}

impl Manifest {
    /// Reads the manifest in `root`. Returns `None` if there is none, and the damage if it is
    /// unreadable; the caller then continues without a manifest.
    pub(crate) fn read(disk: &dyn Disk, root: &Path) -> Result<Option<Self>, Damage> {
        let path = root.join(NAME);
        let damage = |what: String| Damage::for_file(DamageKind::Manifest, &path, what);
        let bytes = match read_file(disk, &path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(damage(format!("it cannot be read: {e}"))),
        };
        let text = std::str::from_utf8(&bytes).ok();
        match text.and_then(parse) {
            Some(manifest) => Ok(Some(manifest)),
            None => Err(damage("content differs from its checksum".to_owned())),
        }
    }

    /// Replaces the manifest in `root`; the new one is durable on return.
    pub(crate) fn write(&self, disk: &dyn Disk, root: &Path) -> Result<(), StorageError> {
        let path = root.join(TEMPORARY);
        self.replace(disk, root, &path)
            .map_err(StorageError::io("write manifest", &path))
    }

    fn replace(&self, disk: &dyn Disk, root: &Path, temporary: &Path) -> io::Result<()> {
        match disk.remove_file(temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = disk.open(temporary, OpenMode::CreateNew)?;
        file.write_all_at(0, self.text().as_bytes())?;
        file.sync_data()?;
        disk.rename(temporary, &root.join(NAME))?;
        disk.sync_dir(root)
    }

    /// Returns the entry of a segment that is not lost.
    pub(crate) fn segment(&self, number: LogPosition) -> Option<&PageSegmentEntry> {
        let is_it = |entry: &&PageSegmentEntry| entry.number == number;
        let there = |entry: &&PageSegmentEntry| entry.state != PageSegmentState::Lost;
        self.segments.iter().filter(there).find(is_it)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{FIRST_LINE}\ntrimmed {}\nlogged {}\nlog {}\ncatalogue {} {}\nexemplars {} {}\n",
            self.trimmed.0,
            self.logged.0,
            self.log.0,
            self.catalogue.number.0,
            self.catalogue.bytes,
            self.exemplars.number.0,
            self.exemplars.bytes,
        );
        // Writing to a string cannot fail.
        if let Some(FingerprintSeed([first, second])) = self.seed {
            let _ = writeln!(text, "seed {first:016x} {second:016x}");
        }
        for entry in &self.segments {
            let _ = writeln!(text, "{}", entry.line());
        }
        let sum = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        text
    }
}

impl PageSegmentEntry {
    fn line(&self) -> String {
        let name = match self.state {
            PageSegmentState::Growing => "growing",
            PageSegmentState::Complete => "pages",
            PageSegmentState::Lost => "lost",
        };
        let crc = self.crc.map_or("-".to_owned(), |crc| format!("{crc:08x}"));
        let samples = self.samples.map_or("-".to_owned(), |n| n.to_string());
        let range = self.range.map_or("- -".to_owned(), |range| {
            format!("{} {}", range.min, range.max)
        });
        let (number, bytes, pages) = (self.number.0, self.bytes, self.pages);
        format!("{name} {number} {bytes} {crc} {pages} {samples} {range}")
    }
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

/// Parses the text of a manifest. Returns `None` unless it is exactly as [`Manifest::text`] writes
/// it.
fn parse(text: &str) -> Option<Manifest> {
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
    let mut manifest = Manifest::default();
    for line in lines {
        let mut words = line.split(' ');
        let name = words.next()?;
        let words: Vec<&str> = words.collect();
        match (name, words.as_slice()) {
            ("trimmed", [at]) => manifest.trimmed = LogPosition(at.parse().ok()?),
            ("logged", [at]) => manifest.logged = LogPosition(at.parse().ok()?),
            ("log", [number]) => manifest.log = LogPosition(number.parse().ok()?),
            ("catalogue", [number, bytes]) => manifest.catalogue = parse_file_entry(number, bytes)?,
            ("exemplars", [number, bytes]) => manifest.exemplars = parse_file_entry(number, bytes)?,
            ("seed", [first, second]) => {
                manifest.seed = Some(FingerprintSeed([parse_hex(first)?, parse_hex(second)?]))
            }
            ("pages", words) => manifest
                .segments
                .push(parse_segment_entry(PageSegmentState::Complete, words)?),
            ("growing", words) => manifest
                .segments
                .push(parse_segment_entry(PageSegmentState::Growing, words)?),
            ("lost", words) => manifest
                .segments
                .push(parse_segment_entry(PageSegmentState::Lost, words)?),
            _ => return None,
        }
    }
    Some(manifest)
}

fn parse_hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

fn parse_file_entry(number: &str, bytes: &str) -> Option<ManifestFileEntry> {
    Some(ManifestFileEntry {
        number: LogPosition(number.parse().ok()?),
        bytes: bytes.parse().ok()?,
    })
}

fn parse_segment_entry(state: PageSegmentState, words: &[&str]) -> Option<PageSegmentEntry> {
    let [number, bytes, crc, pages, samples, min, max] = words else {
        return None;
    };
    let range = match (*min, *max) {
        ("-", "-") => None,
        (min, max) => Some(TimeRange::new(min.parse().ok()?, max.parse().ok()?)),
    };
    Some(PageSegmentEntry {
        number: LogPosition(number.parse().ok()?),
        state,
        bytes: bytes.parse().ok()?,
        crc: match *crc {
            "-" => None,
            crc => Some(u32::from_str_radix(crc, 16).ok()?),
        },
        pages: pages.parse().ok()?,
        samples: match *samples {
            "-" => None,
            samples => Some(samples.parse().ok()?),
        },
        range,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim;

    fn manifest() -> Manifest {
        let entry = |number, state, range| PageSegmentEntry {
            number: LogPosition(number),
            state,
            bytes: 4_096,
            crc: (state == PageSegmentState::Complete).then_some(0xbeef),
            pages: 3,
            samples: (number != 2).then_some(77),
            range,
        };
        Manifest {
            trimmed: LogPosition(5),
            logged: LogPosition(9),
            log: LogPosition(8),
            catalogue: ManifestFileEntry {
                number: LogPosition(1),
                bytes: 300,
            },
            exemplars: ManifestFileEntry::default(),
            seed: Some(FingerprintSeed([0xab, 7])),
            segments: vec![
                entry(1, PageSegmentState::Lost, Some(TimeRange::new(-7, 5))),
                entry(2, PageSegmentState::Complete, Some(TimeRange::new(6, 8))),
                entry(3, PageSegmentState::Growing, None),
            ],
        }
    }

    #[test]
    fn manifest_reads_as_it_was_written() {
        let text = manifest().text();
        let golden = "firn manifest 1\ntrimmed 5\nlogged 9\nlog 8\ncatalogue 1 300\nexemplars 0 0\n\
                      seed 00000000000000ab 0000000000000007\n\
                      lost 1 4096 - 3 77 -7 5\npages 2 4096 0000beef 3 - 6 8\n\
                      growing 3 4096 - 3 77 - -\nsum ";
        assert!(text.starts_with(golden), "{text}");
        assert_eq!(parse(&text), Some(manifest()));
        assert_eq!(
            parse(&Manifest::default().text()),
            Some(Manifest::default())
        );
    }

    #[test]
    fn manifest_with_any_changed_byte_is_damaged() {
        let text = manifest().text();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let parsed = String::from_utf8(bytes).ok().and_then(|text| parse(&text));
            assert_eq!(parsed, None, "at {at}");
            assert_eq!(parse(&text[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn manifest_is_replaced_whole_or_not_at_all() {
        for changes in 0..8 {
            let sim = sim::sim_env(changes);
            let (disk, root) = (&*sim.env.disk, Path::new("data"));
            disk.create_dir_all(root).unwrap();
            Manifest::default().write(disk, root).unwrap();
            sim.disk.power_off_after(changes);
            let written = manifest().write(disk, root);
            sim.disk.crash();
            let read = Manifest::read(disk, root).unwrap().unwrap();
            assert!(read == manifest() || written.is_err() && read == Manifest::default());
        }
    }
}
