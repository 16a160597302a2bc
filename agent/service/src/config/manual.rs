//! The documentation of a configuration file: the sample file and the manual page are made of it.

use std::collections::HashMap;

use super::Configuration;

/// A section of the file.
#[derive(Debug)]
pub struct Section {
    /// With its brackets; empty for the keys before all sections.
    pub header: String,
    /// Each line is a paragraph, and is filled when it is printed. Those that begin with two blanks
    /// belong together and are printed as they are.
    pub about: &'static str,
    pub keys: Vec<Entry>,
}

/// A key of a section.
#[derive(Debug)]
pub struct Entry {
    pub name: &'static str,
    /// As a file has it.
    pub value: String,
    /// True if the value is the default, rather than an example.
    pub is_default: bool,
    /// As [`Section::about`].
    pub about: &'static str,
}

/// The sections in the order of the file, the first one with this text at the top. `own` has what there is
/// to say of the daemon's own sections.
pub fn sections<C: Configuration>(
    defaults: &C,
    about: &'static str,
    own: &[(&'static str, &'static str)],
) -> Vec<Section> {
    let own: HashMap<_, _> = own.iter().copied().collect();
    let about_section =
        |section: &str| own.get(section).copied().or_else(|| defaults.stores().about(section));
    let mut sections = vec![Section { header: String::new(), about, keys: Vec::new() }];
    for key in C::keys() {
        let header = key.section().map(|section| format!("[{section}]")).unwrap_or_default();
        if sections.last().is_none_or(|last| last.header != header) {
            let about = key.section().and_then(about_section).unwrap_or_default();
            sections.push(Section { header, about, keys: Vec::new() });
        }
        let entry = Entry {
            name: key.short(),
            value: key.doc.example.map_or_else(|| key.show(defaults), str::to_owned),
            is_default: key.doc.example.is_none(),
            about: key.doc.about,
        };
        if let Some(section) = sections.last_mut() {
            section.keys.push(entry);
        }
    }
    sections
}
