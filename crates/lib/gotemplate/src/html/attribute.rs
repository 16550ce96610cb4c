//! Classifies the values of HTML attributes by attribute name.

/// Kind of an attribute value, which decides the parser state at its start and thereby its
/// escapers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeValueKind {
    Plain,
    Css,
    Html,
    Js,
    Url,
    SrcSet,
    /// The value affects the interpretation of the rest of the page, so templates may not choose
    /// such a name.
    Unsafe,
}

/// Attribute names whose values are URLs, in lower case and sorted.
const URLS: [&[u8]; 17] = [
    b"action",
    b"archive",
    b"background",
    b"cite",
    b"classid",
    b"codebase",
    b"data",
    b"formaction",
    b"href",
    b"icon",
    b"longdesc",
    b"manifest",
    b"poster",
    b"profile",
    b"src",
    b"usemap",
    b"xmlns",
];

/// Attribute names that templates may not produce, because their values change the meaning of the
/// page.
const UNSAFE: [&[u8]; 20] = [
    b"accept-charset",
    b"async",
    b"challenge",
    b"charset",
    b"content",
    b"crossorigin",
    b"defer",
    b"enctype",
    b"form",
    b"formenctype",
    b"formmethod",
    b"formnovalidate",
    b"http-equiv",
    b"keytype",
    b"language",
    b"method",
    b"novalidate",
    b"pattern",
    b"rel",
    b"sandbox",
];

/// Attribute names that are safe although they contain a suspicious part.
const PLAIN: [&[u8]; 1] = [b"srclang"];

/// Returns the kind of value of the attribute `name`, which must be in lower case.
pub(super) fn attribute_value_kind(name: &[u8]) -> AttributeValueKind {
    let name = match name.strip_prefix(b"data-") {
        Some(rest) => rest,
        None => match name.iter().position(|b| *b == b':') {
            Some(colon) if &name[..colon] == b"xmlns" => return AttributeValueKind::Url,
            Some(colon) => &name[colon + 1..],
            None => name,
        },
    };
    let contains = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    match name {
        b"style" => AttributeValueKind::Css,
        b"srcdoc" => AttributeValueKind::Html,
        b"srcset" => AttributeValueKind::SrcSet,
        b"type" | b"value" => AttributeValueKind::Unsafe,
        _ if UNSAFE.contains(&name) => AttributeValueKind::Unsafe,
        _ if URLS.contains(&name) => AttributeValueKind::Url,
        _ if PLAIN.contains(&name) => AttributeValueKind::Plain,
        _ if name.starts_with(b"on") => AttributeValueKind::Js,
        _ if contains(b"src") || contains(b"uri") || contains(b"url") => AttributeValueKind::Url,
        _ => AttributeValueKind::Plain,
    }
}
