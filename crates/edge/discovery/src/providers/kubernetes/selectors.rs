//! Validates selectors of Kubernetes objects, by labels and by fields.
//!
//! Selectors are sent unchanged, and the API server parses them. Selectors that its library rejects
//! are rejected here as well, so that errors are found before the server starts. Follows
//! `labels.Parse` and `fields.ParseSelector` of Kubernetes' `apimachinery`.

/// Maximum bytes of a label's value, and of the name part of its key.
const NAME_BYTES_MAX: usize = 63;

/// Maximum bytes of the prefix of a label's key, which is a domain.
const PREFIX_BYTES_MAX: usize = 253;

/// Validates a label selector and returns the error of Kubernetes.
pub fn check_labels(text: &str) -> Result<(), String> {
    let mut rest = LabelSelectorTokenizer { rest: text };
    if rest.peek().is_empty() {
        return Ok(());
    }
    loop {
        requirement(&mut rest)?;
        match rest.next() {
            "" => return Ok(()),
            "," if matches!(rest.peek(), "" | ",") => {
                return Err(format!(
                    "found '{}', expected: identifier after ','",
                    rest.peek()
                ));
            }
            "," => {}
            other => {
                return Err(format!("found '{other}', expected: ',' or 'end of string'"));
            }
        }
    }
}

/// Tokenizer that splits a label selector into words and operators.
struct LabelSelectorTokenizer<'t> {
    rest: &'t str,
}

/// Operators and delimiters of a label selector, longer ones first.
const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

impl<'t> LabelSelectorTokenizer<'t> {
    /// Returns the next word or operator without consuming it, or an empty text at the end.
    fn peek(&self) -> &'t str {
        let text = self.rest.trim_start();
        if let Some(sign) = SIGNS.iter().find(|sign| text.starts_with(**sign)) {
            return &text[..sign.len()];
        }
        let ends = |c: char| c.is_whitespace() || "=!(),><".contains(c);
        &text[..text.find(ends).unwrap_or(text.len())]
    }

    fn next(&mut self) -> &'t str {
        let token = self.peek();
        self.rest = &self.rest.trim_start()[token.len()..];
        token
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !SIGNS.contains(&token)
}

/// Validates one requirement: a key with an optional condition on its value.
fn requirement(tokens: &mut LabelSelectorTokenizer<'_>) -> Result<(), String> {
    let is_negated = tokens.peek() == "!";
    if is_negated {
        tokens.next();
    }
    let key = tokens.next();
    if !is_word(key) {
        return Err(format!(
            "found '{key}', expected: !, identifier, or 'end of string'"
        ));
    }
    check_key(key).map_err(unable)?;
    if is_negated || matches!(tokens.peek(), "" | ",") {
        return Ok(());
    }
    match tokens.next() {
        "in" | "notin" => set(key, tokens),
        "=" | "==" | "!=" => {
            let value = if is_word(tokens.peek()) {
                tokens.next()
            } else {
                ""
            };
            check_value(key, value).map_err(unable)
        }
        ">" | "<" => match tokens.next().parse::<i64>() {
            Ok(_) => Ok(()),
            Err(_) => Err(unable(
                "for 'Gt', 'Lt' operators, the value must be an integer".into(),
            )),
        },
        other => Err(unable(format!(
            "found '{other}', expected: in, notin, =, ==, !=, gt, lt"
        ))),
    }
}

/// Validates a set of values, `(a, b)`, whose values may be empty.
fn set(key: &str, tokens: &mut LabelSelectorTokenizer<'_>) -> Result<(), String> {
    match tokens.next() {
        "(" => {}
        other => return Err(unable(format!("found '{other}' expected: '('"))),
    }
    loop {
        let value = if is_word(tokens.peek()) {
            tokens.next()
        } else {
            ""
        };
        check_value(key, value).map_err(unable)?;
        match tokens.next() {
            ")" => return Ok(()),
            "," => {}
            other => return Err(unable(format!("found '{other}', expected: ',' or ')'"))),
        }
    }
}

fn unable(why: String) -> String {
    format!("unable to parse requirement: {why}")
}

/// Returns whether the text consists of letters, digits, `-`, `_` and `.`, with a letter or a digit
/// at both ends.
fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= NAME_BYTES_MAX
        && text.chars().all(is_inner)
        && is_end(text.chars().next())
        && is_end(text.chars().next_back())
}

fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_domain = |prefix: &str| {
        let is_lower = |c: char| !c.is_ascii_uppercase() && c != '_';
        prefix.len() <= PREFIX_BYTES_MAX
            && prefix
                .split('.')
                .all(|part| is_name(part) && part.chars().all(is_lower))
    };
    if is_name(name) && prefix.is_none_or(is_domain) {
        Ok(())
    } else {
        Err(format!("invalid value: {key:?}: not the key of a label"))
    }
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        Ok(())
    } else {
        Err(format!(
            "values[0][{key}]: invalid value: {value:?}: not the value of a label"
        ))
    }
}

/// Validates a field selector and returns the error of Kubernetes: pairs with `=`, `==` or `!=`, in
/// which a backslash escapes commas, equal signs and backslashes.
pub fn check_fields(text: &str) -> Result<(), String> {
    let mut start = 0;
    let mut has_sign = false;
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some((_, '\\' | ',' | '=')) => {}
                other => {
                    let what = other.map_or(String::new(), |(_, c)| c.to_string());
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{what}"
                    ));
                }
            },
            '=' => has_sign = true,
            ',' => {
                check_term(text, &text[start..at], has_sign)?;
                (start, has_sign) = (at + 1, false);
            }
            _ => {}
        }
    }
    check_term(text, &text[start..], has_sign)
}

fn check_term(text: &str, term: &str, has_sign: bool) -> Result<(), String> {
    if has_sign || term.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "invalid selector: '{text}'; can't understand '{term}'"
        ))
    }
}
