//! Tests that the examples of the function table have a result.

use super::*;
use crate::functions::FUNCTIONS;
use crate::value::QueryValue;
use crate::{QueryContext, query};
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::tenant::TenantId;

const SERIES: &str = r#"load 1m
  temperature{instance="a", job="x"} 1+1x20
  requests_total{instance="a", job="x"} 10+5x20
  ratio{instance="a", job="x"} 0.5x20
  latency{instance="a", job="x"} {{schema:0 count:10 sum:20 buckets:[4 6]}}x20
  target_info{instance="a", job="x", version="1"} 1x20
"#;

#[test]
fn function_examples_have_a_result() {
    let mut store = MemoryStore::default();
    assert_eq!(
        run("examples", SERIES, &mut store, &InlineCompute).broken,
        []
    );
    let (tenant, cancel) = (TenantId::anonymous(), CancelToken::new());
    let context = QueryContext {
        store: ScriptStore::select(&store),
        tenant: &tenant,
        compute: &InlineCompute,
        budget: &Budget::new("query", 1 << 30),
        cancel: &cancel,
        failed_counts: None,
    };
    for function in FUNCTIONS {
        let text = function.example;
        let result = query(&context, text, EvalTime::Instant(600_000), &OPTIONS);
        let value = result.map(|result| result.value);
        let has_result = match &value {
            Ok(QueryValue::Vector(elements)) => !elements.is_empty(),
            Ok(QueryValue::Scalar(..)) => true,
            _ => false,
        };
        assert!(has_result, "{text}: {value:?}");
    }
}
