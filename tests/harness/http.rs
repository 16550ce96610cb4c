//! Client for requests of the HTTP API.

use super::server::DEADLINE;
use serde_json::Value;
use std::time::Duration;

/// A client of one server.
#[derive(Clone)]
pub struct Http {
    agent: ureq::Agent,
    base: String,
    /// Headers of every request.
    headers: Vec<(String, String)>,
}

/// An answer; status 0 if there was none.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
    pub headers: ureq::http::HeaderMap,
}

impl Answer {
    /// Returns the header with this name, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("a header of text"))
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|e| panic!("{e}: status {}: {}", self.status, self.body))
    }
}

impl Http {
    /// Creates a client of the server at `address`.
    pub fn new(address: &str) -> Self {
        Self::patient(address, DEADLINE)
    }

    /// Creates a client with a longer timeout.
    pub fn patient(address: &str, longest: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(longest))
            .http_status_as_error(false)
            .build();
        Self {
            agent: config.into(),
            base: format!("http://{address}"),
            headers: Vec::new(),
        }
    }

    /// Returns a client that sends this header with every request.
    pub fn with_header(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    /// Returns a client of a tenant.
    pub fn of_tenant(&self, tenant: &str) -> Self {
        self.with_header("X-Scope-OrgID", tenant)
    }

    /// Adds the headers of every request to `request`.
    fn complete<B>(&self, mut request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[])
    }

    /// Sends a GET request with these headers.
    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.complete(self.agent.get(format!("{}{path}", self.base)));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(request.call())
    }

    /// Sends a DELETE request.
    pub fn delete(&self, path: &str) -> Answer {
        let request = self.agent.delete(format!("{}{path}", self.base));
        read(self.complete(request).call())
    }

    /// Sends a form with a POST request.
    pub fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let request = self.agent.post(format!("{}{path}", self.base));
        let request = self.complete(request);
        read(request.send_form(form.iter().copied()))
    }

    /// Sends bytes with these headers in a POST request.
    pub fn send(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = self.complete(self.agent.post(format!("{}{path}", self.base)));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(request.send(body))
    }

    /// Sends a compressed remote-write 2.0 body.
    pub fn write_2(&self, body: &[u8]) -> Answer {
        let headers = [
            ("Content-Encoding", "snappy"),
            (
                "Content-Type",
                "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            ),
            ("X-Prometheus-Remote-Write-Version", "2.0.0"),
        ];
        self.send("/api/v1/write", &headers, body)
    }

    /// Sends a compressed remote-write 1.0 body.
    pub fn write(&self, body: &[u8]) -> Answer {
        let headers = [
            ("Content-Encoding", "snappy"),
            ("Content-Type", "application/x-protobuf"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        self.send("/api/v1/write", &headers, body)
    }

    /// Returns the result of an instant query at `time_ms`; panics if the query fails.
    pub fn query(&self, expr: &str, time_ms: i64) -> Value {
        let time = format!("{}", time_ms as f64 / 1000.0);
        let answer = self.post("/api/v1/query", &[("query", expr), ("time", &time)]);
        assert_eq!(answer.status, 200, "{expr}: {}", answer.body);
        answer.json()["data"]["result"].take()
    }
}

fn read(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Answer {
    let none = |e: ureq::Error| Answer {
        status: 0,
        body: e.to_string(),
        headers: ureq::http::HeaderMap::new(),
    };
    match response {
        Err(e) => none(e),
        Ok(mut response) => {
            let status = response.status().as_u16();
            let headers = response.headers().clone();
            let reader = response.body_mut().with_config().limit(1 << 30);
            match reader.lossy_utf8(true).read_to_string() {
                Ok(body) => Answer {
                    status,
                    body,
                    headers,
                },
                Err(e) => none(e),
            }
        }
    }
}
