//! The processes that the command has started, in its process group or not.

use std::collections::HashMap;
use std::fs;

use nix::unistd::{Pid, getpid};

use crate::show::process::stat;
use crate::show::shown;

/// A process that descends from this one and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    pub(super) group: Pid,
}

/// The children of this process, of which a shell may have made some before it became this program (`> >(tee log)`).
pub(super) fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|children| children.split_ascii_whitespace().filter_map(pid).collect::<Vec<_>>())
        .collect()
}

fn pid(text: &str) -> Option<Pid> {
    text.parse().ok().map(Pid::from_raw)
}

/// Every process that descends from this one and has not ended, but not `others`, nor the process group `except`, nor
/// what they have started. `None` where the kernel does not tell.
///
/// One that moves while this looks can be missed: it is orphaned to this process then, and seen by the
/// next look.
pub(super) fn living(others: &[Pid], except: Option<Pid>) -> Option<Vec<Member>> {
    let this = getpid();
    // A /proc of another PID namespace shows other processes by these numbers.
    let own = fs::read_link("/proc/self").ok()?.to_str()?.parse::<i32>().ok()?;
    if Pid::from_raw(own) != this {
        return None;
    }
    let mut children: HashMap<Pid, Vec<Entry>> = HashMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // It may have ended since.
        if let Some(entry) = Entry::of(Pid::from_raw(pid)) {
            children.entry(entry.parent).or_default().push(entry);
        }
    }
    let mut members = Vec::new();
    let mut parents = vec![this];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            let is_excepted = [child.pid, child.group].map(Some).contains(&except);
            if is_excepted || others.contains(&child.pid) {
                continue;
            }
            parents.push(child.pid);
            if !child.ended {
                members.push(Member { pid: child.pid, parent, group: child.group });
            }
        }
    }
    Some(members)
}

/// True if a process is of the group and descends from this process; it may have ended, if nothing has reaped it.
pub(super) fn is_of(group: Pid, process: Pid) -> bool {
    Entry::of(process).is_some_and(|entry| entry.group == group) && descends(process, getpid())
}

/// True if a process descends from another one; it may have ended, if nothing has reaped it.
pub(super) fn descends(process: Pid, from: Pid) -> bool {
    let mut process = process;
    // The first process has no parent.
    while process.as_raw() > 1 {
        match Entry::of(process) {
            Some(entry) if entry.parent == from => return true,
            Some(entry) if entry.parent != process => process = entry.parent,
            _ => return false,
        }
    }
    false
}

/// False if a process goes on, or has ended.
pub(super) fn is_stopped(process: Pid) -> bool {
    Entry::of(process).is_none_or(|entry| entry.stopped)
}

/// The name of a process's program, as the kernel keeps it.
pub(super) fn name(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    shown(String::from_utf8_lossy(&name).trim_end())
}

/// A line of `/proc/PID/stat`.
struct Entry {
    pid: Pid,
    parent: Pid,
    group: Pid,
    stopped: bool,
    ended: bool,
}

impl Entry {
    fn of(pid: Pid) -> Option<Entry> {
        Entry::parse(pid, &stat(pid)?)
    }

    fn parse(process: Pid, stat: &str) -> Option<Entry> {
        // The name before it may contain anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let state = *words.first()?;
        // A process whose first thread has ended shows the state of that, while the others go on.
        let has_threads = words.get(17).is_some_and(|count| *count != "1");
        let ended = state == "X" || (state == "Z" && !has_threads);
        let id = |at: usize| pid(words.get(at)?);
        Some(Entry {
            pid: process,
            parent: id(1)?,
            group: id(2)?,
            stopped: matches!(state, "T" | "t"),
            ended,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::unistd::getpgrp;

    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let entry = Entry::parse(Pid::from_raw(7), "7 (a) Z 1 1 (b) S 3 5 5 0 -1").expect("parsed");
        assert_eq!((entry.parent.as_raw(), entry.group.as_raw(), entry.ended), (3, 5, false));
        assert!(Entry::parse(Pid::from_raw(7), "7 (a) Z 3 5 5").expect("parsed").ended);
        let two_threads = "7 (a) Z 3 5 5 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0";
        assert!(!Entry::parse(Pid::from_raw(7), two_threads).expect("parsed").ended);
        assert!(
            Entry::parse(Pid::from_raw(7), &two_threads.replace("0 2 0", "0 1 0"))
                .expect("parsed")
                .ended
        );
        assert!(Entry::parse(Pid::from_raw(7), "7 (a").is_none());
    }

    #[test]
    fn children_are_seen_until_they_end() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("it starts");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        let is_seen = |others: &[Pid], except| {
            let members = living(others, except).expect("/proc is mounted");
            members.iter().any(|member| member.pid == pid)
        };
        assert!(is_seen(&[], None) && !is_seen(&[pid], None) && !is_seen(&[], Some(pid)));
        assert!(children().contains(&pid));
        assert!(is_of(getpgrp(), pid) && !is_of(pid, pid) && !is_of(getpgrp(), Pid::from_raw(1)));
        child.kill().expect("it runs");
        child.wait().expect("it ended");
        assert!(!is_seen(&[], None));
    }
}
