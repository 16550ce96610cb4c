//! The URL of a receiver, as users give it: whole, or that of the server.

/// Where every compatible system takes remote write, VictoriaMetrics too.
const WRITE_PATH: &str = "/api/v1/write";

/// The URL to send to. A URL without a path is the server's, a text without a scheme its address.
pub fn write_url(text: &str) -> String {
    let url = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let has_path = authority.trim_end_matches('/').contains(['/', '?', '#']);
    match has_path {
        true => url,
        false => format!("{}{WRITE_PATH}", url.trim_end_matches('/')),
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
