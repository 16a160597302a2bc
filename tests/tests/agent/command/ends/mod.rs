//! Each line of the page's tables of ends has trials here, which show what comes of the command, of the wrapper and of
//! the hold.

/// The lines of a table of docs/wrapper.md, each with its trials. A trial is a function beside them, and a test of its own,
/// which the table makes.
macro_rules! lines {
    ($heading:literal: $([$($cell:expr),+] is tried by $($trial:ident),+;)+) => {
        #[test]
        fn each_line_of_the_page_has_a_trial_and_says_what_is_tried() {
            super::page::check($heading, &[$([$($cell),+]),+]);
        }

        mod trials {
            $($(
                #[test]
                fn $trial() {
                    super::$trial();
                }
            )+)+
        }
    };
}

mod loss;
mod of_the_command;
mod of_the_hold;

use super::{page, scene, terminal};
