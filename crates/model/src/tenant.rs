//! Whose data it is. Every store path carries a [`TenantId`], also when multitenancy is off.
//!
//! Charset, length and the refusal of `.` and `..` are Mimir's, so that its users' ids work here.

use crate::error::{Error, ErrorKind};
use std::sync::Arc;

/// The longest tenant id, in bytes: Mimir's limit, which keeps an id usable as a folder name.
pub const TENANT_ID_BYTES_MAX: usize = 150;

/// The tenant of every request while multitenancy is off.
pub const ANONYMOUS: &str = "anonymous";

/// A valid tenant id. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// Checks `id`; fails with [`ErrorKind::Invalid`] on a bad length, character, `.` or `..`.
    pub fn new(id: &str) -> Result<Self, Error> {
        let invalid = |why: String| Err(Error::new(ErrorKind::Invalid, why));
        if id.is_empty() {
            return invalid("tenant id is empty".into());
        }
        if id.len() > TENANT_ID_BYTES_MAX {
            return invalid(format!(
                "tenant id is too long: {} bytes, limit {TENANT_ID_BYTES_MAX}",
                id.len()
            ));
        }
        if id == "." || id == ".." {
            return invalid(format!("tenant id is not allowed: {id:?}"));
        }
        if let Some(c) = id.chars().find(|c| !is_allowed(*c)) {
            return invalid(format!(
                "tenant id contains an unsupported character: {c:?}"
            ));
        }
        Ok(Self(id.into()))
    }

    /// The tenant that owns everything while multitenancy is off.
    pub fn anonymous() -> Self {
        Self(ANONYMOUS.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!-_.*'()".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_id_new_accepts_and_refuses_as_mimir() {
        for good in ["a", "anonymous", "Team-1_x.y!*'()", &"x".repeat(150)] {
            assert!(TenantId::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ü", "a|b", &"x".repeat(151)] {
            assert!(TenantId::new(bad).is_err(), "{bad}");
        }
    }
}
