//! Reasons for which callers are not admitted, or not any longer.

/// The reason for which a caller is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stranger {
    #[error("a key is needed, in the header Authorization: Bearer KEY")]
    NoKey,
    /// One text for unknown, revoked and expired keys, so that a caller who guesses keys learns nothing.
    #[error(
        "this key is not known, was revoked, or has expired; one that was just added to the store is known within \
         seconds, one in a file once the gateway has read that again; else ask the gateway's administrator for another"
    )]
    WrongKey,
    #[error("a certificate is needed that names one spiffe:// URI, or has one common name")]
    NoCertificate,
    /// A key that the gateway does not know, while the store does not answer.
    #[error("whether this key is good cannot be told while the store does not answer; try again")]
    Doubtful,
    #[error(
        "this is a join key, good for nothing but the exchange for an agent's own: put it into upstream_secret_file of \
         one agent, and restart that"
    )]
    JoinKey,
    #[error(
        "this join key was exchanged for an agent's own already; ask the gateway's administrator for another"
    )]
    UsedJoinKey,
    #[error("the certificate of this connection has expired; connect again with a new one")]
    Expired,
    #[error(
        "the header identity_header is accepted from the addresses in trusted_proxies alone, and this request comes from \
         another; go through the proxy, or show a key"
    )]
    NoProxy,
    #[error(
        "the proxy must name one person in the header identity_header, in ASCII and without a comma, such as an e-mail \
         address, and replace what the client sent there"
    )]
    NoIdentity,
    #[error(
        "no section [[people]] of the gateway's configuration has a `who` that matches this person"
    )]
    Unlisted,
    #[error(
        "a change by a person whom a proxy signed in needs the header Origin, or Sec-Fetch-Site: same-origin; use the \
         status page"
    )]
    NoOrigin,
}

/// The reason for which an admission is no longer valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lapse {
    /// The certificate has expired, or the key is no longer valid, or is another principal's.
    #[error(transparent)]
    Key(#[from] Stranger),
    #[error("the bounds of this key were changed; connect again to go by the new ones")]
    Bounds,
}
