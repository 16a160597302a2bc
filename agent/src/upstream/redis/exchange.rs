//! PURE. Requests become script calls, and their replies answers.
