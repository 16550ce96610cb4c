//! Any bytes as an expression: what parses prints, and what is printed parses and prints the same.

#![no_main]

use firn_promql::{Features, parser};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(tree) = parser::parse(text, Features::ALL) else {
        return;
    };
    let printed = tree.to_string();
    match parser::parse(&printed, Features::ALL) {
        Ok(again) => assert_eq!(printed, again.to_string(), "of {text:?}"),
        Err(e) => panic!("{text:?} printed as {printed:?}: {e}"),
    }
});
