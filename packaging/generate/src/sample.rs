//! The documented configuration file.

use tenure_service::config::Section;

/// Longest line, except for those that are printed as they are.
const WIDTH: usize = 100;

/// Keys with their default values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defaults {
    /// In effect.
    Set,
    /// As comments, so that an administrator's copy does not pin what are defaults today. Section
    /// headers stay; they alone change nothing.
    Unset,
}

/// The whole file.
pub(crate) fn text(sections: &[Section], defaults: Defaults) -> String {
    let mut file = String::new();
    for section in sections {
        let Section { header, about, keys } = section;
        comment(&mut file, about);
        // A rule is one even without keys.
        let hidden = if header.starts_with("[[") { "#" } else { "" };
        file += &format!("{hidden}{header}\n");
        for key in keys {
            comment(&mut file, key.about);
            let hidden = if key.is_default && defaults == Defaults::Set { "" } else { "#" };
            file += &format!("{hidden}{} = {}\n", key.name, key.value);
            if header.is_empty() {
                file.push('\n');
            }
        }
        if !header.is_empty() {
            file.push('\n');
        }
    }
    file.truncate(file.trim_end().len() + 1);
    file
}

/// Comment lines with a text as [`Section::about`] has it.
fn comment(file: &mut String, about: &str) {
    let mut before = "";
    for line in about.lines() {
        let verbatim = line.starts_with("  ");
        if verbatim {
            file.push_str(&format!("# {line}\n"));
        } else {
            // Between two paragraphs of prose.
            if !before.is_empty() && !before.starts_with("  ") {
                file.push_str("#\n");
            }
            fill(file, line);
        }
        before = line;
    }
}

fn fill(file: &mut String, prose: &str) {
    let mut width = 0;
    for word in prose.split(' ') {
        let length = word.chars().count();
        if width == 0 || width + 1 + length > WIDTH {
            file.push_str(if width == 0 { "#" } else { "\n#" });
            width = 1;
        }
        file.push(' ');
        file.push_str(word);
        width += 1 + length;
    }
    file.push('\n');
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tenure_service::config::Entry;

    use super::*;

    fn small() -> [Section; 3] {
        let entry = |name, value: &str, is_default, about| {
            let value = value.to_owned();
            Entry { name, value, is_default, about }
        };
        let section = |header: &str, about, keys| {
            let header = header.to_owned();
            Section { header, about, keys }
        };
        [
            section(
                "",
                "About the file.\nRead in this order:\n  a file\n  another one",
                vec![
                    entry("socket", "\"/s\"", false, "Where it is.\nFor everybody."),
                    entry("limit", "3", true, ""),
                ],
            ),
            section("[leader]", "", vec![entry("ttl", "\"30s\"", true, "How often.")]),
            section("[[allow]]", "Who.", vec![entry("uid", "7", false, "")]),
        ]
    }

    #[test]
    fn comments_stand_above_what_they_are_about() {
        let expected = "\
# About the file.
#
# Read in this order:
#   a file
#   another one

# Where it is.
#
# For everybody.
#socket = \"/s\"

limit = 3

[leader]
# How often.
ttl = \"30s\"

# Who.
#[[allow]]
#uid = 7
";
        assert_eq!(text(&small(), Defaults::Set), expected);
        let unset = expected.replace("\nlimit", "\n#limit").replace("\nttl", "\n#ttl");
        assert_eq!(text(&small(), Defaults::Unset), unset);
    }

    #[track_caller]
    fn check_committed(name: &str, sections: &[Section]) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let made = text(sections, Defaults::Set);
        if std::env::var_os("UPDATE_SAMPLE").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = committed.lines().zip(made.lines()).find(|(old, new)| old != new);
        assert!(
            committed == made,
            "packaging/{name} is not what the code says, first here: {differs:?}; if the change is \
             meant, run `UPDATE_SAMPLE=1 cargo test -p tenure-generate` and commit the file"
        );
    }

    #[test]
    fn the_committed_files_are_the_code() {
        check_committed("tenured.toml", &tenured::config::manual());
        check_committed("gateway.toml", &tenure_gateway::settings::manual());
    }
}
