//! The ways of a write, a query and a scrape in `docs/ARCHITECTURE.md`: each hop names a file and a
//! function, and one of the hops before it calls that function.
//!
//! A hop stands for its function and for what that one calls inside its file. Calls are found by
//! name, so a call through a trait counts as the call of the method that is named.

use crate::sources::{all, is_test_only};
use crate::{report, root};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

const HOPS_MAX: usize = 10;
const WAYS: [&str; 3] = ["write", "scrape", "query"];

/// The names that each function of a file calls or hands on; functions of one name count as one.
type Functions = BTreeMap<String, BTreeSet<String>>;

struct Hop {
    path: String,
    function: String,
}

#[test]
fn way_that_the_code_does_not_go_is_refused() {
    let path = root().join("docs/ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).expect("docs/ARCHITECTURE.md is readable");
    let files: BTreeMap<String, Functions> = all()
        .into_iter()
        .filter(|source| source.is_production())
        .map(|source| {
            let functions = functions(source.syntax());
            (source.path, functions)
        })
        .collect();
    let mut findings = Vec::new();
    for way in WAYS {
        let hops = hops(&text, way);
        if hops.is_empty() || hops.len() > HOPS_MAX {
            findings.push(format!("{way}: {} hops, at most {HOPS_MAX}", hops.len()));
        }
        findings.extend(check(way, &hops, &files));
    }
    report("ways in docs/ARCHITECTURE.md", &findings);
}

/// The lines ``1. `file` `function`: …`` below the heading of a way.
fn hops(text: &str, way: &str) -> Vec<Hop> {
    let heading = format!("\n## The path of a {way}\n");
    let section = text.split_once(&heading).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter_map(hop).collect()
}

fn hop(line: &str) -> Option<Hop> {
    let (number, rest) = line.split_once(". `")?;
    number.parse::<usize>().ok()?;
    let (path, rest) = rest.split_once("` `")?;
    let (function, _) = rest.split_once('`')?;
    Some(Hop {
        path: path.to_owned(),
        function: function.to_owned(),
    })
}

fn check(way: &str, hops: &[Hop], files: &BTreeMap<String, Functions>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut called = BTreeSet::new();
    for (number, hop) in hops.iter().enumerate() {
        let name = format!("{way} {}: `{}` `{}`", number + 1, hop.path, hop.function);
        let Some(functions) = files.get(&hop.path) else {
            findings.push(format!("{name}: no such file"));
            continue;
        };
        if !functions.contains_key(&hop.function) {
            findings.push(format!("{name}: no such function"));
        } else if number > 0 && !called.contains(&hop.function) {
            findings.push(format!("{name}: no hop before it calls it"));
        }
        called.extend(calls(functions, &hop.function));
    }
    findings
}

/// The names that a function calls, directly or through functions of its file.
fn calls(functions: &Functions, from: &str) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    let mut reached = vec![from.to_owned()];
    while let Some(function) = reached.pop() {
        for name in functions.get(&function).into_iter().flatten() {
            if calls.insert(name.clone()) {
                reached.push(name.clone());
            }
        }
    }
    calls
}

fn functions(file: &syn::File) -> Functions {
    let mut collected = Collected::default();
    collected.visit_file(file);
    collected.functions
}

#[derive(Default)]
struct Collected {
    functions: Functions,
    within: Option<String>,
}

impl Collected {
    fn enter(&mut self, name: &syn::Ident, block: &syn::Block) {
        let outer = self.within.replace(name.to_string());
        self.functions.entry(name.to_string()).or_default();
        self.visit_block(block);
        self.within = outer;
    }

    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut before = None;
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    if let (Some(name), Delimiter::Parenthesis) = (&before, group.delimiter()) {
                        self.note(name);
                    }
                    self.note_tokens(group.stream());
                    before = None;
                }
                TokenTree::Ident(name) => before = Some(name),
                _ => before = None,
            }
        }
    }

    fn note(&mut self, name: &syn::Ident) {
        if let Some(function) = &self.within
            && let Some(names) = self.functions.get_mut(function)
        {
            names.insert(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Collected {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.enter(&item.sig.ident, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.enter(&item.sig.ident, &item.block);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.note(&call.method);
        visit::visit_expr_method_call(self, call);
    }

    /// The arguments of a macro are not parsed: each name before a parenthesis counts as a call.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.note_tokens(called.tokens.clone());
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        if let Some(last) = path.path.segments.last() {
            self.note(&last.ident);
        }
    }
}
