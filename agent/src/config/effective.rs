//! What is in effect, for people and for the next agent.

use std::fmt::Write;

use super::keys::KEYS;
use super::{Loaded, Origin};

impl Loaded {
    /// The configuration in effect as TOML that means the same again. Comments say where a value
    /// comes from. No secrets.
    pub fn effective(&self) -> String {
        let mut text = String::new();
        let mut section = None;
        for key in &KEYS {
            let Some(value) = (key.get)(&self.config) else {
                continue;
            };
            if key.section() != section {
                section = key.section();
                // Writing to a String cannot fail; so in all of this function.
                let _ = writeln!(text, "\n[{}]", section.unwrap_or_default());
            }
            let name = key.name.rsplit('.').next().unwrap_or(key.name);
            let _ = write!(text, "{name} = {value}");
            let _ = match self.origin(key.name) {
                Origin::Default => writeln!(text),
                // A path may contain a line break, which would end the comment.
                origin => writeln!(text, "  # {}", origin.to_string().replace(['\n', '\r'], "?")),
            };
        }
        for rule in &self.config.allow {
            let _ = write!(text, "\n[[allow]]\n{rule}");
        }
        text
    }
}
