//! Scans tokens that are not content: directives, anchors, aliases and tags.

use super::{
    END, YamlError, YamlScanPosition, YamlScanner, YamlTokenKind, is_blank, is_space_or_end,
    is_word,
};

/// Maximum number of digits in a version number.
const VERSION_DIGITS_MAX: u32 = 2;

impl YamlScanner {
    pub(super) fn fetch_directive(&mut self) -> Result<(), YamlError> {
        self.end_blocks()?;
        let start = self.mark;
        self.skip();
        let name = self.scan_word();
        if name.is_empty() {
            return Err(self.error("could not find expected directive name"));
        }
        if !is_space_or_end(self.current_char()) {
            return Err(self.error("found unexpected non-alphabetical character"));
        }
        self.skip_while(is_blank);
        let kind = match name.as_str() {
            "YAML" => self.scan_version()?,
            "TAG" => self.scan_tag_directive(start)?,
            _ => return Err(self.error("found unknown directive name")),
        };
        self.push(kind, start);
        self.skip_rest_of_line("a directive", start)
    }

    fn scan_word(&mut self) -> String {
        let mut word = String::new();
        while is_word(self.current_char()) {
            word.push(self.current_char());
            self.skip();
        }
        word
    }

    fn scan_version(&mut self) -> Result<YamlTokenKind, YamlError> {
        let major = self.scan_version_number()?;
        if self.current_char() != '.' {
            return Err(self.error("did not find expected digit or '.' character"));
        }
        self.skip();
        let minor = self.scan_version_number()?;
        Ok(YamlTokenKind::Version { major, minor })
    }

    fn scan_version_number(&mut self) -> Result<u32, YamlError> {
        let (mut number, mut digits) = (0, 0);
        while let Some(digit) = self.current_char().to_digit(10) {
            digits += 1;
            if digits > VERSION_DIGITS_MAX {
                return Err(self.error("found extremely long version number"));
            }
            number = number * 10 + digit;
            self.skip();
        }
        match digits {
            0 => Err(self.error("did not find expected version number")),
            _ => Ok(number),
        }
    }

    fn scan_tag_directive(&mut self, start: YamlScanPosition) -> Result<YamlTokenKind, YamlError> {
        let handle = self.scan_tag_handle()?;
        if !handle.ends_with('!') {
            return Err(self.error("did not find expected '!'"));
        }
        if !is_blank(self.current_char()) {
            return Err(self.error("did not find expected whitespace"));
        }
        self.skip_while(is_blank);
        let prefix = self.scan_tag_uri(String::new(), start)?;
        if !is_space_or_end(self.current_char()) {
            return Err(self.error("did not find expected whitespace or line break"));
        }
        Ok(YamlTokenKind::TagDirective { handle, prefix })
    }

    pub(super) fn fetch_anchor(&mut self) -> Result<(), YamlError> {
        self.save_candidate()?;
        self.key_allowed = false;
        let start = self.mark;
        let is_alias = self.current_char() == '*';
        self.skip();
        let name = self.scan_word();
        let next = self.current_char();
        let ends =
            is_space_or_end(next) || matches!(next, '?' | ':' | ',' | ']' | '}' | '%' | '@' | '`');
        if name.is_empty() || !ends {
            return Err(self.error("did not find expected alphabetic or numeric character"));
        }
        let kind = if is_alias {
            YamlTokenKind::Alias(name)
        } else {
            YamlTokenKind::Anchor(name)
        };
        self.push(kind, start);
        Ok(())
    }

    pub(super) fn fetch_tag(&mut self) -> Result<(), YamlError> {
        self.save_candidate()?;
        self.key_allowed = false;
        let start = self.mark;
        let (handle, suffix) = match self.char_at(1) {
            '<' => (String::new(), self.scan_verbatim_tag(start)?),
            _ => self.scan_short_tag(start)?,
        };
        if !is_space_or_end(self.current_char()) {
            return Err(self.error("did not find expected whitespace or line break"));
        }
        self.push(YamlTokenKind::Tag { handle, suffix }, start);
        Ok(())
    }

    /// Scans a verbatim tag, such as `!<tag:yaml.org,2002:str>`.
    fn scan_verbatim_tag(&mut self, start: YamlScanPosition) -> Result<String, YamlError> {
        self.skip();
        self.skip();
        let suffix = self.scan_tag_uri(String::new(), start)?;
        if self.current_char() != '>' {
            return Err(self.error("did not find the expected '>'"));
        }
        self.skip();
        Ok(suffix)
    }

    /// Scans `!!str`, `!handle!suffix`, `!suffix` or `!`. Returns handle and suffix.
    fn scan_short_tag(&mut self, start: YamlScanPosition) -> Result<(String, String), YamlError> {
        let handle = self.scan_tag_handle()?;
        if handle.len() > 1 && handle.ends_with('!') {
            let suffix = self.scan_tag_uri(String::new(), start)?;
            return Ok((handle, suffix));
        }
        let name = handle[1..].to_owned();
        let suffix = self.scan_tag_characters(name)?;
        if suffix.is_empty() {
            Ok((suffix, "!".to_owned()))
        } else {
            Ok(("!".to_owned(), suffix))
        }
    }

    fn scan_tag_handle(&mut self) -> Result<String, YamlError> {
        if self.current_char() != '!' {
            return Err(self.error("did not find expected '!'"));
        }
        self.skip();
        let mut handle = format!("!{}", self.scan_word());
        if self.current_char() == '!' {
            handle.push('!');
            self.skip();
        }
        Ok(handle)
    }

    fn scan_tag_uri(&mut self, head: String, start: YamlScanPosition) -> Result<String, YamlError> {
        let uri = self.scan_tag_characters(head)?;
        if uri.is_empty() {
            Err(self.error_in("did not find expected tag URI", "a tag", start))
        } else {
            Ok(uri)
        }
    }

    /// Appends the following tag characters, with escapes decoded, to `head`.
    fn scan_tag_characters(&mut self, head: String) -> Result<String, YamlError> {
        let mut uri = head;
        loop {
            match self.current_char() {
                END => return Ok(uri),
                '%' => uri.push(self.decode_escaped_character()?),
                c if is_word(c) || ";/?:@&=+$,.!~*'()[]".contains(c) => {
                    uri.push(c);
                    self.skip();
                }
                _ => return Ok(uri),
            }
        }
    }

    /// Decodes a character that is escaped as UTF-8 octets, such as `%C3%A9`.
    fn decode_escaped_character(&mut self) -> Result<char, YamlError> {
        let first = self.decode_escaped_octet()?;
        let width = match first {
            0..0x80 => 1,
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0..0xf8 => 4,
            _ => return Err(self.error("found an incorrect leading UTF-8 octet")),
        };
        let mut octets = vec![first];
        for _ in 1..width {
            octets.push(self.decode_escaped_octet()?);
        }
        let character = std::str::from_utf8(&octets)
            .ok()
            .and_then(|s| s.chars().next());
        character.ok_or_else(|| self.error("found an incorrect trailing UTF-8 octet"))
    }

    fn decode_escaped_octet(&mut self) -> Result<u8, YamlError> {
        let digit = |ahead: usize| self.char_at(ahead).to_digit(16);
        match (self.current_char(), digit(1), digit(2)) {
            ('%', Some(high), Some(low)) => {
                for _ in 0..3 {
                    self.skip();
                }
                Ok((high * 16 + low) as u8)
            }
            _ => Err(self.error("did not find URI escaped octet")),
        }
    }
}
