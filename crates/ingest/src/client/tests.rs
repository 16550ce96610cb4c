//! References on pages; what goes over the wire is tested against servers in `tests/blackbox`.

use super::*;

#[test]
fn resolve_follows_references_of_every_form() {
    let base: Uri = "http://host:1/a/b/c?q=1".parse().unwrap();
    for (reference, want) in [
        ("https://other/x", "https://other/x"),
        ("//other:2/x?y=1", "http://other:2/x?y=1"),
        ("/x", "http://host:1/x"),
        ("x", "http://host:1/a/b/x"),
        ("./x", "http://host:1/a/b/x"),
        ("../x?to=http://y", "http://host:1/a/x?to=http://y"),
        ("../../../x", "http://host:1/x"),
        ("..", "http://host:1/a/"),
        ("?q=2", "http://host:1/a/b/c?q=2"),
        ("#part", "http://host:1/a/b/c?q=1"),
    ] {
        let got = resolve(&base, reference).map(|uri| uri.to_string());
        assert_eq!(got.as_deref(), Some(want), "{reference}");
    }
}
