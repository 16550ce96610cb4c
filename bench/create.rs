//! Creation of blocks from an OpenMetrics text with twenty million samples, by Firn and by
//! promtool.
//!
//! ```text
//! text, made once -> <tool> tsdb create-blocks-from openmetrics -> new directory
//!                 -> <tool> tsdb list -> number of samples in the blocks
//! ```
//!
//! Each tool lists its own directory. promtool is measured if it is on PATH.

use crate::process::{self, Usage};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Number of series in the text, evenly distributed over ten metrics.
const SERIES: u64 = 2_000;

/// Number of samples per series, which cover a day and 17 hours.
const SAMPLES: u64 = 10_000;

const METRICS: u64 = 10;

const INTERVAL_S: u64 = 15;

/// Timestamp of the first sample in seconds, aligned to two hours like the blocks.
const START_S: u64 = 1_700_006_400;

/// Time between two observations of a running tool's resource usage.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A program with the commands of promtool: Firn or promtool itself.
pub struct Tool {
    /// Name of the tool in the table, and of its output directory.
    pub name: &'static str,
    /// Path of the executable file.
    pub program: PathBuf,
}

/// Duration, resource usage and output size of one tool, whose output was verified by listing it.
#[derive(Clone, Debug)]
pub struct Created {
    name: &'static str,
    seconds: f64,
    usage: Usage,
    samples: u64,
    disk_bytes: u64,
}

/// Writes the OpenMetrics text to `path` and returns its length in bytes. The text is always the
/// same.
pub fn write_text(path: &Path) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut random: u64 = 1;
    for metric in 0..METRICS {
        writeln!(out, "# TYPE node_{metric}_seconds counter")?;
        for series in 0..SERIES / METRICS {
            let mut value = 0.0;
            for sample in 0..SAMPLES {
                // Random increments, as of a counter of seconds, so that compression cannot predict
                // them.
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                value += (random >> 53) as f64 / 64.0;
                let time = START_S + sample * INTERVAL_S;
                writeln!(
                    out,
                    "node_{metric}_seconds_total{{instance=\"i{series}\",job=\"node\"}} {value} {time}"
                )?;
            }
        }
    }
    writeln!(out, "# EOF")?;
    out.flush()?;
    Ok(fs::metadata(path)?.len())
}

/// Runs `tool` on the text with a new output directory below `dir`. Fails if samples are missing.
pub fn run(tool: &Tool, text: &Path, dir: &Path) -> Result<Created, String> {
    let data = dir.join(tool.name);
    let error = |e: io::Error| format!("{}: {e}", tool.program.display());
    let start = Instant::now();
    let child = Command::new(&tool.program)
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([text, &data])
        .stdout(Stdio::null())
        .spawn()
        .map_err(error)?;
    let usage = watch(child).map_err(error)??;
    let seconds = start.elapsed().as_secs_f64();
    let created = Created {
        name: tool.name,
        seconds,
        usage,
        samples: listed(tool, &data)?,
        disk_bytes: process::disk_bytes(&data).map_err(error)?,
    };
    if created.samples == SERIES * SAMPLES {
        Ok(created)
    } else {
        Err(format!("{} samples are there", created.samples))
    }
}

/// Waits until a process exits and returns its last observed resource usage, or its failure.
fn watch(mut child: Child) -> io::Result<Result<Usage, String>> {
    let mut last = Usage::default();
    loop {
        last = process::usage(child.id()).unwrap_or(last);
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() {
                Ok(last)
            } else {
                Err(format!("it ends with {status}"))
            });
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Returns the number of samples in all blocks of a directory according to `tsdb list`.
fn listed(tool: &Tool, data: &Path) -> Result<u64, String> {
    let output = Command::new(&tool.program)
        .args(["tsdb", "list"])
        .arg(data)
        .output()
        .map_err(|e| format!("{}: {e}", tool.program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    // Column names contain single spaces, so that columns are separated by at least two.
    let columns: Vec<&str> = head.split("  ").filter(|c| !c.is_empty()).collect();
    let column = columns.iter().position(|name| name.trim() == "NUM SAMPLES");
    let column = column.ok_or_else(|| format!("tsdb list says {head:?}"))?;
    let of_line = |line: &str| line.split_whitespace().nth(column)?.parse::<u64>().ok();
    Ok(lines.filter_map(of_line).sum())
}

/// Returns the heading with the size of the text, and the header rows of the Markdown table.
pub fn head(text_bytes: u64) -> String {
    format!(
        "{} samples of {SERIES} series, {:.0} MB of text.\n\n\
         | | seconds | CPU s | peak MiB | bytes on disk a sample |\n\
         |---|---:|---:|---:|---:|\n",
        SERIES * SAMPLES,
        text_bytes as f64 / 1e6
    )
}

impl Created {
    /// Returns the row of this tool in the Markdown table, with rounded figures.
    pub fn line(&self) -> String {
        format!(
            "| {} | {:.1} | {:.1} | {:.0} | {:.2} |\n",
            self.name,
            self.seconds,
            self.usage.cpu_seconds,
            self.usage.peak_bytes as f64 / (1 << 20) as f64,
            self.disk_bytes as f64 / self.samples as f64
        )
    }

    /// Returns all figures as JSON, including those that the table leaves out.
    pub fn to_json(&self) -> Value {
        json!({
            "tool": self.name,
            "seconds": self.seconds,
            "cpu_seconds": self.usage.cpu_seconds,
            "peak_bytes": self.usage.peak_bytes,
            "written_bytes": self.usage.written_bytes,
            "samples": self.samples,
            "disk_bytes": self.disk_bytes,
        })
    }
}
