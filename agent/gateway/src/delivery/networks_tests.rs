use super::*;

const LISTEN: &str = "127.0.0.1:8740";
const OWN_ADDRESS: &str = "10.1.2.3";

fn networks(named: Option<&str>, listen: &str) -> Networks {
    let named = named.map(|it| it.split(',').map(|one| one.parse().unwrap()).collect());
    Networks::new(named, listen.parse().unwrap(), Some("127.0.0.1:8741".parse().unwrap()))
}

#[track_caller]
fn judged(networks: &Networks, cases: &[(&str, bool)]) {
    let own = [OWN_ADDRESS.parse().unwrap()];
    for (address, is_good) in cases {
        let judged = networks.judge_among(address.parse().unwrap(), &own);
        assert_eq!(judged.is_ok(), *is_good, "{address}: {judged:?}");
    }
}

/// Spellings of one IPv4 address in IPv6.
fn spellings(of: Ipv4Addr, port: u16) -> Vec<String> {
    let [a, b, c, d] = of.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    [
        format!("{of}:{port}"),
        format!("[::ffff:{of}]:{port}"),
        format!("[::{of}]:{port}"),
        format!("[::ffff:0:{of}]:{port}"),
        format!("[64:ff9b::{of}]:{port}"),
        format!("[2002:{high:x}:{low:x}::1]:{port}"),
        format!("[2001:0:1::{:x}:{:x}]:{port}", !high, !low),
    ]
    .into()
}

#[test]
fn an_address_is_judged_by_what_it_means() {
    let networks = networks(None, "0.0.0.0:8740");
    for (address, is_good) in [
        ("93.184.215.14", true),
        ("10.0.0.7", true),
        (OWN_ADDRESS, false),
        ("127.0.0.1", false),
        ("127.9.9.9", false),
        ("169.254.169.254", false),
        ("0.0.0.9", false),
        ("224.0.0.1", false),
        ("255.255.255.255", false),
    ] {
        for spelling in spellings(address.parse().unwrap(), 80) {
            judged(&networks, &[(&spelling, is_good)]);
        }
    }
    judged(
        &networks,
        &[
            ("[::]:80", false),
            ("[::1]:80", false),
            ("[fe80::1]:80", false),
            ("[febf::1]:80", false),
            ("[ff02::1]:80", false),
            ("[64:ff9b:1::a00:1]:80", false),
            ("[fd00::1]:80", true),
            ("[2606:4700::1111]:80", true),
        ],
    );
}

#[test]
fn loopback_is_for_a_gateway_that_serves_loopback_alone_but_never_itself() {
    let networks = networks(None, LISTEN);
    judged(
        &networks,
        &[
            ("127.0.0.1:80", true),
            ("[::1]:80", true),
            ("127.0.0.1:8740", false),
            ("127.0.0.1:8741", false),
            ("[::ffff:127.0.0.1]:8740", false),
            ("0.0.0.0:8740", false),
            ("10.1.2.3:80", false),
            ("169.254.169.254:80", false),
        ],
    );
    let all = Networks::new(
        Some(vec!["127.0.0.0/8".parse().unwrap(), "10.1.2.3".parse().unwrap()]),
        "[::]:8740".parse().unwrap(),
        None,
    );
    judged(
        &all,
        &[
            ("127.0.0.1:8740", false),
            ("127.3.3.3:8740", false),
            ("10.1.2.3:8740", false),
            ("127.0.0.1:80", true),
            ("10.1.2.3:80", true),
            ("10.0.0.7:80", false),
        ],
    );
}

#[test]
fn a_wide_network_does_not_open_special_addresses() {
    judged(
        &networks(Some("0.0.0.0/0,::/0"), LISTEN),
        &[
            ("10.0.0.7:80", true),
            ("[fd00::1]:80", true),
            ("169.254.169.254:80", false),
            ("127.0.0.1:80", false),
            ("[::1]:80", false),
            ("10.1.2.3:80", false),
        ],
    );
    judged(
        &networks(Some("169.254.7.0/24,::1"), LISTEN),
        &[
            ("169.254.7.1:80", true),
            ("169.254.169.254:80", false),
            ("[::1]:80", true),
            ("127.0.0.1:80", false),
            ("10.0.0.7:80", false),
        ],
    );
}

#[test]
fn a_refusal_names_the_address_the_setting_and_the_way_out() {
    let networks = networks(Some("10.0.0.0/8,fd00::/8"), LISTEN);
    let outside = networks.judge_among("[64:ff9b::a9fe:a9fe]:80".parse().unwrap(), &[]);
    assert_eq!(
        outside.unwrap_err().to_string(),
        "address 169.254.169.254 (link-local) is outside of proxy_networks, which are 10.0.0.0/8,fd00::/8; give an \
         address within them, or ask the gateway's administrator to widen proxy_networks, or to name this proxy in \
         [[proxies]]"
    );
}

#[test]
fn a_network_is_written_in_one_way() {
    for text in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "fd00::/8", "10.0.0.7/32", "::1/128"] {
        assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
    }
    assert_eq!("10.0.0.7".parse::<Network>().unwrap().to_string(), "10.0.0.7/32");
    for (text, words) in [
        ("", "must be networks"),
        ("10.0.0.0/33", "must be networks"),
        ("10.0.0.0/+8", "must be networks"),
        ("10.0.0.0/", "must be networks"),
        ("host/8", "must be networks"),
        ("10.1.0.0/8", "is in 10.0.0.0/8"),
        ("::ffff:10.0.0.0/104", "another spelling of IPv4 addresses; ::ffff:10.0.0.0 is 10.0.0.0"),
    ] {
        let error = text.parse::<Network>().unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn the_addresses_of_this_host_are_its_own() {
    let own = OwnAddresses::default().look(clock::now()).unwrap();
    assert!(own.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{own:?}");
}
