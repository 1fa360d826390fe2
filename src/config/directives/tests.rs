use super::*;
use crate::config::Config;

#[test]
fn names_are_unique_and_plain() {
    for (index, row) in DIRECTIVES.iter().enumerate() {
        let plain = |letter: char| letter.is_ascii_lowercase() || matches!(letter, '-' | '_');
        assert!(row.name.chars().all(plain), "{}", row.name);
        let same = |other: &Directive| other.name == row.name;
        assert!(!DIRECTIVES[..index].iter().any(same), "{}", row.name);
    }
}

#[test]
fn groups_stand_together() {
    let mut seen: Vec<Group> = Vec::new();
    for row in DIRECTIVES {
        if seen.last() != Some(&row.group) {
            assert!(!seen.contains(&row.group), "{} stands apart", row.name);
            seen.push(row.group);
        }
    }
}

#[test]
fn each_has_help_on_one_line() {
    for row in DIRECTIVES {
        assert!(row.help.len() > 10, "{}", row.name);
        assert!(!row.help.contains(['\n', '|']), "{}", row.name);
        assert!(!row.help.ends_with('.'), "{}", row.name);
    }
}

#[test]
fn each_default_parses_and_prints_back_to_itself() {
    for row in DIRECTIVES {
        let mut config = Config::default();
        row.read(&mut config, &row.split(row.default)).unwrap_or_else(|error| panic!("{}: {error}", row.name));
        let line = row.line(&config).replace("\"\"", "");
        assert_eq!(line.replace('"', ""), format!("{} {}", row.name, row.default));

        let shown = row.show(&config);
        row.read(&mut config, &row.split(&shown)).unwrap_or_else(|error| panic!("{} {shown}: {error}", row.name));
        assert_eq!(row.show(&config), shown);
    }
}

/// A row whose `field!` names another row's field would pass every test above.
#[test]
fn no_two_rows_share_a_field() {
    let other = |row: &Directive| match row.kind {
        Kind::Integer { max, .. } => Some(max.to_string()),
        Kind::Signed { max, .. } => Some(max.to_string()),
        Kind::Memory { .. } => Some("7mb".to_string()),
        Kind::YesNo if row.default == "yes" => Some("no".to_string()),
        Kind::Octal => Some("755".to_string()),
        Kind::YesNo => Some("yes".to_string()),
        Kind::Choice(names) => names.iter().find(|name| **name != row.default).map(|name| name.to_string()),
        Kind::Text if row.name == "redis-version" => Some("7.2.5".to_string()),
        Kind::Text | Kind::Secret | Kind::FileName | Kind::Addresses => Some("elsewhere".to_string()),
        Kind::OutputLimits => Some("normal 1 2 3".to_string()),
        Kind::NotifyFlags => Some("KEA".to_string()),
        Kind::Numbers { count: 0, .. } => Some("1 2".to_string()),
        Kind::Numbers { .. } => Some("1 2 3".to_string()),
        Kind::Words(names) | Kind::Ciphers(names) => names.last().map(|name| name.to_string()),
        Kind::ExpiryPolicy => Some("a: 1h".to_string()),
        Kind::Primary => Some("elsewhere 7".to_string()),
        Kind::Amount => Some("75%".into()),
        Kind::SavePoints => Some("60 1".into()),
        Kind::Only { .. } => None,
    };
    for row in DIRECTIVES {
        let Some(value) = other(row) else { continue };
        let before = Config::default();
        let mut after = Config::default();
        row.read(&mut after, &row.split(&value)).unwrap();
        let changed: Vec<_> =
            DIRECTIVES.iter().filter(|row| row.show(&before) != row.show(&after)).map(|row| row.name).collect();
        assert_eq!(changed, [row.name]);
    }
}

#[test]
fn find_ignores_case() {
    assert_eq!(find("TCP-Backlog").unwrap().name, "tcp-backlog");
    assert!(find("tcp_backlog").is_none());
    assert!(find("").is_none());
}
