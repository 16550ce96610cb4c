//! What a config may hold: shapes of values, keys of sections, and the walk that holds a tree to
//! them.
//!
//! The walk finds unknown keys and malformed values (with their place), lists the keys that Firn
//! does not act on, and blots out secrets, in one pass. The tables themselves are in
//! [`super::keys`] and [`super::discovery`].

use firn_model::units::{parse_duration, parse_size};
use firn_model::yaml::{Node, Value, YamlError};

/// What a secret is replaced with, as in Prometheus.
pub const SECRET: &str = "<secret>";

/// What a value may be. `null` is a value of every shape and means its default.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Any scalar.
    Text,
    /// A scalar that is never shown.
    Secret,
    /// A URL, whose password is never shown.
    Url,
    /// `true`, `false` and YAML 1.1's other names for them.
    Bool,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A duration such as `1m30s`.
    Duration,
    /// A size such as `512MB`.
    Size,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A sequence.
    List(&'static Shape),
    /// A mapping with keys of the user's own.
    Map(&'static Shape),
    /// A mapping with known keys, in groups that several sections share.
    Section(&'static [&'static [Key]]),
    /// Anything: what only an extension could judge.
    Any,
}

/// A known key of a section.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value may be.
    pub shape: Shape,
    /// Whether the section makes no sense without it.
    pub is_required: bool,
    /// Whether Firn does nothing with it.
    pub is_ignored: bool,
    /// The value if it is not set, for the documentation; only our own keys have one.
    pub default: &'static str,
    /// What it is for; only our own keys have one.
    pub help: &'static str,
}

impl Key {
    /// An optional key.
    pub const fn new(name: &'static str, shape: Shape) -> Key {
        Key {
            name,
            shape,
            is_required: false,
            is_ignored: false,
            default: "",
            help: "",
        }
    }

    /// The key, required.
    pub const fn required(self) -> Key {
        Key {
            is_required: true,
            ..self
        }
    }

    /// The key, without effect in Firn.
    pub const fn ignored(self) -> Key {
        Key {
            is_ignored: true,
            ..self
        }
    }

    /// The key, explained.
    pub const fn explained(self, default: &'static str, help: &'static str) -> Key {
        Key {
            default,
            help,
            ..self
        }
    }
}

/// What the walk found besides errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Paths of the keys that are set and have no effect, in the order of the file, each once.
    pub ignored: Vec<String>,
}

/// Holds `node` to `shape` and blots out its secrets. `path` names the node in errors.
pub fn walk(
    node: &mut Node,
    shape: &Shape,
    path: &str,
    findings: &mut Findings,
) -> Result<(), YamlError> {
    if node.is_null() {
        return Ok(());
    }
    match shape {
        Shape::Any => Ok(()),
        Shape::List(item) => walk_list(node, item, path, findings),
        Shape::Map(value) => walk_map(node, value, path, findings),
        Shape::Section(groups) => walk_section(node, groups, path, findings),
        scalar => walk_scalar(node, scalar, path),
    }
}

fn walk_list(
    node: &mut Node,
    item: &Shape,
    path: &str,
    findings: &mut Findings,
) -> Result<(), YamlError> {
    if !matches!(node.value, Value::List(_)) {
        return Err(node.error(format!("{path}: expected a list, got {}", kind(node))));
    }
    let Value::List(items) = &mut node.value else {
        return Ok(());
    };
    for (i, node) in items.iter_mut().enumerate() {
        if node.is_null() && matches!(item, Shape::Section(_)) {
            return Err(node.error(format!("{path}[{i}]: empty or null entry")));
        }
        walk(node, item, &format!("{path}[{i}]"), findings)?;
    }
    Ok(())
}

fn walk_map(
    node: &mut Node,
    value: &Shape,
    path: &str,
    findings: &mut Findings,
) -> Result<(), YamlError> {
    let found = kind(node);
    let Value::Map(entries) = &mut node.value else {
        return Err(node.error(format!("{path}: expected a mapping, got {found}")));
    };
    for entry in entries {
        walk(&mut entry.node, value, &join(path, &entry.key), findings)?;
    }
    Ok(())
}

fn walk_section(
    node: &mut Node,
    groups: &[&[Key]],
    path: &str,
    findings: &mut Findings,
) -> Result<(), YamlError> {
    let (found, place) = (kind(node), node.place);
    let Value::Map(entries) = &mut node.value else {
        return Err(node.error(format!(
            "{}: expected a mapping, got {found}",
            name_of(path)
        )));
    };
    for entry in &mut *entries {
        let key = groups
            .iter()
            .copied()
            .flatten()
            .find(|k| k.name == entry.key);
        let Some(key) = key else {
            return Err(YamlError {
                place: entry.place,
                message: format!("unknown key {:?} in {}", entry.key, name_of(path)),
            });
        };
        let path = join(path, key.name);
        // What lies below an ignored key is checked too, but only its top is worth a warning.
        if key.is_ignored {
            findings.note_ignored(&path);
            walk(&mut entry.node, &key.shape, &path, &mut Findings::default())?;
        } else {
            walk(&mut entry.node, &key.shape, &path, findings)?;
        }
    }
    for key in groups.iter().copied().flatten().filter(|k| k.is_required) {
        let entry = entries.iter().find(|e| e.key == key.name);
        if entry.is_none_or(|e| e.node.is_null() || e.node.text() == Some("")) {
            return Err(YamlError {
                place,
                message: format!("{}: {} is missing or empty", name_of(path), key.name),
            });
        }
    }
    Ok(())
}

fn walk_scalar(node: &mut Node, shape: &Shape, path: &str) -> Result<(), YamlError> {
    let found = kind(node);
    let place = node.place;
    let Value::Scalar { text, .. } = &mut node.value else {
        return Err(node.error(format!("{path}: expected a single value, got {found}")));
    };
    let why = match shape {
        Shape::Secret => {
            *text = SECRET.into();
            None
        }
        Shape::Url => {
            *text = without_password(text);
            None
        }
        Shape::Bool => parse_bool(text)
            .is_none()
            .then(|| format!("not a boolean: {text:?}")),
        Shape::Integer => text
            .parse::<i64>()
            .err()
            .map(|_| format!("not a whole number: {text:?}")),
        Shape::Number => text
            .parse::<f64>()
            .err()
            .map(|_| format!("not a number: {text:?}")),
        Shape::Duration => parse_duration(text).err().map(|e| e.to_string()),
        Shape::Size => parse_size(text).err().map(|e| e.to_string()),
        Shape::Choice(choices) if !choices.contains(&text.as_str()) => {
            Some(format!("not one of {}: {text:?}", choices.join(", ")))
        }
        _ => None,
    };
    match why {
        None => Ok(()),
        Some(why) => Err(YamlError {
            place,
            message: format!("{path}: {why}"),
        }),
    }
}

impl Findings {
    /// Notes a path once, with list positions left out: ten jobs of one kind are one warning.
    fn note_ignored(&mut self, path: &str) {
        let mut plain = String::new();
        let mut is_inside = false;
        for c in path.chars() {
            is_inside = is_inside && c != ']' || c == '[';
            if !is_inside && c != ']' {
                plain.push(c);
            }
        }
        if !self.ignored.contains(&plain) {
            self.ignored.push(plain);
        }
    }
}

/// A boolean as YAML 1.1 writes it, which is what Prometheus's configs are.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(false)
        }
        _ => None,
    }
}

/// The URL with the password in `//user:password@host` replaced.
fn without_password(url: &str) -> String {
    let authority = url.find("//").map_or(0, |at| at + 2);
    let end = url[authority..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| authority + at);
    let Some(at) = url[authority..end].rfind('@').map(|at| authority + at) else {
        return url.to_owned();
    };
    match url[authority..at].find(':').map(|colon| authority + colon) {
        None => url.to_owned(),
        Some(colon) => format!("{}:{SECRET}{}", &url[..colon], &url[at..]),
    }
}

fn kind(node: &Node) -> &'static str {
    match node.value {
        Value::Scalar { .. } => "a single value",
        Value::List(_) => "a list",
        Value::Map(_) => "a mapping",
    }
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

fn name_of(path: &str) -> &str {
    match path {
        "" => "the config",
        path => path,
    }
}
