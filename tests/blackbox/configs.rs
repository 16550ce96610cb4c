//! Configs like those of well-known setups: each starts a server, which reports the keys without
//! effect.

use crate::harness::server::{Server, firn};
use firn_yaml::YamlNode;
use std::path::{Path, PathBuf};

fn configs() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/configs");
    let files = std::fs::read_dir(dir).expect("the folder of configs");
    let paths = files.map(|file| file.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "{paths:?}");
    paths
}

/// Returns the keys without effect that the config's own comment lists.
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
        // The files that the configs name do not exist here.
        let output = firn()
            .args(["check", "config", "--syntax-only"])
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

/// A config, and the verdict of upstream's checker.
struct Case {
    it: String,
    config: String,
    /// Contents of files beside the config, by name.
    files: Vec<(String, String)>,
    arguments: Vec<String>,
    /// `valid`, `refused`, or the error.
    verdict: String,
    /// Exit code, if it differs from 0 for valid and 1 for rejected configs.
    code: Option<i32>,
}

impl Case {
    fn of(node: &YamlNode) -> Self {
        let text = |key: &str| node.get(key).and_then(YamlNode::text).map(str::to_owned);
        let texts = |key: &str| node.get(key).map_or(&[][..], YamlNode::items).iter();
        let text_of = |node: &YamlNode| node.text().unwrap_or_default().to_owned();
        Self {
            it: text("it").expect("what is tried"),
            config: text("config").unwrap_or_default(),
            files: texts("files")
                .map(|pair| (text_of(&pair.items()[0]), text_of(&pair.items()[1])))
                .collect(),
            arguments: texts("arguments").map(text_of).collect(),
            verdict: text("promtool").expect("a verdict"),
            code: text("code").map(|code| code.parse().expect("an exit code")),
        }
    }

    /// Returns a description of the difference, if there is one.
    fn difference(&self) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("config.yml"), &self.config).unwrap();
        for (name, text) in &self.files {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), text).unwrap();
        }
        let output = firn()
            .args(["check", "config"])
            .args(&self.arguments)
            .arg("config.yml")
            .current_dir(dir.path())
            .env("HOME", "/root")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = self.code.unwrap_or(i32::from(self.verdict != "valid"));
        let is_told = match self.verdict.as_str() {
            "valid" | "refused" => true,
            text => told.contains(text),
        };
        if output.status.code() == Some(code) && is_told {
            return None;
        }
        let (it, verdict, got) = (&self.it, &self.verdict, output.status.code());
        Some(format!("{it}: {verdict} ({code}), but {got:?}: {told}"))
    }
}

/// Checks the configs in one file of `tests/configs/verdicts`.
fn check(topic: &str, cases_min: usize) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/configs/verdicts");
    let text = std::fs::read_to_string(dir.join(topic).with_extension("yml")).unwrap();
    let root = firn_yaml::parse(&text).unwrap().expect("cases");
    let cases: Vec<Case> = root.items().iter().map(Case::of).collect();
    assert!(cases.len() >= cases_min, "{} cases", cases.len());
    let differences: Vec<String> = cases.iter().filter_map(Case::difference).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn config_that_tries_yaml_is_taken_or_refused_as_upstream() {
    check("yaml", 200);
}

#[test]
fn config_that_tries_otlp_is_taken_or_refused_as_upstream() {
    check("otlp", 100);
}

#[test]
fn config_that_tries_global_is_taken_or_refused_as_upstream() {
    check("global", 100);
}

#[test]
fn config_that_tries_jobs_is_taken_or_refused_as_upstream() {
    check("jobs", 100);
}

#[test]
fn config_that_tries_relabelling_is_taken_or_refused_as_upstream() {
    check("relabelling", 240);
}

#[test]
fn config_that_tries_the_http_client_is_taken_or_refused_as_upstream() {
    check("http_client", 160);
}

#[test]
fn config_that_tries_alerting_is_taken_or_refused_as_upstream() {
    check("alerting", 50);
}

#[test]
fn config_that_tries_remotes_is_taken_or_refused_as_upstream() {
    check("remote", 140);
}

#[test]
fn config_that_tries_storage_is_taken_or_refused_as_upstream() {
    check("storage", 45);
}

#[test]
fn config_that_tries_discoveries_is_taken_or_refused_as_upstream() {
    check("discovery", 500);
}

#[test]
fn config_that_names_files_is_taken_or_refused_as_upstream() {
    check("files", 200);
}
