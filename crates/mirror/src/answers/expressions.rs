//! Random expressions that are well typed: what nobody thinks of writing by hand.
//!
//! A grammar over the metrics of the test data, walked by a seeded generator. Invariant: equal
//! seeds give equal expressions; every expression parses and has the type of an instant vector.

use crate::fleet::random::Random;

const VECTORS: [&str; 14] = [
    "http_requests_total",
    "http_requests_total{code=\"200\"}",
    "http_requests_total{job=~\"api|web\",code!=\"500\"}",
    "cpu_seconds_total",
    "memory_bytes",
    "memory_bytes{job=\"api\"}",
    "temperature_celsius",
    "queue_length",
    "request_seconds_bucket",
    "up",
    "sparse",
    "flapping",
    "some_nan",
    "cores",
];

const WINDOWS: [&str; 6] = ["30s", "1m", "95s", "5m", "12m", "40m"];

const OFFSETS: [&str; 5] = ["1m", "7m", "-2m", "90s", "33s"];

const RANGE_FUNCTIONS: [&str; 16] = [
    "rate",
    "increase",
    "irate",
    "delta",
    "idelta",
    "deriv",
    "changes",
    "resets",
    "avg_over_time",
    "sum_over_time",
    "min_over_time",
    "max_over_time",
    "count_over_time",
    "last_over_time",
    "stddev_over_time",
    "present_over_time",
];

const VECTOR_FUNCTIONS: [&str; 10] = [
    "abs",
    "ceil",
    "floor",
    "sgn",
    "sqrt",
    "round",
    "timestamp",
    "-",
    "absent",
    "sort",
];

const AGGREGATIONS: [&str; 8] = [
    "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar",
];

const GROUPINGS: [&str; 8] = [
    "",
    "by (job) ",
    "by (instance) ",
    "by (job, code) ",
    "by (le) ",
    "without (instance) ",
    "without (code, instance) ",
    "by (nothing) ",
];

const ARITHMETIC: [&str; 6] = ["+", "-", "*", "/", "%", "> bool"];

const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];

const SETS: [&str; 3] = ["and", "or", "unless"];

const MATCHINGS: [&str; 5] = [
    "",
    "on (instance) ",
    "on (job, instance) ",
    "ignoring (code) ",
    "on (instance) group_left () ",
];

const SCALARS: [&str; 7] = ["0", "1", "-2.5", "1e3", "0.5", "time()", "NaN"];

/// `count` expressions of `seed`.
pub fn random_expressions(seed: u64, count: usize) -> Vec<String> {
    let mut grammar = Grammar(Random::new(seed));
    (0..count).map(|_| grammar.vector(3)).collect()
}

struct Grammar(Random);

impl Grammar {
    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.0.below(choices.len() as u64) as usize]
    }

    /// An instant vector of at most `depth` levels.
    fn vector(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.selector();
        }
        let inner = depth - 1;
        match self.0.below(10) {
            0 => self.selector(),
            1..=3 => {
                let function = self.pick(&RANGE_FUNCTIONS);
                format!("{function}({})", self.range(inner))
            }
            4 => {
                let function = self.pick(&VECTOR_FUNCTIONS);
                format!("{function}({})", self.vector(inner))
            }
            5 | 6 => {
                let operator = self.pick(&AGGREGATIONS);
                let grouping = self.pick(&GROUPINGS);
                format!("{operator} {grouping}({})", self.vector(inner))
            }
            7 => self.ranked(inner),
            8 => self.with_scalar(inner),
            _ => self.pair(inner),
        }
    }

    fn selector(&mut self) -> String {
        let selector = self.pick(&VECTORS);
        match self.0.below(6) {
            0 => format!("{selector} offset {}", self.pick(&OFFSETS)),
            1 => format!("{selector} @ {}", 1_700_000_000 + self.0.below(3_600)),
            _ => selector.to_owned(),
        }
    }

    fn range(&mut self, depth: usize) -> String {
        let window = self.pick(&WINDOWS);
        if depth > 0 && self.0.below(3) == 0 {
            return format!(
                "({})[{window}:{}]",
                self.vector(depth - 1),
                self.pick(&WINDOWS)
            );
        }
        let selector = self.pick(&VECTORS);
        match self.0.below(5) {
            0 => format!("{selector}[{window}] offset {}", self.pick(&OFFSETS)),
            _ => format!("{selector}[{window}]"),
        }
    }

    fn ranked(&mut self, depth: usize) -> String {
        let vector = self.vector(depth);
        match self.0.below(3) {
            0 => format!("quantile {}(0.7, {vector})", self.pick(&GROUPINGS)),
            1 => format!("max_over_time(({vector})[5m:1m])"),
            _ => format!("clamp({vector}, -5, {})", self.pick(&SCALARS)),
        }
    }

    fn with_scalar(&mut self, depth: usize) -> String {
        let vector = self.vector(depth);
        let scalar = self.pick(&SCALARS);
        let operators = if self.0.below(2) == 0 {
            &ARITHMETIC
        } else {
            &COMPARISONS
        };
        let operator = self.pick(operators);
        match self.0.below(2) {
            0 => format!("({vector}) {operator} {scalar}"),
            _ => format!("{scalar} {operator} ({vector})"),
        }
    }

    fn pair(&mut self, depth: usize) -> String {
        let (left, right) = (self.vector(depth), self.vector(depth));
        match self.0.below(3) {
            0 => format!("({left}) {} ({right})", self.pick(&SETS)),
            1 => format!("({left}) {} ({left})", self.pick(&ARITHMETIC)),
            _ => {
                let operator = self.pick(&ARITHMETIC);
                let matching = self.pick(&MATCHINGS);
                format!("({left}) {operator} {matching}({right})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_promql::Features;
    use firn_promql::ast::ValueType;
    use firn_promql::parser::parse;

    #[test]
    fn random_expressions_are_instant_vectors_and_repeat() {
        for seed in 0..20 {
            let expressions = random_expressions(seed, 100);
            assert_eq!(expressions, random_expressions(seed, 100));
            for text in expressions {
                let parsed = parse(&text, Features::default());
                let parsed = parsed.unwrap_or_else(|e| panic!("seed {seed}: {text}: {e}"));
                assert_eq!(
                    parsed.value_type(),
                    ValueType::Vector,
                    "seed {seed}: {text}"
                );
            }
        }
    }
}
