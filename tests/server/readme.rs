//! What the README says is what the program does.

use emberdb::config::{markdown_absent_table, markdown_table};

#[test]
fn the_configuration_table_is_that_of_the_directives() {
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&markdown_table()), "put this into README.md:\n{}", markdown_table());
}

#[test]
fn the_table_of_what_has_no_effect_is_that_of_the_directives() {
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&markdown_absent_table()), "put this into README.md:\n{}", markdown_absent_table());
}
