//! Writes `scrape_failure_log_file`: one line of JSON for each failed scrape.

use super::plan::ScrapePlan;
use firn_model::sample::TimestampMs;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::spawn_blocking;
use tracing::warn;

#[derive(Serialize)]
struct ScrapeFailureLine<'a> {
    time: String,
    level: &'a str,
    msg: &'a str,
    job_name: &'a str,
    target: &'a str,
}

/// Appends a line to the file at `path`. If that fails, logs a warning.
pub(super) async fn append_failure(
    path: PathBuf,
    plan: &ScrapePlan,
    time: TimestampMs,
    message: &str,
) {
    let nanoseconds = i128::from(time) * 1_000_000;
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok());
    let line = ScrapeFailureLine {
        time: time.unwrap_or_default(),
        level: "ERROR",
        msg: message,
        job_name: &plan.job.name,
        target: &plan.target.url,
    };
    let Ok(mut bytes) = serde_json::to_vec(&line) else {
        return;
    };
    bytes.push(b'\n');
    let shown = path.display().to_string();
    let append = move || -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(&bytes)
    };
    match spawn_blocking(append).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => warn!(path = shown, error = %e, "failed to write to the scrape failure log"),
        Err(e) => warn!(path = shown, error = %e, "failed to write to the scrape failure log"),
    }
}
