//! Answers of JSON, read as Go reads them: what is missing or null is the default of its type, and
//! what is not known is passed over.

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
