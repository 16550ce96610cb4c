//! What a scenario says. `docs/compare.md` describes the file.

use crate::error::MirrorError;
use firn_model::units::parse_duration;
use firn_model::yaml::{self, Node, Value};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// A whole scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The file.
    pub file: PathBuf,
    /// The system whose answers count as right.
    pub baseline: SystemPlan,
    /// The system that things happen to, mostly.
    pub candidate: SystemPlan,
    /// Where the mirror listens.
    pub mirror: String,
    /// What is sent.
    pub load: LoadPlan,
    /// What happens meanwhile, by time.
    pub steps: Vec<Step>,
    /// What is asked.
    pub compare: ComparePlan,
    /// What must hold.
    pub checks: Checks,
}

/// A system.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemPlan {
    /// `baseline` or `candidate`.
    pub name: &'static str,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Host and port.
    pub address: String,
    /// The path that answers 200 when the system is ready.
    pub ready: String,
    /// The path that takes remote write.
    pub write: String,
}

/// The load: flags of `firn load`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// Series at any one time.
    pub series: u64,
    /// Time between two samples of a series.
    pub interval: Duration,
    /// How long it lasts.
    pub duration: Duration,
    /// Share of the pods that is replaced each period.
    pub churn: String,
    /// How often.
    pub churn_period: String,
    /// Which load.
    pub seed: u64,
}

/// Something that happens to a system.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, from the beginning of the load.
    pub at: Duration,
    /// To which system.
    pub system: &'static str,
    /// What.
    pub action: Action,
}

/// What may happen to a system.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// `kill -9`, and a start so much later.
    Kill(Duration),
    /// SIGSTOP, and SIGCONT so much later.
    Pause(Duration),
    /// SIGTERM, and a start once it has ended.
    Restart,
    /// Like `Restart`, by another command from then on.
    Upgrade(Vec<String>),
}

/// What is asked: flags of `firn compare`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparePlan {
    /// Files beside the scenario.
    pub queries: Vec<PathBuf>,
    /// Questions to make up.
    pub generate: u64,
    /// How far values may be apart.
    pub tolerance_relative: String,
}

/// What must hold at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Checks {
    /// The least match rate, in percent.
    pub match_rate: f64,
    /// Whether every acknowledged sample must be in both systems, once.
    pub acked: bool,
    /// The longest push.
    pub push_max: Duration,
}

impl Plan {
    /// Reads a scenario; `{NAME}` in commands is replaced by `settings`, and `{address}` and
    /// `{data}` by what the system has: its address, and a folder of its own in `run`.
    pub fn read(
        file: &Path,
        run: &Path,
        settings: &[(String, String)],
    ) -> Result<Self, MirrorError> {
        let text = std::fs::read_to_string(file).map_err(MirrorError::file("read", file));
        let text = text.map_err(|e| MirrorError::Usage(e.to_string()))?;
        let wrong = |what: String| MirrorError::Usage(format!("{}:{what}", file.display()));
        let root = yaml::parse(&text).map_err(|e| wrong(e.to_string()))?;
        let root = root.ok_or_else(|| wrong(" an empty scenario".to_owned()))?;
        let reader = Reader { run, settings };
        reader.plan(&root, file).map_err(wrong)
    }
}

/// What was read, or the place and what is wrong there.
type Read<T> = Result<T, String>;

struct Reader<'a> {
    run: &'a Path,
    settings: &'a [(String, String)],
}

impl Reader<'_> {
    fn plan(&self, root: &Node, file: &Path) -> Read<Plan> {
        let keys = ["systems", "mirror", "load", "steps", "compare", "checks"];
        only(root, "the scenario", &keys)?;
        let systems = needed(root, "systems")?;
        only(systems, "systems", &["baseline", "candidate"])?;
        let baseline = self.system("baseline", needed(systems, "baseline")?)?;
        let candidate = self.system("candidate", needed(systems, "candidate")?)?;
        let steps = root.get("steps").map_or(&[][..], Node::items);
        let mut plan = Plan {
            file: file.to_owned(),
            mirror: text(needed(root, "mirror")?)?,
            load: load(needed(root, "load")?)?,
            steps: steps
                .iter()
                .map(|s| self.step(s, &baseline, &candidate))
                .collect::<Read<_>>()?,
            compare: root
                .get("compare")
                .map(compare)
                .transpose()?
                .unwrap_or_default(),
            checks: checks(root.get("checks"))?,
            baseline,
            candidate,
        };
        plan.steps.sort_by_key(|step| step.at);
        if plan.compare.queries.is_empty() && plan.compare.generate == 0 {
            let e = root.error("nothing to ask: compare needs queries or generate");
            return Err(e.to_string());
        }
        Ok(plan)
    }

    fn system(&self, name: &'static str, node: &Node) -> Read<SystemPlan> {
        only(node, name, &["command", "address", "ready", "write"])?;
        let address = text(needed(node, "address")?)?;
        let path = |key: &str, default: &str| node.get(key).map_or(Ok(default.to_owned()), text);
        Ok(SystemPlan {
            name,
            command: self.command(needed(node, "command")?, name, &address)?,
            ready: path("ready", "/-/ready")?,
            write: path("write", "/api/v1/write")?,
            address,
        })
    }

    fn command(&self, node: &Node, system: &str, address: &str) -> Read<Vec<String>> {
        if node.items().is_empty() {
            return Err(node
                .error("a command is a list of a program and arguments")
                .to_string());
        }
        let data = self.run.join(system).display().to_string();
        let folder = self.run.display().to_string();
        let word = |node: &Node| {
            let mut word = text(node)?;
            for (name, value) in [("address", address), ("data", &data), ("run", &folder)] {
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
                    let why = format!("{{{name}}} is not known: give it with --set {name}=VALUE");
                    Err(node.error(why).to_string())
                }
            }
        };
        node.items().iter().map(word).collect()
    }

    fn step(&self, node: &Node, baseline: &SystemPlan, candidate: &SystemPlan) -> Read<Step> {
        let keys = [
            "at", "kill", "down", "pause", "for", "restart", "upgrade", "command",
        ];
        only(node, "a step", &keys)?;
        let span = |key: &str, default: &str| match node.get(key) {
            Some(node) => duration(node),
            None => parse_duration(default).map_err(|e| e.to_string()),
        };
        let named = |key: &str| node.get(key).map(|node| (key.to_owned(), node));
        let actions = ["kill", "pause", "restart", "upgrade"].iter();
        let mut actions = actions.filter_map(|key| named(key));
        let (Some((action, name)), None) = (actions.next(), actions.next()) else {
            let e = node.error("a step is one of kill, pause, restart and upgrade");
            return Err(e.to_string());
        };
        let system = match text(name)?.as_str() {
            "baseline" => baseline,
            "candidate" => candidate,
            other => {
                let why = format!("no system {other:?}: baseline or candidate");
                return Err(name.error(why).to_string());
            }
        };
        Ok(Step {
            at: duration(needed(node, "at")?)?,
            system: system.name,
            action: match action.as_str() {
                "kill" => Action::Kill(span("down", "0")?),
                "pause" => Action::Pause(span("for", "10s")?),
                "restart" => Action::Restart,
                _ => {
                    let command = needed(node, "command")?;
                    Action::Upgrade(self.command(command, system.name, &system.address)?)
                }
            },
        })
    }
}

fn load(node: &Node) -> Read<LoadPlan> {
    only(
        node,
        "load",
        &[
            "series",
            "interval",
            "duration",
            "churn",
            "churn_period",
            "seed",
        ],
    )?;
    let word = |key: &str, default: &str| node.get(key).map_or(Ok(default.to_owned()), text);
    Ok(LoadPlan {
        series: number(needed(node, "series")?)?,
        interval: duration(needed(node, "interval")?)?,
        duration: duration(needed(node, "duration")?)?,
        churn: word("churn", "0")?,
        churn_period: word("churn_period", "15m")?,
        seed: node.get("seed").map_or(Ok(1), number)?,
    })
}

fn compare(node: &Node) -> Read<ComparePlan> {
    only(
        node,
        "compare",
        &["queries", "generate", "tolerance_relative"],
    )?;
    let beside = |node: &Node| {
        let path = PathBuf::from(text(node)?);
        match path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
        {
            true => Ok(path),
            false => Err(node
                .error("a file of questions lies beside the scenario")
                .to_string()),
        }
    };
    let queries = node.get("queries").map_or(&[][..], Node::items);
    let tolerance = node
        .get("tolerance_relative")
        .map_or(Ok("0".to_owned()), text)?;
    Ok(ComparePlan {
        queries: queries.iter().map(beside).collect::<Read<_>>()?,
        generate: node.get("generate").map_or(Ok(0), number)?,
        tolerance_relative: tolerance,
    })
}

fn checks(node: Option<&Node>) -> Read<Checks> {
    let get = |key: &str| node.and_then(|node| node.get(key));
    if let Some(node) = node {
        only(node, "checks", &["match_rate", "acked", "push_max"])?;
    }
    let ten_seconds = || Ok(Duration::from_secs(10));
    Ok(Checks {
        match_rate: get("match_rate").map_or(Ok(100.0), number)?,
        acked: get("acked").map_or(Ok(true), number)?,
        push_max: get("push_max").map_or_else(ten_seconds, duration)?,
    })
}

/// Refuses keys that a mapping does not have.
fn only(node: &Node, what: &str, keys: &[&str]) -> Read<()> {
    let Value::Map(entries) = &node.value else {
        return Err(node.error(format!("{what} is a mapping")).to_string());
    };
    match entries
        .iter()
        .find(|entry| !keys.contains(&entry.key.as_str()))
    {
        None => Ok(()),
        Some(entry) => {
            let keys = keys.join(", ");
            Err(format!(
                "{}: unknown key {:?} in {what}: {keys}",
                entry.place, entry.key
            ))
        }
    }
}

fn needed<'n>(node: &'n Node, key: &str) -> Read<&'n Node> {
    node.get(key)
        .ok_or_else(|| node.error(format!("{key} is missing")).to_string())
}

fn text(node: &Node) -> Read<String> {
    let text = node.text().map(str::to_owned);
    text.ok_or_else(|| node.error("not a text").to_string())
}

fn number<T: std::str::FromStr>(node: &Node) -> Read<T> {
    let text = text(node)?;
    text.parse()
        .map_err(|_| node.error(format!("not understood: {text:?}")).to_string())
}

fn duration(node: &Node) -> Read<Duration> {
    parse_duration(&text(node)?).map_err(|e| node.error(e.to_string()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: &str = "systems:\n  baseline: {command: [a, '{data}'], address: '127.0.0.1:1'}\n  \
                         candidate: {command: ['{b}', '--at={address}'], address: '127.0.0.1:2'}\n\
                         mirror: 127.0.0.1:3\nload: {series: 5, interval: 1s, duration: 1m}\n\
                         compare: {generate: 9}\n";

    fn read(text: &str) -> Result<Plan, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.yml");
        std::fs::write(&file, text).unwrap();
        let settings = [("b".to_owned(), "/bin/b".to_owned())];
        let plan = Plan::read(&file, Path::new("/run"), &settings);
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
            .map(|s| (s.system, s.action.clone()))
            .collect();
        let upgrade = Action::Upgrade(vec!["c".to_owned(), "127.0.0.1:2".to_owned()]);
        assert_eq!(
            actions,
            [
                ("candidate", Action::Kill(Duration::ZERO)),
                ("baseline", Action::Pause(Duration::from_secs(3))),
                ("candidate", Action::Restart),
                ("candidate", upgrade),
            ]
        );
        assert_eq!((plan.checks.match_rate, plan.checks.acked), (99.5, false));
        let plain = read(SHORT).unwrap();
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
            e.ends_with("{other} is not known: give it with --set other=VALUE"),
            "{e}"
        );
        let e = with("generate: 9", "queries: [../x]");
        assert!(
            e.ends_with("a file of questions lies beside the scenario"),
            "{e}"
        );
        let e = with("compare: {generate: 9}\n", "");
        assert!(
            e.ends_with("nothing to ask: compare needs queries or generate"),
            "{e}"
        );
        let e = read(&format!("{SHORT}steps:\n- {{at: 1s, kill: other}}\n")).unwrap_err();
        assert!(
            e.ends_with("no system \"other\": baseline or candidate"),
            "{e}"
        );
        let e = read(&format!("{SHORT}steps:\n- {{at: 1s}}\n")).unwrap_err();
        assert!(
            e.ends_with("a step is one of kill, pause, restart and upgrade"),
            "{e}"
        );
    }

    #[test]
    fn shipped_scenarios_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/scenarios");
        let settings = ["firn", "config", "old", "prometheus"];
        let settings = settings.map(|name| (name.to_owned(), "x".to_owned()));
        for name in ["kill.yml", "upgrade.yml", "prometheus.yml"] {
            let plan = Plan::read(&folder.join(name), Path::new("run"), &settings).unwrap();
            assert!(!plan.steps.is_empty(), "{name}");
            for file in &plan.compare.queries {
                assert!(folder.join(file).is_file(), "{name}: {}", file.display());
            }
        }
    }
}
