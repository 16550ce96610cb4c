//! JSON reader for API responses with the semantics of Go's `encoding/json`. [`text`] parses bytes
//! to a tree, and [`decode`] converts the tree to types. Missing and `null` fields have the default
//! value of their type; unknown fields are ignored.

mod decode;
mod text;

#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;

/// Decodes bytes that contain exactly one JSON value. The error is a text for the log.
pub(super) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let tree = text::parse(bytes).map_err(|e| e.to_string())?;
    T::deserialize(tree).map_err(|e| e.to_string())
}

/// Defines structs for deserialization in which each field may be missing or `null`.
macro_rules! answers {
    ($($(#[$meta:meta])* $seen:vis struct $name:ident {
        $($(#[$of_field:meta])* $field_seen:vis $field:ident: $kind:ty,)*
    })*) => {$(
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(default)]
        $(#[$meta])*
        $seen struct $name {
            $($(#[$of_field])*
            #[serde(deserialize_with = "crate::group::or_default")]
            $field_seen $field: $kind,)*
        }
    )*};
}

pub(super) use answers;
