//! Validates the form of listening addresses: `HOST:PORT`, or `:PORT` for all interfaces.

/// Returns `text` if it has the form of an address. A host name is resolved later.
pub fn checked(text: &str) -> Result<String, String> {
    let wrong = |why: &str| {
        let form = "expected HOST:PORT, as in 127.0.0.1:9090, or :PORT for all interfaces";
        Err(format!("{why}: {text:?}; {form}"))
    };
    let Some((host, port)) = text.rsplit_once(':') else {
        return wrong("no port in address");
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    if bare.is_none() && host.contains([':', '[', ']', '/']) {
        return wrong(if host.contains('/') {
            "a URL instead of an address"
        } else {
            "an IPv6 address needs brackets, as in [::1]:9090"
        });
    }
    if bare.is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_err()) {
        return wrong("not an IPv6 address");
    }
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(_) if is_number => Ok(text.to_owned()),
        _ if port.is_empty() => wrong("no port in address"),
        _ if is_number => wrong("port out of range 0 to 65535 in address"),
        _ => wrong("port is not a number in address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_needs_a_port_that_exists() {
        for good in [
            "127.0.0.1:9090",
            ":0",
            "localhost:65535",
            "[::1]:80",
            "[::]:1",
        ] {
            assert_eq!(checked(good).as_deref(), Ok(good));
        }
        for (bad, why) in [
            (
                "nonsense",
                "no port in address: \"nonsense\"; expected HOST:PORT",
            ),
            ("", "no port in address: \"\""),
            ("127.0.0.1:", "no port in address: \"127.0.0.1:\""),
            ("127.0.0.1:65536", "port out of range 0 to 65535 in address"),
            ("127.0.0.1:http", "port is not a number"),
            ("127.0.0.1:+1", "port is not a number"),
            ("::1:9090", "an IPv6 address needs brackets"),
            ("[::x]:9090", "not an IPv6 address"),
            ("http://localhost:9090", "a URL instead of an address"),
        ] {
            let e = checked(bad).unwrap_err();
            assert!(e.starts_with(why), "{bad}: {e}");
        }
    }
}
