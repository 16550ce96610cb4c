//! Translates keys of attributes to label names.
//!
//! A request repeats the same keys in each point, so that each key is translated only once for a
//! request.

use super::text::{GeneratedTexts, LabelText};
use super::translation::OtlpTranslation;
use super::trouble::OtlpDecodeError;
use crate::remote_write::WriteRejectionReason;
use rustc_hash::FxHashMap;

/// The cache of translated attribute keys for one request. Keys borrow from the message, and so do
/// names that equal their keys.
#[derive(Debug, Default)]
pub(super) struct LabelNameCache<'m> {
    known: FxHashMap<&'m [u8], LabelText<'m>>,
}

impl<'m> LabelNameCache<'m> {
    /// Returns the label name for the attribute `key`, translated at its first use. Fails if the
    /// key cannot be translated.
    #[inline]
    pub(super) fn get(
        &mut self,
        key: &'m [u8],
        translation: &OtlpTranslation,
        made: &mut GeneratedTexts,
    ) -> Result<LabelText<'m>, OtlpDecodeError> {
        if let Some(name) = self.known.get(key) {
            return Ok(*name);
        }
        let name = self.translate(key, translation, made)?;
        self.known.insert(key, name);
        Ok(name)
    }

    #[cold]
    fn translate(
        &mut self,
        key: &'m [u8],
        translation: &OtlpTranslation,
        made: &mut GeneratedTexts,
    ) -> Result<LabelText<'m>, OtlpDecodeError> {
        let name = label_name(key, translation).map_err(|message| {
            OtlpDecodeError::reject_point(WriteRejectionReason::LabelName, message)
        })?;
        if *name == *key {
            Ok(LabelText::Message(key))
        } else {
            Ok(made.push(&name))
        }
    }
}

/// Translates `key` to a label name, or returns upstream's error text if that is impossible.
pub(super) fn label_name(key: &[u8], translation: &OtlpTranslation) -> Result<Vec<u8>, String> {
    let is_underscores = |name: &[u8]| name.iter().all(|byte| *byte == b'_');
    if key.is_empty() {
        return Err("label name is empty".to_owned());
    }
    let shown = String::from_utf8_lossy(key);
    if !translation.strategy.is_escaping() {
        return if is_underscores(key) {
            Err(format!("label name {shown:?} contains only underscores"))
        } else {
            Ok(key.to_vec())
        };
    }
    let mut name = if translation.preserves_underscores {
        escape_key(key, false)
    } else {
        match reserved_part(key) {
            Some(inner) => [b"__", &*escape_key(inner, true), b"__"].concat(),
            None => escape_key(key, true),
        }
    };
    let is_single = name.starts_with(b"_") && !name.starts_with(b"__");
    let in_front: &[u8] = match name.first() {
        Some(b'0'..=b'9') => b"key_",
        _ if is_single && translation.sanitizes_underscores => b"key",
        _ => b"",
    };
    name.splice(..0, in_front.iter().copied());
    if is_underscores(&name) {
        Err(format!(
            "normalization for label name {shown:?} resulted in invalid name {:?}",
            String::from_utf8_lossy(&name)
        ))
    } else {
        Ok(name)
    }
}

/// Returns the part between the double underscores of a reserved name, which are kept as they are.
/// Returns `None` for any other name.
fn reserved_part(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(b"__")?.strip_suffix(b"__")
}

/// Keeps letters and digits of `key` and replaces each other character, or each run of them if
/// `collapses` is set, by an underscore.
fn escape_key(key: &[u8], collapses: bool) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    let underscore = |name: &mut Vec<u8>| {
        if !collapses || name.last() != Some(&b'_') {
            name.push(b'_');
        }
    };
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_ascii_alphanumeric() {
                name.push(c as u8)
            } else {
                underscore(&mut name)
            }
        }
        for _ in chunk.invalid() {
            underscore(&mut name);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::super::translation::TranslationStrategy;
    use super::*;

    #[test]
    fn label_name_by_the_switches_is_as_upstream_makes_it() {
        let plain = OtlpTranslation {
            sanitizes_underscores: false,
            preserves_underscores: false,
            ..OtlpTranslation::default()
        };
        let keyed = OtlpTranslation {
            sanitizes_underscores: true,
            ..plain.clone()
        };
        let kept = OtlpTranslation {
            preserves_underscores: true,
            ..plain.clone()
        };
        let unescaped = OtlpTranslation {
            strategy: TranslationStrategy::NoTranslation,
            ..plain.clone()
        };
        for (key, translation, want) in [
            ("http.method", &plain, "http_method"),
            ("a..b__c", &plain, "a_b_c"),
            ("a..b__c", &kept, "a__b__c"),
            ("été", &plain, "_t_"),
            ("9lives", &plain, "key_9lives"),
            ("_x", &plain, "_x"),
            ("_x", &keyed, "key_x"),
            ("__x", &keyed, "key_x"),
            ("__x__", &plain, "__x__"),
            ("__a..b__", &keyed, "__a_b__"),
            ("a.b", &unescaped, "a.b"),
            (
                "...",
                &plain,
                "normalization for label name \"...\" resulted in invalid name \"_\"",
            ),
            (
                "____",
                &plain,
                "normalization for label name \"____\" resulted in invalid name \"____\"",
            ),
            (
                "__",
                &unescaped,
                "label name \"__\" contains only underscores",
            ),
            ("", &plain, "label name is empty"),
        ] {
            let got = match label_name(key.as_bytes(), translation) {
                Ok(name) => String::from_utf8(name).unwrap(),
                Err(why) => why,
            };
            assert_eq!(got, want, "{key} by {translation:?}");
        }
    }
}
