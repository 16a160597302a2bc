//! Passwords.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// A password. Printed as `***`, and wiped from memory when it is dropped.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Takes a password.
    pub fn new(password: impl Into<String>) -> Secret {
        Secret(SecretString::from(password.into()))
    }

    /// The password itself, for the server alone.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// To notice that a password was changed; nobody is let in by this comparison.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}
