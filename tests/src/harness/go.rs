//! Foreign programs in Go, by Debian's grpc-go. See `tests/go/`.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::binaries::build_directory;
use super::foreign::Foreign;

/// The files of services, and the packages that programs know them by.
const SERVICES: [(&str, &str); 3] = [
    ("prism/admin/v1/control_plane.proto", "tenure/admin"),
    ("prism/control_plane.proto", "tenure/prism"),
    ("tenure/v1/routes.proto", "tenure/routes"),
];
/// Debian's packages of Go.
const LIBRARIES: &str = "/usr/share/gocode";

/// Builds a program of `tests/go/`, with stubs made from the services' own files, and starts it.
#[track_caller]
pub fn go_program(name: &str, arguments: &[&str]) -> Foreign {
    let folder = TempDir::with_prefix("tenured-go-").expect("a temporary directory");
    let (stubs, program) = (folder.path().join("src"), folder.path().join("program"));
    std::fs::create_dir(&stubs).expect("it is ours");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = SERVICES.map(|(file, package)| format!("M{file}={package}")).join(",");
    let mut protoc = Command::new("protoc");
    protoc.arg("--proto_path").arg(tests.join("../client-sdk/proto/protos"));
    for plugin in ["go", "go-grpc"] {
        protoc.arg(format!("--{plugin}_out={packages}:{}", stubs.display()));
    }
    run(protoc.args(SERVICES.map(|(file, _)| file)));
    let sources = [name, "lines"].map(|name| tests.join("go").join(format!("{name}.go")));
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-o"]).arg(&program).args(sources);
    go.env("GO111MODULE", "off").env("GOCACHE", build_directory().join("tmp/go"));
    run(go.env("GOPATH", format!("{}:{LIBRARIES}", folder.path().display())));
    // The program runs without its file.
    Foreign::start(Command::new(&program).args(arguments))
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: see tests/run"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}
