//! Remote-write requests in the form that the queue stores: a body, and headers identified by their
//! index in the list of passed headers.

use bytes::Bytes;
use firn_remote_write::QueuedWriteRequest;
use firn_remote_write::queue::{PASSED_HEADERS, ReceivedWrite};
use firn_wire::remote_write::RemoteWriteVersion;

/// Value of the header `Content-Type` of remote-write 2.0 requests.
const CONTENT_TYPE_V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// Creates a request of the given version from a compressed body, with the headers that the
/// protocol requires.
pub fn write(version: RemoteWriteVersion, body: Bytes) -> ReceivedWrite {
    let headers = match version {
        RemoteWriteVersion::V1 => ["application/x-protobuf", "snappy", "0.1.0"],
        RemoteWriteVersion::V2 => [CONTENT_TYPE_V2, "snappy", "2.0.0"],
    };
    debug_assert_eq!(PASSED_HEADERS[2], "x-prometheus-remote-write-version");
    let headers = headers.iter().enumerate();
    ReceivedWrite {
        headers: headers.map(|(at, text)| (at, (*text).into())).collect(),
        contents: None,
        body,
    }
}

/// Converts a stored request of the queue into the form that the sender decodes. Its version
/// follows from the content type.
pub fn kept(write: &ReceivedWrite) -> QueuedWriteRequest {
    QueuedWriteRequest {
        version: match write.header("content-type") {
            Some(CONTENT_TYPE_V2) => RemoteWriteVersion::V2,
            _ => RemoteWriteVersion::V1,
        },
        contents: write.contents,
        body: write.body.clone(),
    }
}
