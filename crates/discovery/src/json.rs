//! JSON of others, read as Go's `encoding/json` reads it: [`text`] makes a tree of bytes, and
//! [`decode`] types of the tree. Fields that are missing or null have the default of their type,
//! and unknown fields are ignored.

mod decode;
mod text;

#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;

/// Reads a text that is one value.
pub(super) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let tree = text::parse(bytes).map_err(|e| e.to_string())?;
    T::deserialize(tree).map_err(|e| e.to_string())
}

/// Structs of which each field may be missing or null.
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
