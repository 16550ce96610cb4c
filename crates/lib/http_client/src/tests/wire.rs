//! Tests of HTTP/1 on the wire: servers send the bytes in a table, and the results must equal those
//! of Go's client.

use super::server::{hasty, raw, scripted, tunnel, unclosed};
use super::*;

/// Expands a row of a table to the bytes that it describes.
fn expand(text: &str) -> Vec<u8> {
    let mut text = text.to_owned();
    while let Some((before, rest)) = text.split_once("<<") {
        let (repeated, after) = rest.split_once(">>").unwrap();
        let (count, part) = repeated.split_once(':').unwrap();
        let repeated = part.repeat(count.parse().unwrap());
        text = format!("{before}{repeated}{after}");
    }
    let (mut bytes, mut chars) = (Vec::new(), text.bytes());
    while let Some(byte) = chars.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match chars.next().unwrap() {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'x' => {
                let digits = [chars.next().unwrap(), chars.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap().to_owned();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            other => bytes.push(other),
        }
    }
    bytes
}

/// Returns status and body in the notation of the tables.
async fn verdict(client: &HttpClient, url: &str) -> (String, String) {
    let uri = url.parse().unwrap();
    let response = match client.get(&uri, &HeaderMap::new()).await {
        Ok(response) => response,
        Err(e) => return ("error".into(), e.message),
    };
    let status = response.status().as_u16();
    match read_body(response, BodyLimit::from_bytes_max(100_000)).await {
        Err(e) => ("error".into(), e.message),
        Ok(body) if body.bytes.len() > 60 => {
            let count = body.bytes.len();
            (format!("{status} {count} bytes"), String::new())
        }
        Ok(body) => {
            let text = String::from_utf8(body.bytes).unwrap();
            let text = text.replace('\n', "\\n").replace('\r', "\\r");
            (format!("{status} \"{text}\""), String::new())
        }
    }
}

#[tokio::test]
async fn responses_of_http1_are_read_as_go_reads_them() {
    let rows = include_str!("http1.tsv").lines();
    let mut wrong = Vec::new();
    for row in rows.filter(|row| !row.starts_with('#')) {
        let [name, after, bytes, want] = row.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let (bytes, closes) = (expand(bytes), after == "close");
        let address = raw(move |_| (bytes.clone(), closes)).await;
        let client = HttpClient::new(HttpSettings::default());
        let (got, message) = verdict(&client, &format!("http://{address}/")).await;
        if got != want {
            wrong.push(format!("{name}: {got} {message}, in Go {want}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const KEPT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nm 1\n";

/// Sends two requests, the second one with `method` and `headers`, to a server whose first
/// connection responds to the second request with `last` and ends. Returns whether that request
/// succeeded, and the number of received requests.
async fn reuse(method: &Method, headers: &HeaderMap, last: &'static [u8]) -> (bool, usize) {
    let server = scripted(vec![vec![KEPT, last], vec![KEPT]]).await;
    let client = HttpClient::new(HttpSettings::default());
    let url = format!("http://{}/", server.address);
    assert_eq!(ask(&client, &url).await.as_deref(), Ok("m 1\n"));
    let uri = url.parse().unwrap();
    let answer = match *method {
        Method::GET => client.get(&uri, headers).await,
        _ => client.post(&uri, headers, "body".into()).await,
    };
    let is_answered = match answer {
        Ok(response) => read_body(response, BodyLimit::from_bytes_max(1000))
            .await
            .is_ok(),
        Err(_) => false,
    };
    (is_answered, server.heads().len())
}

#[tokio::test]
async fn request_on_a_connection_that_ended_is_sent_again_where_go_does_so() {
    let none = HeaderMap::new;
    let idempotent = || {
        let name = HeaderName::from_static("idempotency-key");
        HeaderMap::from_iter([(name, HeaderValue::from_static("1"))])
    };
    for (method, headers, last, want) in [
        (Method::GET, none(), &b""[..], (true, 3)),
        (Method::POST, none(), b"", (false, 2)),
        (Method::POST, idempotent(), b"", (true, 3)),
        // A part of the response has already arrived.
        (Method::GET, none(), b"HTTP/1.1 2", (false, 2)),
        (Method::GET, none(), b"HTTP/1.1 100 C\r\n\r\n", (false, 2)),
    ] {
        let got = reuse(&method, &headers, last).await;
        assert_eq!(got, want, "{method} {headers:?} {last:?}");
    }
}

#[tokio::test]
async fn request_on_a_fresh_connection_is_not_sent_again() {
    let server = scripted(vec![vec![b""], vec![KEPT]]).await;
    let client = HttpClient::new(HttpSettings::default());
    let message = ask(&client, &format!("http://{}/", server.address)).await;
    assert!(message.unwrap_err().ends_with(": EOF"));
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn response_may_come_before_the_whole_request_is_sent() {
    let refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno\n";
    let uri = format!("http://{}/", hasty(refusal).await);
    let client = HttpClient::new(HttpSettings::default());
    // Larger than the buffers of both sockets.
    let body = vec![b'x'; 64 << 20].into();
    let (uri, headers) = (uri.parse().unwrap(), HeaderMap::new());
    let response = client.post(&uri, &headers, body).await.unwrap();
    assert_eq!(response.status(), 413);
    let read = read_body(response, BodyLimit::from_bytes_max(100)).await;
    assert_eq!(read.unwrap().bytes, b"no\n");
}

#[tokio::test]
async fn connection_with_an_unasked_response_is_not_used_again() {
    let twice = [KEPT, KEPT].concat().leak();
    let server = scripted(vec![vec![twice, KEPT], vec![KEPT]]).await;
    let client = HttpClient::new(HttpSettings::default());
    let url = format!("http://{}/", server.address);
    for _ in 0..2 {
        assert_eq!(ask(&client, &url).await.as_deref(), Ok("m 1\n"));
    }
    // The bytes that arrived early were not used as the response of the second request.
    assert_eq!(server.heads().len(), 2);
}

#[tokio::test]
async fn tls_may_end_without_close_notify_between_records_only() {
    let until_end = b"HTTP/1.0 200 OK\r\n\r\nm 1\n";
    let truncated = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nm 1\n";
    for (answer, cut_bytes, want) in [
        (&until_end[..], 0, Ok("m 1\n")),
        (until_end, 1, Err("unexpected EOF inside a TLS record")),
        (truncated, 0, Err("unexpected EOF")),
        (KEPT, 0, Ok("m 1\n")),
    ] {
        let address = unclosed(answer, cut_bytes).await;
        let client = with_tls(ClientTlsSettings {
            insecure_skip_verify: true,
            ..ClientTlsSettings::default()
        });
        let got = ask(&client, &format!("https://{address}/")).await;
        match want {
            Ok(body) => assert_eq!(got.as_deref(), Ok(body)),
            Err(words) => assert!(got.unwrap_err().ends_with(words)),
        }
    }
}

#[tokio::test]
async fn tunnels_are_opened_as_go_opens_them() {
    for row in include_str!("tunnels.tsv").lines() {
        let Some((name, rest)) = row.split_once('\t').filter(|_| !row.starts_with('#')) else {
            continue;
        };
        let (bytes, want) = rest.split_once('\t').unwrap();
        let (address, has_begun) = tunnel(expand(bytes)).await;
        let client = HttpClient::new(HttpSettings {
            proxy: ProxySettings {
                url: Some(format!("http://u:p@{address}")),
                ..ProxySettings::default()
            },
            ..HttpSettings::default()
        });
        let answer = ask(&client, "https://far.internal/").await;
        assert!(answer.is_err(), "{name}: {answer:?}");
        assert_eq!(
            has_begun.await.unwrap(),
            want == "tunnel",
            "{name}: {answer:?}"
        );
        if name == "407" {
            let message = answer.unwrap_err();
            assert!(
                message.ends_with(": Proxy Authentication Required"),
                "{message}"
            );
        }
    }
}

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Checks the results of Go's `compress/gzip` for a `Content-Encoding` of exactly `gzip`.
#[tokio::test]
async fn packed_bodies_are_whole_or_errors() {
    let one = packed("m 1\n");
    let flipped = |from_end: usize| {
        let mut bytes = one.clone();
        let at = bytes.len() - from_end;
        bytes[at] ^= 1;
        bytes
    };
    let followed = |by: &[u8]| [&one, by].concat();
    for (name, encoding, body, want) in [
        ("one member", "gzip", one.clone(), "200 \"m 1\\n\""),
        (
            "two members",
            "gzip",
            followed(&packed("n 2\n")),
            "200 \"m 1\\nn 2\\n\"",
        ),
        ("checksum", "gzip", flipped(8), "error"),
        ("length", "gzip", flipped(1), "error"),
        ("garbage behind", "gzip", followed(b"x"), "error"),
        (
            "much garbage behind",
            "gzip",
            followed(&[b'x'; 20]),
            "error",
        ),
        ("zeros behind", "gzip", followed(&[0; 20]), "error"),
        ("few zeros behind", "gzip", followed(&[0; 2]), "error"),
        ("empty", "gzip", Vec::new(), "error"),
        ("cut", "gzip", one[..one.len() - 3].to_vec(), "error"),
        ("head alone", "gzip", one[..10].to_vec(), "error"),
        ("half of the head", "gzip", one[..4].to_vec(), "error"),
        ("not packed", "gzip", b"m 1\n".to_vec(), "error"),
        ("identity", "identity", b"m 1\n".to_vec(), "200 \"m 1\\n\""),
        ("unknown", "br", b"m 1\n".to_vec(), "200 \"m 1\\n\""),
        ("upper case", "GZIP", b"m 1\n".to_vec(), "200 \"m 1\\n\""),
    ] {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n"
        );
        let answer = [head.into_bytes(), body].concat();
        let address = raw(move |_| (answer.clone(), false)).await;
        let client = HttpClient::new(HttpSettings::default());
        let (got, message) = verdict(&client, &format!("http://{address}/")).await;
        assert_eq!(got, want, "{name}: {message}");
    }
}

#[tokio::test]
async fn header_lines_are_limited() {
    for (count, want) in [(19_999, "200 \"m 1\\n\""), (20_000, "error")] {
        let lines = "X: y\r\n".repeat(count);
        let answer = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 4\r\n\r\nm 1\n");
        let address = raw(move |_| (answer.clone().into_bytes(), false)).await;
        let client = HttpClient::new(HttpSettings::default());
        let (got, message) = verdict(&client, &format!("http://{address}/")).await;
        assert_eq!(got, want, "{count}: {message}");
        let words = "response has too many header lines: more than 20000, limit 20000";
        assert_eq!(message.ends_with(words), want == "error", "{message}");
    }
}

#[tokio::test]
async fn hosts_are_ascii() {
    let location =
        "HTTP/1.1 302 Found\r\nLocation: http://b\u{fc}cher.example/\r\nContent-Length: 0\r\n\r\n";
    let address = raw(move |_| (location.as_bytes().to_vec(), false)).await;
    let message = ask(
        &HttpClient::new(HttpSettings::default()),
        &format!("http://{address}/"),
    )
    .await;
    let message = message.unwrap_err();
    assert!(
        message.contains("failed to parse Location header"),
        "{message}"
    );
    assert!("http://b\u{fc}cher.example/".parse::<Uri>().is_err());
}
