//! What groups keep over the end of the process: instants and alerts, in one file.
//!
//! ```text
//! rules/state = magic, then records: [bytes u32 | CRC-32C u32 | payload]
//! payload     = 1, group    a group as it is
//!             | 2, key, instant    it went on, and its alerts are as they were
//!             | 3, key    it is gone
//!             | 4, first, last, group    a group that still owes samples of these instants
//! ```
//!
//! A record is in the file before the next evaluation of its group begins; it is synced with the
//! next tick. What a lost record said is found again: its evaluation is made up for. A start reads
//! up to the first record that is not whole, and writes what it read as a new file.
//!
//! Invariant: what is in memory is what the file says, so a record that could not be written is as
//! if it had never been; the file is at most some times as long as what it says
//! ([`Journal::save`] rewrites it), and whatever its bytes, a start neither panics nor takes more
//! memory than the file does.

mod codec;
#[cfg(test)]
mod tests;

use crate::instant::Instant;
use crate::machine::{Owed, SavedGroup};
use codec::{Reader, Writer};
use firn_model::env::{Disk, File, OpenMode};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the file begins with; the last byte is the version.
const MAGIC: &[u8; 8] = b"FIRNRUL1";

/// The name of the file in its folder. A copy of it that is cut off is read as far as it is whole.
pub const NAME: &str = "state";

/// The name of a file that is being written.
const NEW_NAME: &str = "state.new";

/// Length and checksum of a record.
const HEAD_BYTES: usize = 8;

/// The file is rewritten when it is longer than this and [`REWRITE_FACTOR`] times what it says.
const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// See [`REWRITE_BYTES_MIN`].
const REWRITE_FACTOR: u64 = 4;

/// The longest file that is read: a million alerts of a kilobyte.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The kinds of records.
const GROUP: u8 = 1;
const WENT_ON: u8 = 2;
const GONE: u8 = 3;
const OWING_GROUP: u8 = 4;

/// A group as the file has it.
struct Kept {
    instant: Instant,
    owed: Option<Owed>,
    /// All but these two, encoded.
    body: Vec<u8>,
}

/// The file, open for writing.
pub struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
    groups: HashMap<String, Kept>,
    /// Bytes of the bodies of all groups.
    says: usize,
    is_synced: bool,
    /// Whether a sync failed: what the file holds is not known any more.
    is_doubtful: bool,
}

impl Journal {
    /// Opens the file in `dir`, which is created if need be, and reads what it says. A file of
    /// another version is an error; damage costs what lies behind it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> io::Result<Self> {
        disk.create_dir_all(dir)?;
        let bytes = match disk.open(&dir.join(NAME), OpenMode::Read) {
            Ok(file) => read_all(&*file)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        let groups = replay(&bytes)?;
        let (file, bytes) = write_new(&*disk, dir, &groups)?;
        disk.sync_dir(dir)?;
        Ok(Self {
            disk,
            dir: dir.to_owned(),
            file,
            bytes,
            says: groups.values().map(|kept| kept.body.len()).sum(),
            groups,
            is_synced: true,
            is_doubtful: false,
        })
    }

    /// What is known of a group.
    pub fn find(&self, file: &str, name: &str) -> Option<SavedGroup> {
        let kept = self.groups.get(&key(file, name))?;
        let group = codec::read_group(&mut Reader(&kept.body))?;
        Some(SavedGroup {
            instant: kept.instant,
            owed: kept.owed,
            ..group
        })
    }

    /// Keeps a group as it is now. After an error it is kept as it was before.
    pub fn save(&mut self, group: &SavedGroup) -> io::Result<()> {
        let key = key(&group.file, &group.name);
        let mut body = Writer::default();
        codec::write_group(&mut body, group);
        let kept = Kept {
            instant: group.instant,
            owed: group.owed,
            body: body.0,
        };
        let mut payload = Writer::default();
        match self.groups.get(&key) {
            Some(before) if before.body == kept.body && before.owed == kept.owed => {
                payload.0.push(WENT_ON);
                payload.text(&key);
                payload.number(kept.instant.nanos());
            }
            _ => write_kept(&mut payload, &kept),
        }
        self.append(&payload.0)?;
        self.says += kept.body.len();
        if let Some(before) = self.groups.insert(key, kept) {
            self.says -= before.body.len();
        }
        self.rewrite_if_long()
    }

    /// Forgets groups that are gone: all but those with the given file and name.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) -> io::Result<()> {
        let gone: Vec<String> = self.groups.keys().filter(|k| !keeps(k)).cloned().collect();
        for key in gone {
            let mut payload = Writer(vec![GONE]);
            payload.text(&key);
            self.append(&payload.0)?;
            if let Some(before) = self.groups.remove(&key) {
                self.says -= before.body.len();
            }
        }
        self.rewrite_if_long()
    }

    /// Makes durable what was kept; to be called about once a second.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.is_doubtful {
            return self.rewrite();
        }
        if !self.is_synced {
            // A system may forget what it could not write.
            self.is_doubtful = true;
            self.file.sync_data()?;
            (self.is_synced, self.is_doubtful) = (true, false);
        }
        Ok(())
    }

    fn append(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(HEAD_BYTES + payload.len());
        push_record(&mut record, payload);
        self.is_synced = false;
        self.file.write_all_at(self.bytes, &record)?;
        self.bytes += record.len() as u64;
        Ok(())
    }

    fn rewrite_if_long(&mut self) -> io::Result<()> {
        match self.bytes > REWRITE_BYTES_MIN.max(REWRITE_FACTOR * self.says as u64) {
            true => self.rewrite(),
            false => Ok(()),
        }
    }

    fn rewrite(&mut self) -> io::Result<()> {
        (self.file, self.bytes) = write_new(&*self.disk, &self.dir, &self.groups)?;
        // The file has its name by now: if that is not durable yet, all is written once more.
        self.is_doubtful = true;
        self.disk.sync_dir(&self.dir)?;
        (self.is_synced, self.is_doubtful) = (true, false);
        Ok(())
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("dir", &self.dir)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

fn key(file: &str, name: &str) -> String {
    format!("{file};{name}")
}

fn write_kept(payload: &mut Writer, kept: &Kept) {
    match kept.owed {
        None => payload.0.push(GROUP),
        Some(owed) => {
            payload.0.push(OWING_GROUP);
            payload.number(owed.first.nanos());
            payload.number(owed.last.nanos());
        }
    }
    payload.number(kept.instant.nanos());
    payload.0.extend_from_slice(&kept.body);
}

fn push_record(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn read_all(file: &dyn File) -> io::Result<Vec<u8>> {
    let length = file.len()?;
    if length > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("rule state is too long: {length} bytes, limit {FILE_BYTES_MAX}"),
        ));
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// What the records say, up to the first one that is not whole.
fn replay(bytes: &[u8]) -> io::Result<HashMap<String, Kept>> {
    let mut groups = HashMap::new();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        // A crash leaves no file, or a whole one: it was renamed.
        return match bytes.is_empty() {
            true => Ok(groups),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "rule state is not of this version of Firn",
            )),
        };
    };
    while let Some(payload) = take_record(&mut rest) {
        if apply(payload, &mut groups).is_none() {
            break;
        }
    }
    Ok(groups)
}

fn take_record<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (sum, behind) = behind.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (payload, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    (crc32c::crc32c(payload) == u32::from_le_bytes(*sum)).then_some(payload)
}

/// Takes over one record; `None` if it makes no sense.
fn apply(payload: &[u8], groups: &mut HashMap<String, Kept>) -> Option<()> {
    let (kind, rest) = payload.split_first()?;
    let mut reader = Reader(rest);
    match *kind {
        GROUP => apply_group(None, &mut reader, groups)?,
        OWING_GROUP => {
            let first = Instant::from_nanos(reader.number()?);
            let last = Instant::from_nanos(reader.number()?);
            apply_group(Some(Owed { first, last }), &mut reader, groups)?;
        }
        WENT_ON => {
            let key = reader.text()?;
            let instant = Instant::from_nanos(reader.number()?);
            // One that is not known tells nothing of the others.
            if let Some(kept) = groups.get_mut(&key) {
                kept.instant = instant;
            }
        }
        GONE => drop(groups.remove(&reader.text()?)),
        _ => return None,
    }
    Some(())
}

fn apply_group(
    owed: Option<Owed>,
    reader: &mut Reader<'_>,
    groups: &mut HashMap<String, Kept>,
) -> Option<()> {
    let instant = Instant::from_nanos(reader.number()?);
    let body = reader.0.to_vec();
    let group = codec::read_group(reader)?;
    let kept = Kept {
        instant,
        owed,
        body,
    };
    groups.insert(key(&group.file, &group.name), kept);
    Some(())
}

/// Writes a new file with what `groups` say in the place of the old one. The folder is not synced.
fn write_new(
    disk: &dyn Disk,
    dir: &Path,
    groups: &HashMap<String, Kept>,
) -> io::Result<(Arc<dyn File>, u64)> {
    let mut bytes = MAGIC.to_vec();
    let mut keys: Vec<&String> = groups.keys().collect();
    keys.sort();
    for key in keys {
        let kept = &groups[key];
        let mut payload = Writer::default();
        write_kept(&mut payload, kept);
        push_record(&mut bytes, &payload.0);
    }
    let new = dir.join(NEW_NAME);
    match disk.remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = disk.open(&new, OpenMode::CreateNew)?;
    file.write_all_at(0, &bytes)?;
    file.sync_data()?;
    disk.rename(&new, &dir.join(NAME))?;
    Ok((file, bytes.len() as u64))
}
