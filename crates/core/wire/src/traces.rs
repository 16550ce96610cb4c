//! Encodes spans as OTLP traces: `ExportTraceServiceRequest`, and its gRPC frame.
//!
//! Sources: `opentelemetry/proto/trace/v1/trace.proto` and `collector/trace/v1/trace_service.proto`
//! of the OpenTelemetry protocol, `PROTOCOL-HTTP2.md` of gRPC for the frame.

use crate::protobuf::{WireType, put_bytes, put_integer, put_key, put_varint};
use firn_model::trace::{FinishedSpan, SpanAttribute, SpanKind};

/// Field numbers of the messages.
mod field {
    pub const RESOURCE_SPANS: u32 = 1;
    pub const RESOURCE: u32 = 1;
    pub const SCOPE_SPANS: u32 = 2;
    pub const RESOURCE_ATTRIBUTES: u32 = 1;
    pub const SCOPE: u32 = 1;
    pub const SCOPE_NAME: u32 = 1;
    pub const SCOPE_VERSION: u32 = 2;
    pub const SPANS: u32 = 2;

    pub const TRACE_ID: u32 = 1;
    pub const SPAN_ID: u32 = 2;
    pub const PARENT_SPAN_ID: u32 = 4;
    pub const NAME: u32 = 5;
    pub const KIND: u32 = 6;
    pub const START: u32 = 7;
    pub const END: u32 = 8;
    pub const ATTRIBUTES: u32 = 9;
    pub const STATUS: u32 = 15;

    pub const KEY: u32 = 1;
    pub const VALUE: u32 = 2;
    pub const TEXT: u32 = 1;
    pub const INTEGER: u32 = 3;
    pub const STATUS_MESSAGE: u32 = 2;
    pub const STATUS_CODE: u32 = 3;
}

/// Value of `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// Encodes a request that exports `spans` of the service `name` in this `version`.
pub fn encode(name: &str, version: &str, spans: &[FinishedSpan]) -> Vec<u8> {
    let mut resource = Vec::new();
    for (key, value) in [("service.name", name), ("service.version", version)] {
        let value = SpanAttribute::from(value);
        put_bytes(
            &mut resource,
            field::RESOURCE_ATTRIBUTES,
            &encode_attribute(key, &value),
        );
    }
    let mut scope = Vec::new();
    put_bytes(&mut scope, field::SCOPE_NAME, name.as_bytes());
    put_bytes(&mut scope, field::SCOPE_VERSION, version.as_bytes());
    let mut of_scope = Vec::new();
    put_bytes(&mut of_scope, field::SCOPE, &scope);
    for span in spans {
        put_bytes(&mut of_scope, field::SPANS, &encode_span(span));
    }
    let mut of_resource = Vec::new();
    put_bytes(&mut of_resource, field::RESOURCE, &resource);
    put_bytes(&mut of_resource, field::SCOPE_SPANS, &of_scope);
    let mut request = Vec::new();
    put_bytes(&mut request, field::RESOURCE_SPANS, &of_resource);
    request
}

/// Returns `message` in a gRPC frame: a flag for compression, the length in four bytes, and the
/// bytes.
pub fn grpc_frame(message: &[u8], is_compressed: bool) -> Vec<u8> {
    let mut frame = Vec::with_capacity(5 + message.len());
    frame.push(u8::from(is_compressed));
    // The queue of spans is limited far below 4 GiB.
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

fn encode_span(span: &FinishedSpan) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, field::TRACE_ID, &span.trace.to_be_bytes());
    put_bytes(&mut out, field::SPAN_ID, &span.span.to_be_bytes());
    if let Some(parent) = span.parent {
        put_bytes(&mut out, field::PARENT_SPAN_ID, &parent.to_be_bytes());
    }
    put_bytes(&mut out, field::NAME, span.name.as_bytes());
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    put_integer(&mut out, field::KIND, kind);
    for (number, time_ns) in [(field::START, span.start_ns), (field::END, span.end_ns)] {
        put_key(&mut out, number, WireType::Fixed64);
        out.extend_from_slice(&time_ns.to_le_bytes());
    }
    for (key, value) in &span.attributes {
        put_bytes(&mut out, field::ATTRIBUTES, &encode_attribute(key, value));
    }
    if let Some(error) = &span.error {
        let mut status = Vec::new();
        put_bytes(&mut status, field::STATUS_MESSAGE, error.as_bytes());
        put_integer(&mut status, field::STATUS_CODE, ERROR);
        put_bytes(&mut out, field::STATUS, &status);
    }
    out
}

fn encode_attribute(key: &str, value: &SpanAttribute) -> Vec<u8> {
    let mut of_value = Vec::new();
    match value {
        SpanAttribute::Text(text) => put_bytes(&mut of_value, field::TEXT, text.as_bytes()),
        SpanAttribute::Integer(number) => {
            // Zero is written too, because an absent field would mean no value.
            put_key(&mut of_value, field::INTEGER, WireType::Varint);
            put_varint(&mut of_value, *number as u64);
        }
    }
    let mut out = Vec::new();
    put_bytes(&mut out, field::KEY, key.as_bytes());
    put_bytes(&mut out, field::VALUE, &of_value);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::ProtobufCursor;

    /// Returns the message at this path of field numbers.
    fn at<'m>(message: &'m [u8], path: &[u32]) -> &'m [u8] {
        let Some((wanted, rest)) = path.split_first() else {
            return message;
        };
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field().unwrap() {
            if number == *wanted {
                return at(cursor.read_bytes().unwrap(), rest);
            } else {
                cursor.skip(wire_type).unwrap()
            }
        }
        panic!("no field {wanted}")
    }

    #[test]
    fn request_has_the_program_and_its_spans() {
        let span = FinishedSpan {
            trace: 0x0102,
            span: 3,
            parent: Some(4),
            name: "GET /".to_owned(),
            kind: SpanKind::Server,
            start_ns: 5,
            end_ns: 6,
            attributes: vec![("a", "b".into()), ("n", 0i64.into())],
            error: Some("broken".to_owned()),
        };
        let request = encode("firn", "1.0", &[span]);
        let resource = [1, 1, 1];
        assert_eq!(at(at(&request, &resource), &[1]), b"service.name");
        assert_eq!(at(at(&request, &resource), &[2, 1]), b"firn");
        assert_eq!(at(&request, &[1, 2, 1, 2]), b"1.0");
        let span = at(&request, &[1, 2, 2]);
        assert_eq!(at(span, &[1]), [&[0; 14][..], &[1, 2]].concat());
        assert_eq!(at(span, &[2]), [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(at(span, &[4]), [0, 0, 0, 0, 0, 0, 0, 4]);
        assert_eq!(at(span, &[5]), b"GET /");
        let rest = [
            &[
                0x30, 2, 0x39, 5, 0, 0, 0, 0, 0, 0, 0, 0x41, 6, 0, 0, 0, 0, 0, 0, 0,
            ][..],
            &[0x4a, 8, 0x0a, 1, b'a', 0x12, 3, 0x0a, 1, b'b'],
            &[0x4a, 7, 0x0a, 1, b'n', 0x12, 2, 0x18, 0],
            &[0x7a, 10, 0x12, 6],
            b"broken",
            &[0x18, 2],
        ]
        .concat();
        assert!(span.ends_with(&rest), "{span:02x?}");
    }

    #[test]
    fn frame_of_grpc_has_a_flag_and_a_length() {
        assert_eq!(grpc_frame(b"ab", true), [1, 0, 0, 0, 2, b'a', b'b']);
        assert_eq!(grpc_frame(b"", false), [0, 0, 0, 0, 0]);
    }
}
