//! Number of queries of each tenant since the start.
//!
//! Invariant: memory is bounded by [`TENANTS_MAX`]. A request may name a tenant without data.

use firn_model::tenant::TenantId;
use std::collections::BTreeMap;

/// Maximum number of tenants. Queries of further ones are not counted.
const TENANTS_MAX: usize = 10_000;

/// The counts of all tenants. Belongs to the registry.
#[derive(Debug, Default)]
pub(super) struct QueryCounts(BTreeMap<TenantId, u64>);

impl QueryCounts {
    /// Counts a query for each tenant that it reads.
    pub(super) fn add(&mut self, tenants: &TenantId) {
        for tenant in tenants.members() {
            if self.0.len() < TENANTS_MAX || self.0.contains_key(&tenant) {
                *self.0.entry(tenant).or_default() += 1;
            }
        }
    }

    /// Returns the number of queries of one tenant.
    pub(super) fn of_tenant(&self, tenant: &TenantId) -> u64 {
        self.0.get(tenant).copied().unwrap_or_default()
    }

    /// Returns the number of queries of each tenant, sorted by tenant.
    pub(super) fn all(&self) -> Vec<(TenantId, u64)> {
        let counts = self.0.iter();
        counts.map(|(id, count)| (id.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_of_several_tenants_counts_for_each() {
        let mut counts = QueryCounts::default();
        let id = |id| TenantId::new(id).unwrap();
        counts.add(&id("a"));
        counts.add(&TenantId::join(vec![id("a"), id("b")]).unwrap());
        assert_eq!(counts.all(), [(id("a"), 2), (id("b"), 1)]);
        assert_eq!(counts.of_tenant(&id("a")), 2);
        assert_eq!(counts.of_tenant(&id("c")), 0);
    }
}
