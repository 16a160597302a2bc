//! Names with wildcards.

/// True if `glob`, in which `*` is any text and `?` any letter, covers the whole of `text`.
///
/// Without classes and braces: names of resources have brackets of their own.
pub(super) fn covers(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let mut at = 0;
    let mut seen = 0;
    // The last star, and how much of the text it covers: more is tried when the rest does not fit.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match (glob.get(at), star) {
            (Some('*'), _) => {
                star = Some((at, seen));
                at += 1;
            }
            (Some(letter), _) if *letter == '?' || *letter == text[seen] => {
                at += 1;
                seen += 1;
            }
            (_, Some((before, covered))) => {
                star = Some((before, covered + 1));
                at = before + 1;
                seen = covered + 1;
            }
            (_, None) => return false,
        }
    }
    glob[at..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_cover() {
        let check = |glob, text, covered| assert_eq!(covers(glob, text), covered, "{glob} {text}");
        check("leader/nightly", "leader/nightly", true);
        check("leader/night", "leader/nightly", false);
        check("leader/*", "leader/a/b", true);
        check("*night*", "leader/nightly", true);
        check("*ab*ab", "leader/abcabxab", true);
        check("web-?", "web-7", true);
        check("web-?", "web-17", false);
        check("*", "", true);
        check("", "a", false);
        check("grü?e", "grüße", true);
    }
}
