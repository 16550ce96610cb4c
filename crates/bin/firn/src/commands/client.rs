//! HTTP client of the subcommands: sends one request at a time with the client that scraping uses.
//!
//! A server is a URL with an optional scheme. A user in the URL is sent as basic authentication.
//! `--http.config.file` sets everything else, in the keys of a config's `http_config`.

use clap::{Arg, ArgMatches, value_parser};
use firn_config::config;
use firn_http_client::{
    AuthMethod, BodyLimit, HttpClient, HttpSettings, Secret, form_encode, read_body,
};
use firn_remote_write::forward::split_user_info;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{StatusCode, Uri};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Maximum time to wait for a response, as in promtool.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum size of a response in bytes: more than any terminal or script can use.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Names and values of the parameters of a request, not yet percent-encoded.
pub(super) type Params<'a> = Vec<(&'a str, String)>;

/// Error of a request that got no response from the server, or that could not be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandClientError {
    /// The command line or the HTTP config file is invalid.
    #[error("{0}")]
    Settings(String),
    /// The connection failed, the response is not HTTP, or the request timed out.
    #[error("{0}")]
    Transport(String),
}

/// Returns the flag for the file with HTTP client settings.
pub(super) fn http_config() -> Arg {
    Arg::new("http.config.file")
        .long("http.config.file")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help(
            "File with HTTP client settings (credentials, TLS, proxy), with the keys of a scrape \
             config",
        )
}

/// Returns the path in the flag [`http_config`], if it is set.
pub(super) fn http_config_of(matches: &ArgMatches) -> Option<&PathBuf> {
    matches.get_one::<PathBuf>("http.config.file")
}

/// Client for the requests of a subcommand to one server, with its own runtime. Requests block the
/// thread.
pub(super) struct CommandClient {
    runtime: Runtime,
    client: HttpClient,
    base: String,
    headers: HeaderMap,
    timeout: Duration,
}

/// Complete response of a server, with any status. The caller interprets status and body.
pub(super) struct CommandResponse {
    /// URL of the request, for error messages.
    pub(super) url: String,
    /// HTTP status of the response.
    pub(super) status: StatusCode,
    /// Complete body of the response, at most [`ANSWER_BYTES_MAX`] bytes.
    pub(super) body: Vec<u8>,
}

impl CommandClient {
    /// Creates a client of `server` that sends `headers` with every request.
    pub(super) fn new(
        server: &str,
        http_config: Option<&Path>,
        headers: &[(String, String)],
    ) -> Result<Self, CommandClientError> {
        let wrong = CommandClientError::Settings;
        let scheme = if server.contains("://") {
            ""
        } else {
            "http://"
        };
        let (base, user) = split_user_info(&format!("{scheme}{server}"));
        let mut settings = match http_config {
            None => HttpSettings::default(),
            Some(_) if user.is_some() => {
                return Err(wrong(
                    "Cannot set base auth in the server URL and use a http.config.file at the \
                     same time"
                        .into(),
                ));
            }
            Some(file) => config::load_http(file)
                .map_err(|e| wrong(format!("Failed to load HTTP config file: {e}")))?,
        };
        if let Some((user, password)) = user {
            settings.auth = AuthMethod::Basic {
                username: Some(Secret::Inline(user)),
                password: Some(Secret::Inline(password)),
            };
        }
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let key = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong(format!("not a valid header name: {name:?}")))?;
            let text = HeaderValue::from_str(value)
                .map_err(|_| wrong(format!("not a valid header value: {value:?}")))?;
            all.append(key, text);
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            runtime: runtime.map_err(|e| wrong(e.to_string()))?,
            client: HttpClient::new(settings),
            base: base.trim_end_matches('/').to_owned(),
            headers: all,
            timeout: TIMEOUT,
        })
    }

    /// Returns the client with another timeout instead of [`TIMEOUT`].
    pub(super) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends a GET request for `path`, with `params` in the URL.
    pub(super) fn get(
        &self,
        path: &str,
        params: &Params<'_>,
    ) -> Result<CommandResponse, CommandClientError> {
        let query = if params.is_empty() {
            String::new()
        } else {
            format!("?{}", encode(params))
        };
        self.send_request(&format!("{path}{query}"), &[], None)
    }

    /// Sends a POST request for `path`, with `params` as a form.
    pub(super) fn post_form(
        &self,
        path: &str,
        params: &Params<'_>,
    ) -> Result<CommandResponse, CommandClientError> {
        let form = [(CONTENT_TYPE, "application/x-www-form-urlencoded")];
        self.send_request(path, &form, Some(encode(params).into_bytes()))
    }

    /// Sends a POST request with `body` and `headers`. The headers of the client take precedence
    /// over these.
    pub(super) fn post(
        &self,
        path: &str,
        headers: &[(HeaderName, &'static str)],
        body: Vec<u8>,
    ) -> Result<CommandResponse, CommandClientError> {
        self.send_request(path, headers, Some(body))
    }

    fn send_request(
        &self,
        path: &str,
        added: &[(HeaderName, &'static str)],
        body: Option<Vec<u8>>,
    ) -> Result<CommandResponse, CommandClientError> {
        let url = format!("{}{path}", self.base);
        let uri: Uri = url
            .parse()
            .map_err(|e| CommandClientError::Settings(format!("parse {url:?}: {e}")))?;
        let mut headers = self.headers.clone();
        for (name, value) in added {
            if !headers.contains_key(name) {
                headers.insert(name.clone(), HeaderValue::from_static(value));
            }
        }
        let asked = async {
            let response = match body {
                None => self.client.get(&uri, &headers).await?,
                Some(body) => self.client.post(&uri, &headers, body.into()).await?,
            };
            let status = response.status();
            let body = read_body(response, BodyLimit::from_bytes_max(ANSWER_BYTES_MAX)).await?;
            Ok::<_, firn_model::error::Error>((status, body.bytes))
        };
        let limited = async { tokio::time::timeout(self.timeout, asked).await };
        match self.runtime.block_on(limited) {
            Ok(Ok((status, body))) => Ok(CommandResponse { url, status, body }),
            Ok(Err(e)) => Err(CommandClientError::Transport(e.message)),
            Err(_) => Err(CommandClientError::Transport(format!(
                "{url}: no answer within {} s",
                self.timeout.as_secs()
            ))),
        }
    }
}

fn encode(params: &Params<'_>) -> String {
    let pairs = params
        .iter()
        .map(|(name, value)| format!("{}={}", form_encode(name), form_encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}
