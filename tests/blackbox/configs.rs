//! Configs in the manner of well-known setups: each starts, and says what it does not act on.

use crate::harness::server::{Server, firn};
use std::path::{Path, PathBuf};

fn configs() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/configs");
    let files = std::fs::read_dir(dir).expect("the folder of configs");
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "{paths:?}");
    paths
}

/// The keys that the config's own comment says are not acted on.
fn announced(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("# not acted on:"))
        .expect("a comment that names the keys");
    let mut keys: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    keys.sort();
    keys
}

#[test]
fn config_of_the_wild_starts_and_names_what_it_does_not_act_on() {
    for path in configs() {
        let file = path.display().to_string();
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(dir.path(), &["--config", &file]);
        let log = server.log();
        let warned = log
            .iter()
            .filter(|line| line.contains("config key has no effect"));
        let mut keys: Vec<String> = warned
            .filter_map(|line| Some(line.rsplit_once(" key=")?.1.to_owned()))
            .collect();
        keys.sort();
        assert_eq!(keys, announced(&path), "{file}");
        let http = server.http();
        let pools = http.get("/api/v1/scrape_pools").json();
        let pools = pools["data"]["scrapePools"].as_array().unwrap().len();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(pools, text.matches("- job_name:").count(), "{file}");
        assert!(server.stop().success(), "{file}");
    }
}

#[test]
fn config_of_the_wild_passes_its_check() {
    for path in configs() {
        let output = firn()
            .args(["check", "config"])
            .arg(&path)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}");
        for key in announced(&path) {
            let warning = format!("WARNING: {key} has no effect in Firn");
            assert!(told.contains(&warning), "{}: {told}", path.display());
        }
    }
}
