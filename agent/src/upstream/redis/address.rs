//! Where a Redis is, and how to sign in.
