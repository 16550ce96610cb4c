//! Documents that point at what exists.

use crate::{report, root};
use std::fs;
use std::path::{Path, PathBuf};

/// Every Markdown file of the project.
pub fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a readable folder").flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let skip = name == "target" || name == "node_modules" || name == "data";
            if path.is_dir() && !skip && !name.to_string_lossy().starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 3, "only {} documents found", found.len());
    found
}

/// Targets of `[text](target)` outside code blocks.
fn links(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for block in text.split("```").step_by(2) {
        let mut rest = block;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let end = rest.find(')').unwrap_or(rest.len());
            targets.push(rest[..end].to_owned());
        }
    }
    targets
}

/// Paths that a document names in backquotes: `crates/...`, `docs/...`, `tests/...`.
fn named_paths(text: &str) -> Vec<String> {
    let prefixes = [
        "crates/", "docs/", "tests/", "bench/", "ui/", "fuzz/", ".ci/",
    ];
    let spans = text.split('`').skip(1).step_by(2);
    spans
        .filter(|s| prefixes.iter().any(|p| s.starts_with(p)))
        .filter(|s| !s.contains(['*', '{', '<', ' ', '\n', 'N']))
        .map(|s| s.split([':', '#']).next().unwrap_or(s).to_owned())
        .collect()
}

fn anchors(text: &str) -> Vec<String> {
    let heading = |l: &str| {
        l.starts_with('#')
            .then(|| l.trim_start_matches('#').trim().to_owned())
    };
    let slug = |h: String| {
        let kept = h.to_lowercase().replace(' ', "-");
        kept.chars()
            .filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_')
            .collect()
    };
    text.lines().filter_map(heading).map(slug).collect()
}

fn link_is_live(from: &Path, target: &str) -> bool {
    if target.starts_with("http://") || target.starts_with("https://") {
        return true;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let dir = from.parent().expect("a document has a folder");
    let path = if file.is_empty() {
        from.to_path_buf()
    } else {
        dir.join(file)
    };
    if anchor.is_empty() || path.extension().is_none_or(|e| e != "md") {
        return path.exists();
    }
    fs::read_to_string(path).is_ok_and(|t| anchors(&t).iter().any(|a| a == anchor))
}

#[test]
fn document_with_dead_link_is_refused() {
    let mut findings = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a readable document");
        let shown = document.strip_prefix(root()).unwrap_or(&document).display();
        for target in links(&text).iter().filter(|t| !link_is_live(&document, t)) {
            findings.push(format!("{shown}: dead link to {target}"));
        }
        for path in named_paths(&text)
            .iter()
            .filter(|p| !root().join(p).exists())
        {
            findings.push(format!("{shown}: names `{path}`, which does not exist"));
        }
    }
    report("links", &findings);
}

#[test]
fn decision_record_without_row_is_refused() {
    let folder = root().join("docs/adr");
    let index = fs::read_to_string(folder.join("README.md")).expect("a readable index");
    let linked = links(&index);
    let mut findings = Vec::new();
    for document in documents() {
        let Ok(path) = document.strip_prefix(&folder) else {
            continue;
        };
        let path = path.display().to_string();
        if path != "README.md" && !linked.contains(&path) {
            findings.push(format!("docs/adr/{path}: no row in docs/adr/README.md"));
        }
    }
    report("decision records without a row", &findings);
}
