//! Rules of users (`src/acl`): any bytes are a user or an error that changes nothing; what is written makes the same users.

use emberdb::acl::{Users, Vocabulary};
use emberdb::server::table;
use std::cell::OnceCell;

thread_local! {
    static VOCABULARY: OnceCell<Vocabulary> = const { OnceCell::new() };
}

pub fn check(bytes: &[u8]) {
    VOCABULARY.with(|vocabulary| {
        let vocabulary = vocabulary.get_or_init(|| Vocabulary::of(&table()));
        check_file(vocabulary, bytes);
        check_rules(vocabulary, bytes);
    });
}

/// As an ACL file.
fn check_file(vocabulary: &Vocabulary, text: &[u8]) {
    let before = Users::new(vocabulary);
    let users = match Users::from_file(vocabulary, ("users.acl", text), &before, false) {
        Ok(users) => users,
        Err(errors) => {
            assert!(errors.to_string().ends_with("no change to the previously active ACL rules was performed"));
            return;
        }
    };
    check_written(vocabulary, &users);
}

/// As the arguments of ACL SETUSER, a line each.
fn check_rules(vocabulary: &Vocabulary, text: &[u8]) {
    let mut users = Users::new(vocabulary);
    let rules: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let whole = users.modify(vocabulary, b"anna", &rules, false);
    assert_eq!(whole.is_ok(), users.get(b"anna").is_some(), "all or nothing");
    for rule in rules {
        let before = users.get(b"anna").cloned();
        if users.modify(vocabulary, b"anna", &[rule], true).is_err() {
            assert_eq!(users.get(b"anna").cloned(), before);
        }
    }
    check_written(vocabulary, &users);
}

fn check_written(vocabulary: &Vocabulary, users: &Users) {
    // (Rules that come to nothing go one by one: the words may be fewer the second time.)
    let text = Users::from_file(vocabulary, ("written", &users.file()), users, false)
        .unwrap_or_else(|errors| panic!("{}: {errors}", String::from_utf8_lossy(&users.file())))
        .file();
    let again = Users::from_file(vocabulary, ("again", &text), users, false)
        .unwrap_or_else(|errors| panic!("{}: {errors}", String::from_utf8_lossy(&text)));
    assert_eq!(String::from_utf8_lossy(&again.file()), String::from_utf8_lossy(&text));
    let declared = Users::declared(vocabulary, &users.declarations(vocabulary, b""), b"", false).expect("declared");
    assert_eq!(String::from_utf8_lossy(&declared.file()), String::from_utf8_lossy(&text));
}
