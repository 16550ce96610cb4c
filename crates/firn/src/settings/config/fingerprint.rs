//! Whether a config changed: one number of all that its files hold.

use super::read;
use super::rule_files::files_of_folder;
use firn_http_client::named_files;
use firn_model::yaml;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// The number of the config in `path`, its rule files, those of the folder of rules included, and
/// its scrape config files; good within one process. Fails if one of them cannot be read. What is
/// wrong with the text of the config is no error here: then it is the number of that text.
pub fn fingerprint(path: &Path) -> io::Result<u64> {
    let text = named_files::read_any_text(path)?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let dir = path.parent().unwrap_or(Path::new(""));
    if let Ok(Some(root)) = yaml::parse(&text) {
        for key in ["rule_files", "scrape_config_files"] {
            for pattern in read::texts(&root, key).unwrap_or_default() {
                key.hash(&mut hasher);
                // A pattern that cannot be read finds nothing here, and is an error where it is
                // loaded.
                let found = named_files::find(&dir.join(pattern));
                add_files(&found.unwrap_or_default(), &mut hasher)?;
            }
        }
        let rules = root.get("firn").and_then(|firn| firn.get("rules"));
        if let Some(folder) = rules.and_then(|rules| read::path(rules, "folder", dir)) {
            add_files(&files_of_folder(&folder), &mut hasher)?;
        }
    }
    Ok(hasher.finish())
}

/// Adds names and contents of files.
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
             firn: {rules: {folder: edited}}\n",
        );
        let mut seen = vec![of()];
        assert_eq!(of(), seen[0]);
        for (name, text) in [
            ("r1.yml", "groups: []"),
            ("r1.yml", "groups:"),
            ("r2.yml", "groups: []"),
            ("s.yml", "scrape_configs: []"),
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
