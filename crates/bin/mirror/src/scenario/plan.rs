//! A parsed scenario file. `docs/compare.md` describes its format; `sections` parses its sections.

mod sections;

use crate::error::MirrorError;
use firn_model::units::parse_duration;
use firn_yaml::{YamlNode, YamlValue};
use sections::{Read, checks, compare, duration, load, needed, only, text};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A complete scenario, parsed and validated by [`ScenarioPlan::read`]. Its times are relative to
/// the start of the load.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioPlan {
    /// Path of the scenario file, to which other paths are relative.
    pub file: PathBuf,
    /// The system whose answers are considered correct.
    pub baseline: SystemPlan,
    /// The system that is compared with the baseline, and to which most steps apply.
    pub candidate: SystemPlan,
    /// Systems that are added by steps and do not run at the start.
    pub nodes: Vec<SystemPlan>,
    /// Host and port on which the mirror accepts the load.
    pub mirror: String,
    /// The load that is sent to the mirror.
    pub load: LoadPlan,
    /// The steps during the load, in the order of time.
    pub steps: Vec<ScenarioStep>,
    /// The queries and flags of the comparison after the load.
    pub compare: ComparePlan,
    /// The conditions that must hold at the end of the run.
    pub checks: ScenarioChecks,
}

/// A system of the scenario: how to start it, where it listens and where its data is.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemPlan {
    /// Name of the system: `baseline`, `candidate` or another one from the file.
    pub name: String,
    /// The program and its arguments, with all variables replaced.
    pub command: Vec<String>,
    /// Its data directory, by default inside the directory of the run.
    pub data: PathBuf,
    /// Host and port on which it listens for HTTP.
    pub address: String,
    /// Path that responds with 200 when the system is ready.
    pub ready: String,
    /// Path that accepts remote write, appended to its address.
    pub write: String,
    /// Address at which the run receives the system's alerts, if it does.
    pub alerts: Option<String>,
}

/// The load of the scenario, as the flags with which the run starts `firn load`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// Number of series that exist at any one time.
    pub series: u64,
    /// Time between two samples of a series, as `--interval` of `firn load`.
    pub interval: Duration,
    /// Length of the load, which is sent in real time.
    pub duration: Duration,
    /// Share of the pods that is replaced in each period, from 0 to 1.
    pub churn: String,
    /// Length of the replacement period, as text for the flag.
    pub churn_period: String,
    /// Seed of the simulated fleet; equal seeds give equal loads.
    pub seed: u64,
    /// Queries that are sent during the load, if there are any.
    pub reads: Option<ReadsPlan>,
}

/// Queries that are sent to one system during the load, as further flags of `firn load`.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadsPlan {
    /// Query files and directories, relative to the scenario file.
    pub queries: Vec<PathBuf>,
    /// Name of the system that receives the queries, baseline or candidate.
    pub system: String,
    /// Names and values of further flags, in the order of the file.
    pub flags: Vec<(String, String)>,
}

/// A disturbance of one system at a time of the load, parsed from the section `steps`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioStep {
    /// Time of the disturbance since the beginning of the load.
    pub at: Duration,
    /// Name of the system that is disturbed.
    pub system: String,
    /// The kind of disturbance, with its duration or command.
    pub action: ScenarioAction,
}

/// Disturbances of a system, as the key of a step names them.
#[derive(Clone, Debug, PartialEq)]
pub enum ScenarioAction {
    /// SIGKILL without warning, and a start after this time.
    Kill(Duration),
    /// SIGSTOP, and SIGCONT after this time, as if the machine hung.
    Pause(Duration),
    /// SIGTERM, and a start with the same command when it has exited.
    Restart,
    /// Like [`ScenarioAction::Restart`], but with another command from then on.
    Upgrade(Vec<String>),
    /// Fills the file system of its data directory for this time.
    Fill(Duration),
    /// Starts the system, which receives all data from then on.
    Add,
    /// Stops the system after removing it from the mirror.
    Remove,
}

/// The keys of which each step has exactly one, and which determines its action.
const ACTIONS: [&str; 7] = [
    "kill", "pause", "restart", "upgrade", "fill", "add", "remove",
];

/// The systems that exist from the beginning of a run and cannot be removed.
pub const FIRST: [&str; 2] = ["baseline", "candidate"];

/// The queries of the comparison after the load, as the flags with which the run starts `firn
/// compare`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparePlan {
    /// Query files and directories, relative to the scenario file.
    pub queries: Vec<PathBuf>,
    /// Names and values of further flags, in the order of the file.
    pub flags: Vec<(String, String)>,
}

/// The conditions that must hold at the end of a run, from the section `checks`. Some have
/// defaults; the optional ones are checked only if they are set.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioChecks {
    /// Minimum match rate of the comparison in percent.
    pub match_rate: f64,
    /// Whether each acknowledged sample must be stored exactly once in both systems.
    pub acked: bool,
    /// Whether the systems whose alerts are received must send those of the baseline.
    pub alerts: bool,
    /// Maximum duration of any write during the load.
    pub push_max: Duration,
    /// Minimum share of successful queries beside the load, from 0 to 1.
    pub read_share: Option<f64>,
    /// Maximum mean latency of these queries, if it is checked.
    pub read_average: Option<Duration>,
    /// Maximum ratio between the 99th percentiles of queries of equal cost.
    pub fairness: Option<f64>,
}

impl ScenarioChecks {
    /// Returns whether a condition concerns the queries beside the load, which the scenario must
    /// contain then.
    fn are_of_reads(&self) -> bool {
        self.read_share.is_some() || self.read_average.is_some() || self.fairness.is_some()
    }
}

impl ScenarioPlan {
    /// Reads and validates a scenario. In commands and directories, `{NAME}` is replaced by
    /// `settings`, and `{address}` and `{data}` by the values of the system. Its data directory is
    /// by default inside `run`.
    pub fn read(
        file: &Path,
        run: &Path,
        settings: &[(String, String)],
    ) -> Result<Self, MirrorError> {
        let text = std::fs::read_to_string(file).map_err(MirrorError::file("read", file));
        let text = text.map_err(|e| MirrorError::Usage(e.to_string()))?;
        let wrong = |what: String| MirrorError::Usage(format!("{}:{what}", file.display()));
        let root = firn_yaml::parse(&text).map_err(|e| wrong(e.to_string()))?;
        let root = root.ok_or_else(|| wrong(" an empty scenario".to_owned()))?;
        let reader = ScenarioReader { run, settings };
        reader.plan(&root, file).map_err(wrong)
    }

    /// Returns all systems: baseline and candidate, then those that steps add.
    pub fn systems(&self) -> impl Iterator<Item = &SystemPlan> {
        [&self.baseline, &self.candidate]
            .into_iter()
            .chain(&self.nodes)
    }

    /// Returns the systems whose alerts are received.
    pub fn receivers(&self) -> impl Iterator<Item = &SystemPlan> {
        self.systems().filter(|system| system.alerts.is_some())
    }

    /// Returns the query files and directories that the scenario names, relative to its file.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let reads = self.load.reads.iter().flat_map(|reads| &reads.queries);
        self.compare.queries.iter().chain(reads)
    }

    /// Returns the system with the given name; `None` if the scenario has no such system.
    pub fn system(&self, name: &str) -> Option<&SystemPlan> {
        self.systems().find(|system| system.name == name)
    }
}

struct ScenarioReader<'a> {
    run: &'a Path,
    settings: &'a [(String, String)],
}

impl ScenarioReader<'_> {
    fn plan(&self, root: &YamlNode, file: &Path) -> Read<ScenarioPlan> {
        let keys = ["systems", "mirror", "load", "steps", "compare", "checks"];
        only(root, "the scenario", &keys)?;
        let systems = needed(root, "systems")?;
        let [baseline, candidate] = FIRST.map(|name| self.system(name, needed(systems, name)?));
        let YamlValue::Map(entries) = &systems.value else {
            return Err(systems.error("systems is a mapping").to_string());
        };
        let others = entries.iter();
        let others = others.filter(|entry| !FIRST.contains(&entry.key.as_str()));
        let nodes = others.map(|entry| self.system(&entry.key, &entry.node));
        let steps = root.get("steps").map_or(&[][..], YamlNode::items);
        let mut plan = ScenarioPlan {
            file: file.to_owned(),
            mirror: text(needed(root, "mirror")?)?,
            load: load(needed(root, "load")?)?,
            steps: Vec::new(),
            compare: root
                .get("compare")
                .map(compare)
                .transpose()?
                .unwrap_or_default(),
            checks: checks(root.get("checks"))?,
            baseline: baseline?,
            candidate: candidate?,
            nodes: nodes.collect::<Read<_>>()?,
        };
        let mut read = Vec::new();
        for node in steps {
            read.push((self.step(node, &plan)?, node));
        }
        read.sort_by_key(|(step, _)| step.at);
        check_presence(&plan, &read).map_err(|(node, why)| node.error(why).to_string())?;
        plan.steps = read.into_iter().map(|(step, _)| step).collect();
        let refuse = |why: &str| Err(root.error(why).to_string());
        if plan.compare.queries.is_empty() && plan.compare.flags.is_empty() {
            return refuse("no queries: compare needs queries or generate");
        }
        if plan.checks.alerts && (plan.baseline.alerts.is_none() || plan.receivers().count() < 2) {
            return refuse("checks of alerts need alerts of the baseline and of another system");
        }
        if plan.checks.are_of_reads() && plan.load.reads.is_none() {
            return refuse("checks of reads need queries in load");
        }
        Ok(plan)
    }

    fn system(&self, name: &str, node: &YamlNode) -> Read<SystemPlan> {
        only(
            node,
            name,
            &["command", "address", "data", "ready", "write", "alerts"],
        )?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !name.chars().all(is_plain) || RESERVED.contains(&name) {
            let why = format!("invalid system name {name:?}");
            return Err(node.error(why).to_string());
        }
        let address = text(needed(node, "address")?)?;
        let own = self.run.join(name);
        let data = match node.get("data") {
            None => own,
            Some(node) => PathBuf::from(self.word(node, &address, &own)?),
        };
        let path = |key: &str, default: &str| node.get(key).map_or(Ok(default.to_owned()), text);
        Ok(SystemPlan {
            name: name.to_owned(),
            command: self.command(needed(node, "command")?, &address, &data)?,
            ready: path("ready", "/-/ready")?,
            write: path("write", "/api/v1/write")?,
            alerts: node.get("alerts").map(text).transpose()?,
            address,
            data,
        })
    }

    fn command(&self, node: &YamlNode, address: &str, data: &Path) -> Read<Vec<String>> {
        if node.items().is_empty() {
            return Err(node
                .error("a command is a list of a program and arguments")
                .to_string());
        }
        let words = node.items().iter();
        words.map(|word| self.word(word, address, data)).collect()
    }

    /// Returns the text of a node with all variables replaced. Fails if a variable is unknown.
    fn word(&self, node: &YamlNode, address: &str, data: &Path) -> Read<String> {
        let mut word = text(node)?;
        let (data, run) = (data.display().to_string(), self.run.display().to_string());
        for (name, value) in [("address", address), ("data", &data), ("run", &run)] {
            word = word.replace(&format!("{{{name}}}"), value);
        }
        for (name, value) in self.settings {
            word = word.replace(&format!("{{{name}}}"), value);
        }
        let open = word.find('{').and_then(|at| word[at..].split('}').next());
        match open {
            None => Ok(word),
            Some(name) => {
                let name = name.trim_start_matches('{');
                let why = format!("unknown variable {{{name}}}: set it with --set {name}=VALUE");
                Err(node.error(why).to_string())
            }
        }
    }

    fn step(&self, node: &YamlNode, plan: &ScenarioPlan) -> Read<ScenarioStep> {
        let others = ["at", "down", "for", "command"];
        only(node, "a step", &[&others[..], &ACTIONS[..]].concat())?;
        let span = |key: &str, default: &str| match node.get(key) {
            Some(node) => duration(node),
            None => parse_duration(default).map_err(|e| e.to_string()),
        };
        let actions = ACTIONS.iter();
        let mut actions = actions.filter_map(|key| Some((*key, node.get(key)?)));
        let (Some((action, name)), None) = (actions.next(), actions.next()) else {
            let why = format!("a step is one of {}", ACTIONS.join(", "));
            return Err(node.error(why).to_string());
        };
        let system = text(name)?;
        let Some(known) = plan.system(&system) else {
            let names: Vec<&str> = plan.systems().map(|system| system.name.as_str()).collect();
            let why = format!("no system {system:?}: {}", names.join(", "));
            return Err(name.error(why).to_string());
        };
        Ok(ScenarioStep {
            at: duration(needed(node, "at")?)?,
            action: match action {
                "kill" => ScenarioAction::Kill(span("down", "0")?),
                "pause" => ScenarioAction::Pause(span("for", "10s")?),
                "restart" => ScenarioAction::Restart,
                "fill" => ScenarioAction::Fill(span("for", "10s")?),
                "add" => ScenarioAction::Add,
                "remove" => ScenarioAction::Remove,
                _ => {
                    let command = needed(node, "command")?;
                    ScenarioAction::Upgrade(self.command(command, &known.address, &known.data)?)
                }
            },
            system,
        })
    }
}

/// Names of a run's own files, which systems cannot have.
const RESERVED: [&str; 7] = [
    "mirror", "load", "compare", "report", "events", "state", "result",
];

/// Rejects steps for systems that do not exist at that time, and systems that no step adds.
fn check_presence<'n>(
    plan: &ScenarioPlan,
    steps: &[(ScenarioStep, &'n YamlNode)],
) -> Result<(), (&'n YamlNode, String)> {
    let mut there: Vec<&str> = FIRST.to_vec();
    let mut added: Vec<&str> = Vec::new();
    for (step, node) in steps {
        let name = step.system.as_str();
        let is_there = there.contains(&name);
        let is_first = FIRST.contains(&name);
        match step.action {
            ScenarioAction::Add if added.contains(&name) || is_first => {
                return Err((node, format!("{name} already exists")));
            }
            ScenarioAction::Add => {
                there.push(name);
                added.push(name);
            }
            ScenarioAction::Remove if is_first => {
                return Err((node, format!("{name} is required to compare anything")));
            }
            _ if !is_there => return Err((node, format!("{name} does not exist at that time"))),
            ScenarioAction::Remove => there.retain(|known| *known != name),
            _ => {}
        }
    }
    let forgotten = plan
        .nodes
        .iter()
        .find(|n| !added.contains(&n.name.as_str()));
    match (forgotten, steps.first()) {
        (Some(system), Some((_, node))) => Err((node, format!("no step adds {}", system.name))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: &str = "systems:\n  baseline: {command: [a, '{data}'], address: '127.0.0.1:1'}\n  \
                         candidate: {command: ['{b}', '--at={address}'], address: '127.0.0.1:2'}\n\
                         mirror: 127.0.0.1:3\nload: {series: 5, interval: 1s, duration: 1m}\n\
                         compare: {generate: 9}\n";

    fn read(text: &str) -> Result<ScenarioPlan, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.yml");
        std::fs::write(&file, text).unwrap();
        let settings = [("b".to_owned(), "/bin/b".to_owned())];
        let plan = ScenarioPlan::read(&file, Path::new("/run"), &settings);
        plan.map_err(|e| e.to_string().replace(&dir.path().display().to_string(), ""))
    }

    #[test]
    fn scenario_with_every_step_is_read() {
        let steps = "steps:\n- {at: 20s, pause: baseline, for: 3s}\n- {at: 10s, kill: candidate}\n\
                     - {at: 30s, restart: candidate}\n\
                     - {at: 40s, upgrade: candidate, command: [c, '{address}']}\n\
                     checks: {match_rate: 99.5, acked: false, push_max: 1s}\n";
        let plan = read(&format!("{SHORT}{steps}")).unwrap();
        assert_eq!(plan.baseline.command, ["a", "/run/baseline"]);
        assert_eq!(plan.candidate.command, ["/bin/b", "--at=127.0.0.1:2"]);
        let actions: Vec<_> = plan
            .steps
            .iter()
            .map(|s| (s.system.as_str(), s.action.clone()))
            .collect();
        let upgrade = ScenarioAction::Upgrade(vec!["c".to_owned(), "127.0.0.1:2".to_owned()]);
        assert_eq!(
            actions,
            [
                ("candidate", ScenarioAction::Kill(Duration::ZERO)),
                ("baseline", ScenarioAction::Pause(Duration::from_secs(3))),
                ("candidate", ScenarioAction::Restart),
                ("candidate", upgrade),
            ]
        );
        assert_eq!((plan.checks.match_rate, plan.checks.acked), (99.5, false));
        let third = "mirror:";
        let more =
            "  third: {command: [d, '{data}'], address: '127.0.0.1:4', data: '/disk/{b}'}\nmirror:";
        let steps = "steps:\n- {at: 2s, fill: third, for: 5s}\n- {at: 1s, add: third}\n\
                     - {at: 9s, remove: third}\n";
        let grown = read(&format!("{}{steps}", SHORT.replace(third, more))).unwrap();
        assert_eq!(grown.nodes[0].command, ["d", "/disk//bin/b"]);
        let actions: Vec<_> = grown.steps.iter().map(|s| s.action.clone()).collect();
        let fill = ScenarioAction::Fill(Duration::from_secs(5));
        assert_eq!(actions, [ScenarioAction::Add, fill, ScenarioAction::Remove]);
        assert!(!plan.checks.alerts && plan.receivers().count() == 0);
        let taken = "address: '127.0.0.1:1', alerts: '127.0.0.1:8'";
        let mut text = SHORT.replace("address: '127.0.0.1:1'", taken);
        text = text.replace("'127.0.0.1:2'", "'127.0.0.1:2', alerts: '127.0.0.1:9'");
        let told = read(&format!("{text}checks: {{alerts: true}}\n")).unwrap();
        let addresses: Vec<_> = told.receivers().flat_map(|s| &s.alerts).collect();
        assert_eq!(addresses, ["127.0.0.1:8", "127.0.0.1:9"]);
        assert!(told.checks.alerts);
        let asking = SHORT
            .replace(
                "duration: 1m}",
                "duration: 1m, queries: [q.txt], query: baseline, query_rate: 5}",
            )
            .replace(
                "{generate: 9}",
                "{queries: [boards], passes: [instant, series], tolerance_ulps: 4}",
            );
        let checks = "checks: {read_share: 0.9, read_average: 2s, fairness: 3}\n";
        let asking = read(&format!("{asking}{checks}")).unwrap();
        let reads = asking.load.reads.as_ref().unwrap();
        assert_eq!(reads.system, "baseline");
        let pairs = |flags: &[(String, String)]| {
            let pairs = flags.iter().map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(pairs(&reads.flags), ["--query-rate=5"]);
        let flags = ["--passes=instant", "--passes=series", "--tolerance-ulps=4"];
        assert_eq!(pairs(&asking.compare.flags), flags);
        let files: Vec<_> = asking.files().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(files, ["boards", "q.txt"]);
        assert_eq!(asking.checks.read_share, Some(0.9));
        assert_eq!(asking.checks.read_average, Some(Duration::from_secs(2)));
        let plain = read(SHORT).unwrap();
        assert_eq!(plain.load.reads, None);
        assert_eq!((plain.checks.match_rate, plain.checks.acked), (100.0, true));
    }

    #[test]
    fn scenario_that_is_wrong_names_the_place() {
        let cases = [
            ("", "/s.yml: an empty scenario"),
            ("x: 1\n", "/s.yml:1:1: unknown key \"x\" in the scenario"),
            ("mirror: a\n", "/s.yml:1:1: systems is missing"),
        ];
        for (text, expected) in cases {
            let e = read(text).unwrap_err();
            assert!(e.starts_with(expected), "{e}");
        }
        let with = |from: &str, to: &str| read(&SHORT.replace(from, to)).unwrap_err();
        let e = with("{b}", "{other}");
        assert!(
            e.ends_with("unknown variable {other}: set it with --set other=VALUE"),
            "{e}"
        );
        let e = with("generate: 9", "queries: [../x]");
        assert!(
            e.ends_with("a query file must be in the folder of the scenario"),
            "{e}"
        );
        let e = with("compare: {generate: 9}\n", "");
        assert!(
            e.ends_with("no queries: compare needs queries or generate"),
            "{e}"
        );
        let e = with("duration: 1m", "duration: 1m, query_rate: 3");
        assert!(e.ends_with("questions need queries"), "{e}");
        let e = with("duration: 1m", "duration: 1m, queries: [q], query: other");
        assert!(
            e.ends_with("query is one of baseline, candidate: \"other\""),
            "{e}"
        );
        let e = read(&format!("{SHORT}checks: {{alerts: true}}\n")).unwrap_err();
        assert!(e.contains("checks of alerts need alerts of the"), "{e}");
        let e = read(&format!("{SHORT}checks: {{fairness: 3}}\n")).unwrap_err();
        assert!(e.ends_with("checks of reads need queries in load"), "{e}");
        let e = read(&format!("{SHORT}steps:\n- {{at: 1s, kill: other}}\n")).unwrap_err();
        assert!(
            e.ends_with("no system \"other\": baseline, candidate"),
            "{e}"
        );
        let e = read(&format!("{SHORT}steps:\n- {{at: 1s}}\n")).unwrap_err();
        assert!(
            e.ends_with("a step is one of kill, pause, restart, upgrade, fill, add, remove"),
            "{e}"
        );
    }

    #[test]
    fn step_to_a_system_that_is_not_there_is_refused() {
        let third = "  third: {command: [c], address: '127.0.0.1:4'}\nmirror:";
        let check = |steps: &str, expected: &str| {
            let text = SHORT.replace("mirror:", third);
            let e = read(&format!("{text}steps: [{steps}]\n")).unwrap_err();
            assert!(e.ends_with(expected), "{steps}: {e}");
        };
        check("{at: 1s, kill: third}", "third does not exist at that time");
        check("{at: 1s, kill: baseline}", "no step adds third");
        check(
            "{at: 1s, add: third}, {at: 2s, add: third}",
            "third already exists",
        );
        check(
            "{at: 1s, add: third}, {at: 3s, remove: third}, {at: 4s, pause: third}",
            "third does not exist at that time",
        );
        check("{at: 1s, add: candidate}", "candidate already exists");
        check(
            "{at: 1s, remove: baseline}",
            "baseline is required to compare anything",
        );
        let e = read(&SHORT.replace("mirror:", &third.replace("third", "load"))).unwrap_err();
        assert!(e.ends_with("invalid system name \"load\""), "{e}");
    }

    #[test]
    fn shipped_scenarios_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/scenarios");
        let settings = [
            "firn",
            "config",
            "disk",
            "old",
            "prometheus",
            "rules",
            "victoria",
        ];
        let settings = settings.map(|name| (name.to_owned(), "x".to_owned()));
        for name in [
            "grow.yml",
            "full.yml",
            "kill.yml",
            "upgrade.yml",
            "prometheus.yml",
            "rules.yml",
            "victoriametrics.yml",
        ] {
            let plan = ScenarioPlan::read(&folder.join(name), Path::new("run"), &settings).unwrap();
            assert!(!plan.steps.is_empty(), "{name}");
            for file in plan.files() {
                assert!(folder.join(file).is_file(), "{name}: {}", file.display());
            }
        }
    }

    #[test]
    fn shipped_lists_are_read_whole() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/scenarios");
        for name in ["questions.txt", "node_exporter.txt", "kubernetes.txt"] {
            let text = std::fs::read_to_string(folder.join(name)).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            for line in lines {
                if let Err(e) = crate::questions::parse(line) {
                    panic!("{name}: {line}: {e}");
                }
            }
        }
    }
}
