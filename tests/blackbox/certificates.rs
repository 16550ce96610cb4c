//! Self-signed certificates with CA:TRUE, as `openssl req -x509` makes them: Firn scrapes, notifies
//! and sends samples to servers that show one, and accepts clients that show one.

use crate::harness::server::{DEADLINE, Server, wait_for};
use crate::now_ms;
use crate::raw::Ask;
use crate::tls::{self, Authority, Pair};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SanType};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;

/// A certificate that is its own authority, for this machine.
fn tutorial() -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let address = SanType::IpAddress([127, 0, 0, 1].into());
    params.subject_alt_names.push(address);
    Pair {
        cert: params.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

/// Answers every request with one series; returns its address and the first lines of requests.
fn secure_server(pair: &Pair) -> (String, Receiver<String>) {
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![pair.der()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, lines) = channel();
    spawn(move || {
        for stream in listener.incoming().flatten() {
            let (sender, config) = (sender.clone(), config.clone());
            spawn(move || serve(stream, config, &sender));
        }
    });
    (address, lines)
}

/// Answers the one request of a connection.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, sender: &Sender<String>) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    reader.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
    let body = "scraped 1\n";
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let stream = reader.get_mut();
    stream.write_all(answer.as_bytes()).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()?;
    sender.send(head.lines().next()?.to_owned()).ok()
}

/// Starts a server that scrapes, notifies and sends to `address` with this `tls_config`.
fn start(dir: &Path, address: &str, tls_config: &str) -> Server {
    let rules = "groups:\n- name: g\n  interval: 200ms\n  rules:\n  \
                 - {alert: Always, expr: vector(1)}\n  - {record: made, expr: vector(1)}\n";
    std::fs::write(dir.join("rules.yml"), rules).unwrap();
    let config = format!(
        "rule_files: [rules.yml]
scrape_configs:
- job_name: secure
  scheme: https
  scrape_interval: 200ms
  scrape_timeout: 200ms
  tls_config: {tls_config}
  static_configs: [{{targets: ['{address}']}}]
alerting:
  alertmanagers:
  - scheme: https
    tls_config: {tls_config}
    static_configs: [{{targets: ['{address}']}}]
remote_write:
- url: 'https://{address}/api/v1/write'
  tls_config: {tls_config}
"
    );
    let file = dir.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    Server::start(&dir.join("data"), &["--config", file.to_str().unwrap()])
}

#[test]
fn server_with_a_self_signed_authority_is_scraped_notified_and_sent_to() {
    let dir = tempfile::tempdir().unwrap();
    let pair = tutorial();
    pair.write(dir.path(), "tutorial");
    let (address, lines) = secure_server(&pair);
    let server = start(dir.path(), &address, "{ca_file: tutorial.crt}");
    let mut wanted = vec!["GET /metrics", "POST /api/v2/alerts", "POST /api/v1/write"];
    while !wanted.is_empty() {
        let line = lines.recv_timeout(DEADLINE).expect("requests of each kind");
        wanted.retain(|start| !line.starts_with(start));
    }
    wait_for("the target to be up", || {
        let rows = server.http().query("up{job=\"secure\"} == 1", now_ms());
        rows.as_array().is_some_and(|rows| rows.len() == 1)
    });
}

#[test]
fn server_with_an_unknown_certificate_is_down_with_gos_words() {
    let dir = tempfile::tempdir().unwrap();
    tutorial().write(dir.path(), "other");
    let (address, _lines) = secure_server(&tutorial());
    let server = start(dir.path(), &address, "{ca_file: other.crt}");
    let expected =
        "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    wait_for("the target to be down", || {
        let targets = server.http().get("/api/v1/targets").json();
        let error = &targets["data"]["activeTargets"][0]["lastError"];
        error.as_str().is_some_and(|error| error.contains(expected))
    });
}

#[test]
fn client_with_a_self_signed_authority_is_accepted() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let (known, stranger) = (tutorial(), tutorial());
    authority.server().write(dir.path(), "server");
    known.write(dir.path(), "client");
    let get = |server: &Server, own: Option<&Pair>| {
        let client = authority.client(own, &[]);
        let reply = tls::send(&client, &server.address, &Ask::get("/-/healthy"));
        reply.is_ok_and(|reply| reply.status == 200)
    };
    for (policy, without, with_stranger) in [
        ("RequestClientCert", true, true),
        ("RequireAnyClientCert", false, true),
        ("VerifyClientCertIfGiven", true, false),
        ("RequireAndVerifyClientCert", false, false),
    ] {
        let web = format!(
            "tls_server_config: {{cert_file: server.crt, key_file: server.key, \
             client_ca_file: client.crt, client_auth_type: {policy}}}\n"
        );
        let file = dir.path().join("web.yml");
        std::fs::write(&file, web).unwrap();
        let flags = ["--web.config.file", file.to_str().unwrap()];
        let server = Server::start_unready(&dir.path().join(policy), &flags);
        server.wait_log(" msg=ready");
        assert!(get(&server, Some(&known)), "{policy}");
        assert_eq!(get(&server, None), without, "{policy}");
        assert_eq!(get(&server, Some(&stranger)), with_stranger, "{policy}");
    }
}
