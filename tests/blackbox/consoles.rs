//! Pages that operators add to a server: console templates, files, a title; with a route prefix,
//! with authentication, and with paths that must not leave a folder.

use crate::harness::server::Server;
use crate::harness::write::{Series, body};
use crate::now_ms;
use crate::raw::{Ask, Reply};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const CONFIG: &str = "global:\n  external_labels: {region: \"<eu>\"}\n";

const ACCESS: &str = "firn:\n  access:\n    tokens:\n    \
    - {name: reader, token: token-of-the-reader, scopes: [read]}\n    \
    - {name: writer, token: token-of-the-writer, scopes: [write]}\n    \
    - {name: part, token: token-of-one-part, scopes: [read], match: '{team=\"a\"}'}\n";

/// Templates, libraries and files, by their paths.
const FILES: [(&str, &str); 16] = [
    (
        "consoles/index.html",
        "{{ template \"head\" .Path }}<p>{{ $params.x }}</p>{{ template \"tail\" }}",
    ),
    (
        "consoles/values.html",
        "<table>{{ range query \"m\" | sortByLabel \"team\" }}<tr><td>{{ .Labels.team }}</td>\
         <td>{{ .Value | humanize }}</td></tr>{{ end }}</table>",
    ),
    (
        "consoles/place.html",
        "<html><a href=\"{{ pathPrefix }}/x?a={{ $params.a }}\">{{ externalURL }}</a>\
         <script>f({{ $rawParams.a }}, {{ $externalLabels.region }})</script>",
    ),
    (
        "consoles/sub/b c.txt",
        "{{ .Path }} {{ query \"1 + 1\" | first | value }}",
    ),
    ("consoles/query.html", "\n {{ query \"1 +\" }}"),
    ("consoles/parse.html", "{{ if }}"),
    ("consoles/end.html", "<a title=\"{{ .Path }}"),
    ("consoles/endless.html", "{{ range 9999999 }}{{ end }}"),
    (
        "consoles/vast.html",
        "{{ range 99999 }}{{ template \"head\" . }}{{ end }}",
    ),
    (
        "libraries/a.lib",
        "{{ define \"head\" }}<html><h1>{{ . }}</h1>{{ end }}",
    ),
    ("libraries/b.lib", "{{ define \"tail\" }}</html>{{ end }}"),
    ("libraries/c.txt", "{{ if }}"),
    ("user/a.json", "{\"a\": 1}"),
    ("user/shown/index.html", "<p>shown</p>"),
    ("user/listed/<b>.txt", "text"),
    ("outside.txt", "not for you"),
];

struct Consoles {
    folder: TempDir,
    server: Server,
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Consoles {
    fn start(config: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        FILES
            .iter()
            .for_each(|(name, text)| write(folder.path(), name, text));
        write(folder.path(), "firn.yml", config);
        let at = |name: &str| folder.path().join(name).display().to_string();
        let named = [
            format!("--config={}", at("firn.yml")),
            format!("--web.console.templates={}", at("consoles")),
            format!("--web.console.libraries={}", at("libraries")),
            format!("--web.user-assets={}", at("user")),
        ];
        let named = named.iter().map(String::as_str);
        let flags: Vec<&str> = named.chain(flags.iter().copied()).collect();
        let server = Server::start_unready(&folder.path().join("data"), &flags);
        server.wait_log(" msg=ready");
        Self { folder, server }
    }

    fn get(&self, path: &str, headers: &[&str]) -> Reply {
        let headers = headers.iter().map(|header| (*header).to_owned()).collect();
        let ask = Ask {
            headers,
            ..Ask::get(path)
        };
        ask.send(&self.server.address)
    }

    /// Checks the status and the text of an answer. `DIR` in the text is replaced by the folder.
    fn check(&self, path: &str, status: u16, want: &str) {
        let reply = self.get(path, &[]);
        let want = want.replace("DIR", &self.folder.path().display().to_string());
        assert_eq!((reply.status, text(&reply)), (status, want), "{path}");
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

/// Returns the value of a header.
fn header<'r>(reply: &'r Reply, name: &str) -> &'r str {
    let lines = reply.head.lines().filter_map(|line| line.split_once(": "));
    let mut found = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    found.next().map_or("", |(_, value)| value)
}

/// Writes two series of the metric `m`.
fn fill(server: &Server) {
    let now = now_ms();
    let series =
        |team: &str, value| Series::new(&[("__name__", "m"), ("team", team)], &[(now, value)]);
    let sent = body(&[series("b&c", 2500.0), series("a", 1.0)]);
    assert_eq!(server.http().write(&sent).status, 204);
}

#[test]
fn consoles_are_what_templates_make() {
    let consoles = Consoles::start(
        CONFIG,
        &["--web.external-url=http://h/f", "--web.route-prefix=/"],
    );
    fill(&consoles.server);
    let cases = [
        (
            "index.html?x=%3Cb%3E",
            "<html><h1>index.html</h1><p>&lt;b&gt;</p></html>",
        ),
        ("index.html", "<html><h1>index.html</h1><p></p></html>"),
        (
            "values.html",
            "<table><tr><td>a</td><td>1</td></tr><tr><td>b&amp;c</td><td>2.5k</td></tr></table>",
        ),
        ("sub/b%20c.txt", "sub/b c.txt 2"),
        (
            "place.html?a=b+c&a=%3C%2Fscript%3E",
            "<html><a href=\"/f/x?a=b%20c\">http://h/f</a>\
             <script>f([\"b c\",\"\\u003c/script\\u003e\"], \"\\u003ceu\\u003e\")</script>",
        ),
    ];
    for (path, want) in cases {
        consoles.check(&format!("/consoles/{path}"), 200, want);
    }
    for (path, want) in [
        ("/consoles/index.html", "text/html; charset=utf-8"),
        ("/consoles/sub/b%20c.txt", "text/plain; charset=utf-8"),
    ] {
        let reply = consoles.get(path, &[]);
        assert_eq!(header(&reply, "content-type"), want, "{path}");
    }
}

#[test]
fn console_that_cannot_be_made_says_why() {
    let consoles = Consoles::start(CONFIG, &[]);
    let name = "__console_/";
    let cases = [
        ("", 500, "read DIR/consoles: is a directory".to_owned()),
        (
            "none.html",
            404,
            "open DIR/consoles/none.html: no such file or directory".into(),
        ),
        ("index.html/x", 404, "file does not exist".into()),
        (
            "../outside.txt",
            404,
            "open DIR/consoles/outside.txt: no such file or directory".into(),
        ),
        (
            "%2e%2e/outside.txt",
            404,
            "open DIR/consoles/outside.txt: no such file or directory".into(),
        ),
        ("index.html?x=%zz", 400, "invalid URL escape \"%zz\"".into()),
        (
            "index.html?x=1;y",
            400,
            "invalid semicolon separator in query".into(),
        ),
        (
            "query.html",
            500,
            format!(
                "error executing template {name}query.html: template: {name}query.html:2:4: \
                 executing \"{name}query.html\" at <query \"1 +\">: error calling query: \
                 1:4: parse error: unexpected end of input"
            ),
        ),
        (
            "parse.html",
            500,
            format!(
                "error parsing template {name}parse.html: template: {name}parse.html:1: missing \
                 value for if"
            ),
        ),
        (
            "end.html",
            500,
            format!(
                "error executing template {name}end.html: html/template:{name}end.html: ends in a \
                 non-text context: {{stateAttr delimDoubleQuote urlPartNone jsCtxRegexp [] \
                 attrNone elementNone <nil>}}"
            ),
        ),
    ];
    for (path, status, want) in cases {
        consoles.check(&format!("/consoles/{path}"), status, &format!("{want}\n"));
    }
    for (path, part) in [
        ("endless", "more than 1000000 steps"),
        ("vast", "output is longer than"),
    ] {
        let reply = consoles.get(&format!("/consoles/{path}.html"), &[]);
        assert_eq!(reply.status, 500, "{path}");
        assert!(text(&reply).contains(part), "{}", text(&reply));
    }
    write(consoles.folder.path(), "libraries/z.lib", "{{ if }}");
    consoles.check(
        "/consoles/index.html",
        500,
        "error parsing template files for __console_/index.html: template: z.lib:1: missing value \
         for if\n",
    );
}

#[test]
fn user_assets_are_files_of_the_folder_and_no_others() {
    let consoles = Consoles::start("", &[]);
    let cases = [
        ("a.json", 200, "{\"a\": 1}"),
        ("shown/", 200, "<p>shown</p>"),
        (
            "listed/",
            200,
            "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
             <a href=\"%3Cb%3E.txt\">&lt;b&gt;.txt</a>\n</pre>\n",
        ),
        ("none", 404, "404 page not found\n"),
        ("a.json/x", 404, "404 page not found\n"),
        ("../outside.txt", 404, "404 page not found\n"),
        ("%2e%2e/outside.txt", 404, "404 page not found\n"),
        ("%2e%2e%2foutside.txt", 404, "404 page not found\n"),
        ("a.json%00", 404, "404 page not found\n"),
        ("pipe", 500, "500 Internal Server Error\n"),
    ];
    let user = consoles.folder.path().join("user");
    let mode = rustix::fs::Mode::from(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, user.join("pipe"), mode).unwrap();
    for (path, status, want) in cases {
        consoles.check(&format!("/user/{path}"), status, want);
    }
    for (path, want) in [
        ("/user", "user/"),
        ("/user/shown", "shown/"),
        ("/user/shown?a=b", "shown/?a=b"),
        ("/user/shown/index.html", "./"),
        ("/user/a.json/", "../a.json"),
    ] {
        let reply = consoles.get(path, &[]);
        assert_eq!(
            (reply.status, header(&reply, "location")),
            (301, want),
            "{path}"
        );
    }
    let whole = consoles.get("/user/a.json", &[]);
    assert_eq!(header(&whole, "content-type"), "application/json");
    let date = format!("If-Modified-Since: {}", header(&whole, "last-modified"));
    assert_eq!(consoles.get("/user/a.json", &[&date]).status, 304);
    let part = consoles.get("/user/a.json", &["Range: bytes=1-3"]);
    assert_eq!((part.status, text(&part)), (206, "\"a\"".to_owned()));
    assert_eq!(header(&part, "content-range"), "bytes 1-3/8");
    let head = Ask {
        method: "HEAD".into(),
        ..Ask::get("/user/a.json")
    };
    let head = head.send(&consoles.server.address);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(header(&head, "content-length"), "8");
}

#[test]
fn pages_of_the_operator_are_below_the_prefix_and_linked() {
    let flags = ["--web.external-url=http://h/f", "--web.page-title=a & <b>"];
    let consoles = Consoles::start("", &flags);
    consoles.check("/f/user/a.json", 200, "{\"a\": 1}");
    consoles.check(
        "/f/consoles/index.html",
        200,
        "<html><h1>index.html</h1><p></p></html>",
    );
    consoles.check("/user/a.json", 404, "404 page not found\n");
    let page = text(&consoles.get("/f/query", &[]));
    assert!(page.contains("<title>a &amp; &lt;b&gt;</title>"), "{page}");
    assert!(
        page.contains("<meta name=\"firn:consoles\" content=\"consoles/index.html\">"),
        "{page}"
    );
}

#[test]
fn server_without_folders_has_no_pages_of_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let page = Ask::get("/query").send(&server.address);
    assert!(text(&page).contains("<title>Firn</title>"));
    assert!(text(&page).contains("<meta name=\"firn:consoles\" content=\"\">"));
    for (path, want) in [
        ("/user/", "404 page not found\n"),
        ("/user/a", "404 page not found\n"),
        (
            "/consoles/a",
            "open consoles/a: no such file or directory\n",
        ),
    ] {
        let reply = Ask::get(path).send(&server.address);
        assert_eq!(
            (reply.status, text(&reply)),
            (404, want.to_owned()),
            "{path}"
        );
    }
}

#[test]
fn pages_of_the_operator_need_the_scope_to_read_and_show_their_part() {
    let consoles = Consoles::start(ACCESS, &[]);
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let ask = |path: &str, token: &str| consoles.get(path, &[&bearer(token)]);
    let sent = Ask {
        method: "POST".into(),
        headers: vec![bearer("token-of-the-writer")],
        body: body(&[
            Series::new(&[("__name__", "m"), ("team", "a")], &[(now_ms(), 1.0)]),
            Series::new(&[("__name__", "m"), ("team", "b")], &[(now_ms(), 2.0)]),
        ]),
        ..Ask::get("/api/v1/write")
    };
    assert_eq!(sent.send(&consoles.server.address).status, 204);
    for path in [
        "/consoles/values.html",
        "/user/a.json",
        "/user/",
        "/consoles/",
    ] {
        assert_eq!(consoles.get(path, &[]).status, 401, "{path}");
        assert_eq!(ask(path, "token-of-the-writer").status, 403, "{path}");
        assert_ne!(ask(path, "token-of-the-reader").status, 403, "{path}");
    }
    let row = |team: &str, value: u8| format!("<tr><td>{team}</td><td>{value}</td></tr>");
    let whole = format!("<table>{}{}</table>", row("a", 1), row("b", 2));
    let part = format!("<table>{}</table>", row("a", 1));
    let page = |token| text(&ask("/consoles/values.html", token));
    assert_eq!(page("token-of-the-reader"), whole);
    assert_eq!(page("token-of-one-part"), part);
}
