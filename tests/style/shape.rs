//! Lengths, headers, banned calls and banned names.

use crate::sources::{Source, all, is_test_only};
use crate::{report, root};
use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 100;

/// Rooms that may not touch the system but through `firn_model::env`.
const SYNCHRONOUS: [&str; 7] = [
    "prometheus_tsdb",
    "model",
    "wire",
    "storage",
    "promql",
    "goregex",
    "yaml",
];

/// The files behind that door.
const THE_DOOR: &str = "crates/core/model/src/env/real";

/// Calls that synchronous crates must not make, each with its replacement.
const BANNED_CALLS: [(&str, &str); 12] = [
    ("SystemTime::now", "take `Env.clock`"),
    ("Instant::now", "take `Env.clock`"),
    ("std::fs", "take `Env.disk`"),
    ("File::open", "take `Env.disk`"),
    ("std::thread", "take `Env.compute`"),
    ("thread::spawn", "take `Env.compute`"),
    ("thread::sleep", "wait for a condition instead"),
    ("RandomState", "take a seed from `Env.rng`"),
    ("getrandom", "take `Env.rng`"),
    ("std::net", "sockets belong to asynchronous crates"),
    ("std::env::", "settings arrive as values"),
    (
        "async fn",
        "return a handle; `await` belongs to asynchronous crates",
    ),
];

const BANNED_MODULES: [&str; 8] = [
    "util", "utils", "common", "helper", "helpers", "misc", "shared", "stuff",
];

/// Exceptions: `"path" = "reason"` in a table for each rule.
pub struct Allowed {
    table: toml::Table,
}

impl Allowed {
    /// The file of exceptions.
    pub fn read() -> Self {
        let text = std::fs::read_to_string(root().join("tests/style/allow.toml"))
            .expect("tests/style/allow.toml is readable");
        Self {
            table: text.parse().expect("tests/style/allow.toml is TOML"),
        }
    }

    fn rule(&self, rule: &str) -> BTreeSet<String> {
        let entries = self.table.get(rule).and_then(|t| t.as_table());
        entries
            .map(|t| t.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Splits `findings` (key, text) into those not excepted and the exceptions not needed.
    pub fn judge(&self, rule: &str, findings: Vec<(String, String)>) -> Vec<String> {
        let allowed = self.rule(rule);
        let used: BTreeSet<_> = findings.iter().map(|(k, _)| k.clone()).collect();
        let unused = allowed.iter().filter(|k| !used.contains(*k));
        let mut out: Vec<String> = unused
            .map(|k| format!("allow.toml: [{rule}] {k:?} is no longer needed"))
            .collect();
        out.extend(
            findings
                .into_iter()
                .filter(|(k, _)| !allowed.contains(k))
                .map(|(_, t)| t),
        );
        out
    }
}

#[test]
fn file_length_over_limit_is_refused() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|s| s.is_production()) {
        let lines = source.production_lines().count();
        if lines > FILE_LINES_MAX {
            let text = format!("{}: {lines} lines, limit {FILE_LINES_MAX}", source.path);
            findings.push((source.path.clone(), text));
        }
    }
    report(
        "file length",
        &Allowed::read().judge("file_lines", findings),
    );
}

#[test]
fn function_length_over_limit_is_refused() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|s| s.is_production()) {
        let mut lengths = Lengths {
            path: &source.path,
            findings: Vec::new(),
        };
        lengths.visit_file(source.syntax());
        findings.extend(lengths.findings);
    }
    report(
        "function length",
        &Allowed::read().judge("function_lines", findings),
    );
}

struct Lengths<'a> {
    path: &'a str,
    findings: Vec<(String, String)>,
}

impl Lengths<'_> {
    fn check(&mut self, sig: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line + 1 - sig.span().start().line;
        if lines > FUNCTION_LINES_MAX {
            let key = format!("{}:{}", self.path, sig.ident);
            let text = format!("{key}: {lines} lines, limit {FUNCTION_LINES_MAX}");
            self.findings.push((key, text));
        }
    }
}

impl<'ast> Visit<'ast> for Lengths<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            self.check(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig, &item.block);
    }
}

#[test]
fn tuple_pattern_in_parameter_is_refused() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|s| s.is_production()) {
        let mut parameters = TupleParameters {
            path: &source.path,
            findings: Vec::new(),
        };
        parameters.visit_file(source.syntax());
        findings.extend(parameters.findings);
    }
    report("tuple parameters", &findings);
}

/// Finds tuple patterns in parameters of functions. Those of closures are not visited. There are no
/// exceptions.
struct TupleParameters<'a> {
    path: &'a str,
    findings: Vec<String>,
}

impl<'ast> Visit<'ast> for TupleParameters<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_signature(&mut self, sig: &'ast syn::Signature) {
        let has_tuple = sig.inputs.iter().any(|input| match input {
            syn::FnArg::Typed(typed) => is_tuple_pattern(&typed.pat),
            syn::FnArg::Receiver(_) => false,
        });
        if has_tuple {
            self.findings.push(format!(
                "{}:{}: `{}` takes a tuple apart: take separate parameters or a named struct",
                self.path,
                sig.span().start().line,
                sig.ident
            ));
        }
    }
}

fn is_tuple_pattern(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Tuple(_) => true,
        syn::Pat::Paren(inner) => is_tuple_pattern(&inner.pat),
        syn::Pat::Reference(inner) => is_tuple_pattern(&inner.pat),
        _ => false,
    }
}

#[test]
fn tuple_pattern_in_parameter_is_found() {
    let check = |code: &str, expected: usize| {
        let syntax = syn::parse_file(code).expect("the code is valid");
        let mut parameters = TupleParameters {
            path: "crates/core/model/src/lib.rs",
            findings: Vec::new(),
        };
        parameters.visit_file(&syntax);
        assert_eq!(parameters.findings.len(), expected, "{code}");
    };
    check("fn f((a, b): (u8, u8)) {}", 1);
    check("fn f(&(a, b): &(u8, u8)) {}", 1);
    check("impl S { fn f(&self, (a, b): Pair) {} }", 1);
    check("trait T { fn f((a, b): (u8, u8)) {} }", 1);
    check("mod m { fn f() { fn g((a, b): (u8, u8)) {} } }", 1);
    check("fn f(pair: (u8, u8)) { let (a, b) = pair; }", 0);
    check("fn f(Pair { a, b }: Pair) {}", 0);
    check("fn f() { g(|(a, b)| a + b); }", 0);
    check("#[cfg(test)] mod tests { fn f((a, b): (u8, u8)) {} }", 0);
    check("#[test] fn f() {}", 0);
}

#[test]
fn line_over_limit_is_refused() {
    let mut findings = Vec::new();
    for source in &all() {
        for (i, line) in source.text.lines().enumerate() {
            let chars = line.chars().count();
            if chars > LINE_CHARS_MAX && !line.contains("http") && source.is_production() {
                let text = format!(
                    "{}:{}: {chars} characters, limit {LINE_CHARS_MAX}",
                    source.path,
                    i + 1
                );
                findings.push((source.path.clone(), text));
            }
        }
    }
    report(
        "line length",
        &Allowed::read().judge("line_chars", findings),
    );
}

#[test]
fn file_without_header_is_refused() {
    let headless = |s: &&Source| !s.text.starts_with("//!");
    let findings: Vec<String> = all()
        .iter()
        .filter(headless)
        .map(|s| {
            format!(
                "{}: open with `//!`: what it is, what it keeps, what it leaves",
                s.path
            )
        })
        .collect();
    report("file header", &findings);
}

/// Returns whether `code` contains `call`, not as the end of a longer name.
fn contains_call(code: &str, call: &str) -> bool {
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(call)
        .any(|(at, _)| !code[..at].ends_with(is_in_name))
}

#[test]
fn system_call_below_the_rim_is_refused() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|s| s.is_production()) {
        let below = source
            .crate_name()
            .is_some_and(|r| SYNCHRONOUS.contains(&r));
        if !below || source.path.starts_with(THE_DOOR) {
            continue;
        }
        for (number, line) in source.production_lines() {
            let code = line.split("//").next().unwrap_or("");
            for (call, instead) in BANNED_CALLS {
                if contains_call(code, call) {
                    let text = format!(
                        "{}:{number}: `{call}` is banned here, {instead}",
                        source.path
                    );
                    findings.push((source.path.clone(), text));
                }
            }
        }
    }
    report(
        "system calls",
        &Allowed::read().judge("system_calls", findings),
    );
}

#[test]
fn unsafe_code_is_refused() {
    let mut findings = Vec::new();
    let outside = |s: &&Source| !s.path.starts_with("tests/style/");
    for source in all().iter().filter(outside) {
        // The compiler denies it wherever this lint is not named.
        let code = |line: &str| {
            line.split("//")
                .next()
                .unwrap_or("")
                .contains("unsafe_code")
        };
        if source.text.lines().any(code) {
            let text = format!("{}: write it without unsafe code", source.path);
            findings.push((source.path.clone(), text));
        }
    }
    report(
        "unsafe code",
        &Allowed::read().judge("unsafe_code", findings),
    );
}

#[test]
fn module_named_for_nothing_is_refused() {
    let nothing = |s: &&Source| {
        let stem = s.path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        BANNED_MODULES.contains(&stem.rsplit('/').next().unwrap_or(""))
    };
    let findings: Vec<String> = all()
        .iter()
        .filter(nothing)
        .map(|s| format!("{}: name the module after what it holds", s.path))
        .collect();
    report("module names", &findings);
}

#[test]
fn unfinished_work_is_refused() {
    // Spelt in two halves so that this file does not find itself.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("#[ig", "nore"),
    ];
    let mut findings = Vec::new();
    for source in &all() {
        for (i, line) in source.text.lines().enumerate() {
            if marks.iter().any(|m| line.contains(m)) {
                findings.push(format!(
                    "{}:{}: finish it or leave it out",
                    source.path,
                    i + 1
                ));
            }
        }
    }
    report("unfinished work", &findings);
}
