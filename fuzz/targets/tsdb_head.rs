//! Fuzzes the files that Prometheus replays at start: reading in parts and at once gives the same
//! result, and times increase.

#![cfg_attr(fuzzing, no_main)]

use firn_prometheus_tsdb::{
    HeadChunkFile, HeadFiles, HeadOptions, HeadReader, NamedRangeFile, TsdbError,
};
use std::collections::BTreeMap;

fn read(parts: &[&[u8]; 4], memory_bytes: usize) -> Result<BTreeMap<String, String>, TsdbError> {
    let [checkpoint, wal, wbl, chunks] = parts.map(|bytes| NamedRangeFile::new("f", bytes));
    let files = HeadFiles {
        checkpoint: vec![checkpoint],
        wal: vec![wal],
        wbl: vec![wbl],
        chunks: vec![HeadChunkFile {
            number: 1,
            file: chunks,
        }],
    };
    let options = HeadOptions {
        memory_bytes,
        min_valid_time: Some(0),
    };
    let (mut head, mut all) = (HeadReader::new(files, options), BTreeMap::new());
    while let Some(mut series) = head.next_series()? {
        let labels = series.labels().to_string();
        let (mut samples, mut last) = (String::new(), None);
        while let Some(sample) = series.next_sample()? {
            assert!(last.is_none_or(|last| last < sample.time));
            last = Some(sample.time);
            samples.push_str(&format!("{sample:?}"));
        }
        all.insert(labels, samples);
    }
    Ok(all)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((lengths, mut rest)) = bytes.split_first_chunk::<6>() else {
        return;
    };
    let mut parts: [&[u8]; 4] = [&[]; 4];
    for (part, length) in parts.iter_mut().zip(lengths.chunks(2)) {
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        (*part, rest) = rest.split_at(length.min(rest.len()));
    }
    parts[3] = rest;
    let at_once = read(&parts, 16 << 20);
    match (at_once, read(&parts, 4_000)) {
        (Ok(at_once), Ok(in_parts)) => assert_eq!(at_once, in_parts),
        (_, Err(_)) => {}
        (Err(at_once), Ok(_)) => panic!("only at once: {at_once}"),
    }
});
