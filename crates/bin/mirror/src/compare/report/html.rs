//! Renders the report as an HTML page: a single file without external resources.
//!
//! Invariant: all text from systems, files and flags is escaped, and the page contains no script.

use super::{ComparisonReport, ReportedSystem, percent, short, skips_by_reason};
use crate::compare::artefact::SeriesSketch;
use crate::compare::tally::{ComparisonFinding, ComparisonOutcome, ComparisonPass, SKETCHES_MAX};
use crate::page::chart::{ChartLine, draw};
use crate::page::{STYLE, escape, time_text};

/// Maximum number of rows in a table of findings; `report.json` contains the remaining ones.
const ROWS_MAX: usize = 1_500;

/// Maximum number of characters of a query or a reason in a table cell.
const CELL_CHARS_MAX: usize = 400;

/// Renders the complete page, from the match rate down to the skipped queries.
pub fn page(report: &ComparisonReport<'_>) -> String {
    let class = if report.is_success() { "good" } else { "bad" };
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>firn compare: {rate}</title><style>{STYLE}</style></head><body>\n\
         <h1>Comparison of two systems</h1>\n\
         <p class=\"rate {class}\">{rate}</p>\n\
         <p>of the answers match; {} or more is a success.</p>\n",
        percent(Some(report.fail_below)),
        rate = percent(report.tally.match_rate()),
    );
    out += &systems(report);
    out += &passes(report);
    out += &over_time(report);
    out += &classes(report);
    out += &differences(report);
    out += &rows(report, ComparisonOutcome::Mismatch, "All mismatches");
    out += &rows(report, ComparisonOutcome::Error, "Errors");
    out += &skips(report);
    out + "</body></html>\n"
}

fn systems(report: &ComparisonReport<'_>) -> String {
    let mut out = "<h2>Systems</h2>\n<table><tr><th></th><th>URL</th><th>version</th>\
                   <th class=\"n\">answers</th><th class=\"n\">p50</th><th class=\"n\">p99</th>\
                   <th class=\"n\">p99.9</th><th class=\"n\">max</th></tr>\n"
        .to_owned();
    for (name, side) in [
        ("baseline", &report.baseline),
        ("candidate", &report.candidate),
    ] {
        out += &system_row(name, side);
    }
    let line = format!(
        "</table>\n<p>Data from {} to {}, a step of {} s; {} distinct queries, sent from {} to \
         {}.</p>\n",
        time_text(report.stretch.start_ms),
        time_text(report.stretch.end_ms),
        report.step_ms as f64 / 1000.0,
        report.questions,
        time_text(report.began_ms),
        time_text(report.made_ms),
    );
    out + &line
}

fn system_row(name: &str, side: &ReportedSystem) -> String {
    let latencies = &side.latencies;
    let mut out = format!(
        "<tr><th>{name}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td>",
        escape(&side.url),
        escape(side.version.as_deref().unwrap_or("not reported")),
        latencies.count(),
    );
    for ms in [
        latencies.quantile_ms(0.5),
        latencies.quantile_ms(0.99),
        latencies.quantile_ms(0.999),
        latencies.max_ms(),
    ] {
        out += &format!("<td class=\"n\">{ms:.2} ms</td>");
    }
    out + "</tr>\n"
}

fn passes(report: &ComparisonReport<'_>) -> String {
    let mut out = "<h2>Passes</h2>\n<table><tr><th></th><th class=\"n\">match rate</th>".to_owned();
    for outcome in ComparisonOutcome::ALL {
        out += &format!("<th class=\"n\">{}</th>", outcome.as_str());
    }
    out += "<th class=\"n\">matches with empty answers</th><th class=\"n\">matches with the same \
         error</th></tr>\n";
    for pass in ComparisonPass::ALL {
        let counts = report.tally.counts(pass);
        let rate = percent(counts.match_rate());
        out += &format!("<tr><th>{}</th><td class=\"n\">{rate}</td>", pass.as_str());
        for outcome in ComparisonOutcome::ALL {
            out += &format!("<td class=\"n\">{}</td>", counts.count_of(outcome));
        }
        for (_, count) in report.tally.vacuous(pass) {
            out += &format!("<td class=\"n\">{count}</td>");
        }
        out += "</tr>\n";
    }
    out += "</table>\n";
    for note in report.notes() {
        out += &format!("<p>Note: {}</p>\n", cell(&note));
    }
    out
}

fn over_time(report: &ComparisonReport<'_>) -> String {
    let rounds = report.tally.rounds();
    let line = |pass: &ComparisonPass| {
        let points = rounds.iter().filter_map(|round| {
            let rate = round.passes[*pass as usize].match_rate()?;
            Some((round.time_ms, rate))
        });
        ChartLine {
            name: pass.as_str(),
            points: points.collect(),
            is_dashed: false,
        }
    };
    let lines: Vec<ChartLine<'_>> = ComparisonPass::ALL.iter().map(line).collect();
    let lines: Vec<ChartLine<'_>> = lines.into_iter().filter(|l| !l.points.is_empty()).collect();
    format!(
        "<h2>Match rate over time</h2>\n{}\n",
        draw(&lines, 99.0, 100.0)
    )
}

fn classes(report: &ComparisonReport<'_>) -> String {
    if report.tally.classes().is_empty() {
        return "<p>No differences.</p>\n".to_owned();
    }
    let mut out = "<h2>Classes of differences</h2>\n<table>".to_owned();
    for (class, count) in report.tally.classes() {
        out += &format!(
            "<tr><th>{}</th><td class=\"n\">{count}</td></tr>\n",
            class.as_str()
        );
    }
    out + "</table>\n"
}

/// Renders the mismatches that have points as charts with the lines of both systems.
fn differences(report: &ComparisonReport<'_>) -> String {
    let findings = report.tally.findings();
    let drawn = findings
        .iter()
        .filter_map(|f| Some((*f, f.judged.sketch.as_ref()?)));
    let drawn: Vec<String> = drawn
        .take(SKETCHES_MAX)
        .map(|(finding, sketch)| drawing(report, finding, sketch))
        .collect();
    if drawn.is_empty() {
        String::new()
    } else {
        format!("<h2>Mismatches</h2>\n{}", drawn.concat())
    }
}

fn drawing(
    report: &ComparisonReport<'_>,
    finding: &ComparisonFinding,
    sketch: &SeriesSketch,
) -> String {
    let lines = [
        ("baseline", &sketch.baseline, false),
        ("candidate", &sketch.candidate, true),
    ];
    let lines = lines.map(|(name, points, is_dashed)| ChartLine {
        name,
        points: points.clone(),
        is_dashed,
    });
    format!(
        "<details open><summary><code>{}</code></summary>\n<p>{}</p>\n<p><code>{}</code></p>\n\
         {}{}</details>\n",
        cell(&finding.judged.question),
        cell(&finding.judged.reason),
        cell(&sketch.series),
        draw(&lines, f64::INFINITY, f64::NEG_INFINITY),
        link(report, finding),
    )
}

fn cell(text: &str) -> String {
    escape(&short(text, CELL_CHARS_MAX))
}

/// Renders a link to the folder of a finding. Its name needs no escaping, because it consists of a
/// pass and hexadecimal digits.
fn link(report: &ComparisonReport<'_>, finding: &ComparisonFinding) -> String {
    let folder = report.folder_of(finding);
    folder.map_or(String::new(), |folder| {
        format!("<a href=\"{folder}/\">{folder}</a>")
    })
}

fn rows(report: &ComparisonReport<'_>, outcome: ComparisonOutcome, title: &str) -> String {
    let findings = report.tally.findings();
    let with: Vec<_> = findings
        .iter()
        .filter(|f| f.judged.outcome == outcome)
        .collect();
    if with.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<h2>{title}: \
         {}</h2>\n<table><tr><th>pass</th><th>query</th><th>classes</th><th>where</th><th \
         class=\"n\">rounds</th></tr>\n",
        with.len()
    );
    for finding in with.iter().take(ROWS_MAX) {
        let judged = &finding.judged;
        let classes: Vec<&str> = judged.classes.iter().map(|class| class.as_str()).collect();
        out += &format!(
            "<tr><td>{}</td><td><code>{}</code><br>{}</td><td>{}</td><td>{}<br>{}</td>\
             <td class=\"n\">{}</td></tr>\n",
            judged.pass.as_str(),
            cell(&judged.question),
            cell(&judged.origin),
            classes.join(", "),
            cell(&judged.reason),
            link(report, finding),
            finding.times,
        );
    }
    out += "</table>\n";
    if with.len() > ROWS_MAX {
        out += &format!("<p>{} more in report.json.</p>\n", with.len() - ROWS_MAX);
    }
    out
}

fn skips(report: &ComparisonReport<'_>) -> String {
    let reasons = skips_by_reason(report.tally);
    if reasons.is_empty() {
        return String::new();
    }
    let mut out = "<h2>Skipped</h2>\n<table><tr><th>reason</th><th class=\"n\">queries</th></tr>\n"
        .to_owned();
    for (reason, count) in reasons.iter().take(ROWS_MAX) {
        out += &format!(
            "<tr><td>{}</td><td class=\"n\">{count}</td></tr>\n",
            escape(reason)
        );
    }
    out + "</table>\n"
}
