//! Building blocks of HTML pages: style sheet, escaping and charts. Each page is a single file
//! without external resources and scripts.

pub(crate) mod chart;

use firn_model::sample::TimestampMs;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The style sheet of all pages, with colours that suit light and dark mode.
pub(crate) const STYLE: &str = "
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:.6rem 0}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #8884;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere;white-space:pre-wrap}
.good{color:#08783f}.bad{color:#c0341d}.rate{font-size:2.2rem;font-weight:600}
svg{width:100%;height:auto}.frame{fill:none;stroke:#8886}.line{fill:none;stroke-width:1.6}
svg text{font:11px system-ui,sans-serif;fill:currentColor}.value{text-anchor:end}
.legend span{margin-right:1rem}details{margin:.4rem 0}
";

/// Escapes text for HTML, including attribute values, and replaces control characters.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML does not permit control characters, not even as character references.
            c if c.is_control() && !c.is_whitespace() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Formats a time as RFC 3339, or in milliseconds if it is outside the supported range.
pub(crate) fn time_text(ms: TimestampMs) -> String {
    let civil = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000);
    let text = civil.ok().and_then(|civil| civil.format(&Rfc3339).ok());
    text.unwrap_or_else(|| format!("{ms} ms"))
}
