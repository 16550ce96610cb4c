//! TLS, users, tokens and their scopes, tested with every kind of credentials and without.

use crate::harness::server::{DEADLINE, Server, wait_for};
use crate::harness::write::{Series, body, compress, push_field, push_uvarint};
use crate::now_ms;
use crate::raw::{Ask, Reply};
use crate::remote_write_2::{Request, V2, sample};
use crate::tls::{self, Authority, Pair};
use rcgen::SanType;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Hash for the user `alice` with the password `correct horse`, with bcrypt's lowest cost.
const ALICE: &str = "$2b$04$UWvd1gRyIa0XmxZcUUcNXeuNsipcyb1Zjflic0OVHWqVNndXOmDd2";
const ALICE_BASIC: &str = "Authorization: Basic YWxpY2U6Y29ycmVjdCBob3JzZQ==";

/// Hash of another password.
const BOB: &str = "$2b$04$KP2rvM3zRnThzuMrH3YltOqSEUKN0eQryzREAsNf00g0DjLAff8/a";

/// Hash of the first password with a realistic cost.
const ALICE_SLOW: &str = "$2b$10$JIeVk1MMzwmfXBQRXJc8ruk6AqVYG6rheXhw0iIPbZSXfeodZg1nu";

/// A server with a folder for its files.
struct Locked {
    folder: TempDir,
    server: Server,
}

/// Writes a text to the file `name` in `folder`.
fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

impl Locked {
    /// Starts a server with a web config and a config. `DIR` in their texts is replaced by the
    /// folder.
    fn start(folder: TempDir, web: &str, config: &str, flags: &[&str]) -> Self {
        let dir = folder.path().to_str().unwrap();
        let web = file(folder.path(), "web.yml", &web.replace("DIR", dir));
        let config = file(folder.path(), "firn.yml", &config.replace("DIR", dir));
        let (web, config) = (web.to_str().unwrap(), config.to_str().unwrap());
        let mut all = vec!["--config", config, "--web.config.file", web];
        all.extend(flags);
        let server = Server::start_unready(&folder.path().join("data"), &all);
        server.wait_log(" msg=ready");
        Self { folder, server }
    }

    fn ask(&self, method: &str, path: &str, headers: &[&str]) -> Reply {
        ask(method, path, headers).send(&self.server.address)
    }
}

fn ask(method: &str, path: &str, headers: &[&str]) -> Ask {
    Ask {
        method: method.into(),
        headers: headers.iter().map(|h| (*h).to_owned()).collect(),
        ..Ask::get(path)
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

/// Tokens with different scopes.
const TOKENS: &str = "firn:\n  access:\n    page: closed\n    tokens:\n    \
    - {name: reader, token: token-of-the-reader, scopes: [read]}\n    \
    - {name: writer, token_file: DIR/writer, scopes: [write]}\n    \
    - {name: ruler, token_sha256: SHA, scopes: [rules]}\n    \
    - {name: root, token: token-of-the-admin, scopes: [read, write, rules, admin]}\n    \
    - {name: part, token: token-of-one-part, scopes: [read], match: '{team=\"a\"}'}\n    \
    users:\n      alice: {scopes: [read, admin]}\n";

/// SHA-256 digest of `token-of-the-ruler`.
const RULER_SHA: &str = "18e1aec0b6a75efaa27bdb18656c2ef9e155706ee007da2ddd3b62db413602c9";

fn with_tokens(flags: &[&str]) -> Locked {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "writer", "token-of-the-writer\n");
    let web = format!(
        "basic_auth_users: {{alice: {ALICE}}}\n\
         http_server_config: {{headers: {{X-Frame-Options: deny}}}}\n"
    );
    Locked::start(folder, &web, &TOKENS.replace("SHA", RULER_SHA), flags)
}

const READER: &str = "Authorization: Bearer token-of-the-reader";
const WRITER: &str = "Authorization: Bearer token-of-the-writer";
const RULER: &str = "Authorization: Bearer token-of-the-ruler";
const ROOT: &str = "Authorization: Bearer token-of-the-admin";
const PART: &str = "Authorization: Bearer token-of-one-part";

/// Returns every method and path with its required scope, from the server's own OpenAPI document.
fn routes(locked: &Locked) -> Vec<(String, String, String)> {
    let document = text(&locked.ask("GET", "/openapi.yaml", &[READER]));
    let root = firn_yaml::parse(&document).unwrap().unwrap();
    let entries = |node: &firn_yaml::YamlNode| match &node.value {
        firn_yaml::YamlValue::Map(entries) => entries.clone(),
        other => panic!("{other:?}"),
    };
    let mut routes = Vec::new();
    for path in entries(root.get("paths").unwrap()) {
        for operation in entries(&path.node) {
            let scope = operation.node.get("x-scope").unwrap().text().unwrap();
            routes.push((
                operation.key.to_uppercase(),
                path.key.clone(),
                scope.to_owned(),
            ));
        }
    }
    routes
}

#[test]
fn route_answers_none_wrong_weak_and_right_credentials_as_the_table_says() {
    let locked = with_tokens(&["--web.enable-admin-api"]);
    let routes = routes(&locked);
    assert!(routes.len() > 60, "{}", routes.len());
    for (method, path, scope) in &routes {
        // A profile takes half a minute by default.
        let path = path.replace('{', "x").replace('}', "") + "?seconds=1";
        let none = locked.ask(method, &path, &[]);
        assert_eq!(none.status, 401, "{method} {path}");
        assert_eq!(text(&none), "Unauthorized\n", "{method} {path}");
        let head = none.head.to_lowercase();
        assert!(head.contains("\r\nwww-authenticate: basic\r\n"), "{head}");
        assert!(head.contains("\r\nwww-authenticate: bearer\r\n"), "{head}");
        assert!(head.contains("\r\nx-frame-options: deny"), "{head}");
        let wrong = locked.ask(method, &path, &["Authorization: Bearer no-such-token-here"]);
        assert_eq!(wrong.status, 401, "{method} {path}");
        let (weak, right) = match scope.as_str() {
            "any" => (None, RULER),
            "read" => (Some(WRITER), READER),
            "write" => (Some(READER), WRITER),
            "rules" => (Some(WRITER), RULER),
            "admin" => (Some(RULER), ROOT),
            other => panic!("{other}"),
        };
        let is_refused = |reply: &Reply| text(reply).contains("does not have the scope");
        if let Some(weak) = weak {
            let weak = locked.ask(method, &path, &[weak]);
            assert_eq!(weak.status, 403, "{method} {path}: {}", text(&weak));
            assert!(is_refused(&weak), "{method} {path}");
        }
        if path.contains("/live?") {
            // A stream never ends.
            assert_eq!(first_line(&locked, &path, right), "HTTP/1.1 200 OK\r\n");
            continue;
        }
        let right = locked.ask(method, &path, &[right]);
        assert_ne!(right.status, 401, "{method} {path}");
        assert!(!is_refused(&right), "{method} {path}: {}", text(&right));
    }
    let audits = |log: &[String]| log.iter().filter(|l| l.contains("msg=audit")).count();
    assert!(audits(&locked.server.log()) > 0);
    locked
        .server
        .wait_log("msg=audit method=POST path=/api/v1/admin/tsdb/snapshot");
}

/// Returns the first line of the answer to a GET.
fn first_line(locked: &Locked, path: &str, header: &str) -> String {
    let mut socket = TcpStream::connect(&locked.server.address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line
}

#[test]
fn request_without_credentials_hears_nothing_but_401() {
    let locked = with_tokens(&[]);
    for (method, path) in [
        ("GET", "/no/such/path"),
        ("OPTIONS", "/api/v1/query"),
        ("HEAD", "/api/v1/query"),
        ("HEAD", "/"),
        ("TRACE", "/"),
        ("DELETE", "/-/healthy"),
        ("GET", "/prometheus/api/v1/labels"),
        ("POST", "/api/v1/write"),
    ] {
        let reply = locked.ask(method, path, &[]);
        assert_eq!(reply.status, 401, "{method} {path}");
        let head = reply.head.to_lowercase();
        assert!(head.contains("\r\nx-frame-options: deny"), "{head}");
        let known = locked.ask(method, path, &[ALICE_BASIC]);
        assert_ne!(known.status, 401, "{method} {path}");
    }
    let http = locked.server.http();
    assert_eq!(http.get("/api/v1/labels").status, 401);
}

#[test]
fn page_files_need_no_credentials_if_tokens_are_configured() {
    let config = TOKENS.replace("SHA", RULER_SHA);
    let config = config.replace("page: closed", "page: public");
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "writer", "token-of-the-writer\n");
    let web = format!("basic_auth_users: {{alice: {ALICE}}}\n");
    let locked = Locked::start(folder, &web, &config, &["--web.route-prefix=/f"]);
    let script = text(&locked.ask("GET", "/f/query", &[]));
    let script = script.split("src=\"./").nth(1).unwrap();
    let script = format!("/f/{}", script.split('"').next().unwrap());
    for (method, path, status) in [
        ("GET", "/", 302),
        ("GET", "/f", 302),
        ("GET", "/f/", 200),
        ("HEAD", "/f/", 200),
        ("GET", "/f/targets", 200),
        ("GET", "/f/favicon.svg", 200),
        ("GET", &script, 200),
        ("GET", "/f/assets/none.js", 404),
        ("POST", "/f/", 401),
        ("GET", "/query", 401),
        ("GET", "/f/assets/", 401),
        ("GET", "/f/assets/a/b", 401),
        ("GET", "/f/assets/../metrics", 401),
        ("GET", "/f/metrics", 401),
        ("GET", "/f/consoles/index.html", 401),
        ("GET", "/f/user/", 401),
        ("GET", "/f/api/v1/status/access", 401),
        ("GET", "/f/api/v1/status/buildinfo", 401),
    ] {
        let reply = locked.ask(method, path, &[]);
        assert_eq!(reply.status, status, "{method} {path}");
    }
}

#[test]
fn access_status_returns_the_permissions_of_the_credential() {
    let locked = with_tokens(&[]);
    let cases = [
        (
            ROOT,
            r#"{"name":"token \"root\"","scopes":["read","write","rules","admin"],"match":[],"#,
        ),
        (
            RULER,
            r#"{"name":"token \"ruler\"","scopes":["rules"],"match":[],"#,
        ),
        (
            PART,
            r#"{"name":"token \"part\"","scopes":["read"],"match":["team=\"a\""],"#,
        ),
        (
            ALICE_BASIC,
            r#"{"name":"user \"alice\"","scopes":["read","admin"],"match":[],"#,
        ),
    ];
    for (header, expected) in cases {
        let reply = text(&locked.ask("GET", "/api/v1/status/access", &[header]));
        assert!(reply.contains(expected), "{header}: {reply}");
        assert!(
            reply.contains(r#""tenants":[],"multitenancy":false}"#),
            "{reply}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let reply = Ask::get("/api/v1/status/access").send(&server.address);
    let expected = r#"{"name":"","scopes":["read","write","rules","admin"],"match":[]"#;
    assert!(text(&reply).contains(expected), "{}", text(&reply));
}

#[test]
fn token_with_a_selector_sees_its_part_of_every_answer() {
    let locked = with_tokens(&["--enable-feature=exemplar-storage,search-api"]);
    let series = |team: &str| {
        Series::new(
            &[("__name__", "m"), ("team", team), (team, "x")],
            &[(now_ms(), 1.0)],
        )
    };
    let mut push = ask(
        "POST",
        "/api/v1/write",
        &[WRITER, "Content-Encoding: snappy"],
    );
    push.body = body(&[series("a"), series("b")]);
    assert_eq!(push.send(&locked.server.address).status, 204);
    check_forms(&locked);
    let cases = [
        ("/api/v1/query?query=count(m)", "\"1\"]", "\"2\"]"),
        ("/api/v1/query?query=m", "\"team\":\"a\"", "\"team\":\"b\""),
        (
            "/api/v1/query?query=m{team=\"b\"}",
            "\"result\":[]",
            "\"m\"",
        ),
        ("/api/v1/series?match[]=m", "\"team\":\"a\"", "\"b\""),
        ("/federate?match[]=m", "team=\"a\"", "team=\"b\""),
        ("/api/v1/labels", "\"a\"", "\"b\""),
        ("/api/v1/label/team/values", "[\"a\"]", "\"b\""),
        ("/api/v1/label/team/values?match[]=m", "[\"a\"]", "\"b\""),
    ];
    for (path, has, lacks) in cases {
        let part = text(&locked.ask("GET", path, &[PART]));
        assert!(
            part.contains(has) && !part.contains(lacks),
            "{path}: {part}"
        );
        let whole = text(&locked.ask("GET", path, &[READER]));
        assert_ne!(part, whole, "{path}");
    }
    for path in [
        "/api/v1/status/tsdb",
        "/api/v1/rules",
        "/metrics",
        "/api/v1/targets",
    ] {
        let reply = locked.ask("GET", path, &[PART]);
        assert_eq!(reply.status, 403, "{path}");
        assert!(text(&reply).contains("may read only some series"), "{path}");
    }
    assert_eq!(locked.ask("GET", "/-/ready", &[PART]).status, 200);
}

/// Checks that requests with a form are restricted like those with a URL: the restricted answer
/// contains `has` and lacks `lacks`, and the unrestricted one contains both.
fn check_forms(locked: &Locked) {
    push_exemplars(locked);
    let whole = "start=0&end=9999999999";
    let cases = [
        (
            "/api/v1/query",
            "query=m".to_owned(),
            "\"team\":\"a\"",
            "\"team\":\"b\"",
        ),
        (
            "/api/v1/query_range",
            format!("query=m&start={0}&end={0}&step=1", now_ms() / 1000 + 1),
            "\"team\":\"a\"",
            "\"team\":\"b\"",
        ),
        (
            "/api/v1/series",
            "match[]=m".to_owned(),
            "\"team\":\"a\"",
            "\"team\":\"b\"",
        ),
        ("/api/v1/labels", String::new(), "\"a\"", "\"b\""),
        (
            "/api/v1/query_exemplars",
            format!("query=e&{whole}"),
            "trace-a",
            "trace-b",
        ),
        (
            "/api/v1/query_exemplars",
            format!("query=e{{team=~\".%2b\"}} or e{{team=\"b\"}}&{whole}"),
            "trace-a",
            "trace-b",
        ),
        (
            "/api/v1/search/label_names",
            String::new(),
            "\"a\"",
            "\"b\"",
        ),
        (
            "/api/v1/search/label_values",
            "label=team".to_owned(),
            "\"a\"",
            "\"b\"",
        ),
        (
            "/api/v1/search/metric_names",
            "search[]=only".to_owned(),
            "only_a",
            "only_b",
        ),
    ];
    for (path, form, has, lacks) in cases {
        let send = |token| {
            let kind = "Content-Type: application/x-www-form-urlencoded";
            let mut asked = ask("POST", path, &[token, kind]);
            asked.body = form.clone().into_bytes();
            text(&asked.send(&locked.server.address))
        };
        let (part, all) = (send(PART), send(READER));
        let is_part = part.contains(has) && !part.contains(lacks);
        assert!(is_part, "{path} {form}: {part}");
        assert!(all.contains(lacks), "{path} {form}: {all}");
    }
    check_read(locked);
}

/// Writes two series with exemplars, with one common metric and one metric each.
fn push_exemplars(locked: &Locked) {
    for team in ["a", "b"] {
        let only = format!("only_{team}");
        let trace = format!("trace-{team}");
        let symbols = ["", "__name__", "e", "team", team, "trace_id", &trace, &only];
        let symbols: Vec<&[u8]> = symbols.iter().map(|symbol| symbol.as_bytes()).collect();
        let parts = sample().exemplar(&[5, 6], now_ms(), 1.0);
        let request = Request::of(&symbols)
            .series(&[1, 2, 3, 4], parts)
            .series(&[1, 7, 3, 4], sample());
        let kind = format!("Content-Type: {V2}");
        let mut push = ask(
            "POST",
            "/api/v1/write",
            &[WRITER, "Content-Encoding: snappy", &kind],
        );
        push.body = request.body();
        let reply = push.send(&locked.server.address);
        assert_eq!(reply.status, 204, "{}", text(&reply));
    }
}

/// Checks that remote read returns only the permitted series, as samples.
fn check_read(locked: &Locked) {
    let mut matcher = Vec::new();
    push_field(&mut matcher, 0x12, b"__name__");
    push_field(&mut matcher, 0x1a, b"m");
    let mut query = vec![0x10];
    push_uvarint(&mut query, now_ms() as u64 + 60_000);
    push_field(&mut query, 0x1a, &matcher);
    let mut question = Vec::new();
    push_field(&mut question, 0x0a, &query);
    for (token, sees_b) in [(PART, false), (READER, true)] {
        let mut asked = ask("POST", "/api/v1/read", &[token, "Content-Encoding: snappy"]);
        asked.body = compress(&question);
        let reply = asked.send(&locked.server.address);
        assert_eq!(reply.status, 200, "{}", text(&reply));
        let message = snap::raw::Decoder::new().decompress_vec(&reply.body);
        let message = message.unwrap();
        let has = |label: &[u8]| message.windows(label.len()).any(|w| w == label);
        let seen = (has(b"team\x12\x01a"), has(b"team\x12\x01b"));
        assert_eq!(seen, (true, sees_b));
    }
}

#[test]
fn token_names_no_tenant_but_its_own() {
    let config = "firn:\n  multitenancy: true\n  access:\n    tokens:\n    \
        - {name: one, token: token-of-tenant-one, scopes: [read], tenants: [one]}\n    \
        - {name: two, token: token-of-two-tenants, scopes: [read], tenants: [one, two]}\n";
    let locked = Locked::start(tempfile::tempdir().unwrap(), "", config, &[]);
    let one = "Authorization: Bearer token-of-tenant-one";
    let two = "Authorization: Bearer token-of-two-tenants";
    for (token, tenant, status) in [
        (one, None, 200),
        (one, Some("X-Scope-OrgID: one"), 200),
        (one, Some("X-Scope-OrgID: two"), 403),
        (two, None, 401),
        (two, Some("X-Scope-OrgID: two"), 200),
        (two, Some("X-Scope-OrgID: three"), 403),
    ] {
        let headers: Vec<&str> = std::iter::once(token).chain(tenant).collect();
        let reply = locked.ask("GET", "/api/v1/labels", &headers);
        assert_eq!(reply.status, status, "{headers:?}: {}", text(&reply));
    }
}

#[test]
fn secrets_stand_in_no_answer_and_in_no_log() {
    let locked = with_tokens(&["--web.enable-lifecycle"]);
    let secrets = [
        "token-of-the-reader",
        "token-of-the-writer",
        "token-of-the-admin",
        RULER_SHA,
        ALICE,
        "correct horse",
        "Y29ycmVjdCBob3JzZQ",
    ];
    locked.ask("GET", "/api/v1/query?query=)", &[ALICE_BASIC]);
    locked.ask("POST", "/-/reload", &[ROOT]);
    let config = text(&locked.ask("GET", "/api/v1/status/config", &[READER]));
    assert!(config.contains("token: \\u003csecret\\u003e"), "{config}");
    let flags = text(&locked.ask("GET", "/api/v1/status/flags", &[READER]));
    let metrics = text(&locked.ask("GET", "/metrics", &[READER]));
    assert!(metrics.contains("firn_access_last_reload_successful 1\n"));
    // Errors do not contain secrets.
    let dir = locked.folder.path().to_str().unwrap();
    let short = TOKENS
        .replace("token-of-the-admin", "short-secret")
        .replace("DIR", dir);
    file(
        locked.folder.path(),
        "firn.yml",
        &short.replace("SHA", RULER_SHA),
    );
    let refused = text(&locked.ask("POST", "/-/reload", &[ROOT]));
    assert!(
        refused.contains("token is too short: 12 bytes"),
        "{refused}"
    );
    let log = locked.server.log().join("\n");
    for secret in secrets.iter().chain(&["short-secret"]) {
        for shown in [&config, &flags, &metrics, &refused, &log] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
}

#[test]
fn users_and_headers_follow_the_file_and_a_broken_one_changes_nothing() {
    let locked = with_tokens(&[]);
    let http = locked.server.address.clone();
    let alice = || ask("GET", "/api/v1/labels", &[ALICE_BASIC]).send(&http);
    assert_eq!(alice().status, 200);
    let web = |text: &str| drop(file(locked.folder.path(), "web.yml", text));
    web("basic_auth_users: {alice: broken}\n");
    locked.server.wait_log("keeping the previous users");
    assert_eq!(alice().status, 200);
    // Entries of `firn.access` refer to a user, so that one must remain.
    web(&format!(
        "basic_auth_users: {{alice: {}}}\nhttp_server_config: {{headers: {{X-XSS-Protection: \
         '0'}}}}\n",
        BOB
    ));
    wait_for("the old password to be refused", || alice().status == 401);
    let head = alice().head.to_lowercase();
    assert!(head.contains("\r\nx-xss-protection: 0"), "{head}");
    assert!(!head.contains("x-frame-options"), "{head}");
    file(
        locked.folder.path(),
        "writer",
        "another-token-of-the-writer",
    );
    wait_for("the old token to be refused", || {
        locked.ask("POST", "/api/v1/write", &[WRITER]).status == 401
    });
}

#[test]
fn rate_limit_refuses_what_is_too_much() {
    let web = "rate_limit: {interval: 1h, burst: 3}\n";
    let locked = Locked::start(tempfile::tempdir().unwrap(), web, "", &[]);
    let statuses: Vec<u16> = (0..5)
        .map(|_| locked.ask("GET", "/-/healthy", &[]).status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

#[test]
fn known_password_is_not_slowed_by_those_who_guess() {
    let web = format!("basic_auth_users: {{alice: {ALICE_SLOW}}}\n");
    let locked = Locked::start(tempfile::tempdir().unwrap(), &web, "", &[]);
    let address = locked.server.address.clone();
    let push = |time: i64| {
        let series = Series::new(&[("__name__", "m")], &[(time, 1.0)]);
        let headers = [ALICE_BASIC, "Content-Encoding: snappy"];
        let mut push = ask("POST", "/api/v1/write", &headers);
        push.body = body(&[series]);
        let start = Instant::now();
        let reply = push.send(&address);
        assert_eq!(reply.status, 204, "{}", text(&reply));
        start.elapsed()
    };
    let is_over = AtomicBool::new(false);
    let guesses = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Stops the guessing threads, even if the test fails.
        let _end = SetOnDrop(&is_over);
        for guesser in 0..16 {
            let (is_over, guesses, address) = (&is_over, &guesses, &address);
            scope.spawn(move || {
                for guess in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let guess = format!("Authorization: Basic {}", guess_text(guesser, guess));
                    let reply = ask("GET", "/", &[&guess]).send(address);
                    // Too many concurrent attempts are rejected.
                    assert!(matches!(reply.status, 401 | 503), "{}", reply.status);
                    guesses.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_for("guesses", || guesses.load(Ordering::Relaxed) > 2);
        // The first request must verify the password, and waits for few of the others.
        let start = now_ms();
        let first = push(start);
        let mut slowest = Duration::ZERO;
        for i in 1..50 {
            slowest = slowest.max(push(start + i));
        }
        is_over.store(true, Ordering::Relaxed);
        println!("first {first:?}, slowest of the others {slowest:?}");
        assert!(first < DEADLINE, "{first:?}");
        assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    });
}

/// Sets the flag on drop.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns `alice:gNNN...` in base64: three bytes are four letters.
fn guess_text(guesser: usize, guess: usize) -> String {
    let letter = |n: usize| char::from(b'A' + (n % 26) as u8);
    let tail: String = [guesser, guess, guess / 26, guess / 676]
        .map(letter)
        .iter()
        .collect();
    format!("YWxpY2U6{tail}")
}

#[test]
fn certificate_replaced_under_load_costs_no_request() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let pairs: Vec<Pair> = (0..4).map(|_| authority.server()).collect();
    pairs[0].write(folder.path(), "server");
    let web = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n";
    let locked = Locked::start(folder, web, "", &[]);
    let address = locked.server.address.clone();
    let client = authority.client(None, &[]);
    let is_over = AtomicBool::new(false);
    let asked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let reply = tls::send(&client, &address, &Ask::get("/-/healthy"));
                    assert_eq!(reply.unwrap().status, 200);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for pair in &pairs[1..] {
            pair.write(locked.folder.path(), "server");
            wait_for("the new certificate", || {
                let stream = tls::connect(&client, &address).unwrap();
                stream.conn.peer_certificates().unwrap()[0] == pair.der()
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(asked.load(Ordering::Relaxed) > pairs.len());
    // An incomplete change has no effect.
    let other = authority.server();
    file(locked.folder.path(), "server.key", &other.key);
    locked
        .server
        .wait_log("private key does not match public key");
    let reply = tls::send(&client, &address, &Ask::get("/-/healthy")).unwrap();
    assert_eq!(reply.status, 200);
}

#[test]
fn client_certificate_is_taken_if_the_authority_and_the_names_are_right() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.server().write(folder.path(), "server");
    file(folder.path(), "ca.crt", authority.pem());
    let web = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  \
               client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n  \
               client_allowed_sans: [agent.example.org, 10.1.2.3, ops@example.org, \
               'spiffe://example.org/agent']\n";
    let locked = Locked::start(folder, web, "", &[]);
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let cases = [
        (vec![dns("agent.example.org")], true),
        (
            vec![dns("x"), SanType::IpAddress([10, 1, 2, 3].into())],
            true,
        ),
        (
            vec![SanType::Rfc822Name("ops@example.org".try_into().unwrap())],
            true,
        ),
        (
            vec![SanType::URI(
                "spiffe://example.org/agent".try_into().unwrap(),
            )],
            true,
        ),
        (vec![dns("agent.example.com")], false),
        (vec![], false),
    ];
    let get = |client: &Arc<rustls::ClientConfig>| {
        let reply = tls::send(client, &locked.server.address, &Ask::get("/-/healthy"));
        reply.is_ok_and(|reply| reply.status == 200)
    };
    for (names, want) in cases {
        let shown = format!("{names:?}");
        let own = authority.pair(names);
        assert_eq!(get(&authority.client(Some(&own), &[])), want, "{shown}");
    }
    assert!(!get(&authority.client(None, &[])));
    let stranger = Authority::new().pair(vec![dns("agent.example.org")]);
    assert!(!get(&authority.client(Some(&stranger), &[])));
}

#[test]
fn socket_of_tls_tells_plain_http_and_cuts_who_says_nothing() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.server().write(folder.path(), "server");
    let web = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n";
    let locked = Locked::start(folder, web, "", &["--web.max-connections", "4"]);
    let address = &locked.server.address;
    let mut plain = TcpStream::connect(address).unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    let want = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    assert_eq!(answer, want);
    let silent: Vec<_> = [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"]
        .into_iter()
        .map(|start| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(start).unwrap();
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            socket
        })
        .collect();
    let client = authority.client(None, &[]);
    let metrics = tls::send(&client, address, &Ask::get("/metrics")).unwrap();
    // They are counted, and leave room for one more.
    assert!(text(&metrics).contains("\nfirn_server_connections 4\n"));
    for mut socket in silent {
        let ended = socket.read(&mut [0; 64]);
        assert!(ended.is_ok(), "{ended:?}");
    }
}

#[test]
fn head_of_ten_thousand_headers_is_refused_and_its_credentials_count() {
    let locked = with_tokens(&[]);
    let pads: Vec<String> = (0..10_000).map(|i| format!("X-Pad-{i}: y")).collect();
    let mut bomb = Ask::get("/api/v1/labels");
    bomb.headers = pads;
    assert_eq!(bomb.send(&locked.server.address).status, 401);
    // Relevant headers are found after any number of other headers.
    bomb.headers.push(READER.to_owned());
    assert_eq!(bomb.send(&locked.server.address).status, 200);
    let many: Vec<String> = (0..10_000).map(|_| READER.to_owned()).collect();
    bomb.headers = many;
    assert_eq!(bomb.send(&locked.server.address).status, 431);
    assert_eq!(locked.ask("GET", "/-/ready", &[READER]).status, 200);
}

#[test]
fn server_behind_locks_is_scraped_over_http2_by_another_one() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.server().write(folder.path(), "server");
    let ca = file(folder.path(), "ca.crt", authority.pem());
    let config = "firn: {access: {tokens: [{name: scraper, token: token-of-the-scraper, \
                  scopes: [read]}]}}\n";
    let web = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n";
    let locked = Locked::start(folder, web, config, &[]);
    let client = authority.client(None, &[b"h2", b"http/1.1"]);
    let stream = tls::connect(&client, &locked.server.address).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    let scraper = tempfile::tempdir().unwrap();
    let config = format!(
        "scrape_configs:\n- job_name: j\n  scheme: https\n  scrape_interval: 1s\n  \
         scrape_timeout: 1s\n  authorization: {{credentials: token-of-the-scraper}}\n  \
         tls_config: {{ca_file: {}, server_name: localhost}}\n  \
         static_configs: [{{targets: [{:?}]}}]\n",
        ca.display(),
        locked.server.address
    );
    let config = file(scraper.path(), "firn.yml", &config);
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(&scraper.path().join("data"), &flags);
    wait_for("a scrape", || {
        let up = server.http().query("up{job=\"j\"} == 1", now_ms());
        up.as_array().is_some_and(|found| found.len() == 1)
    });
}

#[test]
fn web_config_is_checked_with_promtools_words_and_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let good = file(
        folder.path(),
        "good.yml",
        "http_server_config: {http2: false}\n",
    );
    let bad = file(folder.path(), "bad.yml", "x: 1\n");
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    let check = |files: &[&str]| {
        let mut command = crate::harness::server::firn();
        let output = command
            .args(["check", "web-config"])
            .args(files)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let failed = "FAILED: yaml: unmarshal errors:\n  line 1: field x not found in type web.Config";
    assert_eq!(check(&[good]), (Some(0), format!("{good} SUCCESS\n")));
    let both = format!("{bad} {failed}\n{good} SUCCESS\n");
    assert_eq!(check(&[bad, good]), (Some(1), both));
}
