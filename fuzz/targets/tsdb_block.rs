//! Fuzzes the files of a Prometheus block: series are in the order of their labels and samples in
//! time order, or there is an error.

#![cfg_attr(fuzzing, no_main)]

use firn_prometheus_tsdb::{
    ChunkSegments, IndexReader, NamedRangeFile, Tombstones, TsdbBlockMeta, TsdbBlockReader,
};

fn walk(index: &[u8], chunks: &[u8], tombstones: Option<Tombstones>) {
    let Ok(index) = IndexReader::open(NamedRangeFile::new("index", index)) else {
        return;
    };
    let Ok(segments) = ChunkSegments::open(vec![NamedRangeFile::new("chunks", chunks)]) else {
        return;
    };
    let mut block = TsdbBlockReader::new(index, segments, tombstones);
    let mut before = None;
    while let Ok(Some(mut series)) = block.next_series() {
        let labels = series.labels().to_owned();
        assert!(before.is_none_or(|before| before < labels));
        before = Some(labels);
        let mut last = None;
        // An index may refer to the same chunk any number of times.
        for _ in 0..1_000 {
            let Ok(Some(sample)) = series.next_sample() else {
                break;
            };
            assert!(last.is_none_or(|last| last < sample.time));
            last = Some(sample.time);
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((lengths, rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let [a, b, c, d] = *lengths;
    let index = usize::from(u16::from_le_bytes([a, b])).min(rest.len());
    let (index, rest) = rest.split_at(index);
    let chunks = usize::from(u16::from_le_bytes([c, d])).min(rest.len());
    let (chunks, rest) = rest.split_at(chunks);
    if let Ok(meta) = TsdbBlockMeta::read("meta.json", rest) {
        assert_eq!(TsdbBlockMeta::read("meta.json", &meta.write()), Ok(meta));
    }
    walk(index, chunks, Tombstones::read("tombstones", rest).ok());
    walk(index, chunks, None);
});
