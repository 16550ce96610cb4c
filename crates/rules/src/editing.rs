//! Editing rule files group by group, as Mimir's ruler has it: a namespace is a file.
//!
//! ```text
//! namespace "team/a" <-> file "team%2Fa.yml" with `groups:`; a group is put, shown or removed
//! ```
//!
//! Pure: texts of files come in and go out. Invariant: what comes out of [`with_group`] passes the
//! checks of rule files; groups that an edit does not name keep their YAML, comments aside.

use crate::file::{self, ReadOptions};
use firn_model::yaml::{self, Entry, Node, Place, Value};

/// What ends the name of a file.
const ENDING: &str = ".yml";

/// Bytes of the name of a file, which file systems bound at 255, less room for one that is being
/// written.
const FILE_NAME_BYTES_MAX: usize = 200;

/// Why an edit is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// What was sent is no group, or no good one.
    #[error("{0}")]
    Invalid(String),
    /// The group is not there.
    #[error("group does not exist")]
    NoGroup,
    /// The namespace is not there.
    #[error("group namespace does not exist")]
    NoNamespace,
    /// The file of the namespace was spoilt by another hand.
    #[error("rule file of namespace {namespace:?}: {message}")]
    Spoilt {
        /// The namespace.
        namespace: String,
        /// What is wrong with it.
        message: String,
    },
}

/// The name of the file of a namespace.
pub fn file_name(namespace: &str) -> Result<String, EditError> {
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
        _ if namespace.is_empty() => Err(EditError::Invalid("namespace is empty".to_owned())),
        len if len > FILE_NAME_BYTES_MAX => Err(EditError::Invalid(format!(
            "namespace is too long: {len} bytes as a file name, limit {FILE_NAME_BYTES_MAX}"
        ))),
        _ => Ok(name),
    }
}

/// The namespace of a file; `None` if no namespace has a file of that name.
pub fn namespace_of(file_name: &str) -> Option<String> {
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

/// The groups of the text of a namespace's file.
fn groups(namespace: &str, text: &str) -> Result<Vec<Node>, EditError> {
    let spoilt = |message: String| EditError::Spoilt {
        namespace: namespace.to_owned(),
        message,
    };
    let root = yaml::parse(text).map_err(|e| spoilt(e.to_string()))?;
    let groups = root.as_ref().and_then(|root| root.get("groups"));
    Ok(groups.map_or_else(Vec::new, |groups| groups.items().to_vec()))
}

fn name_of(group: &Node) -> &str {
    group.get("name").and_then(Node::text).unwrap_or_default()
}

fn node(value: Value) -> Node {
    Node {
        place: Place { line: 1, column: 1 },
        value,
    }
}

fn map(pairs: Vec<(String, Node)>) -> Node {
    let entry = |(key, node): (String, Node)| Entry {
        key,
        place: node.place,
        node,
        has_rival: false,
    };
    node(Value::Map(pairs.into_iter().map(entry).collect()))
}

/// The text of a file with these groups.
fn text_of(groups: Vec<Node>) -> String {
    let list = node(Value::List(groups));
    yaml::print(&map(vec![("groups".to_owned(), list)]))
}

/// The text of a namespace's file with the group in `body`, which replaces the one of its name or
/// comes last. `text` is that of the file as it is; none if there is no file.
pub fn with_group(
    namespace: &str,
    text: Option<&str>,
    body: &str,
    options: ReadOptions,
) -> Result<String, EditError> {
    let invalid = |message: String| EditError::Invalid(message);
    let group = yaml::parse(body).map_err(|e| invalid(e.to_string()))?;
    let group = group.ok_or_else(|| invalid("the body contains no rule group".to_owned()))?;
    let mut groups = groups(namespace, text.unwrap_or_default())?;
    // Alone first, so that what is said is about what was sent.
    let alone = text_of(vec![group.clone()]);
    file::parse(&alone, options).map_err(|errors| invalid(joined(&errors)))?;
    match groups
        .iter_mut()
        .find(|old| name_of(old) == name_of(&group))
    {
        Some(old) => *old = group,
        None => groups.push(group),
    }
    let all = text_of(groups);
    match file::parse(&all, options) {
        Ok(_) => Ok(all),
        Err(errors) => Err(EditError::Spoilt {
            namespace: namespace.to_owned(),
            message: joined(&errors),
        }),
    }
}

fn joined(errors: &[file::FileError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.join("\n")
}

/// The text of a namespace's file without the group called `name`; `None` if that was the last one.
pub fn without_group(namespace: &str, text: &str, name: &str) -> Result<Option<String>, EditError> {
    let mut groups = groups(namespace, text)?;
    let before = groups.len();
    groups.retain(|group| name_of(group) != name);
    match groups.len() {
        0 if before > 0 => Ok(None),
        len if len < before => Ok(Some(text_of(groups))),
        _ => Err(EditError::NoGroup),
    }
}

/// The group called `name` as YAML.
pub fn group_text(namespace: &str, text: &str, name: &str) -> Result<String, EditError> {
    let groups = groups(namespace, text)?;
    let group = groups.iter().find(|group| name_of(group) == name);
    group.map(yaml::print).ok_or(EditError::NoGroup)
}

/// Namespaces and their groups as YAML; `files` are names of namespaces and texts of their files.
pub fn listing(files: &[(String, String)]) -> Result<String, EditError> {
    let mut pairs = Vec::with_capacity(files.len());
    for (namespace, text) in files {
        let list = node(Value::List(groups(namespace, text)?));
        pairs.push((namespace.clone(), list));
    }
    Ok(yaml::print(&map(pairs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "name: g\ninterval: 1m\nrules:\n- record: a\n  expr: sum(b)\n";

    fn put(text: Option<&str>, body: &str) -> Result<String, EditError> {
        with_group("n", text, body, ReadOptions::default())
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
            assert_eq!(namespace_of(file).as_deref(), Some(namespace));
        }
        for file in ["team", "te.am.yml", "%2f.yml", "%zz.yml", ".yml", "%FF.yml"] {
            assert_eq!(namespace_of(file), None, "{file}");
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
            group_text("n", &third, "g").unwrap(),
            GROUP.replace("sum", "max")
        );
        let listed = listing(&[("n/1".into(), third.clone())]).unwrap();
        assert!(listed.starts_with("n/1:\n- name: g\n"), "{listed}");
        let left = without_group("n", &third, "g").unwrap().unwrap();
        assert_eq!(group_text("n", &left, "g"), Err(EditError::NoGroup));
        assert_eq!(without_group("n", &left, "g"), Err(EditError::NoGroup));
        assert_eq!(without_group("n", &left, "h"), Ok(None));
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
            let EditError::Invalid(message) = &error else {
                panic!("{error:?}");
            };
            assert!(message.contains(expected), "{body}: {message}");
        }
        let error = put(Some("groups: ["), GROUP).unwrap_err();
        assert!(matches!(error, EditError::Spoilt { .. }), "{error:?}");
    }
}
