//! The machine, in one line, and what is installed on it.

use std::fs;

use nix::sys::utsname::uname;

/// Processor, cores, memory, kernel, and how busy it was when asked.
pub(super) fn describe() -> String {
    let field = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines()
            .find_map(|line| {
                line.strip_prefix(key)?.split_once(':').map(|(_, v)| v.trim().to_owned())
            })
            .unwrap_or_else(|| "unknown".to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel =
        uname().map_or_else(|_| "unknown".to_owned(), |name| name.release().display().to_string());
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{cores} cores of {}, {} memory, Linux {kernel}, load {load} before the run",
        field("/proc/cpuinfo", "model name"),
        field("/proc/meminfo", "MemTotal"),
    )
}

/// True if a program of this name is in PATH.
pub(super) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
