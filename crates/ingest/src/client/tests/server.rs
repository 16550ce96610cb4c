//! Servers on the loopback, with TLS if need be, that answer a request's head with a text.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Who signed the certificates of server and client; valid until 2120.
pub const CA: &str = include_str!("tls/ca.pem");
/// A client's certificate.
pub const CLIENT: &str = include_str!("tls/client.pem");
/// A client's key.
pub const CLIENT_KEY: &str = include_str!("tls/client.key");
/// The certificate of `metrics.internal`.
const SERVER: &str = include_str!("tls/server.pem");
const SERVER_KEY: &str = include_str!("tls/server.key");

/// What a server asks of clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tls {
    None,
    Server,
    Mutual,
}

/// A server, and the heads of the requests that it got.
#[derive(Clone)]
pub struct Server {
    /// `127.0.0.1:port`
    pub address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers each request by `answer`, which gets its head and body.
    pub async fn start(tls: Tls, answer: fn(&str) -> Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap().to_string(),
            heads: Arc::default(),
        };
        let heads = server.heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let heads = heads.clone();
                tokio::spawn(async move {
                    match tls {
                        Tls::None => serve(stream, &heads, answer).await,
                        tls => {
                            let acceptor = TlsAcceptor::from(Arc::new(config(tls)));
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, &heads, answer).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    /// A proxy that tunnels whatever it is asked to connect to, and answers other requests itself.
    pub async fn start_proxy() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap().to_string(),
            heads: Arc::default(),
        };
        let heads = server.heads.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let heads = heads.clone();
                tokio::spawn(async move {
                    let Some(head) = read_head(&mut stream).await else {
                        return;
                    };
                    heads.lock().unwrap().push(head.clone());
                    let target = head.strip_prefix("CONNECT ");
                    let Some(target) = target.and_then(|rest| rest.split(' ').next()) else {
                        let _ = stream.write_all(&ok("by the proxy")).await;
                        return;
                    };
                    // Whatever name was asked for, the port is one of the test's.
                    let port = target.rsplit_once(':').unwrap().1;
                    let address = format!("127.0.0.1:{port}");
                    let mut onward = TcpStream::connect(address).await.unwrap();
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                    let _ = copy_bidirectional(&mut stream, &mut onward).await;
                });
            }
        });
        server
    }

    /// The requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// An answer with this body.
pub fn ok(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into()
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    heads: &Mutex<Vec<String>>,
    answer: fn(&str) -> Vec<u8>,
) {
    if let Some(head) = read_head(&mut stream).await {
        heads.lock().unwrap().push(head.clone());
        let _ = stream.write_all(&answer(&head)).await;
        let _ = stream.shutdown().await;
    }
}

/// The head of a request, and what of its body came with it.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let lower = line.to_lowercase();
            lower.strip_prefix("content-length: ")?.parse().ok()
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(text);
        }
    }
}

fn config(tls: Tls) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match tls {
        Tls::Mutual => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(CA));
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
        _ => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::from_pem_slice(SERVER_KEY.as_bytes()).unwrap();
    builder.with_single_cert(certificates(SERVER), key).unwrap()
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap()
}
