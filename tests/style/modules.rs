//! The files of a crate as a graph: which file names items of which other, and the circles in it.
//!
//! A path that begins with `crate`, `super`, `self` or a child module leads to the file of the
//! longest module path that it begins with; where that file only hands an item on (`pub use`), to
//! the file that defines it. Tests do not count.

use crate::sources::{Source, all, is_test_only};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// A module path inside a crate: empty for `lib.rs`.
pub type Module = Vec<String>;

/// The files of one crate's sources.
#[derive(Default)]
pub struct Graph {
    /// For each module that has a file: the modules that the file names.
    pub uses: BTreeMap<Module, BTreeSet<Module>>,
}

/// The graph of every crate that has sources.
pub fn graphs() -> BTreeMap<String, Graph> {
    let mut files: BTreeMap<String, Vec<(Module, Source)>> = BTreeMap::new();
    for source in all().into_iter().filter(Source::is_production) {
        if let Some((krate, module)) = source
            .crate_name()
            .map(str::to_owned)
            .zip(module_of(&source))
        {
            files.entry(krate).or_default().push((module, source));
        }
    }
    let graph_of = |(krate, files)| (krate, graph(files));
    files.into_iter().map(graph_of).collect()
}

/// The module of a file of a library or of `main.rs`; none for other programs.
fn module_of(source: &Source) -> Option<Module> {
    let (_, path) = source.path.split_once("/src/")?;
    let path = path.strip_suffix(".rs")?;
    match path {
        "lib" | "main" => Some(Vec::new()),
        _ if path.starts_with("bin/") => None,
        _ => Some(path.split('/').map(str::to_owned).collect()),
    }
}

fn graph(files: Vec<(Module, Source)>) -> Graph {
    let mut test_only = BTreeSet::new();
    for (module, source) in &files {
        for name in declared(source.syntax(), true) {
            test_only.insert(child(module, &name));
        }
    }
    let is_shipped =
        |module: &Module| !(1..=module.len()).any(|n| test_only.contains(&module[..n]));
    let modules: BTreeSet<Module> = files.iter().map(|(module, _)| module.clone()).collect();
    let mut handed_on = HandedOn::new();
    for (module, source) in &files {
        for item in &source.syntax().items {
            if let syn::Item::Use(item) = item
                && !matches!(item.vis, syn::Visibility::Inherited)
            {
                collect_handed_on(module, &mut Vec::new(), &item.tree, &mut handed_on);
            }
        }
    }
    let mut graph = Graph::default();
    for (module, source) in files.iter().filter(|(module, _)| is_shipped(module)) {
        let mut names = Names {
            module,
            modules: &modules,
            handed_on: &handed_on,
            children: declared(source.syntax(), false),
            found: BTreeSet::new(),
        };
        names.visit_file(source.syntax());
        let mut found = names.found;
        // The root is the face of the crate, which any file may name.
        found.retain(|named| named != module && is_shipped(named) && !named.is_empty());
        graph.uses.insert(module.clone(), found);
    }
    graph
}

fn child(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// The modules with a file of their own that a file declares: for tests alone, or for all.
fn declared(file: &syn::File, for_tests: bool) -> BTreeSet<String> {
    let mods = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(m) if m.content.is_none() => Some(m),
        _ => None,
    });
    mods.filter(|m| (is_test_only(&m.attrs) || is_of_shuttle(&m.attrs)) == for_tests)
        .map(|m| m.ident.to_string())
        .collect()
}

fn is_of_shuttle(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| {
        a.path().is_ident("cfg") && quote_of(a).contains("shuttle") && !quote_of(a).contains("not")
    })
}

fn quote_of(attribute: &syn::Attribute) -> String {
    match &attribute.meta {
        syn::Meta::List(list) => list.tokens.to_string(),
        _ => String::new(),
    }
}

/// For a module and a name that it hands on: the path behind the name, as the module writes it.
type HandedOn = BTreeMap<(Module, String), Vec<String>>;

fn collect_handed_on(
    module: &Module,
    prefix: &mut Vec<String>,
    tree: &syn::UseTree,
    into: &mut HandedOn,
) {
    let (name, original) = match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            collect_handed_on(module, prefix, &path.tree, into);
            prefix.pop();
            return;
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                collect_handed_on(module, prefix, tree, into);
            }
            return;
        }
        syn::UseTree::Glob(_) => return,
        syn::UseTree::Name(name) => (&name.ident, &name.ident),
        syn::UseTree::Rename(name) => (&name.rename, &name.ident),
    };
    let path = prefix
        .iter()
        .cloned()
        .chain([original.to_string()])
        .collect();
    into.insert((module.clone(), name.to_string()), path);
}

/// Collects the modules that a file names.
struct Names<'a> {
    module: &'a Module,
    modules: &'a BTreeSet<Module>,
    handed_on: &'a HandedOn,
    children: BTreeSet<String>,
    found: BTreeSet<Module>,
}

impl Names<'_> {
    /// Notes the file that `path` leads to, if it is one of this crate.
    fn note(&mut self, path: &[String]) {
        if let Some(first) = path.first()
            && (["crate", "self", "super"].contains(&first.as_str())
                || self.children.contains(first))
            && let Some(found) = self.file_of(self.module, path)
        {
            self.found.insert(found);
        }
    }

    /// The module with a file that `path` leads to from `module`.
    fn file_of(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut absolute: Module = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => parent(module),
            name => child(module, name),
        };
        for (at, name) in rest.iter().enumerate() {
            if name == "super" {
                absolute = parent(&absolute);
                continue;
            }
            if let Some(path) = self.handed_on.get(&(absolute.clone(), name.clone())) {
                let path: Vec<String> = path.iter().chain(&rest[at + 1..]).cloned().collect();
                if let Some(found) = self.file_of(&absolute, &path) {
                    return Some(found);
                }
            }
            absolute.push(name.clone());
        }
        while !self.modules.contains(&absolute) {
            absolute.pop()?;
        }
        Some(absolute)
    }

    fn note_tree(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.note_tree(prefix, &path.tree);
                prefix.pop();
            }
            syn::UseTree::Name(name) => {
                prefix.push(name.ident.to_string());
                self.note(prefix);
                prefix.pop();
            }
            syn::UseTree::Rename(name) => {
                prefix.push(name.ident.to_string());
                self.note(prefix);
                prefix.pop();
            }
            syn::UseTree::Glob(_) => self.note(prefix),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|t| self.note_tree(prefix, t));
            }
        }
    }
}

fn parent(module: &[String]) -> Module {
    module
        .split_last()
        .map_or(Vec::new(), |(_, rest)| rest.to_vec())
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test_only(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test_only(&item.attrs) {
            self.note_tree(&mut Vec::new(), &item.tree);
        }
    }

    // The visibility of an item is irrelevant for the dependencies of its file.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if names.len() > 1 {
            self.note(&names);
        }
        visit::visit_path(self, path);
    }
}

impl Graph {
    /// The circles: sets of more than one file in which each leads to each other. Largest first.
    pub fn circles(&self) -> Vec<Vec<Module>> {
        let mut search = Search {
            graph: self,
            order: BTreeMap::new(),
            lowest: BTreeMap::new(),
            stack: Vec::new(),
            circles: Vec::new(),
        };
        for module in self.uses.keys() {
            if !search.order.contains_key(module) {
                search.visit(module);
            }
        }
        search
            .circles
            .sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        search.circles
    }
}

/// Tarjan's search for strongly connected components.
struct Search<'a> {
    graph: &'a Graph,
    order: BTreeMap<&'a Module, usize>,
    lowest: BTreeMap<&'a Module, usize>,
    stack: Vec<&'a Module>,
    circles: Vec<Vec<Module>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, module: &'a Module) {
        let number = self.order.len();
        self.order.insert(module, number);
        self.lowest.insert(module, number);
        self.stack.push(module);
        for used in &self.graph.uses[module] {
            // A module without an entry is a part of another program.
            let Some((used, _)) = self.graph.uses.get_key_value(used) else {
                continue;
            };
            if !self.order.contains_key(used) {
                self.visit(used);
            }
            if self.stack.contains(&used) {
                let lowest = self.lowest[module].min(self.lowest[used]);
                self.lowest.insert(module, lowest);
            }
        }
        if self.lowest[module] == number {
            let start = self.stack.iter().position(|m| *m == module).unwrap_or(0);
            let circle: Vec<Module> = self.stack.drain(start..).cloned().collect();
            if circle.len() > 1 {
                self.circles.push(circle);
            }
        }
    }
}

/// The name of a module as its file is found: `store/append`.
pub fn name(module: &[String]) -> String {
    match module {
        [] => "lib".to_owned(),
        _ => module.join("/"),
    }
}
