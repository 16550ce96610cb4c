//! Test results in JUnit's XML format, like promtool's.

use std::fmt;

/// Results of the tests of all files, printed as XML at the end.
#[derive(Debug, Default)]
pub(super) struct JunitReport(Vec<JunitSuite>);

#[derive(Debug, Default)]
struct JunitSuite {
    name: String,
    tests: usize,
    failures: usize,
    errors: usize,
    time: String,
    cases: Vec<JunitCase>,
}

#[derive(Debug, Default)]
struct JunitCase {
    name: String,
    failures: Vec<String>,
    error: String,
}

impl JunitReport {
    /// Starts the results of a file. The following calls are about this file.
    pub(super) fn begin(&mut self, file: &str) {
        self.0.push(JunitSuite {
            name: file.to_owned(),
            ..JunitSuite::default()
        });
    }

    /// Sets the time at which the tests of the file ran.
    pub(super) fn set_time(&mut self, time: String) {
        if let Some(suite) = self.0.last_mut() {
            suite.time = time;
        }
    }

    /// Starts the results of a test. The following calls are about this test.
    pub(super) fn case(&mut self, name: &str) {
        if let Some(suite) = self.0.last_mut() {
            suite.tests += 1;
            suite.cases.push(JunitCase {
                name: name.to_owned(),
                ..JunitCase::default()
            });
        }
    }

    /// Adds a failure with its text to the current test.
    pub(super) fn fail(&mut self, why: &str) {
        if let Some(suite) = self.0.last_mut() {
            suite.failures += 1;
            suite.last_case().failures.push(why.to_owned());
        }
    }

    /// Records that the tests of the file cannot run, with the reason.
    pub(super) fn abort(&mut self, why: &str) {
        if let Some(suite) = self.0.last_mut() {
            suite.errors += 1;
            why.clone_into(&mut suite.last_case().error);
        }
    }
}

impl JunitSuite {
    fn last_case(&mut self) -> &mut JunitCase {
        if self.cases.is_empty() {
            self.tests += 1;
            self.cases.push(JunitCase {
                name: "unknown".into(),
                ..JunitCase::default()
            });
        }
        let last = self.cases.len() - 1;
        &mut self.cases[last]
    }
}

impl fmt::Display for JunitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<testsuites>")?;
        for suite in &self.0 {
            let (name, time) = (escaped(&suite.name), escaped(&suite.time));
            write!(
                f,
                "<testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" \
                 skipped=\"0\" timestamp=\"{time}\">",
                suite.tests, suite.failures, suite.errors
            )?;
            for case in &suite.cases {
                write!(f, "<testcase name=\"{}\">", escaped(&case.name))?;
                for failure in &case.failures {
                    write!(f, "<failure>{}</failure>", escaped(failure))?;
                }
                if !case.error.is_empty() {
                    write!(f, "<error>{}</error>", escaped(&case.error))?;
                }
                f.write_str("</testcase>")?;
            }
            f.write_str("</testsuite>")?;
        }
        f.write_str("</testsuites>")
    }
}

/// Escapes a text for XML like Go's `encoding/xml`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\t' => out.push_str("&#x9;"),
            '\n' => out.push_str("&#xA;"),
            '\r' => out.push_str("&#xD;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
