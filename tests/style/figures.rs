//! Figures about the shape of the code, as a table: `make figures`.
//!
//! It counts the quantities that the style tests limit, and others: lines by crate, large files and
//! functions, circles, `unsafe`, refused words, repeated stretches. `FIRN_ROOT=DIR` counts another
//! checkout, so that two of them can be compared by the same rules.
// A program for the terminal; a file that cannot be read ends it.
#![allow(clippy::print_stdout)]

mod glossary;
mod modules;
mod sources;

use glossary::{lines_without_texts, refused, words};
use modules::{graphs, name};
use sources::{Source, all, is_test_only};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const LARGE_FILE_LINES: usize = 500;
const LONG_FUNCTION_LINES: usize = 60;
/// A circle of more files is named.
const CIRCLE_FILES: usize = 4;
/// So many equal lines in a row are a repeated stretch.
const STRETCH_LINES: usize = 6;

fn root() -> PathBuf {
    let manifest = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = manifest.ancestors().nth(3).expect("below the root");
    std::env::var_os("FIRN_ROOT").map_or_else(|| own.to_path_buf(), PathBuf::from)
}

fn main() {
    let sources = all();
    let (production, tests): (Vec<&Source>, Vec<&Source>) =
        sources.iter().partition(|source| source.is_production());
    lines_by_crate(&production, &tests);
    let shape = shape(&production);
    row("production files", production.len());
    row("  of more than 500 lines", shape.large_files);
    row("production functions", shape.functions);
    row("  of more than 60 lines", shape.long_functions);
    row("`unsafe` blocks, functions and impls", shape.unsafe_uses);
    row("asserts in production", shape.asserts);
    row("lines with a refused word", refused_words(&production));
    row("lines in repeated stretches", repeated_lines(&production));
    let graphs = graphs();
    let mut circles: Vec<_> = graphs.values().flat_map(|graph| graph.circles()).collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    row("circles of files", circles.len());
    row(
        "  files in the largest",
        circles.first().map_or(0, Vec::len),
    );
    for circle in circles.iter().filter(|circle| circle.len() > CIRCLE_FILES) {
        let names: Vec<String> = circle.iter().map(|module| name(module)).collect();
        println!("  {}: {}", names.len(), names.join(", "));
    }
}

fn row(name: &str, figure: usize) {
    println!("{name:<44}{figure:>8}");
}

fn lines_by_crate(production: &[&Source], tests: &[&Source]) {
    println!(
        "{:<12}{:>12}{:>12}{:>12}",
        "lines", "production", "code alone", "tests"
    );
    let mut lines: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for source in production {
        let of_crate = lines
            .entry(source.crate_name().unwrap_or("others"))
            .or_default();
        let shipped = source.production_lines().count();
        of_crate[0] += shipped;
        of_crate[1] += source
            .production_lines()
            .filter(|(_, line)| is_code(line))
            .count();
        of_crate[2] += source.text.lines().count() - shipped;
    }
    for source in tests {
        let krate = source.crate_name().unwrap_or("others");
        lines.entry(krate).or_default()[2] += source.text.lines().count();
    }
    for (krate, [production, code, tests]) in lines {
        println!("{krate:<12}{production:>12}{code:>12}{tests:>12}");
    }
}

/// Whether a line is neither blank nor a comment.
fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

#[derive(Default)]
struct Shape {
    large_files: usize,
    functions: usize,
    long_functions: usize,
    unsafe_uses: usize,
    asserts: usize,
}

fn shape(production: &[&Source]) -> Shape {
    let mut shape = Shape::default();
    for source in production {
        let lines = source.production_lines().count();
        shape.large_files += usize::from(lines > LARGE_FILE_LINES);
        shape.visit_file(source.syntax());
    }
    shape
}

impl Shape {
    fn function(&mut self, sig: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line + 1 - sig.span().start().line;
        self.functions += 1;
        self.long_functions += usize::from(lines > LONG_FUNCTION_LINES);
        self.unsafe_uses += usize::from(sig.unsafety.is_some());
    }
}

impl<'ast> Visit<'ast> for Shape {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.unsafe_uses += usize::from(item.unsafety.is_some());
        visit::visit_item_impl(self, item);
    }

    fn visit_expr_unsafe(&mut self, expr: &'ast syn::ExprUnsafe) {
        self.unsafe_uses += 1;
        visit::visit_expr_unsafe(self, expr);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let name = called
            .path
            .segments
            .last()
            .map(|last| last.ident.to_string());
        let asserts = ["assert", "assert_eq", "assert_ne", "debug_assert"];
        self.asserts += usize::from(name.is_some_and(|name| asserts.contains(&&*name)));
    }
}

fn refused_words(production: &[&Source]) -> usize {
    let refused = refused();
    let has_refused = |line: &String| words(line).any(|word| refused.contains(&word));
    let lines = production
        .iter()
        .flat_map(|source| lines_without_texts(source));
    lines.filter(has_refused).count()
}

/// Lines of code that belong to a stretch which stands at another place too, letter by letter.
fn repeated_lines(production: &[&Source]) -> usize {
    let files: Vec<Vec<&str>> = production
        .iter()
        .map(|source| {
            let lines = source.production_lines().map(|(_, line)| line.trim());
            lines.filter(|line| is_told_apart(line)).collect()
        })
        .collect();
    let mut seen: HashMap<&[&str], usize> = HashMap::new();
    for stretch in files.iter().flat_map(|lines| lines.windows(STRETCH_LINES)) {
        *seen.entry(stretch).or_default() += 1;
    }
    let repeated = |lines: &Vec<&str>| {
        let mut marked = vec![false; lines.len()];
        for (at, stretch) in lines.windows(STRETCH_LINES).enumerate() {
            if seen[stretch] > 1 {
                marked[at..at + STRETCH_LINES].fill(true);
            }
        }
        marked.into_iter().filter(|marked| *marked).count()
    };
    files.iter().map(repeated).sum()
}

/// Returns whether a line is more than a bracket or an import.
fn is_told_apart(line: &str) -> bool {
    is_code(line) && !line.starts_with("use ") && line.chars().any(char::is_alphanumeric)
}
