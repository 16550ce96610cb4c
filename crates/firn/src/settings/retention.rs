//! How long samples are kept, decided from flags and config as upstream does.
//!
//! Invariant: zero is "not set", never "keep nothing". Firn knows no limit of size, so a
//! server that sets that one alone keeps all samples.

use super::flags::CommandLine;
use firn_model::units::{format_duration, parse_size};
use firn_storage::store::RETENTION_MS;
use std::fmt;
use std::time::Duration;
use tracing::warn;

/// How long samples are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Samples stay for this long; not zero.
    For(Duration),
    /// For ever.
    Unlimited,
}

impl Retention {
    /// What holds for a server. A section `retention` in the config sets the flags aside.
    pub fn of(line: &CommandLine, of_config: Option<Self>) -> Self {
        if let Some(retention) = of_config {
            return retention;
        }
        match line.settings.retention_time {
            Some(time) if !time.is_zero() => Self::For(time),
            _ if limits_size(line) => Self::Unlimited,
            _ => Self::For(Duration::from_millis(RETENTION_MS.unsigned_abs())),
        }
    }

    /// Says that nothing bounds the data: a limit of size that was given does not.
    pub fn warn_if_unlimited(self) {
        if self == Self::Unlimited {
            warn!(
                "no retention time is set and limits of size have no effect in Firn: samples are \
                 kept for ever"
            );
        }
    }

    /// The age in milliseconds at which samples go.
    pub fn as_millis(self) -> i64 {
        match self {
            Self::For(time) => i64::try_from(time.as_millis()).unwrap_or(i64::MAX),
            Self::Unlimited => i64::MAX,
        }
    }
}

/// The form that upstream shows: empty if there is no limit.
impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => f.write_str(&format_duration(*time)),
            Self::Unlimited => Ok(()),
        }
    }
}

fn limits_size(line: &CommandLine) -> bool {
    const FLAG: &str = "storage.tsdb.retention.size";
    let value = line.values.iter().find(|(name, _)| *name == FLAG);
    value.is_some_and(|(_, size)| !size.is_empty() && parse_size(size) != Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::config;
    use crate::settings::flags::{self, Request};

    fn check(flags: &[&str], retention: &str, want: &str) {
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
        let got = Retention::of(&line, config.retention);
        assert_eq!(got.to_string(), want, "{flags:?} {retention}");
        assert!(got.as_millis() > 0, "{flags:?} {retention}");
    }

    #[test]
    fn retention_of_zero_is_not_set() {
        check(&[], "", "15d");
        check(&["retention.time=30d"], "", "30d");
        check(&["retention.time=0"], "", "15d");
        check(&["retention.time=0s", "retention.size=0"], "", "15d");
        check(&["retention.time=0", "retention.size=1GB"], "", "");
        check(&["retention.size=1GB"], "", "");
        check(&["retention.time=2d", "retention.size=1GB"], "", "2d");
        check(&["retention.time=2d"], "{time: 30d, size: 1GB}", "30d");
        check(&["retention.time=2d"], "{time: 0s}", "");
        check(&["retention.time=2d"], "{size: 1GB}", "");
        check(&[], "{percentage: 80}", "");
        check(&["retention.time=2d"], "null", "2d");
    }
}
