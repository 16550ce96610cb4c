//! Schema of a config: shapes of values, keys of sections, and the validation of a tree against
//! them.
//!
//! A key is one row of the table of its section: name, shape, default, printing, documentation. The
//! rows have the order in which the keys are printed. The tables are in the crates that read the
//! sections.
//!
//! One pass over a tree finds unknown keys and malformed values with their positions, lists the
//! keys that have no effect in Firn, and redacts secrets.

use crate::{go_url, read};
use firn_model::units::{parse_duration, parse_size};
use firn_yaml::scalar::{YamlScalar, interpret_scalar};
use firn_yaml::{YamlError, YamlNode, YamlValue};

/// Text that replaces a secret in printed configs, as in Prometheus.
pub const SECRET: &str = "<secret>";

/// Replacement of a password in a URL, as in Prometheus: URLs cannot contain angle brackets.
const PASSWORD: &str = "xxxxx";

/// Allowed type of a value. `null` is valid for every shape and means zero, empty, or the default
/// of the key.
#[derive(Clone, Copy, Debug)]
pub enum ConfigValueShape {
    /// Any scalar, taken as text.
    Text,
    /// A text that is printed in lower case.
    CaselessText,
    /// The path of a file. A relative one is printed with the folder of the config prepended.
    Path,
    /// A scalar that is redacted in printed configs.
    Secret,
    /// A URL, whose password is redacted in printed configs.
    Url,
    /// A boolean: `true`, `false` and their other names in YAML 1.1.
    Bool,
    /// An integer, which may be negative.
    Integer,
    /// A number that becomes an unsigned integer. As in Go, the fraction is truncated: `1.5` is 1
    /// and `-1.5` is 0. A whole number must not be negative.
    Count,
    /// An unsigned integer without a fraction, for keys that Prometheus does not have.
    WholeCount,
    /// A number, which may have a fraction.
    Number,
    /// A duration in Prometheus's format, such as `1m30s`.
    Duration,
    /// A size such as `512MB`. A negative one counts as unset.
    Size,
    /// A label name, which must not be empty.
    LabelName,
    /// A TLS version. Versions that Firn does not support have no effect.
    TlsVersion,
    /// One of the listed texts, exactly as written.
    Choice(&'static [&'static str]),
    /// A list whose items all have this shape.
    List(&'static ConfigValueShape),
    /// A mapping with arbitrary keys, whose values all have this shape.
    Map(&'static ConfigValueShape),
    /// A mapping from label names to texts, for external and static labels.
    Labels,
    /// A mapping with known keys, in groups that several sections share.
    Section(KeyGroups),
    /// Any value, unchecked: the settings of extensions.
    Any,
}

/// Shape of a list of texts, used by many sections.
pub const TEXTS: ConfigValueShape = ConfigValueShape::List(&ConfigValueShape::Text);

/// Shape of a list of paths.
pub const PATHS: ConfigValueShape = ConfigValueShape::List(&ConfigValueShape::Path);

/// Keys of a section, in groups that several sections share, in the order of printing.
pub type KeyGroups = &'static [&'static [ConfigKey]];

/// Condition under which a key is printed. Follows the `omitempty` tags and the defaults of Go's
/// structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPrinting {
    /// The key is printed if it is set to a nonzero value.
    IfSet,
    /// A key that is set is printed unless its value is zero. A key that is not set is printed with
    /// its default, unless that is zero. The same applies to the keys of a section that is not set.
    UnlessZero,
    /// The key is always printed, even if it is zero.
    Always,
    /// The key is printed as it was written, without the defaults of the keys in it.
    AsWritten,
    /// The key is never printed, because another key replaces it.
    Never,
}

/// A key that a section may contain: one row of the table of the section.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// Name of the key in YAML.
    pub name: &'static str,
    /// Shape that its value must have.
    pub shape: ConfigValueShape,
    /// True if a section without the key is invalid.
    pub is_required: bool,
    /// True if the key is accepted but has no effect in Firn.
    pub is_ignored: bool,
    /// Condition under which the key is printed.
    pub printing: KeyPrinting,
    /// Default as YAML; empty if there is none, or if it depends on other keys.
    pub default: &'static str,
    /// Description for the documentation; set only for Firn's own keys.
    pub help: &'static str,
}

impl ConfigKey {
    /// Creates an optional key that has an effect, no default and no documentation, and that is
    /// printed if it is set.
    pub const fn new(name: &'static str, shape: ConfigValueShape) -> ConfigKey {
        ConfigKey {
            name,
            shape,
            is_required: false,
            is_ignored: false,
            printing: KeyPrinting::IfSet,
            default: "",
            help: "",
        }
    }

    /// Returns the key marked as required.
    pub const fn required(self) -> ConfigKey {
        ConfigKey {
            is_required: true,
            ..self
        }
    }

    /// Returns the key marked as having no effect in Firn.
    pub const fn ignored(self) -> ConfigKey {
        ConfigKey {
            is_ignored: true,
            ..self
        }
    }

    /// Returns the key with a default, printed unless its value or the default is zero.
    pub const fn or(self, default: &'static str) -> ConfigKey {
        ConfigKey {
            printing: KeyPrinting::UnlessZero,
            default,
            ..self
        }
    }

    /// Returns the key with a default, always printed.
    pub const fn always(self, default: &'static str) -> ConfigKey {
        ConfigKey {
            printing: KeyPrinting::Always,
            default,
            ..self
        }
    }

    /// Returns the key, printed under another condition.
    pub const fn printed(self, printing: KeyPrinting) -> ConfigKey {
        ConfigKey { printing, ..self }
    }

    /// Returns the key with its default and its description for the documentation. Does not change
    /// the printing: keys under `firn` are printed as they were set.
    pub const fn explained(self, default: &'static str, help: &'static str) -> ConfigKey {
        ConfigKey {
            default,
            help,
            ..self
        }
    }
}

/// Short form of [`ConfigKey::new`] for tables: an optional key without default and documentation.
pub const fn key(name: &'static str, shape: ConfigValueShape) -> ConfigKey {
    ConfigKey::new(name, shape)
}

/// Findings of the validation that are not errors, collected during the walk and logged at the
/// start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFindings {
    /// Paths of the keys that are set but have no effect, in the order of the file, each once.
    pub ignored: Vec<String>,
}

/// Validates `node` against `shape` and redacts its secrets. `path` is the name of the node in
/// errors.
pub fn walk(
    node: &mut YamlNode,
    shape: &ConfigValueShape,
    path: &str,
    findings: &mut ConfigFindings,
) -> Result<(), YamlError> {
    if node.is_null() {
        return Ok(());
    }
    match shape {
        ConfigValueShape::Any => Ok(()),
        ConfigValueShape::List(item) => walk_list(node, item, path, findings),
        ConfigValueShape::Map(value) => walk_map(node, value, path, findings),
        ConfigValueShape::Labels => {
            walk_map(node, &ConfigValueShape::Text, path, findings)?;
            check_label_names(node)
        }
        ConfigValueShape::Section(groups) => walk_section(node, groups, path, findings),
        ConfigValueShape::TlsVersion => {
            walk_scalar(node, shape, path)?;
            if path.ends_with("max_version") && matches!(node.text(), Some("TLS10" | "TLS11")) {
                findings.note_ignored(path);
            }
            Ok(())
        }
        scalar => walk_scalar(node, scalar, path),
    }
}

fn walk_list(
    node: &mut YamlNode,
    item: &ConfigValueShape,
    path: &str,
    findings: &mut ConfigFindings,
) -> Result<(), YamlError> {
    if !matches!(node.value, YamlValue::List(_)) {
        return Err(node.error(format!("{path}: expected a list, got {}", kind(node))));
    }
    let YamlValue::List(items) = &mut node.value else {
        return Ok(());
    };
    for (i, node) in items.iter_mut().enumerate() {
        if node.is_null()
            && matches!(item, ConfigValueShape::Section(_))
            && let Some(message) = missing_section(path)
        {
            return Err(node.error(message));
        }
        walk(node, item, &format!("{path}[{i}]"), findings)?;
    }
    Ok(())
}

/// Returns upstream's error for a null entry in the list of sections `path`, or `None` if upstream
/// treats it as an empty section.
fn missing_section(path: &str) -> Option<String> {
    let key = path.rsplit('.').next().unwrap_or_default();
    let is_alertmanager = path.starts_with("alerting.alertmanagers[");
    let what = match key {
        "filters" | "selectors" => return None,
        "scrape_configs" => "scrape config section",
        "remote_write" => "remote write config section",
        "remote_read" => "remote read config section",
        "relabel_configs" if is_alertmanager => "Alertmanager target relabeling rule",
        "relabel_configs" => "target relabeling rule in scrape config",
        "metric_relabel_configs" => "metric relabeling rule in scrape config",
        "write_relabel_configs" => "relabeling rule in remote write config",
        "alert_relabel_configs" if is_alertmanager => "Alertmanager alert relabeling rule",
        "alert_relabel_configs" => "alert relabeling rule",
        key => return Some(format!("empty or null section in {key}")),
    };
    Some(format!("empty or null {what}"))
}

fn check_label_names(node: &YamlNode) -> Result<(), YamlError> {
    match read::entries(Some(node)).iter().find(|e| e.key.is_empty()) {
        None => Ok(()),
        Some(entry) => Err(YamlError {
            place: entry.place,
            message: "\"\" is not a valid label name".into(),
        }),
    }
}

fn walk_map(
    node: &mut YamlNode,
    value: &ConfigValueShape,
    path: &str,
    findings: &mut ConfigFindings,
) -> Result<(), YamlError> {
    let found = kind(node);
    let YamlValue::Map(entries) = &mut node.value else {
        return Err(node.error(format!("{path}: expected a mapping, got {found}")));
    };
    for entry in entries {
        if entry.has_rival {
            let message = format!("{path}: key {:?} already set in map", entry.key);
            return Err(entry.node.error(message));
        }
        walk(&mut entry.node, value, &join(path, &entry.key), findings)?;
    }
    Ok(())
}

fn walk_section(
    node: &mut YamlNode,
    groups: &[&[ConfigKey]],
    path: &str,
    findings: &mut ConfigFindings,
) -> Result<(), YamlError> {
    let (found, place) = (kind(node), node.place);
    let YamlValue::Map(entries) = &mut node.value else {
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
        // Keys below an ignored key are validated too, but only the ignored key itself gets a
        // warning.
        if key.is_ignored {
            findings.note_ignored(&path);
            walk(
                &mut entry.node,
                &key.shape,
                &path,
                &mut ConfigFindings::default(),
            )?;
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

fn walk_scalar(node: &mut YamlNode, shape: &ConfigValueShape, path: &str) -> Result<(), YamlError> {
    let meaning = interpret_scalar(node);
    let found = kind(node);
    let place = node.place;
    let (YamlValue::Scalar { text, .. }, Some(meaning)) = (&mut node.value, meaning) else {
        return Err(node.error(format!("{path}: expected a single value, got {found}")));
    };
    if let Some(why) = mistake(text, meaning, shape) {
        let message = format!("{path}: {why}");
        return Err(YamlError { place, message });
    }
    match shape {
        ConfigValueShape::Secret => *text = SECRET.into(),
        ConfigValueShape::Url => *text = without_password(text),
        _ => {}
    }
    Ok(())
}

/// Returns the error of a scalar, if it is invalid. Values that cannot be parsed get upstream's
/// error.
fn mistake(text: &str, meaning: YamlScalar, shape: &ConfigValueShape) -> Option<String> {
    let (is_one, what) = match shape {
        ConfigValueShape::Bool => (matches!(meaning, YamlScalar::Bool(_)), "a boolean"),
        ConfigValueShape::Integer => (meaning.to_integer().is_some(), "a whole number"),
        ConfigValueShape::Count => (meaning.to_unsigned().is_some(), "a count"),
        ConfigValueShape::WholeCount => (meaning.is_unsigned(), "a count"),
        ConfigValueShape::Number => (meaning.to_float().is_some(), "a number"),
        ConfigValueShape::Choice(choices) if !choices.contains(&text) => {
            return Some(format!("not one of {}: {text:?}", choices.join(", ")));
        }
        _ => (true, ""),
    };
    if !is_one {
        return Some(format!("not {what}: {text:?}"));
    }
    match shape {
        ConfigValueShape::Url => go_url::parse(text).err(),
        ConfigValueShape::Duration => parse_duration(text).err().map(|e| e.to_string()),
        ConfigValueShape::Size => {
            let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
            parse_size(unsigned).err().map(|e| e.to_string())
        }
        ConfigValueShape::TlsVersion if !matches!(text, "TLS10" | "TLS11" | "TLS12" | "TLS13") => {
            Some(format!("unknown TLS version: {text}"))
        }
        ConfigValueShape::LabelName if text.is_empty() => {
            Some("\"\" is not a valid label name".into())
        }
        _ => None,
    }
}

impl ConfigFindings {
    /// Records a path once, without list indices: the same key of ten jobs causes one warning.
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

/// Replaces the password of a URL, which is in `//user:password@host`.
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
        Some(colon) => format!("{}:{PASSWORD}{}", &url[..colon], &url[at..]),
    }
}

fn kind(node: &YamlNode) -> &'static str {
    match node.value {
        YamlValue::Scalar { .. } => "a single value",
        YamlValue::List(_) => "a list",
        YamlValue::Map(_) => "a mapping",
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
