//! The web page completes the functions of PromQL, all of them and no others.

use crate::{report, root};
use firn_promql::functions::FUNCTIONS;
use std::collections::BTreeSet;

#[test]
fn web_page_completes_all_functions() {
    let text = std::fs::read_to_string(root().join("ui/completion.js")).expect("the completion");
    let list = text.split_once("const FUNCTIONS = `").map(|(_, rest)| rest);
    let list = list.and_then(|rest| rest.split_once('`'));
    let completed: BTreeSet<&str> = list.expect("the list").0.split_whitespace().collect();
    let functions: BTreeSet<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
    let differing: Vec<String> = completed
        .symmetric_difference(&functions)
        .map(|name| (*name).to_owned())
        .collect();
    report("in one of ui/completion.js and FUNCTIONS", &differing);
}
