//! Log lines on standard error, as logfmt or JSON, with Prometheus's names for time, level and
//! message.
//!
//! ```text
//! time=2026-11-20T19:00:00.000Z level=INFO target=firn::serve msg=start data=./data
//! ```
//!
//! Invariant: an event is one line for any content of its fields, and is written with one call.

use firn_config::LogFormat;
use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Starts logging to standard error: events of Firn's crates at `level` or above, and warnings of
/// libraries.
pub fn start(level: Level, format: LogFormat) {
    let filter = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("firn", level);
    let lines = LogLineLayer { format }.with_filter(filter);
    // Fails only if a subscriber is already installed; that one is used then.
    let _ = tracing_subscriber::registry().with(lines).try_init();
}

struct LogLineLayer {
    format: LogFormat,
}

impl<S: Subscriber> Layer<S> for LogLineLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let now = OffsetDateTime::now_utc();
        let line = print(event, now, self.format);
        // If standard error is closed, the failure cannot be reported anywhere.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

fn print(event: &Event<'_>, now: OffsetDateTime, format: LogFormat) -> String {
    let metadata = event.metadata();
    let mut fields = LogEventFields::default();
    event.record(&mut fields);
    let time = now.format(TIME).unwrap_or_default();
    let mut line = LogLineBuilder::new(format);
    line.text("time", &time);
    line.text("level", metadata.level().as_str());
    line.text("target", metadata.target());
    line.text("msg", &fields.message);
    for (name, value) in &fields.others {
        match value {
            LogFieldValue::Text(text) => line.text(name, text),
            LogFieldValue::Literal(literal) => line.literal(name, literal),
        }
    }
    line.end()
}

enum LogFieldValue {
    Text(String),
    /// A number or a boolean, written without quotes in JSON.
    Literal(String),
}

#[derive(Default)]
struct LogEventFields {
    message: String,
    others: Vec<(&'static str, LogFieldValue)>,
}

impl LogEventFields {
    fn push(&mut self, field: &Field, value: LogFieldValue) {
        match (field.name(), value) {
            ("message", LogFieldValue::Text(text) | LogFieldValue::Literal(text)) => {
                self.message = text
            }
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for LogEventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.push(field, LogFieldValue::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, LogFieldValue::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, LogFieldValue::Literal(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, LogFieldValue::Literal(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, LogFieldValue::Literal(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = value.to_string();
        self.push(
            field,
            if value.is_finite() {
                LogFieldValue::Literal(text)
            } else {
                LogFieldValue::Text(text)
            },
        );
    }
}

/// A log line that is being built, field by field, in one of both formats.
struct LogLineBuilder {
    format: LogFormat,
    out: String,
}

impl LogLineBuilder {
    fn new(format: LogFormat) -> Self {
        let out = match format {
            LogFormat::Logfmt => String::new(),
            LogFormat::Json => "{".into(),
        };
        Self { format, out }
    }

    fn text(&mut self, name: &str, value: &str) {
        match self.format {
            LogFormat::Logfmt if is_bare(value) => self.literal(name, value),
            LogFormat::Logfmt => self.literal(name, &quoted(value)),
            LogFormat::Json => self.literal(name, &quoted(value)),
        }
    }

    fn literal(&mut self, name: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = match self.format {
            LogFormat::Logfmt if self.out.is_empty() => write!(self.out, "{name}={value}"),
            LogFormat::Logfmt => write!(self.out, " {name}={value}"),
            LogFormat::Json if self.out.len() == 1 => write!(self.out, "{}:{value}", quoted(name)),
            LogFormat::Json => write!(self.out, ",{}:{value}", quoted(name)),
        };
    }

    fn end(mut self) -> String {
        if self.format == LogFormat::Json {
            self.out.push('}');
        }
        self.out.push('\n');
        self.out
    }
}

/// Returns whether a logfmt value needs no quotes: it is not empty and has no separators or control
/// characters.
fn is_bare(value: &str) -> bool {
    let is_plain = |c: char| c > ' ' && c != '"' && c != '=' && c != '\\' && !c.is_control();
    !value.is_empty() && value.chars().all(is_plain)
}

/// Returns `value` as a JSON string, which readers of logfmt parse as well.
fn quoted(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone)]
    struct Captured(Arc<Mutex<Vec<String>>>, LogFormat);

    impl<S: Subscriber> Layer<S> for Captured {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let line = print(event, OffsetDateTime::UNIX_EPOCH, self.1);
            self.0.lock().unwrap().push(line);
        }
    }

    fn check(format: LogFormat, want: &str) {
        let lines = Captured(Arc::default(), format);
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(
                target: "firn::x",
                count = 3,
                path = %"a b",
                error = "line\nbreak",
                on = true,
                "skip it"
            );
        });
        assert_eq!(*lines.0.lock().unwrap(), [want]);
    }

    #[test]
    fn log_line_is_one_line_in_either_format() {
        check(
            LogFormat::Logfmt,
            "time=1970-01-01T00:00:00.000Z level=WARN target=firn::x msg=\"skip it\" count=3 \
             path=\"a b\" error=\"line\\nbreak\" on=true\n",
        );
        check(
            LogFormat::Json,
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"WARN\",\"target\":\"firn::x\",\
             \"msg\":\"skip it\",\"count\":3,\"path\":\"a b\",\"error\":\"line\\nbreak\",\
             \"on\":true}\n",
        );
    }
}
