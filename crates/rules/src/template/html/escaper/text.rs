//! What escapers are given: values as one text, and what they make of its bytes.

use crate::template::format::{self, TooLong};
use crate::template::value::Value;

/// What stands in a page where a value must not.
pub(super) const FAILSAFE: &[u8] = b"ZgotmplZ";

/// A value as text.
pub(super) struct Text {
    pub bytes: Vec<u8>,
    /// Whether it is what `safeHtml` made.
    pub is_markup: bool,
}

/// The values as one text; those that are nothing count for nothing.
pub(super) fn text_of(arguments: &[Value], bytes_max: usize) -> Result<Text, TooLong> {
    let insides = arguments.iter().map(|value| value.clone().inside());
    let values: Vec<Value> = insides.filter(Value::is_valid).collect();
    if let ([Value::Html(bytes)], [_]) = (&values[..], arguments) {
        return Ok(Text {
            bytes: bytes.to_vec(),
            is_markup: true,
        });
    }
    Ok(Text {
        bytes: format::print_plain(&values, bytes_max)?,
        is_markup: false,
    })
}

/// `bytes` with some of ASCII replaced, as `replacement` says.
pub(super) fn replaced(bytes: &[u8], replacement: impl Fn(u8) -> Option<&'static str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match replacement(*byte) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.push(*byte),
        }
    }
    out
}
