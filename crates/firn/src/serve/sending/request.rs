//! Requests of remote write as the queue has them: headers by their places, and a body.

use bytes::Bytes;
use firn_ingest::sending::Kept;
use firn_mirror::tee::{PASSED_HEADERS, Write};
use firn_wire::remote_write::Version;

/// What a request of 2.0 says it is.
const CONTENT_TYPE_V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// A request of this version, with the headers that it needs.
pub fn write(version: Version, body: Bytes) -> Write {
    let headers = match version {
        Version::V1 => ["application/x-protobuf", "snappy", "0.1.0"],
        Version::V2 => [CONTENT_TYPE_V2, "snappy", "2.0.0"],
    };
    debug_assert_eq!(PASSED_HEADERS[2], "x-prometheus-remote-write-version");
    let headers = headers.iter().enumerate();
    Write {
        headers: headers.map(|(at, text)| (at, (*text).into())).collect(),
        contents: None,
        body,
    }
}

/// A request that was kept.
pub fn kept(write: &Write) -> Kept {
    Kept {
        version: match write.header("content-type") {
            Some(CONTENT_TYPE_V2) => Version::V2,
            _ => Version::V1,
        },
        contents: write.contents,
        body: write.body.clone(),
    }
}
