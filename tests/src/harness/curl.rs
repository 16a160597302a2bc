//! The agent through `curl --unix-socket`, as a shell script sees it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{Answer, Client, DEADLINE};

/// Calls with curl; a new process each.
pub struct Curl {
    socket: PathBuf,
}

impl Curl {
    /// Curl on that socket.
    pub fn new(socket: &Path) -> Curl {
        Curl { socket: socket.to_owned() }
    }

    /// A curl command line up to the URL's path.
    pub fn command(&self, path: &str) -> Command {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--no-buffer", "--include"])
            .arg("--max-time")
            .arg(DEADLINE.as_secs().to_string())
            .arg("--unix-socket")
            .arg(&self.socket)
            .arg(format!("http://agent{path}"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a curl command line and takes its output apart.
    #[track_caller]
    pub fn run(command: &mut Command) -> Answer {
        let output = command.output().unwrap_or_else(|error| panic!("curl: {error}"));
        let Output { status, stdout, stderr } = output;
        assert!(status.success(), "curl: {status}: {}", String::from_utf8_lossy(&stderr));
        parse(&stdout)
    }
}

impl Client for Curl {
    /// Sends no content type but curl's own, as somebody at a shell would.
    #[track_caller]
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut command = self.command(path);
        command.args(["--request", method]);
        if let Some(body) = body {
            command.arg("--data").arg(body.to_string());
        }
        Curl::run(&mut command)
    }
}

fn parse(output: &[u8]) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(output).expect("curl prints an HTTP head");
    let httparse::Status::Complete(length) = parsed else {
        panic!("curl printed half a head: {}", String::from_utf8_lossy(output));
    };
    Answer {
        status: head.code.expect("a complete head has a status"),
        headers: head
            .headers
            .iter()
            .map(|h| (h.name.to_ascii_lowercase(), String::from_utf8_lossy(h.value).into_owned()))
            .collect(),
        body: output[length..].to_vec(),
    }
}
