//! Go's `fmt`: formats values with the verbs of `printf` or in their default format.
//!
//! ```text
//! printf -- directive --> flags, width, precision, verb -- verb --> number or text, padded
//! print, println, {{ }} -------------------------------- default --/
//! ```
//!
//! Invariant: the output never exceeds its byte limit, whatever width a format requests. Output
//! follows Go's `fmt/print.go` and `fmt/format.go`, including the texts for misused verbs.

mod directive;
mod float;
mod number;
mod printer;
mod shown;
mod text;

pub(super) use printer::OutputTooLong;
pub(super) use shown::own_text;
pub(super) use text::can_back_quote;

use super::value::TemplateValue;
use printer::PrintfPrinter;

/// Formats values like `fmt.Sprint`: with a space between two neighbours if neither is a string.
pub(super) fn print(args: &[TemplateValue], bytes_max: usize) -> Result<Vec<u8>, OutputTooLong> {
    let mut printer = PrintfPrinter::new(bytes_max);
    let is_string =
        |value: &TemplateValue| matches!(value, TemplateValue::String(_) | TemplateValue::Html(_));
    for (index, arg) in args.iter().enumerate() {
        let follows_string = index == 0 || is_string(&args[index - 1]);
        if !follows_string && !is_string(arg) {
            printer.push(b" ");
        }
        printer.value(arg, 'v');
    }
    printer.finish()
}

/// Formats values like the output of an action: an invalid value as `<no value>`, and the target of
/// a pointer instead of the pointer.
pub(super) fn print_plain(
    values: &[TemplateValue],
    bytes_max: usize,
) -> Result<Vec<u8>, OutputTooLong> {
    if let [TemplateValue::Sample(Some(sample))] = values {
        let mut printer = PrintfPrinter::new(bytes_max);
        printer.sample(sample, 'v', 0);
        return printer.finish();
    }
    let plain = |value: &TemplateValue| match value.clone().unwrap_interface() {
        TemplateValue::Invalid => TemplateValue::string(*b"<no value>"),
        value => value,
    };
    print(&values.iter().map(plain).collect::<Vec<_>>(), bytes_max)
}

/// Formats values like `fmt.Sprintln`: with spaces between all values and a final newline.
pub(super) fn println(args: &[TemplateValue], bytes_max: usize) -> Result<Vec<u8>, OutputTooLong> {
    let mut printer = PrintfPrinter::new(bytes_max);
    for (index, arg) in args.iter().enumerate() {
        if index > 0 {
            printer.push(b" ");
        }
        printer.value(arg, 'v');
    }
    printer.push(b"\n");
    printer.finish()
}

/// Formats values like `fmt.Sprintf`, including its texts for misused verbs. Fails if the output
/// exceeds `bytes_max`.
pub(super) fn printf(
    format: &[u8],
    args: &[TemplateValue],
    bytes_max: usize,
) -> Result<Vec<u8>, OutputTooLong> {
    let mut printer = PrintfPrinter::new(bytes_max);
    printer.format(format, args);
    printer.finish()
}

/// Formats a float with `%.4g`, the format of the humanize functions.
pub(super) fn format_four_digits(value: f64) -> String {
    float::format(value, 'g', Some(4))
}
