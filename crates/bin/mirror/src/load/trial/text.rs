//! Formats the report of a load as text, with a line each for writes, queries and goals.

use super::asking::QueryOutcomes;
use crate::load::report::LoadReport;
use crate::prepared::PreparedLoadSummary;
use crate::quantiles::Quantiles;
use firn_model::rounded::{format_bytes, format_count, format_count_with_noun, format_rate};
use std::fmt::Write;

/// Maximum number of characters of an expression; longer ones are truncated.
const EXPRESSION_CHARS: usize = 80;

impl PreparedLoadSummary {
    /// Formats the summary that `firn load --prepare` and `--record` print; `did` is the verb at
    /// its start.
    pub fn to_text(&self, did: &str) -> String {
        format!(
            "{did}  {} of {} in {}, {}\n",
            format_count_with_noun(self.samples, "sample", "samples"),
            format_count_with_noun(self.series_created, "series", "series"),
            format_count_with_noun(self.requests, "request", "requests"),
            format_bytes(self.body_bytes)
        )
    }
}

impl LoadReport {
    /// Formats the report as text, as `firn load` prints it by default.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let outcome = &self.outcome;
        let seconds = self.elapsed.as_secs_f64();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "writes  {} in {}, {} failed, {seconds:.1} s: {}",
            format_count_with_noun(outcome.samples, "sample", "samples"),
            format_count_with_noun(outcome.requests, "request", "requests"),
            format_count(outcome.failed),
            format_rate(outcome.samples as f64 / seconds.max(1e-9))
        );
        push_times(&mut out, "push", &self.latencies_us());
        if !outcome.delays_us.is_empty() {
            push_times(&mut out, "since due", &self.delays_us());
        }
        push_failure(&mut out, outcome.first_failure.as_deref());
        if let Some(asked) = &self.asked {
            let total = asked.total();
            push_questions(&mut out, "reads", &total);
            for (question, outcomes) in &asked.by_question {
                let text = self.questions.get(*question).map_or("", |q| q);
                let shown: String = text.chars().take(EXPRESSION_CHARS).collect();
                push_questions(&mut out, &shown, outcomes);
            }
        }
        if let Some(first) = self.left_out.first() {
            let left_out = self.left_out.len() as u64;
            let _ = writeln!(
                out,
                "        {} of dashboards skipped, the first one ({}): {}",
                format_count_with_noun(left_out, "expression", "expressions"),
                first.text,
                first.reason
            );
        }
        for judged in &self.judged {
            let mark = if judged.is_met { "met" } else { "MISSED" };
            let _ = writeln!(out, "{mark:<7} {}: {}", judged.goal, judged.reached);
        }
        out
    }
}

fn push_questions(out: &mut String, what: &str, outcomes: &QueryOutcomes) {
    let _ = writeln!(
        out,
        "{what}  {} due, {} failed, {:.1} ms on average",
        format_count(outcomes.count()),
        format_count(outcomes.failed),
        outcomes.average_seconds() * 1e3
    );
    push_times(out, "since due", &outcomes.latencies());
    push_failure(out, outcomes.first_failure.as_deref());
}

fn push_times(out: &mut String, what: &str, times: &Quantiles) {
    let ms = |us: u32| f64::from(us) / 1e3;
    let _ = writeln!(
        out,
        "        {what:<9}  p50 {:.1} ms  p99 {:.1} ms  p99.9 {:.1} ms  max {:.1} ms",
        ms(times.quantile(0.5)),
        ms(times.quantile(0.99)),
        ms(times.quantile(0.999)),
        ms(times.max())
    );
}

fn push_failure(out: &mut String, failure: Option<&str>) {
    if let Some(failure) = failure {
        let line = failure.lines().next().unwrap_or_default();
        let _ = writeln!(out, "        first failure: {line}");
    }
}
