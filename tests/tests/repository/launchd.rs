//! The files for launchd: well-formed, and with all that the agent needs. They are not run here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tenure_tests::harness::Python;

fn packaged(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[track_caller]
fn property_list(name: &str) -> Value {
    Python::run("plist.py", &[&packaged("launchd").join(name).display().to_string()])
}

/// Checks that launchd.plist(5) knows the keys that are used, with their types.
#[track_caller]
fn check_keys(job: &Value) {
    for (key, value) in job.as_object().expect("a dictionary") {
        let right = match key.as_str() {
            "Label" | "UserName" | "GroupName" | "ProcessType" | "StandardOutPath"
            | "StandardErrorPath" => value.is_string(),
            "RunAtLoad" | "KeepAlive" | "InitGroups" | "LegacyTimers" => value.is_boolean(),
            "Umask" | "ThrottleInterval" | "ExitTimeOut" => value.is_u64(),
            "ProgramArguments" => list(value).iter().all(Value::is_string),
            "EnvironmentVariables" => {
                value.as_object().is_some_and(|all| all.values().all(Value::is_string))
            }
            "SoftResourceLimits" | "HardResourceLimits" => {
                value.as_object().is_some_and(|limits| {
                    limits.iter().all(|(key, limit)| {
                        ["NumberOfFiles", "Core"].contains(&key.as_str()) && limit.is_u64()
                    })
                })
            }
            "Sockets" => value.is_object(),
            _ => panic!("is {key} a key of launchd.plist(5)?"),
        };
        assert!(right, "{key}: {value}");
    }
}

#[test]
fn launchd_gets_the_socket_that_the_agent_asks_it_for() {
    let job = property_list("io.tenure.tenured.plist");
    check_keys(&job);
    assert_eq!(job["Label"], "io.tenure.tenured");
    assert_eq!(job["ProgramArguments"], json!(["/usr/local/bin/tenured", "agent"]));
    assert_eq!((&job["RunAtLoad"], &job["KeepAlive"]), (&json!(true), &json!(true)));
    assert_eq!(job["ProcessType"], "Adaptive");
    assert_eq!(job["Umask"], 0o027);
    // stop.deadline is five seconds at most.
    assert!(job["ExitTimeOut"].as_u64() > Some(5));
    let socket = json!({"api": {
        "SockType": "stream",
        "SockPassive": true,
        "SockPathName": "/var/run/tenured/api.sock",
        "SockPathMode": 0o660,
        "SockPathOwner": 391,
        "SockPathGroup": 391,
    }});
    assert_eq!(job["Sockets"], socket);
    // The agent asks for no more on macOS.
    assert_eq!(job["SoftResourceLimits"]["NumberOfFiles"], 10_240);

    let text =
        fs::read_to_string(packaged("launchd/io.tenure.tenured.plist")).expect("it is there");
    assert!(text.contains("<integer>432</integer>"), "decimal: launchd reads no octal numbers");
    let readme = fs::read_to_string(packaged("launchd/README.md")).expect("it is there");
    assert!(readme.contains("PrimaryGroupID 391") && readme.contains("UniqueID 391"));
}

#[test]
fn the_sockets_directory_is_made_before_the_agent_is_loaded() {
    let job = property_list("io.tenure.directory.plist");
    check_keys(&job);
    let [shell, option, script] = list(&job["ProgramArguments"]) else { panic!("{job}") };
    assert_eq!((shell, option), (&json!("/bin/sh"), &json!("-ec")));
    let script = script.as_str().expect("a text");
    let made = script.find("install -d -o _tenured -g _tenured -m 0755 /var/run/tenured");
    let loaded =
        script.find("launchctl bootstrap system /usr/local/lib/tenured/io.tenure.tenured.plist");
    assert!(made.is_some() && made < loaded, "{script}");
    assert_eq!(job["RunAtLoad"], true);
    assert!(job["KeepAlive"].is_null(), "once a boot");
    // A shell accepts the script.
    let checked = Command::new("sh").args(["-n", "-c", script]).status();
    assert!(checked.is_ok_and(|status| status.success()), "{script}");
}

#[test]
fn a_users_agent_has_no_socket_of_launchds() {
    let job = property_list("io.tenure.tenured.user.plist");
    check_keys(&job);
    for key in ["Sockets", "UserName", "GroupName", "StandardErrorPath"] {
        assert!(job[key].is_null(), "{key} is not a user's to say");
    }
    assert_eq!((&job["RunAtLoad"], &job["KeepAlive"]), (&json!(true), &json!(true)));
}
