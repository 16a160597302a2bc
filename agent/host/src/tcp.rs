//! The user at the other end of a TCP connection of this host, by the kernel's word.

use std::io;
use std::net::SocketAddr;

/// True on systems that tell.
pub const IS_TOLD: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The user of this process.
pub fn own_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The user whose process has the far end of a connection, if both ends are of this network namespace. `near` is the
/// address of this end, and `far` that of the other one. Where a user namespace has no number for that user, it is that
/// of nobody.
///
/// `None` if no process has that end: it is not accepted yet, or its process has closed it. The kernel would call
/// its user 0.
///
/// # Errors
///
/// When the kernel does not tell.
pub fn user_at(near: SocketAddr, far: SocketAddr) -> io::Result<Option<u32>> {
    imp::user_at(near, far)
}

/// True if that number may stand for several users: those that have none in this process's user namespace.
pub fn is_nobody_in_particular(uid: u32) -> bool {
    imp::is_nobody_in_particular(uid)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use super::{SocketAddr, io};

    pub(super) fn user_at(_: SocketAddr, _: SocketAddr) -> io::Result<Option<u32>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn is_nobody_in_particular(_: u32) -> bool {
        false
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use std::fs::{self, File};
    use std::io::{self, BufRead, BufReader};
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
        socket,
    };

    /// `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST` and `NLMSG_ERROR` of linux/sock_diag.h and linux/netlink.h.
    const BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const ERROR: u16 = 2;
    const NETLINK_HEAD: usize = 16;
    /// States of include/net/tcp_states.h: both ends of a connection that ends are of no process, and a socket that listens
    /// is none of its ends.
    const TIME_WAIT: u8 = 6;
    const LISTEN: u8 = 10;
    const REPLY_BYTES_MAX: usize = 4096;
    /// The columns of /proc/net/tcp.
    const NEAR: usize = 1;
    const FAR: usize = 2;
    const STATE: usize = 3;
    const UID: usize = 7;
    const INODE: usize = 9;

    pub(super) fn user_at(near: SocketAddr, far: SocketAddr) -> io::Result<Option<u32>> {
        let [near, far] = [near, far].map(|it| SocketAddr::new(it.ip().to_canonical(), it.port()));
        // Services and containers may have no netlink. The table is read from end to end, with all connections of the host.
        ask(near, far).or_else(|_| look_up(near, far))
    }

    pub(super) fn is_nobody_in_particular(uid: u32) -> bool {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        let all = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        !all && overflow.trim().parse().unwrap_or(65534) == uid
    }

    /// Has the kernel look for the far socket alone.
    fn ask(near: SocketAddr, far: SocketAddr) -> io::Result<Option<u32>> {
        let netlink = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        let question = question(near, far);
        let kernel = NetlinkAddr::new(0, 0);
        sendto(netlink.as_raw_fd(), &question, &kernel, MsgFlags::empty())?;
        let mut reply = [0; REPLY_BYTES_MAX];
        // The answer is there when the question has been sent.
        let length = recv(netlink.as_raw_fd(), &mut reply, MsgFlags::MSG_DONTWAIT)?;
        understand(reply.get(..length).unwrap_or_default(), near)
    }

    /// A `nlmsghdr`, and the `inet_diag_req_v2` of linux/inet_diag.h.
    fn question(near: SocketAddr, far: SocketAddr) -> Vec<u8> {
        let family = if far.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let address = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => [&ip.octets()[..], &[0; 12]].concat(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let mut body = vec![u8::try_from(family).unwrap_or_default(), 6, 0, 0];
        body.extend([0xff; 4]);
        body.extend(far.port().to_be_bytes());
        body.extend(near.port().to_be_bytes());
        body.extend(address(far.ip()));
        body.extend(address(near.ip()));
        // Any interface, and any cookie.
        body.extend([0; 4]);
        body.extend([0xff; 8]);
        let length = u32::try_from(NETLINK_HEAD + body.len()).unwrap_or_default();
        let mut head = length.to_ne_bytes().to_vec();
        head.extend(BY_FAMILY.to_ne_bytes());
        head.extend(REQUEST.to_ne_bytes());
        head.extend([0; 8]);
        [head, body].concat()
    }

    /// The user in an `inet_diag_msg`.
    fn understand(reply: &[u8], near: SocketAddr) -> io::Result<Option<u32>> {
        let short = || io::Error::from(io::ErrorKind::InvalidData);
        let four = |at: usize| -> io::Result<[u8; 4]> {
            reply.get(at..at + 4).and_then(|it| it.try_into().ok()).ok_or_else(short)
        };
        let [_, _, kind @ ..] = four(2)?;
        if u16::from_ne_bytes(kind) == ERROR {
            let error = i32::from_ne_bytes(four(NETLINK_HEAD)?);
            let error = io::Error::from_raw_os_error(-error);
            return match error.kind() {
                io::ErrorKind::NotFound => Ok(None),
                _ => Err(error),
            };
        }
        let [_, state, _, _] = four(NETLINK_HEAD)?;
        let [_, _, port @ ..] = four(NETLINK_HEAD + 4)?;
        let uid = u32::from_ne_bytes(four(NETLINK_HEAD + 64)?);
        let inode = u32::from_ne_bytes(four(NETLINK_HEAD + 68)?);
        // Without such a connection the kernel answers with the socket that listens at the far address.
        let is_it =
            u16::from_be_bytes(port) == near.port() && ![LISTEN, TIME_WAIT].contains(&state);
        Ok((is_it && inode != 0).then_some(uid))
    }

    /// Looks for the far socket in the table of all. One of IPv6 may have an address of IPv4.
    fn look_up(near: SocketAddr, far: SocketAddr) -> io::Result<Option<u32>> {
        let words = |it: &[u8]| -> String {
            let words = it.chunks_exact(4).filter_map(|four| <[u8; 4]>::try_from(four).ok());
            words.map(|four| format!("{:08X}", u32::from_ne_bytes(four))).collect()
        };
        let v6 = |it: SocketAddr| match it.ip() {
            IpAddr::V4(ip) => format!("{}:{:04X}", words(&ip.to_ipv6_mapped().octets()), it.port()),
            IpAddr::V6(ip) => format!("{}:{:04X}", words(&ip.octets()), it.port()),
        };
        if let (IpAddr::V4(near_ip), IpAddr::V4(far_ip)) = (near.ip(), far.ip()) {
            let [one, other] = [(far_ip, far), (near_ip, near)]
                .map(|(ip, it)| format!("{}:{:04X}", words(&ip.octets()), it.port()));
            if let Some(uid) = in_table("/proc/self/net/tcp", &one, &other)? {
                return Ok(Some(uid));
            }
        }
        match in_table("/proc/self/net/tcp6", &v6(far), &v6(near)) {
            // A kernel without IPv6 has none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found,
        }
    }

    fn in_table(table: &str, own: &str, other: &str) -> io::Result<Option<u32>> {
        for line in BufReader::with_capacity(1 << 16, File::open(table)?).lines() {
            let line = line?;
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let column = |at: usize| columns.get(at).copied().unwrap_or_default();
            if column(NEAR) != own || column(FAR) != other {
                continue;
            }
            let state = u8::from_str_radix(column(STATE), 16).unwrap_or(LISTEN);
            let is_of_process = column(INODE) != "0" && ![LISTEN, TIME_WAIT].contains(&state);
            return Ok(column(UID).parse().ok().filter(|_| is_of_process));
        }
        Ok(None)
    }

    #[cfg(test)]
    mod tests {
        use std::net::{TcpListener, TcpStream};

        use super::*;

        type Way = fn(SocketAddr, SocketAddr) -> io::Result<Option<u32>>;

        #[track_caller]
        fn check(listen: &str, connect: impl Fn(u16) -> String) {
            let own = nix::unistd::geteuid().as_raw();
            let listener = TcpListener::bind(listen).unwrap();
            let dialed =
                TcpStream::connect(connect(listener.local_addr().unwrap().port())).unwrap();
            let (near, far) = (dialed.local_addr().unwrap(), dialed.peer_addr().unwrap());
            let both: [Way; 2] = [ask, look_up];
            let canonical = |it: SocketAddr| SocketAddr::new(it.ip().to_canonical(), it.port());
            let [near, far] = [near, far].map(canonical);
            for user in both {
                assert_eq!(user(near, far).unwrap(), None, "{listen}: nobody has accepted it");
            }
            let (accepted, _) = listener.accept().unwrap();
            for user in both {
                assert_eq!(user(near, far).unwrap(), Some(own), "{listen}");
                assert_eq!(user(far, near).unwrap(), Some(own), "{listen}");
            }
            // A connection that a caller has left behind is not root's.
            drop(dialed);
            for user in both {
                assert_eq!(user(far, near).unwrap(), None, "{listen}: its process has closed it");
            }
            drop(accepted);
            for user in both {
                assert_eq!(user(near, far).unwrap(), None, "{listen}: it has ended");
            }
        }

        #[test]
        fn the_user_of_an_end_is_known_as_long_as_a_process_has_it() {
            check("127.0.0.1:0", |port| format!("127.0.0.1:{port}"));
            if TcpListener::bind("[::1]:0").is_ok() {
                check("[::1]:0", |port| format!("[::1]:{port}"));
                check("[::]:0", |port| format!("127.0.0.1:{port}"));
            }
        }
    }
}
