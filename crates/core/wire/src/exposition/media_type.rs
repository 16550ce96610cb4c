//! Parses media types like Go's `mime.ParseMediaType`, because Prometheus fails a scrape whose
//! content type that function rejects.

use std::collections::BTreeMap;

/// Returns the media type in `header` in lower case and without its parameters. Fails with Go's
/// error text if the media type or a parameter is malformed.
pub(super) fn parse(header: &str) -> Result<String, String> {
    let base = header.split(';').next().unwrap_or("");
    let media_type = base.to_lowercase().trim().to_owned();
    check_slash(&media_type)?;
    let mut parameters: BTreeMap<String, String> = BTreeMap::new();
    let mut rest = &header[base.len()..];
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(media_type);
        }
        let Some((name, value, after)) = take_parameter(rest) else {
            // A trailing semicolon is allowed.
            return match rest.trim() {
                ";" => Ok(media_type),
                _ => Err("mime: invalid media parameter".into()),
            };
        };
        match parameters.get(&name) {
            Some(earlier) if *earlier != value => {
                return Err("mime: duplicate parameter name".into());
            }
            _ => drop(parameters.insert(name, value)),
        }
        rest = after;
    }
}

fn check_slash(media_type: &str) -> Result<(), String> {
    let (kind, rest) = take_token(media_type);
    if kind.is_empty() {
        return Err("mime: no media type".into());
    }
    if rest.is_empty() {
        return Ok(());
    }
    let Some(rest) = rest.strip_prefix('/') else {
        return Err("mime: expected slash after first token".into());
    };
    let (subtype, rest) = take_token(rest);
    if subtype.is_empty() {
        return Err("mime: expected token after slash".into());
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err("mime: unexpected content after media subtype".into())
    }
}

/// Parses `; name = value` and returns name, value and the rest of the text. Returns `None` if it
/// is malformed.
fn take_parameter(text: &str) -> Option<(String, String, &str)> {
    let rest = text.trim_start().strip_prefix(';')?.trim_start();
    let (name, rest) = take_token(rest);
    if name.is_empty() {
        return None;
    }
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => take_quoted(quoted)?,
        None => match take_token(rest) {
            ("", _) => return None,
            (token, rest) => (token.to_owned(), rest),
        },
    };
    Some((name.to_lowercase(), value, rest))
}

/// Splits the text after the leading characters that RFC 2045 allows in a token.
fn take_token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_graphic() && !is_special(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

fn is_special(c: char) -> bool {
    r#"()<>@,;:\"/[]?="#.contains(c)
}

/// Reads up to the closing quote and returns the value and the rest. A backslash escapes special
/// characters only.
fn take_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\r' | '\n' => return None,
            '\\' => match chars.clone().next() {
                Some((_, next)) if is_special(next) => {
                    value.push(next);
                    chars.next();
                }
                _ => value.push(c),
            },
            _ => value.push(c),
        }
    }
    None
}
