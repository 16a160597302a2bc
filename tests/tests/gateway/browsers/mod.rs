//! Web pages of others: what a browser sends for them reaches nothing, and what is their own page's does.

mod keys;
mod pages;
mod requests;
