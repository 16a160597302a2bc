//! A resource on the command line.

use clap::Args;
use tenure::wire::Kind;
use tenure::wire::rules::{Invalid, resource_name, visible};

use super::{OutputArgs, name};

/// A resource, as people write it.
#[derive(Debug, Args)]
pub(crate) struct ResourceWords {
    /// KIND/NAME, or a NAME alone: the kind that has it is looked up
    ///
    /// A kind is master (the name is the project's), leader (or lock), lease or semaphore.
    #[arg(value_name = "RESOURCE", value_parser = name::parse_resource)]
    first: String,
    /// The name, if the word before is its kind
    #[arg(value_name = "NAME", value_parser = name::parse)]
    second: Option<String>,
    /// The tenant in which the name is looked up
    #[arg(long, value_parser = name::tenant)]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A resource by kind and name.
#[derive(Debug)]
pub(crate) struct ResourceName {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) tenant: Option<String>,
    pub(crate) output: OutputArgs,
}

impl ResourceWords {
    /// The kind, if it is said, and the name.
    ///
    /// # Errors
    ///
    /// When the first of two words is no kind; when a project may not have that name.
    pub(crate) fn kind_and_name(&self) -> Result<(Option<Kind>, &str), String> {
        let (kind, name) = match &self.second {
            Some(name) => {
                let kind = kind_of(&self.first).ok_or_else(|| {
                    let first = &self.first;
                    format!(
                        "'{first}' is no kind: write master, leader (or lock), lease or semaphore before the name {name}"
                    )
                })?;
                (Some(kind), name.as_str())
            }
            None => match self.first.split_once('/') {
                Some((word, name)) if let Some(kind) = kind_of(word) => (Some(kind), name),
                _ => (None, self.first.as_str()),
            },
        };
        let checked = match kind {
            Some(kind) => resource_name(kind, name),
            None => visible("name", name),
        };
        checked.map_err(|error: Invalid| error.to_string())?;
        Ok((kind, name))
    }
}

/// The kind of that name; `tenure lock` makes a leader.
pub(crate) fn kind_of(word: &str) -> Option<Kind> {
    if word == "lock" { Some(Kind::Leader) } else { word.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &str) -> ResourceWords {
        let (first, second) = words.split_once(' ').map_or((words, None), |(a, b)| (a, Some(b)));
        ResourceWords {
            first: first.to_owned(),
            second: second.map(str::to_owned),
            tenant: None,
            output: OutputArgs { json: false },
        }
    }

    #[test]
    fn a_resource_is_written_as_people_say_it() {
        for (words, kind, name) in [
            ("leader nightly", Some(Kind::Leader), "nightly"),
            ("leader/nightly", Some(Kind::Leader), "nightly"),
            ("lock nightly", Some(Kind::Leader), "nightly"),
            ("lock/nightly/eu", Some(Kind::Leader), "nightly/eu"),
            ("master p", Some(Kind::Master), "p"),
            ("lease a/b", Some(Kind::Lease), "a/b"),
            ("semaphore/gpu", Some(Kind::Semaphore), "gpu"),
            ("leader leader/a", Some(Kind::Leader), "leader/a"),
            ("nightly", None, "nightly"),
            ("team/nightly", None, "team/nightly"),
            ("leader", None, "leader"),
        ] {
            assert_eq!(args(words).kind_and_name(), Ok((kind, name)), "{words}");
        }
        for (words, why) in [
            (
                "boss nightly",
                "'boss' is no kind: write master, leader (or lock), lease or semaphore",
            ),
            ("leader/", "name"),
            ("master a:b", "':'"),
        ] {
            let error = args(words).kind_and_name().expect_err(words);
            assert!(error.contains(why), "{words}: {error}");
        }
    }
}
