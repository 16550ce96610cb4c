//! Signatures of requests to S3 (AWS Signature Version 4), which a proxy replaces: for the time of
//! its own clock, and for requests without a header that was signed.

use super::http_message::HttpMessage;
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};
use time::OffsetDateTime;

/// The headers that a new signature replaces.
const REPLACED: [&str; 2] = ["authorization", "x-amz-date"];

/// Signs a request again with the time of now and without the header `dropped`, if any.
pub fn sign_again(request: &mut HttpMessage, secret_key: &str, dropped: Option<&str>) {
    let Some(authorization) = request.header("authorization") else {
        return;
    };
    let field = |name: &str| {
        let (_, rest) = authorization.split_once(name).unwrap_or_default();
        rest.split([',', ' ']).next().unwrap_or_default().to_owned()
    };
    let (credential, signed) = (field("Credential="), field("SignedHeaders="));
    let names: Vec<&str> = signed.split(';').filter(|n| Some(*n) != dropped).collect();
    let names = names.join(";");
    let scope: Vec<&str> = credential.split('/').collect();
    let [access_key, _, region, service, _] = scope[..] else {
        return;
    };
    let now = now_text();
    let day = &now[..8];
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let canonical = canonical_request(request, &names, &now);
    let hash = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{hash}");
    let parts = [day, region, service, "aws4_request", &text];
    let first = format!("AWS4{secret_key}").into_bytes();
    let signature = parts.into_iter().fold(first, |key, part| {
        let key = Key::new(HMAC_SHA256, &key);
        sign(&key, part.as_bytes()).as_ref().to_vec()
    });
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={}",
        hex(&signature)
    );
    let is_kept = |name: &str| !REPLACED.contains(&name) && Some(name) != dropped;
    let added = [("authorization", &*authorization), ("x-amz-date", &now)];
    request.replace_headers(is_kept, &added);
}

fn canonical_request(request: &HttpMessage, names: &str, now: &str) -> String {
    let target = request.target();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            format!("{name}={value}")
        })
        .collect();
    pairs.sort();
    let headers = names.split(';').map(|name| {
        let value = request.header(name).unwrap_or_default();
        let value = if name == "x-amz-date" { now } else { value };
        format!("{name}:{value}\n")
    });
    let (headers, query) = (headers.collect::<String>(), pairs.join("&"));
    let hash = request.header("x-amz-content-sha256").unwrap_or_default();
    let method = request.method();
    format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{hash}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the time in the form `20260102T030405Z`.
fn now_text() -> String {
    let now = OffsetDateTime::now_utc();
    let (year, month, day) = (now.year(), u8::from(now.month()), now.day());
    let (hour, minute, second) = now.to_hms();
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}
