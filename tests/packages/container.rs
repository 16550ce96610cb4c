//! The image. Where a builder has the base images, the test builds it. Elsewhere the test reads the
//! `Containerfile`, puts the files of the last stage into a folder and runs the commands there.

use crate::harness::server::{firn, wait_for};
use crate::machine::Machine;
use crate::{has, output, root, stripped, succeed, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PORT: &str = "9090";
const URL: &str = "http://127.0.0.1:9090";

/// An instruction, and what follows it.
#[derive(Clone, Debug)]
struct Instruction {
    name: String,
    rest: String,
}

impl Instruction {
    /// The words behind the options.
    fn words(&self) -> Vec<&str> {
        let words = self.rest.split_whitespace();
        words.filter(|word| !word.starts_with("--")).collect()
    }

    fn option(&self, name: &str) -> Option<&str> {
        let words = self.rest.split_whitespace();
        let mut options = words.take_while(|word| word.starts_with("--"));
        options.find_map(|word| word.strip_prefix(&format!("--{name}=")))
    }

    /// The command of an instruction that has it as a list of words.
    fn command(&self) -> Vec<String> {
        let start = self.rest.find('[');
        let list = &self.rest[start.unwrap_or_else(|| panic!("{self:?} runs a shell"))..];
        serde_json::from_str(list).unwrap_or_else(|e| panic!("{self:?}: {e}"))
    }
}

/// The stages of the Containerfile.
fn stages() -> Vec<Vec<Instruction>> {
    let text = text("Containerfile");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let mut stages: Vec<Vec<Instruction>> = Vec::new();
    for line in joined.lines().filter(|line| !line.trim().is_empty()) {
        let (name, rest) = line.split_once(' ').unwrap();
        if name == "FROM" {
            stages.push(Vec::new());
        }
        stages.last_mut().unwrap().push(Instruction {
            name: name.to_owned(),
            rest: rest.trim().to_owned(),
        });
    }
    assert_eq!(stages.len(), 2);
    stages
}

fn last<'a>(stage: &'a [Instruction], name: &str) -> &'a Instruction {
    let found = stage.iter().rev().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

/// Paths that `.containerignore` leaves in the context.
fn in_context() -> BTreeSet<String> {
    let text = text(".containerignore");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("*"));
    lines
        .map(|line| line.strip_prefix('!').unwrap().to_owned())
        .collect()
}

#[test]
fn containerfile_copies_existing_files_and_runs_existing_commands() {
    let stages = stages();
    let [build, image] = &stages[..] else {
        unreachable!("two stages");
    };
    let context = in_context();
    let mut copied = BTreeSet::new();
    for copy in build.iter().filter(|one| one.name == "COPY") {
        let words = copy.words();
        for source in &words[..words.len() - 1] {
            assert!(root(source).exists(), "{copy:?}");
            assert!(context.contains(*source), "{source} is not in the context");
            copied.insert((*source).to_owned());
        }
    }
    assert_eq!(
        copied, context,
        "the context has more than the COPY instructions read"
    );
    let toolchain = text("rust-toolchain.toml");
    let toolchain: toml::Table = toolchain.parse().unwrap();
    let version = toolchain["toolchain"]["channel"].as_str().unwrap();
    let base = &last(build, "FROM").rest;
    assert!(base.contains(&format!("/rust:{version}-")), "{base}");
    // Other sources would be folders of the builder or of another image.
    for copy in image.iter().filter(|one| one.name == "COPY") {
        assert_eq!(copy.option("from"), Some("build"), "{copy:?}");
    }
    let user = last(image, "USER").words()[0].to_owned();
    let numbers: Vec<u32> = user.split(':').map(|id| id.parse().unwrap()).collect();
    assert!(numbers.len() == 2 && !numbers.contains(&0), "{user}");
    assert_eq!(last(image, "EXPOSE").words(), [PORT]);
    assert_eq!(last(image, "VOLUME").command(), ["/data"]);
    let health = last(image, "HEALTHCHECK").command();
    let serve = last(image, "CMD").command();
    assert_eq!(health[0], last(image, "ENTRYPOINT").command()[0]);
    for words in [&health[1..], &serve[..]] {
        let command = words.iter().take_while(|word| !word.starts_with("--"));
        succeed(firn().args(command).arg("--help"));
    }
}

/// Writes the files of the last stage into a folder.
fn assemble(stages: &[Vec<Instruction>], image: &Path) {
    let built = tempfile::tempdir().unwrap();
    let inside = |dir: &Path, path: &str| dir.join(path.trim_start_matches('/'));
    for one in &stages[0] {
        if one.name == "RUN" {
            let made = one.rest.split("mkdir -p ").nth(1).unwrap();
            for dir in made.split("&&").next().unwrap().split_whitespace() {
                fs::create_dir_all(inside(built.path(), dir)).unwrap();
            }
            let binary = one.rest.split_whitespace().last().unwrap();
            fs::copy(stripped(), inside(built.path(), binary)).unwrap();
        } else if let Some((to, [from])) = one.words().split_last()
            && one.name == "COPY"
            && to.starts_with('/')
        {
            fs::copy(root(from), inside(built.path(), to)).unwrap();
        }
    }
    for copy in stages[1].iter().filter(|one| one.name == "COPY") {
        let words = copy.words();
        let to = inside(image, words[1]);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let from = inside(built.path(), words[0]);
        let mut cp = Command::new("cp");
        succeed(cp.args(["-r", "--no-target-directory"]).args([&from, &to]));
        if let Some(owner) = copy.option("chown") {
            succeed(Command::new("chown").args(["-R", owner]).arg(to));
        }
    }
}

/// The part of the base image that the binary needs.
fn add_base(image: &Path) {
    for dir in ["proc", "tmp", "etc"] {
        fs::create_dir_all(image.join(dir)).unwrap();
    }
    fs::write(image.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    let linked = succeed(Command::new("ldd").arg(stripped()));
    let libraries = linked
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for library in libraries {
        let to = image.join(&library[1..]);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(library, to).unwrap();
    }
}

#[test]
fn image_serves_and_answers_its_health_check() {
    let stages = stages();
    let image = tempfile::tempdir().unwrap();
    assemble(&stages, image.path());
    add_base(image.path());
    let Some(machine) = Machine::of(image.path()) else {
        return;
    };
    let user = last(&stages[1], "USER").words()[0].to_owned();
    let mut words = last(&stages[1], "ENTRYPOINT").command();
    words.extend(last(&stages[1], "CMD").command());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let log = image.path().join("log");
    let mut server = machine
        .command_as(&user, &words)
        .stderr(Stdio::from(fs::File::create(&log).unwrap()))
        .spawn()
        .unwrap();
    let health = last(&stages[1], "HEALTHCHECK").command();
    let health: Vec<&str> = health.iter().map(String::as_str).collect();
    let is_healthy = || {
        output(&mut machine.command_as(&user, &health))
            .status
            .success()
    };
    wait_for("the server to be healthy", || {
        assert_eq!(server.try_wait().unwrap(), None, "{}", read(&log));
        is_healthy()
    });
    wait_for("the server to be ready", || {
        machine.succeeds(&["/usr/bin/firn", "check", "ready", "--url", URL])
    });
    let listens = format!("address=0.0.0.0:{PORT}");
    assert!(read(&log).contains(&listens), "{}", read(&log));
    let data = fs::read_dir(image.path().join("data")).unwrap();
    assert!(data.count() > 0);
    drop(machine);
    server.wait().unwrap();
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn image_builds_where_its_base_images_are() {
    let bases = stages();
    let bases = bases.iter().map(|stage| last(stage, "FROM").words()[0]);
    let bases: Vec<String> = bases.map(str::to_owned).collect();
    let has_bases = |builder: &&str| {
        bases.iter().all(|base| {
            let mut inspect = Command::new(builder);
            inspect.args(["inspect", "--type", "image", base]);
            output(&mut inspect).status.success()
        })
    };
    let mut builders = ["docker", "podman", "buildah"].into_iter();
    let Some(builder) = builders.find(|name| has(name) && has_bases(name)) else {
        println!("skipped: no builder with {bases:?}");
        return;
    };
    let mut build = Command::new(builder);
    let file = PathBuf::from("Containerfile");
    build.arg("build").arg("--file").arg(file).arg(".");
    succeed(build.current_dir(root("")));
}
