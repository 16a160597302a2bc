//! A booted system: systemd as process 1 of a container of systemd-nspawn, on a tree of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Log;
use crate::harness::{Program, boottime_ns, eventually, until};

/// The folder of the test's own programs in it.
const PROGRAMS: &str = "/usr/local/libexec";
/// A folder that it shares with this host.
pub(super) const SHARED: &str = "/srv/shared";
/// A clean environment, without colours and pagers.
const ENVIRONMENT: [&str; 4] = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    "SYSTEMD_COLORS=0",
    "SYSTEMD_PAGER=cat",
];

/// A running container. Dropping it ends it.
pub struct Machine {
    nspawn: Program,
    /// Its process 1, as seen from here.
    leader: u32,
    name: String,
    /// Its places among the control groups.
    groups: Vec<PathBuf>,
    tree: PathBuf,
    /// The folder of this host that it sees as `SHARED`.
    shared: PathBuf,
    /// The log of commands and their output.
    pub log: Rc<Log>,
}

/// The output of a command, and its exit code.
pub struct Output {
    code: i32,
    /// Standard output and standard error, as they came.
    pub text: String,
}

impl Output {
    /// Its output; it must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.code == 0, "exit code {}: {}", self.code, self.text);
        self.text
    }

    /// Its output; it must have failed, and not for want of the program.
    #[track_caller]
    pub fn fails(self) -> String {
        assert!(![0, 126, 127].contains(&self.code), "exit code {}: {}", self.code, self.text);
        self.text
    }

    pub fn succeeded(&self) -> bool {
        self.code == 0
    }
}

impl Machine {
    /// Boots the tree, and waits until everything in it has been started.
    pub fn boot(tree: &Path, shared: &Path, log: Rc<Log>) -> Result<Machine> {
        let name = format!("tenure-packaging-{}", std::process::id());
        let groups = make_groups(&name)?;
        let (nspawn, leader) = start(tree, shared, &name, &groups)?;
        let (tree, shared) = (tree.to_owned(), shared.to_owned());
        let mut machine = Machine { nspawn, leader, name, groups, tree, shared, log };
        machine.wait_booted()?;
        Ok(machine)
    }

    /// Shuts it down as `systemctl reboot` does, and boots it again.
    #[track_caller]
    pub fn reboot(&mut self) {
        self.run("systemctl reboot");
        self.nspawn.wait();
        let started = start(&self.tree, &self.shared, &self.name, &self.groups);
        (self.nspawn, self.leader) = started.expect("it was started before");
        self.wait_booted().expect("it was booted before");
    }

    /// Waits until everything in it has been started.
    fn wait_booted(&mut self) -> Result<()> {
        // Fails where no service manager answers yet, and while it is still starting units.
        let booted = "systemctl is-system-running | grep -E 'running|degraded'";
        until("the container to have booted", || {
            self.nspawn.ended().is_some() || self.look(booted).succeeded()
        });
        match self.nspawn.ended() {
            None => Ok(()),
            Some(status) => {
                let said = fs::read_to_string(console(&self.tree)).unwrap_or_default();
                bail!("the container ended while it was booting ({status}):\n{said}")
            }
        }
    }

    /// A program in the machine, started by root; its arguments are to be added.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.enter();
        command.arg(program);
        command
    }

    /// The same started by a user, with that user's groups.
    pub fn command_as(&self, user: &str, program: &str) -> Command {
        let mut command = self.enter();
        let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
        command.args(["setpriv", &uid, &gid, "--init-groups", program]);
        command
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--all", &format!("--target={}", self.leader), "--", "env", "-i"]);
        command.args(ENVIRONMENT).stdin(Stdio::null());
        command
    }

    /// Runs a shell script as root, and tells of it.
    #[track_caller]
    pub fn run(&self, script: &str) -> Output {
        self.tell("#", script, self.command("sh"))
    }

    /// The same as a user.
    #[track_caller]
    pub fn run_as(&self, user: &str, script: &str) -> Output {
        self.tell(&format!("{user}$"), script, self.command_as(user, "sh"))
    }

    /// Runs a shell script as root, and tells nobody.
    #[track_caller]
    pub fn look(&self, script: &str) -> Output {
        finish(self.command("sh"), script)
    }

    #[track_caller]
    fn tell(&self, prompt: &str, script: &str, shell: Command) -> Output {
        let began = boottime_ns();
        let output = finish(shell, script);
        let took = (boottime_ns() - began) / 1_000_000;
        let code =
            if output.succeeded() { String::new() } else { format!(", exit {}", output.code) };
        self.log.say(&format!("{prompt} {script}   [{took} ms{code}]"));
        for line in output.text.lines() {
            // Progress that overwrites itself is cut to its end.
            let line = line.rsplit('\r').next().unwrap_or_default();
            self.log.say(&format!("   | {line}"));
        }
        output
    }

    /// Waits until a script says that it succeeds.
    #[track_caller]
    pub fn until(&self, what: &str, script: &str) {
        until(what, || self.look(script).succeeded());
        self.log.expect(what, true);
    }

    /// A property of a unit.
    #[track_caller]
    pub fn property(&self, unit: &str, property: &str) -> String {
        let value = self.look(&format!("systemctl show --value --property={property} {unit}")).ok();
        value.trim().to_owned()
    }

    /// The service's process in the machine, as the machine numbers it.
    #[track_caller]
    pub fn agent_pid(&self) -> u32 {
        self.property("tenured.service", "MainPID").parse().expect("a number")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.nspawn.ended().is_none() {
            // With process 1 every other one ends. Nothing is kept, so nothing is shut down.
            let leader = i32::try_from(self.leader).unwrap_or(i32::MAX);
            let _ = kill(Pid::from_raw(leader), Signal::SIGKILL);
            self.nspawn.wait();
        }
        // It tries itself, and does not where /run is no file system of its own.
        let _ = fs::remove_dir_all(format!("/run/systemd/nspawn/propagate/{}", self.name));
        for group in &self.groups {
            remove_group(group);
        }
    }
}

/// The file with all that the machine says at its console.
fn console(tree: &Path) -> PathBuf {
    tree.with_extension("console")
}

/// Starts a container, and returns it with its process 1.
fn start(tree: &Path, shared: &Path, name: &str, groups: &[PathBuf]) -> Result<(Program, u32)> {
    let out = fs::File::create(console(tree))?;
    // The group first, since a container takes its place from whoever starts it. It dies with
    // this program, however that ends.
    let script = r#"for group; do echo $$ >"$group/cgroup.procs"; done
        exec setpriv --pdeathsig KILL systemd-nspawn --quiet --boot --register=no --keep-unit \
            --private-network --link-journal=no --settings=no --resolv-conf=off --timezone=off \
            --console=pipe --machine="$MACHINE" --directory="$TREE" --bind="$SHARED""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(groups).env("MACHINE", name).env("TREE", tree);
    command.env("SHARED", format!("{}:{SHARED}", shared.display()));
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let mut nspawn = Program::start(&mut command);
    let found = eventually("systemd-nspawn to start process 1", || {
        if let Some(status) = nspawn.ended() {
            return Some(Err(status));
        }
        first_process(nspawn.pid()).map(Ok)
    });
    let leader = found.map_err(|status| {
        let said = fs::read_to_string(console(tree)).unwrap_or_default();
        anyhow::anyhow!("systemd-nspawn cannot boot a container here ({status}):\n{said}")
    })?;
    Ok((nspawn, leader))
}

/// Copies a program of this workspace into a tree, and returns its path there.
pub(super) fn install(tree: &Path, program: &Path) -> Result<String> {
    let name = program.file_name().context("a program has a name")?.display().to_string();
    let folder = tree.join(PROGRAMS.trim_start_matches('/'));
    fs::create_dir_all(&folder)?;
    fs::copy(program, folder.join(&name))?;
    Ok(format!("{PROGRAMS}/{name}"))
}

#[track_caller]
fn finish(mut shell: Command, script: &str) -> Output {
    let output = shell.args(["-c", &format!("exec 2>&1\n{script}")]).output();
    let output = output.expect("nsenter can be started");
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    Output { code: output.status.code().unwrap_or(-1), text }
}

/// The only child of a systemd-nspawn, once it is a service manager.
fn first_process(nspawn: u32) -> Option<u32> {
    let children = format!("/proc/{nspawn}/task/{nspawn}/children");
    let children = fs::read_to_string(children).ok()?;
    let child: u32 = children.split_whitespace().next()?.parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
    (name.trim() == "systemd").then_some(child)
}

/// Groups of its own in each hierarchy that systemd looks at, whichever layout this machine has.
fn make_groups(name: &str) -> Result<Vec<PathBuf>> {
    let mut groups = Vec::new();
    for hierarchy in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"] {
        let hierarchy = Path::new(hierarchy);
        if hierarchy.join("cgroup.procs").exists() {
            let group = hierarchy.join(name);
            fs::create_dir(&group)
                .with_context(|| format!("the control group {} cannot be made", group.display()))?;
            groups.push(group);
        }
    }
    Ok(groups)
}

/// Removes a group and those below it; they are empty.
fn remove_group(group: &Path) {
    for below in fs::read_dir(group).into_iter().flatten().flatten() {
        if below.path().is_dir() {
            remove_group(&below.path());
        }
    }
    // One that still has a process is busy; the kernel has no better way to say so.
    let _ = fs::remove_dir(group);
}
