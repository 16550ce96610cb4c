//! URL of a remote-write receiver, given by users as the complete URL or as that of the server.

/// Path at which all compatible systems accept remote write, including VictoriaMetrics.
const WRITE_PATH: &str = "/api/v1/write";

/// Returns the URL for remote write. The standard path is appended to a URL without a path, and the
/// scheme `http` is added to an address without one.
pub fn write_url(text: &str) -> String {
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let has_path = authority.trim_end_matches('/').contains(['/', '?', '#']);
    if has_path {
        url
    } else {
        format!("{}{WRITE_PATH}", url.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_without_a_path_gets_that_of_remote_write() {
        for (text, want) in [
            ("http://h:9090", "http://h:9090/api/v1/write"),
            ("http://h:9090/", "http://h:9090/api/v1/write"),
            ("https://u:p@h", "https://u:p@h/api/v1/write"),
            ("h:9090", "http://h:9090/api/v1/write"),
            ("[::1]:9090", "http://[::1]:9090/api/v1/write"),
            ("http://h/w", "http://h/w"),
            ("http://h/prom/api/v1/write", "http://h/prom/api/v1/write"),
            ("http://h?x=1", "http://h?x=1"),
        ] {
            assert_eq!(write_url(text), want, "{text}");
        }
    }
}
