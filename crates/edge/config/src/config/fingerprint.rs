//! Detects changes of a config by a hash of the contents of all its files.

use super::rule_files::files_of_folder;
use firn_config_schema::read;
use firn_http_client::named_files;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// Returns a hash of the config in `path`, its rule files including the folder of editable rules,
/// its scrape config files, and the overrides of tenants. The hash is comparable within one
/// process. Fails if a file cannot be read. A config that cannot be parsed is not an error: its
/// hash covers only its own text.
pub fn fingerprint(path: &Path) -> io::Result<u64> {
    let text = named_files::read_any_text(path)?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let dir = path.parent().unwrap_or(Path::new(""));
    if let Ok(Some(root)) = firn_yaml::parse(&text) {
        for key in ["rule_files", "scrape_config_files"] {
            for pattern in read::texts(&root, key).unwrap_or_default() {
                key.hash(&mut hasher);
                // An invalid pattern finds nothing here. Loading the config reports it.
                let found = named_files::find(&dir.join(pattern));
                add_files(&found.unwrap_or_default(), &mut hasher)?;
            }
        }
        let firn = root.get("firn");
        if let Some(file) = firn.and_then(|firn| read::path(firn, "overrides", dir)) {
            add_files(&[file], &mut hasher)?;
        }
        let rules = firn.and_then(|firn| firn.get("rules"));
        if let Some(folder) = rules.and_then(|rules| read::path(rules, "folder", dir)) {
            add_files(&files_of_folder(&folder), &mut hasher)?;
        }
    }
    Ok(hasher.finish())
}

/// Adds the names and contents of files to the hash.
fn add_files(files: &[PathBuf], hasher: &mut DefaultHasher) -> io::Result<()> {
    for file in files {
        file.hash(hasher);
        named_files::read(file)?.hash(hasher);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_follows_the_config_and_the_files_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("edited")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let of = || fingerprint(&dir.path().join("firn.yml")).unwrap();
        write(
            "firn.yml",
            "rule_files: ['r*.yml']\nscrape_config_files: [s.yml]\n\
             firn: {rules: {folder: edited}, overrides: o.yml}\n",
        );
        write("o.yml", "overrides:");
        let mut seen = vec![of()];
        assert_eq!(of(), seen[0]);
        for (name, text) in [
            ("r1.yml", "groups: []"),
            ("r1.yml", "groups:"),
            ("r2.yml", "groups: []"),
            ("s.yml", "scrape_configs: []"),
            ("o.yml", "overrides: {}"),
            ("edited/team.yml", "groups: []"),
            ("edited/team.yml", "groups:"),
            ("firn.yml", "rule_files: ["),
        ] {
            write(name, text);
            assert!(!seen.contains(&of()), "{name}: {text}");
            seen.push(of());
        }
        write("x.yml", "not named");
        assert_eq!(of(), *seen.last().unwrap());
        assert!(fingerprint(&dir.path().join("gone.yml")).is_err());
    }
}
