//! Characters that cannot be seen.

/// Control characters, separators and spaces but the ordinary one, bidi controls, fillers, variation
/// selectors, and characters without width: no two names differ by what cannot be seen. Letters of several
/// scripts that look alike are not told apart. The joiners
/// of Indic scripts, Persian and emoji stay: they change what is seen.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{ffff}'
            | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// A joiner that joins nothing: at an end, or beside a character that it cannot change.
pub(super) fn misplaced_joiner(value: &str) -> Option<char> {
    let is_joiner = |c: char| matches!(c, '\u{200c}' | '\u{200d}');
    // Scripts from Arabic on, and signs such as emoji; neither the letters of Europe nor those of East Asia.
    let can_change = |c: char| {
        matches!(c, '\u{600}'..='\u{1dff}' | '\u{2190}'..='\u{2bff}' | '\u{a800}'..='\u{abff}'
            | '\u{10000}'..='\u{1ffff}')
    };
    let joins = |c: Option<char>| c.is_some_and(can_change);
    let mut before = None;
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        if is_joiner(c) && !(joins(before) && joins(rest.clone().next())) {
            return Some(c);
        }
        before = Some(c);
    }
    None
}
