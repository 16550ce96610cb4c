//! Persists the state of rule groups across restarts: evaluated instants and alerts, in one file.
//!
//! ```text
//! rules/state = magic, then records: [bytes u32 | CRC-32C u32 | payload]
//! payload     = 1, group    complete state of a group
//!             | 2, key, instant    a later instant was evaluated; the alerts are unchanged
//!             | 3, key    the group was removed
//!             | 4, first, last, group    a group with samples of these instants still to be stored
//! ```
//!
//! A record is written before the next evaluation of its group starts, and synced with the next
//! tick. If a record is lost, its evaluation is repeated as a missed one. On start the records are
//! read up to the first incomplete one, and the result is written to a new file.
//!
//! Invariant: the state in memory equals the content of the file, so a record that could not be
//! written has no effect. The file is at most a few times larger than its current content
//! ([`RuleJournal::save`] rewrites it). A start on arbitrary bytes does not panic and uses memory
//! in proportion to the file.

mod codec;
#[cfg(test)]
mod tests;

use crate::instant::RuleInstant;
use crate::machine::{BackfillRange, SavedGroup};
use codec::{JournalDecoder, JournalEncoder};
use firn_model::env::{Disk, DiskFile, OpenMode};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First bytes of the file. The last byte is the version of the format.
const MAGIC: &[u8; 8] = b"FIRNRUL1";

/// Name of the file in its folder. A truncated copy of the file is valid up to its last complete
/// record.
pub const NAME: &str = "state";

/// Name of the temporary file during a rewrite. A crash may leave it behind; the next rewrite
/// removes it.
const NEW_NAME: &str = "state.new";

/// Size of the record header in bytes: length and checksum of the payload.
const HEAD_BYTES: usize = 8;

/// The file is rewritten when it is larger than this and than [`REWRITE_FACTOR`] times its current
/// content, in bytes.
const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// Ratio of file size to current content above which the file is rewritten; see
/// [`REWRITE_BYTES_MIN`].
const REWRITE_FACTOR: u64 = 4;

/// Maximum size of a file that is read: one million alerts of one kilobyte.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Kinds of records: the first byte of a payload. The layout of each is described in the module.
const GROUP: u8 = 1;
const WENT_ON: u8 = 2;
const GONE: u8 = 3;
const OWING_GROUP: u8 = 4;

/// The newest state of a group, encoded. The journal keeps it in memory to detect changes and to
/// rewrite the file.
struct JournaledGroup {
    instant: RuleInstant,
    owed: Option<BackfillRange>,
    /// Encoded state of the group, without the instant and the unstored range.
    body: Vec<u8>,
}

/// The journal of all groups, opened for writing. One exists per data folder. Its methods block on
/// the disk.
pub struct RuleJournal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Arc<dyn DiskFile>,
    bytes: u64,
    groups: HashMap<String, JournaledGroup>,
    /// Total size of the encoded bodies of all groups, in bytes.
    says: usize,
    is_synced: bool,
    /// True after a failed sync: the content of the file on disk is uncertain until it is
    /// rewritten.
    is_doubtful: bool,
}

impl RuleJournal {
    /// Opens the journal in `dir` and reads its records; creates the folder if necessary. Returns
    /// an error for a file of another version. Damage loses the damaged record and all later ones.
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

    /// Returns the saved state of a group; `None` if there is none.
    pub fn find(&self, file: &str, name: &str) -> Option<SavedGroup> {
        let kept = self.groups.get(&group_key(file, name))?;
        let group = codec::read_group(&mut JournalDecoder(&kept.body))?;
        Some(SavedGroup {
            instant: kept.instant,
            owed: kept.owed,
            ..group
        })
    }

    /// Appends the current state of a group. After an error the previous state remains in effect.
    pub fn save(&mut self, group: &SavedGroup) -> io::Result<()> {
        let key = group_key(&group.file, &group.name);
        let mut body = JournalEncoder::default();
        codec::write_group(&mut body, group);
        let kept = JournaledGroup {
            instant: group.instant,
            owed: group.owed,
            body: body.0,
        };
        let mut payload = JournalEncoder::default();
        match self.groups.get(&key) {
            Some(before) if before.body == kept.body && before.owed == kept.owed => {
                payload.0.push(WENT_ON);
                payload.write_text(&key);
                payload.write_number(kept.instant.nanos());
            }
            _ => write_journaled_group(&mut payload, &kept),
        }
        self.append(&payload.0)?;
        self.says += kept.body.len();
        if let Some(before) = self.groups.insert(key, kept) {
            self.says -= before.body.len();
        }
        self.rewrite_if_long()
    }

    /// Removes the groups for whose key (`file;name`) `keeps` returns false, for example after a
    /// reload. Appends a record for each removed group.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) -> io::Result<()> {
        let gone: Vec<String> = self.groups.keys().filter(|k| !keeps(k)).cloned().collect();
        for key in gone {
            let mut payload = JournalEncoder(vec![GONE]);
            payload.write_text(&key);
            self.append(&payload.0)?;
            if let Some(before) = self.groups.remove(&key) {
                self.says -= before.body.len();
            }
        }
        self.rewrite_if_long()
    }

    /// Syncs the records written so far; call it about once per second. After a failed sync the
    /// file is rewritten.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.is_doubtful {
            return self.rewrite();
        }
        if !self.is_synced {
            // After a failed sync, the operating system may have discarded the unwritten pages.
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
        if self.bytes > REWRITE_BYTES_MIN.max(REWRITE_FACTOR * self.says as u64) {
            self.rewrite()
        } else {
            Ok(())
        }
    }

    fn rewrite(&mut self) -> io::Result<()> {
        (self.file, self.bytes) = write_new(&*self.disk, &self.dir, &self.groups)?;
        // The new file already has its final name. If the folder cannot be synced, the next sync
        // rewrites everything.
        self.is_doubtful = true;
        self.disk.sync_dir(&self.dir)?;
        (self.is_synced, self.is_doubtful) = (true, false);
        Ok(())
    }
}

impl std::fmt::Debug for RuleJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("dir", &self.dir)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

fn group_key(file: &str, name: &str) -> String {
    format!("{file};{name}")
}

fn write_journaled_group(payload: &mut JournalEncoder, kept: &JournaledGroup) {
    match kept.owed {
        None => payload.0.push(GROUP),
        Some(owed) => {
            payload.0.push(OWING_GROUP);
            payload.write_number(owed.first.nanos());
            payload.write_number(owed.last.nanos());
        }
    }
    payload.write_number(kept.instant.nanos());
    payload.0.extend_from_slice(&kept.body);
}

fn push_record(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
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

/// Applies all records up to the first incomplete one and returns the resulting groups.
fn replay(bytes: &[u8]) -> io::Result<HashMap<String, JournaledGroup>> {
    let mut groups = HashMap::new();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        // A crash leaves either no file or a complete header, because new files are renamed into
        // place.
        return if bytes.is_empty() {
            Ok(groups)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "rule state is not of this version of Firn",
            ))
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

/// Applies one record to the groups read so far. Returns `None` if the record is malformed, which
/// ends the replay at this record.
fn apply(payload: &[u8], groups: &mut HashMap<String, JournaledGroup>) -> Option<()> {
    let (kind, rest) = payload.split_first()?;
    let mut reader = JournalDecoder(rest);
    match *kind {
        GROUP => apply_group(None, &mut reader, groups)?,
        OWING_GROUP => {
            let first = RuleInstant::from_nanos(reader.read_number()?);
            let last = RuleInstant::from_nanos(reader.read_number()?);
            apply_group(Some(BackfillRange { first, last }), &mut reader, groups)?;
        }
        WENT_ON => {
            let key = reader.read_text()?;
            let instant = RuleInstant::from_nanos(reader.read_number()?);
            // A record for an unknown group does not affect the other groups.
            if let Some(kept) = groups.get_mut(&key) {
                kept.instant = instant;
            }
        }
        GONE => drop(groups.remove(&reader.read_text()?)),
        _ => return None,
    }
    Some(())
}

fn apply_group(
    owed: Option<BackfillRange>,
    reader: &mut JournalDecoder<'_>,
    groups: &mut HashMap<String, JournaledGroup>,
) -> Option<()> {
    let instant = RuleInstant::from_nanos(reader.read_number()?);
    let body = reader.0.to_vec();
    let group = codec::read_group(reader)?;
    let kept = JournaledGroup {
        instant,
        owed,
        body,
    };
    groups.insert(group_key(&group.file, &group.name), kept);
    Some(())
}

/// Replaces the file by a new one with the state of `groups`. The caller must sync the folder.
fn write_new(
    disk: &dyn Disk,
    dir: &Path,
    groups: &HashMap<String, JournaledGroup>,
) -> io::Result<(Arc<dyn DiskFile>, u64)> {
    let mut bytes = MAGIC.to_vec();
    let mut keys: Vec<&String> = groups.keys().collect();
    keys.sort();
    for key in keys {
        let kept = &groups[key];
        let mut payload = JournalEncoder::default();
        write_journaled_group(&mut payload, kept);
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
