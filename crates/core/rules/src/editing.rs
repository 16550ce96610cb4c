//! Edits rule files group by group, like the API of Mimir's ruler. Each namespace is one file.
//!
//! ```text
//! namespace "team/a" <-> file "team%2Fa.yml" with `groups:`; groups are set, returned or deleted
//! ```
//!
//! The functions are pure: they take and return the texts of files. Invariant: the result of
//! [`set_group`] passes the checks of rule files, and groups that are not edited keep their YAML
//! except for comments.

use crate::file::{self, RuleFileOptions};
use firn_yaml::{YamlDialect, YamlEntry, YamlNode, YamlPosition, YamlValue};

/// Extension of the files of namespaces.
const ENDING: &str = ".yml";

/// Maximum length of a file name in bytes. File systems allow 255; the rest is reserved for the
/// suffix of temporary files.
const FILE_NAME_BYTES_MAX: usize = 200;

/// Error of an edit. The variants distinguish invalid requests, missing objects and damaged files,
/// which the API answers with different status codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleEditError {
    /// The namespace or the group in the request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The namespace has no group of this name.
    #[error("group does not exist")]
    NoGroup,
    /// The namespace has no file.
    #[error("group namespace does not exist")]
    NoNamespace,
    /// The file of the namespace is invalid, because it was modified by other means than this API.
    #[error("rule file of namespace {namespace:?}: {message}")]
    Spoilt {
        /// Name of the namespace.
        namespace: String,
        /// Reason why the file is invalid: its errors, one per line.
        message: String,
    },
}

/// Returns the file name of a namespace, with special characters percent-encoded. Fails if the
/// namespace is empty or its file name is too long.
pub fn file_name(namespace: &str) -> Result<String, RuleEditError> {
    let mut name = String::new();
    for byte in namespace.bytes() {
        match byte {
            b'-' | b'_' | b' ' => name.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => name.push(char::from(byte)),
            _ => name += &format!("%{byte:02X}"),
        }
    }
    name += ENDING;
    match name.len() {
        _ if namespace.is_empty() => Err(RuleEditError::Invalid("namespace is empty".to_owned())),
        len if len > FILE_NAME_BYTES_MAX => Err(RuleEditError::Invalid(format!(
            "namespace is too long: {len} bytes as a file name, limit {FILE_NAME_BYTES_MAX}"
        ))),
        _ => Ok(name),
    }
}

/// Returns the namespace of a file; `None` if [`file_name`] does not produce this name for any
/// namespace.
pub fn namespace_from_file_name(file_name: &str) -> Option<String> {
    let stem = file_name.strip_suffix(ENDING)?;
    let (mut bytes, mut rest) = (Vec::new(), stem.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'%' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                &after[2..]
            }
            byte => {
                bytes.push(*byte);
                after
            }
        };
    }
    let namespace = String::from_utf8(bytes).ok()?;
    let is_own = self::file_name(&namespace).is_ok_and(|name| name == file_name);
    is_own.then_some(namespace)
}

/// Parses the file of a namespace and returns its groups as YAML nodes.
fn parse_groups(namespace: &str, text: &str) -> Result<Vec<YamlNode>, RuleEditError> {
    let spoilt = |message: String| RuleEditError::Spoilt {
        namespace: namespace.to_owned(),
        message,
    };
    let root = firn_yaml::parse_as(text, YamlDialect::V3).map_err(|e| spoilt(e.to_string()))?;
    let groups = root.as_ref().and_then(|root| root.get("groups"));
    Ok(groups.map_or_else(Vec::new, |groups| groups.items().to_vec()))
}

fn group_name(group: &YamlNode) -> &str {
    group
        .get("name")
        .and_then(YamlNode::text)
        .unwrap_or_default()
}

fn new_node(value: YamlValue) -> YamlNode {
    YamlNode {
        place: YamlPosition { line: 1, column: 1 },
        value,
    }
}

fn new_map_node(pairs: Vec<(String, YamlNode)>) -> YamlNode {
    let entry = |(key, node): (String, YamlNode)| YamlEntry {
        key,
        place: node.place,
        node,
        has_rival: false,
    };
    new_node(YamlValue::Map(pairs.into_iter().map(entry).collect()))
}

/// Returns the text of a rule file that contains these groups.
fn format_groups(groups: Vec<YamlNode>) -> String {
    let list = new_node(YamlValue::List(groups));
    firn_yaml::print(&new_map_node(vec![("groups".to_owned(), list)]))
}

/// Returns the text of a namespace's file after the group in `body` was set: it replaces the group
/// of the same name, or is appended. `text` is the current content; `None` if there is no file.
pub fn set_group(
    namespace: &str,
    text: Option<&str>,
    body: &str,
    options: RuleFileOptions,
) -> Result<String, RuleEditError> {
    let invalid = |message: String| RuleEditError::Invalid(message);
    let group = firn_yaml::parse_as(body, YamlDialect::V3).map_err(|e| invalid(e.to_string()))?;
    let group = group.ok_or_else(|| invalid("the body contains no rule group".to_owned()))?;
    let mut groups = parse_groups(namespace, text.unwrap_or_default())?;
    // The new group is checked alone first, so that errors refer to the text of the request.
    let alone = format_groups(vec![group.clone()]);
    file::parse(&alone, options).map_err(|errors| invalid(join_errors(&errors)))?;
    match groups
        .iter_mut()
        .find(|old| group_name(old) == group_name(&group))
    {
        Some(old) => *old = group,
        None => groups.push(group),
    }
    let all = format_groups(groups);
    match file::parse(&all, options) {
        Ok(_) => Ok(all),
        Err(errors) => Err(RuleEditError::Spoilt {
            namespace: namespace.to_owned(),
            message: join_errors(&errors),
        }),
    }
}

fn join_errors(errors: &[file::RuleParseError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.join("\n")
}

/// Returns the text of a namespace's file without the group called `name`; `None` if no group
/// remains.
pub fn remove_group(
    namespace: &str,
    text: &str,
    name: &str,
) -> Result<Option<String>, RuleEditError> {
    let mut groups = parse_groups(namespace, text)?;
    let before = groups.len();
    groups.retain(|group| group_name(group) != name);
    match groups.len() {
        0 if before > 0 => Ok(None),
        len if len < before => Ok(Some(format_groups(groups))),
        _ => Err(RuleEditError::NoGroup),
    }
}

/// Returns the group called `name` as YAML, exactly as it is in the file except for comments and
/// layout.
pub fn format_group(namespace: &str, text: &str, name: &str) -> Result<String, RuleEditError> {
    let groups = parse_groups(namespace, text)?;
    let group = groups.iter().find(|group| group_name(group) == name);
    group.map(firn_yaml::print).ok_or(RuleEditError::NoGroup)
}

/// Returns all namespaces and their groups as YAML. `files` contains pairs of namespace and file
/// content.
pub fn list_namespaces(files: &[(String, String)]) -> Result<String, RuleEditError> {
    let mut pairs = Vec::with_capacity(files.len());
    for (namespace, text) in files {
        let list = new_node(YamlValue::List(parse_groups(namespace, text)?));
        pairs.push((namespace.clone(), list));
    }
    Ok(firn_yaml::print(&new_map_node(pairs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "name: g\ninterval: 1m\nrules:\n- record: a\n  expr: sum(b)\n";

    fn put(text: Option<&str>, body: &str) -> Result<String, RuleEditError> {
        set_group("n", text, body, RuleFileOptions::default())
    }

    #[test]
    fn namespaces_have_files_of_their_own() {
        for (namespace, file) in [
            ("team", "team.yml"),
            ("team/a b.yml", "team%2Fa b%2Eyml.yml"),
            ("..", "%2E%2E.yml"),
            ("ü%", "%C3%BC%25.yml"),
        ] {
            assert_eq!(file_name(namespace).as_deref(), Ok(file));
            assert_eq!(namespace_from_file_name(file).as_deref(), Some(namespace));
        }
        for file in ["team", "te.am.yml", "%2f.yml", "%zz.yml", ".yml", "%FF.yml"] {
            assert_eq!(namespace_from_file_name(file), None, "{file}");
        }
        assert!(file_name("").is_err());
        assert!(file_name(&"/".repeat(66)).is_err());
    }

    #[test]
    fn groups_are_put_replaced_shown_and_removed() {
        let first = put(None, GROUP).unwrap();
        let second = put(Some(&first), &GROUP.replace("name: g", "name: h")).unwrap();
        let third = put(Some(&second), &GROUP.replace("sum(b)", "max(b)")).unwrap();
        assert_eq!(
            format_group("n", &third, "g").unwrap(),
            GROUP.replace("sum", "max")
        );
        let listed = list_namespaces(&[("n/1".into(), third.clone())]).unwrap();
        assert!(listed.starts_with("n/1:\n- name: g\n"), "{listed}");
        let left = remove_group("n", &third, "g").unwrap().unwrap();
        assert_eq!(format_group("n", &left, "g"), Err(RuleEditError::NoGroup));
        assert_eq!(remove_group("n", &left, "g"), Err(RuleEditError::NoGroup));
        assert_eq!(remove_group("n", &left, "h"), Ok(None));
    }

    #[test]
    fn groups_that_are_none_are_refused() {
        for (body, expected) in [
            ("", "no rule group"),
            ("rules: []", "name"),
            (
                "name: g\nrules: [{record: a, expr: 'sum('}]",
                "could not parse expression",
            ),
            ("name: g\nrule: []", "rule"),
            ("name: [", ""),
        ] {
            let error = put(None, body).unwrap_err();
            let RuleEditError::Invalid(message) = &error else {
                panic!("{error:?}");
            };
            assert!(message.contains(expected), "{body}: {message}");
        }
        let error = put(Some("groups: ["), GROUP).unwrap_err();
        assert!(matches!(error, RuleEditError::Spoilt { .. }), "{error:?}");
    }
}
