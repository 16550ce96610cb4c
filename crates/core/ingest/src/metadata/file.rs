//! The file with the pushed metadata (`docs/format/metadata.md`).
//!
//! ```text
//! metadata/pushed = magic | entries u32 | CRC-32C of the entries u32 | entries
//! entry = tenant | type u8 | name | help | unit        a text: bytes u32, then as many
//! ```
//!
//! The file is written as a whole under another name, synced and renamed, so that a crash leaves
//! the old or the new one. Invariant: reading arbitrary bytes does not panic and allocates no more
//! than the size of the file.

use super::FILE_NAME;
use firn_model::env::{Disk, DiskFile, OpenMode};
use firn_model::metadata::{MetricMetadata, MetricType};
use firn_model::sample::TimestampMs;
use firn_model::tenant::TenantId;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The first bytes of the file; the last of them is the version.
const MAGIC: &[u8; 8] = b"FIRNMTD1";

/// Name of the file while it is being written.
const NEW_NAME: &str = "pushed.new";

/// Largest size of a file that is read, in bytes: four times the limit of the texts in memory.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The folder of the file, and the time of its latest write, which limits the rate of writes.
pub(super) struct MetadataFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    written: TimestampMs,
}

impl MetadataFile {
    /// Opens the folder of the file, and creates it if it does not exist.
    pub(super) fn open_folder(disk: Arc<dyn Disk>, dir: &Path) -> io::Result<Self> {
        disk.create_dir_all(dir)?;
        Ok(Self {
            disk,
            dir: dir.to_owned(),
            written: TimestampMs::MIN,
        })
    }

    /// Calls `take` with each entry of the file; does nothing if the file does not exist. Fails if
    /// the file is damaged.
    pub(super) fn read_entries(
        &self,
        take: &mut dyn FnMut(&TenantId, MetricMetadata<'_>),
    ) -> io::Result<()> {
        let file = match self.disk.open(&self.dir.join(FILE_NAME), OpenMode::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        decode(&read_all(&*file)?, take)
    }

    /// Returns whether the latest write is at least `pause` ago.
    pub(super) fn is_due(&self, now: TimestampMs, pause: Duration) -> bool {
        now.saturating_sub(self.written) >= pause.as_millis() as i64
    }

    /// Replaces the content of the file by `bytes`; the new content is durable on return. If it
    /// fails, the file has the old or the new content.
    pub(super) fn replace_content(&mut self, bytes: &[u8], now: TimestampMs) -> io::Result<()> {
        // A failed write is also retried only after the pause.
        self.written = now;
        let new = self.dir.join(NEW_NAME);
        match self.disk.remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = self.disk.open(&new, OpenMode::CreateNew)?;
        file.write_all_at(0, bytes)?;
        file.sync_data()?;
        self.disk.rename(&new, &self.dir.join(FILE_NAME))?;
        self.disk.sync_dir(&self.dir)
    }
}

impl std::fmt::Debug for MetadataFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetadataFile")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

/// Encodes the content of the file, with magic, number of entries and checksum.
pub(super) fn encode<'a>(
    entries: impl Iterator<Item = (&'a TenantId, MetricMetadata<'a>)>,
) -> Vec<u8> {
    let mut body = Vec::new();
    let mut count = 0u32;
    for (tenant, said) in entries {
        count += 1;
        push_text(&mut body, tenant.as_str());
        body.push(said.kind.number());
        for text in [said.name, said.help, said.unit] {
            push_text(&mut body, text);
        }
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// Decodes the content of a file and calls `take` with each entry; fails if it is incomplete or
/// damaged.
pub(super) fn decode(
    bytes: &[u8],
    take: &mut dyn FnMut(&TenantId, MetricMetadata<'_>),
) -> io::Result<()> {
    let damaged = |what: &str| {
        let message = format!("file of pushed metadata is damaged: {what}");
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let rest = bytes.strip_prefix(MAGIC);
    let rest = rest.ok_or_else(|| damaged("it was written by another version of Firn"))?;
    let head = rest.split_first_chunk::<8>();
    let (head, mut body) = head.ok_or_else(|| damaged("it is truncated"))?;
    let [c0, c1, c2, c3, s0, s1, s2, s3] = *head;
    let count = u32::from_le_bytes([c0, c1, c2, c3]);
    if crc32c::crc32c(body) != u32::from_le_bytes([s0, s1, s2, s3]) {
        return Err(damaged("its checksum does not match"));
    }
    for _ in 0..count {
        let entry = decode_entry(&mut body).ok_or_else(|| damaged("an entry cannot be read"))?;
        take(&entry.0, entry.1);
    }
    Ok(())
}

fn decode_entry<'a>(body: &mut &'a [u8]) -> Option<(TenantId, MetricMetadata<'a>)> {
    let tenant = TenantId::new(decode_text(body)?).ok()?;
    let (number, rest) = body.split_first()?;
    *body = rest;
    let said = MetricMetadata {
        kind: MetricType::from_number(*number)?,
        name: decode_text(body)?,
        help: decode_text(body)?,
        unit: decode_text(body)?,
    };
    Some((tenant, said))
}

fn push_text(body: &mut Vec<u8>, text: &str) {
    body.extend_from_slice(&(text.len() as u32).to_le_bytes());
    body.extend_from_slice(text.as_bytes());
}

fn decode_text<'a>(body: &mut &'a [u8]) -> Option<&'a str> {
    let (length, rest) = body.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (text, rest) = rest.split_at_checked(length)?;
    *body = rest;
    std::str::from_utf8(text).ok()
}

fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let length = file.len()?;
    if length > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("file of pushed metadata is too long: {length} bytes, limit {FILE_BYTES_MAX}"),
        ));
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}
