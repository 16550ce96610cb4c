//! The web page has help for the functions of PromQL, all of them and no others.

use crate::{report, root};
use firn_promql::functions::FUNCTIONS;
use std::collections::BTreeSet;

const FILE: &str = "ui/src/query/functions.ts";

#[test]
fn web_page_explains_all_functions() {
    let text = std::fs::read_to_string(root().join(FILE)).expect("the functions of the page");
    let table = text.split_once("const TABLE = `").map(|(_, rest)| rest);
    let table = table.and_then(|rest| rest.split_once('`'));
    let lines = table.expect("the table").0.lines();
    let explained: BTreeSet<&str> = lines
        .filter_map(|line| Some(line.split_once('|')?.0))
        .collect();
    let functions: BTreeSet<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
    let differing: Vec<String> = explained
        .symmetric_difference(&functions)
        .map(|name| (*name).to_owned())
        .collect();
    report(&format!("in one of {FILE} and FUNCTIONS"), &differing);
}
