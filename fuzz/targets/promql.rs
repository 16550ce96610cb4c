//! Fuzzes PromQL expressions: the text form of a parsed expression can be parsed again and has the
//! same text form.

#![cfg_attr(fuzzing, no_main)]

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
