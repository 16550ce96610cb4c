//! Where in a page a byte stands. Printed, a context looks as Go prints it, because errors show it.

use std::fmt;

/// Which language, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Text,
    Tag,
    AttrName,
    AfterName,
    BeforeValue,
    HtmlComment,
    /// Text in an element that has no elements in it: a title, a field.
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
    /// Behind the end of a turn of a loop.
    Dead,
}

impl State {
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

    /// Whether the end of a script does not end here.
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

/// What ends the value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delim {
    /// This is no value.
    None,
    DoubleQuote,
    SingleQuote,
    SpaceOrTagEnd,
}

impl Delim {
    /// The bytes of which each ends it.
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

/// Which part of a URL.
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

/// What a slash would begin in a script.
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

/// What the value of the attribute at hand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attr {
    None,
    Script,
    ScriptType,
    Style,
    Url,
    SrcSet,
    MetaContent,
}

impl Attr {
    /// The state in which its value begins.
    pub fn start(self) -> State {
        match self {
            Self::None | Self::ScriptType => State::Attr,
            Self::Script => State::Js,
            Self::Style => State::Css,
            Self::Url => State::Url,
            Self::SrcSet => State::SrcSet,
            Self::MetaContent => State::MetaContent,
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

/// The element at hand, if what is in it is no ordinary text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    None,
    Script,
    Style,
    TextArea,
    Title,
    Meta,
}

impl Element {
    /// The element of that name, in any case.
    pub fn of(name: &[u8]) -> Self {
        match &name.to_ascii_lowercase()[..] {
            b"script" => Self::Script,
            b"style" => Self::Style,
            b"textarea" => Self::TextArea,
            b"title" => Self::Title,
            b"meta" => Self::Meta,
            _ => Self::None,
        }
    }

    /// The name by which it is ended.
    pub fn end_name(self) -> &'static [u8] {
        match self {
            Self::None | Self::Meta => b"",
            Self::Script => b"script",
            Self::Style => b"style",
            Self::TextArea => b"textarea",
            Self::Title => b"title",
        }
    }

    /// The state of what is in it.
    pub fn content(self) -> State {
        match self {
            Self::None | Self::Meta => State::Text,
            Self::Script => State::Js,
            Self::Style => State::Css,
            Self::TextArea | Self::Title => State::RcData,
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

/// Where a byte stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub state: State,
    pub delim: Delim,
    pub url_part: UrlPart,
    pub js_slash: JsSlash,
    /// Open braces in each expression of a script's template literals.
    pub js_braces: Vec<i32>,
    pub attr: Attr,
    pub element: Element,
}

impl Default for Context {
    /// The start of a page.
    fn default() -> Self {
        Self::of(State::Text)
    }
}

impl Context {
    /// A state and nothing else.
    pub fn of(state: State) -> Self {
        Self {
            state,
            delim: Delim::None,
            url_part: UrlPart::None,
            js_slash: JsSlash::Regexp,
            js_braces: Vec::new(),
            attr: Attr::None,
            element: Element::None,
        }
    }

    /// The name of a definition for this context.
    pub fn name_of(&self, definition: &str) -> String {
        if self.state == State::Text {
            return definition.to_owned();
        }
        let mut name = format!("{definition}$htmltemplate_{}", self.state.name());
        let mut push = |is_there: bool, part: &str| {
            if is_there {
                name.push('_');
                name.push_str(part);
            }
        };
        push(self.delim != Delim::None, self.delim.name());
        push(self.url_part != UrlPart::None, self.url_part.name());
        push(self.js_slash != JsSlash::Regexp, self.js_slash.name());
        let braces = format!("jsBraceDepth({})", self.braces());
        push(!self.js_braces.is_empty(), &braces);
        push(self.attr != Attr::None, self.attr.name());
        push(self.element != Element::None, self.element.name());
        name
    }

    /// The context in which an action that stands here writes: an attribute, or its value, begins
    /// with it.
    pub fn nudged(&self) -> Self {
        let mut nudged = self.clone();
        match self.state {
            State::Tag => nudged.state = State::AttrName,
            State::BeforeValue => {
                nudged.state = self.attr.start();
                nudged.delim = Delim::SpaceOrTagEnd;
                nudged.attr = Attr::None;
            }
            State::AfterName => {
                nudged.state = State::AttrName;
                nudged.attr = Attr::None;
            }
            _ => {}
        }
        nudged
    }

    /// The context behind two branches, if they end alike enough.
    pub fn join(&self, other: &Self) -> Option<Self> {
        if self.state == State::Dead {
            return Some(other.clone());
        }
        if other.state == State::Dead || self == other {
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
        // A value without quotes may begin in one branch alone.
        let (a, b) = (self.nudged(), other.nudged());
        match a == *self && b == *other {
            true => None,
            false => a.join(&b),
        }
    }

    fn braces(&self) -> String {
        let braces: Vec<String> = self.js_braces.iter().map(i32::to_string).collect();
        format!("[{}]", braces.join(" "))
    }
}

impl fmt::Display for Context {
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
