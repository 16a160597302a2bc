//! The form of log lines.

/// How log lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people on a terminal; to the journal where standard error leads there and this build can;
    /// else JSON.
    #[default]
    Auto,
    Human,
    /// One JSON object a line.
    Json,
    /// To the journal of systemd, with fields.
    Journald,
}

/// True if this build can write to the journal.
pub const HAS_JOURNALD: bool = cfg!(feature = "systemd");

impl LogFormat {
    const ALL: [LogFormat; 4] =
        [LogFormat::Auto, LogFormat::Human, LogFormat::Json, LogFormat::Journald];

    pub fn word(self) -> &'static str {
        match self {
            LogFormat::Auto => "auto",
            LogFormat::Human => "human",
            LogFormat::Json => "json",
            LogFormat::Journald => "journald",
        }
    }

    /// Reads a word.
    ///
    /// # Errors
    ///
    /// With the rule that it breaks.
    pub fn parse(text: &str) -> Result<LogFormat, String> {
        match LogFormat::ALL.into_iter().find(|format| format.word() == text) {
            Some(LogFormat::Journald) if !HAS_JOURNALD => Err(
                "must be auto, human or json: this build cannot write to the journal; take one \
                     with the Cargo feature systemd, as the packages have it"
                    .to_owned(),
            ),
            Some(format) => Ok(format),
            None => Err("must be auto, human, json or journald".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_words() {
        for word in ["auto", "human", "json"] {
            assert_eq!(LogFormat::parse(word).unwrap().word(), word);
        }
        assert_eq!(LogFormat::parse("journald").is_ok(), HAS_JOURNALD);
        for wrong in ["", "JSON", "text", "journal"] {
            LogFormat::parse(wrong).unwrap_err();
        }
    }
}
