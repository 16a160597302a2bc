//! The plan of a run, drawn from its seed before it begins.

use std::sync::Arc;
use std::time::Duration;

use tenure::wire::Kind;
use tenure_core::keeper::{Rhythm, Settings};
use tenure_stores::journal::Ahead;

use super::planted::Planted;
use super::random::Random;

/// Largest drift of a clock, ppm. Between two clocks it is twice that: 0.4 %, which the margin's
/// ttl / 200 covers.
const DRIFT_PPM_MAX: u64 = 2000;
/// Shortest and longest ttl that programs ask for, ms.
pub(crate) const TTL_MS: (u64, u64) = (600, 5000);
/// Longest grace of a lease, ms.
pub(crate) const GRACE_MS_MAX: u64 = 1500;
/// One seed of so many has a crowd.
const CROWD_EVERY: u64 = 500;
/// So many wait in it at least, and at most.
const CROWD: (u64, u64) = (2000, 10_000);
/// So many programs are in a crowd together, each with its part of the waits.
pub(crate) const CROWD_PROGRAMS: usize = 16;
/// Ended holds are remembered for so long.
pub(crate) const REMEMBER: Duration = Duration::from_secs(3);

/// Faults from outside. Each run draws the ones it has, so that some runs have few and
/// get far with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The agent is stopped (SIGSTOP) for a while.
    AgentPause,
    /// The agent is killed between two turns.
    AgentCrash,
    /// The agent is killed after it wrote its journal and before it said all that it had to say.
    AgentCrashAtCommit,
    /// The agent stops cleanly and is started again.
    AgentStop,
    /// The agent restarts and keeps its holds.
    AgentRestart,
    /// The agent is killed and its journal is gone.
    JournalLoss,
    /// A program is killed.
    ClientKill,
    /// A program is stopped (SIGSTOP) for a while.
    ClientPause,
    /// A program does nothing for a while but read.
    ClientHang,
    /// A machine sleeps.
    Sleep,
    /// The upstream stands still.
    UpstreamPause,
    /// The upstream restarts with its data.
    UpstreamRestart,
    /// The upstream restarts without its data.
    UpstreamReset,
    /// Nothing gets from a host to the upstream, or back, or both.
    Partition,
    /// Somebody sets the upstream's wall clock.
    WallStep,
    /// An administrator takes something away.
    Revoke,
    /// A disk is full for a while.
    DiskFull,
    /// Every write to a disk fails for a while.
    DiskBroken,
    /// Some writes to a disk fail.
    DiskErrors,
    /// A disk is slow for a while.
    DiskSlow,
    /// A bit on a disk turns over.
    DiskDamage,
    /// A machine loses its power.
    PowerLoss,
    /// A second agent is started on the directories of one that lives.
    SecondAgent,
}

impl Trouble {
    /// Its name, for people.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Trouble::AgentPause => "agent paused",
            Trouble::AgentCrash => "agent killed",
            Trouble::AgentCrashAtCommit => "agent killed at commit",
            Trouble::AgentStop => "agent stopped",
            Trouble::AgentRestart => "agent restarted",
            Trouble::JournalLoss => "journal lost",
            Trouble::ClientKill => "program killed",
            Trouble::ClientPause => "program paused",
            Trouble::ClientHang => "program hung",
            Trouble::Sleep => "machine slept",
            Trouble::UpstreamPause => "upstream paused",
            Trouble::UpstreamRestart => "upstream restarted",
            Trouble::UpstreamReset => "upstream reset",
            Trouble::Partition => "link cut",
            Trouble::WallStep => "wall clock set",
            Trouble::Revoke => "revoked",
            Trouble::DiskFull => "disk full",
            Trouble::DiskBroken => "disk broken",
            Trouble::DiskErrors => "disk errors",
            Trouble::DiskSlow => "disk slow",
            Trouble::DiskDamage => "disk damaged",
            Trouble::PowerLoss => "power lost",
            Trouble::SecondAgent => "second agent",
        }
    }

    /// True if it can befall that kind of run.
    fn befalls(self, embedded: bool) -> bool {
        match self {
            Trouble::DiskFull
            | Trouble::DiskBroken
            | Trouble::DiskErrors
            | Trouble::DiskSlow
            | Trouble::DiskDamage
            | Trouble::PowerLoss
            | Trouble::SecondAgent => embedded,
            Trouble::UpstreamPause
            | Trouble::UpstreamRestart
            | Trouble::UpstreamReset
            | Trouble::Partition
            | Trouble::Revoke => !embedded,
            _ => true,
        }
    }

    const ALL: [Trouble; 23] = [
        Trouble::AgentPause,
        Trouble::AgentCrash,
        Trouble::AgentCrashAtCommit,
        Trouble::AgentStop,
        Trouble::AgentRestart,
        Trouble::JournalLoss,
        Trouble::ClientKill,
        Trouble::ClientPause,
        Trouble::ClientHang,
        Trouble::Sleep,
        Trouble::UpstreamPause,
        Trouble::UpstreamRestart,
        Trouble::UpstreamReset,
        Trouble::Partition,
        Trouble::WallStep,
        Trouble::Revoke,
        Trouble::DiskFull,
        Trouble::DiskBroken,
        Trouble::DiskErrors,
        Trouble::DiskSlow,
        Trouble::DiskDamage,
        Trouble::PowerLoss,
        Trouble::SecondAgent,
    ];
}

/// How bad the network is.
#[derive(Debug, Clone)]
pub(crate) struct Weather {
    /// Most messages take this long at most.
    pub(crate) usual: Duration,
    /// The others take this long at most.
    pub(crate) worst: Duration,
    /// So many out of a thousand are among the others.
    pub(crate) slow_per_mille: u32,
    /// So many requests out of a thousand are lost, and so many replies.
    pub(crate) lost_per_mille: u32,
    /// So many requests out of a thousand arrive twice.
    pub(crate) twice_per_mille: u32,
    /// So many hints out of a thousand are lost, and as many come twice.
    pub(crate) hint_per_mille: u32,
    /// The agent gives up on a call after this.
    pub(crate) call_deadline: Duration,
}

impl Weather {
    /// A network without faults.
    pub(crate) fn calm(&self) -> Weather {
        Weather {
            usual: Duration::from_millis(2),
            worst: Duration::from_millis(2),
            slow_per_mille: 0,
            lost_per_mille: 0,
            twice_per_mille: 0,
            hint_per_mille: 0,
            call_deadline: self.call_deadline,
        }
    }
}

/// Something that programs fight about.
#[derive(Debug, Clone)]
pub(crate) struct Prize {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its name; none for a master, which is its session's project.
    pub(crate) name: Option<Arc<str>>,
    /// The limit that programs usually name, for a semaphore.
    pub(crate) limit: u32,
}

/// A run.
pub(crate) struct Plan {
    /// Hosts, each with an agent.
    pub(crate) hosts: usize,
    /// Programs on each host.
    pub(crate) clients: usize,
    /// How many waits for the first prize there are on the first host besides; none in most runs.
    pub(crate) crowd: usize,
    /// True if the upstream lives within the agent of the only host.
    pub(crate) embedded: bool,
    /// The fault in the program that the run is to notice.
    pub(crate) planted: Option<Planted>,
    /// How much the store within an agent keeps ahead.
    pub(crate) ahead: Ahead,
    /// For what disks do of their own.
    pub(crate) disk_seed: u64,
    /// Drift of the upstream's clock and then of each host's, ppm.
    pub(crate) drifts_ppm: Vec<i64>,
    /// The resources.
    pub(crate) prizes: Vec<Prize>,
    /// The keepers' settings.
    pub(crate) settings: Settings,
    /// The network while there are faults.
    pub(crate) weather: Weather,
    /// The faults that can occur.
    pub(crate) troubles: Vec<Trouble>,
    /// The usual time from one trouble to the next.
    pub(crate) trouble_every: Duration,
    /// The usual time that a program thinks.
    pub(crate) think: Duration,
    /// How long there are faults.
    pub(crate) storm: Duration,
    /// How long programs go on without faults.
    pub(crate) calm: Duration,
    /// How long everything then has to settle.
    pub(crate) settle: Duration,
}

impl Plan {
    /// Draws the run of a seed.
    pub(crate) fn draw(seed: u64, random: &mut Random, planted: Option<Planted>) -> Plan {
        let embedded = match planted {
            Some(planted) if planted.is_of_disks() => true,
            Some(Planted::ForgetEnded) => true,
            Some(planted) => random.per_mille(150) && planted.shows_embedded(),
            None => random.per_mille(300),
        };
        let hosts = if embedded { 1 } else { random.number(2, 4) as usize };
        let drift =
            |random: &mut Random| random.number(0, 2 * DRIFT_PPM_MAX) as i64 - DRIFT_PPM_MAX as i64;
        let crowd = crowd(seed, planted);
        Plan {
            hosts,
            clients: random.number(2, 4) as usize,
            crowd,
            embedded,
            planted,
            drifts_ppm: (0..=hosts).map(|_| drift(random)).collect(),
            prizes: prizes(random),
            settings: with_room_for(crowd, settings(random, planted, embedded)),
            ahead: ahead(random),
            disk_seed: random.below(u64::MAX),
            weather: weather(random),
            troubles: Trouble::ALL
                .into_iter()
                .filter(|trouble| trouble.befalls(embedded))
                .filter(|trouble| random.per_mille(450) || planted.needs(*trouble))
                // Its consequences are not spread over turns.
                .filter(|trouble| crowd == 0 || *trouble != Trouble::UpstreamReset)
                .collect(),
            trouble_every: random.ms(250, 2500),
            think: random.ms(60, 500),
            storm: random.ms(12_000, 30_000),
            calm: Duration::from_secs(9),
            settle: Duration::from_secs(30),
        }
    }
}

/// The conditions under which a planted fault shows.
trait Needs {
    fn needs(&self, trouble: Trouble) -> bool;
}

impl Needs for Option<Planted> {
    fn needs(&self, trouble: Trouble) -> bool {
        match self {
            Some(Planted::TokenReset) => trouble == Trouble::UpstreamRestart,
            Some(Planted::ForgetRequests | Planted::ForgetEnded) => trouble == Trouble::AgentCrash,
            Some(Planted::FullUnnoticed) => {
                matches!(trouble, Trouble::DiskFull | Trouble::AgentCrash)
            }
            Some(Planted::MarkFirst) => trouble == Trouble::AgentCrashAtCommit,
            Some(Planted::NoQuarantine) => trouble == Trouble::JournalLoss,
            Some(Planted::UnsyncedTokens) => {
                matches!(trouble, Trouble::PowerLoss | Trouble::WallStep)
            }
            Some(Planted::NeverRecovers) => trouble == Trouble::DiskErrors,
            Some(Planted::NoLock) => trouble == Trouble::SecondAgent,
            Some(Planted::LateJournal | Planted::EarlyCalls | Planted::CallsFirst) => {
                trouble == Trouble::AgentCrashAtCommit
            }
            Some(Planted::NoMargin | Planted::FromArrival) => trouble == Trouble::Partition,
            Some(Planted::FullStreamEnds | Planted::DeafToClose) => trouble == Trouble::ClientKill,
            Some(Planted::WaitingIsLiving) => trouble == Trouble::ClientPause,
            Some(Planted::StandstillCounts) => trouble == Trouble::AgentPause,
            Some(Planted::QuarantineOrder) => trouble == Trouble::UpstreamReset,
            _ => false,
        }
    }
}

impl Planted {
    /// True if only a run with the upstream inside the agent can show it.
    fn is_of_disks(self) -> bool {
        matches!(
            self,
            Planted::FullUnnoticed
                | Planted::MarkFirst
                | Planted::NoQuarantine
                | Planted::UnsyncedTokens
                | Planted::NeverRecovers
                | Planted::NoLock
        )
    }

    /// True if a run with the upstream inside the agent can show it.
    fn shows_embedded(self) -> bool {
        matches!(self, Planted::LateJournal | Planted::VoidLast | Planted::UnreadKept)
    }
}

/// Does not depend on what else is drawn: to other seeds it makes no difference.
fn crowd(seed: u64, planted: Option<Planted>) -> usize {
    if !seed.is_multiple_of(CROWD_EVERY) && planted != Some(Planted::WalksAll) {
        return 0;
    }
    let (least, most) = CROWD;
    Random::new(!seed).number(least, most) as usize
}

fn with_room_for(crowd: usize, mut settings: Settings) -> Settings {
    if crowd > 0 {
        settings.sessions_max += CROWD_PROGRAMS * 4;
        settings.sessions_per_uid_max = None;
        // Those that leave count as well.
        settings.holds_max += crowd * 6;
    }
    settings
}

fn prizes(random: &mut Random) -> Vec<Prize> {
    let named = |kind, name: &str, limit| Prize { kind, name: Some(Arc::from(name)), limit };
    let mut prizes = vec![
        named(Kind::Leader, "cleanup", 1),
        named(Kind::Semaphore, "gpu", random.number(1, 3) as u32),
        named(Kind::Lease, "front", 1),
        Prize { kind: Kind::Master, name: None, limit: 1 },
    ];
    if random.per_mille(400) {
        prizes.push(named(Kind::Leader, "index", 1));
    }
    if random.per_mille(400) {
        prizes.push(named(Kind::Semaphore, "disk", 1));
    }
    prizes
}

fn settings(random: &mut Random, planted: Option<Planted>, embedded: bool) -> Settings {
    let mut rhythm = || {
        let ttl = random.ms(1200, 4500);
        // Between the shortest that is allowed and a little less than half of the ttl.
        let beat = random.between(Duration::from_millis(300), ttl * 45 / 100);
        Rhythm { ttl, beat }
    };
    let mut settings = Settings {
        session: rhythm(),
        master: rhythm(),
        leader: rhythm(),
        lease: rhythm(),
        semaphore: rhythm(),
        ..Settings::default()
    };
    settings.grace = random.ms(0, GRACE_MS_MAX);
    settings.keepalive = random.ms(600, 2500);
    settings.linger = random.ms(200, 1500);
    settings.poll = (!embedded).then(|| random.ms(300, 700));
    settings.retry_max = random.ms(200, 800);
    settings.remember = REMEMBER;
    settings.sessions_max = random.number(4, 12) as usize;
    settings.sessions_per_uid_max = Some(random.number(3, 8) as usize);
    settings.holds_max = random.number(8, 40) as usize;
    settings.ring_max = random.number(4, 64) as usize;
    match planted {
        Some(Planted::NoMargin) => {
            settings.margin_floor = Duration::ZERO;
            settings.margin_divisor = u32::MAX;
        }
        Some(Planted::NoHints | Planted::LostPublication) => settings.poll = None,
        _ => {}
    }
    settings
}

fn ahead(random: &mut Random) -> Ahead {
    // Few, so that runs see them run out.
    let tokens = random.number(4, 40);
    let ttl = random.ms(TTL_MS.0, TTL_MS.1);
    let lower_after_max = random.ms(500, 5000);
    Ahead {
        tokens,
        ttl,
        lower_after: lower_after_max / 5,
        lower_after_max,
        space: random.number(1, 64) * 1024,
        slack: random.number(4, 128) * 1024,
        rows: random.number(4, 64) as usize,
    }
}

fn weather(random: &mut Random) -> Weather {
    Weather {
        usual: *random.pick(&[1, 5, 40]).max(&1) * Duration::from_millis(1),
        worst: random.ms(500, 4000),
        slow_per_mille: random.number(0, 30) as u32,
        lost_per_mille: random.number(0, 60) as u32,
        twice_per_mille: random.number(0, 60) as u32,
        hint_per_mille: random.number(0, 150) as u32,
        call_deadline: random.ms(150, 700),
    }
}
