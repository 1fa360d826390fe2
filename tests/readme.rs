//! What the README says is what the program does.

use emberdb::config::markdown_table;

#[test]
fn the_configuration_table_is_that_of_the_directives() {
    let readme = include_str!("../README.md");
    assert!(readme.contains(&markdown_table()), "put this into README.md:\n{}", markdown_table());
}
