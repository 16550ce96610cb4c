//! Connections: security, other clusters, servers that are gone or start again.

use super::world::{
    PARTITIONS, Query, TIMEOUT, TestServer, TestService, client, client_runtime, client_with,
    open_store, options, runtime, scope,
};
use crate::{PeerClient, PeerFailure, PeerOptions, PeerSecret, PeerTls, serve_peers};
use bytes::Bytes;
use firn_model::budget::Budget;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

fn service() -> Arc<TestService> {
    TestService::of_store(&open_store(1))
}

fn exchange(client: &PeerClient) -> Result<Bytes, PeerFailure> {
    client_runtime().block_on(client.exchange(Bytes::from_static(b"state"), TIMEOUT))
}

fn check_works(client: &PeerClient) {
    assert_eq!(exchange(client), Ok(Bytes::from_static(b"exchanged state")));
    let query = Query::default();
    let selection = client
        .select(&scope(), query.request())
        .expect("a selection");
    assert!(selection.is_empty());
}

#[test]
fn peers_exchange_bytes_and_failures() {
    let service = service();
    let server = TestServer::start(service.clone());
    let client = client(&server);
    assert_eq!(client.address(), server.address);
    check_works(&client);
    let failure = PeerFailure::Unavailable("busy".into());
    *service.failure.lock().unwrap() = Some(failure.clone());
    assert_eq!(exchange(&client), Err(failure.clone()));
    let query = Query::default();
    let selected = client.select(&scope(), query.request());
    assert_eq!(selected.err(), Some(failure));
}

#[test]
fn other_nodes_are_rejected() {
    let server = TestServer::start(service());
    let is_rejected = |options: PeerOptions, part: &str| {
        let client = client_with(&server, &options);
        let query = Query::default();
        let selected = client.select(&scope(), query.request()).err();
        for failure in [exchange(&client).err(), selected] {
            match failure {
                Some(PeerFailure::Rejected(text)) => {
                    let is_secret = text.contains("swordfish") || text.contains("mackerel");
                    assert!(text.contains(part) && !is_secret, "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let mut other = options();
    other.security.secret = Some(PeerSecret::new(b"mackerel"));
    is_rejected(other, "another secret");
    is_rejected(PeerOptions::new(0x1234, PARTITIONS), "another secret");
    let cluster = PeerOptions {
        cluster: 7,
        ..options()
    };
    is_rejected(
        cluster,
        "peer is of cluster 00000000000000000000000000000007",
    );
    let partitions = PeerOptions {
        partitions: 5,
        ..options()
    };
    is_rejected(partitions, "peer has 5 partitions, this node has 4");
}

#[test]
fn server_without_security_listens_on_loopback_addresses_only() {
    let open = PeerOptions::new(1, PARTITIONS);
    let server = TestServer::start_at("127.0.0.1:0", &open, service());
    check_works(&client_with(&server, &open));
    let runtime = runtime();
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await?;
        let budget = Budget::new("peers", 1 << 20);
        serve_peers(listener, open, budget, service(), std::future::pending()).await
    });
    let error = served.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(
        error.to_string().contains("not a loopback address"),
        "{error}"
    );
}

#[test]
fn requests_to_a_dead_server_are_unavailable_until_it_starts_again() {
    let mut server = TestServer::start(service());
    let client = client(&server);
    check_works(&client);
    for is_killed in [true, false] {
        if is_killed {
            server.kill();
        } else {
            server.stop();
        }
        // A request on a connection that ends is unavailable; later ones cannot connect.
        let mut is_refused = false;
        for _ in 0..4 {
            let query = Query::default();
            let selected = client.select(&scope(), query.request()).err();
            for failure in [exchange(&client).err(), selected] {
                is_refused = matches!(failure, Some(PeerFailure::Refused(_)));
                match failure {
                    Some(PeerFailure::Unavailable(text) | PeerFailure::Refused(text)) => {
                        assert!(text.contains(client.address()), "{text}");
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(is_refused, "no process listens");
        server = TestServer::start_at(client.address(), &options(), service());
        // Both connections are made again by the next request.
        check_works(&client);
        check_works(&client);
    }
}

#[test]
fn request_to_a_silent_server_ends_after_its_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket").to_string();
    let client = PeerClient::new(&address, &options(), client_runtime()).expect("an address");
    let short = Duration::from_millis(50);
    let exchanged = client_runtime().block_on(client.exchange(Bytes::new(), short));
    let text = format!("peer {address} did not answer within 50ms");
    assert_eq!(exchanged, Err(PeerFailure::Unavailable(text)));
}

#[test]
fn invalid_address_is_rejected() {
    for (address, part) in [("a b:1", "invalid"), ("localhost", "not a host and a port")] {
        match PeerClient::new(address, &options(), client_runtime()) {
            Err(PeerFailure::Rejected(text)) => {
                assert!(text.contains(part) && text.contains(address), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The files of a node in a folder of their own.
struct TestCertificate(TempDir);

impl TestCertificate {
    /// Creates the files of a node whose certificate is signed by the authority.
    fn create(authority: &TestAuthority) -> Self {
        let certificate = Self(tempfile::tempdir().expect("a folder"));
        certificate.renew(authority);
        certificate
    }

    /// Replaces the files by those of another certificate.
    fn renew(&self, authority: &TestAuthority) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("valid names");
        let cert = params.signed_by(&key, authority).expect("a certificate");
        self.write("cert.pem", &cert.pem());
        self.write("key.pem", &key.serialize_pem());
        self.write("ca.pem", &authority.pem());
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.path().join(file), text).expect("a file");
    }

    fn options(&self) -> PeerOptions {
        let file = |name| self.0.path().join(name);
        let mut options = PeerOptions::new(1, PARTITIONS);
        options.security.tls = Some(PeerTls {
            cert_file: file("cert.pem"),
            key_file: file("key.pem"),
            ca_file: file("ca.pem"),
        });
        options
    }
}

type TestAuthority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> TestAuthority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// Returns whether the server rejects the client for its certificate. The connection may end before
/// the alert of the server arrives.
fn is_rejected(server: &TestServer, options: &PeerOptions) -> bool {
    let client = client_with(server, options);
    (0..100).any(|_| match exchange(&client) {
        Err(PeerFailure::Unavailable(_)) => false,
        Err(PeerFailure::Rejected(_)) => true,
        other => panic!("{other:?}"),
    })
}

#[test]
fn nodes_with_certificates_of_one_authority_are_peers() {
    let (authority, other) = (authority(), authority());
    let files = TestCertificate::create(&authority);
    let server = TestServer::start_at("127.0.0.1:0", &files.options(), service());
    let of_client = TestCertificate::create(&authority);
    check_works(&client_with(&server, &of_client.options()));
    match exchange(&client_with(&server, &PeerOptions::new(1, PARTITIONS))) {
        Err(PeerFailure::Unavailable(_)) => {}
        other => panic!("{other:?}"),
    }
    let foreign = TestCertificate::create(&other);
    assert!(is_rejected(&server, &foreign.options()));
    // A node that trusts the authority and has a certificate of another one.
    foreign.write("ca.pem", &authority.pem());
    assert!(is_rejected(&server, &foreign.options()));
    of_client.write("ca.pem", "nothing");
    let client = PeerClient::new(&server.address, &of_client.options(), client_runtime());
    match client {
        Err(PeerFailure::Rejected(text)) => assert!(text.contains("CA certificates"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn renewed_certificates_are_used_for_new_connections() {
    let (old, new) = (authority(), authority());
    let (files, of_client) = (TestCertificate::create(&old), TestCertificate::create(&old));
    let server = TestServer::start_at("127.0.0.1:0", &files.options(), service());
    let connected = client_with(&server, &of_client.options());
    check_works(&connected);
    files.renew(&new);
    // An open connection goes on; a new one needs a certificate of the new authority.
    check_works(&connected);
    assert!(is_rejected(&server, &of_client.options()));
    let renewing = client_with(&server, &of_client.options());
    of_client.renew(&new);
    check_works(&renewing);
    // While the files do not fit together, the previous ones are used.
    files.write("key.pem", "half a key");
    check_works(&client_with(&server, &of_client.options()));
}
