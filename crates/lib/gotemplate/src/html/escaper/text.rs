//! Input of the escapers: arguments as one text, and byte replacement.

use crate::format::{self, OutputTooLong};
use crate::value::TemplateValue;

/// Text that replaces an unsafe value; the same as Go's, so that it can be searched in both
/// systems.
pub(super) const FAILSAFE: &[u8] = b"ZgotmplZ";

/// The arguments of an escaper, formatted as one text, and whether that text is safe HTML.
pub(super) struct EscaperText {
    pub bytes: Vec<u8>,
    /// True if the text is output of `safeHtml`.
    pub is_markup: bool,
}

/// Formats the arguments as one text. Invalid arguments are ignored. A single safe HTML argument
/// keeps its type.
pub(super) fn format_arguments(
    arguments: &[TemplateValue],
    bytes_max: usize,
) -> Result<EscaperText, OutputTooLong> {
    let insides = arguments
        .iter()
        .map(|value| value.clone().unwrap_interface());
    let values: Vec<TemplateValue> = insides.filter(TemplateValue::is_valid).collect();
    if let ([TemplateValue::Html(bytes)], [_]) = (&values[..], arguments) {
        return Ok(EscaperText {
            bytes: bytes.to_vec(),
            is_markup: true,
        });
    }
    Ok(EscaperText {
        bytes: format::print_plain(&values, bytes_max)?,
        is_markup: false,
    })
}

/// Returns `bytes` with each byte replaced for which `replacement` returns a text.
pub(super) fn replace_bytes(
    bytes: &[u8],
    replacement: impl Fn(u8) -> Option<&'static str>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match replacement(*byte) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.push(*byte),
        }
    }
    out
}
