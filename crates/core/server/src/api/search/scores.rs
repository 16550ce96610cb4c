//! Scores texts against search terms: from 0 for no match to 1 for equality or a common prefix.
//!
//! ```text
//! subsequence    characters of the term in order; longer runs score higher
//! substring      the term at any position; the score falls from 1 to 0.1 with the position
//! Jaro-Winkler   common characters close to each other, and a common prefix
//! ```
//!
//! Scores are bit-identical to upstream's (`util/strutil`, `web/api/v1/search_filters.go`), so that
//! both systems sort results in the same order. Texts are compared by character.

/// Factor that keeps the score of an inexact match below that of an exact one.
const NOT_EXACT: f64 = 0.999;

/// Weight of each character of a common prefix in the Jaro-Winkler score.
const PREFIX_SCALE: f64 = 0.1;

/// Maximum length of a common prefix in the Jaro-Winkler score.
const PREFIX_MAX: usize = 4;

/// Algorithm that compares texts with a search term, selected by the parameter `fuzz_alg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FuzzyAlgorithm {
    /// Matches the characters of the term in order.
    Subsequence,
    /// Matches a substring, or else by Jaro-Winkler similarity.
    JaroWinkler,
}

impl FuzzyAlgorithm {
    /// All algorithms by name, the default first.
    pub(super) const ALL: [(&'static str, Self); 2] = [
        ("subsequence", Self::Subsequence),
        ("jarowinkler", Self::JaroWinkler),
    ];
}

/// Search terms and the criteria for a match. Created once per request and applied to each text.
#[derive(Clone, Debug)]
pub(super) struct SearchTermFilter {
    terms: Vec<Vec<char>>,
    algorithm: FuzzyAlgorithm,
    /// Minimum score of an inexact match.
    threshold: f64,
    folds_case: bool,
}

impl SearchTermFilter {
    /// Creates a filter that accepts texts which match any of `terms`. Empty terms are ignored;
    /// without terms all texts match. `threshold` is a percentage.
    pub(super) fn new<'a>(
        terms: impl Iterator<Item = &'a str>,
        algorithm: FuzzyAlgorithm,
        threshold: u32,
        folds_case: bool,
    ) -> Self {
        let terms = terms.filter(|term| !term.is_empty());
        Self {
            terms: terms.map(|term| letters(term, folds_case)).collect(),
            algorithm,
            threshold: f64::from(threshold) / 100.0,
            folds_case,
        }
    }

    /// Returns the best score of a text over all terms; `None` if it does not match.
    pub(super) fn score(&self, text: &str) -> Option<f64> {
        if self.terms.is_empty() {
            return Some(1.0);
        }
        let text = letters(text, self.folds_case);
        let scores = self
            .terms
            .iter()
            .filter_map(|term| self.score_term(term, &text));
        scores.reduce(f64::max)
    }

    fn score_term(&self, term: &[char], text: &[char]) -> Option<f64> {
        match self.algorithm {
            FuzzyAlgorithm::Subsequence if text.starts_with(term) => Some(1.0),
            FuzzyAlgorithm::Subsequence => {
                let score = subsequence(term, text);
                (score > 0.0 && score >= self.threshold).then_some(score)
            }
            FuzzyAlgorithm::JaroWinkler => substring(term, text).or_else(|| {
                let score = jaro_winkler(term, text);
                (self.threshold > 0.0 && score >= self.threshold).then_some(score)
            }),
        }
    }
}

/// Returns the characters of a text, optionally in lower case. As in Go, each character is mapped
/// to a single one.
fn letters(text: &str, folds_case: bool) -> Vec<char> {
    if !folds_case {
        text.chars().collect()
    } else {
        (text.chars())
            .map(|c| c.to_lowercase().next().unwrap_or(c))
            .collect()
    }
}

fn substring(term: &[char], text: &[char]) -> Option<f64> {
    let at = text.windows(term.len()).position(|part| part == term)?;
    if at == 0 {
        return Some(1.0);
    }
    let last = (text.len() - term.len()) as f64;
    Some(1.0 - 0.9 * at as f64 / last)
}

fn subsequence(term: &[char], text: &[char]) -> f64 {
    if term == text {
        return 1.0;
    }
    let Some(last_start) = text.len().checked_sub(term.len()) else {
        return 0.0;
    };
    let mut best = -1.0;
    for start in (0..=last_start).filter(|start| text[*start] == term[0]) {
        // If the term does not match from here, it does not match from a later position either.
        let Some(score) = subsequence_from(start, term, text) else {
            break;
        };
        best = f64::max(best, score);
    }
    if best < 0.0 {
        0.0
    } else {
        best / (term.len() * term.len()) as f64 * NOT_EXACT
    }
}

/// Adds the squares of the lengths of runs and subtracts the gaps between, before and after them.
/// Returns `None` if the term does not match from `start`.
fn subsequence_from(start: usize, term: &[char], text: &[char]) -> Option<f64> {
    let share = 1.0 / text.len() as f64;
    let (mut score, mut matched, mut behind, mut at) = (0.0, 0, 0, start);
    while matched < term.len() {
        let from = at + text[at..].iter().position(|c| *c == term[matched])?;
        let run = |(one, other): &(&char, &char)| one == other;
        let pairs = text[from..].iter().zip(&term[matched..]);
        let len = pairs.take_while(run).count();
        if from > behind {
            score -= (from - behind) as f64 * share;
        }
        score += (len * len) as f64;
        matched += len;
        at = from + len;
        behind = at;
    }
    if text.len() > behind {
        score -= (text.len() - behind) as f64 * share * 0.5;
    }
    Some(score)
}

fn jaro_winkler(term: &[char], text: &[char]) -> f64 {
    if term == text {
        return 1.0;
    }
    let (short, long) = if term.len() > text.len() {
        (text, term)
    } else {
        (term, text)
    };
    let distance = (long.len() / 2).saturating_sub(1);
    let (mut of_short, mut of_long) = (vec![false; short.len()], vec![false; long.len()]);
    for (i, letter) in short.iter().enumerate() {
        let near = i.saturating_sub(distance)..(i + distance + 1).min(long.len());
        if let Some(j) = near
            .into_iter()
            .find(|j| !of_long[*j] && long[*j] == *letter)
        {
            of_short[i] = true;
            of_long[j] = true;
        }
    }
    let matched = |letters: &[char], flags: &[bool]| -> Vec<char> {
        let pairs = letters.iter().zip(flags);
        pairs.filter(|(_, is)| **is).map(|(c, _)| *c).collect()
    };
    let (ours, theirs) = (matched(short, &of_short), matched(long, &of_long));
    if ours.is_empty() {
        return 0.0;
    }
    let matches = ours.len() as f64;
    let swapped = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count() as f64;
    let (of_short, of_long) = (1.0 / short.len() as f64, 1.0 / long.len() as f64);
    let jaro = (matches * of_short + matches * of_long + (matches - swapped * 0.5) / matches) / 3.0;
    let common = short.iter().zip(long).take(PREFIX_MAX);
    let prefix = common.take_while(|(a, b)| a == b).count() as f64;
    jaro + prefix * PREFIX_SCALE * (1.0 - jaro)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(algorithm: FuzzyAlgorithm, term: &str, text: &str) -> Option<f64> {
        SearchTermFilter::new([term].into_iter(), algorithm, 10, true).score(text)
    }

    #[test]
    fn scores_fall_from_the_beginning_on() {
        use FuzzyAlgorithm::{JaroWinkler, Subsequence};
        let cases = [
            (Subsequence, "go", "go_gc", Some(1.0)),
            (
                Subsequence,
                "GC",
                "go_gc",
                Some((4.0 - 3.0 / 5.0) / 4.0 * 0.999),
            ),
            (
                Subsequence,
                "gg",
                "go_gc",
                Some((2.0 - 2.0 * 0.2 - 0.2 * 0.5) / 4.0 * 0.999),
            ),
            (Subsequence, "cg", "go_gc", None),
            (Subsequence, "go_gc_", "go_gc", None),
            (JaroWinkler, "gc", "go_gc", Some(1.0 - 0.9)),
            (JaroWinkler, "o_", "go_gc", Some(1.0 - 0.9 / 3.0)),
            (JaroWinkler, "xyz", "go_gc", None),
            (JaroWinkler, "\u{e9}t", "\u{c9}t\u{e9}", Some(1.0)),
        ];
        for (algorithm, term, text, expected) in cases {
            assert_eq!(score(algorithm, term, text), expected, "{term} {text}");
        }
        // The standard example of the algorithm.
        let martha = jaro_winkler(&letters("martha", false), &letters("marhta", false));
        assert!((martha - 0.9611).abs() < 1e-4, "{martha}");
    }

    #[test]
    fn any_of_several_terms_is_enough_and_none_accepts_all() {
        let terms = ["", "xyz", "go"];
        let filter =
            SearchTermFilter::new(terms.into_iter(), FuzzyAlgorithm::Subsequence, 0, false);
        assert_eq!(filter.score("go_gc"), Some(1.0));
        assert_eq!(filter.score("GO"), None);
        let all = SearchTermFilter::new([""].into_iter(), FuzzyAlgorithm::Subsequence, 0, false);
        assert_eq!(all.score("x"), Some(1.0));
    }
}
