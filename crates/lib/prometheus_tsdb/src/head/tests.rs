//! Tests the reader with heads built by hand: the result must be that of Prometheus's replay.

use super::read::{HeadFiles, HeadOptions, HeadReader};
use crate::bytes::{push_checksum, push_uvarint};
use crate::chunk::{ChunkBuilder, ChunkStartTimes};
use crate::error::TsdbError;
use crate::head_chunks::HeadChunkFile;
use crate::ranges::NamedRangeFile;
use crate::sample::TsdbSampleValue;
use crate::wal::tests::{deletion, marker, samples, segment, series};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;

/// The records and chunks of a head.
#[derive(Default)]
struct Head {
    checkpoint: Vec<Vec<u8>>,
    wal: Vec<Vec<u8>>,
    wbl: Vec<Vec<u8>>,
    chunks: Vec<u8>,
    min_valid_time: Option<i64>,
    memory_bytes: Option<usize>,
}

/// Encodes a chunk of series `number`; the highest bit of its encoding marks out-of-order samples.
fn chunk(number: u64, samples: &[(i64, f64)], is_late: bool) -> Vec<u8> {
    let mut builder = ChunkBuilder::new(ChunkStartTimes::Drop);
    for (time, value) in samples {
        let pushed = builder.push_float(*time, 0, *value);
        pushed.expect("samples are in order");
    }
    let chunk = builder.finish().expect("there are samples");
    let mut out = number.to_be_bytes().to_vec();
    out.extend(chunk.min_time.to_be_bytes());
    out.extend(chunk.max_time.to_be_bytes());
    out.push(chunk.encoding.number() | u8::from(is_late) << 7);
    push_uvarint(&mut out, chunk.data.len() as u64);
    out.extend(chunk.data);
    push_checksum(&mut out, 0);
    out
}

fn name(name: &str) -> Labels {
    Labels::from_pairs([("__name__", name)])
}

type Found = Vec<(String, Vec<(i64, f64)>)>;

impl Head {
    fn read(&self) -> Result<(Found, u64), TsdbError> {
        let file = |name: &str, records: &[Vec<u8>]| NamedRangeFile::new(name, segment(records, 8));
        let mut chunks = b"\x01\x30\xbc\x91\x01\0\0\0".to_vec();
        chunks.extend(&self.chunks);
        chunks.extend([0; 100]);
        let files = HeadFiles {
            checkpoint: vec![file("checkpoint", &self.checkpoint)],
            wal: vec![file("wal/0", &self.wal)],
            wbl: vec![file("wbl/0", &self.wbl)],
            chunks: vec![HeadChunkFile {
                number: 1,
                file: NamedRangeFile::new("chunks_head/1", chunks),
            }],
        };
        let options = HeadOptions {
            memory_bytes: self.memory_bytes.unwrap_or(usize::MAX),
            min_valid_time: self.min_valid_time,
        };
        let mut head = HeadReader::new(files, options);
        let mut found = Vec::new();
        while let Some(mut series) = head.next_series()? {
            let name = String::from_utf8_lossy(series.labels().get("__name__")).into_owned();
            let mut samples = Vec::new();
            while let Some(sample) = series.next_sample()? {
                let TsdbSampleValue::Float(value) = sample.value else {
                    panic!("no histogram was written");
                };
                samples.push((sample.time, value));
            }
            found.push((name, samples));
        }
        Ok((found, head.report().parts))
    }

    fn check(&self, wanted: &[(&str, &[(i64, f64)])]) {
        let (found, _) = self.read().expect("it is sound");
        let wanted = wanted.iter().map(|(n, s)| ((*n).to_owned(), s.to_vec()));
        assert_eq!(found, wanted.collect::<Found>());
    }
}

#[test]
fn samples_of_checkpoint_and_log_come_in_order_of_labels() {
    let head = Head {
        checkpoint: vec![series(2, &name("b")), samples(&[(2, 10, 1.0)])],
        wal: vec![
            series(5, &name("a")),
            samples(&[(5, 20, 2.0), (2, 20, 3.0), (9, 20, 4.0)]),
            samples(&[(2, 20, 5.0), (2, 15, 6.0), (2, 21, 7.0)]),
        ],
        ..Head::default()
    };
    head.check(&[
        ("a", &[(20, 2.0)]),
        ("b", &[(10, 1.0), (20, 3.0), (21, 7.0)]),
    ]);
}

#[test]
fn samples_in_front_of_the_end_of_blocks_are_left_out_unless_they_came_late() {
    let head = Head {
        wal: vec![series(1, &name("a")), samples(&[(1, 9, 1.0), (1, 10, 2.0)])],
        wbl: vec![samples(&[(1, 5, 3.0)])],
        min_valid_time: Some(10),
        ..Head::default()
    };
    head.check(&[("a", &[(5, 3.0), (10, 2.0)])]);
}

#[test]
fn chunks_stand_for_the_samples_of_the_log_that_they_hold() {
    let mut chunks = chunk(1, &[(5, 1.0), (10, 2.0)], false);
    chunks.extend(chunk(1, &[(20, 3.0)], false));
    chunks.extend(chunk(7, &[(20, 9.0)], false));
    let head = Head {
        wal: vec![
            series(1, &name("a")),
            samples(&[(1, 5, 1.0), (1, 7, 8.0), (1, 20, 3.0), (1, 30, 4.0)]),
        ],
        chunks,
        min_valid_time: Some(6),
        ..Head::default()
    };
    head.check(&[("a", &[(10, 2.0), (20, 3.0), (30, 4.0)])]);
}

#[test]
fn series_created_anew_with_another_number_begins_anew() {
    let mut chunks = chunk(1, &[(5, 1.0)], false);
    chunks.extend(chunk(4, &[(50, 5.0)], false));
    let head = Head {
        wal: vec![
            series(1, &name("a")),
            samples(&[(1, 10, 2.0)]),
            series(4, &name("a")),
            samples(&[(4, 50, 5.0), (4, 60, 6.0), (1, 70, 7.0)]),
        ],
        wbl: vec![samples(&[(4, 55, 8.0), (1, 56, 9.0)])],
        chunks,
        ..Head::default()
    };
    head.check(&[(
        "a",
        &[(50, 5.0), (55, 8.0), (56, 9.0), (60, 6.0), (70, 7.0)],
    )]);
}

#[test]
fn deleted_samples_are_left_out_of_all_sources_and_gone_series_are_gone() {
    let head = Head {
        wal: vec![
            series(1, &name("a")),
            series(2, &name("b")),
            samples(&[(1, 10, 1.0), (1, 20, 2.0), (1, 30, 3.0), (2, 10, 4.0)]),
            deletion(1, TimeRange::new(15, 25)),
            deletion(2, TimeRange::ALL),
            samples(&[(2, 20, 5.0)]),
            series(3, &name("b")),
            samples(&[(3, 30, 6.0)]),
        ],
        wbl: vec![samples(&[(1, 16, 7.0), (1, 26, 8.0)])],
        ..Head::default()
    };
    head.check(&[
        ("a", &[(10, 1.0), (26, 8.0), (30, 3.0)]),
        ("b", &[(30, 6.0)]),
    ]);
}

#[test]
fn late_samples_come_from_chunks_and_from_behind_the_last_marker_that_has_its_chunk() {
    let late = chunk(1, &[(2, 2.0), (3, 3.0)], true);
    let reference = 1 << 32 | 8;
    let head = |chunks: Vec<u8>, marked| Head {
        wal: vec![series(1, &name("a")), samples(&[(1, 10, 1.0)])],
        wbl: vec![
            samples(&[(1, 2, 2.0), (1, 3, 3.0)]),
            marker(1, marked),
            samples(&[(1, 4, 4.0), (1, 3, 9.0), (1, 10, 9.0)]),
        ],
        chunks,
        ..Head::default()
    };
    let all: &[_] = &[(2, 2.0), (3, 3.0), (4, 4.0), (10, 1.0)];
    head(late, reference).check(&[("a", all)]);
    // The chunk was lost: its samples are still in the log.
    head(Vec::new(), reference).check(&[("a", all)]);
}

#[test]
fn head_that_does_not_fit_into_memory_is_read_in_parts() {
    let mut wal = Vec::new();
    let mut wanted = Vec::new();
    for number in 0..200u64 {
        wal.push(series(number, &name(&format!("m{number:03}"))));
        let floats: Vec<_> = (0..20).map(|i| (number, i, number as f64)).collect();
        wal.push(samples(&floats));
        let floats: Vec<_> = floats
            .iter()
            .map(|(_, time, value)| (*time, *value))
            .collect();
        wanted.push((format!("m{number:03}"), floats));
    }
    let head = Head {
        wal,
        memory_bytes: Some(50_000),
        ..Head::default()
    };
    let (mut found, parts) = head.read().expect("each series fits");
    assert!((6..20).contains(&parts), "{parts}");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, wanted);
    let head = Head {
        memory_bytes: Some(700),
        ..head
    };
    let error = head.read().unwrap_err().to_string();
    assert!(
        error.ends_with("needs more than 700 bytes of memory"),
        "{error}"
    );
}

#[test]
fn chunks_cut_at_the_end_of_the_last_file_are_replaced_by_the_log() {
    let whole = chunk(1, &[(5, 1.0), (10, 2.0)], false);
    for cut in 0..whole.len() {
        let mut chunks = whole[..cut].to_vec();
        // The file is longer than its content.
        chunks.resize(cut + 60, 0);
        let head = Head {
            wal: vec![series(1, &name("a")), samples(&[(1, 5, 1.0), (1, 10, 2.0)])],
            chunks,
            ..Head::default()
        };
        head.check(&[("a", &[(5, 1.0), (10, 2.0)])]);
    }
}

#[test]
fn chunks_that_overlap_are_an_error_that_names_the_file() {
    let mut chunks = chunk(1, &[(5, 1.0), (10, 2.0)], false);
    chunks.extend(chunk(1, &[(10, 3.0)], false));
    let head = Head {
        wal: vec![series(1, &name("a"))],
        chunks,
        ..Head::default()
    };
    let error = head.read().unwrap_err().to_string();
    assert!(
        error.starts_with("chunks_head/1: chunk of series 1 from 10 to 10"),
        "{error}"
    );
}

#[test]
fn damaged_record_is_an_error_that_names_the_file() {
    let mut record = series(1, &name("a"));
    record.truncate(record.len() - 1);
    let head = Head {
        wal: vec![series(2, &name("b")), record],
        ..Head::default()
    };
    let error = head.read().unwrap_err().to_string();
    assert!(
        error.starts_with("wal/0: unexpected end at byte "),
        "{error}"
    );
}
