//! A control group with a limit of memory, as a container has one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::until;

const MIB: u64 = 1024 * 1024;

/// Groups of this process so far.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A group of processes that may take so much memory together, files in memory among it. Dropping it removes
/// it, once its processes have ended.
#[derive(Debug)]
pub struct MemoryGroup {
    directory: PathBuf,
    layout: Layout,
}

/// The two ways in which kernels show groups: see cgroups(7).
#[derive(Debug, Clone, Copy)]
enum Layout {
    First,
    Second,
}

impl MemoryGroup {
    /// Makes one. Takes root.
    #[track_caller]
    pub fn of_mib(mib: u64) -> MemoryGroup {
        let first = Path::new("/sys/fs/cgroup/memory");
        let second = Path::new("/sys/fs/cgroup");
        let (root, layout) = match first.join("memory.limit_in_bytes").exists() {
            true => (first, Layout::First),
            false => (second, Layout::Second),
        };
        if matches!(layout, Layout::Second) {
            // Fails where it is so already, or where the group below cannot be limited either.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = root.join(format!("tenure-test-{}-{number}", std::process::id()));
        let limit = match layout {
            Layout::First => "memory.limit_in_bytes",
            Layout::Second => "memory.max",
        };
        let made = fs::create_dir(&directory)
            .and_then(|()| fs::write(directory.join(limit), (mib * MIB).to_string()));
        if let Err(error) = made {
            let _ = fs::remove_dir(&directory);
            panic!(
                "no memory group {}: {error}; run the suite where there are some",
                directory.display()
            );
        }
        MemoryGroup { directory, layout }
    }

    /// A command that runs a program in the group.
    pub(super) fn command(directory: &Path, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]);
        command.arg(directory).arg(program);
        command
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Processes that were killed because there was no memory left.
    #[track_caller]
    pub fn kills(&self) -> u64 {
        let file = match self.layout {
            Layout::First => "memory.oom_control",
            Layout::Second => "memory.events",
        };
        let text = fs::read_to_string(self.directory.join(file)).expect("the group is there");
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|count| count.trim().parse().ok()).expect("Linux 4.13 or later counts them")
    }

    /// The most memory that it ever took.
    #[track_caller]
    pub fn most_mib(&self) -> u64 {
        let file = match self.layout {
            Layout::First => "memory.max_usage_in_bytes",
            Layout::Second => "memory.peak",
        };
        let text = fs::read_to_string(self.directory.join(file)).expect("the group is there");
        text.trim().parse::<u64>().expect("a number of bytes") / MIB
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = fs::remove_dir(&self.directory);
        } else {
            until("the group's processes to end", || fs::remove_dir(&self.directory).is_ok());
        }
    }
}
