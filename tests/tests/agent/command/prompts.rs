//! Programs that speak with the person at the terminal, whichever of their descriptors lead elsewhere: as without a wrapper.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tenure_tests::harness::{
    Agent, END, INTERRUPT, Program, Shell, Typist, free_port, other_users, python_interpreter,
    until,
};

enum Step {
    /// Types a line.
    Line(&'static str),
    Press(char),
    Sees(&'static str),
}
use Step::{Line, Press, Sees};

/// A line with the wrapper in place of `{}`, and what is typed and seen then.
type Row = (&'static str, &'static [Step]);

const ROWS: [Row; 18] = [
    ("env TERM=xterm {} less -X five", &[Sees("abcde"), Press('q')]),
    ("printf ab%s cde | env TERM=xterm {} less -X", &[Sees("abcde"), Press('q')]),
    ("env TERM=xterm {} less -X five 2>errors", &[Sees("abcde"), Press('q')]),
    ("{} vi -es -u NONE -c 's/b/X/' -c wq five; cat five", &[Sees("aXcde")]),
    ("{} vi -es -u NONE -c 's/b/X/' -c wq five </dev/null >out 2>&1; cat five", &[Sees("aXcde")]),
    ("env TERM=xterm {} vi -u NONE five", &[Sees("abcde"), Line(":q!")]),
    ("{} {python} -iq", &[Sees(">>> "), Line("print('py-%d' % 42)"), Sees("py-42\n"), Press(END)]),
    (
        "{} {python} -iq 2>errors",
        &[Sees(">>> "), Line("print('py-%d' % 42)"), Sees("py-42\n"), Press(END)],
    ),
    (
        "{} {python} -iq | cat",
        &[Sees(">>> "), Line("print('py-%d' % 42)"), Press(END), Sees("py-42\n")],
    ),
    (
        "{} bash -c 'p=asks; read -rsp $p-1: a; printf \"got-%s\\n\" $a'",
        &[Sees("asks-1:"), Line("secret"), Sees("got-secret\n")],
    ),
    (
        "{} bash -c 'p=asks; read -rsp $p-1: a; printf \"got-%s\\n\" $a' | cat",
        &[Sees("asks-1:"), Line("secret"), Sees("got-secret\n")],
    ),
    (
        "{} bash -c 'p=asks; read -rsp $p-1: a </dev/tty; printf \"got-%s\\n\" $a; wc -c' <five",
        &[Sees("asks-1:"), Line("secret"), Sees("got-secret\n"), Sees("5\n")],
    ),
    (
        "{} sudo sh -c 'printf \"asks-%s\\n\" 1; read a </dev/tty; printf \"got-%s\\n\" $a; wc -c' <five",
        &[Sees("asks-1\n"), Line("answer"), Sees("got-answer\n"), Sees("5\n")],
    ),
    (
        "{} setpriv --reuid=65534 --regid=65534 --clear-groups su root -c true",
        &[Sees("Password: "), Line("wrong"), Sees("failure")],
    ),
    (
        "{} setpriv --reuid=65534 --regid=65534 --clear-groups su root -c true 2>&1 | cat",
        &[Sees("Password: "), Line("wrong"), Sees("failure")],
    ),
    (
        "{} setpriv --reuid=65534 --regid=65534 --clear-groups sudo -p as''ks: true",
        &[Sees("asks:"), Line("wrong"), Sees("try again"), Sees("asks:"), Press(INTERRUPT)],
    ),
    (
        "{} setpriv --reuid=65534 --regid=65534 --clear-groups sudo -p as''ks: true <five 2>&1 | cat",
        &[Sees("asks:"), Line("wrong"), Sees("try again"), Sees("asks:"), Press(INTERRUPT)],
    ),
    ("{} sh -c 'stty -echo; stty echo; printf \"end-%s\\n\" 1' <five 2>errors", &[Sees("end-1\n")]),
];

#[track_caller]
fn check(line: &str, steps: &[&Step], folder: &Path, agent: &Agent) {
    fs::write(folder.join("five"), "abcde").expect("it is ours");
    let mut typist = Typist::at(Shell::Bash, folder, &agent.socket());
    typist.line(line);
    for step in steps {
        match step {
            Line(line) => typist.line(line),
            Press(key) => typist.press(*key),
            Sees(text) => typist.sees(text),
        }
    }
    typist.shell_listens();
    until("the lock to be free", || agent.counts() == (0, 0, 0));
}

const WRAPPERS: [&str; 2] = ["env", "tenure lock x --"];

#[test]
fn whoever_asks_at_the_terminal_is_answered() {
    // sudo and su.
    if other_users().is_none() {
        return;
    }
    let agent = Agent::start();
    let folder = TempDir::new().expect("a temporary directory");
    let python = python_interpreter().display().to_string();
    for (line, steps) in ROWS {
        for wrapper in WRAPPERS {
            println!("{wrapper}: {line}");
            let steps: Vec<&Step> = steps.iter().collect();
            let line = line.replace("{}", wrapper).replace("{python}", &python);
            check(&line, &steps, folder.path(), &agent);
        }
    }
}

/// A server of ssh on this host, whose one user is root.
struct Sshd {
    folder: TempDir,
    port: u16,
    _server: Program,
}

impl Sshd {
    fn start() -> Sshd {
        let folder = TempDir::new().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, passphrase) in [("host", ""), ("key", "open sesame")] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", passphrase, "-f", &path(name)]);
            assert!(keygen.status().expect("it starts").success());
        }
        let port = free_port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication yes\n",
            path("host"),
            path("key.pub"),
        );
        fs::write(folder.path().join("config"), config).expect("it is ours");
        // Where it has no privileges; Debian's service makes it.
        fs::create_dir_all("/run/sshd").expect("root may");
        let mut server = Command::new("/usr/sbin/sshd");
        server.args(["-D", "-f", &path("config"), "-E", &path("log")]).stdin(Stdio::null());
        let server = Program::start(&mut server);
        until("it to listen", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Sshd { folder, port, _server: server }
    }

    fn ssh(&self) -> String {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        format!(
            "ssh -F none -o UserKnownHostsFile={} -o IdentityAgent=none -i {} -p {} root@127.0.0.1",
            path("known"),
            path("key"),
            self.port
        )
    }
}

#[test]
fn ssh_asks_for_its_passphrase_and_for_a_password() {
    if other_users().is_none() {
        return;
    }
    let agent = Agent::start();
    let sshd = Sshd::start();
    let folder = TempDir::new().expect("a temporary directory");
    let asked: &[Step] = &[Sees("Enter passphrase for key"), Line("open sesame")];
    for wrapper in WRAPPERS {
        let _first_time = fs::remove_file(sshd.folder.path().join("known"));
        let ssh = sshd.ssh();
        let first: &[Step] = &[Sees("continue connecting"), Line("yes")];
        let says = "'printf \"remote-%s\\n\" 1'";
        let run = |line: &str, steps: &[&[Step]]| {
            let steps: Vec<&Step> = steps.iter().copied().flatten().collect();
            println!("{line}");
            check(line, &steps, folder.path(), &agent);
        };
        run(&format!("{wrapper} {ssh} {says}"), &[first, asked, &[Sees("remote-1\n")]]);
        run(&format!("{wrapper} {ssh} wc -c <five | cat"), &[asked, &[Sees("5\n")]]);
        let refused: &[Step] = &[Sees("'s password: "), Line("wrong"), Sees("Permission denied")];
        let by_password = "-o PubkeyAuthentication=no -o NumberOfPasswordPrompts=1";
        run(&format!("{wrapper} {ssh} {by_password} true"), &[refused]);
        run(&format!("{wrapper} {ssh} {by_password} true <five 2>&1 | cat"), &[refused]);
        run(
            &format!("{wrapper} {ssh} -tt {says}'; read a; printf \"got-%s\\n\" $a' 2>errors"),
            &[asked, &[Sees("remote-1\n"), Line("answer"), Sees("got-answer\n")]],
        );
    }
}
