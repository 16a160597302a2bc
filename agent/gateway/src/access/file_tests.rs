//! Files of keys.

use super::*;

fn line(new: &New, principal: &str, more: &str) -> String {
    let New { id, hash, .. } = new;
    format!("[[key]]\nid = \"{id}\"\nprincipal = \"{principal}\"\nsha256 = \"{hash}\"\n{more}\n")
}

#[test]
fn two_keys_of_a_principal_are_one_caller() {
    let news: Vec<_> = (0..4).map(|_| New::make().unwrap()).collect();
    let text = [
        line(&news[0], "laptop-7", ""),
        line(&news[1], "laptop-7", ""),
        line(&news[2], "laptop-8", "expires_at = 100"),
    ];
    let keys = Keys::parse(&text.concat()).unwrap();
    let shown: Vec<_> = news.iter().map(|new| Shown::parse(&new.text).unwrap()).collect();
    let [first, second] = [0, 1].map(|at| keys.admission(0, &shown[at]).unwrap().principal);
    assert_eq!((&*first.name, first.mark), ("laptop-7", second.mark));
    let third = keys.admission(99, &shown[2]).unwrap().principal;
    assert_ne!(third.mark, first.mark);
    assert!(keys.admission(100, &shown[2]).is_none(), "it has expired");
    let bounds = keys.admission(99, &shown[2]).unwrap().bounds;
    let still = |now, of: &New| keys.still_lets_in(now, of.id, (&third, &bounds));
    assert_eq!(still(99, &news[2]), Ok(()));
    assert_eq!(still(100, &news[2]), Err(Lapse::Key(Stranger::WrongKey)));
    assert_eq!(still(0, &news[0]), Err(Stranger::WrongKey.into()), "it is somebody else's");
    assert!(keys.admission(0, &shown[3]).is_none(), "it is not there");
}

#[test]
fn a_right_id_with_a_wrong_secret_is_nobody() {
    let (right, other) = (New::make().unwrap(), New::make().unwrap());
    let mixed = New { text: String::new(), id: right.id, hash: other.hash };
    let keys = Keys::parse(&line(&mixed, "p", "")).unwrap();
    assert!(keys.admission(0, &Shown::parse(&right.text).unwrap()).is_none());
}

#[test]
fn what_is_wrong_is_named_and_not_quoted() {
    let new = New::make().unwrap();
    let good = line(&new, "p", "");
    let id = new.id;
    for (text, expected) in [
        (good.repeat(2), format!("key \"{id}\": is there twice")),
        (line(&new, "", ""), format!("key \"{id}\": principal must be 1 to 200")),
        (good.replace("sha256 = \"", "sha256 = \"0"), format!("key \"{id}\": sha256 must be 64")),
        (
            line(&new, "p", "[key.bounds]\ntenant = [\"a\"]"),
            "is no TOML with sections [[key]]: unknown field".to_owned(),
        ),
        (
            line(&new, "p", "[key.bounds]\nkinds = [\"lock\"]"),
            format!("key \"{id}\": kinds = \"lock\": must be master, leader"),
        ),
        (
            line(&new, "p", "[key.bounds]\nnames = [\"a[\"]"),
            format!("key \"{id}\": names = \"a[\": unclosed character class"),
        ),
        (
            line(&new, "p", "[key.bounds]\nttl_max = \"long\""),
            format!("key \"{id}\": ttl_max = \"long\": must be a duration"),
        ),
        (line(&new, "p", "role = 1"), "is no TOML with sections [[key]]: unknown field".to_owned()),
        (format!("secret = \"{}\"", new.text), "is no TOML with sections [[key]]: ".to_owned()),
    ] {
        let refusal = Keys::parse(&text).unwrap_err().to_string();
        assert!(refusal.starts_with(&expected), "{refusal}");
        assert!(!refusal.contains(&new.text), "{refusal}");
    }
    assert_eq!(Keys::parse("").unwrap().count(), 0);
}

#[test]
fn a_line_is_read_as_it_was_meant_and_a_reload_keeps_what_a_principal_has() {
    let (new, other) = (New::make().unwrap(), New::make().unwrap());
    let bounds = WrittenBounds {
        tenants: Some(vec!["acme".to_owned()]),
        ttl_max: Some("30s".to_owned()),
        priority_max: Some(-1),
        ..WrittenBounds::default()
    };
    let text = Keys::line(&new, "p", Some(9), &bounds).unwrap();
    let keys = Keys::parse(&text).unwrap();
    let [listed] = &keys.list()[..] else { panic!("one key") };
    assert_eq!((listed.id, listed.principal, listed.expires_at), (new.id, "p", Some(9)));
    assert_eq!(*listed.bounds, bounds);
    let wrong = WrittenBounds { kinds: Some(vec!["x".to_owned()]), ..bounds.clone() };
    Keys::line(&new, "p", None, &wrong).unwrap_err();

    let rest = Keys::line(&other, "p", None, &WrittenBounds::default()).unwrap();
    let mut later = Keys::parse(&rest).unwrap();
    later.adopt(&keys);
    let principal = &keys.principals["p"];
    assert!(Arc::ptr_eq(&later.principals["p"], principal));
    let right = later.admission(0, &Shown::parse(&other.text).unwrap()).unwrap();
    assert!(Arc::ptr_eq(&right.principal, principal));
    assert!(Arc::ptr_eq(later.owner(principal.mark.scoped(Uuid::nil())).unwrap(), principal));
    let mut changes = vec![(other.id, "added"), (new.id, "revoked")];
    changes.sort_unstable();
    let found: Vec<_> = later.changes(&keys).into_iter().map(|(id, _, what)| (id, what)).collect();
    assert_eq!(found, changes);
    assert!(keys.changes(&keys).is_empty());
}

#[test]
fn a_key_that_is_read_again_lets_in_as_before_unless_its_bounds_are_others() {
    let news: Vec<_> = (0..10_000).map(|_| New::make().unwrap()).collect();
    let text = |of_first: &str| {
        let each = news.iter().enumerate().map(|(number, new)| {
            let rights = if number == 0 { of_first } else { "rights = [\"audit\"]" };
            line(new, "p", &format!("[key.bounds]\nnames = [\"{number}\"]\n{rights}"))
        });
        each.collect::<String>()
    };
    let keys = Keys::parse(&text("rights = [\"audit\", \"owners\"]")).unwrap();
    let admission = |new: &New| keys.admission(0, &Shown::parse(&new.text).unwrap()).unwrap();
    let admissions: Vec<_> = news.iter().map(admission).collect();
    let mut again = Keys::parse(&text("rights = [\"audit\", \"owners\"]")).unwrap();
    again.adopt(&keys);
    let mut changed = Keys::parse(&text("rights = [\"audit\"]")).unwrap();
    changed.adopt(&again);
    for (number, (new, Admission { principal, bounds })) in news.iter().zip(&admissions).enumerate()
    {
        assert_eq!(again.still_lets_in(0, new.id, (principal, bounds)), Ok(()));
        let expected = if number == 0 { Err(Lapse::Bounds) } else { Ok(()) };
        assert_eq!(changed.still_lets_in(0, new.id, (principal, bounds)), expected);
    }
}

#[test]
fn ten_thousand_keys_are_read_and_each_is_found() {
    let news: Vec<_> = (0..10_000).map(|_| New::make().unwrap()).collect();
    let mut text = String::new();
    for (number, new) in news.iter().enumerate() {
        let bounds = format!("[key.bounds]\nnames = [\"laptop-{number}/*\"]");
        text.push_str(&line(new, &format!("laptop-{number}"), &bounds));
    }
    assert!(text.len() < 3 << 20, "{} bytes", text.len());
    let keys = Keys::parse(&text).unwrap();
    for (number, new) in news.iter().enumerate().step_by(997) {
        let right = keys.admission(0, &Shown::parse(&new.text).unwrap()).unwrap();
        assert_eq!(&*right.principal.name, format!("laptop-{number}"));
    }
}
