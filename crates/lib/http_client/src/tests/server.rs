//! Test servers on the loopback, optionally with TLS, that respond to each request head with a
//! text.

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// CA certificate for server and client certificates; valid until 2120.
pub const CA: &str = include_str!("tls/ca.pem");
/// Certificate of the test client.
pub const CLIENT: &str = include_str!("tls/client.pem");
/// Private key of the test client.
pub const CLIENT_KEY: &str = include_str!("tls/client.key");
/// Certificate for `metrics.internal`.
const SERVER: &str = include_str!("tls/server.pem");
const SERVER_KEY: &str = include_str!("tls/server.key");

/// Whether a server uses TLS and requires client certificates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tls {
    None,
    Server,
    Mutual,
}

/// A server with the recorded heads of its requests.
#[derive(Clone)]
pub struct Server {
    /// Address of the server, `127.0.0.1:port`.
    pub address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server that responds with `answer`, called with head and body of each request.
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

    /// Starts a server that uses HTTP/2 if the client supports it, otherwise HTTP/1. It responds
    /// with the version and records one head per connection.
    pub async fn start_http2() -> Self {
        let mut config = config(Tls::Server);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::listen(move |stream, heads| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    return serve(stream, &heads, |_| ok("HTTP/1.1")).await;
                }
                heads.lock().unwrap().push("HTTP/2".to_owned());
                let answer = service_fn(|request: hyper::Request<Incoming>| async move {
                    let version = format!("{:?}", request.version());
                    Ok::<_, Infallible>(hyper::Response::new(version))
                });
                let http2 = http2::Builder::new(TokioExecutor::new());
                // The connection ends with an error when the client disconnects, which is expected.
                let _ = http2.serve_connection(TokioIo::new(stream), answer).await;
            }
        })
        .await
    }

    /// Starts a server that requires client certificates and offers `protocols`. It waits for a
    /// first byte after each handshake and then closes the connection.
    pub async fn start_strict(protocols: &[&[u8]]) -> Self {
        let mut config = config(Tls::Mutual);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::listen(move |stream, _| {
            let acceptor = acceptor.clone();
            async move {
                // Clients without a certificate are rejected here.
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let _ = stream.read_u8().await;
                }
            }
        })
        .await
    }

    /// Starts a SOCKS5 proxy for `user` with the password `pass`. It connects to the requested port
    /// on this machine for every name, and records the names as heads.
    pub async fn start_socks() -> Self {
        Self::listen(|stream, heads| async move {
            // Some tests disconnect on purpose.
            let _ = socks(stream, &heads).await;
        })
        .await
    }

    /// Starts a proxy that opens a tunnel for CONNECT and responds to other requests itself.
    pub async fn start_proxy(tls: Tls) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config(Tls::Server)));
        Self::listen(move |stream, heads| {
            let acceptor = acceptor.clone();
            async move {
                match tls {
                    Tls::None => proxy(stream, &heads).await,
                    _ => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            proxy(stream, &heads).await;
                        }
                    }
                }
            }
        })
        .await
    }

    /// Starts a server that responds to any number of requests per connection with `here` and keeps
    /// the connection open.
    pub async fn start_keeping() -> Self {
        Self::listen(|mut stream, heads| async move {
            while let Some(head) = read_head(&mut stream).await {
                heads.lock().unwrap().push(head);
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere";
                if stream.write_all(answer).await.is_err() {
                    break;
                }
            }
        })
        .await
    }

    /// Starts a server that calls `work` for each connection.
    async fn listen<F>(
        work: impl Fn(TcpStream, Arc<Mutex<Vec<String>>>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap().to_string(),
            heads: Arc::default(),
        };
        let heads = server.heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(work(stream, heads.clone()));
            }
        });
        server
    }

    /// Returns the heads of the requests received so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Builds a response with this body.
pub fn ok(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into()
}

async fn proxy<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, heads: &Mutex<Vec<String>>) {
    let Some(head) = read_head(&mut stream).await else {
        return;
    };
    heads.lock().unwrap().push(head.clone());
    let target = head.strip_prefix("CONNECT ");
    let Some(target) = target.and_then(|rest| rest.split(' ').next()) else {
        let _ = stream.write_all(&ok("by the proxy")).await;
        let _ = stream.shutdown().await;
        return;
    };
    // The name is ignored; the port belongs to a server of the test.
    let port = target.rsplit_once(':').unwrap().1;
    let address = format!("127.0.0.1:{port}");
    let mut onward = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
    let _ = copy_bidirectional(&mut stream, &mut onward).await;
}

async fn socks(mut stream: TcpStream, heads: &Mutex<Vec<String>>) -> std::io::Result<()> {
    const VERSION: u8 = 5;
    const BY_PASSWORD: u8 = 2;
    const DOMAIN: u8 = 3;
    async fn short(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::from(stream.read_u8().await?)];
        stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }
    assert_eq!(stream.read_u8().await?, VERSION);
    if !short(&mut stream).await?.contains(&BY_PASSWORD) {
        // None of the offered authentication methods is acceptable.
        return stream.write_all(&[VERSION, 0xff]).await;
    }
    stream.write_all(&[VERSION, BY_PASSWORD]).await?;
    assert_eq!(stream.read_u8().await?, 1);
    let (user, password) = (short(&mut stream).await?, short(&mut stream).await?);
    let is_known = user == b"user" && password == b"pass";
    stream.write_all(&[1, u8::from(!is_known)]).await?;
    if !is_known {
        return Ok(());
    }
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    assert_eq!(head, [VERSION, 1, 0, DOMAIN]);
    let name = String::from_utf8_lossy(&short(&mut stream).await?).into_owned();
    heads.lock().unwrap().push(name);
    let port = stream.read_u16().await?;
    let mut onward = TcpStream::connect(("127.0.0.1", port)).await?;
    stream
        .write_all(&[VERSION, 0, 0, 1, 0, 0, 0, 0, 0, 0])
        .await?;
    copy_bidirectional(&mut stream, &mut onward).await.map(drop)
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

/// Reads the head of a request, and the part of its body that arrives with it.
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

/// Starts a server that, after a request has arrived, sends bytes that depend on the index of the
/// connection, and then closes the connection or keeps it open. Returns its address.
pub async fn raw(answer: impl Fn(usize) -> (Vec<u8>, bool) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut held = Vec::new();
        for number in 0.. {
            let Ok((mut stream, _)) = listener.accept().await else {
                return;
            };
            if read_head(&mut stream).await.is_none() {
                continue;
            }
            let (bytes, closes) = answer(number);
            // A client that has received enough closes the connection.
            let _ = stream.write_all(&bytes).await;
            if closes {
                let _ = stream.shutdown().await;
            }
            held.push(stream);
        }
    });
    address
}

/// Starts a server whose connections respond to as many requests as their scripts have entries, and
/// then end.
pub async fn scripted(scripts: Vec<Vec<&'static [u8]>>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server {
        address: listener.local_addr().unwrap().to_string(),
        heads: Arc::default(),
    };
    let heads = server.heads.clone();
    tokio::spawn(async move {
        for script in scripts {
            let (mut stream, _) = listener.accept().await.unwrap();
            let heads = heads.clone();
            tokio::spawn(async move {
                for answer in script {
                    let Some(head) = read_head(&mut stream).await else {
                        return;
                    };
                    heads.lock().unwrap().push(head);
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    server
}

/// Starts a server that ends TLS without `close_notify` after these bytes, and omits the last bytes
/// of its last record. Returns its address.
pub async fn unclosed(answer: &'static [u8], cut_bytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config(Tls::Server)));
        let mut stream = acceptor.accept(socket).await.unwrap();
        read_head(&mut stream).await.unwrap();
        let (socket, tls) = stream.get_mut();
        std::io::Write::write_all(&mut tls.writer(), answer).unwrap();
        let mut records = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut records).unwrap();
        }
        records.truncate(records.len() - cut_bytes);
        socket.write_all(&records).await.unwrap();
        // The connection is dropped without ending TLS.
    });
    address
}

/// Starts a proxy that responds to a CONNECT request with `answer`. The receiver gets whether a TLS
/// handshake follows.
pub async fn tunnel(answer: Vec<u8>) -> (String, tokio::sync::oneshot::Receiver<bool>) {
    const HANDSHAKE: u8 = 22;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (begins, has_begun) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await.unwrap();
        stream.write_all(&answer).await.unwrap();
        if !answer.ends_with(b"\n\r\n") && !answer.ends_with(b"\n\n") {
            stream.shutdown().await.unwrap();
        }
        let _ = begins.send(stream.read_u8().await.ok() == Some(HANDSHAKE));
    });
    (address, has_begun)
}

/// Starts a server that responds after the first bytes of a request, stops reading and keeps the
/// connection open. Returns its address.
pub async fn hasty(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
        stream.write_all(answer).await.unwrap();
        std::future::pending::<()>().await;
    });
    address
}
