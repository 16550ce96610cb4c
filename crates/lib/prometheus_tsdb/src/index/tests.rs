//! Tests indexes of all versions, valid and damaged.

use super::read::{ChunkMeta, ChunkRef, IndexReader, IndexSeries};
use super::write::TsdbIndexWriter;
use crate::bytes::{push_checksum, push_prefixed, push_uvarint, push_varint};
use crate::error::TsdbError;
use crate::folder::{BlockFile, BlockFolder};
use crate::ranges::NamedRangeFile;
use firn_model::error::Error;
use firn_model::labels::{Labels, LabelsRef};
use firn_model::sample::TimeRange;
use std::collections::BTreeMap;

/// A folder in memory.
#[derive(Debug, Default)]
struct Folder(BTreeMap<BlockFile, Vec<u8>>);

impl BlockFolder for Folder {
    fn append(&mut self, file: BlockFile, bytes: &[u8]) -> Result<(), Error> {
        self.0.entry(file).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, file: BlockFile, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = self.0.entry(file).or_default();
        into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
        Ok(())
    }
}

fn series(number: i64) -> (Labels, Vec<ChunkMeta>) {
    let labels = Labels::from_pairs([
        ("__name__", format!("m{:03}", number / 7)),
        ("instance", format!("host-{}", number % 7)),
        ("job", "api".to_owned()),
    ]);
    let chunks = (0..number % 4).map(|i| ChunkMeta {
        range: TimeRange::new(i * 100 - number, i * 100 - number + 99),
        reference: ChunkRef::new((i / 2) as u32, 8 + 50 * i as u32),
    });
    (labels, chunks.collect())
}

fn index(count: i64, memory_bytes: usize) -> Vec<u8> {
    let (mut folder, mut writer) = (Folder::default(), TsdbIndexWriter::new());
    for (labels, chunks) in (0..count).map(series) {
        let added = writer.add(&mut folder, labels.as_ref(), &chunks);
        added.expect("memory takes all");
    }
    let finished = writer.finish(&mut folder, memory_bytes);
    finished.expect("memory takes all");
    folder.0.remove(&BlockFile::Index).expect("it was written")
}

fn read(bytes: &[u8]) -> Result<Vec<(Labels, Vec<ChunkMeta>)>, TsdbError> {
    let index = IndexReader::open(NamedRangeFile::new("b/index", bytes))?;
    let (mut walk, mut series) = (index.start_walk(), IndexSeries::default());
    let mut all = Vec::new();
    while index.advance(&mut walk, &mut series)? {
        all.push((Labels::from(&series), series.chunks.clone()));
    }
    Ok(all)
}

#[test]
fn index_written_reads_as_it_was_whatever_the_memory() {
    for count in [0, 1, 6, 500] {
        let wanted: Vec<_> = (0..count).map(series).collect();
        let bytes = index(count, 0);
        assert_eq!(read(&bytes), Ok(wanted));
        assert_eq!(bytes, index(count, 1 << 20), "one pass or several");
    }
}

#[test]
fn index_of_version_3_is_read_like_version_2() {
    let mut bytes = index(9, 0);
    bytes[4] = 3;
    assert_eq!(read(&bytes), Ok((0..9).map(series).collect()));
    bytes[4] = 4;
    let error = read(&bytes).unwrap_err().to_string();
    assert_eq!(error, "b/index: unknown index file version 4");
}

/// An index in the form of early versions: symbols and series are referred to by their offsets,
/// without padding.
#[test]
fn index_of_version_1_is_read() {
    let mut bytes = b"\xba\xaa\xd7\x00\x01".to_vec();
    let symbols = ["__name__", "a", "b", "up"];
    let mut table = 4u32.to_be_bytes().to_vec();
    let mut offsets = Vec::new();
    for symbol in symbols {
        offsets.push(bytes.len() as u64 + 4 + table.len() as u64);
        push_prefixed(&mut table, symbol.as_bytes());
    }
    bytes.extend((table.len() as u32).to_be_bytes());
    push_checksum(&mut table, 0);
    bytes.extend(table);
    let start = bytes.len() as u64;
    for value in [1, 3] {
        let mut entry = Vec::new();
        push_uvarint(&mut entry, 1);
        push_uvarint(&mut entry, offsets[0]);
        push_uvarint(&mut entry, offsets[value]);
        push_uvarint(&mut entry, 1);
        push_varint(&mut entry, -5);
        push_uvarint(&mut entry, 15);
        push_uvarint(&mut entry, 8);
        push_uvarint(&mut bytes, entry.len() as u64);
        push_checksum(&mut entry, 0);
        bytes.extend(entry);
    }
    let end = bytes.len() as u64;
    let contents = bytes.len();
    for offset in [5, start, end, end, end, end] {
        bytes.extend(offset.to_be_bytes());
    }
    push_checksum(&mut bytes, contents);
    let chunk = ChunkMeta {
        range: TimeRange::new(-5, 10),
        reference: ChunkRef::new(0, 8),
    };
    let wanted = ["a", "up"].map(|name| (Labels::from_pairs([("__name__", name)]), vec![chunk]));
    assert_eq!(read(&bytes), Ok(wanted.to_vec()));
}

#[test]
fn index_with_any_byte_changed_or_cut_is_an_error_or_reads_the_same() {
    let sound = index(12, 0);
    let wanted = read(&sound).expect("it is sound");
    let mut errors = 0;
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x21;
        match read(&bytes) {
            Ok(found) => assert_eq!(found, wanted, "byte {at}"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("b/index: "), "{text}");
                errors += 1;
            }
        }
        assert!(read(&sound[..at]).is_err(), "cut at {at}");
    }
    assert!(errors > sound.len() / 3, "postings alone are not looked at");
}

#[test]
fn index_whose_series_are_not_in_order_is_an_error_that_names_the_place() {
    let (mut folder, mut writer) = (Folder::default(), TsdbIndexWriter::new());
    for number in [3, 2] {
        let (labels, chunks) = series(number);
        let added = writer.add(&mut folder, labels.as_ref(), &chunks);
        added.expect("the caller keeps the order");
    }
    writer.finish(&mut folder, 0).expect("memory takes all");
    let error = read(&folder.0[&BlockFile::Index]).unwrap_err().to_string();
    assert!(
        error.contains("is out of order: it follows {__name__=\"m000\", instance=\"host-3\""),
        "{error}"
    );
    assert!(error.contains(" at byte "), "{error}");
}

#[test]
fn labels_of_a_series_that_are_no_label_set_are_an_error() {
    let sound = Labels::from_pairs([("a", "1"), ("b", "1")]);
    let (mut folder, mut writer) = (Folder::default(), TsdbIndexWriter::new());
    let added = writer.add(
        &mut folder,
        LabelsRef::from_canonical(sound.as_bytes()),
        &[],
    );
    added.expect("memory takes all");
    writer.finish(&mut folder, 0).expect("memory takes all");
    let mut bytes = folder.0.remove(&BlockFile::Index).expect("it was written");
    // The symbols are "", "1", "a", "b"; the entry has 2 labels, (2, 1) and (3, 1), and no chunk.
    let entry = [2, 2, 1, 3, 1, 0];
    let at = bytes
        .windows(6)
        .position(|w| w == entry)
        .expect("it is there");
    let mut swapped = vec![2, 3, 1, 2, 1, 0];
    push_checksum(&mut swapped, 0);
    bytes[at..at + 10].copy_from_slice(&swapped);
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.contains("labels that are out of order"), "{error}");
}
