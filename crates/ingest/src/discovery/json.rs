//! Answers of JSON, read as Go reads them: what is missing or null is the default of its type, and
//! what is not known is passed over.

/// Structs of which each field may be missing or null.
macro_rules! answers {
    ($($(#[$meta:meta])* struct $name:ident {
        $($(#[$of_field:meta])* $field:ident: $kind:ty,)*
    })*) => {$(
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(default)]
        $(#[$meta])*
        struct $name {
            $($(#[$of_field])*
            #[serde(deserialize_with = "crate::discovery::group::or_default")]
            $field: $kind,)*
        }
    )*};
}

pub(super) use answers;
