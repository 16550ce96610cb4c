//! Runs each fuzz target of `fuzz/targets` on its initial inputs and on mutants of them, without a fuzzer.
//!
//! The build of these tests also proves that the targets compile. `make fuzz` searches for other
//! inputs, guided by coverage.
// A test fails by a panic. The fuzzer's build sets the condition `fuzzing`. Each target is a program of its own
// there, with its own modules.
#![allow(clippy::unwrap_used, clippy::duplicate_mod, unexpected_cfgs)]

// The targets name the fuzzer's crate, whose macro is replaced by one of this crate.
extern crate self as libfuzzer_sys;

/// Declares a test that runs the target.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:block) => {
        #[test]
        fn initial_inputs_and_mutants_pass() {
            fn run($input: &[u8]) $body
            $crate::check(module_path!(), run);
        }
    };
}

#[path = "../../fuzz/targets/block.rs"]
mod block;
#[path = "../../fuzz/targets/bodies.rs"]
mod bodies;
#[path = "../../fuzz/targets/certificates.rs"]
mod certificates;
#[path = "../../fuzz/targets/corpus.rs"]
mod corpus;
#[path = "../../fuzz/targets/exposition.rs"]
mod exposition;
#[path = "../../fuzz/targets/http_response.rs"]
mod http_response;
#[path = "../../fuzz/targets/json.rs"]
mod json;
#[path = "../../fuzz/targets/otlp.rs"]
mod otlp;
#[path = "../../fuzz/targets/otlp_json.rs"]
mod otlp_json;
#[path = "../../fuzz/targets/page.rs"]
mod page;
#[path = "../../fuzz/targets/peer_frame.rs"]
mod peer_frame;
#[path = "../../fuzz/targets/promql.rs"]
mod promql;
#[path = "../../fuzz/targets/pushed_metadata.rs"]
mod pushed_metadata;
#[path = "../../fuzz/targets/remote_read.rs"]
mod remote_read;
#[path = "../../fuzz/targets/remote_write.rs"]
mod remote_write;
#[path = "../../fuzz/targets/segment.rs"]
mod segment;
#[path = "../../fuzz/targets/snappy.rs"]
mod snappy;
#[path = "../../fuzz/targets/store.rs"]
mod store;
#[path = "../../fuzz/targets/tsdb_block.rs"]
mod tsdb_block;
#[path = "../../fuzz/targets/tsdb_chunk.rs"]
mod tsdb_chunk;
#[path = "../../fuzz/targets/tsdb_head.rs"]
mod tsdb_head;
#[path = "../../fuzz/targets/tsdb_wal.rs"]
mod tsdb_wal;
#[path = "../../fuzz/targets/yaml.rs"]
mod yaml;
#[path = "../../fuzz/targets/zookeeper.rs"]
mod zookeeper;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The initial inputs by target. They take a tenth of a second to make, and each test needs them.
static CORPORA: LazyLock<BTreeMap<&str, Vec<Vec<u8>>>> =
    LazyLock::new(|| corpus::corpora().into_iter().collect());

/// Number of places at which the inputs of a target are cut and changed.
const PLACES: usize = 512;

/// Runs the target of `module` on no bytes, on its initial inputs, and on cut and changed ones.
fn check(module: &str, run: fn(&[u8])) {
    let (_, target) = module.rsplit_once("::").unwrap();
    run(&[]);
    let inputs = &CORPORA[target];
    assert!(!inputs.is_empty(), "{target} has no initial input");
    let places = PLACES.div_ceil(inputs.len());
    for input in inputs {
        run(input);
        for at in (0..input.len()).step_by((input.len() / places).max(1)) {
            run(&input[..at]);
            let mut changed = input.clone();
            changed[at] ^= 1 << (at % 8);
            run(&changed);
        }
    }
}

#[test]
fn each_target_is_a_module_here() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/targets");
    let sources = std::fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path());
    let targets = sources.filter(|path| {
        let source = std::fs::read_to_string(path).unwrap();
        source.contains("libfuzzer_sys::fuzz_target!")
    });
    let targets: BTreeSet<_> = targets
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let here = include_str!("main.rs");
    for target in &targets {
        assert!(
            here.contains(&format!("mod {target};")),
            "{target} is not tested"
        );
    }
    let names: BTreeSet<_> = CORPORA.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(names, targets);
}
