//! Fuzzes the JSON reader of discoveries: nothing panics, and it reads every text that serde_json
//! reads, with the same structure.

#![cfg_attr(fuzzing, no_main)]
// The module belongs to the discoveries, and the fuzzer uses only a part of it.
#![allow(dead_code)]

#[path = "../../crates/edge/discovery/src/json/text.rs"]
mod text;

use serde_json::Value;
use text::JsonTree;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let ours = text::parse(bytes);
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        let tree = ours.expect("serde_json reads it");
        assert!(is_equal(&tree, &value), "{tree:?} {value:?}");
    }
});

/// Compares structure and texts. Of equal keys, serde_json keeps the last value.
fn is_equal(tree: &JsonTree, value: &Value) -> bool {
    match (tree, value) {
        (JsonTree::Null, Value::Null) | (JsonTree::Number(_), Value::Number(_)) => true,
        (JsonTree::Bool(a), Value::Bool(b)) => a == b,
        (JsonTree::Text(a), Value::String(b)) => a == b,
        (JsonTree::List(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (JsonTree::Object(a), Value::Object(b)) => b.iter().all(|(key, value)| {
            let last = a.iter().rfind(|(own, _)| own == key);
            last.is_some_and(|(_, tree)| is_equal(tree, value))
        }),
        _ => false,
    }
}
