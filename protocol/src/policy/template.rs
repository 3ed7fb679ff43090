//! Placeholders: `{work}` and its like, which stand for a session's own places.

/// A place that differs from session to session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// `{work}`: the worktree.
    Work,
    /// `{home}`: the agent's HOME.
    Home,
    /// `{scratch}`: the agent's TMPDIR.
    Scratch,
    /// `{skills}`: the shared skills; may stand for nothing.
    Skills,
    /// `{programs}`: the agent's own installation; may stand for several paths or none.
    Programs,
}

impl Place {
    const ALL: [(&'static str, Self); 5] = [
        ("work", Self::Work),
        ("home", Self::Home),
        ("scratch", Self::Scratch),
        ("skills", Self::Skills),
        ("programs", Self::Programs),
    ];

    /// By its name without the braces.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = Self::ALL.iter().find(|(_, place)| place == self).map_or("", |(name, _)| name);
        write!(f, "{{{name}}}")
    }
}

/// A path, absolute or below a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathTemplate {
    /// Where it begins; `None`: at the root.
    pub place: Option<Place>,
    /// The rest: absolute without a place, relative (or empty) with one.
    pub rest: String,
}

impl PathTemplate {
    /// Reads `/usr/lib` or `{home}/.cache`.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (place, rest) = match text.strip_prefix('{') {
            None if !text.starts_with('/') => {
                return Err(format!(
                    "path \"{text}\" is relative: begin it with / or a placeholder such as {{work}}"
                ));
            }
            None => (None, text),
            Some(inner) => {
                let (name, rest) = inner.split_once('}').ok_or_else(|| {
                    format!("path \"{text}\" has an open placeholder: close it with }}")
                })?;
                let place = Place::named(name).ok_or_else(|| unknown(name))?;
                match rest.strip_prefix('/') {
                    Some(below) => (Some(place), below),
                    None if rest.is_empty() => (Some(place), rest),
                    None => return Err(format!("path \"{text}\": put a / after the placeholder")),
                }
            }
        };
        if rest.contains(['{', '}']) {
            return Err(format!("path \"{text}\": a placeholder can only be at the beginning"));
        }
        if rest.contains('\0') {
            return Err("a path cannot contain a NUL character: remove it".to_owned());
        }
        if rest.split('/').any(|part| part == ".." || part == ".") {
            return Err(format!(
                "path \"{text}\" contains . or ..: write the path that it resolves to"
            ));
        }
        Ok(Self { place, rest: rest.to_owned() })
    }
}

impl std::fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.place, self.rest.as_str()) {
            (None, rest) => f.write_str(rest),
            (Some(place), "") => write!(f, "{place}"),
            (Some(place), rest) => write!(f, "{place}/{rest}"),
        }
    }
}

/// A variable's value with placeholders anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextTemplate(pub Vec<TextPiece>);

/// A part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPiece {
    /// As it is.
    Literal(String),
    /// A place's path; several are joined by `:`.
    Place(Place),
    /// `{program-path}`: the directories to search for the agent's own programs, each followed by `:`, so that it
    /// can stand in front of a PATH even if there are none.
    ProgramPath,
    /// `{ports}`: the session's own TCP ports as `first-last`; stands for nothing where there are none.
    Ports,
}

impl TextTemplate {
    /// Reads a value. `{{` and `}}` stand for the braces themselves.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("a value cannot contain a NUL character: remove it".to_owned());
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = rest.split_once('}').filter(|_| brace == "{").ok_or_else(|| {
                format!("\"{text}\" has a lone brace: write it twice to mean itself")
            })?;
            let piece = match name {
                "program-path" => TextPiece::ProgramPath,
                "ports" => TextPiece::Ports,
                name => TextPiece::Place(Place::named(name).ok_or_else(|| unknown(name))?),
            };
            if !literal.is_empty() {
                pieces.push(TextPiece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(TextPiece::Literal(literal));
        }
        Ok(Self(pieces))
    }
}

impl std::fmt::Display for TextTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            TextPiece::Literal(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}")),
            TextPiece::Place(place) => write!(f, "{place}"),
            TextPiece::ProgramPath => f.write_str("{program-path}"),
            TextPiece::Ports => f.write_str("{ports}"),
        })
    }
}

fn unknown(name: &str) -> String {
    let known: Vec<_> = Place::ALL.iter().map(|(name, _)| format!("{{{name}}}")).collect();
    format!("there is no placeholder {{{name}}}: use one of {}", known.join(" "))
}
