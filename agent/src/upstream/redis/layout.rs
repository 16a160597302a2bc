//! PURE. Names of keys and channels, and what a name is about.
