//! The command `firn check service-discovery CONFIG JOB`: discovers the targets of a job, and
//! prints them before and after relabeling.
//!
//! Output and exit codes are those of promtool. The command ends as soon as every discovery has
//! returned a list, while promtool waits for the whole timeout. The reason why a target is dropped
//! is printed as text.

use crate::console;
use crate::process::logs;
use clap::{Arg, ArgMatches, Command, value_parser};
use firn_config::LogFormat;
use firn_config::config;
use firn_discovery::{Discovery, DiscoveryContext, DiscoveryMetrics, DiscoveryOwner, TargetGroup};
use firn_model::env::{Clock, real};
use firn_model::labels::Labels;
use firn_model::units::parse_duration;
use firn_scrape::{CheckedTarget, ScrapeJobSettings, check_target};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::Level;

/// Maximum bytes of a response: more than a list of a million targets.
const LIST_BYTES_MAX: u64 = 256 << 20;

/// Returns the command line of `firn check service-discovery`: arguments, flags and help texts.
pub fn command() -> Command {
    Command::new("service-discovery")
        .about(
            "Run service discovery for a job and print its targets before and after relabeling, \
             as JSON",
        )
        .arg(
            Arg::new("config-file")
                .value_name("CONFIG")
                .value_parser(value_parser!(PathBuf))
                .required(true)
                .help("Configuration file in Prometheus's format"),
        )
        .arg(
            Arg::new("job")
                .value_name("JOB")
                .required(true)
                .help("Name of a scrape job in the configuration"),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("DURATION")
                .default_value("30s")
                .value_parser(|text: &str| parse_duration(text).map_err(|e| e.to_string()))
                .help("Time to wait for discovered targets"),
        )
}

/// Runs `firn check service-discovery` with the parsed arguments `matches` and returns its exit
/// code.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let value = |id: &str| matches.get_one::<String>(id).cloned().unwrap_or_default();
    let file = matches.get_one::<PathBuf>("config-file");
    let timeout = matches.get_one::<Duration>("timeout").copied();
    let checked = check(
        &file.cloned().unwrap_or_default(),
        &value("job"),
        timeout.unwrap_or_default(),
    );
    match checked {
        Ok(json) => {
            console::out(&json);
            ExitCode::SUCCESS
        }
        Err(message) => {
            console::err(&message);
            ExitCode::FAILURE
        }
    }
}

fn check(file: &Path, name: &str, timeout: Duration) -> Result<String, String> {
    let features = config::JobFeatures::from_names(&[]);
    let config = config::load(file, features).map_err(|e| format!("Cannot load config {e}"))?;
    let Some(job) = config.jobs.iter().find(|job| job.name == name) else {
        let mut message = format!("Job {name} not found. Select one of:");
        for job in &config.jobs {
            message += &format!("\n\t{}", job.name);
        }
        return Err(message);
    };
    logs::start(Level::WARN, LogFormat::default());
    let unable = |e: std::io::Error| format!("Could not create new discoverer {e}");
    let clock = real::system_env().map_err(unable)?.clock;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(unable)?;
    let lists = runtime.block_on(find(job, timeout, clock));
    // Discoveries that still wait for a response are abandoned.
    runtime.shutdown_background();
    let mut results: Vec<CheckedTarget> = Vec::new();
    for group in lists.iter().flat_map(|list| list.iter()) {
        for address in &group.targets {
            let result = check_target(job, address, group);
            if !results.contains(&result) {
                results.push(result);
            }
        }
    }
    let results: Vec<Value> = results.iter().map(format_target).collect();
    serde_json::to_string_pretty(&results)
        .map_err(|e| format!("Could not marshal result json: {e}"))
}

/// Returns the lists of all discoveries of a job that are complete within the timeout.
async fn find(
    job: &ScrapeJobSettings,
    timeout: Duration,
    clock: Arc<dyn Clock>,
) -> Vec<Arc<Vec<TargetGroup>>> {
    let lent = DiscoveryContext {
        bytes_max: LIST_BYTES_MAX,
        clock,
        metrics: DiscoveryMetrics::default(),
    };
    let owner = DiscoveryOwner {
        purpose: "scrape",
        config: job.name.clone(),
    };
    let changed = Arc::new(Notify::new());
    let discoveries: Vec<Discovery> = job
        .discoveries
        .iter()
        .map(|settings| Discovery::start(settings, &lent, &owner, changed.clone()))
        .collect();
    let is_complete = || discoveries.iter().all(|d| d.groups().is_some());
    let all = async {
        while !is_complete() {
            changed.notified().await;
        }
    };
    // Discoveries log their own errors.
    let _ = tokio::time::timeout(timeout, all).await;
    discoveries.iter().filter_map(Discovery::groups).collect()
}

fn format_target(result: &CheckedTarget) -> Value {
    let mut shown = json!({
        "discoveredLabels": map(&result.discovered),
        "labels": map(&result.labels),
    });
    if let (Some(error), Value::Object(fields)) = (&result.error, &mut shown) {
        fields.insert("error".into(), Value::String(error.clone()));
    }
    shown
}

fn map(labels: &Labels) -> Map<String, Value> {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value).into_owned();
            (name.to_owned(), Value::String(value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn targets_are_shown_before_and_after_relabelling() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prometheus.yml");
        let text = "
scrape_configs:
- job_name: other
- job_name: web
  static_configs: [{targets: [a, a, gone, b/c], labels: {x: y}}]
  file_sd_configs: [{files: [list.json]}]
  relabel_configs:
  - {source_labels: [__address__], regex: gone, action: drop}
  - {source_labels: [__address__], target_label: z}
";
        fs::write(&file, text).unwrap();
        fs::write(dir.path().join("list.json"), r#"[{"targets": ["d"]}]"#).unwrap();
        let json = check(&file, "web", Duration::from_secs(20)).unwrap();
        assert!(
            json.starts_with("[\n  {\n    \"discoveredLabels\": {\n"),
            "{json}"
        );
        let results: Vec<Value> = serde_json::from_str(&json).unwrap();
        let addresses: Vec<&str> = results
            .iter()
            .map(|r| r["discoveredLabels"]["__address__"].as_str().unwrap())
            .collect();
        assert_eq!(addresses, ["a", "gone", "b/c", "d"]);
        assert_eq!(results[0]["labels"]["z"], "a");
        assert_eq!(results[0]["labels"]["__metrics_path__"], "/metrics");
        assert_eq!(results[0]["labels"]["instance"], "a");
        assert_eq!(results[1]["labels"], json!({}));
        assert_eq!(results[2]["error"], "\"b/c\" is not a valid hostname");
        let path = dir.path().join("list.json").display().to_string();
        assert_eq!(results[3]["discoveredLabels"]["__meta_filepath"], path);
        assert_eq!(results[3]["labels"].get("__meta_filepath"), None);

        let e = check(&file, "wub", Duration::ZERO).unwrap_err();
        assert_eq!(e, "Job wub not found. Select one of:\n\tother\n\tweb");
        let e = check(&dir.path().join("no.yml"), "web", Duration::ZERO).unwrap_err();
        assert!(e.starts_with("Cannot load config "), "{e}");
    }
}
