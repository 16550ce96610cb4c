//! Format of a page.
//!
//! ````text
//! ```yaml
//! # NAME.yml           a file of this name, in the folder in which the page is played
//! ```
//!
//! ```console
//! $ COMMAND            a backslash at its end continues it in the next line
//! OUTPUT               standard output and standard error, up to the next command or the end
//! ...                  any number of lines
//! ```
//! ````

/// A part of a page that is played.
pub enum Part {
    /// A file to write.
    File {
        /// Name of the file.
        name: String,
        /// Content, including the line with the name.
        text: String,
    },
    /// A command and its output.
    Step(Step),
}

/// A command of a page with its output.
#[derive(Default)]
pub struct Step {
    /// Command for `sh`.
    pub command: String,
    /// Index of the line after the command, where the output begins.
    pub begin: usize,
    /// Shown output without empty lines at the end.
    pub output: Vec<String>,
}

impl Step {
    /// Returns the line number of the command in the page, counted from one.
    pub fn line(&self) -> usize {
        self.begin + 1 - self.command.lines().count()
    }
}

/// Returns the parts of a page, in order; panics if a block is malformed.
pub fn read(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(tag) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let inside: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| !line.trim_start().starts_with("```"))
            .collect();
        match tag.trim() {
            "console" => parts.extend(steps(at + 1, &inside).into_iter().map(Part::Step)),
            "yaml" => parts.extend(file(&inside)),
            _ => {}
        }
    }
    parts
}

/// Returns the file in a block, if its first line contains a file name.
fn file(inside: &[&str]) -> Option<Part> {
    let name = inside.first()?.strip_prefix("# ")?.trim();
    let is_name = name.ends_with(".yml") || name.ends_with(".yaml");
    (is_name && !name.contains([' ', '/'])).then(|| Part::File {
        name: name.to_owned(),
        text: inside.join("\n") + "\n",
    })
}

/// Returns the steps of a block whose first line has index `at` in the page.
fn steps(at: usize, inside: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (i, line) in inside.iter().enumerate() {
        let begin = at + i + 1;
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                begin,
                output: Vec::new(),
            });
        } else {
            let step = steps.last_mut();
            let step = step.unwrap_or_else(|| panic!("line {begin}: no command before: {line}"));
            if goes_on {
                step.command += &format!("\n{line}");
                step.begin = begin;
            } else {
                step.output.push((*line).to_owned())
            }
        }
        goes_on = (goes_on || line.starts_with("$ ")) && line.ends_with('\\');
    }
    for step in &mut steps {
        while step
            .output
            .last()
            .is_some_and(|line| line.trim().is_empty())
        {
            step.output.pop();
        }
    }
    steps
}
