//! Metrics of a comparison run, exposed for Prometheus.

use super::system::SystemPair;
use super::tally::{ComparisonOutcome, ComparisonPass, ComparisonTally};
use crate::error::MirrorError;
use crate::target::{self, ExpositionServer};
use std::sync::{Arc, Mutex, PoisonError};

/// Serves the metrics of `tally` and `pair` under `/metrics` at `address` until the process ends.
pub fn listen(
    address: &str,
    tally: Arc<Mutex<ComparisonTally>>,
    pair: Arc<SystemPair>,
) -> Result<ExpositionServer, MirrorError> {
    ExpositionServer::start(address, move |request, stream| {
        let path = request.path.split('?').next().unwrap_or_default();
        if path != "/metrics" {
            let body = "metrics are served under /metrics\n";
            return target::respond(stream, "404 Not Found", "text/plain", body);
        }
        let text = {
            let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            exposition(&tally, &pair)
        };
        target::expose(stream, &text);
    })
}

fn exposition(tally: &ComparisonTally, pair: &SystemPair) -> String {
    let mut out = "# HELP firn_compare_questions_total Queries compared, by outcome.\n# TYPE \
         firn_compare_questions_total counter\n"
        .to_owned();
    for pass in ComparisonPass::ALL {
        for outcome in ComparisonOutcome::ALL {
            out += &format!(
                "firn_compare_questions_total{{pass=\"{}\",outcome=\"{}\"}} {}\n",
                pass.as_str(),
                outcome.as_str(),
                tally.counts(pass).count_of(outcome)
            );
        }
    }
    out += "# HELP firn_compare_differences_total Queries with different answers, by class.\n# \
         TYPE firn_compare_differences_total counter\n";
    for (class, count) in tally.classes() {
        out += &format!(
            "firn_compare_differences_total{{class=\"{}\"}} {count}\n",
            class.as_str()
        );
    }
    if let Some(rate) = tally.match_rate() {
        out += &format!(
            "# HELP firn_compare_match_ratio Fraction of compared queries with equal answers.\n# \
             TYPE firn_compare_match_ratio gauge\nfirn_compare_match_ratio {}\n",
            rate / 100.0
        );
    }
    out += "# HELP firn_compare_answer_seconds Duration of answers.\n# TYPE \
         firn_compare_answer_seconds summary\n";
    for system in [&pair.baseline, &pair.candidate] {
        let (name, latencies) = (system.name, system.latencies());
        for quantile in [0.5, 0.99, 0.999, 1.0] {
            let seconds = latencies.quantile_ms(quantile) / 1e3;
            out += &format!(
                "firn_compare_answer_seconds{{system=\"{name}\",quantile=\"{quantile}\"}} \
                 {seconds}\n"
            );
        }
        let (sum, count) = (latencies.sum_seconds(), latencies.count());
        out += &format!(
            "firn_compare_answer_seconds_sum{{system=\"{name}\"}} {sum}\n\
             firn_compare_answer_seconds_count{{system=\"{name}\"}} {count}\n"
        );
    }
    out
}
