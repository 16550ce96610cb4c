//! Negotiates the format of a federation response from the `ConnectionSource` header, with the same
//! choices as `expfmt.Negotiate` and the library that it uses.

use crate::families::MEDIA_TYPE;

/// The representation of names that contain other characters than legacy names, which the client
/// selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameEscaping {
    /// The original characters, with the name in quotes.
    AllowUtf8,
    /// An underscore for each other character, the default.
    #[default]
    Underscores,
    /// `_dot_` for a dot, two underscores for each other character.
    Dots,
    /// The code point of each other character, after a prefix `U__`.
    Values,
}

impl NameEscaping {
    const ALL: [(&'static str, Self); 4] = [
        ("allow-utf-8", Self::AllowUtf8),
        ("underscores", Self::Underscores),
        ("dots", Self::Dots),
        ("values", Self::Values),
    ];

    fn from_name(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, escaping)| *escaping)
    }

    fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, escaping)| *escaping == self);
        found.map_or("", |(name, _)| name)
    }
}

/// The negotiated format of a response: text or protobuf, and the escaping of names. Created once
/// for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FederationFormat {
    is_protobuf: bool,
    escaping: NameEscaping,
}

/// One clause of an `ConnectionSource` header, with its weight and parameters. Unknown parameters
/// are ignored.
#[derive(Debug, Default)]
struct AcceptClause<'a> {
    kind: &'a str,
    subtype: &'a str,
    weight: f64,
    params: Vec<(&'a str, &'a str)>,
}

impl AcceptClause<'_> {
    fn param(&self, name: &str) -> &str {
        // The last parameter of a name wins.
        let found = self.params.iter().rev().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }
}

impl FederationFormat {
    /// Returns the format for a client that sends this `ConnectionSource` header; text if no clause
    /// matches.
    pub fn negotiate(accept: &str) -> Self {
        let mut escaping = NameEscaping::default();
        for clause in parse_clauses(accept) {
            if let Some(named) = NameEscaping::from_name(clause.param("escaping")) {
                escaping = named;
            }
            let is_family = clause.param("proto") == "io.prometheus.client.MetricFamily";
            match (clause.kind, clause.subtype) {
                ("application", "vnd.google.protobuf")
                    if is_family && clause.param("encoding") == "delimited" =>
                {
                    return Self {
                        is_protobuf: true,
                        escaping,
                    };
                }
                ("text", "plain") if matches!(clause.param("version"), "" | "0.0.4") => break,
                _ => {}
            }
        }
        Self {
            is_protobuf: false,
            escaping,
        }
    }

    /// Returns the content type of the response, including the escaping parameter.
    pub fn content_type(self) -> String {
        let media_type = if self.is_protobuf {
            MEDIA_TYPE
        } else {
            "text/plain; version=0.0.4; charset=utf-8"
        };
        format!("{media_type}; escaping={}", self.escaping.name())
    }

    /// Returns whether the response is in protobuf, the only format with native histograms.
    pub fn is_protobuf(self) -> bool {
        self.is_protobuf
    }

    pub(super) fn escaping(self) -> NameEscaping {
        self.escaping
    }
}

/// Parses the clauses of a header and sorts them by decreasing weight.
fn parse_clauses(header: &str) -> Vec<AcceptClause<'_>> {
    let mut clauses: Vec<_> = header.split(',').filter_map(parse_clause).collect();
    // Clauses of equal weight keep their order, except that wildcards go last.
    clauses.sort_by(|a, b| {
        let stars = |c: &AcceptClause<'_>| u8::from(c.kind == "*") + u8::from(c.subtype == "*");
        b.weight.total_cmp(&a.weight).then(stars(a).cmp(&stars(b)))
    });
    clauses
}

fn parse_clause(text: &str) -> Option<AcceptClause<'_>> {
    let mut parts = text.trim_matches(' ').split(';');
    let media_type = parts.next().unwrap_or_default();
    let (kind, subtype) = match media_type.split_once('/') {
        Some((kind, subtype)) if !subtype.contains('/') => (kind, subtype),
        None if media_type.trim_matches(' ') == "*" => ("*", "*"),
        _ => return None,
    };
    let mut clause = AcceptClause {
        kind: kind.trim_matches(' '),
        subtype: subtype.trim_matches(' '),
        weight: 1.0,
        params: Vec::new(),
    };
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            continue;
        };
        if value.is_empty() || value.contains('=') {
            continue;
        }
        match name.trim_matches(' ') {
            "q" => clause.weight = value.parse().unwrap_or(0.0),
            name => clause.params.push((name, value.trim_matches(' '))),
        }
    }
    Some(clause)
}
