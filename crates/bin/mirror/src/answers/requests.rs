//! Recorded responses: the exact HTTP responses of a reference system to a list of requests, and
//! the comparison of another system's responses with them.
//!
//! ```text
//! same GET /api/v1/query query=up & time=1      compare the body, except for times
//! shape GET /api/v1/status/tsdb                 compare the names, order and types of the fields
//! samples GET /api/v1/query query=up & stats=all    compare only the sample statistics
//! same GET /api/v1/labels limit=[[1|x]]         [[a|b]] expands to a request with a, one with b
//! ```
//!
//! Parameters of a POST are sent as a form, all others in the URL. Each line of the file of
//! responses is `{"request": the line, "status", "type", "body"}`; the file is compressed with
//! gzip.

use crate::answers::queries::alternatives;
use crate::error::MirrorError;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use std::fmt::{self, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Timeout of a request, including the reading of its response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Fields whose values depend on the clock or on the directory of the config file.
const OF_CLOCK: [&str; 13] = [
    "evalTotalTime",
    "resultSortTime",
    "queryPreparationTime",
    "innerEvalTime",
    "execQueueTime",
    "execTotalTime",
    "lastScrape",
    "lastScrapeDuration",
    "lastEvaluation",
    "evaluationTime",
    "activeAt",
    "file",
    "groupNextToken",
];

/// Maximum time until a system has scraped and evaluated everything in its config.
const FILLED_WITHIN: Duration = Duration::from_secs(60);

/// Pause between two checks of whether a system is ready.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The part of a response body that is compared, as the first word of a line specifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedPart {
    Same,
    Shape,
    Samples,
}

/// A request of the text form, with alternatives expanded. It keeps its line, by which the file of
/// responses identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    kind: ComparedPart,
    method: String,
    path: String,
    params: Vec<(String, String)>,
    line: String,
}

impl Request {
    /// Parses a line whose alternatives have already been expanded; returns `None` if it is
    /// malformed.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let kind = match words.next()? {
            "same" => ComparedPart::Same,
            "shape" => ComparedPart::Shape,
            "samples" => ComparedPart::Samples,
            _ => return None,
        };
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let pair = |text: &str| {
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        let params = words.next().map_or(Some(Vec::new()), |text| {
            text.split(" & ").map(pair).collect()
        })?;
        Some(Self {
            kind,
            method,
            path,
            params,
            line: line.to_owned(),
        })
    }

    /// Sends the request to the system at `base` and returns the part of the response that is
    /// compared.
    fn send_and_extract(
        &self,
        agent: &ureq::Agent,
        base: &str,
    ) -> Result<AnsweredRequest, MirrorError> {
        let form = encoded(&self.params);
        let address = format!("{}{}", base.trim_end_matches('/'), self.path);
        let is_form = self.method == "POST";
        let address = if is_form || form.is_empty() {
            address
        } else {
            format!("{address}?{form}")
        };
        let request = ureq::http::Request::builder()
            .method(self.method.as_str())
            .uri(&address)
            .header("Accept-Encoding", "identity");
        let refused = |e: ureq::http::Error| MirrorError::Usage(format!("{}: {e}", self.line));
        let answer = if is_form {
            let form_type = "application/x-www-form-urlencoded";
            let request = request.header("Content-Type", form_type);
            agent.run(request.body(form).map_err(refused)?)
        } else {
            agent.run(request.body(()).map_err(refused)?)
        };
        let answer = answer.map_err(MirrorError::transport(&address))?;
        let status = answer.status().as_u16();
        let content_type = answer.headers().get("content-type");
        let content_type = content_type.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let body = answer.into_body().read_to_vec();
        let body = body.map_err(MirrorError::transport(&address))?;
        Ok(AnsweredRequest {
            request: self.clone(),
            status,
            content_type: content_type.unwrap_or_default(),
            body: self.kind.extract_part(&String::from_utf8_lossy(&body)),
        })
    }
}

impl ComparedPart {
    /// Returns the part of `body` that is compared, for this kind of request.
    fn extract_part(self, body: &str) -> String {
        match self {
            ComparedPart::Same => mask_clock_fields(body),
            ComparedPart::Shape => serde_json::from_str(body)
                .map_or_else(|_| body.to_owned(), |shape: JsonShape| shape.to_string()),
            ComparedPart::Samples => {
                let body: Value = serde_json::from_str(body).unwrap_or_default();
                body["data"]["stats"]["samples"].to_string()
            }
        }
    }

    /// Returns whether `actual` matches `expected`. A shape may contain additional fields, as a
    /// newer version may add them.
    fn accepts(self, expected: &str, actual: &str) -> bool {
        match self {
            // The recorded body may date from a time when fewer fields were masked.
            ComparedPart::Same => mask_clock_fields(expected) == actual,
            ComparedPart::Samples => expected == actual,
            ComparedPart::Shape => {
                let mut left = actual.lines();
                expected.lines().all(|line| left.any(|own| own == line))
            }
        }
    }
}

/// Encodes names and values of parameters as `application/x-www-form-urlencoded`, for a URL or a
/// body.
fn encoded(params: &[(String, String)]) -> String {
    let mut form = String::new();
    for (name, value) in params {
        if !form.is_empty() {
            form.push('&');
        }
        push_encoded(&mut form, name);
        form.push('=');
        push_encoded(&mut form, value);
    }
    form
}

fn push_encoded(form: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                form.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            _ => drop(write!(form, "%{byte:02X}")),
        }
    }
}

/// Returns `text` with the values of the fields in [`OF_CLOCK`] replaced by zeros.
fn mask_clock_fields(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((at, field)) = next_field(rest) {
        let start = at + field.len();
        let value = &rest[start..];
        let len = match value.strip_prefix('"') {
            Some(text) => text.find('"').map_or(value.len(), |end| end + 2),
            None => value.find([',', '}']).unwrap_or(value.len()),
        };
        out += &rest[..start];
        out.push('0');
        rest = &value[len..];
    }
    out + rest
}

/// Returns the position and the quoted name of the next field that is in [`OF_CLOCK`].
fn next_field(text: &str) -> Option<(usize, String)> {
    let fields = OF_CLOCK.iter().filter_map(|name| {
        let field = format!("\"{name}\":");
        Some((text.find(&field)?, field))
    });
    fields.min_by_key(|(at, _)| *at)
}

/// The structure of a JSON document without its values. It is printed as one line per field, and
/// lists are represented by their first element.
#[derive(Debug)]
enum JsonShape {
    Word(&'static str),
    Object(Vec<(String, JsonShape)>),
    List(Option<Box<JsonShape>>),
}

impl fmt::Display for JsonShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines(f, "")
    }
}

impl JsonShape {
    fn lines(&self, f: &mut fmt::Formatter<'_>, path: &str) -> fmt::Result {
        match self {
            JsonShape::Word(word) => writeln!(f, "{path} {word}"),
            JsonShape::Object(fields) => {
                writeln!(f, "{path} object")?;
                (fields.iter())
                    .try_for_each(|(name, value)| value.lines(f, &format!("{path}.{name}")))
            }
            JsonShape::List(first) => {
                writeln!(f, "{path} list")?;
                match first {
                    Some(first) => first.lines(f, &format!("{path}[]")),
                    None => Ok(()),
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for JsonShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonShapeVisitor)
    }
}

struct JsonShapeVisitor;

impl<'de> Visitor<'de> for JsonShapeVisitor {
    type Value = JsonShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<JsonShape, E> {
        Ok(JsonShape::Word("boolean"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<JsonShape, E> {
        Ok(JsonShape::Word("number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<JsonShape, E> {
        Ok(JsonShape::Word("number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<JsonShape, E> {
        Ok(JsonShape::Word("number"))
    }

    fn visit_str<E>(self, _: &str) -> Result<JsonShape, E> {
        Ok(JsonShape::Word("text"))
    }

    fn visit_unit<E>(self) -> Result<JsonShape, E> {
        Ok(JsonShape::Word("null"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonShape, A::Error> {
        let mut first = None;
        while let Some(element) = list.next_element()? {
            first = first.or_else(|| Some(Box::new(element)));
        }
        Ok(JsonShape::List(first))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<JsonShape, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(JsonShape::Object(fields))
    }
}

/// A request and the response of a system to it, reduced to the part that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredRequest {
    request: Request,
    status: u16,
    content_type: String,
    body: String,
}

impl AnsweredRequest {
    /// Encodes the request and its response as one line of the file.
    fn to_line(&self) -> String {
        json!({
            "request": self.request.line,
            "status": self.status,
            "type": self.content_type,
            "body": self.body,
        })
        .to_string()
    }

    fn parse_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| Some(value[name].as_str()?.to_owned());
        Some(Self {
            request: Request::parse(value["request"].as_str()?)?,
            status: u16::try_from(value["status"].as_u64()?).ok()?,
            content_type: text("type")?,
            body: text("body")?,
        })
    }

    /// Decodes a gzip-compressed file. Fails with the number of the first line that is malformed.
    pub fn unpack(file: &[u8]) -> Result<Vec<Self>, MirrorError> {
        let text = super::unpacked(file)?;
        let line = |(number, line): (usize, &str)| {
            Self::parse_line(line).ok_or_else(|| {
                MirrorError::Usage(format!("line {} is not an answered request", number + 1))
            })
        };
        text.lines().enumerate().map(line).collect()
    }

    /// Encodes `all` as a gzip-compressed file with one line per response, in their order.
    /// [`AnsweredRequest::unpack`] reads it.
    pub fn pack(all: &[Self]) -> Result<Vec<u8>, MirrorError> {
        super::packed(all.iter().map(Self::to_line))
    }
}

/// Parses the text form; requests keep the order of the lines. Fails with the number of the first
/// line that is malformed.
pub fn parse(text: &str) -> Result<Vec<Request>, MirrorError> {
    let mut requests = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refuse = || MirrorError::Usage(format!("line {}: cannot be read: {line}", number + 1));
        for line in alternatives(line).ok_or_else(refuse)? {
            requests.push(Request::parse(&line).ok_or_else(refuse)?);
        }
    }
    Ok(requests)
}

/// Returns the responses of the system at `base` to each of `requests`, in their order. Fails with
/// the first request that gets no response.
pub fn record(base: &str, requests: &[Request]) -> Result<Vec<AnsweredRequest>, MirrorError> {
    let agent = agent();
    requests
        .iter()
        .map(|r| r.send_and_extract(&agent, base))
        .collect()
}

/// Waits until the system at `base` has scraped its targets, evaluated its rules, discovered its
/// Alertmanagers and stored the series of its alerts. Fails if all of this takes longer than a
/// minute.
pub fn wait_filled(base: &str) -> Result<(), MirrorError> {
    let agent = agent();
    let looks = [
        ("/api/v1/targets", "\"health\":\"", "\"health\":\"unknown\""),
        (
            "/api/v1/rules",
            "\"health\":\"ok\"",
            "\"health\":\"unknown\"",
        ),
        ("/api/v1/alertmanagers", "\"url\"", "\"lastError\""),
        ("/api/v1/alerts", "\"state\":\"firing\"", "\"data\":null"),
        // The API lists an alert before the alert's series are stored.
        (
            "/api/v1/label/alertname/values",
            "[\"Firing\",\"Pending\"]",
            "\"data\":[]",
        ),
    ];
    let end = Instant::now() + FILLED_WITHIN;
    for (path, wanted, unwanted) in looks {
        let request = Request::parse(&format!("same GET {path}"));
        let request = request.ok_or_else(|| MirrorError::Usage(path.to_owned()))?;
        loop {
            let body = request.send_and_extract(&agent, base)?.body;
            if body.contains(wanted) && !body.contains(unwanted) {
                break;
            }
            if Instant::now() > end {
                let url = format!("{base}{path}");
                return Err(MirrorError::Answer { url, what: body });
            }
            sleep(LOOK_PAUSE);
        }
    }
    Ok(())
}

/// Sends the recorded requests to the system at `base` and returns a description of each response
/// that differs from the recorded one.
pub fn check(base: &str, answered: &[AnsweredRequest]) -> Result<Vec<String>, MirrorError> {
    let agent = agent();
    let mut failures = Vec::new();
    for expected in answered {
        let actual = expected.request.send_and_extract(&agent, base)?;
        let is_equal = (expected.status, &expected.content_type)
            == (actual.status, &actual.content_type)
            && expected.request.kind.accepts(&expected.body, &actual.body);
        if !is_equal {
            let said =
                |a: &AnsweredRequest| format!("{} {} {}", a.status, a.content_type, a.body.trim());
            failures.push(format!(
                "{}\n    expected {}\n    got      {}",
                expected.request.line,
                said(expected),
                said(&actual)
            ));
        }
    }
    Ok(failures)
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(ANSWER_TIMEOUT))
        .max_redirects(0)
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .build();
    config.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_a_request_with_its_parameters_as_a_form() {
        let requests = parse("# none\n\nsame GET /a match[]=[[x{y=\"&\"}|z]] & limit=\n").unwrap();
        let forms: Vec<String> = requests.iter().map(|r| encoded(&r.params)).collect();
        let expected = [
            "match%5B%5D=x%7By%3D%22%26%22%7D&limit=",
            "match%5B%5D=z&limit=",
        ];
        assert_eq!(forms, expected);
        for line in ["equal GET /a", "same GET", "same GET /a b"] {
            let e = parse(&format!("same GET /a\n{line}")).unwrap_err();
            assert_eq!(e.to_string(), format!("line 2: cannot be read: {line}"));
        }
    }

    #[test]
    fn bodies_are_compared_as_their_kind_says() {
        let timed = r#"{"evalTotalTime":0.25,"execQueueTime":1e-5}"#;
        assert_eq!(
            ComparedPart::Same.extract_part(timed),
            r#"{"evalTotalTime":0,"execQueueTime":0}"#
        );
        let listed = r#"[{"file":"a","x":"b","lastScrape":"c"},{"lastScrape":"","file":"d"}]"#;
        assert_eq!(
            ComparedPart::Same.extract_part(listed),
            r#"[{"file":0,"x":"b","lastScrape":0},{"lastScrape":0,"file":0}]"#
        );
        let shape = ComparedPart::Shape.extract_part(r#"{"b":[{"c":1},{"c":"x"}],"a":null}"#);
        assert_eq!(
            shape,
            " object\n.b list\n.b[] object\n.b[].c number\n.a null\n"
        );
        let more = ComparedPart::Shape.extract_part(r#"{"b":[{"c":2,"d":true}],"a":null,"e":[]}"#);
        assert!(ComparedPart::Shape.accepts(&shape, &more));
        assert!(!ComparedPart::Shape.accepts(&more, &shape));
        let samples = r#"{"data":{"stats":{"samples":{"peakSamples":3}}}}"#;
        assert_eq!(
            ComparedPart::Samples.extract_part(samples),
            r#"{"peakSamples":3}"#
        );
    }

    #[test]
    fn answered_request_reads_back_equal() {
        let answered = AnsweredRequest {
            request: Request::parse("same POST /a b=c").unwrap(),
            status: 400,
            content_type: "application/json".to_owned(),
            body: "{}\n".to_owned(),
        };
        let file = AnsweredRequest::pack(std::slice::from_ref(&answered)).unwrap();
        assert_eq!(AnsweredRequest::unpack(&file).unwrap(), [answered]);
    }
}
