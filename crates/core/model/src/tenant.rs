//! Tenants, the owners of data. Every path of a store contains a [`TenantId`], even if multitenancy
//! is disabled.
//!
//! The permitted characters and length, and the rejection of `.` and `..`, are those of Mimir, so
//! that ids of its users are valid here.

use crate::error::{Error, ErrorKind};
use std::sync::Arc;

/// Maximum length of a tenant id in bytes. This is the limit of Mimir, so that an id can be the
/// name of a folder.
pub const TENANT_ID_BYTES_MAX: usize = 150;

/// The tenant of every request if multitenancy is disabled.
pub const ANONYMOUS: &str = "anonymous";

/// Separates the tenants of a request that reads several of them.
const SEPARATOR: char = '|';

/// A valid tenant id, which can be used as the name of a folder. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// Checks and creates a tenant id. Fails with [`ErrorKind::Invalid`] if the length or a
    /// character is not permitted, or if the id is `.` or `..`.
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

    /// Returns the tenant that owns all data if multitenancy is disabled.
    pub fn anonymous() -> Self {
        Self(ANONYMOUS.into())
    }

    /// Returns the id that stands for several tenants in a request that reads all of them, such as
    /// `a|b`: sorted, each once. That of a single tenant is its own id. No store accepts the id of
    /// several tenants. Returns `None` without a tenant.
    pub fn join(mut tenants: Vec<TenantId>) -> Option<Self> {
        tenants.sort_unstable();
        tenants.dedup();
        match &tenants[..] {
            [] => None,
            [one] => Some(one.clone()),
            several => {
                let ids: Vec<&str> = several.iter().map(TenantId::as_str).collect();
                Some(Self(ids.join(&SEPARATOR.to_string()).into()))
            }
        }
    }

    /// Returns the tenants for which the id stands: several after [`TenantId::join`].
    pub fn members(&self) -> Vec<TenantId> {
        if !self.is_joined() {
            return vec![self.clone()];
        }
        self.0.split(SEPARATOR).map(|id| Self(id.into())).collect()
    }

    /// Returns whether the id stands for several tenants.
    pub fn is_joined(&self) -> bool {
        self.0.contains(SEPARATOR)
    }

    /// Returns the id as text, as it was received.
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
    fn tenant_id_of_several_tenants_contains_each_once_in_order() {
        let ids = |text: &str| -> Vec<TenantId> {
            let ids = text.split_whitespace();
            ids.map(|id| TenantId::new(id).unwrap()).collect()
        };
        for (tenants, joined) in [("b a b", "a|b"), ("a", "a"), ("a a", "a")] {
            let id = TenantId::join(ids(tenants)).unwrap();
            assert_eq!(id.as_str(), joined);
            assert_eq!(id.members(), ids(&joined.replace('|', " ")));
            assert_eq!(id.is_joined(), joined.contains('|'));
        }
        assert_eq!(TenantId::join(Vec::new()), None);
    }

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
