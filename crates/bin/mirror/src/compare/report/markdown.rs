//! Renders the report as Markdown for a comment on a pull request.

use super::{ComparisonReport, percent, short, skips_by_reason};
use crate::compare::tally::{ComparisonOutcome, ComparisonPass};
use crate::page::time_text;

/// Maximum number of findings in the text, which is meant to be read and not searched.
const LISTED_MAX: usize = 30;

/// Maximum number of characters of a query or a reason.
const CELL_CHARS_MAX: usize = 160;

/// Renders the complete report, with counts by pass, latencies and the first findings.
pub fn text(report: &ComparisonReport<'_>) -> String {
    let sign = if report.is_success() { "✅" } else { "❌" };
    let mut out = format!(
        "## {sign} {} of the answers match\n\n{} distinct queries over data from {} to {}.\n\n",
        percent(report.tally.match_rate()),
        report.questions,
        time_text(report.stretch.start_ms),
        time_text(report.stretch.end_ms),
    );
    out += "| pass | match rate | match | mismatch | error | skip |\n|---|---|---|---|---|---|\n";
    for pass in ComparisonPass::ALL {
        let counts = report.tally.counts(pass);
        let cells = ComparisonOutcome::ALL
            .map(|outcome| counts.count_of(outcome).to_string())
            .join(" | ");
        let rate = percent(counts.match_rate());
        out += &format!("| {} | {rate} | {cells} |\n", pass.as_str());
    }
    if let Some(text) = report.vacuous_text() {
        out += &format!("\n{text}.\n");
    }
    for note in report.notes() {
        out += &format!("\nNote: {}\n", cell(&note));
    }
    out += "\n| system | version | p50 | p99 | p99.9 | max |\n|---|---|---|---|---|---|\n";
    for side in [&report.baseline, &report.candidate] {
        let l = &side.latencies;
        out += &format!(
            "| {} | {} | {:.2} ms | {:.2} ms | {:.2} ms | {:.2} ms |\n",
            cell(&side.url),
            cell(side.version.as_deref().unwrap_or("not reported")),
            l.quantile_ms(0.5),
            l.quantile_ms(0.99),
            l.quantile_ms(0.999),
            l.max_ms()
        );
    }
    out + &findings(report) + &skips(report)
}

fn findings(report: &ComparisonReport<'_>) -> String {
    let findings = report.tally.findings();
    let found: Vec<_> = findings
        .iter()
        .filter(|f| f.judged.outcome != ComparisonOutcome::Skip)
        .collect();
    if found.is_empty() {
        return String::new();
    }
    let mut out = "\n| pass | query | classes | where |\n|---|---|---|---|\n".to_owned();
    for finding in found.iter().take(LISTED_MAX) {
        let judged = &finding.judged;
        let classes: Vec<&str> = judged.classes.iter().map(|class| class.as_str()).collect();
        out += &format!(
            "| {} | {} | {} | {} |\n",
            judged.pass.as_str(),
            cell(&judged.question),
            classes.join(", "),
            cell(&judged.reason)
        );
    }
    if found.len() > LISTED_MAX {
        out += &format!("\n{} more in report.json.\n", found.len() - LISTED_MAX);
    }
    out
}

fn skips(report: &ComparisonReport<'_>) -> String {
    let reasons = skips_by_reason(report.tally);
    if reasons.is_empty() {
        return String::new();
    }
    let mut out = "\nSkipped:\n\n".to_owned();
    for (reason, count) in reasons.iter().take(LISTED_MAX) {
        out += &format!("- {count} times {}\n", cell(reason));
    }
    out
}

/// Escapes text for a table cell: removes line breaks and makes markup literal.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in short(text, CELL_CHARS_MAX).chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '~' | '#' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
