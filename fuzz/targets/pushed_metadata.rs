//! Fuzzes the file of pushed metric metadata: decoded texts are not longer than the input, and
//! encoded entries can be decoded again.

#![cfg_attr(fuzzing, no_main)]
// The module belongs to the crate `ingest`, and the fuzzer uses only a part of it.
#![allow(dead_code)]

#[path = "../../crates/core/ingest/src/metadata/file.rs"]
mod file;

const FILE_NAME: &str = "pushed";

use file::{decode, encode};
use firn_model::metadata::{MetricMetadata, MetricType};
use firn_model::tenant::TenantId;

/// A decoded entry with owned texts: name, help and unit.
type Entry = (TenantId, MetricType, [String; 3]);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(entries) = read(bytes) else {
        return;
    };
    let texts = entries.iter().flat_map(|(_, _, texts)| texts);
    assert!(texts.map(String::len).sum::<usize>() <= bytes.len());
    let said = entries.iter().map(|(tenant, kind, [name, help, unit])| {
        let said = MetricMetadata {
            name,
            kind: *kind,
            help,
            unit,
        };
        (tenant, said)
    });
    let again = encode(said);
    assert_eq!(read(&again).as_ref(), Some(&entries));
});

fn read(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    let decoded = decode(bytes, &mut |tenant, said| {
        let texts = [said.name, said.help, said.unit].map(str::to_owned);
        entries.push((tenant.clone(), said.kind, texts));
    });
    decoded.ok().map(|()| entries)
}
