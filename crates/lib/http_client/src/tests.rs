//! Tests of the client against servers on the loopback.

mod server;
mod wire;

use super::auth::RequestAuthorizer;
use super::*;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustls::pki_types::pem::PemObject;
use server::{CA, CLIENT, CLIENT_KEY, Server, Tls, ok};
use std::io::Write;

/// Sends a GET request to `url` and returns the body or the error text.
async fn ask(client: &HttpClient, url: &str) -> Result<String, String> {
    let uri = url.parse().unwrap();
    let answer = client.get(&uri, &HeaderMap::new()).await;
    let response = answer.map_err(|e| e.message)?;
    let body = read_body(response, BodyLimit::from_bytes_max(100_000)).await;
    let body = body.map_err(|e| e.message)?;
    Ok(String::from_utf8(body.bytes).unwrap())
}

fn inline(text: &str) -> Option<Secret> {
    Some(Secret::Inline(text.to_owned()))
}

fn with_tls(tls: ClientTlsSettings) -> HttpClient {
    HttpClient::new(HttpSettings {
        tls,
        ..HttpSettings::default()
    })
}

#[tokio::test]
async fn tls_server_must_prove_its_name_to_a_trusted_authority() {
    let server = Server::start(Tls::Server, |_| ok("secure")).await;
    let url = format!("https://{}/metrics", server.address);
    let named = |ca: Option<Secret>, name: &str| ClientTlsSettings {
        ca,
        server_name: name.to_owned(),
        ..ClientTlsSettings::default()
    };
    let unverified = ClientTlsSettings {
        insecure_skip_verify: true,
        ..ClientTlsSettings::default()
    };
    let old = ClientTlsSettings {
        max_version: Some(ClientTlsVersion::V12),
        ..named(inline(CA), "metrics.internal")
    };
    for (tls, want) in [
        (named(inline(CA), "metrics.internal"), Ok("secure")),
        (old, Ok("secure")),
        (unverified, Ok("secure")),
        (
            named(None, "metrics.internal"),
            Err("x509: certificate signed by unknown authority"),
        ),
        (
            named(inline(CA), "other.internal"),
            Err("x509: certificate is valid for metrics.internal, not other.internal"),
        ),
        (
            named(inline(CA), ""),
            Err(
                "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
            ),
        ),
        (
            named(inline(CA), "no host"),
            Err("tls_config.server_name \"no host\""),
        ),
        (
            named(inline("nonsense"), ""),
            Err("unable to use specified CA cert"),
        ),
    ] {
        let got = ask(&with_tls(tls.clone()), &url).await;
        match want {
            Ok(body) => assert_eq!(got.as_deref(), Ok(body), "{tls:?}"),
            Err(words) => {
                let message = got.unwrap_err();
                assert!(message.contains(words), "{tls:?}: {message}");
            }
        }
    }
}

#[tokio::test]
async fn tls_client_proves_who_it_is() {
    let server = Server::start(Tls::Mutual, |_| ok("known")).await;
    let url = format!("https://{}/", server.address);
    let anonymous = ClientTlsSettings {
        ca: inline(CA),
        server_name: "metrics.internal".into(),
        ..ClientTlsSettings::default()
    };
    let known = ClientTlsSettings {
        cert: inline(CLIENT),
        key: inline(CLIENT_KEY),
        ..anonymous.clone()
    };
    assert_eq!(ask(&with_tls(known), &url).await.as_deref(), Ok("known"));
    assert!(ask(&with_tls(anonymous), &url).await.is_err());
}

#[tokio::test]
async fn alert_of_the_server_is_the_error() {
    let tls = ClientTlsSettings {
        ca: inline(CA),
        server_name: "metrics.internal".into(),
        ..ClientTlsSettings::default()
    };
    let tls12 = ClientTlsSettings {
        max_version: Some(ClientTlsVersion::V12),
        ..tls.clone()
    };
    for (tls, protocols, want) in [
        (&tls, &[][..], "certificate required"),
        (&tls, &[&b"http/1.1"[..]], "certificate required"),
        (&tls, &[b"h2"], "certificate required"),
        // TLS 1.2 reports it within the handshake.
        (&tls12, &[], "certificate required"),
        (&tls12, &[b"h2"], "certificate required"),
    ] {
        let server = Server::start_strict(protocols).await;
        let url = format!("https://{}/", server.address);
        let message = ask(&with_tls(tls.clone()), &url).await.unwrap_err();
        let want = format!("Get \"{url}\": remote error: tls: {want}");
        assert_eq!(message, want, "{protocols:?}");
    }
}

#[tokio::test]
async fn status_has_the_reason_of_the_server() {
    for (line, want) in [
        ("HTTP/1.1 500 Unable to connect", "500 Unable to connect"),
        (
            "HTTP/1.1 503 Service Unavailable",
            "503 Service Unavailable",
        ),
        ("HTTP/1.1 404", "404"),
        ("HTTP/1.1 599 Odd", "599 Odd"),
    ] {
        let answer = format!("{line}\r\nContent-Length: 0\r\n\r\n").into_bytes();
        let address = server::raw(move |_| (answer.clone(), true)).await;
        let uri = format!("http://{address}/").parse().unwrap();
        let client = HttpClient::new(HttpSettings::default());
        let response = client.get(&uri, &HeaderMap::new()).await.unwrap();
        assert_eq!(status_text(&response), want);
    }
}

#[tokio::test]
async fn proxy_that_cannot_be_reached_is_named_as_the_cause() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let client = HttpClient::new(HttpSettings {
        proxy: ProxySettings {
            url: Some(format!("http://{address}")),
            ..ProxySettings::default()
        },
        ..HttpSettings::default()
    });
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://metrics.internal/");
        let message = ask(&client, &url).await.unwrap_err();
        let want = format!("Get \"{url}\": proxyconnect tcp: ");
        assert!(message.starts_with(&want), "{message}");
    }
}

#[tokio::test]
async fn files_that_change_are_read_again() {
    let server = Server::start(Tls::Server, |_| ok("secure")).await;
    let url = format!("https://{}/", server.address);
    let dir = tempfile::tempdir().unwrap();
    let (ca, token) = (dir.path().join("ca.pem"), dir.path().join("token"));
    let client = HttpClient::new(HttpSettings {
        tls: ClientTlsSettings {
            ca: Some(Secret::File(ca.clone())),
            server_name: "metrics.internal".into(),
            ..ClientTlsSettings::default()
        },
        auth: AuthMethod::Credentials {
            scheme: "Bearer".into(),
            credentials: Some(Secret::File(token.clone())),
        },
        ..HttpSettings::default()
    });
    let message = ask(&client, &url).await.unwrap_err();
    assert!(
        message.starts_with("unable to read authorization credentials: "),
        "{message}"
    );
    std::fs::write(&token, "first\n").unwrap();
    std::fs::write(&ca, CLIENT).unwrap();
    assert!(ask(&client, &url).await.is_err());
    std::fs::write(&ca, CA).unwrap();
    assert_eq!(ask(&client, &url).await.as_deref(), Ok("secure"));
    std::fs::write(&token, " second ").unwrap();
    assert_eq!(ask(&client, &url).await.as_deref(), Ok("secure"));
    let heads = server.heads().join("\n");
    assert!(heads.contains("authorization: Bearer first\r\n"), "{heads}");
    assert!(
        heads.contains("authorization: Bearer second\r\n"),
        "{heads}"
    );
}

#[tokio::test]
async fn secrets_in_files_are_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, b" caf\xe9\r\n").unwrap();
    let secret = || Some(Secret::File(path.clone()));
    let basic = AuthMethod::Basic {
        username: inline("u"),
        password: secret(),
    };
    let bearer = AuthMethod::Credentials {
        scheme: "Bearer".into(),
        credentials: secret(),
    };
    for (auth, want) in [
        (basic, b"Basic dTpjYWbp".as_slice()),
        (bearer, b"Bearer caf\xe9"),
    ] {
        let header = RequestAuthorizer::new(&auth)
            .authorization_header()
            .await
            .unwrap()
            .unwrap();
        assert_eq!(header.as_bytes(), want, "{auth:?}");
    }
}

#[tokio::test]
async fn oauth2_token_is_bought_once_however_the_server_wants_the_secret() {
    let tokens = Server::start(Tls::None, |request| {
        if request.contains("client_secret=s%26t") {
            ok(r#"{"access_token": "t1", "token_type": "bearer", "expires_in": 3600}"#)
        } else {
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
        }
    })
    .await;
    let server = Server::start(Tls::None, |_| ok("metrics")).await;
    let client = HttpClient::new(HttpSettings {
        auth: AuthMethod::OAuth2(Box::new(OAuth2Settings {
            client_id: "me".into(),
            client_secret: inline("s&t"),
            assertion: None,
            scopes: vec!["a".into(), "b".into()],
            token_url: format!("http://{}/token", tokens.address),
            endpoint_params: [("audience".to_owned(), "x".to_owned())].into(),
            tls: ClientTlsSettings::default(),
            proxy: ProxySettings::default(),
        })),
        ..HttpSettings::default()
    });
    let url = format!("http://{}/", server.address);
    for _ in 0..2 {
        assert_eq!(ask(&client, &url).await.as_deref(), Ok("metrics"));
    }
    let asked = tokens.heads();
    assert_eq!(asked.len(), 2, "{asked:?}");
    // base64 of `me:s%26t`
    assert!(
        asked[0].contains("authorization: Basic bWU6cyUyNnQ=\r\n"),
        "{asked:?}"
    );
    assert!(
        asked[1].ends_with(
            "grant_type=client_credentials&scope=a+b&audience=x&client_id=me&client_secret=s%26t"
        ),
        "{asked:?}"
    );
    let got = server.heads();
    assert!(
        got.iter()
            .all(|h| h.contains("authorization: Bearer t1\r\n")),
        "{got:?}"
    );
}

/// Private key of a signing client, used only by this test.
const SIGNER: &str = include_str!("tests/tls/signer.pem");

#[tokio::test]
async fn oauth2_token_is_bought_with_a_signed_statement() {
    let tokens = Server::start(Tls::None, |_| ok(r#"{"access_token": "t1"}"#)).await;
    let server = Server::start(Tls::None, |_| ok("metrics")).await;
    let client = HttpClient::new(HttpSettings {
        auth: AuthMethod::OAuth2(Box::new(OAuth2Settings {
            client_id: "me".into(),
            client_secret: None,
            assertion: Some(AssertionSettings {
                key: inline(SIGNER),
                key_id: "k1".into(),
                algorithm: SigningAlgorithm::Rs256,
                issuer: String::new(),
                audience: "them".into(),
                claims: serde_json::json!({"tier": 2}),
            }),
            scopes: vec!["a".into()],
            token_url: format!("http://{}/token", tokens.address),
            endpoint_params: [("x".to_owned(), "y".to_owned())].into(),
            tls: ClientTlsSettings::default(),
            proxy: ProxySettings::default(),
        })),
        ..HttpSettings::default()
    });
    let url = format!("http://{}/", server.address);
    assert_eq!(ask(&client, &url).await.as_deref(), Ok("metrics"));
    let asked = tokens.heads().concat();
    let form = asked.split_once("\r\n\r\n").unwrap().1;
    let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&scope=a&x=y";
    let statement = form.strip_prefix(&format!("{grant}&assertion=")).unwrap();
    let parts: Vec<&str> = statement.split('.').collect();
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    let json = |text| serde_json::from_slice::<serde_json::Value>(&decode(text)).unwrap();
    let head = serde_json::json!({"alg": "RS256", "typ": "JWT", "kid": "k1"});
    assert_eq!(json(parts[0]), head);
    let claims = json(parts[1]);
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&"me".into(), &"me".into())
    );
    assert_eq!(
        (&claims["aud"], &claims["tier"]),
        (&"them".into(), &2.into())
    );
    let seconds = |name: &str| claims[name].as_i64().unwrap();
    assert_eq!(seconds("exp") - seconds("iat"), 600);
    let der = rustls::pki_types::PrivatePkcs8KeyDer::from_pem_slice(SIGNER.as_bytes()).unwrap();
    let pair = ring::signature::RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let key = ring::signature::UnparsedPublicKey::new(
        &ring::signature::RSA_PKCS1_2048_8192_SHA256,
        pair.public().as_ref(),
    );
    let text = format!("{}.{}", parts[0], parts[1]);
    key.verify(text.as_bytes(), &decode(parts[2])).unwrap();
}

#[tokio::test]
async fn proxy_is_used_but_for_what_needs_none() {
    let proxy = Server::start_proxy(Tls::None).await;
    let plain = Server::start(Tls::None, |_| ok("direct")).await;
    let secure = Server::start(Tls::Server, |_| ok("tunnelled")).await;
    let client = HttpClient::new(HttpSettings {
        tls: ClientTlsSettings {
            ca: inline(CA),
            ..ClientTlsSettings::default()
        },
        proxy: ProxySettings {
            url: Some(format!("http://user:pass@{}", proxy.address)),
            no_proxy: "127.0.0.1".into(),
            connect_headers: [("x-tag".to_owned(), vec!["t".to_owned()])].into(),
            ..ProxySettings::default()
        },
        ..HttpSettings::default()
    });
    let direct = format!("http://{}/", plain.address);
    assert_eq!(ask(&client, &direct).await.as_deref(), Ok("direct"));
    let far = ask(&client, "http://far.internal/metrics").await;
    assert_eq!(far.as_deref(), Ok("by the proxy"));
    let port = secure.address.rsplit_once(':').unwrap().1;
    let url = format!("https://metrics.internal:{port}/");
    assert_eq!(ask(&client, &url).await.as_deref(), Ok("tunnelled"));
    let heads = proxy.heads();
    let user = "proxy-authorization: Basic dXNlcjpwYXNz\r\n";
    assert!(
        heads[0].starts_with("GET http://far.internal/metrics HTTP/1.1\r\n"),
        "{heads:?}"
    );
    assert!(heads[0].contains(user), "{heads:?}");
    let connect = heads[1].to_lowercase();
    assert!(
        connect.starts_with("connect metrics.internal:"),
        "{heads:?}"
    );
    assert!(connect.contains(&user.to_lowercase()), "{heads:?}");
    assert!(connect.contains("x-tag: t\r\n"), "{heads:?}");
}

#[tokio::test]
async fn body_that_is_packed_is_bounded_as_it_unpacks() {
    fn packed(size: usize) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&vec![b'x'; size]).unwrap();
        let body = encoder.finish().unwrap();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    }
    let client = HttpClient::new(HttpSettings::default());
    let server = Server::start(Tls::None, |head| match head.split(' ').nth(1) {
        Some("/small") => packed(1000),
        Some("/bomb") => packed(2 << 20),
        _ => {
            let mut cut = packed(1000);
            cut.truncate(cut.len() - 10);
            cut
        }
    })
    .await;
    let url = |path: &str| format!("http://{}{path}", server.address);
    assert_eq!(ask(&client, &url("/small")).await.unwrap().len(), 1000);
    assert_eq!(ask(&client, &url("/bomb")).await.unwrap_err(), TOO_LARGE);
    assert!(ask(&client, &url("/cut")).await.is_err());
}

#[tokio::test]
async fn proxy_with_tls_is_reached_by_tls() {
    let proxy = Server::start_proxy(Tls::Server).await;
    let secure = Server::start(Tls::Server, |_| ok("tunnelled")).await;
    let through = |insecure_skip_verify| {
        HttpClient::new(HttpSettings {
            tls: ClientTlsSettings {
                ca: inline(CA),
                insecure_skip_verify,
                ..ClientTlsSettings::default()
            },
            proxy: ProxySettings {
                url: Some(format!("https://user:pass@{}", proxy.address)),
                ..ProxySettings::default()
            },
            ..HttpSettings::default()
        })
    };
    let client = through(true);
    let far = ask(&client, "http://far.internal/metrics").await;
    assert_eq!(far.as_deref(), Ok("by the proxy"));
    let port = secure.address.rsplit_once(':').unwrap().1;
    let url = format!("https://metrics.internal:{port}/");
    assert_eq!(ask(&client, &url).await.as_deref(), Ok("tunnelled"));
    let heads = proxy.heads();
    assert_eq!(heads.len(), 2, "{heads:?}");
    for head in heads {
        let head = head.to_lowercase();
        assert!(
            head.contains("proxy-authorization: basic dxnlcjpwyxnz\r\n"),
            "{head}"
        );
    }
    // The name in the request is not that in the server's certificate.
    let message = ask(&through(false), "http://far.internal/")
        .await
        .unwrap_err();
    assert!(
        message.contains("cannot validate certificate for 127.0.0.1"),
        "{message}"
    );
}

#[tokio::test]
async fn socks_proxy_connects_by_name_for_those_it_knows() {
    let proxy = Server::start_socks().await;
    let plain = Server::start(Tls::None, |_| ok("plain")).await;
    let secure = Server::start(Tls::Server, |_| ok("secure")).await;
    let through = |user: &str| {
        HttpClient::new(HttpSettings {
            tls: ClientTlsSettings {
                ca: inline(CA),
                ..ClientTlsSettings::default()
            },
            proxy: ProxySettings {
                url: Some(format!("socks5://{user}{}", proxy.address)),
                ..ProxySettings::default()
            },
            ..HttpSettings::default()
        })
    };
    let url = |scheme: &str, server: &Server| {
        let port = server.address.rsplit_once(':').unwrap().1;
        format!("{scheme}://metrics.internal:{port}/")
    };
    let known = through("user:pass@");
    assert_eq!(
        ask(&known, &url("http", &plain)).await.as_deref(),
        Ok("plain")
    );
    assert_eq!(
        ask(&known, &url("https", &secure)).await.as_deref(),
        Ok("secure")
    );
    assert_eq!(proxy.heads(), ["metrics.internal", "metrics.internal"]);
    for stranger in ["", "user:guess@"] {
        let answer = ask(&through(stranger), &url("http", &plain)).await;
        assert!(answer.is_err(), "{stranger:?}: {answer:?}");
    }
    assert_eq!(proxy.heads().len(), 2);
}

#[tokio::test]
async fn http2_is_spoken_where_both_can() {
    let server = Server::start_http2().await;
    let url = format!("https://{}/", server.address);
    let client = |enable_http2| {
        HttpClient::new(HttpSettings {
            tls: ClientTlsSettings {
                ca: inline(CA),
                server_name: "metrics.internal".into(),
                ..ClientTlsSettings::default()
            },
            enable_http2,
            ..HttpSettings::default()
        })
    };
    let both = client(true);
    for _ in 0..3 {
        assert_eq!(ask(&both, &url).await.as_deref(), Ok("HTTP/2.0"));
    }
    assert_eq!(
        server.heads(),
        ["HTTP/2"],
        "one connection for all requests"
    );
    assert_eq!(ask(&client(false), &url).await.as_deref(), Ok("HTTP/1.1"));
}

/// The paused clock advances automatically while all tasks are idle.
#[tokio::test(start_paused = true)]
async fn connection_that_is_idle_is_closed_for_one_that_waits() {
    let places = ConnectionSlots::new(2);
    let client = HttpClient::with_connection_slots(places.clone(), HttpSettings::default());
    let mut servers = Vec::new();
    for _ in 0..5 {
        servers.push(Server::start_keeping().await);
    }
    for _ in 0..2 {
        for server in &servers {
            let url = format!("http://{}/metrics", server.address);
            assert_eq!(ask(&client, &url).await.as_deref(), Ok("here"));
            assert!(places.occupied_count() <= places.count());
        }
    }
    assert_eq!((places.occupied_count(), places.waiting_count()), (2, 0));
}

#[tokio::test]
async fn post_follows_redirects_as_go_does() {
    let server = Server::start(Tls::None, |request| {
        let redirect = |status: &str, to: &str| {
            let end = "Content-Length: 0\r\nConnection: close\r\n\r\n";
            format!("HTTP/1.1 {status}\r\nLocation: {to}\r\n{end}").into_bytes()
        };
        let path = request.split(' ').nth(1).unwrap();
        match path.rsplit_once('/').unwrap() {
            (_, "end") => {
                let has = |text| u8::from(request.contains(text));
                let seen = [
                    "alerts",
                    "content-type",
                    "secret",
                    "referer: http://127.0.0.1:",
                    "Basic dTpw",
                ]
                .map(has);
                ok(&format!("{}{seen:?}", &request[..4]))
            }
            ("/hops", count) => match count.parse::<usize>().unwrap() {
                0 => redirect("307 Temporary Redirect", "/end"),
                count => redirect("307 Temporary Redirect", &format!("/hops/{}", count - 1)),
            },
            (_, "bare") => redirect("302 Found", ""),
            (_, "bad") => redirect("302 Found", "%zz"),
            (_, "ftp") => redirect("302 Found", "ftp://x/"),
            (_, to @ ("away" | "user")) => {
                let port = request.split_once("host: 127.0.0.1:").unwrap().1;
                let port = port.split_once("\r\n").unwrap().0;
                let user = if to == "user" { "u:p@" } else { "" };
                redirect(
                    "308 Permanent Redirect",
                    &format!("http://{user}localhost:{port}/end"),
                )
            }
            (_, status) => redirect(status, "/end"),
        }
    })
    .await;
    let client = |follow_redirects| {
        HttpClient::new(HttpSettings {
            auth: AuthMethod::Credentials {
                scheme: "Bearer".into(),
                credentials: inline("secret"),
            },
            follow_redirects,
            ..HttpSettings::default()
        })
    };
    let headers = HeaderMap::from_iter([(
        hyper::header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain"),
    )]);
    for (path, follow_redirects, want) in [
        ("/end", true, "POST[1, 1, 1, 0, 0]"),
        ("/301", true, "GET [0, 0, 1, 1, 0]"),
        ("/302", true, "GET [0, 0, 1, 1, 0]"),
        ("/303", true, "GET [0, 0, 1, 1, 0]"),
        ("/307", true, "POST[1, 1, 1, 1, 0]"),
        ("/308", true, "POST[1, 1, 1, 1, 0]"),
        ("/308", false, "308 "),
        ("/away", true, "POST[1, 1, 0, 1, 0]"),
        ("/user", true, "POST[1, 1, 0, 1, 1]"),
        ("/bare", true, "302 "),
        ("/300", true, "300 "),
        ("/hops/8", true, "POST[1, 1, 1, 1, 0]"),
        ("/hops/9", true, "stopped after 10 redirects"),
        (
            "/bad",
            true,
            "failed to parse Location header \"%zz\": invalid URL escape \"%zz\"",
        ),
        ("/ftp", true, "unsupported protocol scheme \"ftp\""),
    ] {
        let uri = format!("http://{}{path}", server.address).parse().unwrap();
        let client = client(follow_redirects);
        let got = match client.post(&uri, &headers, "alerts".into()).await {
            Err(e) => e.message,
            Ok(response) => {
                let status = response.status().as_u16();
                let body = read_body(response, BodyLimit::from_bytes_max(1000))
                    .await
                    .unwrap();
                let text = String::from_utf8(body.bytes).unwrap();
                if status == 200 {
                    text
                } else {
                    format!("{status} {text}")
                }
            }
        };
        assert!(got.ends_with(want), "{path}: {got}");
    }
    let uri = "http://127.0.0.1:1/x".parse().unwrap();
    let refused = client(true)
        .post(&uri, &HeaderMap::new(), "alerts".into())
        .await;
    let message = refused.unwrap_err().message;
    assert!(
        message.starts_with("Post \"http://127.0.0.1:1/x\": "),
        "{message}"
    );
}
