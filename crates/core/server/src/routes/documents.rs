//! Documents generated from the table of routes: an OpenAPI document and `docs/api.md`.

use super::route::{ApiRoute, ParamKind, RouteMethod, RouteParam};
use super::table::{RouteSection, SECTIONS};
use crate::access::ResponseVisibility;
use crate::app::ServerApp;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns the OpenAPI document in YAML with upstream's headers.
pub(super) async fn openapi(app: ServerApp, _request: Request) -> Response {
    let web = &app.parts.web;
    let text = document(&web.route_prefix, &app.parts.build.firn_version);
    let mut response = Response::new(Body::from(text));
    let headers = [
        (header::CONTENT_TYPE, "application/yaml; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache, no-store, must-revalidate"),
    ];
    for (name, value) in headers {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Returns the OpenAPI document of a server with the route prefix `prefix`.
fn document(prefix: &str, version: &str) -> String {
    let server = if prefix.is_empty() { "/" } else { prefix };
    let mut out = format!(
        "openapi: 3.1.0\n\
         info:\n  title: Firn\n  description: A metrics database compatible with Prometheus.\n  \
         version: {}\n\
         servers:\n- url: {}\n\
         security:\n- basic: []\n- bearer: []\n\
         components:\n  securitySchemes:\n    basic: {{type: http, scheme: basic}}\n    \
         bearer: {{type: http, scheme: bearer}}\n\
         paths:\n",
        quoted(version),
        quoted(server)
    );
    for (path, routes) in by_path() {
        let _ = writeln!(out, "  {}:", quoted(&path));
        for (section, route) in routes {
            for verb in route.mount.verbs {
                push_operation(&mut out, section, route, *verb);
            }
        }
    }
    out
}

/// Returns the routes by path including prefixes. Routes with the same path keep the order of the
/// table.
fn by_path() -> BTreeMap<String, Vec<(&'static RouteSection, &'static ApiRoute)>> {
    let mut paths: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for section in &SECTIONS {
        for route in section.routes {
            let path = whole_path(section, route);
            paths.entry(path).or_default().push((section, route));
        }
    }
    paths
}

/// Returns the path of a route including the prefix of its section, without a trailing slash.
fn whole_path(section: &RouteSection, route: &ApiRoute) -> String {
    match (section.prefix, route.path) {
        (prefix, "/") if !prefix.is_empty() => prefix.to_owned(),
        // A wildcard parameter is documented like an ordinary one.
        (prefix, path) => format!("{prefix}{}", path.replace("{*", "{")),
    }
}

fn push_operation(out: &mut String, section: &RouteSection, route: &ApiRoute, verb: RouteMethod) {
    let _ = write!(
        out,
        "    {}:\n      tags: [{}]\n      summary: {}\n      x-scope: {}\n",
        verb.name().to_lowercase(),
        quoted(section.title),
        quoted(route.doc),
        route.mount.scope.name(),
    );
    let in_path = path_params(route.path);
    if !in_path.is_empty() || !route.params.is_empty() {
        out.push_str("      parameters:\n");
    }
    for name in in_path {
        let _ = writeln!(
            out,
            "      - {{name: {}, in: path, required: true, schema: {{type: string}}}}",
            quoted(name)
        );
    }
    for param in route.params {
        let _ = writeln!(
            out,
            "      - {{name: {}, in: query, required: {}, schema: {}, description: {}}}",
            quoted(param.name),
            // Not required in the URL of a POST, because the form may contain it.
            param.is_required && verb != RouteMethod::Post,
            schema(param.kind),
            quoted(param.doc),
        );
    }
    let _ = write!(
        out,
        "      responses:\n        \"200\": {{description: {}, content: {{{}: {{}}}}}}\n        \
         default: {{description: {}}}\n",
        quoted("Success."),
        quoted(route.media),
        quoted("Error."),
    );
}

/// Returns the names of the path parameters, without braces and wildcards.
fn path_params(path: &'static str) -> Vec<&'static str> {
    let parts = path.split('/');
    let names = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| name.trim_start_matches('*')).collect()
}

fn schema(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Text | ParamKind::Time | ParamKind::Duration => "{type: string}",
        ParamKind::Texts => "{type: array, items: {type: string}}",
        ParamKind::Count => "{type: integer}",
        ParamKind::Flag => "{type: boolean}",
    }
}

/// Quotes a text for YAML, in which JSON strings are valid.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the content of `docs/api.md`, without line wrapping.
pub fn markdown() -> String {
    let mut out = String::from(
        "# HTTP API\n\
         \n\
         This page is generated from the table of routes by `firn serve \
         --write-documentation=api`; a test checks that it is up to date. The server returns the \
         same information as an OpenAPI document at `/openapi.yaml`.\n\
         \n\
         Paths, parameters and responses are those of Prometheus 3.14 where Prometheus has the \
         endpoint. All paths under `/api/v1` and `/config/v1/rules` also exist under \
         `/prometheus`, where Mimir's tools expect them. Routes that accept GET also accept \
         HEAD.\n\
         \n\
         In the tables:\n\
         \n\
         - *Scope* is the scope that a credential needs, see [security.md](security.md); *any* \
         accepts every credential.\n\
         - *With match* is the result for a credential that is restricted by `match`: *filtered* \
         responses contain only the series that the credential may read, *full* responses \
         contain no series data and are not restricted, and *rejected* requests get a 403.\n\
         \n\
         Times are RFC 3339 or seconds since the epoch. Durations are seconds or a text such as \
         `1m30s`.\n",
    );
    for section in &SECTIONS {
        let _ = write!(
            out,
            "\n## {}\n\n| Path | Methods | Scope | With match | Description |\n\
             |---|---|---|---|---|\n",
            section.title
        );
        for route in section.routes {
            push_row(&mut out, section, route);
        }
        push_params(&mut out, section);
    }
    out
}

fn push_row(out: &mut String, section: &RouteSection, route: &ApiRoute) {
    let verbs: Vec<_> = route.mount.verbs.iter().map(|verb| verb.name()).collect();
    let part = match route.mount.reach {
        ResponseVisibility::Nothing => "full",
        ResponseVisibility::Part => "filtered",
        ResponseVisibility::Whole => "rejected",
    };
    let _ = writeln!(
        out,
        "| `{}` | {} | {} | {part} | {} |",
        whole_path(section, route),
        verbs.join(", "),
        route.mount.scope.name(),
        route.doc,
    );
}

/// Appends the parameters of all routes in a section, one list per route.
fn push_params(out: &mut String, section: &RouteSection) {
    let with_params = section.routes.iter().filter(|r| !r.params.is_empty());
    for route in with_params {
        let params: Vec<_> = route.params.iter().map(param_text).collect();
        let path = whole_path(section, route);
        let params = params.join("\n");
        let _ = write!(out, "\n### Parameters of `{path}`\n\n{params}\n");
    }
}

fn param_text(param: &RouteParam) -> String {
    let kind = match param.kind {
        ParamKind::Text => "string",
        ParamKind::Texts => "string, may be repeated",
        ParamKind::Time => "time",
        ParamKind::Duration => "duration",
        ParamKind::Count => "integer",
        ParamKind::Flag => "boolean",
    };
    let required = if param.is_required { ", required" } else { "" };
    format!("- `{}` ({kind}{required}): {}", param.name, param.doc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::access::AccessScope;

    #[test]
    fn document_is_yaml_and_has_every_method_of_every_route() {
        let text = document("/p", "1.2");
        let root = firn_yaml::parse(&text).unwrap().unwrap();
        let paths = root.get("paths").unwrap();
        let mut count = 0;
        for (path, routes) in by_path() {
            let operations = paths.get(&path).unwrap_or_else(|| panic!("{path}"));
            for (_, route) in routes {
                for verb in route.mount.verbs {
                    let operation = operations.get(&verb.name().to_lowercase()).unwrap();
                    let scope = operation.get("x-scope").and_then(|s| s.text());
                    assert_eq!(scope, Some(route.mount.scope.name()), "{path}");
                    count += 1;
                }
            }
        }
        assert!(count > 40, "{count}");
    }

    #[test]
    fn route_that_changes_something_asks_for_a_scope() {
        for (path, routes) in by_path() {
            for (_, route) in routes {
                let mount = &route.mount;
                let changes = mount.verbs.iter().any(|v| *v != RouteMethod::Get);
                // POST may be used for long queries in a form or body.
                let asks = mount.verbs.contains(&RouteMethod::Get)
                    || mount.reach == ResponseVisibility::Part;
                if changes && !asks {
                    let is_guarded = !matches!(mount.scope, AccessScope::Any | AccessScope::Read);
                    assert!(is_guarded, "{path}");
                }
                let shows = mount.reach != ResponseVisibility::Nothing;
                assert!(!shows || mount.scope != AccessScope::Any, "{path}");
            }
        }
    }
}
