//! Retention by time and size, from flags and config, with the precedence of upstream.
//!
//! Invariant: zero means "not set", never "keep nothing". The default time applies only if no flag
//! is set and the config has no section for it.

use super::flags::CommandLine;
use firn_model::env::Disk;
use firn_model::units::{format_duration, format_size};
use firn_storage::store::{self, RETENTION_MS, RetentionRules};
use std::fmt;
use std::path::Path;
use std::time::Duration;
use tracing::warn;

/// Upstream's default retention time, which applies if neither flags nor config set a limit.
pub const DEFAULT: Duration = Duration::from_millis(RETENTION_MS.unsigned_abs());

/// Limits of the stored data by age and size. `None` is no limit; without any limit, samples are
/// kept forever.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RetentionSettings {
    /// Maximum age of stored samples; never zero.
    pub time: Option<Duration>,
    /// Maximum size of the stored data in bytes; never zero.
    pub size: Option<u64>,
    /// Maximum size of the data in percent of its file system; not zero. Takes precedence over
    /// `size`.
    pub percentage: Option<f64>,
}

/// Error of a retention in percent if the size of the file system is unknown. It prevents the start
/// of a server.
#[derive(Debug, thiserror::Error)]
#[error(
    "storage.tsdb.retention.percentage: cannot determine the total size of the file system of \
     {folder}: {why}; set storage.tsdb.retention.size instead of {percentage}%"
)]
pub struct UnknownDiskSize {
    folder: String,
    why: String,
    percentage: f64,
}

impl RetentionSettings {
    /// Returns the retention of a server. A section `retention` in the config replaces all flags.
    pub fn resolve_retention(line: &CommandLine, of_config: Option<Self>) -> Self {
        if let Some(retention) = of_config {
            return retention;
        }
        let (time, size) = line.settings.retention_limits();
        Self {
            time,
            size,
            percentage: None,
        }
    }

    /// Warns of limits without effect, and if there is no limit at all.
    pub fn warn(self) {
        if self == Self::default() {
            warn!("no retention time or size is set: samples are kept forever");
        }
        if self.percentage.is_some() && self.size.is_some() {
            warn!(
                "storage.tsdb.retention.size has no effect: storage.tsdb.retention.percentage is \
                 set"
            );
        }
    }

    /// Fails if the retention needs the size of the file system of `folder` and it is unknown. If
    /// the folder does not exist yet, its nearest existing ancestor is checked.
    pub fn check_disk(self, disk: &dyn Disk, folder: &Path) -> Result<(), UnknownDiskSize> {
        let Some(percentage) = self.percentage else {
            return Ok(());
        };
        let existing = folder.ancestors().find(|folder| folder.is_dir());
        let total = disk.total_bytes(existing.unwrap_or(Path::new(".")));
        let why = match total {
            Ok(0) => "it reports 0 bytes".to_owned(),
            Ok(_) => return Ok(()),
            Err(e) => e.to_string(),
        };
        Err(UnknownDiskSize {
            folder: folder.display().to_string(),
            why,
            percentage,
        })
    }

    /// Converts the retention, with the retention times of matching series, into the limits that
    /// the store enforces.
    pub fn limits(self, rules: RetentionRules) -> store::RetentionLimits {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        store::RetentionLimits {
            time_ms: self.time.map_or(i64::MAX, millis),
            rules,
            bytes: self.size,
            percent: self.percentage,
        }
    }
}

/// Formats the retention like upstream: empty if there is no limit.
impl fmt::Display for RetentionSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = [
            self.time.map(format_duration),
            self.size.map(format_size),
            self.percentage.map(|percentage| format!("{percentage}%")),
        ];
        let limits: Vec<String> = limits.into_iter().flatten().collect();
        f.write_str(&limits.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::flags::{self, Request};
    use firn_model::env::sim;

    fn of(flags: &[&str], retention: &str) -> RetentionSettings {
        let args = flags.iter().map(|flag| format!("--storage.tsdb.{flag}"));
        let Ok(Request::Run(line)) = flags::parse(args.map(Into::into)) else {
            panic!("flags are not understood: {flags:?}");
        };
        let text = match retention {
            "" => String::new(),
            section => format!("storage: {{tsdb: {{retention: {section}}}}}\n"),
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let config = config::load(file.path(), config::JobFeatures::default()).unwrap();
        RetentionSettings::resolve_retention(&line, config.retention)
    }

    #[track_caller]
    fn check(flags: &[&str], retention: &str, want: &str) {
        let got = of(flags, retention);
        assert_eq!(got.to_string(), want, "{flags:?} {retention}");
        let limits = got.limits(RetentionRules::default());
        assert!(limits.time_ms > 0 && limits.bytes != Some(0), "{limits:?}");
    }

    #[test]
    fn retention_of_zero_is_not_set() {
        check(&[], "", "15d");
        check(&["retention.time=30d"], "", "30d");
        check(&["retention.time=0"], "", "15d");
        check(&["retention.time=0s", "retention.size=0"], "", "15d");
        check(&["retention.time=0", "retention.size=1GB"], "", "1GiB");
        check(&["retention.size=1536MB"], "", "1GiB512MiB");
        let both = ["retention.time=2d", "retention.size=1GB"];
        check(&both, "", "2d or 1GiB");
        check(&["retention.time=2d"], "{time: 0s}", "");
        check(&["retention.time=2d"], "{}", "");
        check(&["retention.size=1GB"], "{size: 0, percentage: 0}", "");
    }

    #[test]
    fn retention_of_the_config_sets_the_flags_aside() {
        check(
            &["retention.time=2d"],
            "{time: 30d, size: 1GB}",
            "30d or 1GiB",
        );
        check(&["retention.time=2d"], "{size: 1GB}", "1GiB");
        check(&["retention.size=1GB"], "{time: 1h}", "1h");
        check(&["retention.time=2d"], "null", "2d");
        check(&[], "{percentage: 80}", "80%");
        check(
            &[],
            "{time: 1w, size: 100B, percentage: 12.5}",
            "1w or 100B or 12.5%",
        );
    }

    #[test]
    fn percentage_of_a_disk_without_a_size_is_refused() {
        let sim = sim::sim_env(1);
        let here = Path::new(".");
        let percentage = of(&[], "{percentage: 80}");
        assert!(percentage.check_disk(&*sim.env.disk, here).is_ok());
        sim.disk.set_capacity_bytes(0);
        let refused = percentage.check_disk(&*sim.env.disk, here).unwrap_err();
        assert!(refused.to_string().contains("reports 0 bytes"), "{refused}");
        let time = of(&[], "{time: 1d}");
        assert!(time.check_disk(&*sim.env.disk, here).is_ok());
    }
}
