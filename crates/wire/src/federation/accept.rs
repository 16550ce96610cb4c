//! Which format a client gets, by its `Accept` header: as `expfmt.Negotiate` and the library
//! behind it choose.

use crate::families::MEDIA_TYPE;

/// How names are written that are not plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameEscaping {
    /// As they are, in quotes.
    AllowUtf8,
    /// Each other character as an underscore.
    #[default]
    Underscores,
    /// A dot as `_dot_`, others as two underscores.
    Dots,
    /// Each other character as its number, behind `U__`.
    Values,
}

impl NameEscaping {
    const ALL: [(&'static str, Self); 4] = [
        ("allow-utf-8", Self::AllowUtf8),
        ("underscores", Self::Underscores),
        ("dots", Self::Dots),
        ("values", Self::Values),
    ];

    fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, escaping)| *escaping)
    }

    fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, escaping)| *escaping == self);
        found.map_or("", |(name, _)| name)
    }
}

/// A format, and how names are written in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    is_protobuf: bool,
    escaping: NameEscaping,
}

/// One clause of an `Accept` header.
#[derive(Debug, Default)]
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    weight: f64,
    params: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn param(&self, name: &str) -> &str {
        // The last one counts.
        let found = self.params.iter().rev().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }
}

impl Format {
    /// The format for a client with this `Accept` header.
    pub fn negotiate(accept: &str) -> Self {
        let mut escaping = NameEscaping::default();
        for clause in clauses(accept) {
            if let Some(named) = NameEscaping::named(clause.param("escaping")) {
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

    /// The media type of the answer.
    pub fn content_type(self) -> String {
        let media_type = match self.is_protobuf {
            true => MEDIA_TYPE,
            false => "text/plain; version=0.0.4; charset=utf-8",
        };
        format!("{media_type}; escaping={}", self.escaping.name())
    }

    /// Whether the answer is in protocol buffers, which alone show native histograms.
    pub fn is_protobuf(self) -> bool {
        self.is_protobuf
    }

    pub(super) fn escaping(self) -> NameEscaping {
        self.escaping
    }
}

/// The clauses of a header, the heaviest first.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = header.split(',').filter_map(clause).collect();
    // Clauses of one weight keep their order, but for those with a star.
    clauses.sort_by(|a, b| {
        let stars = |c: &Clause<'_>| u8::from(c.kind == "*") + u8::from(c.subtype == "*");
        b.weight.total_cmp(&a.weight).then(stars(a).cmp(&stars(b)))
    });
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.trim_matches(' ').split(';');
    let media_type = parts.next().unwrap_or_default();
    let (kind, subtype) = match media_type.split_once('/') {
        Some((kind, subtype)) if !subtype.contains('/') => (kind, subtype),
        None if media_type.trim_matches(' ') == "*" => ("*", "*"),
        _ => return None,
    };
    let mut clause = Clause {
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
