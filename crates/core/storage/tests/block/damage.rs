//! Blocks with changed bytes: every read returns the pushed data, or an error with the file and the
//! offset. Changes to only one of `meta.json`, the index and its copy have no effect on reads.
//!
//! `FIRN_SEEDS=n` and `FIRN_SEED=s` select the seeds, as in the other tests.

use crate::fleet::{Written, dir, random_series, write};
use crate::seeds;
use crate::series::assert_equal;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim::SimRng;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::LabelsRef;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_storage::block::{Block, BlockCache};
use firn_storage::page::SampleColumns;
use std::sync::Arc;

const FILES: [&str; 4] = ["meta.json", "index", "index.copy", "data-000"];

/// The file without a second copy.
const SINGLE: &str = "data-000";

fn matchers() -> Vec<Vec<Matcher>> {
    let matcher = |name, op, value: &str| Matcher::new(name, op, value.as_bytes()).expect("sound");
    vec![
        vec![matcher("__name__", MatchOp::Equal, "metric_2")],
        vec![matcher("pod", MatchOp::Regex, "pod-1.*")],
        vec![
            matcher("job", MatchOp::Equal, "node"),
            matcher("le", MatchOp::NotRegex, "1.*"),
        ],
        vec![matcher("Zone", MatchOp::NotEqual, "")],
    ]
}

/// Checks that an error contains the file and the offset.
fn check_error(e: &Error, context: &str) {
    let names_file = FILES.iter().any(|file| e.message.contains(file));
    assert!(
        names_file && e.message.contains("at offset"),
        "{e}, {context}"
    );
    assert_eq!(e.kind, ErrorKind::Corrupt, "{e}, {context}");
}

/// Runs every query. Each answer must equal that of the intact block or be an error.
fn check_answers(written: &Written, context: &str) -> usize {
    let cache = Arc::new(BlockCache::new(8 << 20));
    let block = match Block::open(&written.sim.env, &dir(), &cache) {
        Ok(block) => block,
        Err(e) => {
            check_error(&e.into(), context);
            return 1;
        }
    };
    let mut errors = 0;
    let mut note = |e: Error| {
        check_error(&e, context);
        errors += 1;
    };
    let (cancel, mut memory) = (
        CancelToken::new(),
        Budget::new("test", usize::MAX).create_reservation(),
    );
    for matchers in matchers() {
        let of = |labels: LabelsRef<'_>| matchers.iter().all(|m| m.matches(labels.get(m.name())));
        let all = (0u32..).zip(&written.series);
        let wanted: Vec<u32> = all
            .filter(|(_, (l, _))| of(l.as_ref()))
            .map(|(o, _)| o)
            .collect();
        match block.lookup(&matchers, &cancel, &mut memory) {
            Ok(found) => assert_eq!(found, wanted, "{context}"),
            Err(e) => note(e),
        }
    }
    for (ordinal, (labels, columns)) in (0..).zip(&written.series) {
        let mut read = SampleColumns::default();
        match block.reader().read(ordinal, TimeRange::ALL, &mut read) {
            Ok(()) => assert_equal(&read, columns, context),
            Err(e) => {
                assert!(read.times.is_empty() && read.values.is_empty(), "{context}");
                assert!(
                    read.start_times.is_empty() && read.histograms.is_empty(),
                    "{context}"
                );
                note(e.into());
            }
        }
        let read = block.read_labels(&[ordinal], &mut |_, found| {
            assert_eq!(found, labels.as_ref(), "{context}");
        });
        read.unwrap_or_else(|e| note(e.into()));
    }
    errors
}

fn small(seed: u64) -> Written {
    write(random_series(&SimRng::new(seed), 24, 40))
}

#[test]
fn block_with_any_one_byte_flipped_answers_the_same_or_names_the_place() {
    let written = small(5);
    assert_eq!(check_answers(&written, "untouched"), 0);
    for file in FILES {
        let path = dir().join(file);
        let sound = written.sim.disk.contents(&path).expect("the file is there");
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            written.sim.disk.overwrite(&path, &bytes);
            let errors = check_answers(&written, &format!("byte {at} of {file}"));
            assert!(
                errors == 0 || file == SINGLE,
                "byte {at} of {file} costs something"
            );
            check_found(&written, file != SINGLE, &format!("byte {at} of {file}"));
        }
        written.sim.disk.overwrite(&path, &sound);
    }
    assert_eq!(check_answers(&written, "made whole again"), 0);
}

/// Checks that a verification finds damage, and that it counts as recovered exactly if
/// `is_recovered`.
fn check_found(written: &Written, is_recovered: bool, context: &str) {
    let cache = Arc::new(BlockCache::new(0));
    let mut findings = 0;
    match Block::open(&written.sim.env, &dir(), &cache) {
        Ok(block) => block.verify(&mut |fault| {
            check_error(&fault.error.into(), "verify");
            assert_eq!(fault.is_recovered, is_recovered, "{context}");
            findings += 1;
        }),
        Err(e) => panic!("{e}, {context}"),
    }
    assert!(findings > 0, "{context} goes unnoticed");
}

/// The same damage to the index and to its copy: the damaged part is lost, and errors contain its
/// location.
#[test]
fn block_with_one_byte_of_both_indexes_flipped_answers_the_same_or_names_the_place() {
    let written = small(5);
    let paths = ["index", "index.copy"].map(|name| dir().join(name));
    let sound = written
        .sim
        .disk
        .contents(&paths[0])
        .expect("the file is there");
    let mut errors = 0;
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        for path in &paths {
            written.sim.disk.overwrite(path, &bytes);
        }
        errors += check_answers(&written, &format!("byte {at} of both"));
    }
    assert!(errors > sound.len(), "{errors}");
    // If the damage is in different places, each copy supplies its intact part.
    for seed in seeds::seeds(40) {
        let rng = SimRng::new(seed);
        for path in &paths {
            let mut bytes = sound.clone();
            let half = sound.len() as u64 / 2;
            let at = rng.next_below(half) + if path == &paths[0] { 0 } else { half };
            bytes[at as usize] ^= 1 << rng.next_below(8);
            written.sim.disk.overwrite(path, &bytes);
        }
        check_answers(&written, &format!("two places, seed {seed}"));
    }
}

/// The end of the index is torn: other content is in its last sectors.
#[test]
fn block_with_a_torn_end_of_its_index_lacks_nothing() {
    let written = write(random_series(&SimRng::new(8), 300, 40));
    let path = dir().join("index");
    let sound = written.sim.disk.contents(&path).expect("the file is there");
    for sector in [512, 4_096] {
        let start = (sound.len() - 1) / sector * sector;
        for fill in [0, 0xff] {
            let mut bytes = sound.clone();
            bytes[start..].fill(fill);
            written.sim.disk.overwrite(&path, &bytes);
            let context = format!("{sector} bytes of {fill}");
            assert_eq!(check_answers(&written, &context), 0, "{context}");
            check_found(&written, true, &context);
        }
    }
}

#[test]
fn block_with_changed_stretches_answers_the_same_or_names_the_place() {
    for seed in seeds::seeds(60) {
        let rng = SimRng::new(seed);
        let written = write(random_series(&rng, 200, 60));
        let file = FILES[rng.next_below(4) as usize];
        let path = dir().join(file);
        let mut bytes = written.sim.disk.contents(&path).expect("the file is there");
        let at = rng.next_below(bytes.len() as u64) as usize;
        let end = bytes.len().min(at + 1 + rng.next_below(600) as usize);
        match rng.next_below(4) {
            0 => bytes.truncate(at),
            1 => bytes[at..end].fill(0),
            2 => bytes[at..end]
                .iter_mut()
                .for_each(|b| *b = rng.next_below(256) as u8),
            _ => bytes.extend_from_slice(&[7; 9]),
        }
        written.sim.disk.overwrite(&path, &bytes);
        let errors = check_answers(&written, &format!("seed {seed}"));
        assert!(errors == 0 || file == SINGLE, "{file}, seed {seed}");
    }
}

#[test]
fn block_that_is_sound_has_nothing_to_verify() {
    for seed in seeds::seeds(10) {
        let rng = SimRng::new(seed);
        let written = write(random_series(&rng, 1 + rng.next_below(6_000), 5));
        let mut findings = Vec::new();
        written.open().verify(&mut |fault| findings.push(fault));
        assert!(findings.is_empty(), "{findings:?}, seed {seed}");
    }
}

#[test]
fn block_without_a_file_lacks_nothing_or_is_an_error_that_names_it() {
    for file in FILES {
        let written = small(1);
        let path = dir().join(file);
        written.sim.disk.remove_durably(&path);
        if file != SINGLE {
            assert_eq!(check_answers(&written, file), 0, "{file}");
            check_found(&written, true, file);
            continue;
        }
        let cache = Arc::new(BlockCache::new(0));
        let e = Block::open(&written.sim.env, &dir(), &cache).expect_err("a file is gone");
        assert!(e.to_string().contains(file), "{e}");
    }
}

#[test]
fn block_with_the_index_of_another_one_is_read_by_its_copy_or_refused() {
    let (one, other) = (small(1), small(2));
    let path = dir().join("index");
    let mut bytes = other.sim.disk.contents(&path).expect("the file is there");
    let len = one
        .sim
        .disk
        .contents(&path)
        .expect("the file is there")
        .len();
    // The length is equal, so that only the content differs.
    let start = bytes.len().saturating_sub(len);
    bytes.drain(..start);
    bytes.resize(len.max(bytes.len()), 0);
    one.sim.disk.overwrite(&path, &bytes);
    assert_eq!(check_answers(&one, "another index"), 0);
    one.sim.disk.overwrite(&dir().join("index.copy"), &bytes);
    let cache = Arc::new(BlockCache::new(0));
    let e = Block::open(&one.sim.env, &dir(), &cache).expect_err("it is another one's");
    assert!(e.to_string().contains("index is damaged"), "{e}");
}

/// Returns the offset and the length of the section directory according to the footer.
fn directory(index: &[u8]) -> (usize, usize) {
    let footer = index.len() - 64;
    let number = |at: usize, len: usize| {
        let bytes = index[footer + at..footer + at + len].iter().rev();
        bytes.fold(0usize, |n, byte| n << 8 | usize::from(*byte))
    };
    (number(40, 8), number(48, 4))
}

/// Recomputes the checksums of the section directory, the file and the footer.
fn settle(index: &mut [u8]) {
    let (offset, bytes) = directory(index);
    let footer = index.len() - 64;
    let crc = crc32c::crc32c(&index[offset..offset + bytes]);
    index[footer + 52..footer + 56].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&index[..footer]);
    index[footer + 56..footer + 60].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&index[footer..footer + 60]);
    index[footer + 60..].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the index with one more section in its directory.
fn with_section(index: &[u8], kind: u16, flags: u16) -> Vec<u8> {
    let (offset, bytes) = directory(index);
    let mut out = index[..offset + bytes].to_vec();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&[0; 20]);
    out.extend_from_slice(&index[offset + bytes..]);
    let footer = out.len() - 64;
    let longer = bytes as u32 + 24;
    out[footer + 48..footer + 52].copy_from_slice(&longer.to_le_bytes());
    settle(&mut out);
    out
}

/// Replaces the index, and updates its length and checksum in `meta.json`.
fn with_index(written: &Written, index: &[u8]) {
    let path = dir().join("meta.json");
    let text = written.sim.disk.contents(&path).expect("the file is there");
    let text = String::from_utf8(text).expect("JSON");
    let before = written
        .sim
        .disk
        .contents(&dir().join("index"))
        .expect("the file is there");
    let said = |bytes: &[u8]| format!("\"bytes\": {}", bytes.len());
    let text = text.replacen(&said(&before), &said(index), 2);
    let end = text.rfind("\"crc\": \"").expect("it has a checksum");
    let crc = crc32c::crc32c(&text.as_bytes()[..end]);
    let text = format!("{}\"crc\": \"{crc:08x}\"\n\t}}\n}}\n", &text[..end]);
    written.sim.disk.overwrite(&path, text.as_bytes());
    for name in ["index", "index.copy"] {
        written.sim.disk.overwrite(&dir().join(name), index);
    }
}

#[test]
fn block_with_a_section_to_come_is_read_if_that_is_optional() {
    let written = small(4);
    let index = written
        .sim
        .disk
        .contents(&dir().join("index"))
        .expect("the file is there");
    with_index(&written, &with_section(&index, 900, 1));
    assert_eq!(check_answers(&written, "optional section"), 0);
    let written = small(4);
    with_index(&written, &with_section(&index, 900, 0));
    let cache = Arc::new(BlockCache::new(0));
    let e = Block::open(&written.sim.env, &dir(), &cache).expect_err("it is not optional");
    assert!(
        e.to_string()
            .contains("unknown section that is not optional"),
        "{e}"
    );
}

#[test]
fn block_of_another_version_is_refused_in_words() {
    let written = small(4);
    let mut index = written
        .sim
        .disk
        .contents(&dir().join("index"))
        .expect("the file is there");
    let footer = index.len() - 64;
    index[footer + 8] = 9;
    settle(&mut index);
    with_index(&written, &index);
    let cache = Arc::new(BlockCache::new(0));
    let e = Block::open(&written.sim.env, &dir(), &cache).expect_err("it is another version");
    assert!(
        e.to_string()
            .ends_with("index has format 9, but this version supports format 2"),
        "{e}"
    );
}
