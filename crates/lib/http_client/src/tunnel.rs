//! Tunnels through HTTP proxies: the CONNECT request and its response.
//!
//! As in Go, the first response head decides: status 200 opens the tunnel, and any other status is
//! an error with the proxy's reason. The server behind the proxy never sends first, so bytes after
//! the head belong to the proxy's response and are dropped.

use super::USER_AGENT;
use super::proxy::Proxy;
use super::response_head::{HEAD_BYTES_MAX, ResponseHead, find_head_length};
use super::route::BoxError;
use bytes::BytesMut;
use hyper::header::{HOST, HeaderMap, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT as AGENT};
use hyper::{StatusCode, Uri};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Sends a CONNECT request to the proxy at the other end of `stream`, so that it connects to `uri`
/// and forwards all further bytes.
pub(super) async fn open_tunnel<S>(
    stream: &mut S,
    mut headers: HeaderMap,
    proxy: &Proxy,
    uri: &Uri,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let host = uri.host().unwrap_or_default();
    let target = format!("{host}:{}", uri.port_u16().unwrap_or(443));
    headers.remove(HOST);
    if let Some(authorization) = proxy.authorization() {
        headers.insert(PROXY_AUTHORIZATION, authorization);
    }
    headers
        .entry(AGENT)
        .or_insert(HeaderValue::from_static(USER_AGENT));
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n").into_bytes();
    for (name, value) in &headers {
        let line = [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"];
        head.extend_from_slice(&line.concat());
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await?;
    stream.flush().await?;
    let head = read_head(stream).await?;
    match head.status {
        StatusCode::OK => Ok(()),
        status if head.reason.is_empty() => Err(format!("proxy {}: {status}", proxy.uri).into()),
        _ => Err(head.reason.into()),
    }
}

async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Result<ResponseHead, String> {
    let (mut received, mut scanned) = (BytesMut::new(), 0);
    loop {
        if let Some(length) = find_head_length(&received, &mut scanned) {
            return ResponseHead::parse(&received[..length]);
        }
        if received.len() > HEAD_BYTES_MAX {
            return Err(format!("response head exceeded {HEAD_BYTES_MAX} bytes"));
        }
        let count = stream.read_buf(&mut received).await;
        if count.map_err(|e| e.to_string())? == 0 {
            return Err("unexpected EOF".into());
        }
    }
}
