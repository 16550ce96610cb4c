//! XML-RPC client: <http://xmlrpc.com/spec.md>.
//!
//! ```text
//! method, params -> methodCall -> POST -> methodResponse -> value, as JSON
//! ```
//!
//! Invariant: responses that are nested deeper than [`DEPTH_MAX`] are rejected.

use super::api::{ApiClient, ApiResponse, invalid_response_error};
use super::xml::{child_text, find_child, find_children, parse};
use firn_model::error::Error;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use roxmltree::Node;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Maximum nesting depth of values.
const DEPTH_MAX: usize = 32;

/// A parameter of a method call, in the types that callers need.
pub(super) enum XmlRpcParam<'p> {
    Text(&'p str),
    Number(i64),
    Numbers(&'p [i64]),
}

/// Calls `method` of the service at `url` and deserializes the returned value. A fault in the
/// response is an error.
pub(super) async fn call_method<T: DeserializeOwned>(
    api: &ApiClient,
    url: &str,
    method: &str,
    params: &[XmlRpcParam<'_>],
) -> Result<T, Error> {
    let kind = HeaderValue::from_static("text/xml");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
    let body = encode(method, params);
    let answer: ApiResponse = api.post(url, &headers, body.into()).await?;
    if !answer.status.is_success() {
        let status = answer.status.as_u16();
        let message = format!("request error: bad status code - {status}");
        return Err(invalid_response_error(message));
    }
    let value = decode(answer.text()?)?;
    serde_json::from_value(value)
        .map_err(|e| invalid_response_error(format!("cannot read the answer: {e}")))
}

fn encode(method: &str, params: &[XmlRpcParam<'_>]) -> String {
    let int = |number: &i64| format!("<value><int>{number}</int></value>");
    let mut body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><methodCall><methodName>{method}</methodName>\
         <params>"
    );
    for param in params {
        let value = match param {
            XmlRpcParam::Text(text) => {
                format!("<value><string>{}</string></value>", escape_text(text))
            }
            XmlRpcParam::Number(number) => int(number),
            XmlRpcParam::Numbers(numbers) => {
                let items: String = numbers.iter().map(int).collect();
                format!("<value><array><data>{items}</data></array></value>")
            }
        };
        body += &format!("<param>{value}</param>");
    }
    body + "</params></methodCall>"
}

fn escape_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            c => out.push(c),
        }
    }
    out
}

/// Decodes the value in a response as JSON. A fault is returned as an error.
pub(crate) fn decode(answer: &str) -> Result<Value, Error> {
    let document = parse(answer)?;
    let root = document.root_element();
    if let Some(fault) = find_child(root, "fault").and_then(|fault| find_child(fault, "value")) {
        let fault = decode_value(fault, DEPTH_MAX)?;
        return Err(invalid_response_error(format!(
            "Fault({}): {}",
            fault["faultCode"],
            fault["faultString"].as_str().unwrap_or_default()
        )));
    }
    let params = find_child(root, "params").and_then(|params| find_child(params, "param"));
    match params.and_then(|param| find_child(param, "value")) {
        Some(node) => decode_value(node, DEPTH_MAX),
        None => Err(invalid_response_error(
            "cannot read the answer: no value in it",
        )),
    }
}

fn decode_value(node: Node<'_, '_>, depth_left: usize) -> Result<Value, Error> {
    let Some(left) = depth_left.checked_sub(1) else {
        return Err(invalid_response_error(
            "cannot read the response: it is nested too deeply",
        ));
    };
    // A value without a type element is a string.
    let Some(kind) = node.children().find(Node::is_element) else {
        return Ok(node.text().unwrap_or_default().trim().into());
    };
    let inner = kind.text().unwrap_or_default();
    let bad = || invalid_response_error(format!("cannot read the answer: not a number: {inner:?}"));
    Ok(match kind.tag_name().name() {
        "int" | "i4" | "i8" => inner.trim().parse::<i64>().map_err(|_| bad())?.into(),
        "double" => inner.trim().parse::<f64>().map_err(|_| bad())?.into(),
        "boolean" => matches!(inner.trim(), "1" | "true").into(),
        "array" => {
            let items = find_child(kind, "data");
            let items = items
                .into_iter()
                .flat_map(|data| find_children(data, "value"));
            items
                .map(|item| decode_value(item, left))
                .collect::<Result<Vec<Value>, Error>>()?
                .into()
        }
        "struct" => {
            let mut members = Map::new();
            for member in find_children(kind, "member") {
                if let Some(node) = find_child(member, "value") {
                    members.insert(
                        child_text(member, "name").to_owned(),
                        decode_value(node, left)?,
                    );
                }
            }
            members.into()
        }
        "nil" => Value::Null,
        _ => inner.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::damage_bytes;
    use firn_model::env::sim::SimRng;
    use serde_json::json;

    #[test]
    fn call_holds_its_params_by_type() {
        let params = [
            XmlRpcParam::Text("a<b&c"),
            XmlRpcParam::Number(-1),
            XmlRpcParam::Numbers(&[1, 2]),
        ];
        assert_eq!(
            encode("auth.login", &params),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><methodCall><methodName>auth.login\
             </methodName><params><param><value><string>a&lt;b&amp;c</string></value></param>\
             <param><value><int>-1</int></value></param><param><value><array><data><value>\
             <int>1</int></value><value><int>2</int></value></data></array></value></param>\
             </params></methodCall>"
        );
    }

    #[test]
    fn answer_is_read_as_json_and_a_fault_as_an_error() {
        let of = |value: &str| {
            let answer =
                format!("<methodResponse><params><param>{value}</param></params></methodResponse>");
            decode(&answer).map_err(|e| e.message)
        };
        let got = of(
            "<value><array><data><value><struct><member><name>id</name><value><i4>7</i4></value>\
             </member><member><name>on</name><value><boolean>1</boolean></value></member>\
             <member><name>plain</name><value> x </value></member></struct></value>\
             <value><nil/></value><value><double>1.5</double></value></data></array></value>",
        );
        let want = json!([{"id": 7, "on": true, "plain": "x"}, null, 1.5]);
        assert_eq!(got, Ok(want));
        let deep = "<value><array><data>".repeat(40) + &"</data></array></value>".repeat(40);
        for (value, want) in [
            (
                "<value><int>x</int></value>",
                "cannot read the answer: not a number: \"x\"",
            ),
            ("", "cannot read the answer: no value in it"),
            (&deep, "cannot read the response: it is nested too deeply"),
        ] {
            assert_eq!(of(value).unwrap_err(), want);
        }
        let fault = "<methodResponse><fault><value><struct><member><name>faultCode</name><value>\
                     <int>2950</int></value></member><member><name>faultString</name><value>\
                     Either the password or username is incorrect.</value></member></struct>\
                     </value></fault></methodResponse>";
        assert_eq!(
            decode(fault).unwrap_err().message,
            "Fault(2950): Either the password or username is incorrect."
        );
    }

    #[test]
    fn answer_that_is_damaged_is_a_value_or_an_error() {
        let whole = "<?xml version=\"1.0\"?><methodResponse><params><param><value><array><data>\
                     <value><struct><member><name>id</name><value><i4>7</i4></value></member>\
                     </struct></value><value><double>1.5</double></value></data></array></value>\
                     </param></params></methodResponse>";
        let parts = [
            "<value>", "</value>", "<struct>", "<member>", "<i4>", "&lt;", "<", "\0",
        ];
        for seed in 0..3000 {
            let rng = SimRng::new(seed);
            let mut text = whole.as_bytes().to_vec();
            for _ in 0..=rng.next_below(4) {
                damage_bytes(&mut text, &parts, &rng);
            }
            println!("seed {seed}");
            if let Ok(value) = decode(&String::from_utf8_lossy(&text)) {
                assert!(value.to_string().len() <= whole.len(), "{value}");
            }
        }
    }
}
