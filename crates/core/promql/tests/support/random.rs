//! Random series and queries, generated from a seed.

use super::Series;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::labels::Labels;
use firn_model::sample::stale_nan;
use std::sync::Arc;

/// A source of random choices that depend only on a seed.
pub struct Dice(pub SimRng);

impl Dice {
    /// Returns a random number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// Returns a random element of `choices`.
    pub fn pick<'a>(&self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Returns series in more than one part, with resets, gaps, staleness markers and shared time
/// columns.
pub fn random_series(dice: &Dice) -> Vec<Series> {
    let mut out = Vec::new();
    let mut times = Arc::new(Vec::new());
    for at in 0..700u64 {
        if at % 10 == 0 {
            let start = dice.below(120_000) as i64;
            let step = 5_000 + dice.below(15_000) as i64;
            let count = 5 + dice.below(40) as i64;
            times = Arc::new((0..count).map(|i| start + i * step).collect::<Vec<_>>());
        }
        let (mut value, growth) = (dice.below(50) as f64, dice.below(7) as f64 * 0.25);
        let mut next = || {
            value = if dice.below(25) == 0 {
                0.0
            } else {
                value + growth
            };
            if dice.below(40) == 0 {
                stale_nan()
            } else {
                value
            }
        };
        let values = times.iter().map(|_| next()).collect();
        let name = ["requests_total", "load"][(at % 2) as usize];
        let labels = Labels::from_pairs([
            ("__name__", name.to_owned()),
            ("job", format!("j{}", at / 2 % 5)),
            ("instance", format!("i{}", at / 2)),
        ]);
        out.push(Series {
            labels,
            times: times.clone(),
            values,
        });
    }
    out
}

/// Returns a random selector of some of the series.
pub fn random_selector(dice: &Dice) -> String {
    let name = dice.pick(&["requests_total", "load", ""]);
    let matchers = dice.pick(&[
        r#"{job="j1"}"#,
        r#"{job=~"j[0-3]"}"#,
        r#"{instance=~"i[0-9]+7"}"#,
    ]);
    format!("{name}{matchers}")
}

fn random_offset(dice: &Dice) -> &str {
    dice.pick(&["", "", "", " offset 30s", " offset -20s"])
}

/// Returns a random query of floats with up to `depth` nested operators.
pub fn random_query(dice: &Dice, depth: u32) -> String {
    let inner = || random_query(dice, depth - 1);
    match dice.below(if depth == 0 { 2 } else { 7 }) {
        0 => format!("{}{}", random_selector(dice), random_offset(dice)),
        1 => {
            let function = dice.pick(&[
                "rate",
                "increase",
                "delta",
                "sum_over_time",
                "avg_over_time",
                "min_over_time",
                "max_over_time",
                "count_over_time",
                "last_over_time",
                "changes",
                "resets",
                "idelta",
            ]);
            let range = dice.pick(&["15s", "1m", "90s", "3m"]);
            let (selector, offset) = (random_selector(dice), random_offset(dice));
            format!("{function}({selector}[{range}]{offset})")
        }
        2 => {
            let op = dice.pick(&["sum", "avg", "count", "min", "max", "group", "stdvar"]);
            let by = dice.pick(&["", " by (job)", " by (instance)", " without (instance)"]);
            format!("{op}{by}({})", inner())
        }
        3 => {
            let op = dice.pick(&["+", "-", "*", "/", ">", "<= bool", "!="]);
            format!(
                "({} {op} {})",
                inner(),
                dice.pick(&["2", "0.5", "time()", "-3"])
            )
        }
        4 => {
            let op = dice.pick(&["+", "/", ">", "!= bool", "and", "or", "unless"]);
            format!("({} {op} {})", inner(), inner())
        }
        5 => format!("{}({})", dice.pick(&["abs", "sqrt"]), inner()),
        _ => format!("-({})", inner()),
    }
}
