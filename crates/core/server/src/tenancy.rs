//! The tenants of a request, from the header `X-Scope-OrgID`.
//!
//! The header contains one tenant, or several that a read joins: `a|b`. Invariant: the result is a
//! valid id or the join of valid ids, so that no part of it leaves a folder.

use crate::http::failure::{ApiFailure, FailureCause};
use axum::http::{HeaderMap, HeaderName};
use firn_model::tenant::TenantId;

/// Header that contains the tenants of a request, the same as in Mimir and Loki.
pub(crate) const TENANT_HEADER: HeaderName = HeaderName::from_static("x-scope-orgid");

/// Returns the tenants in the header, joined. Fails without a header, with several ones, and for an
/// invalid id.
pub(crate) fn request_tenants(headers: &HeaderMap) -> Result<TenantId, ApiFailure> {
    let mut values = headers.get_all(&TENANT_HEADER).iter();
    let missing = || ApiFailure::new(FailureCause::Unauthenticated, "no org id");
    let value = values.next().ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(ApiFailure::bad_data("several headers X-Scope-OrgID"));
    }
    if value.is_empty() {
        return Err(missing());
    }
    let ids = value
        .to_str()
        .map_err(|_| ApiFailure::bad_data("tenant id contains an unsupported character"))?;
    let ids: Result<Vec<TenantId>, _> = ids.split('|').map(TenantId::new).collect();
    TenantId::join(ids.map_err(ApiFailure::request)?).ok_or_else(missing)
}

/// Fails if `tenant` stands for several tenants.
pub(crate) fn require_one(tenant: &TenantId) -> Result<(), ApiFailure> {
    if !tenant.is_joined() {
        return Ok(());
    }
    Err(ApiFailure::bad_data(format!(
        "this request concerns one tenant, but X-Scope-OrgID contains several: {:?}",
        tenant.as_str()
    )))
}

/// Fails for another tenant than `anonymous`, to which the files and jobs of the operator belong.
pub(crate) fn require_operator(tenant: &TenantId) -> Result<(), ApiFailure> {
    if *tenant == TenantId::anonymous() {
        return Ok(());
    }
    let text = format!(
        "this request is only for the operator, with the tenant \"anonymous\", not for {:?}",
        tenant.as_str()
    );
    Err(ApiFailure::new(FailureCause::Forbidden, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn check(values: &[&[u8]], expected: Result<&str, &str>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TENANT_HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        let tenants = request_tenants(&headers).map_err(|failure| failure.message);
        let tenants = tenants.as_ref().map(TenantId::as_str);
        assert_eq!(tenants.map_err(String::as_str), expected, "{values:?}");
    }

    #[test]
    fn header_contains_one_tenant_or_several() {
        check(&[b"a"], Ok("a"));
        check(&[b"b|a|b"], Ok("a|b"));
        check(&[b"a|a"], Ok("a"));
        check(&[], Err("no org id"));
        check(&[b""], Err("no org id"));
        check(&[b"a", b"a"], Err("several headers X-Scope-OrgID"));
        for empty in [&b"a|"[..], b"|a", b"a||b", b"|"] {
            check(&[empty], Err("tenant id is empty"));
        }
        check(&[b".."], Err("tenant id is not allowed: \"..\""));
        check(&[b"a|.."], Err("tenant id is not allowed: \"..\""));
        let slash = "tenant id contains an unsupported character: '/'";
        check(&[b"../a"], Err(slash));
        let encoded = "tenant id contains an unsupported character: '%'";
        check(&[b"..%2fa"], Err(encoded));
        let unsupported = "tenant id contains an unsupported character";
        check(&[b"\xff"], Err(unsupported));
    }
}
