//! AWS Signature Version 4: an HMAC over a request that proves possession of the secret key and
//! protects the request against changes.

use super::credentials::AwsCredentials;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest::{SHA256, digest};
use ring::hmac;
use time::OffsetDateTime;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Region, service and time for which a signature is valid.
pub(in super::super) struct SigV4Scope<'s> {
    pub(in super::super) region: &'s str,
    pub(in super::super) service: &'s str,
    pub(in super::super) now_ms: i64,
}

/// Result of signing: the headers that must be added to a request to authenticate it.
pub(super) struct SigV4Headers {
    /// Value of the `Authorization` header.
    pub(super) authorization: String,
    /// Further headers to add; they are covered by the signature.
    pub(super) added: Vec<(&'static str, String)>,
}

/// Parts of a request, except its headers, that a signature covers.
pub(super) struct Request<'r> {
    pub(super) method: &'r str,
    /// Path exactly as in the URL, percent-encoded.
    pub(super) path: &'r str,
    /// Query exactly as in the URL, without the question mark.
    pub(super) query: &'r str,
    pub(super) body: &'r [u8],
}

impl SigV4Headers {
    /// Signs a request with the given headers, which must include `host`. Header names must be
    /// lower case.
    pub(super) fn new(
        request: &Request<'_>,
        mut headers: Vec<(String, String)>,
        credentials: &AwsCredentials,
        scope: &SigV4Scope<'_>,
    ) -> Self {
        let time = format_time(scope.now_ms);
        let mut added = vec![("x-amz-date", time.clone())];
        if !credentials.session.is_empty() {
            added.push(("x-amz-security-token", credentials.session.clone()));
        }
        headers.extend(added.iter().map(|(n, v)| ((*n).to_owned(), v.clone())));
        headers.sort();
        let lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let request = format!(
            "{}\n{}\n{}\n{}\n{names}\n{}",
            request.method,
            encode_path(request.path),
            canonical_query(request.query),
            lines.concat(),
            encode_hex(digest(&SHA256, request.body).as_ref())
        );
        let date = time.get(..8).unwrap_or_default();
        let (region, service) = (scope.region, scope.service);
        let place = format!("{date}/{region}/{service}/aws4_request");
        let request = encode_hex(digest(&SHA256, request.as_bytes()).as_ref());
        let text = format!("{ALGORITHM}\n{time}\n{place}\n{request}");
        let mut key = format!("AWS4{}", credentials.secret_key).into_bytes();
        for part in [date, region, service, "aws4_request"] {
            key = compute_hmac(&key, part);
        }
        let (id, signature) = (
            &credentials.access_key,
            encode_hex(&compute_hmac(&key, &text)),
        );
        Self {
            authorization: format!(
                "{ALGORITHM} Credential={id}/{place}, SignedHeaders={names}, Signature={signature}"
            ),
            added,
        }
    }
}

/// Characters that are encoded in the signed path. Percent signs are encoded a second time, as the
/// specification requires.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

fn encode_path(path: &str) -> String {
    match path {
        "" => "/".to_owned(),
        path => utf8_percent_encode(path, PATH).to_string(),
    }
}

/// Returns the query parameters in canonical form: sorted, with an empty value where there is none.
fn canonical_query(query: &str) -> String {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let mut parts: Vec<String> = parts
        .map(|part| {
            if part.contains('=') {
                part.to_owned()
            } else {
                format!("{part}=")
            }
        })
        .collect();
    parts.sort();
    parts.join("&")
}

fn compute_hmac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats a time in the compact format of signatures, such as `20150830T123600Z`.
fn format_time(now_ms: i64) -> String {
    let seconds = now_ms.div_euclid(1000);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    format!(
        "{year:04}{:02}{day:02}T{hour:02}{minute:02}{second:02}Z",
        u8::from(month)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_that_of_the_example_in_the_documentation() {
        let credentials = AwsCredentials {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session: String::new(),
        };
        let scope = SigV4Scope {
            region: "us-east-1",
            service: "iam",
            now_ms: 1_440_938_160_000,
        };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = vec![
            header("host", "iam.amazonaws.com"),
            header(
                "content-type",
                "application/x-www-form-urlencoded; charset=utf-8",
            ),
        ];
        let request = Request {
            method: "GET",
            path: "/",
            query: "Version=2010-05-08&Action=ListUsers",
            body: b"",
        };
        let signed = SigV4Headers::new(&request, headers, &credentials, &scope);
        assert_eq!(
            signed.authorization,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
        assert_eq!(
            signed.added,
            [("x-amz-date", "20150830T123600Z".to_owned())]
        );
    }
}
