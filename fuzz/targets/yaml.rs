//! Fuzzes the YAML reader in both dialects: nothing panics, and a printed tree can be read again
//! and prints the same.

#![cfg_attr(fuzzing, no_main)]

use firn_yaml::{YamlDialect, decode, parse_as, print};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = decode(bytes) else {
        return;
    };
    for dialect in [YamlDialect::V2, YamlDialect::V3] {
        let Ok(Some(root)) = parse_as(&text, dialect) else {
            continue;
        };
        let printed = print(&root);
        match parse_as(&printed, dialect) {
            Ok(Some(again)) => assert_eq!(printed, print(&again), "of {text:?}"),
            other => panic!("{text:?} printed as {printed:?}: {other:?}"),
        }
    }
});
