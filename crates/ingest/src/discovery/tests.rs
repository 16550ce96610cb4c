//! Files that come, change and go.

use super::file::Files;
use super::*;
use std::fs;

fn read_nothing(_: &str) -> Result<Vec<Group>, String> {
    Err("no YAML here".into())
}

fn addresses(files: &Files) -> Vec<String> {
    let groups = files.groups();
    groups.iter().flat_map(|g| g.targets.clone()).collect()
}

#[test]
fn files_that_change_are_read_again_and_broken_ones_keep_their_targets() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let mut files = Files::new(vec![dir.path().join("*.json")], read_nothing, 1 << 20);
    files.look(true);
    assert!(files.groups().is_empty());

    write("a.json", r#"[{"targets": ["a:1"], "labels": {"x": "y"}}]"#);
    write("b.json", r#"[{"targets": ["b:1", "b:2"], "labels": null}]"#);
    write("c.yml", "- targets: [c]");
    files.look(false);
    assert_eq!(addresses(&files), ["a:1", "b:1", "b:2"]);
    let first = &files.groups()[0];
    let path = dir.path().join("a.json").display().to_string();
    assert_eq!(first.labels["__meta_filepath"], path);
    assert_eq!(first.labels["x"], "y");

    write("a.json", r#"[{"targets": ["a:1"], "label"#);
    write("b.json", r#"[{"targets": ["b:3"]}]"#);
    files.look(false);
    assert_eq!(addresses(&files), ["a:1", "b:3"]);

    fs::remove_file(dir.path().join("a.json")).unwrap();
    files.look(false);
    assert_eq!(addresses(&files), ["b:3"]);
}

#[test]
fn group_with_a_field_unknown_is_refused() {
    let read = serde_json::from_str::<Vec<Group>>;
    let e = read(r#"[{"targets": [], "lables": {}}]"#).unwrap_err();
    assert!(e.to_string().starts_with("unknown field `lables`"), "{e}");
    assert_eq!(read("[{}]").unwrap(), [Group::default()]);
}
