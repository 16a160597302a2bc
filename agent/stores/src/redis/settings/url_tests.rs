use super::*;

fn parse(url: &str) -> Result<RedisUrl, Refusal> {
    let (scheme, rest) = url.split_once(':').unwrap();
    RedisUrl::parse(scheme, rest).expect("a scheme of Redis")
}

/// The shown text parses to the same again, but for passwords.
#[track_caller]
fn check(url: &str, shown: &str) -> RedisUrl {
    let parsed = parse(url).unwrap_or_else(|refusal| panic!("{url}: {refusal}"));
    assert_eq!(parsed.shown(), shown, "{url}");
    if !shown.contains("***") {
        assert_eq!(parse(shown).as_ref(), Ok(&parsed));
    }
    parsed
}

#[test]
fn places_and_databases() {
    check("redis://localhost", "redis://localhost:6379/0");
    check("redis://localhost/", "redis://localhost:6379/0");
    check("rediss://cache.example:7000/15", "rediss://cache.example:7000/15");
    check("redis://[::1]/2", "redis://[::1]:6379/2");
    check("redis://[fe80::1]:7/2", "redis://[fe80::1]:7/2");
    let url = check("redis://127.0.0.1:1?", "redis://127.0.0.1:1/0");
    let place = Place { host: "127.0.0.1".into(), port: 1 };
    assert_eq!((url.server, url.tls), (RedisServer::Tcp(place), false));

    check("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock?db=0");
    let url = check("redis+unix:///a%20b?db=3&user=u%26", "redis+unix://u%26@/a%20b?db=3");
    assert_eq!(url.server, RedisServer::Unix("/a b".into()));
    assert_eq!(url.login.user.as_deref(), Some("u&"));
}

#[test]
fn logins() {
    for (url, shown, user, password) in [
        ("redis://:a%40b@h", "redis://:***@h:6379/0", None, Some("a@b")),
        ("redis://me:a:b@h", "redis://me:***@h:6379/0", Some("me"), Some("a:b")),
        ("redis://m%65@h", "redis://me@h:6379/0", Some("me"), None),
        ("redis://:a@b@h", "redis://:***@h:6379/0", None, Some("a@b")),
        (
            "rediss://:%25%40%23%2F%20%3A%3F@[::1]:7",
            "rediss://:***@[::1]:7/0",
            None,
            Some("%@#/ :?"),
        ),
        ("redis+unix://:pw@/s", "redis+unix://:***@/s?db=0", None, Some("pw")),
        ("redis+unix:///s?user=me", "redis+unix://me@/s?db=0", Some("me"), None),
    ] {
        let url = check(url, shown);
        let password = password.map(|it| Secret::new(it).into());
        let login = Login { user: user.map(str::to_owned), password };
        assert_eq!(url.login, login);
        assert!(!format!("{url:?}").contains("pw"));
    }
}

#[test]
fn sentinels() {
    let url = check(
        "rediss+sentinel://u:p@s1:1,[::2],s3/my%20master/4?sentinel_user=a&sentinel_password=%62",
        "rediss+sentinel://u:***@s1:1,[::2]:26379,s3:26379/my%20master/4?sentinel_user=a&\
         sentinel_password=***",
    );
    let RedisServer::Sentinel { sentinels, master, login } = url.server else { panic!() };
    assert_eq!((sentinels.len(), master.as_str(), url.tls, url.db), (3, "my master", true, 4));
    let expected = Login { user: Some("a".into()), password: Some(Secret::new("b").into()) };
    assert_eq!(login, expected);
    check("redis+sentinel://s/m", "redis+sentinel://s:26379/m/0");
}

#[test]
fn refusals_name_the_rule_and_quote_nothing() {
    let long = format!("redis://:{}@h", "hunter2".repeat(1000));
    let many = format!("redis+sentinel://{}/hunter2", ["h"; 17].join(","));
    for (url, rule) in [
        ("redis:hunter2", "must have // after the scheme"),
        ("redis://", "must have a host"),
        ("redis://:hunter2@", "must have a host"),
        ("redis://:hunter2@h:", "a port from 1 to 65535"),
        ("redis://:hunter2@h:0", "a port from 1 to 65535"),
        ("redis://:hunter2@h:65536", "a port from 1 to 65535"),
        ("redis://:hunter2@a b", "must have a host"),
        ("redis://[::1", "must have a host"),
        ("redis://[::1]x", "must have a host"),
        ("redis://[hunter2]", "must have a host"),
        ("redis://::1", "stands in brackets"),
        // An unescaped slash in a password.
        ("redis://:hun/ter2@h/0", "/ @ : in a password are written %2F %40 %3A"),
        ("redis://h/hunter2", "must have the number of a database"),
        ("redis://h/-1", "must have the number of a database"),
        ("redis://h/+1", "must have the number of a database"),
        ("redis://h/1/2", "must have the number of a database"),
        ("redis://h/2147483648", "must have the number of a database"),
        ("redis://:hunter2#@h", "in a password it is written %23"),
        ("redis://h?hunter2=1", "must have no parameters after ?"),
        ("redis://:hun?ter2@h", "a ? in a password is written %3F"),
        ("redis://@h", "must have a user or a password before the @"),
        ("redis://:@h", "must have 1 to 4096 bytes without control characters for the password"),
        ("redis://:hunter2%0a@h", "without control characters for the password"),
        ("redis://:hunter2%ff@h", "must have UTF-8 for the password"),
        ("redis://:hunter2%2@h", "two hexadecimal digits after each % in the password"),
        ("redis://:hunter2%+1@h", "two hexadecimal digits after each % in the password"),
        (&long, "must have 1 to 4096 bytes"),
        ("redis+unix://hunter2", "must have a path after three slashes"),
        ("redis+unix:///", "must have a path after three slashes"),
        ("redis+unix:///a?db=hunter2", "must have the number of a database"),
        ("redis+unix:///a?password=hunter2", "no parameters after ? but db and user"),
        ("redis+unix:///a?db=1&db=2", "must have each parameter after ? once only"),
        ("redis+unix://me@/a?user=you", "must name the user once"),
        ("redis+sentinel://h", "must have the master's name"),
        ("redis+sentinel://h//1", "must have the master's name"),
        ("redis+sentinel://h,/m", "must have a host"),
        ("redis+sentinel:///m", "must have a host"),
        ("redis+sentinel://h/m?sentinel_password=", "for sentinel_password"),
        ("redis+sentinel://h/m?password=hunter2", "but sentinel_user and sentinel_password"),
        (&many, "must name at most 16 Sentinels"),
    ] {
        let refusal = parse(url).unwrap_err();
        assert!(refusal.contains(rule), "{url}: {refusal}");
        assert!(!refusal.contains("hunter2"), "{refusal}");
    }
    assert_eq!(RedisUrl::parse("http", "//h"), None);
}
