//! Text of other programs on a terminal.

/// True for a character that moves a terminal's cursor, colours it, or turns the order in which text is shown.
pub fn steers_terminal(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_the_order_of_text_steers_as_well() {
        assert!("\u{1b}\n\u{9b}\u{202e}\u{2066}\u{200f}\u{61c}".chars().all(steers_terminal));
        assert!(!"a ü-\u{fffd}…\u{5d0}\u{200d}".chars().any(steers_terminal));
    }
}
