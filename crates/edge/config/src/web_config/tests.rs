//! Web configs, sound and not, and what promtool would say of them.

use super::*;
use std::time::Duration;

const HASH: &str = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";

fn parsed(text: &str) -> Result<WebConfig, String> {
    parse(text, Path::new("/etc/firn"))
}

#[test]
fn parse_reads_every_section() {
    let text = format!(
        "tls_server_config:\n  cert_file: a.crt\n  key: KEY\n  client_ca_file: /ca\n  \
         client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: [x]\n  \
         min_version: TLS10\n  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA]\n  \
         curve_preferences: [CurveP521, X25519]\n\
         http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n\
         basic_auth_users:\n  alice: {HASH}\n  1: {HASH}\n\
         rate_limit:\n  interval: 1m30s\n  burst: 5\n"
    );
    let config = parsed(&text).unwrap();
    let files = config.tls.unwrap().files();
    assert_eq!(files, [Path::new("/etc/firn/a.crt"), Path::new("/ca")]);
    let users: Vec<_> = config.users.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(users, ["alice", "1"]);
    let limit = RequestRateLimit {
        interval: Duration::from_secs(90),
        burst: 5,
    };
    assert_eq!(config.rate_limit, Some(limit));
    assert_eq!(config.headers[0].0, "x-frame-options");
    assert_eq!(
        config.warnings,
        [
            "min_version: TLS 1.2 is the oldest version that Firn speaks",
            "cipher_suites: Firn does not support TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            "curve_preferences: Firn does not support CurveP521",
        ]
    );
    for empty in [
        "",
        "tls_server_config:\n",
        "tls_server_config: {min_version: TLS13}\n",
        "tls_server_config: {min_version: , max_version: ~}\n",
        "tls_server_config: {cipher_suites: [~], curve_preferences: [~]}\n",
    ] {
        let config = parsed(empty).unwrap();
        assert!(config.tls.is_none() && config.users.is_empty(), "{empty}");
    }
}

#[test]
fn parse_reads_numbers_as_yaml_writes_them() {
    for (text, nanos, burst) in [
        ("{interval: 0x10, burst: 1_000}", 16, 1000),
        ("{interval: 1.5, burst: 2.9}", 1, 2),
        ("{interval: '1us', burst: 0b11}", 1000, 3),
    ] {
        let config = parsed(&format!("rate_limit: {text}")).unwrap();
        let limit = RequestRateLimit {
            interval: Duration::from_nanos(nanos),
            burst,
        };
        assert_eq!(config.rate_limit, Some(limit), "{text}");
    }
}

#[test]
fn parse_says_what_the_toolkit_says() {
    let user = |hash: &str| format!("basic_auth_users: {{alice: {hash}}}");
    let cases = [
        (
            "tls_config: {}\nx: 1\n".to_owned(),
            "yaml: unmarshal errors:\n  line 1: field tls_config not found in type web.Config\n  \
             line 2: field x not found in type web.Config",
        ),
        (
            "tls_server_config:\n  cert_filee: x\n".to_owned(),
            "yaml: unmarshal errors:\n  line 2: field cert_filee not found in type web.TLSConfig",
        ),
        (
            "http_server_config: {http2: perhaps not}".to_owned(),
            "yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str `perhaps...` into bool",
        ),
        (
            "rate_limit: {burst: x, interval: 1d}".to_owned(),
            "yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str `x` into int\n  \
             line 1: cannot unmarshal !!str `1d` into time.Duration",
        ),
        (
            "rate_limit: {burst: '1', interval: '1'}".to_owned(),
            "yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str `1` into int\n  \
             line 1: cannot unmarshal !!str `1` into time.Duration",
        ),
        (
            "rate_limit: {burst: 99999999999999999999, interval: true}".to_owned(),
            "yaml: unmarshal errors:\n  line 1: cannot unmarshal !!float `9999999...` into int\n  \
             line 1: cannot unmarshal !!bool `true` into time.Duration",
        ),
        (
            "http_server_config: {http2: 'true'}".to_owned(),
            "yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str `true` into bool",
        ),
        (
            "[]".to_owned(),
            "yaml: unmarshal errors:\n  line 1: cannot unmarshal !!seq into web.Config",
        ),
        (
            "tls_server_config: {cipher_suites: [X]}".to_owned(),
            "unknown cipher: X",
        ),
        (
            "tls_server_config: {curve_preferences: [X]}".to_owned(),
            "unknown curve: X",
        ),
        (
            "tls_server_config: {min_version: TLS14}".to_owned(),
            "unknown TLS version: TLS14",
        ),
        (
            "tls_server_config: {key_file: x}".to_owned(),
            "missing one of cert or cert_file",
        ),
        (
            "tls_server_config: {cert_file: x}".to_owned(),
            "missing one of key or key_file",
        ),
        (
            "http_server_config: {headers: {Server: x}}".to_owned(),
            "HTTP header \"Server\" can not be configured",
        ),
        (
            "http_server_config: {headers: {X-Frame-Options: x}}".to_owned(),
            "invalid value for X-Frame-Options. Expected one of: [\"deny\" \"sameorigin\"], but \
             got: \"x\"",
        ),
        (
            user("secret"),
            "crypto/bcrypt: hashedSecret too short to be a bcrypted password",
        ),
        (
            user(&HASH.replace("$10$", "$15$")),
            "user \"alice\": bcrypt cost is too high: 15, limit 14",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(parsed(&text).err().as_deref(), Some(want), "{text}");
    }
}

#[test]
fn check_names_what_is_wrong_with_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let shown = dir.path().display().to_string();
    let keys = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    file("a.crt", &keys.cert.pem());
    file("a.key", &keys.signing_key.serialize_pem());
    file("b.key", &other.signing_key.serialize_pem());
    file("empty", "");
    let pair = "cert_file: a.crt, key_file: a.key";
    let cases = [
        (pair.to_owned(), None),
        (
            "cert_file: none, key_file: a.key".to_owned(),
            Some(format!(
                "failed to read cert_file ({shown}/none): open {shown}/none: no such file or \
                 directory"
            )),
        ),
        (
            "cert_file: a.crt, key_file: b.key".to_owned(),
            Some(
                "failed to load X509KeyPair: tls: private key does not match public key".to_owned(),
            ),
        ),
        (
            "cert_file: empty, key_file: a.key".to_owned(),
            Some(
                "failed to load X509KeyPair: tls: failed to find any PEM data in certificate \
                 input"
                    .to_owned(),
            ),
        ),
        (
            "cert_file: a.crt, key_file: empty".to_owned(),
            Some(
                "failed to load X509KeyPair: tls: failed to find any PEM data in key input"
                    .to_owned(),
            ),
        ),
        (
            "cert_file: a.key, key_file: a.crt".to_owned(),
            Some(
                "failed to load X509KeyPair: tls: failed to find certificate PEM data in \
                 certificate input, but did find a private key; PEM inputs may have been switched"
                    .to_owned(),
            ),
        ),
        (
            format!("{pair}, client_ca_file: none"),
            Some(format!("open {shown}/none: no such file or directory")),
        ),
        (
            format!("{pair}, client_auth_type: Sometimes"),
            Some("invalid ClientAuth: Sometimes".to_owned()),
        ),
        (
            format!("{pair}, client_ca_file: a.crt"),
            Some("client CA's have been configured without a Client Auth Policy".to_owned()),
        ),
        (
            format!("{pair}, client_ca_file: empty, client_auth_type: VerifyClientCertIfGiven"),
            // As in Prometheus, it then refuses every certificate.
            None,
        ),
        (
            format!("{pair}, curve_preferences: [CurveP521]"),
            Some(
                "no supported curve in curve_preferences: CurveP256, CurveP384 and X25519 \
                 are supported"
                    .to_owned(),
            ),
        ),
        (
            format!("{pair}, max_version: TLS11"),
            Some(
                "no TLS version can be used: unexpected error: no usable cipher suites \
                 configured"
                    .to_owned(),
            ),
        ),
        (
            format!("{pair}, cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]"),
            None,
        ),
    ];
    for (section, want) in cases {
        let path = file("web.yml", &format!("tls_server_config: {{{section}}}\n"));
        let got = check(&path).err().map(|e| e.to_string());
        assert_eq!(got, want, "{section}");
    }
}

#[test]
fn file_that_is_none_or_too_long_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let shown = dir.path().display().to_string();
    let long = std::fs::File::create(dir.path().join("long")).unwrap();
    long.set_len((16 << 20) + 1).unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    let _pipe = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    for (name, why) in [
        ("/dev/zero".to_owned(), "open /dev/zero: not a regular file"),
        (format!("{shown}/socket"), "not a regular file"),
        (
            format!("{shown}/long"),
            "file is too long: limit 16777216 bytes",
        ),
        (format!("{shown}/folder"), "is a directory"),
    ] {
        let web = dir.path().join("web.yml");
        for text in [
            format!("tls_server_config: {{cert_file: {name}, key_file: a}}"),
            format!(
                "tls_server_config: {{cert: x, key: x, client_ca_file: {name}, \
                 client_auth_type: RequireAnyClientCert}}"
            ),
        ] {
            std::fs::write(&web, text).unwrap();
            let error = check(&web).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(&name) && error.contains(why), "{error}");
        }
        let itself = Path::new(&name);
        let error = check(itself).err().map(|e| e.to_string());
        let error = error.unwrap_or_default();
        assert!(error.contains(&name) && error.contains(why), "{error}");
    }
}
