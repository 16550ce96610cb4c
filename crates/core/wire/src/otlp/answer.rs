//! Responses to OTLP requests, in the encoding of the request.

use super::field::{response, status};
use crate::protobuf::{put_bytes, put_integer};

/// The encoding of a request and of its response, known from the content type. The protocol
/// requires that both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpEncoding {
    /// Protocol buffers.
    Protobuf,
    /// JSON.
    Json,
}

impl OtlpEncoding {
    /// Returns the media type of the encoding, for the content type of the response.
    pub fn media_type(self) -> &'static str {
        match self {
            OtlpEncoding::Protobuf => "application/x-protobuf",
            OtlpEncoding::Json => "application/json",
        }
    }
}

/// The response to an OTLP request. The protocol distinguishes partial success from failure by the
/// message type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpResponse<'a> {
    /// `ExportMetricsServiceResponse` without details: all points are stored.
    Stored,
    /// `ExportMetricsServiceResponse` with a partial success: some points were rejected.
    Partial {
        /// Number of rejected data points, not of requests or series.
        rejected: usize,
        /// Error text for the rejected points, with counts by reason.
        message: &'a str,
    },
    /// `google.rpc.Status`: no point was stored.
    Failed {
        /// Status code, a number of `google.rpc.Code`.
        code: u32,
        /// Error text of the status, for the log of the sender.
        message: &'a str,
    },
}

impl OtlpResponse<'_> {
    /// Encodes the body of the response in the encoding of the request.
    pub fn encode(self, format: OtlpEncoding) -> Vec<u8> {
        match format {
            OtlpEncoding::Protobuf => self.to_protobuf(),
            OtlpEncoding::Json => self.to_json(),
        }
    }

    fn to_protobuf(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            OtlpResponse::Stored => {}
            OtlpResponse::Partial { rejected, message } => {
                let mut partial = Vec::new();
                put_integer(&mut partial, response::REJECTED, rejected as u64);
                put_bytes(&mut partial, response::MESSAGE, message.as_bytes());
                put_bytes(&mut out, response::PARTIAL_SUCCESS, &partial);
            }
            OtlpResponse::Failed { code, message } => {
                put_integer(&mut out, status::CODE, u64::from(code));
                put_bytes(&mut out, status::MESSAGE, message.as_bytes());
            }
        }
        out
    }

    fn to_json(self) -> Vec<u8> {
        let value = match self {
            OtlpResponse::Stored => serde_json::json!({}),
            // The JSON mapping of protobuf encodes 64-bit integers as strings.
            OtlpResponse::Partial { rejected, message } => serde_json::json!({"partialSuccess": {
                "rejectedDataPoints": rejected.to_string(),
                "errorMessage": message,
            }}),
            OtlpResponse::Failed { code, message } => serde_json::json!({
                "code": code,
                "message": message,
            }),
        };
        value.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_encoded_in_both_forms() {
        let partial = OtlpResponse::Partial {
            rejected: 3,
            message: "no \"x\"",
        };
        let failed = OtlpResponse::Failed {
            code: 3,
            message: "bad",
        };
        for (answer, protobuf, json) in [
            (OtlpResponse::Stored, &b""[..], "{}"),
            (
                partial,
                b"\x0a\x0a\x08\x03\x12\x06no \"x\"",
                r#"{"partialSuccess":{"errorMessage":"no \"x\"","rejectedDataPoints":"3"}}"#,
            ),
            (
                failed,
                b"\x08\x03\x12\x03bad",
                r#"{"code":3,"message":"bad"}"#,
            ),
        ] {
            assert_eq!(answer.encode(OtlpEncoding::Protobuf), protobuf);
            assert_eq!(
                String::from_utf8(answer.encode(OtlpEncoding::Json)).unwrap(),
                json
            );
        }
    }
}
