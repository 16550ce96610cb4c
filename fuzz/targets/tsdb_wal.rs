//! Fuzzes segments of Prometheus's WAL, single records, and files of head chunks: reading
//! terminates, with or without an error.

#![no_main]

use firn_wire::tsdb::{Entries, File, HeadChunkFile, HeadChunks, Tail, WalReader};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failed = Entries::new(bytes).filter(Result::is_err).count();
    assert!(failed <= 1, "goes on behind an error");
    for tail in [Tail::MayBeTorn, Tail::IsWhole] {
        let files = [File::new("0", bytes)];
        let mut reader = WalReader::new(&files, tail);
        while let Ok(Some(record)) = reader.next_record() {
            Entries::new(record).for_each(drop);
        }
    }
    let files = [HeadChunkFile {
        number: 1,
        file: File::new("1", bytes),
    }];
    let mut chunks = HeadChunks::new(&files);
    while let Ok(Some(chunk)) = chunks.next_chunk() {
        if let Ok(samples) = chunk.samples(&files) {
            samples.take(500).for_each(drop);
        }
    }
});
