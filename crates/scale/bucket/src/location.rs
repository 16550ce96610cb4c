//! URLs of buckets.

use crate::error::{BucketError, BucketFailure};
use std::path::PathBuf;

/// The version of Firn that will have the stores of other clouds.
const CLOUDS_VERSION: &str = "0.3";

/// The ending of names of S3 directory buckets, whose lists are not ordered.
const DIRECTORY_BUCKET: &str = "--x-s3";

/// The place of a bucket, parsed from a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketUrl {
    /// `s3://bucket/prefix`: a store that implements the protocol of S3.
    S3 {
        /// Name of the bucket in the store.
        bucket: String,
        /// Prefix of all keys, without slashes at both ends; may be empty.
        prefix: String,
    },
    /// `file:///path`: a folder, for tests and for several processes on one machine.
    Folder(PathBuf),
}

impl BucketUrl {
    /// Parses a URL. Fails with [`BucketFailure::Invalid`] and a text for the user.
    pub fn parse(url: &str) -> Result<Self, BucketError> {
        let fail = |reason: &str| {
            let text = format!("bucket URL {url:?}: {reason}");
            Err(BucketError::new(BucketFailure::Invalid, text))
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            return fail("it has no scheme, expected s3://bucket/prefix or file:///path");
        };
        if rest.contains(['?', '#']) {
            return fail("it must not contain ? or #, options are keys of bucket_options");
        }
        match scheme {
            "s3" => of_s3(rest).or_else(fail),
            "file" => of_folder(rest).or_else(fail),
            "gs" | "az" | "azure" | "abfs" | "abfss" => fail(&format!(
                "{scheme}:// will be supported by version {CLOUDS_VERSION}; this version supports \
                 s3:// and file://"
            )),
            _ => fail("the scheme is not supported, expected s3:// or file://"),
        }
    }
}

fn of_s3(rest: &str) -> Result<BucketUrl, &'static str> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if bucket.is_empty() || !bucket.chars().all(is_name) {
        return Err("the name of the bucket must consist of letters, digits, and - _ .");
    }
    if bucket.ends_with(DIRECTORY_BUCKET) {
        return Err("directory buckets are not supported, since their lists have no order");
    }
    let prefix = prefix.trim_end_matches('/');
    if !prefix.is_empty() && crate::key::ObjectKey::new(prefix).is_err() {
        return Err(
            "each segment of the prefix must consist of letters, digits, and ! - _ . * ' ( )",
        );
    }
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err("the prefix has more than 255 bytes");
    }
    let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
    Ok(BucketUrl::S3 { bucket, prefix })
}

/// Maximum length of a prefix. With a slash and the longest key it has 1,024 bytes, as in S3.
const PREFIX_BYTES_MAX: usize = 255;

fn of_folder(rest: &str) -> Result<BucketUrl, &'static str> {
    if !rest.starts_with('/') {
        return Err("the path must be absolute: file:///path");
    }
    if rest.contains('%') {
        return Err("the path must not contain %");
    }
    let path = PathBuf::from(rest);
    if path
        .components()
        .any(|c| c == std::path::Component::ParentDir)
    {
        return Err("the path must not contain ..");
    }
    if path.parent().is_none() {
        return Err("the root folder cannot be a bucket");
    }
    Ok(BucketUrl::Folder(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES_MAX;

    #[test]
    fn url_is_parsed_or_rejected_with_a_reason() {
        let check = |url: &str, expected: Result<BucketUrl, &str>| {
            let found = BucketUrl::parse(url).map_err(|e| e.message);
            match expected {
                Ok(expected) => assert_eq!(found, Ok(expected), "{url}"),
                Err(part) => {
                    let text = found.unwrap_err();
                    assert!(text.contains(part) && text.contains(url), "{url}: {text}");
                }
            }
        };
        let s3 = |bucket: &str, prefix: &str| {
            let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
            Ok(BucketUrl::S3 { bucket, prefix })
        };
        check("s3://metrics", s3("metrics", ""));
        check("s3://metrics/", s3("metrics", ""));
        check("s3://metrics/prod/eu/", s3("metrics", "prod/eu"));
        check("file:///var/b", Ok(BucketUrl::Folder("/var/b".into())));
        check("metrics", Err("no scheme"));
        check("s3:///prefix", Err("name of the bucket"));
        check("s3://user@host/x", Err("name of the bucket"));
        check("s3://b/a//c", Err("each segment"));
        check("s3://b/..", Err("each segment"));
        check("s3://b?region=x", Err("bucket_options"));
        check("s3://b--use1-az4--x-s3", Err("directory buckets"));
        check("file://host/path", Err("absolute"));
        check("file:///", Err("root folder"));
        check("file:///a/../b", Err(".."));
        check("gs://b", Err("will be supported by version 0.3"));
        check("az://b/c", Err("will be supported by version 0.3"));
        check("http://b", Err("not supported, expected s3:// or file://"));
    }

    #[test]
    fn longest_prefix_and_key_fit_into_a_key_of_s3() {
        assert_eq!(PREFIX_BYTES_MAX + "/".len() + KEY_BYTES_MAX, 1024);
    }
}
