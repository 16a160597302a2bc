//! Pure. Keys: `tnr_`, or `tnj_` for one that an agent exchanges for its own, then an id of 8 characters, a secret of 32 random bytes in base64url, and a CRC-32 by which
//! scanners for lost secrets tell a key from other text.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const PREFIX: &str = "tnr_";
const JOIN_PREFIX: &str = "tnj_";
const ID_LENGTH: usize = 8;
const SECRET_BYTES: usize = 32;
/// 32 bytes in base64url, without padding.
const SECRET_LENGTH: usize = 43;
const CHECK_LENGTH: usize = 8;
const ID_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The name of a key, which is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; ID_LENGTH]);

impl KeyId {
    /// The id with that text.
    pub fn parse(text: &str) -> Option<KeyId> {
        let id: [u8; ID_LENGTH] = text.as_bytes().try_into().ok()?;
        id.iter().all(|byte| ID_ALPHABET.contains(byte)).then_some(KeyId(id))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{}", char::from(*byte)))
    }
}

/// The SHA-256 of a key's secret, which is all that is kept of it.
#[derive(Clone, Copy)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    fn of(secret: &str) -> SecretHash {
        SecretHash(Sha256::digest(secret).into())
    }

    /// The hash of no secret: what unknown keys are compared with.
    pub const fn of_nothing() -> SecretHash {
        SecretHash([0; 32])
    }

    /// The hash with that text of 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<SecretHash> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(SecretHash(hash))
    }

    /// True if it is the hash of the key's secret. Takes as long whatever differs.
    pub fn is_of(&self, key: &Shown<'_>) -> bool {
        SecretHash::of(key.secret).0.ct_eq(&self.0).into()
    }
}

impl fmt::Display for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash")
    }
}

/// A key that somebody shows. It has the form of one, and may be known or not.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub id: KeyId,
    secret: &'a str,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shown({})", self.id)
    }
}

impl<'a> Shown<'a> {
    /// Reads a key that is to be exchanged; `None` if the text is none.
    pub fn parse_join(text: &'a str) -> Option<Shown<'a>> {
        Shown::parse(text).filter(|_| text.starts_with(JOIN_PREFIX))
    }

    /// The only part that is kept.
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(self.secret)
    }

    /// Reads a key; `None` if the text is none.
    pub fn parse(text: &'a str) -> Option<Shown<'a>> {
        if text.len() != PREFIX.len() + ID_LENGTH + SECRET_LENGTH + CHECK_LENGTH {
            return None;
        }
        let (signed, check) = text.split_at_checked(text.len() - CHECK_LENGTH)?;
        if check != checksum(signed) {
            return None;
        }
        let rest = signed.strip_prefix(PREFIX).or_else(|| signed.strip_prefix(JOIN_PREFIX))?;
        let (id, secret) = rest.split_at_checked(ID_LENGTH)?;
        Some(Shown { id: KeyId::parse(id)?, secret })
    }
}

fn checksum(signed: &str) -> String {
    format!("{:08x}", crc32fast::hash(signed.as_bytes()))
}

/// A key that was just made, to be shown once.
pub struct New {
    pub text: String,
    pub id: KeyId,
    pub hash: SecretHash,
}

impl fmt::Debug for New {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "New({})", self.id)
    }
}

impl New {
    /// Makes a key.
    ///
    /// # Errors
    ///
    /// When the system gives no randomness.
    pub fn make() -> Result<New, getrandom::Error> {
        New::with(PREFIX)
    }

    /// Makes a key that is to be exchanged.
    ///
    /// # Errors
    ///
    /// When the system gives no randomness.
    pub fn make_join() -> Result<New, getrandom::Error> {
        New::with(JOIN_PREFIX)
    }

    fn with(prefix: &str) -> Result<New, getrandom::Error> {
        let (mut id, mut secret) = ([0; ID_LENGTH], [0; SECRET_BYTES]);
        getrandom::fill(&mut id)?;
        getrandom::fill(&mut secret)?;
        let letter = |byte: &u8| ID_ALPHABET.get(usize::from(byte % 32)).copied().unwrap_or(b'a');
        let id = KeyId(id.each_ref().map(letter));
        let secret = base64url(&secret);
        let signed = format!("{prefix}{id}{secret}");
        let text = format!("{signed}{}", checksum(&signed));
        Ok(New { text, id, hash: SecretHash::of(&secret) })
    }
}

fn base64url(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
        let number = number << (8 * (3 - chunk.len()));
        let letters = (0..=chunk.len()).map(|at| number >> (18 - 6 * at) & 63);
        text.extend(letters.filter_map(|letter| BASE64URL.get(letter)).copied().map(char::from));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_that_of_rfc_4648() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (b"fooba", "Zm9vYmE"),
            (b"foobar", "Zm9vYmFy"),
            (b"\xfb\xff", "-_8"),
        ] {
            assert_eq!(base64url(bytes), text);
        }
    }

    #[test]
    fn a_key_is_known_by_its_form_and_its_secret() {
        let New { text, id, hash } = New::make().unwrap();
        assert!(text.starts_with(&format!("tnr_{id}")) && text.len() == 63, "{text}");
        let shown = Shown::parse(&text).unwrap();
        assert!(shown.id == id && hash.is_of(&shown));
        assert!(!SecretHash::of_nothing().is_of(&shown));
        assert!(!New::make().unwrap().hash.is_of(&shown));
        let kept = SecretHash::parse(&hash.to_string()).unwrap();
        assert!(kept.is_of(&shown));
        assert!(!format!("{shown:?} {hash:?}").contains(&hash.to_string()));
        assert!(!format!("{shown:?}").contains(&text[12..]));
    }

    #[test]
    fn what_is_no_key_is_not_looked_up() {
        let New { text, .. } = New::make().unwrap();
        let other = if text.ends_with('0') { "1" } else { "0" };
        let wrong_check = format!("{}{other}", &text[..text.len() - 1]);
        let upper = text.to_uppercase();
        for wrong in
            ["", "tnr_", &text[1..], &format!("{text}0"), &wrong_check, &upper, &"ä".repeat(32)]
        {
            assert!(Shown::parse(wrong).is_none(), "{wrong}");
        }
        assert!(KeyId::parse("abcd567").is_none() && KeyId::parse("abcd5670").is_none());
    }
}
