//! The state of the HTML parser at a position in a page. The printed form equals Go's, because
//! errors contain it.

use std::fmt;

/// Language at a position in a page, and the lexical state within that language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HtmlState {
    Text,
    Tag,
    AttrName,
    AfterName,
    BeforeValue,
    HtmlComment,
    /// Text in an element without child elements, such as a title or a text area.
    RcData,
    Attr,
    Url,
    SrcSet,
    Js,
    JsDoubleQuoted,
    JsSingleQuoted,
    JsTemplate,
    JsRegexp,
    JsBlockComment,
    JsLineComment,
    JsHtmlOpenComment,
    JsHtmlCloseComment,
    Css,
    CssDoubleQuoted,
    CssSingleQuoted,
    CssDoubleQuotedUrl,
    CssSingleQuotedUrl,
    CssUrl,
    CssBlockComment,
    CssLineComment,
    MetaContent,
    MetaContentUrl,
    /// Unreachable position after `break` or `continue`. It joins with any other context.
    Dead,
}

impl HtmlState {
    pub fn is_comment(self) -> bool {
        matches!(
            self,
            Self::HtmlComment
                | Self::JsBlockComment
                | Self::JsLineComment
                | Self::JsHtmlOpenComment
                | Self::JsHtmlCloseComment
                | Self::CssBlockComment
                | Self::CssLineComment
        )
    }

    pub fn is_in_tag(self) -> bool {
        matches!(
            self,
            Self::Tag | Self::AttrName | Self::AfterName | Self::BeforeValue | Self::Attr
        )
    }

    /// Returns whether the state is a literal in which `</script` does not end the script element.
    pub fn is_in_script_literal(self) -> bool {
        matches!(
            self,
            Self::JsDoubleQuoted | Self::JsSingleQuoted | Self::JsTemplate | Self::JsRegexp
        )
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "stateText",
            Self::Tag => "stateTag",
            Self::AttrName => "stateAttrName",
            Self::AfterName => "stateAfterName",
            Self::BeforeValue => "stateBeforeValue",
            Self::HtmlComment => "stateHTMLCmt",
            Self::RcData => "stateRCDATA",
            Self::Attr => "stateAttr",
            Self::Url => "stateURL",
            Self::SrcSet => "stateSrcset",
            Self::Js => "stateJS",
            Self::JsDoubleQuoted => "stateJSDqStr",
            Self::JsSingleQuoted => "stateJSSqStr",
            Self::JsTemplate => "stateJSTmplLit",
            Self::JsRegexp => "stateJSRegexp",
            Self::JsBlockComment => "stateJSBlockCmt",
            Self::JsLineComment => "stateJSLineCmt",
            Self::JsHtmlOpenComment => "stateJSHTMLOpenCmt",
            Self::JsHtmlCloseComment => "stateJSHTMLCloseCmt",
            Self::Css => "stateCSS",
            Self::CssDoubleQuoted => "stateCSSDqStr",
            Self::CssSingleQuoted => "stateCSSSqStr",
            Self::CssDoubleQuotedUrl => "stateCSSDqURL",
            Self::CssSingleQuotedUrl => "stateCSSSqURL",
            Self::CssUrl => "stateCSSURL",
            Self::CssBlockComment => "stateCSSBlockCmt",
            Self::CssLineComment => "stateCSSLineCmt",
            Self::MetaContent => "stateMetaContent",
            Self::MetaContentUrl => "stateMetaContentURL",
            Self::Dead => "stateDead",
        }
    }
}

/// Delimiter that ends an attribute value: one of the quotes, or a space or tag end for an unquoted
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeDelimiter {
    /// The position is not in an attribute value.
    None,
    DoubleQuote,
    SingleQuote,
    SpaceOrTagEnd,
}

impl AttributeDelimiter {
    /// Returns the bytes that end a value with this delimiter; none outside of attribute values.
    pub fn ends(self) -> &'static [u8] {
        match self {
            Self::None => b"",
            Self::DoubleQuote => b"\"",
            Self::SingleQuote => b"'",
            Self::SpaceOrTagEnd => b" \t\n\x0c\r>",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "delimNone",
            Self::DoubleQuote => "delimDoubleQuote",
            Self::SingleQuote => "delimSingleQuote",
            Self::SpaceOrTagEnd => "delimSpaceOrTagEnd",
        }
    }
}

/// Part of a URL at the position. Before the query, a value could change the scheme or host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlPart {
    None,
    PreQuery,
    QueryOrFragment,
    Unknown,
}

impl UrlPart {
    fn name(self) -> &'static str {
        match self {
            Self::None => "urlPartNone",
            Self::PreQuery => "urlPartPreQuery",
            Self::QueryOrFragment => "urlPartQueryOrFrag",
            Self::Unknown => "urlPartUnknown",
        }
    }
}

/// Meaning of a slash at a position in JavaScript, which depends on the preceding tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsSlash {
    Regexp,
    Division,
    Unknown,
}

impl JsSlash {
    fn name(self) -> &'static str {
        match self {
            Self::Regexp => "jsCtxRegexp",
            Self::Division => "jsCtxDivOp",
            Self::Unknown => "jsCtxUnknown",
        }
    }
}

/// Kind of the current attribute's value, remembered until the value starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeKind {
    None,
    Script,
    ScriptType,
    Style,
    Url,
    SrcSet,
    MetaContent,
}

impl AttributeKind {
    /// Returns the parser state at the start of the attribute's value.
    pub fn start_state(self) -> HtmlState {
        match self {
            Self::None | Self::ScriptType => HtmlState::Attr,
            Self::Script => HtmlState::Js,
            Self::Style => HtmlState::Css,
            Self::Url => HtmlState::Url,
            Self::SrcSet => HtmlState::SrcSet,
            Self::MetaContent => HtmlState::MetaContent,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "attrNone",
            Self::Script => "attrScript",
            Self::ScriptType => "attrScriptType",
            Self::Style => "attrStyle",
            Self::Url => "attrURL",
            Self::SrcSet => "attrSrcset",
            Self::MetaContent => "attrMetaContent",
        }
    }
}

/// Current element, if its content is not ordinary HTML: a script, style, title or text area, or
/// the attributes of `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HtmlElement {
    None,
    Script,
    Style,
    TextArea,
    Title,
    Meta,
}

impl HtmlElement {
    /// Returns the element with that name, ignoring case.
    pub fn from_name(name: &[u8]) -> Self {
        match &name.to_ascii_lowercase()[..] {
            b"script" => Self::Script,
            b"style" => Self::Style,
            b"textarea" => Self::TextArea,
            b"title" => Self::Title,
            b"meta" => Self::Meta,
            _ => Self::None,
        }
    }

    /// Returns the tag name that ends the element's content; empty for ordinary elements.
    pub fn end_name(self) -> &'static [u8] {
        match self {
            Self::None | Self::Meta => b"",
            Self::Script => b"script",
            Self::Style => b"style",
            Self::TextArea => b"textarea",
            Self::Title => b"title",
        }
    }

    /// Returns the parser state at the start of the element's content.
    pub fn content_state(self) -> HtmlState {
        match self {
            Self::None | Self::Meta => HtmlState::Text,
            Self::Script => HtmlState::Js,
            Self::Style => HtmlState::Css,
            Self::TextArea | Self::Title => HtmlState::RcData,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "elementNone",
            Self::Script => "elementScript",
            Self::Style => "elementStyle",
            Self::TextArea => "elementTextarea",
            Self::Title => "elementTitle",
            Self::Meta => "elementMeta",
        }
    }
}

/// Complete parser state at a position in a page. Two positions with equal contexts need the same
/// escapers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HtmlContext {
    pub state: HtmlState,
    pub delim: AttributeDelimiter,
    pub url_part: UrlPart,
    pub js_slash: JsSlash,
    /// Number of open braces in each nested expression of JavaScript template literals.
    pub js_braces: Vec<i32>,
    pub attr: AttributeKind,
    pub element: HtmlElement,
}

impl Default for HtmlContext {
    /// Returns the context at the start of a page.
    fn default() -> Self {
        Self::from_state(HtmlState::Text)
    }
}

impl HtmlContext {
    /// Returns a context with this state and defaults for all other fields.
    pub fn from_state(state: HtmlState) -> Self {
        Self {
            state,
            delim: AttributeDelimiter::None,
            url_part: UrlPart::None,
            js_slash: JsSlash::Regexp,
            js_braces: Vec::new(),
            attr: AttributeKind::None,
            element: HtmlElement::None,
        }
    }

    /// Returns the derived name of a definition that is called in this context, in Go's format.
    pub fn derived_name(&self, definition: &str) -> String {
        if self.state == HtmlState::Text {
            return definition.to_owned();
        }
        let mut name = format!("{definition}$htmltemplate_{}", self.state.name());
        let mut push = |is_there: bool, part: &str| {
            if is_there {
                name.push('_');
                name.push_str(part);
            }
        };
        push(self.delim != AttributeDelimiter::None, self.delim.name());
        push(self.url_part != UrlPart::None, self.url_part.name());
        push(self.js_slash != JsSlash::Regexp, self.js_slash.name());
        let braces = format!("jsBraceDepth({})", self.braces());
        push(!self.js_braces.is_empty(), &braces);
        push(self.attr != AttributeKind::None, self.attr.name());
        push(self.element != HtmlElement::None, self.element.name());
        name
    }

    /// Returns the context in which the output of an action starts. Within a tag, the output starts
    /// an attribute name or an unquoted value.
    pub fn nudge(&self) -> Self {
        let mut nudged = self.clone();
        match self.state {
            HtmlState::Tag => nudged.state = HtmlState::AttrName,
            HtmlState::BeforeValue => {
                nudged.state = self.attr.start_state();
                nudged.delim = AttributeDelimiter::SpaceOrTagEnd;
                nudged.attr = AttributeKind::None;
            }
            HtmlState::AfterName => {
                nudged.state = HtmlState::AttrName;
                nudged.attr = AttributeKind::None;
            }
            _ => {}
        }
        nudged
    }

    /// Returns the common context after two branches; `None` if they end in incompatible contexts.
    pub fn join(&self, other: &Self) -> Option<Self> {
        if self.state == HtmlState::Dead {
            return Some(other.clone());
        }
        if other.state == HtmlState::Dead || self == other {
            return Some(self.clone());
        }
        let same_but_part = Self {
            url_part: other.url_part,
            ..self.clone()
        };
        if same_but_part == *other {
            let url_part = UrlPart::Unknown;
            return Some(Self {
                url_part,
                ..same_but_part
            });
        }
        let same_but_slash = Self {
            js_slash: other.js_slash,
            ..self.clone()
        };
        if same_but_slash == *other {
            let js_slash = JsSlash::Unknown;
            return Some(Self {
                js_slash,
                ..same_but_slash
            });
        }
        // An unquoted value may start in only one of the branches.
        let (a, b) = (self.nudge(), other.nudge());
        if a == *self && b == *other {
            None
        } else {
            a.join(&b)
        }
    }

    fn braces(&self) -> String {
        let braces: Vec<String> = self.js_braces.iter().map(i32::to_string).collect();
        format!("[{}]", braces.join(" "))
    }
}

impl fmt::Display for HtmlContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{{{} {} {} {} {} {} {} <nil>}}",
            self.state.name(),
            self.delim.name(),
            self.url_part.name(),
            self.js_slash.name(),
            self.braces(),
            self.attr.name(),
            self.element.name()
        )
    }
}
