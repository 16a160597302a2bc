//! A real Chromium without a screen, which does what a person would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{DEADLINE, Program, binary, eventually, free_port};

/// Nothing that it does by itself, so that what it asks for is what the page asks for.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];
/// The name of an element in the answers of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys that are no character, as WebDriver names them.
pub mod key {
    pub const ENTER: &str = "\u{e007}";
    pub const ESCAPE: &str = "\u{e00c}";
    pub const TAB: &str = "\u{e004}";
    pub const DOWN: &str = "\u{e015}";
    pub const UP: &str = "\u{e013}";
}

/// How a page is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub is_dark: bool,
}

impl Screen {
    pub const DESKTOP: Screen = Screen { width: 1440, height: 900, is_dark: false };
    pub const DARK: Screen = Screen { is_dark: true, ..Screen::DESKTOP };
    pub const PHONE: Screen = Screen { width: 360, height: 780, is_dark: false };
}

/// A browser with one tab. Dropping it ends it and removes what it kept.
pub struct Browser {
    port: u16,
    session: String,
    _driver: Program,
    profile: TempDir,
}

impl Browser {
    /// Starts one.
    #[track_caller]
    pub fn start() -> Browser {
        Browser::start_with(&[])
    }

    /// Starts one with more arguments.
    #[track_caller]
    pub fn start_with(more: &[&str]) -> Browser {
        let profile = TempDir::with_prefix("tenure-browser-").expect("a temporary directory");
        let port = free_port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = Program::start(&mut command);
        let mut browser = Browser { port, session: String::new(), _driver: driver, profile };
        eventually("chromedriver to answer", || browser.call("GET", "/status", &Value::Null).ok());
        let mut args = FLAGS.map(str::to_owned).to_vec();
        args.extend(more.iter().map(|&argument| argument.to_owned()));
        args.push(format!("--user-data-dir={}", browser.profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": {"args": args},
        }}});
        let session = browser.call("POST", "/session", &wanted).expect("Chromium starts");
        browser.session = session["sessionId"].as_str().expect("it has an id").to_owned();
        browser
    }

    /// Goes to that address, and waits until its files are there.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({"url": url}));
    }

    /// The value of a JavaScript expression.
    #[track_caller]
    pub fn value(&self, expression: &str) -> Value {
        self.script(&format!("return {expression}"))
    }

    /// What a script returns.
    #[track_caller]
    pub fn script(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// What the promise of a JavaScript expression comes to.
    #[track_caller]
    pub fn promised(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[0]; ({expression}).then(done, (error) => done({{error: String(error)}}))"
        );
        self.command("POST", "/execute/async", &json!({"script": script, "args": []}))
    }

    /// Waits until a JavaScript expression is true.
    #[track_caller]
    pub fn until(&self, expression: &str) {
        let found = || (self.value(expression) == true).then_some(());
        eventually(&format!("{expression} in the browser"), found);
    }

    /// Waits until the element has that text in it.
    #[track_caller]
    pub fn until_text(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!(
            "(document.querySelector({selector})?.innerText ?? '').includes({text})"
        ));
    }

    /// The texts of all elements that match and are shown.
    #[track_caller]
    pub fn texts(&self, selector: &str) -> Vec<String> {
        let shown = format!(
            "[...document.querySelectorAll({})].filter((e) => e.checkVisibility()).map((e) => e.innerText)",
            json!(selector)
        );
        serde_json::from_value(self.value(&shown)).expect("texts")
    }

    /// Clicks on the first element that matches.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.command("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Types into the first element that matches.
    #[track_caller]
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.command("POST", &format!("/element/{element}/value"), &json!({"text": text}));
    }

    /// Presses a key and lets it go, wherever the focus is.
    #[track_caller]
    pub fn press(&self, key: &str) {
        let actions: Vec<_> =
            ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key})).into();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.command("POST", "/actions", &json!({"actions": [keyboard]}));
    }

    /// Looks at pages in that way from now on.
    #[track_caller]
    pub fn look(&self, screen: Screen) {
        let Screen { width, height, is_dark } = screen;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// One command of the DevTools.
    #[track_caller]
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Keeps what is seen as target/screenshots/NAME.png, whose path it returns.
    #[track_caller]
    pub fn keep_screenshot(&self, name: &str) -> PathBuf {
        let picture = self.command("GET", "/screenshot", &Value::Null);
        let folder = target().join("screenshots");
        std::fs::create_dir_all(&folder).expect("the build directory is ours");
        let mut decode = Command::new("base64");
        let path = folder.join(format!("{name}.png"));
        let file = std::fs::File::create(&path).expect("it is ours");
        decode.arg("--decode").stdin(Stdio::piped()).stdout(file);
        let mut decode = Program::start(&mut decode);
        let mut stdin = decode.pipes().stdin.take().expect("it is piped");
        stdin.write_all(picture.as_str().expect("a text").as_bytes()).expect("it reads");
        drop(stdin);
        assert!(decode.wait().success());
        path
    }

    /// What the console has, since it was last asked.
    #[track_caller]
    pub fn console(&self) -> Vec<String> {
        self.log("browser").into_iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// The addresses of all requests, since it was last asked.
    #[track_caller]
    pub fn requests(&self) -> Vec<String> {
        let address = |entry: Value| {
            let text = entry["message"].as_str()?.to_owned();
            let message: Value = serde_json::from_str(&text).ok()?;
            let message = &message["message"];
            (message["method"] == "Network.requestWillBeSent")
                .then(|| message["params"]["request"]["url"].as_str().map(str::to_owned))?
        };
        self.log("performance").into_iter().filter_map(address).collect()
    }

    #[track_caller]
    fn log(&self, sort: &str) -> Vec<Value> {
        let entries = self.command("POST", "/se/log", &json!({"type": sort}));
        serde_json::from_value(entries).expect("a list")
    }

    #[track_caller]
    fn element(&self, selector: &str) -> String {
        let by = json!({"using": "css selector", "value": selector});
        let element = self.command("POST", "/element", &by);
        element[ELEMENT].as_str().expect("an element").to_owned()
    }

    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        self.call(method, &path, body)
            .unwrap_or_else(|error| panic!("{method} {path} {body}: {error}"))
    }

    /// One call of WebDriver.
    fn call(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        write!(
            &stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        let mut answer: Value = serde_json::from_slice(&answer)?;
        match answer["value"]["error"].as_str() {
            Some(_) => Err(std::io::Error::other(answer["value"]["message"].to_string())),
            None => Ok(answer["value"].take()),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.session.is_empty() {
            // Without an expectation: a panic within a panic would hide the first.
            let path = format!("/session/{}/execute/sync", self.session);
            let script = json!({"script": "return document.body.innerText", "args": []});
            let seen = self.call("POST", &path, &script).unwrap_or_default();
            eprintln!("--- what the browser showed\n{}\n---", seen.as_str().unwrap_or_default());
        }
        // Chromium ends with its session; killed with its driver it would stay.
        let _ = self.call("DELETE", &format!("/session/{}", self.session), &Value::Null);
    }
}

/// The script with the rules of accessibility, which `tests/run` installs in the build directory.
#[track_caller]
pub fn axe() -> String {
    let path = target().join("axe/node_modules/axe-core/axe.min.js");
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: run tests/prepare axe", path.display()))
}

fn target() -> PathBuf {
    let program = binary("puppet");
    program.parent().and_then(Path::parent).expect("a profile lies in a directory").to_owned()
}
