//! nginx as Debian configures it, before gateways.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;
use tempfile::TempDir;

use super::{Gateway, Program, eventually, free_port};

/// Debian's own configuration.
const CONFIGURATION: &str = "/etc/nginx/nginx.conf";
/// Its directives that name places on this machine, and sites.
const OF_THIS_MACHINE: [&str; 5] = ["user", "pid", "error_log", "access_log", "include"];
/// Its folders for long bodies.
const FOLDERS: [&str; 5] = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];

/// Another program may take the port before nginx does: so many ports are tried.
const PORTS: usize = 5;

/// A running nginx. Dropping it kills it and removes its directory.
pub struct Nginx {
    port: u16,
    _process: Program,
    _dir: TempDir,
}

impl Nginx {
    /// Passes each of these locations on to a gateway. Nothing else is configured.
    #[track_caller]
    pub fn before(locations: &[(&str, &Gateway)]) -> Nginx {
        let started = (0..PORTS).find_map(|_| Nginx::try_start(locations));
        started.expect("nginx starts; its own words are above")
    }

    /// `None` if it has ended instead of listening.
    #[track_caller]
    fn try_start(locations: &[(&str, &Gateway)]) -> Option<Nginx> {
        let dir = TempDir::with_prefix("nginx-").expect("a temporary directory can be made");
        let (port, path) = (free_port(), dir.path().join("nginx.conf"));
        fs::write(&path, configuration(dir.path(), port, locations))
            .expect("the directory is ours");
        let mut command = Command::new("/usr/sbin/nginx");
        // One process, which ends with the test.
        command.args(["-g", "daemon off; master_process off;", "-e", "stderr", "-p"]);
        command.arg(dir.path()).arg("-c").arg(path).stdin(Stdio::null());
        let mut process = Program::start(&mut command);
        // A connection would not tell whose port it is. nginx writes its number once it listens.
        let pid = dir.path().join("pid");
        let listens = eventually("nginx to listen", || match process.ended() {
            Some(_) => Some(false),
            None => pid.exists().then_some(true),
        });
        if !listens {
            let log = fs::read_to_string(dir.path().join("error.log")).unwrap_or_default();
            eprintln!("nginx ended while starting:\n{log}");
            return None;
        }
        Some(Nginx { port, _process: process, _dir: dir })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL as an agent takes it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

#[track_caller]
fn configuration(dir: &Path, port: u16, locations: &[(&str, &Gateway)]) -> String {
    let debians =
        fs::read_to_string(CONFIGURATION).expect("nginx is installed: tests/prepare nginx=nginx");
    let is_of_machine = |line: &str| {
        let word = line.split_whitespace().next();
        word.is_some_and(|word| OF_THIS_MACHINE.contains(&word))
    };
    let mut text = String::new();
    if geteuid().is_root() {
        // The directory is the test's alone.
        text.push_str("user root;\n");
    }
    let dir = dir.display();
    let _infallible = writeln!(text, "pid {dir}/pid;\nerror_log {dir}/error.log;");
    for line in debians.lines().filter(|line| !is_of_machine(line)) {
        text.push_str(line);
        text.push('\n');
        if line.starts_with("http {") {
            let folders = FOLDERS.map(|name| format!("{name}_temp_path {dir}/{name};\n")).concat();
            let site = |(location, gateway): &(&str, &Gateway)| {
                format!("location {location} {{ proxy_pass {}; }}\n", gateway.url())
            };
            let sites: String = locations.iter().map(site).collect();
            let _infallible = writeln!(
                text,
                "include /etc/nginx/mime.types;\naccess_log {dir}/access.log;\n{folders}server {{\nlisten 127.0.0.1:{port};\n{sites}}}"
            );
        }
    }
    text
}
