//! The Debian package and the archive: built, installed, run, upgraded, removed.

use crate::harness::server::wait_for;
use crate::machine::Machine;
use crate::{has, root, stripped, succeed, text};
use std::path::Path;
use std::process::Command;

const FIRST: &str = "0.1.0";
const SECOND: &str = "0.1.1";

/// Exposure by `systemd-analyze security`, times ten.
const EXPOSURE_MAX: &str = "15";

/// Records its calls. The real systemctl enables units, which needs no running service manager.
const RECORDER: &str = r#"#!/bin/sh
echo "${0##*/} $*" >>/run/calls
case "$*" in
    --root=*) exec /usr/bin/systemctl.true "$@" ;;
esac
"#;

/// The packages of one version in a folder.
struct Packages {
    dir: tempfile::TempDir,
}

impl Packages {
    fn build(versions: &[&str]) -> Self {
        let packages = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for version in versions {
            packages.add(version);
        }
        packages
    }

    fn add(&self, version: &str) {
        let mut build = Command::new("sh");
        build
            .arg(root("deploy/package/build.sh"))
            .arg(stripped())
            .args([version, &architecture()])
            .arg(self.dir.path())
            .env("FIRN_PACKAGE_QUICK", "1")
            .env("SOURCE_DATE_EPOCH", "1700000000");
        succeed(&mut build);
    }
}

fn architecture() -> String {
    let name = succeed(Command::new("dpkg").arg("--print-architecture"));
    name.trim().to_owned()
}

fn deb(version: &str) -> String {
    format!("firn_{version}_{}.deb", architecture())
}

/// A machine with the package installed; its service manager only records calls.
struct Installed<'a> {
    machine: &'a Machine,
}

impl Installed<'_> {
    fn prepare(machine: &Machine) -> Installed<'_> {
        machine.write_program("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n");
        machine
            .shell("mkdir -p /run/systemd/system; mv /usr/bin/systemctl /usr/bin/systemctl.true");
        machine.write_program("/usr/bin/systemctl", RECORDER);
        machine.write_program("/usr/bin/deb-systemd-invoke", RECORDER);
        Installed { machine }
    }

    fn dpkg(&self, action: &str, package: &str) {
        let options = ["--force-unsafe-io", "--no-triggers"];
        let words = ["dpkg", options[0], options[1], action, package];
        self.machine.run(&words);
    }

    /// Calls of the service manager since the previous look.
    fn calls(&self) -> String {
        self.machine
            .shell("test ! -e /run/calls || { cat /run/calls; rm /run/calls; }")
    }

    /// A line of the installed unit.
    fn unit(&self, key: &str) -> String {
        let unit = self
            .machine
            .run(&["cat", "/usr/lib/systemd/system/firn.service"]);
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{key}=")));
        line.unwrap_or_else(|| panic!("no {key} in {unit}"))
            .to_owned()
    }

    /// Runs the command of the service as its user, and waits until the server is ready.
    fn start_service(&self) {
        let arguments = self.machine.shell(". /etc/default/firn; echo $ARGS");
        let line = self.unit("ExecStart").replace("$ARGS", arguments.trim());
        let (program, rest) = line.split_once(' ').unwrap();
        let (user, dir, umask) = (
            self.unit("User"),
            self.unit("WorkingDirectory"),
            self.unit("UMask"),
        );
        let mut words = vec!["start-stop-daemon", "--start", "--background"];
        words.extend(["--pidfile", "/run/firn.pid", "--make-pidfile"]);
        words.extend(["--output", "/run/firn.log", "--chuid", &user]);
        words.extend(["--chdir", &dir, "--umask", &umask]);
        words.extend(["--startas", program, "--"]);
        words.extend(rest.split(' ').filter(|word| !word.is_empty()));
        self.machine.run(&words);
        wait_for("the service to be ready", || {
            self.machine.succeeds(&["firn", "check", "ready"])
        });
    }

    fn stop_service(&self) {
        let stop = ["start-stop-daemon", "--stop", "--retry", "TERM/20"];
        self.machine
            .run(&[&stop[..], &["--pidfile", "/run/firn.pid"]].concat());
        let log = self.machine.run(&["cat", "/run/firn.log"]);
        assert!(!log.contains("level=ERROR"), "{log}");
    }

    fn kept(&self) -> String {
        let query = ["firn", "query", "instant", "http://localhost:9090", "kept"];
        self.machine.run(&query)
    }

    fn owner(&self, path: &str) -> String {
        let owner = self.machine.run(&["stat", "--format=%U:%G %a", path]);
        owner.trim().to_owned()
    }
}

#[test]
fn package_that_is_upgraded_removed_and_purged_keeps_data_until_the_purge() {
    let packages = Packages::build(&[FIRST, SECOND]);
    let Some(machine) = Machine::like_this_one(packages.dir.path()) else {
        return;
    };
    let installed = Installed::prepare(&machine);
    installs(&installed);
    installed.start_service();
    machine.write(
        &["firn", "push", "metrics", "http://localhost:9090"],
        "kept 42\n",
    );
    assert!(installed.kept().contains("42"), "{}", installed.kept());
    let data = machine.run(&["find", "/var/lib/firn/data", "!", "-user", "firn"]);
    assert_eq!(data, "", "files of another owner");
    assert!(machine.has("/var/lib/firn/data"));
    upgrades(&installed);
    removes(&installed);
}

fn installs(installed: &Installed<'_>) {
    let machine = installed.machine;
    installed.dpkg("--install", &format!("/mnt/{}", deb(FIRST)));
    let calls = installed.calls();
    assert!(
        calls.contains("deb-systemd-invoke start firn.service"),
        "{calls}"
    );
    assert!(machine.has(ENABLED));
    assert_eq!(installed.owner("/var/lib/firn"), "firn:firn 750");
    assert_eq!(installed.owner("/usr/bin/firn"), "root:root 755");
    machine.run(&["firn", "check", "config", "/etc/firn/firn.yml"]);
    let status = machine.run(&[
        "dpkg-query",
        "--show",
        "--showformat=${db:Status-Status}",
        "firn",
    ]);
    assert_eq!(status, "installed");
    if !has("systemd-analyze") {
        println!("skipped: no systemd-analyze to check the unit");
        return;
    }
    let unit = "/usr/lib/systemd/system/firn.service";
    let verify = ["systemd-analyze", "verify", "--man=no", unit];
    let output = crate::output(&mut machine.command(&verify));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("firn.service:"), "{said}");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let security = ["systemd-analyze", "security", "--offline=true", &threshold];
    machine.run(&[&security[..], &[unit]].concat());
}

const ENABLED: &str = "/etc/systemd/system/multi-user.target.wants/firn.service";

fn upgrades(installed: &Installed<'_>) {
    let machine = installed.machine;
    machine.shell(
        "echo '# mine' >>/etc/firn/firn.yml; echo 'ARGS=\"--log.format json\"' >/etc/default/firn",
    );
    installed.dpkg("--install", &format!("/mnt/{}", deb(SECOND)));
    let calls = installed.calls();
    assert!(
        calls.contains("deb-systemd-invoke restart firn.service"),
        "{calls}"
    );
    assert!(!calls.contains("stop"), "{calls}");
    let version = machine.run(&["dpkg-query", "--show", "--showformat=${Version}", "firn"]);
    assert_eq!(version, format!("{SECOND}-1"));
    assert!(machine.run(&["cat", "/etc/firn/firn.yml"]).contains("mine"));
    // The restart that the package requests from the service manager.
    installed.stop_service();
    installed.start_service();
    assert!(installed.kept().contains("42"), "{}", installed.kept());
    let log = machine.run(&["cat", "/run/firn.log"]);
    assert!(log.lines().last().unwrap().starts_with('{'), "{log}");
}

fn removes(installed: &Installed<'_>) {
    let machine = installed.machine;
    installed.stop_service();
    installed.dpkg("--remove", "firn");
    let calls = installed.calls();
    assert!(
        calls.contains("deb-systemd-invoke stop firn.service"),
        "{calls}"
    );
    assert!(!machine.has("/usr/bin/firn"));
    assert!(machine.has("/var/lib/firn/data"));
    assert!(machine.has("/etc/firn/firn.yml"));
    installed.dpkg("--purge", "firn");
    for path in [
        "/var/lib/firn",
        "/etc/firn",
        "/etc/default/firn",
        "/usr/share/firn",
        ENABLED,
    ] {
        assert!(!machine.has(path), "{path} is left");
    }
    machine.run(&["getent", "passwd", "firn"]);
}

#[test]
fn packages_are_reproducible_and_the_archive_installs_by_its_notes() {
    let packages = Packages::build(&[FIRST]);
    check_equal(&packages, &Packages::build(&[FIRST]));
    let Some(machine) = Machine::like_this_one(packages.dir.path()) else {
        return;
    };
    let name = format!("firn-{FIRST}-linux-{}", architecture());
    let debug = machine.run(&["tar", "-tzf", &format!("/mnt/{name}-debug.tar.gz")]);
    assert!(debug.trim_end().ends_with(".debug"), "{debug}");
    machine.shell(&format!("tar -C /tmp -xzf /mnt/{name}.tar.gz"));
    let notes = text("deploy/package/INSTALL.md");
    let blocks = notes.split("```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines);
    // There is no service manager.
    let lines: Vec<&str> = lines
        .filter(|line| !line.starts_with("systemctl ") && !line.starts_with("firn "))
        .collect();
    assert!(lines.len() > 5, "{lines:?}");
    machine.shell(&format!("cd /tmp/{name}\n{}", lines.join("\n")));
    machine.run(&["firn", "check", "config", "/etc/firn/firn.yml"]);
    for path in [
        "/etc/systemd/system/firn.service",
        "/usr/local/share/man/man1/firn-serve.1.gz",
        "/usr/share/zsh/vendor-completions/_firn",
    ] {
        assert!(machine.has(path), "no {path}");
    }
    for name in ["LICENSE", "README.md"] {
        machine.shell(&format!("test -s /tmp/firn-*/{name}"));
    }
}

/// Checks that two builds of one binary are equal to the byte.
fn check_equal(a: &Packages, b: &Packages) {
    let names = std::fs::read_dir(a.dir.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        let read = |packages: &Packages| std::fs::read(packages.dir.path().join(&name)).unwrap();
        assert!(read(a) == read(b), "{name:?} differs");
    }
}

#[test]
fn binary_links_the_c_library_alone() {
    let linked = succeed(Command::new("ldd").arg(stripped()));
    let known = ["linux-vdso", "libgcc_s", "libm.", "libc.", "ld-linux"];
    for line in linked.lines() {
        let name = Path::new(line.split_whitespace().next().unwrap());
        let name = name.file_name().unwrap().to_str().unwrap();
        assert!(known.iter().any(|known| name.starts_with(known)), "{line}");
    }
}
