//! Log lines for the journal of systemd, with fields: see systemd.journal-fields(7) and
//! <https://systemd.io/JOURNAL_NATIVE_PROTOCOL>.

use std::os::unix::fs::FileTypeExt;

#[cfg(feature = "systemd")]
pub(super) use send::{Entries, Journald};

/// The socket of the journal.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";
/// Set by the service manager where standard output or error lead to the journal: the numbers of
/// device and inode, as systemd.exec(5) says.
const STREAM: &str = "JOURNAL_STREAM";

/// True if there is a journal to write to. libsystemd would take lines for none, and say nothing.
pub(super) fn is_there() -> bool {
    std::fs::metadata(SOCKET).is_ok_and(|found| found.file_type().is_socket())
}

/// True if standard error leads to the journal, and this build can do better.
pub(super) fn is_standard_error() -> bool {
    let stream = std::env::var(STREAM).unwrap_or_default();
    super::format::HAS_JOURNALD && is_stream(&stream, std::io::stderr()) && is_there()
}

fn is_stream(stream: &str, file: impl std::os::fd::AsFd) -> bool {
    let parsed = stream.split_once(':');
    let parsed =
        parsed.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    let found = nix::sys::stat::fstat(file);
    found.is_ok_and(|found| parsed == Some((found.st_dev, found.st_ino)))
}

#[cfg(any(feature = "systemd", test))]
mod entry {
    use std::fmt::{self, Write};

    use tenure_wire::DEFAULT_TENANT;
    use tracing::field::{Field, Visit};
    use tracing::{Event, Level};

    /// Fields that say the same as the message, or are for programs.
    const QUIET: [&str; 13] = [
        "session",
        "hold",
        "tenant",
        "kind",
        "name",
        "token",
        "reason",
        "error",
        "uid",
        "pid",
        "waited_us",
        "resumed",
        "tether",
    ];

    /// `FIELD=value`, in which a value may have any characters.
    pub(in super::super) type Entry = Vec<String>;

    pub(super) fn entry(daemon: &str, event: &Event<'_>) -> Entry {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut entry = fixed(daemon, priority(event.metadata().level()), &fields.readable());
        entry.push(format!("CODE_MODULE={}", event.metadata().target()));
        entry.extend(fields.named.iter().map(|(name, value)| {
            format!("TENURE_{}={value}", name.to_uppercase().replace('.', "_"))
        }));
        entry
    }

    /// The fields of every entry.
    pub(super) fn fixed(daemon: &str, priority: u8, message: &str) -> Entry {
        vec![
            format!("MESSAGE={message}"),
            format!("PRIORITY={priority}"),
            format!("SYSLOG_IDENTIFIER={daemon}"),
        ]
    }

    /// As syslog(3) counts.
    fn priority(level: &Level) -> u8 {
        match *level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        }
    }

    #[derive(Default)]
    struct Fields {
        message: String,
        named: Vec<(&'static str, String)>,
    }

    impl Fields {
        fn get(&self, name: &str) -> Option<&str> {
            let found = self.named.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.as_str())
        }

        /// One line that says it all: `lost leader "nightly": preempted`.
        fn readable(&self) -> String {
            let mut text = self.message.clone();
            // Writing to a String cannot fail; so in all of this function.
            if let Some(kind) = self.get("kind") {
                let _ = write!(text, " {kind}");
            }
            if let Some(name) = self.get("name") {
                let _ = write!(text, " {name:?}");
            }
            if let Some(tenant) = self.get("tenant").filter(|tenant| *tenant != DEFAULT_TENANT) {
                let _ = write!(text, " of tenant {tenant:?}");
            }
            if let Some(reason) = self.get("reason").or_else(|| self.get("error")) {
                let _ = write!(text, ": {reason}");
            }
            let more = |(name, value): &&(&str, String)| {
                !(QUIET.contains(name) || *name == "withheld" && value == "0")
            };
            let more: Vec<_> = self
                .named
                .iter()
                .filter(more)
                .map(|(name, value)| format!("{}={value}", name.replace('_', " ")))
                .collect();
            if !more.is_empty() {
                let _ = write!(text, " ({})", more.join(", "));
            }
            text
        }

        fn put(&mut self, field: &Field, value: String) {
            if field.name() == "message" {
                self.message = value;
            } else {
                self.named.push((field.name(), value));
            }
        }
    }

    impl Visit for Fields {
        fn record_str(&mut self, field: &Field, value: &str) {
            self.put(field, value.to_owned());
        }

        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.put(field, format!("{value:?}"));
        }
    }
}

#[cfg(feature = "systemd")]
mod send {
    use std::sync::Arc;

    use systemd::journal::send;
    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::{Context, Layer};

    use super::super::writer::{Sink, Writer, dropped_line};
    use super::entry::{Entry, entry, fixed};

    /// Makes entries of events and hands them over.
    pub(in super::super) struct Entries {
        pub(in super::super) daemon: &'static str,
        pub(in super::super) writer: Arc<Writer<Entry>>,
    }

    impl<S: Subscriber> Layer<S> for Entries {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.writer.send(entry(self.daemon, event));
        }
    }

    /// As syslog(3) counts warnings.
    const WARNING: u8 = 4;

    /// The journal. Sending waits while it does not read.
    pub(in super::super) struct Journald {
        pub(in super::super) daemon: &'static str,
    }

    impl Sink<Entry> for Journald {
        fn write(&mut self, lines: &mut Vec<Entry>) -> u64 {
            let lost = lines.drain(..).filter(|entry| !is_sent(entry)).count();
            u64::try_from(lost).unwrap_or(u64::MAX)
        }

        fn tell_dropped(&mut self, lines: u64) -> bool {
            is_sent(&fixed(self.daemon, WARNING, &dropped_line(lines)))
        }
    }

    fn is_sent(entry: &Entry) -> bool {
        // While the journal is down, libsystemd says that all went well.
        let fields: Vec<&str> = entry.iter().map(String::as_str).collect();
        super::is_there() && send(&fields).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Subscriber, debug, error, info, warn};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Vec<String>>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(entry::entry("tenured", event));
        }
    }

    fn entries(log: impl FnOnce()) -> Vec<Vec<String>> {
        let kept = Kept::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(kept.clone()), log);
        kept.0.lock().unwrap().clone()
    }

    #[track_caller]
    fn has(entry: &[String], fields: &[&str]) {
        for field in fields {
            assert!(entry.iter().any(|found| found == field), "{field} is not in {entry:?}");
        }
    }

    #[test]
    fn a_message_reads_well_and_every_field_has_its_name() {
        let entries = entries(|| {
            let (tenant, kind, name, reason) = ("default", "leader", "nightly", "preempted");
            warn!(session = "s", hold = "h", tenant, kind, name, token = 7_u64, reason, "lost");
            info!(session = "s", pid = 8, exit_status = Some(137), "process exited");
            warn!(limit = "sessions_max", uid = 7, withheld = 0_u64, "refused: a limit is reached");
            error!(error = %"disk full", withheld = 3_u64, "cannot write the journal");
            debug!(tenant = "t", kind, name = %"a\nb", "granted");
        });
        has(
            &entries[0],
            &[
                "MESSAGE=lost leader \"nightly\": preempted",
                "PRIORITY=4",
                "SYSLOG_IDENTIFIER=tenured",
                "CODE_MODULE=tenure_service::telemetry::journald::tests",
                "TENURE_SESSION=s",
                "TENURE_HOLD=h",
                "TENURE_TENANT=default",
                "TENURE_KIND=leader",
                "TENURE_NAME=nightly",
                "TENURE_TOKEN=7",
                "TENURE_REASON=preempted",
            ],
        );
        let process = ["MESSAGE=process exited (exit status=137)", "PRIORITY=6", "TENURE_PID=8"];
        has(&entries[1], &process);
        has(&entries[1], &["TENURE_EXIT_STATUS=137"]);
        let refused = "MESSAGE=refused: a limit is reached (limit=sessions_max)";
        has(&entries[2], &[refused, "TENURE_UID=7", "TENURE_WITHHELD=0"]);
        has(
            &entries[3],
            &["MESSAGE=cannot write the journal: disk full (withheld=3)", "PRIORITY=3"],
        );
        let granted = "MESSAGE=granted leader \"a\\nb\" of tenant \"t\"";
        has(&entries[4], &[granted, "PRIORITY=7", "TENURE_NAME=a\nb"]);
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let found = file.metadata().unwrap();
        assert!(is_stream(&format!("{}:{}", found.dev(), found.ino()), &file));
        for other in [String::new(), "1:2:3".into(), format!("{}:{}", found.dev(), found.ino() + 1)]
        {
            assert!(!is_stream(&other, &file), "{other}");
        }
    }
}
