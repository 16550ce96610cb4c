//! Checks of the targets, credentials and certificates that a config contains or refers to.
//!
//! The check requires that files exist, and reads those with targets; a server would detect their
//! errors only when it uses them. The checks and their order are those of promtool.

use firn_config::config::Config;
use firn_discovery::{DiscoverySettings, TargetGroup, read_json_groups, read_yaml_groups};
use firn_http_client::named_files;
use firn_http_client::{AuthMethod, ClientTlsSettings, HttpSettings, Secret};
use firn_scrape::{ScrapeJobSettings, check_target};
use std::path::{Path, PathBuf};

/// Checks the targets and files of `config`; with `is_syntax_only` no files. Returns the warnings,
/// or the first error.
pub(super) fn check(config: &Config, is_syntax_only: bool) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    let mut warn = |missing: Vec<PathBuf>, whose: &str| {
        let lines = missing.iter().map(|file| {
            let file = file.display();
            format!("file \"{file}\" for file_sd in {whose} does not exist")
        });
        warnings.extend(lines);
    };
    for job in &config.jobs {
        check_client(&job.http, is_syntax_only)?;
        for discovery in &job.discoveries {
            if let Some(tls) = discovery.checked_tls() {
                check_tls(tls, is_syntax_only)?;
            }
            let check = |source: &str, group: &TargetGroup| check_group(job, source, group);
            let missing = check_groups(discovery, is_syntax_only, check)?;
            warn(missing, &format!("scrape job {:?}", job.name));
        }
    }
    for settings in &config.alerting.alertmanagers {
        for discovery in &settings.discoveries {
            let check = |_: &str, group: &TargetGroup| settings.check_addresses(group);
            let missing = check_groups(discovery, is_syntax_only, check)?;
            warn(missing, "alertmanager config");
        }
    }
    Ok(warnings)
}

/// Checks what a job's client needs, and that its certificate and key come in the same way.
fn check_client(http: &HttpSettings, is_syntax_only: bool) -> Result<(), String> {
    if let AuthMethod::Credentials {
        credentials: Some(Secret::File(path)),
        ..
    } = &http.auth
        && !is_syntax_only
    {
        look_for(path, "authorization credentials or bearer token file")?;
    }
    check_tls(&http.tls, is_syntax_only)
}

fn check_tls(tls: &ClientTlsSettings, is_syntax_only: bool) -> Result<(), String> {
    let (cert, key) = (file_of(&tls.cert), file_of(&tls.key));
    match (cert, key) {
        (Some(cert), None) => {
            return Err(format!(
                "client cert file \"{}\" specified without client key file",
                cert.display()
            ));
        }
        (None, Some(key)) => {
            return Err(format!(
                "client key file \"{}\" specified without client cert file",
                key.display()
            ));
        }
        _ => {}
    }
    for (path, what) in [(cert, "client cert file"), (key, "client key file")] {
        if let Some(path) = path.filter(|_| !is_syntax_only) {
            look_for(path, what)?;
        }
    }
    Ok(())
}

fn file_of(secret: &Option<Secret>) -> Option<&Path> {
    match secret {
        Some(Secret::File(path)) => Some(path),
        _ => None,
    }
}

fn look_for(path: &Path, what: &str) -> Result<(), String> {
    let shown = path.display();
    let why = match std::fs::metadata(path) {
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => "no such file or directory".into(),
        Err(e) => e.to_string(),
    };
    Err(format!(
        "error checking {what} \"{shown}\": stat {shown}: {why}"
    ))
}

/// Checks the groups of a discovery that has them in the config or in files. Returns the missing
/// files. `check` receives the source of a group and the group.
fn check_groups(
    discovery: &DiscoverySettings,
    is_syntax_only: bool,
    check: impl Fn(&str, &TargetGroup) -> Result<(), String>,
) -> Result<Vec<PathBuf>, String> {
    if let DiscoverySettings::Static(groups) = discovery {
        for (i, group) in groups.iter().enumerate() {
            check(&i.to_string(), group)?;
        }
    }
    let mut missing = Vec::new();
    if is_syntax_only {
        return Ok(missing);
    }
    for pattern in discovery.target_files() {
        let shown = pattern.display();
        let files = named_files::find(pattern).map_err(|e| e.to_string())?;
        for file in &files {
            let groups =
                read_targets(file).map_err(|e| format!("checking SD file \"{shown}\": {e}"))?;
            groups.iter().try_for_each(|group| check("", group))?;
        }
        if files.is_empty() {
            missing.push(pattern.clone());
        }
    }
    Ok(missing)
}

fn check_group(job: &ScrapeJobSettings, source: &str, group: &TargetGroup) -> Result<(), String> {
    for (i, address) in group.targets.iter().enumerate() {
        if let Some(error) = check_target(job, address, group).error {
            return Err(format!("instance {i} in group {source}: {error}"));
        }
    }
    Ok(())
}

/// Reads a file of targets.
fn read_targets(file: &Path) -> Result<Vec<TargetGroup>, String> {
    let bytes = named_files::read_any(file).map_err(|e| e.to_string())?;
    let ending = file.extension().unwrap_or_default().to_ascii_lowercase();
    if ending == "json" {
        read_json_groups(&bytes)
    } else {
        read_yaml_groups(&firn_yaml::decode(&bytes).map_err(|e| e.to_string())?)
    }
}
