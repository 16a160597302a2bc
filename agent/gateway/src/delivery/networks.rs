//! The networks in which proxies may be that callers register: a gateway reaches what its callers do not.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use tenure_core::time::Boottime;
use tenure_host::clock;

/// How long the addresses of this host's interfaces are taken for what they were.
const OWN_KEPT_FOR: Duration = Duration::from_secs(1);

const V4_BITS: u8 = 32;
const V6_BITS: u8 = 128;

/// A network, such as 10.0.0.0/8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    /// Leading bits that all its addresses share.
    length: u8,
}

impl Network {
    const fn v4(bytes: [u8; 4], length: u8) -> Network {
        let [a, b, c, d] = bytes;
        Network { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), length }
    }

    const fn v6(head: [u16; 3], tail: u16, length: u8) -> Network {
        let [a, b, c] = head;
        Network { first: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, tail)), length }
    }

    /// The network of one address.
    const fn of(address: IpAddr) -> Network {
        let length = if address.is_ipv4() { V4_BITS } else { V6_BITS };
        Network { first: address, length }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(it)) => {
                let differs = u128::from(first.to_bits() ^ it.to_bits());
                is_equal(differs, V4_BITS, self.length)
            }
            (IpAddr::V6(first), IpAddr::V6(it)) => {
                is_equal(first.to_bits() ^ it.to_bits(), V6_BITS, self.length)
            }
            _ => false,
        }
    }

    /// True if all of the other one is in it.
    fn covers(&self, other: &Network) -> bool {
        self.length <= other.length && self.contains(other.first)
    }
}

/// True if the leading bits of a number of so many are 0.
fn is_equal(differs: u128, bits: u8, leading: u8) -> bool {
    differs.checked_shr(u32::from(bits - leading)).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let refuse = || {
            "must be networks with commas between, such as \"10.0.0.0/8,fd00::/8\", or single addresses"
                .to_owned()
        };
        let (first, length) = match text.split_once('/') {
            Some((first, length)) => (first, Some(length)),
            None => (text, None),
        };
        let whole = Network::of(first.parse().map_err(|_| refuse())?);
        let is_plain = |length: &&str| length.bytes().all(|byte| byte.is_ascii_digit());
        let length = match length {
            None => whole.length,
            Some(length) => Some(length)
                .filter(is_plain)
                .and_then(|length| length.parse().ok())
                .filter(|length| *length <= whole.length)
                .ok_or_else(refuse)?,
        };
        let network = Network { length, ..whole };
        let first = match whole.first {
            IpAddr::V4(it) => {
                let mask = u32::MAX.checked_shl(u32::from(V4_BITS - length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() & mask))
            }
            IpAddr::V6(it) => {
                let mask = u128::MAX.checked_shl(u32::from(V6_BITS - length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() & mask))
            }
        };
        if first != network.first {
            return Err(format!("has bits after its length; {text} is in {first}/{length}"));
        }
        if meaning(first) != first {
            return Err(format!(
                "is another spelling of IPv4 addresses; {first} is {}",
                meaning(first)
            ));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

/// The IPv4 address to which an IPv6 address leads, whatever carries it there (RFC 4291, 6052, 3056, 4380); else the
/// address itself. A rule for IPv4 addresses that looks at their first spelling alone is passed by the others.
fn meaning(address: IpAddr) -> IpAddr {
    let IpAddr::V6(it) = address else { return address };
    let v4 = |high: u16, low: u16| {
        IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
    };
    match it.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        [0x2001, 0, _, _, _, _, high, low] => v4(!high, !low),
        _ => address,
    }
}

/// Addresses that no proxy has, unless a network of the setting is for such addresses alone: to allow all of an
/// organization's addresses, or all there are, is not to allow these.
const SPECIAL: [(&str, Network); 11] = [
    ("unspecified", Network::v4([0, 0, 0, 0], 8)),
    (LOOPBACK, Network::v4([127, 0, 0, 0], 8)),
    ("link-local", Network::v4([169, 254, 0, 0], 16)),
    ("multicast", Network::v4([224, 0, 0, 0], 4)),
    ("reserved or broadcast", Network::v4([240, 0, 0, 0], 4)),
    ("unspecified", Network::v6([0, 0, 0], 0, V6_BITS)),
    (LOOPBACK, Network::v6([0, 0, 0], 1, V6_BITS)),
    ("link-local", Network::v6([0xfe80, 0, 0], 0, 10)),
    ("multicast", Network::v6([0xff00, 0, 0], 0, 8)),
    // Only the network that translates them knows to which IPv4 addresses these lead (RFC 8215).
    ("translated to IPv4", Network::v6([0x64, 0xff9b, 1], 0, 48)),
    ("discarded", Network::v6([0x100, 0, 0], 0, 64)),
];
const LOOPBACK: &str = "loopback";
const OWN: &str = "an address of the gateway's host";

/// An address at which the gateway connects to no proxy that a caller registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    address: IpAddr,
    kind: Option<&'static str>,
    rule: String,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outside { address, kind, rule } = self;
        write!(f, "address {address}")?;
        if let Some(kind) = kind {
            write!(f, " ({kind})")?;
        }
        write!(
            f,
            " is outside of proxy_networks, which are {rule}; give an address within them, or ask the gateway's \
             administrator to widen proxy_networks, or to name this proxy in [[proxies]]"
        )
    }
}

/// The networks, and what is this gateway's own.
#[derive(Debug, Default)]
pub struct Networks {
    /// `None` for every address but the special ones and the gateway's own.
    pub named: Option<Vec<Network>>,
    /// Callers of the gateway are on this host, and reach loopback by themselves.
    pub serves_loopback_alone: bool,
    /// The addresses at which the gateway and its node listen.
    pub listeners: Vec<SocketAddr>,
    own: OwnAddresses,
}

impl Networks {
    pub fn new(
        named: Option<Vec<Network>>,
        listen: SocketAddr,
        others: Option<SocketAddr>,
    ) -> Networks {
        Networks {
            named,
            serves_loopback_alone: listen.ip().is_loopback(),
            listeners: others.into_iter().chain([listen]).collect(),
            own: OwnAddresses::default(),
        }
    }

    /// Judges an address to which the gateway is to connect, by what it means.
    ///
    /// # Errors
    ///
    /// When it is outside.
    pub fn judge(&self, address: SocketAddr) -> Result<(), Outside> {
        match self.own.look(clock::now()) {
            Some(own) => self.judge_among(address, &own),
            // Without knowing its own addresses, any one may be.
            None => Err(self.outside(meaning(address.ip()), Some("possibly the gateway's host"))),
        }
    }

    fn judge_among(&self, address: SocketAddr, own: &[IpAddr]) -> Result<(), Outside> {
        let ip = meaning(address.ip());
        let is_own = own.contains(&ip);
        let is_here = ip.is_loopback() || ip.is_unspecified() || is_own;
        let is_listener = |it: &SocketAddr| {
            let is_any = it.ip().is_unspecified() || ip.is_unspecified();
            it.port() == address.port() && (meaning(it.ip()) == ip || (is_any && is_here))
        };
        // A gateway that calls itself is its own caller, from loopback.
        if self.listeners.iter().any(is_listener) {
            return Err(self.outside(ip, Some("the gateway itself")));
        }
        let special = SPECIAL.iter().find(|(_, network)| network.contains(ip)).copied();
        let special = special.or_else(|| is_own.then_some((OWN, Network::of(ip))));
        let is_within = match (&self.named, special) {
            (None, None) => true,
            (None, Some((kind, _))) => kind == LOOPBACK && self.serves_loopback_alone,
            (Some(named), None) => named.iter().any(|it| it.contains(ip)),
            (Some(named), Some((_, special))) => {
                named.iter().any(|it| it.contains(ip) && special.covers(it))
            }
        };
        if is_within { Ok(()) } else { Err(self.outside(ip, special.map(|(kind, _)| kind))) }
    }

    fn outside(&self, address: IpAddr, kind: Option<&'static str>) -> Outside {
        let rule = match &self.named {
            None => {
                "all but this host's own, loopback, link-local and multicast addresses".to_owned()
            }
            Some(named) => show(named),
        };
        Outside { address, kind, rule }
    }
}

/// As the setting has them.
pub fn show(networks: &[Network]) -> String {
    networks.iter().map(Network::to_string).collect::<Vec<_>>().join(",")
}

/// The addresses of this host's interfaces, which come and go.
#[derive(Debug, Default)]
struct OwnAddresses(Mutex<Option<(Boottime, Arc<[IpAddr]>)>>);

impl OwnAddresses {
    /// The addresses, as the system told of them last; `None` if it never has.
    fn look(&self, now: Boottime) -> Option<Arc<[IpAddr]>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(at, _)| now.since(*at) >= OWN_KEPT_FOR) {
            match own_addresses() {
                Ok(own) => *known = Some((now, own)),
                Err(error) => {
                    tracing::warn!(%error, "the system does not tell this host's addresses");
                }
            }
        }
        known.as_ref().map(|(_, own)| Arc::clone(own))
    }
}

fn own_addresses() -> io::Result<Arc<[IpAddr]>> {
    let ip = |address: SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    };
    Ok(getifaddrs()?.filter_map(|interface| interface.address.and_then(ip)).map(meaning).collect())
}

#[cfg(test)]
#[path = "networks_tests.rs"]
mod tests;
