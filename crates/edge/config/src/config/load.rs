//! Reads config files: the main file, the job files that it names, and the rule files.

use super::global::GlobalSettings;
use super::{
    Config, ParsedConfig, jobs, keys, overrides, parse, remote_read, remote_write, rule_files,
};
use crate::features::JobFeatures;
use firn_config_schema::schema::{ConfigFindings, ConfigValueShape, walk};
use firn_config_schema::section::ConfigSection;
use firn_http_client::http_config as http;
use firn_http_client::named_files::GlobSyntaxError;
use firn_http_client::{HttpSettings, named_files};
use firn_model::query_limits::QueryLimits;
use firn_yaml::YamlError;
use std::path::Path;
use std::sync::Arc;

/// Error of loading a config. Its text contains the file and, for invalid content, line and column.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file of the config cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// Path of the file, as given.
        file: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Rule files are invalid. The text has one line per error.
    #[error("{0}")]
    Rules(String),
    /// A pattern of `scrape_config_files` is invalid. Contains the pattern.
    #[error("error retrieving scrape config files for {0:?}: {why}", why = GlobSyntaxError)]
    JobFiles(String),
    /// A receiver of `remote_write` or a server of `remote_read` has an invalid address.
    #[error("{0}")]
    Remote(String),
    /// The content of a file is not a valid config.
    #[error("{file}:{error}")]
    Content {
        /// Path of the file, as given.
        file: String,
        /// Error with its line and column in the file.
        error: YamlError,
    },
}

/// Reads and validates a config file and its scrape config files. Rule files are found but not
/// read.
pub fn load(path: &Path, features: JobFeatures) -> Result<Config, ConfigError> {
    let parsed = parse_file(path, features)?;
    let mut config = parsed.config;
    for pattern in &parsed.job_files {
        add_job_files(pattern, &parsed.global, &mut config)?;
    }
    add_overrides(&mut config, features)?;
    Ok(config)
}

/// Reads and validates a config file without any other file.
pub fn load_alone(path: &Path, features: JobFeatures) -> Result<Config, ConfigError> {
    parse_file(path, features).map(|parsed| parsed.config)
}

fn parse_file(path: &Path, features: JobFeatures) -> Result<ParsedConfig, ConfigError> {
    let text = read_file(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    parse(&text, dir, features).map_err(with_file_path(path))
}

/// Returns the text of a settings file, which may be a pipe.
pub(super) fn read_file(path: &Path) -> Result<String, ConfigError> {
    named_files::read_any_text(path).map_err(unreadable(path))
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> ConfigError {
    let file = path.display().to_string();
    move |error| ConfigError::Read {
        file: file.clone(),
        error,
    }
}

/// Reads a file with HTTP client settings, in the keys of `http_config`.
pub fn load_http(path: &Path) -> Result<HttpSettings, ConfigError> {
    let text = read_file(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let read = || match firn_yaml::parse(&text)? {
        None => Ok(HttpSettings::default()),
        Some(root) => {
            let shape = ConfigValueShape::Section(&[http::HTTP_CLIENT]);
            walk(
                &mut root.clone(),
                &shape,
                "",
                &mut ConfigFindings::default(),
            )?;
            http::http(&root, dir)
        }
    };
    read().map_err(with_file_path(path))
}

/// Returns a function that adds the path of the file to an error.
pub(super) fn with_file_path(path: &Path) -> impl Fn(YamlError) -> ConfigError {
    let file = path.display().to_string();
    move |error| ConfigError::Content {
        file: file.clone(),
        error,
    }
}

/// Like [`load`], but also reads the rule files and validates the remotes.
pub fn load_with_rules(path: &Path, features: JobFeatures) -> Result<Config, ConfigError> {
    let mut config = load(path, features)?;
    // A missing file may be created later, but an invalid pattern never matches.
    if let Some(wrong) = config.rule_files_wrong.iter().find(|e| e.is_lasting()) {
        return Err(ConfigError::Rules(wrong.to_string()));
    }
    remote_write::check_receivers(&config.remote_write).map_err(ConfigError::Remote)?;
    remote_read::check_servers(&config.remote_read).map_err(ConfigError::Remote)?;
    rule_files::load_rules(&mut config, features)?;
    Ok(config)
}

/// Reads the file of `firn.overrides`, and derives the limits of queries of its tenants.
fn add_overrides(config: &mut Config, features: JobFeatures) -> Result<(), ConfigError> {
    let Some(file) = &config.overrides_file else {
        return Ok(());
    };
    let refuses_replicas = if features.is_agent {
        Some("in agent mode")
    } else if config.cluster.is_some() {
        Some("together with firn.cluster yet")
    } else {
        None
    };
    let text = read_file(file)?;
    let overrides = overrides::parse(&text, refuses_replicas).map_err(with_file_path(file))?;
    for (tenant, of_tenant) in overrides.iter() {
        let mut limits = QueryLimits::clone(&config.query_limits);
        overrides::apply_to_queries(of_tenant, &mut limits);
        let by_tenant = &mut config.query_limits_by_tenant;
        by_tenant.insert(tenant.clone(), Arc::new(limits));
    }
    config.overrides = Arc::new(overrides);
    Ok(())
}

/// Adds the jobs of the scrape config files that match `pattern` to the config.
fn add_job_files(
    pattern: &Path,
    global: &GlobalSettings,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let found = named_files::find(pattern);
    let found = found.map_err(|GlobSyntaxError| {
        let shown = rule_files::clean(pattern).display().to_string();
        ConfigError::JobFiles(shown)
    })?;
    for path in found {
        let text = named_files::read_text(&path).map_err(unreadable(&path))?;
        let dir = path.parent().unwrap_or(Path::new(""));
        parse_jobs(&text, global, dir, config).map_err(with_file_path(&path))?;
    }
    Ok(())
}

/// Adds the jobs of one scrape config file. Their names must be unique in the config.
fn parse_jobs(
    text: &str,
    global: &GlobalSettings,
    dir: &Path,
    config: &mut Config,
) -> Result<(), YamlError> {
    let Some(root) = firn_yaml::parse(text)? else {
        return Ok(());
    };
    let mut findings = ConfigFindings::default();
    let shape = ConfigValueShape::Section(keys::JOB_FILE);
    walk(&mut root.clone(), &shape, "", &mut findings)?;
    let section = ConfigSection::new(Some(&root), keys::JOB_FILE, dir);
    for job in jobs::jobs(section, global)? {
        if config.jobs.iter().any(|known| known.name == job.name) {
            return Err(root.error(format!(
                "found multiple scrape configs with job name {:?}",
                job.name
            )));
        }
        config.jobs.push(job);
    }
    for key in findings.ignored {
        if !config.ignored.contains(&key) {
            config.ignored.push(key);
        }
    }
    Ok(())
}
