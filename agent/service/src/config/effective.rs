//! The configuration in effect, for people and for the next start.

use std::fmt::Write;

use tenure_stores::settings::Shape;

use super::{Configuration, Loaded, Origin};

impl<C: Configuration> Loaded<C> {
    /// The configuration in effect as TOML that means the same again. Comments say where a value
    /// comes from. No secrets: *** stands for each.
    pub fn effective(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            // Writing to a String cannot fail; so in all of this function.
            let _ = writeln!(text, "# read: {}", one_line(&file.display().to_string()));
        }
        let mut section = None;
        for key in C::keys() {
            let Some(value) = key.get(&self.config) else {
                continue;
            };
            if key.section() != section {
                section = key.section();
                let _ = writeln!(text, "\n[{}]", section.unwrap_or_default());
            }
            let name = key.short();
            let value = value.to_string();
            let masked = key.shape == Shape::Secret && value.contains("***");
            let note = if masked { "; *** stands for the password" } else { "" };
            let _ = writeln!(text, "{name} = {value}  # {}{note}", place(self.origin(key.name)));
        }
        for list in C::LISTS {
            let origins = self.sections.get(list.name).into_iter().flatten();
            for (section, origin) in self.config.sections(list).iter().zip(origins) {
                let _ = write!(text, "\n[[{}]]  # {}\n{section}", list.name, place(origin));
            }
        }
        text
    }
}

fn place(origin: &Origin) -> String {
    one_line(&origin.to_string())
}

/// A path may contain a line break, which would end the comment, and other characters that no comment
/// may have.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}
