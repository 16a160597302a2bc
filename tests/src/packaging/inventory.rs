//! The files and users of a system, to see what a package leaves.

use std::collections::BTreeSet;

use super::Machine;

/// Not of the package: what is made anew at each boot, logs, caches, and the package manager's books.
const CHANGES_BY_ITSELF: [&str; 10] = [
    "/home",
    "/root",
    "/tmp",
    "/var/tmp",
    "/var/log",
    "/var/cache",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/lib/systemd/linger",
    "/var/lib/systemd/random-seed",
];

/// Files with owner and mode, users, groups, and units.
pub struct Inventory(BTreeSet<String>);

impl Inventory {
    /// Takes it.
    #[track_caller]
    pub fn of(machine: &Machine) -> Inventory {
        let skipped = CHANGES_BY_ITSELF.map(|path| format!("-path {path}")).join(" -o ");
        let files = format!(
            "find / -xdev \\( {skipped} \\) -prune -o ! -name '*-' -printf '%y %m %U:%G %p\\n'"
        );
        let users = "cd /etc && grep '' passwd group shadow gshadow subuid subgid";
        let units = "systemctl list-unit-files --no-legend && systemctl --global list-unit-files --no-legend";
        let runtime = "ls -d /run/tenured* /run/credentials/tenured* 2>/dev/null; true";
        let all = [&files, users, units, runtime].map(|script| machine.look(script).ok());
        Inventory(all.iter().flat_map(|text| text.lines()).map(str::to_owned).collect())
    }

    /// The lines with that name in them.
    pub fn naming(&self, name: &str) -> Vec<&String> {
        self.0.iter().filter(|line| line.contains(name)).collect()
    }

    /// How many lines it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The differences from an earlier one, with + and -.
    pub fn changes_since(&self, earlier: &Inventory) -> Vec<String> {
        let came = self.0.difference(&earlier.0).map(|line| format!("+ {line}"));
        let went = earlier.0.difference(&self.0).map(|line| format!("- {line}"));
        came.chain(went).collect()
    }
}
