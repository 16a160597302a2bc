//! This machine: its boot, its names, what the agent uses of it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use sha2::Sha256;
use uuid::Uuid;

use super::directory::Directory;

/// Tenure's application id for [`host_id`]. Another value would be another set of host ids.
const APPLICATION: &str = "5f1e1f0c-54e5-4a53-9a1e-7a1de1b1c0de";
/// In the state directory, of a machine without an id.
const HOST_ID_NAME: &str = "host-id";
/// In the state directory: the id of its agent.
const AGENT_ID_NAME: &str = "agent-id";
/// More than an id of each sort takes, with what it is bound to.
const ID_BYTES_MAX: u64 = 160;
const MACHINE_ID_FILES: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// The id of this boot: BOOTTIME instants mean something only together with it.
///
/// # Errors
///
/// When the kernel does not tell.
#[cfg(target_os = "linux")]
pub fn boot_id() -> io::Result<Uuid> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Uuid::try_parse(text.trim()).map_err(io::Error::other)
}

/// The id of this boot: BOOTTIME instants mean something only together with it.
///
/// # Errors
///
/// When the kernel does not tell.
#[cfg(target_os = "macos")]
pub fn boot_id() -> io::Result<Uuid> {
    let mut text = [0_u8; 64];
    let mut length = text.len();
    // SAFETY: the name ends with a zero, and the kernel writes at most `length` bytes.
    let done = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            text.as_mut_ptr().cast(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    nix::errno::Errno::result(done)?;
    let text = text[..length].split(|&byte| byte == 0).next().unwrap_or_default();
    Uuid::try_parse_ascii(text).map_err(io::Error::other)
}

/// The host's name as people know it.
///
/// # Errors
///
/// When the kernel does not tell, or the name is not UTF-8.
pub fn host_name() -> io::Result<String> {
    let name = nix::unistd::gethostname()?;
    name.into_string().map_err(|name| io::Error::other(format!("host name {name:?} is not UTF-8")))
}

/// A stable id of this machine that does not disclose its machine id: HMAC-SHA256 of Tenure's
/// application id, keyed with the machine id, as machine-id(5) asks for. 32 hexadecimal digits.
///
/// Machines without a machine id get a random one, kept in the state directory.
///
/// # Errors
///
/// When there is no machine id and none can be kept.
pub fn host_id(state_dir: &Directory) -> io::Result<String> {
    host_id_of(&MACHINE_ID_FILES.map(Path::new), state_dir)
}

fn host_id_of(machine_id_files: &[&Path], state_dir: &Directory) -> io::Result<String> {
    let given = machine_id_files.iter().find_map(|file| {
        // Images ship it empty, or as "uninitialized".
        Uuid::try_parse(fs::read_to_string(file).ok()?.trim()).ok().filter(|id| !id.is_nil())
    });
    let machine = match given {
        Some(machine) => machine,
        None => kept_id(state_dir, HOST_ID_NAME)?,
    };
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(machine.as_bytes()).expect("a key");
    mac.update(APPLICATION.as_bytes());
    let digest = mac.finalize().into_bytes();
    Ok(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

/// The id of the agent with this state directory: random, and kept until [`forget_agent_id`], or until the machine starts anew. A copy of
/// the directory, as in a machine that was cloned, gives another id. Where none can be kept, each call gives another.
pub fn agent_id(state_dir: &Directory, boot_id: Uuid) -> Uuid {
    match place_of(state_dir, boot_id).and_then(|place| agent_id_at(state_dir, &place)) {
        Ok(id) => id,
        Err(_) => Uuid::new_v4(),
    }
}

/// What no copy of a directory has in common with it: two that exist at a time differ as files, or lie on machines that were started
/// apart.
fn place_of(state_dir: &Directory, boot_id: Uuid) -> io::Result<String> {
    let found = state_dir.metadata()?;
    Ok(format!("{boot_id} {}:{}", found.dev(), found.ino()))
}

fn agent_id_at(state_dir: &Directory, place: &str) -> io::Result<Uuid> {
    let mut text = String::new();
    match state_dir
        .read(AGENT_ID_NAME, ID_BYTES_MAX)
        .and_then(|mut file| file.read_to_string(&mut text))
    {
        Ok(_) => {}
        // `PermissionDenied`: a file that the agent never writes, such as a longer one. It is replaced.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::PermissionDenied
            ) => {}
        Err(error) => return Err(error),
    }
    let kept = text.trim_end().split_once(' ').filter(|(_, of)| *of == place);
    if let Some(id) = kept.and_then(|(id, _)| Uuid::try_parse(id).ok()) {
        return Ok(id);
    }
    let id = Uuid::new_v4();
    state_dir.remove(AGENT_ID_NAME)?;
    writeln!(state_dir.create(AGENT_ID_NAME, 0o600)?, "{id} {place}")?;
    Ok(id)
}

/// Has the next agent with this state directory be another one: this one has taken its leave.
pub fn forget_agent_id(state_dir: &Directory) {
    // One that stays is told of as not seen, until it is forgotten.
    let _ = state_dir.remove(AGENT_ID_NAME);
}

fn kept_id(state_dir: &Directory, name: &str) -> io::Result<Uuid> {
    match state_dir.create(name, 0o600) {
        Ok(mut created) => {
            let id = Uuid::new_v4();
            writeln!(created, "{id}")?;
            created.sync_all()?;
            Ok(id)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut text = String::new();
            state_dir.read(name, ID_BYTES_MAX)?.read_to_string(&mut text)?;
            Uuid::try_parse(text.trim()).map_err(io::Error::other)
        }
        Err(error) => Err(error),
    }
}

/// Raises the limit of open descriptors as far as the administrator allows, and returns it. Every
/// connection takes two.
///
/// # Errors
///
/// When the kernel refuses; the limit is then as it was.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // macOS says "infinity" and refuses it; see setrlimit(2) there.
    let wanted = if cfg!(target_os = "macos") { hard.min(10_240) } else { hard };
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    }
    Ok(soft.max(wanted))
}

/// True if one more file could be opened, or connection taken.
pub fn has_free_descriptor() -> bool {
    fs::File::open("/dev/null").is_ok()
}

/// Resources that this process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Mapped memory, bytes; `None` where the system does not tell.
    pub virtual_bytes: Option<u64>,
    /// Processor time, of the program and of the kernel for it.
    pub cpu: Duration,
    /// Open descriptors; `None` where the system does not tell.
    pub descriptors: Option<u64>,
    /// Most descriptors that may be open.
    pub descriptors_max: Option<u64>,
}

/// Resources that this process uses now; zeros for those that the system does not tell.
pub fn usage() -> Usage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Usage::default();
    };
    let us = (usage.user_time() + usage.system_time()).num_microseconds();
    Usage {
        resident_bytes: resident_bytes(usage.max_rss()).unwrap_or_default(),
        virtual_bytes: memory_bytes(0),
        cpu: Duration::from_micros(u64::try_from(us).unwrap_or_default()),
        descriptors: open_descriptors(),
        descriptors_max: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft),
    }
}

/// The memory that this process may take: that of the machine, or of its cgroup where that is less; `None`
/// where the system does not tell.
#[cfg(target_os = "linux")]
pub fn memory_limit() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_cgroups = cgroups.lines().flat_map(memory_limits);
    of_cgroups.chain(total.map(|kibibytes| kibibytes * 1024)).min()
}

/// As above.
#[cfg(not(target_os = "linux"))]
pub fn memory_limit() -> Option<u64> {
    None
}

/// The limits of a line of /proc/self/cgroup and of all groups above it: see cgroups(7).
#[cfg(target_os = "linux")]
fn memory_limits(line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    let group = std::path::Path::new(path.trim_start_matches('/'));
    // "max" is no limit, and a group that this process does not see has none for it.
    let limit = |group| fs::read_to_string(std::path::Path::new(root).join(group).join(file)).ok();
    group.ancestors().filter_map(|group| limit(group)?.trim().parse().ok()).collect()
}

/// When this process started, since 1970; `None` where the system does not tell.
pub fn started_at() -> Option<Duration> {
    static STARTED: OnceLock<Option<Duration>> = OnceLock::new();
    // By the clock on the wall when it is first asked for; later corrections of that clock would make
    // the same process seem to start again.
    *STARTED.get_or_init(started_by_the_wall)
}

fn started_by_the_wall() -> Option<Duration> {
    let age = super::clock::now().since(super::process::started()?);
    Duration::from_micros(super::clock::wall_us()).checked_sub(age)
}

#[cfg(target_os = "linux")]
fn open_descriptors() -> Option<u64> {
    let listed = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them was for listing them.
    u64::try_from(listed.saturating_sub(1)).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_descriptors() -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn resident_bytes(_max: i64) -> Option<u64> {
    memory_bytes(1)
}

/// A field of /proc/self/statm, in bytes.
#[cfg(target_os = "linux")]
fn memory_bytes(field: usize) -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_ascii_whitespace().nth(field)?.parse().ok()?;
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * u64::try_from(size).ok()?)
}

#[cfg(not(target_os = "linux"))]
fn memory_bytes(_field: usize) -> Option<u64> {
    None
}

/// Keeps what is in the memory of this process, passwords among it, from core dumps and from other
/// processes of the same user: see prctl(2), PR_SET_DUMPABLE. What the process reads of itself in
/// /proc stays readable to it.
///
/// # Errors
///
/// When the kernel refuses.
pub fn keep_memory_private() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false)?;
    // For systems without the above. It does not stop dumps that are piped into a program; see core(5).
    Ok(setrlimit(Resource::RLIMIT_CORE, 0, 0)?)
}

// The present size takes a Mach call on macOS; the largest so far, in bytes there, has to do.
#[cfg(not(target_os = "linux"))]
fn resident_bytes(max: i64) -> Option<u64> {
    u64::try_from(max).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_memory_has_a_limit() {
        assert!(memory_limit().unwrap() > 64 << 20);
        assert!(memory_limits("nonsense").is_empty());
        assert!(memory_limits("0::/no/such/group").iter().all(|limit| *limit > 0));
    }

    #[test]
    fn the_boot_has_an_id() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert!(!boot_id().unwrap().is_nil());
        assert!(!host_name().unwrap().is_empty());
    }

    #[test]
    fn the_host_id_is_stable_and_does_not_show_the_machine_id() {
        let dir = tempfile::tempdir().unwrap();
        let state = Directory::private(dir.path(), 0o700).unwrap();
        let file = dir.path().join("machine-id");
        fs::write(&file, "3d1219c7c4c5404aaa1f6d2a48adfda4\n").unwrap();
        let id = host_id_of(&[&file], &state).unwrap();
        // printf APPLICATION | openssl dgst -sha256 -mac HMAC -macopt hexkey:3d12…
        assert_eq!(id, "79b49c286d6b2e4b39095e6f6932dfa2");
        assert!(!dir.path().join("host-id").exists());
    }

    #[test]
    fn a_machine_without_id_keeps_a_random_one() {
        let dir = tempfile::tempdir().unwrap();
        let state = Directory::private(dir.path(), 0o700).unwrap();
        let file = dir.path().join("machine-id");
        fs::write(&file, "uninitialized\n").unwrap();
        let id = host_id_of(&[&file], &state).unwrap();
        assert_eq!(host_id_of(&[&file], &state).unwrap(), id);
        let elsewhere = tempfile::tempdir().unwrap();
        let elsewhere = Directory::private(elsewhere.path(), 0o700).unwrap();
        assert_ne!(host_id_of(&[&file], &elsewhere).unwrap(), id);
    }

    #[test]
    fn a_copy_of_the_state_directory_is_another_agent() {
        let dir = tempfile::tempdir().unwrap();
        let (first, copy) = (dir.path().join("first"), dir.path().join("copy"));
        let state = Directory::private(&first, 0o700).unwrap();
        let boot = Uuid::new_v4();
        let id = agent_id(&state, boot);
        assert_eq!(agent_id(&state, boot), id);
        let copied = Directory::private(&copy, 0o700).unwrap();
        fs::copy(first.join("agent-id"), copy.join("agent-id")).unwrap();
        let other = agent_id(&copied, boot);
        assert_ne!(other, id);
        assert_eq!(agent_id(&copied, boot), other);
        // On a machine that was cloned, which has started since.
        assert_ne!(agent_id(&state, Uuid::new_v4()), id);
        for text in [String::new(), format!("{id}\n"), "x ".repeat(500)] {
            fs::write(first.join("agent-id"), text).unwrap();
            let next = agent_id(&state, boot);
            assert_ne!(next, id);
            assert_eq!(agent_id(&state, boot), next, "it is kept");
        }
        forget_agent_id(&state);
        assert_eq!(agent_id(&state, boot), agent_id(&state, boot));
    }

    #[test]
    fn limits_and_usage() {
        let raised = raise_descriptor_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, raised);
        let usage = usage();
        assert!(usage.resident_bytes > 0);
        if cfg!(target_os = "linux") {
            assert!(usage.virtual_bytes >= Some(usage.resident_bytes));
            assert!(usage.descriptors > Some(2) && usage.descriptors <= usage.descriptors_max);
            // Started after 2020, and not in the future.
            let now = Duration::from_micros(super::super::clock::wall_us());
            let started = started_at().unwrap();
            assert!(started > Duration::from_secs(1_577_836_800) && started <= now, "{started:?}");
        }
    }
}
