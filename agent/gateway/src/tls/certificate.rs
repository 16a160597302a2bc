//! PURE: what a certificate says of its owner, and until when. Whether it is good is rustls' to decide.

use rustls::pki_types::{CertificateDer, ServerName};
use tenure_service::browsers::{Host, HostList};
use webpki::EndEntityCert;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate, which is optional.
const VERSION: u8 = 0xa0;
/// 2.5.4.3, the common name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The beginning of the name of a workload.
const SPIFFE: &str = "spiffe://";

/// What a certificate says of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The one `spiffe://` URI; without one, the common name of the subject.
    pub principal: String,
    /// s since 1970.
    pub expires_at: u64,
}

impl Names {
    /// `None` if it has no name, or several workloads, or no end.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Names> {
        let expires_at = expires_at(certificate)?;
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        let mut workloads = parsed.valid_uri_names().filter(|uri| uri.starts_with(SPIFFE));
        let principal = match (workloads.next(), workloads.next()) {
            (Some(uri), None) => uri.to_owned(),
            (Some(_), Some(_)) => return None,
            (None, _) => common_name(parsed.subject())?,
        };
        Some(Names { principal, expires_at })
    }
}

/// The hosts that a certificate is for.
#[derive(Debug, Default)]
pub(super) struct CertifiedHosts {
    names: HostList,
    /// Its addresses can be asked for, and not be listed.
    certificate: Option<CertificateDer<'static>>,
}

impl CertifiedHosts {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> CertifiedHosts {
        let Ok(parsed) = EndEntityCert::try_from(certificate) else {
            return CertifiedHosts::default();
        };
        let names = HostList::of_names(parsed.valid_dns_names());
        CertifiedHosts { names, certificate: Some(certificate.clone().into_owned()) }
    }

    pub(super) fn has(&self, host: &Host<'_>) -> bool {
        let Host::Address(address) = host else { return self.names.has(host) };
        let Some(certificate) = &self.certificate else { return false };
        let name = ServerName::from(*address);
        EndEntityCert::try_from(certificate)
            .is_ok_and(|parsed| parsed.verify_is_valid_for_subject_name(&name).is_ok())
    }
}

/// When a certificate expires, in s since 1970.
pub fn expires_at(certificate: &[u8]) -> Option<u64> {
    let (signed, _) = element_of(SEQUENCE, certificate)?;
    let (mut rest, _) = element_of(SEQUENCE, signed)?;
    if let Some((_, after)) = element_of(VERSION, rest) {
        rest = after;
    }
    // Its serial number, the algorithm of its signature, its issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (validity, _) = element_of(SEQUENCE, rest)?;
    let (_, _, end) = element(validity)?;
    let (tag, time, _) = element(end)?;
    seconds(tag, std::str::from_utf8(time).ok()?)
}

/// The only common name of a subject.
fn common_name(mut subject: &[u8]) -> Option<String> {
    let mut found = None;
    while !subject.is_empty() {
        let (mut names, after) = element_of(SET, subject)?;
        subject = after;
        while !names.is_empty() {
            let (name, after) = element_of(SEQUENCE, names)?;
            names = after;
            let (kind, value) = element_of(OID, name)?;
            if kind != COMMON_NAME {
                continue;
            }
            let (UTF8_STRING | PRINTABLE_STRING, text, _) = element(value)? else { return None };
            let text = std::str::from_utf8(text).ok()?;
            if found.replace(text.to_owned()).is_some() {
                return None;
            }
        }
    }
    found
}

/// The tag of the first element, its content, and what comes after.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The content of the first element if it has this tag, and what comes after.
fn element_of(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

/// s since 1970 of YYMMDDhhmmssZ or YYYYMMDDhhmmssZ.
fn seconds(tag: u8, text: &str) -> Option<u64> {
    let (year, rest) = match tag {
        UTC_TIME => {
            let year = number(text.get(..2)?)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (number(text.get(..4)?)?, text.get(4..)?),
        _ => return None,
    };
    if rest.len() != 11 || !rest.ends_with('Z') {
        return None;
    }
    let two = |at: usize| number(rest.get(at..at + 2)?);
    let (month, day) = (two(0)?, two(2)?);
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    // Years begin in March here, so that a leap day is the last one. Counted from 1 March of year 0.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(DAYS_TO_1970)?;
    Some(((days * 24 + two(4)?) * 60 + two(6)?) * 60 + two(8)?)
}

/// From 1 March of year 0 to 1970.
const DAYS_TO_1970: u64 = 719_468;

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "261122221331Z", Some(1_795_385_611)),
            (UTC_TIME, "000229120000Z", Some(951_825_600)),
            (UTC_TIME, "000301000000Z", Some(951_868_800)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "690101000000Z", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "70010100000+Z", None),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "", None),
            (SEQUENCE, "700101000000Z", None),
        ] {
            assert_eq!(seconds(tag, text), expected, "{text}");
        }
    }

    #[test]
    fn a_subject_has_one_common_name_or_none() {
        let name = |oid: &[u8], tag: u8, text: &[u8]| {
            let wrap = |tag: u8, content: &[u8]| {
                [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
            };
            let pair = [wrap(OID, oid), wrap(tag, text)].concat();
            wrap(SET, &wrap(SEQUENCE, &pair))
        };
        let organisation = name(&[0x55, 0x04, 0x0a], UTF8_STRING, b"acme");
        let common = name(COMMON_NAME, UTF8_STRING, b"laptop-7");
        assert_eq!(common_name(&common).as_deref(), Some("laptop-7"));
        let both = [organisation.clone(), common.clone()].concat();
        assert_eq!(common_name(&both).as_deref(), Some("laptop-7"));
        assert_eq!(common_name(&organisation), None);
        assert_eq!(common_name(&common.repeat(2)), None);
        assert_eq!(common_name(&name(COMMON_NAME, 0x1e, b"\0x")), None);
        for length in 0..common.len() {
            let cut = common.get(..length).unwrap();
            assert_eq!(common_name(cut), None);
            assert_eq!(expires_at(cut), None);
        }
    }
}
