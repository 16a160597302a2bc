//! One connection, kept up.
