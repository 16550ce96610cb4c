//! Random, well-typed PromQL expressions: combinations that are unlikely to occur in tests written
//! by hand.
//!
//! A seeded generator walks a grammar over the metrics of the test data. Invariant: equal seeds
//! give equal expressions, and every expression parses and has the type instant vector.

use crate::answers::words::*;
use crate::fleet::random::FleetRandom;

/// The part of PromQL that generated expressions use: with or without experimental features, over
/// floats only or over native histograms as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionDialect {
    /// The language without feature flags, over floats only.
    Plain,
    /// Like [`ExpressionDialect::Plain`], with more functions, over native histograms as well.
    PlainHistograms,
    /// The whole language with all features, over floats only.
    Floats,
    /// The whole language with all features, over native histograms as well.
    Full,
}

/// Generates `count` well-typed expressions of `dialect`; equal seeds give equal expressions.
pub fn random_expressions(dialect: ExpressionDialect, seed: u64, count: usize) -> Vec<String> {
    let mut grammar = ExpressionGenerator {
        random: FleetRandom::new(seed),
        full: matches!(dialect, ExpressionDialect::Floats | ExpressionDialect::Full),
        histograms: matches!(
            dialect,
            ExpressionDialect::PlainHistograms | ExpressionDialect::Full
        ),
    };
    (0..count).map(|_| grammar.vector(3)).collect()
}

/// Generates `count` expressions that most likely fail to parse: pieces of those that
/// [`random_expressions`] returns are removed, inserted, replaced and swapped.
pub fn broken_expressions(dialect: ExpressionDialect, seed: u64, count: usize) -> Vec<String> {
    let mut random = FleetRandom::new(seed ^ 1);
    let whole = random_expressions(dialect, seed, count);
    let damage = |text: String| damaged(&mut random, &text);
    whole.into_iter().map(damage).collect()
}

/// Returns `text` with one to three of its pieces removed, inserted, replaced or swapped.
fn damaged(random: &mut FleetRandom, text: &str) -> String {
    let mut pieces: Vec<&str> = split_pieces(text).collect();
    for _ in 0..=random.below(3) {
        let at = random.below(pieces.len() as u64) as usize;
        let other = random.below(pieces.len() as u64) as usize;
        let new = PIECES[random.below(PIECES.len() as u64) as usize];
        match random.below(4) {
            0 if pieces.len() > 1 => {
                pieces.remove(at);
            }
            1 => pieces.swap(at, other),
            2 => pieces[at] = new,
            _ => pieces.insert(at, new),
        }
    }
    pieces.concat()
}

/// Splits `text` into words; every character outside a word is a piece of its own.
fn split_pieces(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let len = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (piece, tail) = rest.split_at(len);
        rest = tail;
        Some(piece)
    })
}

struct ExpressionGenerator {
    random: FleetRandom,
    full: bool,
    histograms: bool,
}

impl ExpressionGenerator {
    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.random.below(choices.len() as u64) as usize]
    }

    /// Picks one of `plain`, or of `more` as well if the dialect is the full language.
    fn pick_of<'a>(&mut self, plain: &[&'a str], more: &[&'a str]) -> &'a str {
        let more = if self.full { more } else { &[] };
        let at = self.random.below((plain.len() + more.len()) as u64) as usize;
        plain
            .get(at)
            .copied()
            .unwrap_or_else(|| more[at - plain.len()])
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    /// Generates an instant vector whose expression is nested at most `depth` levels deep; at depth
    /// 0 it is a selector.
    fn vector(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.selector();
        }
        let inner = depth - 1;
        let kinds = match (self.full, self.histograms) {
            (true, _) => 16,
            (false, true) => 13,
            (false, false) => 10,
        };
        match self.random.below(kinds) {
            0 => self.selector(),
            1..=3 => self.over_time(inner),
            4 => {
                let function = self.pick_of(&VECTOR_FUNCTIONS, &MORE_VECTOR_FUNCTIONS);
                format!("{function}({})", self.vector(inner))
            }
            5 | 6 => {
                let operator = self.pick(&AGGREGATIONS);
                let grouping = self.pick(&GROUPINGS);
                format!("{operator} {grouping}({})", self.vector(inner))
            }
            7 => self.ranked(inner),
            8 => self.with_scalar(inner),
            9 => self.pair(inner),
            10 if !self.full => self.generate_histogram_call(inner),
            11 if !self.full => self.generate_label_call(inner),
            12 if !self.full => self.limited(inner),
            10 => self.edges(),
            11 => self.generate_histogram_call(inner),
            12 => self.info(inner),
            13 => self.generate_label_call(inner),
            14 => self.filled(inner),
            _ => self.limited(inner),
        }
    }

    fn name(&mut self) -> &'static str {
        if self.histograms && self.one_in(3) {
            return self.pick(&HISTOGRAMS);
        }
        self.pick(&VECTORS)
    }

    fn selector(&mut self) -> String {
        let name = self.name();
        let modifier = self.modifier();
        if self.full && self.one_in(12) {
            format!("{name} smoothed{modifier}")
        } else {
            format!("{name}{modifier}")
        }
    }

    /// Generates an `offset`, an `@` modifier, both, or in most cases neither. `@` is a fixed time
    /// or an end of the query's range.
    fn modifier(&mut self) -> String {
        let offset = format!(" offset {}", self.duration(&OFFSETS));
        let at = match self.random.below(6) {
            0 => " @ start()".to_owned(),
            1 => " @ end()".to_owned(),
            _ => format!(" @ {}", 1_700_000_000 + self.random.below(3_600)),
        };
        match self.random.below(10) {
            0 | 1 => offset,
            2 => at,
            3 => format!("{offset}{at}"),
            _ => String::new(),
        }
    }

    /// Picks one of `choices`; with all features enabled, sometimes a duration expression that
    /// contains it.
    fn duration(&mut self, choices: &[&'static str]) -> String {
        let plain = self.pick(choices);
        if !self.full || !self.one_in(8) {
            return plain.to_owned();
        }
        self.pick(&DURATIONS).replace('D', plain)
    }

    fn over_time(&mut self, depth: usize) -> String {
        match self.random.below(if self.full { 14 } else { 16 }) {
            0 if self.full => {
                let quantile = self.pick(&QUANTILES);
                format!("quantile_over_time({quantile}, {})", self.range(depth))
            }
            1 if self.full => {
                let ahead = self.pick(&["60", "-300", "1h", "step()"]);
                format!("predict_linear({}, {ahead})", self.range(depth))
            }
            2 if self.full => {
                let range = self.range(depth);
                format!("double_exponential_smoothing({range}, 0.4, 0.7)")
            }
            3 if self.full => format!("absent_over_time({})", self.range(depth)),
            _ => {
                let function = self.pick_of(&RANGE_FUNCTIONS, &MORE_RANGE_FUNCTIONS);
                format!("{function}({})", self.range(depth))
            }
        }
    }

    fn range(&mut self, depth: usize) -> String {
        let window = self.duration(&WINDOWS);
        if depth > 0 && self.one_in(3) {
            let vector = self.vector(depth - 1);
            let step = if self.full && self.one_in(5) {
                String::new()
            } else {
                self.duration(&WINDOWS)
            };
            return format!("({vector})[{window}:{step}]{}", self.modifier());
        }
        format!("{}[{window}]{}", self.name(), self.modifier())
    }

    /// Generates a function over an anchored or smoothed range; some of them are invalid for
    /// functions that accept only one of the two.
    fn edges(&mut self) -> String {
        let function = self.pick(&["rate", "increase", "delta", "changes", "resets"]);
        let edges = self.pick(&["anchored", "smoothed", "anchored"]);
        let (window, modifier) = (self.duration(&WINDOWS), self.modifier());
        format!("{function}({}[{window}] {edges}{modifier})", self.name())
    }

    fn generate_histogram_call(&mut self, depth: usize) -> String {
        let vector = if self.one_in(3) {
            self.vector(depth)
        } else {
            let rate = self.pick(&["rate", "increase", "delta", "sum_over_time"]);
            let name = if self.histograms {
                self.pick(&HISTOGRAMS)
            } else {
                "request_seconds_bucket"
            };
            let window = self.pick(&WINDOWS);
            format!("{rate}({name}[{window}])")
        };
        let function = self.pick_of(&HISTOGRAM_FUNCTIONS, &MORE_HISTOGRAM_FUNCTIONS);
        let quantile = self.pick(&QUANTILES);
        match function {
            "histogram_quantile" => format!("{function}({quantile}, {vector})"),
            "histogram_fraction" => format!("{function}(0.1, {quantile}, {vector})"),
            "histogram_quantiles" => format!("{function}({vector}, \"q\", 0.75, {quantile})"),
            _ => format!("{function}({vector})"),
        }
    }

    fn info(&mut self, depth: usize) -> String {
        let vector = self.vector(depth);
        match self.pick(&INFO_SELECTORS) {
            "" => format!("info({vector})"),
            selector => format!("info({vector}, {selector})"),
        }
    }

    fn generate_label_call(&mut self, depth: usize) -> String {
        let vector = self.vector(depth);
        self.pick_of(&RELABELLINGS, &MORE_RELABELLINGS)
            .replace('V', &vector)
    }

    fn limited(&mut self, depth: usize) -> String {
        let (vector, grouping) = (self.vector(depth), self.pick(&GROUPINGS));
        let first = if self.full { 0 } else { 2 };
        match first + self.random.below(5 - first) {
            0 => format!("limitk {grouping}({}, {vector})", self.random.below(4)),
            1 => {
                let ratio = self.pick(&["0.5", "-0.5", "0.9", "-0.25", "0", "1", "2"]);
                format!("limit_ratio {grouping}({ratio}, {vector})")
            }
            2 => format!("count_values {grouping}(\"v\", {vector})"),
            3 => format!("topk {grouping}({}, {vector})", self.random.below(4)),
            _ => format!("bottomk {grouping}({}, {vector})", self.random.below(4)),
        }
    }

    fn ranked(&mut self, depth: usize) -> String {
        let vector = self.vector(depth);
        match self.random.below(3) {
            0 => format!("quantile {}(0.7, {vector})", self.pick(&GROUPINGS)),
            1 => format!("max_over_time(({vector})[5m:1m])"),
            _ => format!("clamp({vector}, -5, {})", self.scalar()),
        }
    }

    fn scalar(&mut self) -> String {
        self.pick_of(&SCALARS, &MORE_SCALARS).to_owned()
    }

    fn with_scalar(&mut self, depth: usize) -> String {
        let vector = self.vector(depth);
        let scalar = self.scalar();
        let operator = if self.one_in(2) {
            self.pick_of(&ARITHMETIC, &MORE_ARITHMETIC)
        } else {
            self.pick(&COMPARISONS)
        };
        if self.one_in(2) {
            format!("({vector}) {operator} {scalar}")
        } else {
            format!("{scalar} {operator} ({vector})")
        }
    }

    fn pair(&mut self, depth: usize) -> String {
        let (left, right) = (self.vector(depth), self.vector(depth));
        match self.random.below(3) {
            0 => format!("({left}) {} ({right})", self.pick(&SETS)),
            1 => {
                let operator = self.pick_of(&ARITHMETIC, &MORE_ARITHMETIC);
                format!("({left}) {operator} ({left})")
            }
            _ => {
                let operator = self.pick_of(&ARITHMETIC, &MORE_ARITHMETIC);
                let matching = self.pick(&MATCHINGS);
                format!("({left}) {operator} {matching}({right})")
            }
        }
    }

    fn filled(&mut self, depth: usize) -> String {
        let (left, right) = (self.vector(depth), self.vector(depth));
        let operator = if self.one_in(3) {
            self.pick(&COMPARISONS)
        } else {
            self.pick_of(&ARITHMETIC, &MORE_ARITHMETIC)
        };
        let (matching, fill) = (self.pick(&MATCHINGS), self.pick(&FILLS));
        format!("({left}) {operator} {matching}{fill}({right})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_promql::Features;
    use firn_promql::ast::ValueType;
    use firn_promql::parser::parse;

    fn check(dialect: ExpressionDialect, features: Features) {
        for seed in 0..20 {
            let expressions = random_expressions(dialect, seed, 100);
            assert_eq!(expressions, random_expressions(dialect, seed, 100));
            for text in expressions {
                let parsed = parse(&text, features);
                let parsed = parsed.unwrap_or_else(|e| panic!("seed {seed}: {text}: {e}"));
                assert_eq!(
                    parsed.value_type(),
                    ValueType::Vector,
                    "seed {seed}: {text}"
                );
            }
        }
    }

    #[test]
    fn random_expressions_are_instant_vectors_and_repeat() {
        check(ExpressionDialect::Plain, Features::default());
        check(ExpressionDialect::PlainHistograms, Features::default());
        check(ExpressionDialect::Floats, Features::ALL);
        check(ExpressionDialect::Full, Features::ALL);
    }
}
