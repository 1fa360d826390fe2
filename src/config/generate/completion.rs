//! What shells complete behind `emberdb`: options, values that are one of a few, and files.

use super::rows::effective_chapters;
use crate::config::directive::Directive;
use crate::config::values::Kind;

/// Options that are no directives.
const OTHERS: &[(&str, &str)] = &[("help", "print all directives"), ("version", "print the version")];

/// What may stand behind an option.
enum Values {
    Words(Vec<&'static str>),
    Anything,
}

fn values(row: &Directive) -> Values {
    match row.kind {
        Kind::YesNo => Values::Words(vec!["yes", "no"]),
        Kind::Choice(names) => Values::Words(names.to_vec()),
        _ => Values::Anything,
    }
}

fn rows() -> impl Iterator<Item = &'static Directive> {
    effective_chapters().flatten()
}

pub(super) fn bash() -> String {
    let others = OTHERS.iter().map(|(name, _)| *name);
    let options: Vec<String> = rows().map(|row| row.name).chain(others).map(|name| format!("--{name}")).collect();
    let mut text = String::from(
        "# bash completion for emberdb\n_emberdb() {\n    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n    case $before in\n",
    );
    for row in rows() {
        if let Values::Words(words) = values(row) {
            text += &format!(
                "        --{}) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\"); return ;;\n",
                row.name,
                words.join(" ")
            );
        }
    }
    text += "    esac\n    case $word in\n";
    text += &format!("        -*) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\") ;;\n", options.join(" "));
    text += "        *) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n    esac\n}\ncomplete -o filenames -F _emberdb emberdb\n";
    text
}

pub(super) fn zsh() -> String {
    let mut text = String::from("#compdef emberdb\n_arguments \\\n");
    for row in rows() {
        let about = short(row.help).replace('\\', "\\\\").replace('\'', "'\\''").replace([':', '[', ']'], " ");
        let what = match values(row) {
            Values::Words(words) => format!("({})", words.join(" ")),
            Values::Anything => "_files".to_owned(),
        };
        text += &format!("  '*--{}[{about}]:value:{what}' \\\n", row.name);
    }
    for (name, about) in OTHERS {
        text += &format!("  '--{name}[{about}]' \\\n");
    }
    text + "  '1:configuration file:_files'\n"
}

pub(super) fn fish() -> String {
    let mut text = String::from("# fish completion for emberdb\n");
    for row in rows() {
        let about = short(row.help).replace('\\', "\\\\").replace('\'', "\\'");
        let values = match values(row) {
            Values::Words(words) => format!(" -x -a '{}'", words.join(" ")),
            Values::Anything => " -r".to_owned(),
        };
        text += &format!("complete -c emberdb -l {} -d '{about}'{values}\n", row.name);
    }
    for (name, about) in OTHERS {
        text += &format!("complete -c emberdb -l {name} -d '{about}'\n");
    }
    text
}

/// As much of a help text as fits beside an option: up to its first mark.
fn short(help: &str) -> String {
    let end = help.find([';', ':', '(']).unwrap_or(help.len());
    help[..end].trim_end().replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_completed() {
        for text in [bash(), zsh()] {
            for row in rows() {
                assert!(text.contains(&format!("--{}", row.name)), "{}", row.name);
            }
        }
        assert!(fish().contains(
            "complete -c emberdb -l appendfsync -d 'when it is on the disk for certain' -x -a 'always everysec no'\n"
        ));
        assert!(bash().contains("--appendonly) mapfile -t COMPREPLY < <(compgen -W 'yes no'"));
    }
}
