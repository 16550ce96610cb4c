//! Options of a bucket: where its store is, with which credentials, and the limits of the client.
//!
//! Invariant: `Debug` shows no secret.

use crate::error::{BucketError, BucketFailure};
use firn_http_client::Secret;
use std::path::PathBuf;
use std::time::Duration;

/// Options of a store that implements the protocol of S3. All are optional.
///
/// Without keys, credentials are taken from the environment, then from a web identity, then from
/// the container, then from the instance (IMDSv2 only).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketOptions {
    /// URL of the store, such as `http://127.0.0.1:7070`. Without it, the store is AWS.
    pub endpoint: Option<String>,
    /// Region for signatures and for the host of AWS (default: `AWS_REGION`, then `us-east-1`).
    pub region: Option<String>,
    /// Access key id, read again when its file changes.
    pub access_key: Option<Secret>,
    /// Secret access key, read again when its file changes.
    pub secret_key: Option<Secret>,
    /// Session token of temporary credentials, read again when its file changes.
    pub session_token: Option<Secret>,
    /// File with the trusted authorities in PEM, instead of those of the system
    /// (default: `AWS_CA_BUNDLE`).
    pub ca_file: Option<PathBuf>,
    /// Whether the bucket is part of the host name of an `endpoint` (default: of the path).
    pub is_virtual_hosted: bool,
    /// Limits of the client.
    pub limits: BucketLimits,
}

/// Variables of the environment, from which credentials and the region are taken.
#[derive(Clone, Default)]
pub struct AwsEnvironment(Vec<(String, String)>);

impl AwsEnvironment {
    /// Returns the variables `AWS_*` of this process.
    pub fn of_process() -> Self {
        let texts = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            Some((name, value)).filter(|(name, _)| name.starts_with("AWS_"))
        });
        Self(texts.collect())
    }

    /// Creates an environment of the given variables, for tests.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = variables
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        Self(owned.collect())
    }

    /// Returns the value of a variable if it is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

impl std::fmt::Debug for AwsEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// Limits of the client of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLimits {
    /// Maximum number of bytes that are being sent or received. Operations wait for their share
    /// within their time.
    pub bytes_in_flight_max: u64,
    /// Maximum number of operations that run or wait. Further ones are refused immediately.
    pub operations_max: usize,
    /// Maximum size of an object that is created or read completely.
    pub object_bytes_max: u64,
    /// Maximum duration of a creation.
    pub create_timeout: Duration,
    /// Maximum duration of a read of bytes.
    pub read_timeout: Duration,
    /// Maximum duration of [`crate::Bucket::head`], [`crate::Bucket::list`] and
    /// [`crate::Bucket::delete`].
    pub short_timeout: Duration,
    /// Whether a second attempt of a creation or a read starts when the first one takes longer
    /// than 99 % of the last ones. At most 5 % of the operations have a second attempt.
    pub is_hedged: bool,
}

impl Default for BucketLimits {
    fn default() -> Self {
        Self {
            // 64 reads of segments of 1 MiB in a replay, and as much for blocks.
            bytes_in_flight_max: 128 << 20,
            // Four creations and 64 reads for each of 12 partitions.
            operations_max: 1024,
            object_bytes_max: 64 << 20,
            // Longer than the p99.9 of large stores; the log waits for each creation.
            create_timeout: Duration::from_secs(10),
            // 64 MiB at 2 MiB/s.
            read_timeout: Duration::from_secs(30),
            short_timeout: Duration::from_secs(10),
            is_hedged: true,
        }
    }
}

impl BucketLimits {
    /// Returns an error if an object cannot fit into the bytes in flight, or a limit is zero.
    pub(crate) fn check(&self) -> Result<(), BucketError> {
        let fail = |text: String| Err(BucketError::new(BucketFailure::Invalid, text));
        if self.object_bytes_max > self.bytes_in_flight_max {
            return fail(format!(
                "objects of {} bytes do not fit into {} bytes in flight",
                self.object_bytes_max, self.bytes_in_flight_max
            ));
        }
        let durations = [self.create_timeout, self.read_timeout, self.short_timeout];
        if self.operations_max == 0 || durations.contains(&Duration::ZERO) {
            return fail("limits of a bucket must not be zero".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_options_and_environment_shows_no_secret() {
        let options = BucketOptions {
            access_key: Some(Secret::Inline("AKIAHIDDEN".into())),
            secret_key: Some(Secret::Inline("hidden-secret".into())),
            session_token: Some(Secret::Inline("hidden-token".into())),
            ..BucketOptions::default()
        };
        let environment = AwsEnvironment::of(&[("AWS_SECRET_ACCESS_KEY", "hidden-too")]);
        let shown = format!("{options:?} {environment:?}");
        assert!(!shown.to_lowercase().contains("hidden"), "{shown}");
        assert!(shown.contains("AWS_SECRET_ACCESS_KEY"), "{shown}");
    }

    #[test]
    fn limits_that_exclude_each_other_are_rejected() {
        assert_eq!(BucketLimits::default().check(), Ok(()));
        let check = |limits: BucketLimits, part: &str| {
            let text = limits.check().unwrap_err().message;
            assert!(text.contains(part), "{text}");
        };
        let base = BucketLimits::default;
        check(
            BucketLimits {
                object_bytes_max: 1 << 40,
                ..base()
            },
            "do not fit",
        );
        check(
            BucketLimits {
                operations_max: 0,
                ..base()
            },
            "zero",
        );
        check(
            BucketLimits {
                read_timeout: Duration::ZERO,
                ..base()
            },
            "zero",
        );
    }
}
