//! The `tombstones` file of a block: the deleted intervals of its series (`tsdb/tombstones`).
//!
//! ```text
//! magic u32 = 0x0130BA30 | version u8 = 1
//! | { series uvarint | first time varint | last time varint }*
//! | CRC-32C of the bytes after the version
//! ```

use super::bytes::{TsdbByteCursor, push_checksum, verify_checksum};
use super::error::{MalformedTsdbBytes, TsdbError};
use super::intervals::DeletedIntervals;
use firn_model::sample::TimeRange;
use rustc_hash::FxHashMap;

const MAGIC: u32 = 0x0130_BA30;
const VERSION: u8 = 1;

/// Size of the file header, which the checksum does not cover, in bytes.
const HEADER_BYTES: usize = 5;

/// Deleted intervals of a block, by the number of the series in the index. Held in memory
/// completely. Readers of the block skip the samples in them.
#[derive(Clone, Debug, Default)]
pub struct Tombstones {
    by_series: FxHashMap<u64, DeletedIntervals>,
}

impl Tombstones {
    /// Parses the bytes of a file, which has the name `file` in errors.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, TsdbError> {
        let damaged = |offset: usize, error: MalformedTsdbBytes| TsdbError::Damaged {
            file: file.to_owned(),
            offset: offset as u64,
            what: error.to_string(),
        };
        let mut cursor = TsdbByteCursor::new(bytes);
        let magic = cursor.read_be32().map_err(|e| damaged(0, e))?;
        if magic != MAGIC {
            return Err(damaged(
                0,
                MalformedTsdbBytes::Invalid("not a file of tombstones"),
            ));
        }
        let version = cursor.read_byte().map_err(|e| damaged(4, e))?;
        if version != VERSION {
            return Err(TsdbError::Unsupported {
                file: file.to_owned(),
                what: format!("unknown version {version} of tombstones"),
            });
        }
        let stones = verify_checksum(cursor.rest()).map_err(|e| damaged(HEADER_BYTES, e))?;
        let mut cursor = TsdbByteCursor::new(stones);
        let mut tombstones = Self::default();
        while !cursor.is_empty() {
            let offset = HEADER_BYTES + stones.len() - cursor.rest().len();
            let (series, range) = read_stone(&mut cursor).map_err(|e| damaged(offset, e))?;
            tombstones.add(series, range);
        }
        Ok(tombstones)
    }

    /// Returns the bytes of a file without deletions. Prometheus writes such a file to every new
    /// block.
    pub fn write_empty() -> Vec<u8> {
        let mut out = MAGIC.to_be_bytes().to_vec();
        out.push(VERSION);
        push_checksum(&mut out, HEADER_BYTES);
        out
    }

    /// Deletes a time range of a series. Overlapping ranges are merged.
    pub fn add(&mut self, series: u64, range: TimeRange) {
        self.by_series.entry(series).or_default().add(range);
    }

    /// Returns the deleted intervals of a series. Returns `None` if there are none.
    pub fn intervals(&self, series: u64) -> Option<&DeletedIntervals> {
        self.by_series.get(&series)
    }

    /// Returns whether nothing is deleted.
    pub fn is_empty(&self) -> bool {
        self.by_series.is_empty()
    }
}

fn read_stone(cursor: &mut TsdbByteCursor<'_>) -> Result<(u64, TimeRange), MalformedTsdbBytes> {
    let series = cursor.read_uvarint()?;
    let min = cursor.read_varint()?;
    Ok((series, TimeRange::new(min, cursor.read_varint()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{push_uvarint, push_varint};

    fn file(stones: &[(u64, i64, i64)]) -> Vec<u8> {
        let mut out = Tombstones::write_empty();
        out.truncate(HEADER_BYTES);
        for (series, min, max) in stones {
            push_uvarint(&mut out, *series);
            push_varint(&mut out, *min);
            push_varint(&mut out, *max);
        }
        push_checksum(&mut out, HEADER_BYTES);
        out
    }

    #[test]
    fn empty_tombstones_are_the_bytes_of_prometheus() {
        let written = Tombstones::write_empty();
        assert_eq!(written, b"\x01\x30\xba\x30\x01\x00\x00\x00\x00");
        assert!(
            Tombstones::read("t", &written)
                .expect("they are sound")
                .is_empty()
        );
    }

    #[test]
    fn tombstones_of_a_series_are_found_by_its_number() {
        let bytes = file(&[(7, -5, 5), (9, i64::MIN, i64::MAX), (7, 6, 9)]);
        let read = Tombstones::read("t", &bytes).expect("they are sound");
        let ranges = read.intervals(7).map(DeletedIntervals::ranges);
        assert_eq!(ranges, Some(&[TimeRange::new(-5, 9)][..]));
        assert!(read.intervals(9).is_some_and(|all| all.contains(0)));
        assert!(read.intervals(8).is_none());
    }

    #[test]
    fn damaged_tombstones_are_errors_that_name_the_file() {
        let sound = file(&[(7, -5, 5)]);
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x40;
            let error = Tombstones::read("b/tombstones", &bytes).unwrap_err();
            assert!(error.to_string().starts_with("b/tombstones: "), "{error}");
            assert!(
                Tombstones::read("b/tombstones", &sound[..at]).is_err(),
                "{at}"
            );
        }
        let mut cut = sound[..sound.len() - 5].to_vec();
        push_checksum(&mut cut, HEADER_BYTES);
        let error = Tombstones::read("t", &cut).unwrap_err();
        assert_eq!(error.to_string(), "t: unexpected end at byte 5");
    }
}
