//! The files of a release: whole, and as their tools expect them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Programs, each with its package.
const PROGRAMS: [(&str, &str); 3] =
    [("tenured", "tenured"), ("tenure", "tenure-cli"), ("tenured-gateway", "tenure-gateway")];

/// Folders of Debian, and those of Fedora.
const MOVED: [(&str, &str); 2] = [
    ("/lib/systemd/system/", "/usr/lib/systemd/system/"),
    ("/usr/share/zsh/vendor-completions/", "/usr/share/zsh/site-functions/"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above").to_owned()
}

fn build(out: &Path) -> Command {
    let mut command = Command::new(root().join("packaging/release/build"));
    command.args(["--profile", &tenure_tests::packaging::profile(), "--out"]).arg(out);
    // Cargo tells a test of its package. With that, the build script of `ring` runs again, and all that needs it is compiled anew.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it can be started");
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{errors}");
    String::from_utf8(stdout).expect("it is text")
}

/// The words of a shell.
#[track_caller]
fn sh(folder: &Path, script: &str) -> String {
    run(Command::new("sh").arg("-euc").arg(script).current_dir(folder))
}

/// The one file of a folder with these in its name.
#[track_caller]
fn file(folder: &Path, start: &str, end: &str) -> String {
    let names = fs::read_dir(folder).expect("it is there").flatten().map(|it| it.file_name());
    let names: Vec<String> = names.map(|name| name.into_string().expect("it is text")).collect();
    let mut found = names.iter().filter(|name| name.starts_with(start) && name.ends_with(end));
    let name = found.next().unwrap_or_else(|| panic!("{start}…{end} is missing in {names:?}"));
    assert_eq!(found.next(), None, "{start}…{end}: {name} is one of two");
    name.clone()
}

#[track_caller]
fn sums_are_of_everything(out: &Path) {
    sh(out, "sha256sum --check --strict --quiet SHA256SUMS");
    let sums = fs::read_to_string(out.join("SHA256SUMS")).expect("it is there");
    let named: BTreeSet<&str> = sums.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    let there = sh(out, "ls | grep -v SHA256SUMS");
    assert_eq!(named, there.lines().collect());
}

/// Helm takes no links from an archive.
#[track_caller]
fn charts_have_their_files(out: &Path) {
    for (chart, file) in [
        ("tenured", "tenured.rules.yml"),
        ("tenured", "tenured.json"),
        ("tenured-gateway", "tenured-gateway.rules.yml"),
    ] {
        let archive = format!("{chart}-{}.tgz", env!("CARGO_PKG_VERSION"));
        let text =
            sh(out, &format!("tar --extract --to-stdout --file {archive} {chart}/files/{file}"));
        assert!(text.len() > 1000, "{chart}: {file}");
    }
}

/// Nothing but the tarball is there: no library, no shell.
#[track_caller]
fn programs_run_in_an_empty_root(out: &Path) {
    let empty = TempDir::new().expect("a folder can be made");
    let usr = empty.path().join("usr");
    fs::create_dir(&usr).expect("the folder is ours");
    // As INSTALL says.
    let tarball = file(out, "tenure-", ".tar.gz");
    let folder = usr.display();
    sh(out, &format!("tar --extract --file {tarball} --directory {folder} --strip-components 1"));
    for (program, _) in PROGRAMS {
        let mut chroot = Command::new("chroot");
        chroot.arg(empty.path()).arg(format!("/usr/bin/{program}")).arg("--version");
        assert_eq!(run(&mut chroot), format!("{program} {}\n", env!("CARGO_PKG_VERSION")));
    }
    let named = [
        "doc/tenured/INSTALL",
        "doc/tenured/README.md",
        "doc/tenured/LICENSE-MIT",
        "doc/tenured/LICENSE-APACHE",
        "doc/tenured/NOTICES.gz",
        "man/man1/tenure.1.gz",
        "man/man8/tenured.8.gz",
        "man/man8/tenured-gateway.8.gz",
        "bash-completion/completions/tenure",
    ];
    for path in named {
        assert!(usr.join("share").join(path).exists(), "{path}");
    }
    units_are_of_programs_without_systemd(empty.path());
}

#[track_caller]
fn units_are_of_programs_without_systemd(root: &Path) {
    let folder = root.join("usr/lib/systemd");
    for unit in ["system/tenured.service", "system/tenured-gateway.service", "user/tenured.service"]
    {
        let text = fs::read_to_string(folder.join(unit)).expect("it is there");
        assert!(text.contains("\nType=exec\n"), "{unit}");
        for word in ["notify", "Notify", "Watchdog", "FileDescriptorStore", ".socket"] {
            assert!(!text.contains(word), "{unit}: {word}");
        }
    }
    assert!(!folder.join("user/tenured.socket").exists());
    // systemd looks for the units that these name, and for the programs that they start.
    let script = "
        cp --archive /lib/systemd/system/*.target /lib/systemd/system/*.slice usr/lib/systemd/system
        mkdir bin && cp /bin/sh bin
        systemd-analyze --root=. --man=no verify tenured.service tenured-gateway.service 2>&1";
    assert_eq!(sh(root, script), "");
}

#[track_caller]
fn rpms_are_as_debian_packages(out: &Path) {
    for name in ["tenured", "tenured-gateway"] {
        let deb = file(out, &format!("{name}_"), ".deb");
        let rpm = file(out, &format!("{name}-{}-", env!("CARGO_PKG_VERSION")), ".rpm");
        let listed =
            sh(out, &format!("dpkg-deb --fsys-tarfile {deb} | tar --list | sed 's/^[.]//'"));
        let of_deb: BTreeSet<String> =
            listed.lines().filter(|path| !path.ends_with('/')).map(moved).collect();
        let folders: BTreeSet<&str> =
            listed.lines().filter_map(|path| path.strip_suffix('/')).collect();
        let listed = sh(out, &format!("rpm --query --package --list {rpm}"));
        let of_rpm = listed.lines().filter(|path| !folders.contains(path)).map(str::to_owned);
        assert_eq!(of_deb, of_rpm.collect());
        let configuration = [
            format!("rpm --query --package --configfiles {rpm} | sort"),
            format!("dpkg-deb --info {deb} conffiles | sort"),
        ];
        let [of_rpm, of_deb] = configuration.map(|script| sh(out, &script));
        assert_eq!(of_rpm, of_deb);
        for tag in ["POSTIN", "PREUN", "POSTUN"] {
            let query = format!("rpm --query --package --queryformat '%{{{tag}}}' {rpm}");
            assert!(sh(out, &query).contains("systemctl"), "{name}: {tag}");
            sh(out, &format!("{query} | sh -n"));
        }
        let needed = sh(out, &format!("rpm --query --package --requires {rpm}"));
        assert!(needed.contains("libc.so.6") && needed.contains("systemd >= "), "{needed}");
    }
}

fn moved(path: &str) -> String {
    let path = path.to_owned();
    MOVED.iter().fold(path, |path, (from, to)| match path.strip_prefix(from) {
        Some(rest) => format!("{to}{rest}"),
        None => path,
    })
}

/// Of the crates that cargo links, none is left out.
#[track_caller]
fn bills_name_every_crate(out: &Path) {
    for (program, package) in PROGRAMS {
        let bill = fs::read(out.join(format!("{program}-{}.cdx.json", env!("CARGO_PKG_VERSION"))))
            .expect("it is there");
        let bill: Value = serde_json::from_slice(&bill).expect("it is JSON");
        assert_eq!(bill["bomFormat"], "CycloneDX");
        assert_eq!(bill["metadata"]["component"]["name"], program);
        let components = bill["components"].as_array().expect("there are some");
        let named: BTreeSet<String> = components
            .iter()
            .map(|it| format!("{} v{}", it["name"], it["version"]).replace('"', ""))
            .collect();
        let features = if program == "tenured" { "systemd" } else { "" };
        let mut tree = Command::new("cargo");
        tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
        tree.args(["--package", package, "--features", features]).current_dir(root());
        let tree = run(&mut tree);
        // The program itself is what the bill is of.
        let linked =
            tree.lines().map(|line| line.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" "));
        let linked: BTreeSet<String> =
            linked.filter(|it| !it.is_empty() && !it.starts_with(&format!("{package} "))).collect();
        assert!(linked.len() > 50, "{linked:?}");
        assert_eq!(
            linked.difference(&named).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "{program}"
        );
    }
}

#[test]
#[ignore = "tests/packaging/release runs it, once the programs of the packages are built"]
fn a_release_has_everything() {
    let dir = TempDir::new().expect("a folder can be made");
    let out = dir.path().join("release");
    let said = run(&mut build(&out));
    assert_eq!(said.lines().count(), 15, "{said}");
    sums_are_of_everything(&out);
    charts_have_their_files(&out);
    programs_run_in_an_empty_root(&out);
    rpms_are_as_debian_packages(&out);
    bills_name_every_crate(&out);
}

/// Runs it with a program of that name in place of the real one, which fails.
#[track_caller]
fn refused(dir: &Path, out: &Path, program: &str) -> String {
    let broken = dir.join("broken");
    fs::create_dir_all(&broken).expect("the folder is ours");
    fs::write(broken.join(program), "#!/bin/sh\necho it is broken >&2; exit 3\n")
        .expect("it is ours");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(broken.join(program), executable).expect("it is ours");
    let path = format!("{}:{}", broken.display(), std::env::var("PATH").unwrap_or_default());
    let output = build(out).env("PATH", path).output().expect("it can be started");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "tests/packaging/release runs it, once the programs of the packages are built"]
fn a_build_that_fails_leaves_an_earlier_release_alone_and_no_part_of_its_own() {
    let dir = TempDir::new().expect("a folder can be made");
    let out = dir.path().join("out/release");
    let said = refused(dir.path(), &out, "npm");
    assert!(said.contains("it is broken\n") && said.contains("nothing was written to"), "{said}");
    assert_eq!(sh(&dir.path().join("out"), "ls -A"), "");
    fs::create_dir(&out).expect("the folder is ours");
    fs::write(out.join("mine"), "").expect("the folder is ours");
    let said = refused(dir.path(), &out, "npm");
    assert!(said.contains("empty it, or name another folder with --out"), "{said}");
    // Sums that do not name it are no release's.
    fs::write(out.join("SHA256SUMS"), "").expect("the folder is ours");
    let said = refused(dir.path(), &out, "npm");
    assert!(said.contains("empty it, or name another folder with --out"), "{said}");
    fs::remove_file(out.join("mine")).expect("the folder is ours");
    refused(dir.path(), &out, "npm");
    assert_eq!(sh(&dir.path().join("out"), "find . -type f"), "./release/SHA256SUMS\n");
}
