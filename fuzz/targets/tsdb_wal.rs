//! Fuzzes segments of Prometheus's WAL, single records, and files of head chunks: reading
//! terminates, with or without an error.

#![cfg_attr(fuzzing, no_main)]

use firn_prometheus_tsdb::{
    HeadChunkFile, HeadChunks, NamedRangeFile, WalEntries, WalReader, WalTailPolicy,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failed = WalEntries::new(bytes).filter(Result::is_err).count();
    assert!(failed <= 1, "goes on behind an error");
    for tail in [WalTailPolicy::MayBeTorn, WalTailPolicy::IsWhole] {
        let files = [NamedRangeFile::new("0", bytes)];
        let mut reader = WalReader::new(&files, tail);
        while let Ok(Some(record)) = reader.next_record() {
            WalEntries::new(record).for_each(drop);
        }
    }
    let files = [HeadChunkFile {
        number: 1,
        file: NamedRangeFile::new("1", bytes),
    }];
    let mut chunks = HeadChunks::new(&files);
    while let Ok(Some(chunk)) = chunks.next_chunk() {
        if let Ok(samples) = chunk.read_samples(&files) {
            samples.take(500).for_each(drop);
        }
    }
});
