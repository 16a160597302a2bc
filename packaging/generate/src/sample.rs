//! What `packaging/tenured.toml` says: its sections and keys with the comments above them.

use anyhow::{Context, bail};

/// The documented configuration file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The comment at the top.
    pub(crate) about: Vec<Paragraph>,
    /// Keys before any section header.
    pub(crate) keys: Vec<Key>,
    /// In the order of the file.
    pub(crate) sections: Vec<Section>,
}

/// One `[section]`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// With its brackets.
    pub(crate) header: String,
    /// The comments before it that belong to no key.
    pub(crate) about: Vec<Paragraph>,
    pub(crate) keys: Vec<Key>,
}

/// One key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether the value is the default, rather than an example.
    pub(crate) is_set: bool,
    pub(crate) about: Vec<Paragraph>,
}

/// Text of a comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Paragraph {
    /// Filled when it is printed.
    Prose(String),
    /// Indented lines, printed as they are.
    Verbatim(Vec<String>),
}

/// A line of the file.
enum Line<'a> {
    Blank,
    Comment(&'a str),
    Header(&'a str),
    Key { name: &'a str, value: &'a str, is_set: bool },
}

impl Sample {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// When a line is none of comment, key and section header.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Sample> {
        let mut sample = Sample { about: Vec::new(), keys: Vec::new(), sections: Vec::new() };
        // Comments since the last key, and those above a blank line.
        let (mut comment, mut apart) = (Vec::new(), Vec::new());
        let mut is_top = true;
        for (index, line) in text.lines().enumerate() {
            match read(line).with_context(|| format!("line {}", index + 1))? {
                Line::Comment(words) => comment.push(words),
                Line::Blank if is_top => {
                    sample.about = paragraphs(&comment);
                    comment.clear();
                    is_top = false;
                }
                Line::Blank => apart.append(&mut comment),
                Line::Header(header) => {
                    apart.append(&mut comment);
                    let (header, about) = (header.to_owned(), paragraphs(&apart));
                    apart.clear();
                    sample.sections.push(Section { header, about, keys: Vec::new() });
                }
                Line::Key { name, value, is_set } => {
                    let about = paragraphs(&comment);
                    comment.clear();
                    let key = Key { name: name.to_owned(), value: value.to_owned(), is_set, about };
                    match sample.sections.last_mut() {
                        Some(section) => section.keys.push(key),
                        None => sample.keys.push(key),
                    }
                }
            }
        }
        if !comment.is_empty() || !apart.is_empty() {
            bail!("the last comment belongs to no key and no section");
        }
        Ok(sample)
    }
}

fn read(line: &str) -> anyhow::Result<Line<'_>> {
    // Without a blank after it, # takes a key or a header out of effect.
    let (code, is_set) = match line.strip_prefix('#') {
        Some("") => return Ok(Line::Comment("")),
        Some(rest) => match rest.strip_prefix(' ') {
            Some(words) => return Ok(Line::Comment(words)),
            None => (rest, false),
        },
        None => (line, true),
    };
    if code.is_empty() {
        return Ok(Line::Blank);
    }
    if code.starts_with('[') && code.ends_with(']') {
        return Ok(Line::Header(code));
    }
    match code.split_once(" = ") {
        Some((name, value)) => Ok(Line::Key { name, value, is_set }),
        None => bail!("{line:?} is neither a comment (#, blank, text) nor a key nor a section"),
    }
}

fn paragraphs(lines: &[&str]) -> Vec<Paragraph> {
    let mut found = Vec::new();
    let mut ended = true;
    for line in lines {
        let is_verbatim = line.starts_with("  ");
        match found.last_mut() {
            _ if line.is_empty() => {
                ended = true;
                continue;
            }
            Some(Paragraph::Verbatim(lines)) if is_verbatim && !ended => {
                lines.push((*line).to_owned());
            }
            Some(Paragraph::Prose(text)) if !is_verbatim && !ended => {
                text.push(' ');
                text.push_str(line);
            }
            _ if is_verbatim => found.push(Paragraph::Verbatim(vec![(*line).to_owned()])),
            _ => found.push(Paragraph::Prose((*line).to_owned())),
        }
        ended = false;
    }
    found
}

/// The file as packages install it: the same with no key in effect, so that an administrator's
/// copy does not pin what are defaults today. Section headers stay; they alone change nothing.
pub(crate) fn without_values(text: &str) -> String {
    let lines = text.lines().map(|line| match read(line) {
        Ok(Line::Key { is_set: true, .. }) => format!("#{line}\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "\
# About the file.
#
# Read in this order:
#   a file
#   another one

# Where it is.
# For everybody.
#socket = \"/s\"

limit = 3

# For both of these.

# And this one.
[leader]
ttl = \"30s\"
# How often.
beat = \"10s\"
";

    fn prose(text: &str) -> Paragraph {
        Paragraph::Prose(text.to_owned())
    }

    #[test]
    fn comments_go_to_what_is_below_them() {
        let sample = Sample::parse(SMALL).unwrap();
        let files = vec!["  a file".to_owned(), "  another one".to_owned()];
        let about = vec![
            prose("About the file."),
            prose("Read in this order:"),
            Paragraph::Verbatim(files),
        ];
        assert_eq!(sample.about, about);
        let [socket, limit] = &sample.keys[..] else { panic!("{sample:?}") };
        assert_eq!((socket.name.as_str(), socket.is_set), ("socket", false));
        assert_eq!(socket.about, [prose("Where it is. For everybody.")]);
        assert_eq!((limit.value.as_str(), limit.is_set, limit.about.len()), ("3", true, 0));
        let [leader] = &sample.sections[..] else { panic!("{sample:?}") };
        assert_eq!(leader.header, "[leader]");
        assert_eq!(leader.about, [prose("For both of these. And this one.")]);
        assert_eq!(leader.keys[1].about, [prose("How often.")]);
    }

    #[test]
    fn values_are_taken_out_and_nothing_else() {
        let text = without_values(SMALL);
        assert!(text.contains("\n#limit = 3\n") && text.contains("\n[leader]\n#ttl = \"30s\"\n"));
        assert!(text.contains("\n#socket = \"/s\"\n"));
        assert_eq!(text.replace('#', ""), SMALL.replace('#', ""));
    }

    #[test]
    fn strange_lines_are_refused() {
        let error = Sample::parse("# a\n\nlimit=3\n").unwrap_err();
        assert!(format!("{error:#}").starts_with("line 3: \"limit=3\" is neither"), "{error:#}");
        Sample::parse("# a\n\n# left over\n").unwrap_err();
    }

    #[test]
    fn the_sample_is_read_whole() {
        let sample = Sample::parse(crate::SAMPLE).unwrap();
        assert!(sample.keys.iter().any(|key| key.name == "upstream"));
        for header in ["[session]", "[limits]", "[redis]", "[[allow]]"] {
            assert!(sample.sections.iter().any(|it| it.header == header), "{header}");
        }
    }
}
