//! Selection of the proxy for a request, with the rules of Prometheus.
//!
//! ```text
//! proxy_url               -> for every request
//! proxy_url and no_proxy  -> for every request, except to this machine and to hosts in no_proxy
//! proxy_from_environment  -> the same with HTTP_PROXY, HTTPS_PROXY and NO_PROXY
//! ```
//!
//! The rules follow `golang.org/x/net/http/httpproxy`.

use super::no_proxy::{NoProxy, NoProxyTarget};
use super::settings::ProxySettings;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;
use percent_encoding::percent_decode_str;
use std::fmt;

/// A proxy server, with its protocol and the credentials in its URL.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    /// Address of the proxy, including the port.
    pub(super) uri: Uri,
    pub(super) kind: ProxyKind,
    /// User and password, if the proxy URL contains them.
    pub(super) user: Option<(String, String)>,
}

/// The protocol with which a proxy is used: HTTP or SOCKS 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyKind {
    /// HTTP; over TLS if the scheme of the address is `https`.
    Http,
    Socks,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.uri)
    }
}

/// Rules that select the proxy of a request by its URL.
#[derive(Clone, Debug, Default)]
pub(super) struct ProxyRules {
    http: Option<Proxy>,
    https: Option<Proxy>,
    /// Hosts that are reached directly; `None` if all requests use the proxy.
    direct: Option<NoProxy>,
    /// Whether this process runs as a CGI program, in which case a client could have set
    /// `HTTP_PROXY`.
    is_cgi: bool,
}

impl ProxyRules {
    /// Creates the rules from `settings`. Environment variables are read with `variable`.
    pub(super) fn new(
        settings: &ProxySettings,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        if settings.is_from_environment {
            return Ok(Self::from_environment(variable));
        }
        let Some(url) = &settings.url else {
            return Ok(Self::default());
        };
        let has_exceptions = !settings.no_proxy.is_empty();
        let proxy = if has_exceptions {
            Proxy::parse_variable(url)
        } else {
            Proxy::parse_url(url)
        };
        let proxy = Some(proxy.map_err(|e| format!("proxy_url {url:?}: {e}"))?);
        Ok(Self {
            http: proxy.clone(),
            https: proxy,
            direct: has_exceptions.then(|| NoProxy::new(&settings.no_proxy)),
            is_cgi: false,
        })
    }

    fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let either = |name: &str| variable(&name.to_ascii_lowercase()).or_else(|| variable(name));
        // As in Go, a malformed proxy address is ignored.
        let proxy = |name| either(name).and_then(|url| Proxy::parse_variable(&url).ok());
        Self {
            http: proxy("HTTP_PROXY"),
            https: proxy("HTTPS_PROXY"),
            direct: Some(NoProxy::new(&either("NO_PROXY").unwrap_or_default())),
            is_cgi: variable("REQUEST_METHOD").is_some(),
        }
    }

    /// Returns the proxy for a request to `uri`, or `None` if it is sent directly.
    pub(super) fn proxy_for(&self, uri: &Uri) -> Result<Option<&Proxy>, String> {
        let is_secure = uri.scheme_str() == Some("https");
        let Some(proxy) = (if is_secure { &self.https } else { &self.http }) else {
            return Ok(None);
        };
        if self.is_cgi && !is_secure {
            return Err("refusing to use HTTP_PROXY value in CGI environment; see \
                 golang.org/s/cgihttpproxy"
                .into());
        }
        let is_direct = self
            .direct
            .as_ref()
            .is_some_and(|direct| direct.contains(&NoProxyTarget::from_uri(uri)));
        Ok((!is_direct).then_some(proxy))
    }
}

impl Proxy {
    /// Parses a proxy URL, or `host:port` as an HTTP proxy.
    fn parse_variable(text: &str) -> Result<Self, String> {
        Self::parse_url(text).or_else(|e| Self::parse_url(&format!("http://{text}")).map_err(|_| e))
    }

    fn parse_url(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("no scheme, such as http://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (user, host) = match rest[..end].rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, &rest[..end]),
        };
        let (scheme, kind, port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => ("http", ProxyKind::Http, Some(80)),
            "https" => ("https", ProxyKind::Http, Some(443)),
            "socks5" | "socks5h" => ("socks5", ProxyKind::Socks, Some(1080)),
            // As in Go, a proxy with an unknown scheme is an HTTP proxy.
            _ => ("http", ProxyKind::Http, None),
        };
        let host = host.strip_suffix(':').unwrap_or(host);
        let bare: Uri = format!("{scheme}://{host}")
            .parse()
            .map_err(|e| format!("{e}"))?;
        let name = bare
            .host()
            .filter(|name| !name.is_empty())
            .ok_or("no host")?;
        let has_port = bare.authority().is_some_and(|a| a.as_str() != name);
        let port = if has_port {
            bare.port_u16().ok_or("invalid port")?
        } else {
            port.ok_or("no port")?
        };
        let uri = format!("{scheme}://{name}:{port}").parse();
        let decode = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Ok(Self {
            uri: uri.map_err(|e| format!("{e}"))?,
            kind,
            user: user.map(|user| {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                (decode(user), decode(password))
            }),
        })
    }

    /// Returns the `Proxy-Authorization` header if the proxy URL contains a user.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = self.user.as_ref()?;
        let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
        let mut value = HeaderValue::from_str(&format!("Basic {encoded}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the proxy for a request to `url`, with the environment variables in `variables`,
    /// which has the form `NAME=value ..`.
    fn of_environment(variables: &str, url: &str) -> Result<String, String> {
        let settings = ProxySettings {
            is_from_environment: true,
            ..ProxySettings::default()
        };
        check(&settings, variables, url)
    }

    fn check(settings: &ProxySettings, variables: &str, url: &str) -> Result<String, String> {
        let rules = ProxyRules::new(settings, |wanted| {
            let mut all = variables
                .split_whitespace()
                .filter_map(|it| it.split_once('='));
            let (_, value) = all.find(|(name, _)| *name == wanted)?;
            Some(value.to_owned())
        })?;
        let proxy = rules.proxy_for(&url.parse().unwrap())?;
        Ok(proxy.map_or("direct".into(), |proxy| format!("{proxy:?}")))
    }

    #[test]
    fn environment_names_proxies_as_in_go() {
        for (variables, url, want) in [
            ("", "http://a/", "direct"),
            ("HTTP_PROXY=http://p:1", "http://a/", "http://p:1/"),
            ("HTTP_PROXY=http://p:1", "https://a/", "direct"),
            ("HTTPS_PROXY=http://p:1", "https://a/", "http://p:1/"),
            ("HTTPS_PROXY=http://p:1", "http://a/", "direct"),
            ("ALL_PROXY=http://p:1", "http://a/", "direct"),
            (
                "HTTP_PROXY=http://u:1 http_proxy=http://l:1",
                "http://a/",
                "http://l:1/",
            ),
            (
                "HTTP_PROXY=http://u:1 http_proxy=",
                "http://a/",
                "http://u:1/",
            ),
            ("Http_Proxy=http://u:1", "http://a/", "direct"),
            ("HTTP_PROXY=http://p:1", "http://localhost:9/", "direct"),
            ("HTTP_PROXY=http://p:1", "http://127.0.0.1:9/", "direct"),
            ("HTTP_PROXY=http://p:1", "http://[::1]:9/", "direct"),
            ("HTTP_PROXY=http://p:1", "http://127.1.2.3/", "direct"),
            ("HTTP_PROXY=http://p:1 NO_PROXY=a", "http://a/", "direct"),
            (
                "HTTP_PROXY=http://p:1 no_proxy=b NO_PROXY=a",
                "http://a/",
                "http://p:1/",
            ),
            ("HTTP_PROXY=p:1", "http://a/", "http://p:1/"),
            ("HTTP_PROXY=p", "http://a/", "http://p:80/"),
            (
                "HTTP_PROXY=10.0.0.1:8080",
                "http://a/",
                "http://10.0.0.1:8080/",
            ),
            ("HTTP_PROXY=https://p", "http://a/", "https://p:443/"),
            ("HTTP_PROXY=socks5://p", "http://a/", "socks5://p:1080/"),
            ("HTTP_PROXY=socks5h://p:2", "http://a/", "socks5://p:2/"),
            ("HTTP_PROXY=p:x", "http://a/", "direct"),
            (
                "HTTPS_PROXY=http://p:1 REQUEST_METHOD=GET",
                "https://a/",
                "http://p:1/",
            ),
        ] {
            let got = of_environment(variables, url);
            assert_eq!(got.as_deref(), Ok(want), "{variables} {url}");
        }
        let cgi = of_environment("HTTP_PROXY=http://p:1 REQUEST_METHOD=GET", "http://a/");
        assert!(cgi.unwrap_err().contains("CGI"));
    }

    #[test]
    fn proxy_url_serves_all_but_what_no_proxy_excepts() {
        for (proxy, no_proxy, url, want) in [
            ("http://p:1", "", "http://localhost/", "http://p:1/"),
            ("http://p:1", "", "https://127.0.0.1/", "http://p:1/"),
            ("http://p:1", "x", "http://localhost/", "direct"),
            ("http://p:1", "x", "https://127.0.0.1/", "direct"),
            ("http://p:1", "x", "http://x/", "direct"),
            ("http://p:1", "x", "http://y/", "http://p:1/"),
            (
                "http://user:pa%40ss@p:1/path?q",
                "",
                "http://y/",
                "http://p:1/",
            ),
            ("p:1", "x", "http://y/", "http://p:1/"),
            ("other://p:1", "", "http://y/", "http://p:1/"),
            ("http://[::1]:1", "", "http://y/", "http://[::1]:1/"),
            (
                "p:1",
                "",
                "http://y/",
                "proxy_url \"p:1\": no scheme, such as http://",
            ),
            ("http://", "", "http://y/", "proxy_url"),
        ] {
            let settings = ProxySettings {
                url: Some(proxy.to_owned()),
                no_proxy: no_proxy.to_owned(),
                ..ProxySettings::default()
            };
            let (Ok(got) | Err(got)) = check(&settings, "HTTP_PROXY=http://env:1", url);
            assert!(got.starts_with(want), "{proxy} {no_proxy} {url}: {got}");
        }
    }
}
