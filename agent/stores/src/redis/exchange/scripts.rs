//! The scripts, and calls of them.

use std::sync::LazyLock;
use std::time::Duration;

/// What every script begins with.
const START: &str = include_str!("../scripts/start.lua");
/// The check of the epoch, which encloses the rest of each granting script.
const EPOCH: &str = include_str!("../scripts/epoch.lua");
/// The line in [`EPOCH`] that marks the place of the script.
const WITHIN: &str = "-- SCRIPT\n";
/// The line in a script that marks the place of what it shares with others.
const PRELUDE: &str = "-- PRELUDE\n";

/// A script that runs on the server.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    source: String,
    sha1: String,
    grants: bool,
}

impl Script {
    /// Puts a script together: what comes first, and its own source, in which `shared` takes the place of
    /// [`PRELUDE`] or comes before all of it.
    fn new(name: &'static str, shared: &[&str], own: &str) -> Script {
        let (first, rest) = own.split_once(PRELUDE).unwrap_or(("", own));
        Script::of(name, false, [START, first, &shared.concat(), rest].concat())
    }

    /// The same for a granting script, all of which runs within the check of the epoch.
    fn that_grants(name: &'static str, shared: &[&str], own: &str) -> Script {
        let (first, rest) = own.split_once(PRELUDE).unwrap_or(("", own));
        let whole = [first, &shared.concat(), rest].concat();
        Script::of(name, true, Script::within_epoch("", "", &whole))
    }

    /// The same for a granting script whose part before [`PRELUDE`] grants nothing, and runs without the check.
    fn that_passes_on(name: &'static str, shared: &[&str], own: &str) -> Script {
        let (first, rest) = own.split_once(PRELUDE).unwrap_or(("", own));
        let rest = [&shared.concat(), rest].concat();
        Script::of(name, true, Script::within_epoch(first, "judge('GET')\n", &rest))
    }

    fn within_epoch(first: &str, look: &str, rest: &str) -> String {
        let (before, after) = EPOCH.split_once(WITHIN).unwrap_or((EPOCH, ""));
        [START, first, before, "local function run()\n", look, rest, "end\n", after].concat()
    }

    fn of(name: &'static str, grants: bool, source: String) -> Script {
        let sha1 = redis::Script::new(&source).get_hash().to_owned();
        Script { name, source, sha1, grants }
    }

    /// The name of its file, without the ending.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// True if the script grants or renews: its calls carry the epoch.
    pub fn grants(&self) -> bool {
        self.grants
    }

    /// The source for `SCRIPT LOAD`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The digest for `EVALSHA`: 40 hex digits.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }

    /// Makes the server know the script.
    pub fn load(&self) -> redis::Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.source);
        command
    }
}

/// A call of a script.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub script: &'static Script,
    /// The keys it is about.
    pub keys: Vec<Vec<u8>>,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    /// The longest ttl that the call asks for.
    pub ttl: Duration,
}

impl Invocation {
    pub(in crate::redis) fn new(script: &'static LazyLock<Script>) -> Invocation {
        Invocation { script, keys: Vec::new(), args: Vec::new(), ttl: Duration::ZERO }
    }

    pub(in crate::redis) fn key(mut self, key: String) -> Invocation {
        self.keys.push(key.into_bytes());
        self
    }

    pub(in crate::redis) fn arg(mut self, arg: impl ToString) -> Invocation {
        self.args.push(arg.to_string().into_bytes());
        self
    }

    pub(super) fn args(mut self, args: impl Iterator<Item = String>) -> Invocation {
        self.args.extend(args.map(String::into_bytes));
        self
    }

    /// The same for a call that asks for holds of that ttl.
    pub(super) fn for_ttl(mut self, ttl: Duration) -> Invocation {
        self.ttl = ttl;
        self
    }

    /// The call. A server that does not know the script answers `NOSCRIPT`: then [`Script::load`],
    /// and call again.
    pub fn command(&self) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script.sha1).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.args) {
            command.arg(part.as_slice());
        }
        command
    }
}

/// A script with what it shares with others before it.
macro_rules! script {
    ($name:literal $(, $shared:literal)*) => { script!(@new $name $(, $shared)*) };
    (grants $name:literal $(, $shared:literal)*) => { script!(@that_grants $name $(, $shared)*) };
    (passes_on $name:literal $(, $shared:literal)*) => { script!(@that_passes_on $name $(, $shared)*) };
    (@$how:ident $name:literal $(, $shared:literal)*) => {
        LazyLock::new(|| {
            Script::$how($name, &[
                include_str!("../scripts/prelude.lua"),
                $(include_str!(concat!("../scripts/", $shared, ".lua")),)*
            ], include_str!(concat!("../scripts/", $name, ".lua")))
        })
    };
}

pub(super) static CLAIM_LEADER: LazyLock<Script> =
    script!(grants "claim_leader", "prelude_queue", "prelude_queue_leader");
pub(super) static CLAIM_MASTER: LazyLock<Script> =
    script!(grants "claim_master", "prelude_master", "prelude_queue", "prelude_queue_master");
pub(super) static CLAIM_LEASE: LazyLock<Script> =
    script!(grants "claim_lease", "prelude_lease", "prelude_queue", "prelude_queue_lease");
pub(super) static CLAIM_PERMIT: LazyLock<Script> = script!(grants "claim_permit", "prelude_permit");
pub(super) static RENEW: LazyLock<Script> = script!(
    grants "renew",
    "prelude_lease",
    "prelude_permit",
    "prelude_master",
    "prelude_queue",
    "prelude_queue_leader",
    "prelude_queue_lease",
    "prelude_queue_master"
);
pub(super) static RELEASE_LEADER: LazyLock<Script> =
    script!(passes_on "release_leader", "prelude_queue", "prelude_queue_leader");
pub(super) static RELEASE_MASTER: LazyLock<Script> =
    script!(passes_on "release_master", "prelude_master", "prelude_queue", "prelude_queue_master");
pub(super) static RELEASE_LEASE: LazyLock<Script> =
    script!(passes_on "release_lease", "prelude_lease", "prelude_queue", "prelude_queue_lease");
pub(super) static RELEASE_PERMIT: LazyLock<Script> =
    script!(passes_on "release_permit", "prelude_permit");
pub(super) static REVOKE_LEADER: LazyLock<Script> =
    script!(passes_on "revoke_leader", "prelude_queue", "prelude_queue_leader");
pub(super) static REVOKE_MASTER: LazyLock<Script> =
    script!(passes_on "revoke_master", "prelude_master", "prelude_queue", "prelude_queue_master");
pub(super) static REVOKE_LEASE: LazyLock<Script> =
    script!(passes_on "revoke_lease", "prelude_lease", "prelude_queue", "prelude_queue_lease");
pub(super) static REVOKE_PERMITS: LazyLock<Script> =
    script!(passes_on "revoke_permits", "prelude_permit");
pub(super) static INSPECT_LEADER: LazyLock<Script> = script!("inspect_leader", "prelude_queue");
pub(super) static INSPECT_MASTER: LazyLock<Script> =
    script!("inspect_master", "prelude_master", "prelude_queue");
pub(super) static INSPECT_LEASE: LazyLock<Script> =
    script!("inspect_lease", "prelude_lease", "prelude_queue");
pub(super) static INSPECT_PERMITS: LazyLock<Script> = script!("inspect_permits", "prelude_permit");
pub(super) static ANNOUNCE: LazyLock<Script> = script!("announce", "prelude_master");
pub(super) static END_SESSION: LazyLock<Script> = script!("end_session", "prelude_master");
pub(super) static FIND_SESSION: LazyLock<Script> = script!("find_session");
pub(super) static MEMBERS: LazyLock<Script> = script!("members", "prelude_master");
pub(super) static ROUTES: LazyLock<Script> = script!("routes", "prelude_lease");
/// It needs nothing of what others share.
pub(super) static RESOURCES: LazyLock<Script> =
    LazyLock::new(|| Script::new("resources", &[], include_str!("../scripts/resources.lua")));
/// Nor do these.
pub(super) static RECORD: LazyLock<Script> =
    LazyLock::new(|| Script::new("record", &[], include_str!("../scripts/record.lua")));
pub(super) static HISTORY: LazyLock<Script> =
    LazyLock::new(|| Script::new("history", &[], include_str!("../scripts/history.lua")));
pub(in crate::redis) static PUT_KEY: LazyLock<Script> =
    LazyLock::new(|| Script::new("put_key", &[], include_str!("../scripts/put_key.lua")));
pub(in crate::redis) static RESTORE_KEYS: LazyLock<Script> =
    LazyLock::new(|| Script::new("restore_keys", &[], include_str!("../scripts/restore_keys.lua")));
pub(super) static CARE: LazyLock<Script> = script!(passes_on "care", "prelude_permit");
/// The script that only checks the epoch.
pub(in crate::redis) static LOOK_EPOCH: LazyLock<Script> = LazyLock::new(|| {
    Script::that_grants("look_epoch", &[], include_str!("../scripts/look_epoch.lua"))
});
pub(super) static STAND: LazyLock<Script> = script!("stand");
pub(super) static SWEEP: LazyLock<Script> = script!("sweep", "prelude_lease", "prelude_master");
pub(super) static VERIFY: LazyLock<Script> = script!("verify");
