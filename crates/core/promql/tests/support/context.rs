//! The context of queries in tests.

use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim::InlineCompute;
use firn_model::store::Select;
use firn_model::tenant::TenantId;
use firn_promql::QueryContext;

/// Calls `run` with the context of a query over `store`, which is evaluated on the calling thread.
pub fn with_context<T>(store: &dyn Select, run: impl FnOnce(&QueryContext<'_>) -> T) -> T {
    let (tenant, cancel) = (TenantId::anonymous(), CancelToken::new());
    run(&QueryContext {
        store,
        tenant: &tenant,
        compute: &InlineCompute,
        budget: &Budget::new("query", 1 << 30),
        cancel: &cancel,
        failed_counts: None,
    })
}
