//! The gRPC services of Tenure's gateway. The files are in `protos/`; `src/generated/` is made from them, which a
//! test does again and compares.

#![forbid(unsafe_code)]

/// All files as one set of descriptors, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// Services of the neighbours of the control plane.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod prism {
    include!("generated/prism.rs");

    /// What administers them.
    pub mod admin {
        /// The control plane (RFC-049).
        pub mod v1 {
            include!("generated/prism.admin.v1.rs");
        }
    }
}

/// Tenure's own services.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod tenure {
    /// Routes of leases.
    pub mod v1 {
        include!("generated/tenure.v1.rs");
    }
}
