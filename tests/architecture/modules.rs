//! The modules of a crate, read from its source files, and the arrows between them.
//!
//! A module has an arrow to each module whose items it names, in a `use` or in a path anywhere else. A name that a
//! module passes on with `use` counts for the module that declares it, so re-exports hide nothing. Code under
//! `#[cfg(test)]` is left out. A method call names no module, so it is no arrow; its type is named somewhere, mostly.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names from the crate's root downwards; the root's own is empty.
pub type ModulePath = Vec<String>;

pub struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

struct Module {
    file: PathBuf,
    /// What this module declares itself, child modules aside.
    declared: BTreeSet<String>,
    /// What it has from elsewhere, by the name that it has here.
    imports: BTreeMap<String, Vec<Vec<String>>>,
    globs: Vec<Vec<String>>,
    /// Every path, and the line where it stands.
    named: Vec<(usize, Vec<String>)>,
}

pub struct Arrow {
    pub from: ModulePath,
    pub to: ModulePath,
    pub file: PathBuf,
    pub line: usize,
}

/// Chains of imports do not get longer than this; what does imports itself.
const STEPS_MAX: usize = 20;

impl Crate {
    /// Reads the root file and all that it declares.
    pub fn read(root: &Path) -> Crate {
        let mut found = Crate { modules: BTreeMap::new() };
        found.read_file(Vec::new(), root.to_owned(), root.parent().expect("a file has a folder"));
        found
    }

    /// `folder`: where the files of its child modules are.
    fn read_file(&mut self, path: ModulePath, file: PathBuf, folder: &Path) {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.read_module(path, &file, folder, tokens);
    }

    fn read_module(&mut self, path: ModulePath, file: &Path, folder: &Path, tokens: TokenStream) {
        let module = Module {
            file: file.to_owned(),
            declared: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            named: Vec::new(),
        };
        let mut reader = Reader { module, children: Vec::new() };
        reader.read(tokens, true);
        self.modules.insert(path.clone(), reader.module);
        for (name, body) in reader.children {
            let inside = folder.join(&name);
            let path = [path.as_slice(), std::slice::from_ref(&name)].concat();
            let beside = folder.join(format!("{name}.rs"));
            match body {
                Some(tokens) => self.read_module(path, file, &inside, tokens),
                None if beside.exists() => self.read_file(path, beside, &inside),
                None => self.read_file(path, inside.join("mod.rs"), &inside),
            }
        }
    }

    /// Between modules neither of which is inside of the other.
    pub fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = Vec::new();
        for (from, module) in &self.modules {
            let mut seen = BTreeSet::new();
            for (line, named) in &module.named {
                let Some(to) = self.resolve(from, named, 0) else { continue };
                if !to.starts_with(from) && !from.starts_with(&to) && seen.insert(to.clone()) {
                    arrows.push(Arrow { from: from.clone(), to, file: module.file.clone(), line: *line });
                }
            }
        }
        arrows
    }

    /// Paths that begin with this name of another crate, without it, and where they stand.
    pub fn paths_into(&self, name: &str) -> Vec<(&Path, usize, &[String])> {
        let all = self.modules.values().flat_map(|module| module.named.iter().map(move |named| (module, named)));
        all.filter(|(_, (_, path))| path[0] == name)
            .map(|(module, (line, path))| (module.file.as_path(), *line, &path[1..]))
            .collect()
    }

    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// The module that declares what a path names; `None` if that is of another crate, or a local name.
    fn resolve(&self, from: &ModulePath, path: &[String], steps: usize) -> Option<ModulePath> {
        if steps > STEPS_MAX {
            return None;
        }
        let mut at = from.clone();
        let mut rest = path;
        let mut local = true;
        while let Some((keyword @ ("crate" | "self" | "super"), after)) =
            rest.split_first().map(|(first, after)| (first.as_str(), after))
        {
            match keyword {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                _ => {}
            }
            (local, rest) = (false, after);
        }
        while let Some((name, after)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                (at, rest, local) = (child, after, false);
                continue;
            }
            let module = &self.modules[&at];
            if let Some(imports) = module.imports.get(name) {
                return imports.iter().find_map(|import| self.resolve(&at, &[import, after].concat(), steps + 1));
            }
            for glob in &module.globs {
                if let Some(of) = self.resolve(&at, glob, steps + 1).filter(|of| *of != at)
                    && self.modules[&of].provides(name)
                {
                    return self.resolve(&of, &[&["self".to_owned()], rest].concat(), steps + 1);
                }
            }
            return (!local).then_some(at);
        }
        (!local).then_some(at)
    }
}

impl Module {
    fn provides(&self, name: &str) -> bool {
        self.declared.contains(name) || self.imports.contains_key(name) || !self.globs.is_empty()
    }
}

/// Takes one module's tokens in.
struct Reader {
    module: Module,
    /// Child modules, with their bodies where those stand in the same file.
    children: Vec<(String, Option<TokenStream>)>,
}

impl Reader {
    /// `top`: whether these are the items of the module and not what is inside of one.
    fn read(&mut self, tokens: TokenStream, top: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = match &tokens[at] {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_for_tests(tokens.get(at + 1)) => {
                    item_end(&tokens, at + 2)
                }
                TokenTree::Ident(word) if word == "use" => self.read_use(&tokens, at + 1),
                TokenTree::Ident(word) if word == "mod" => self.read_mod(&tokens, at),
                TokenTree::Ident(_) => self.read_path(&tokens, at, top),
                TokenTree::Group(group) => {
                    self.read(group.stream(), false);
                    at + 1
                }
                // A field or a method, which is no path.
                TokenTree::Punct(punct) if punct.as_char() == '.' && is_ident(tokens.get(at + 1)) => at + 2,
                _ => at + 1,
            };
        }
    }

    fn read_mod(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        match (tokens.get(at + 1), tokens.get(at + 2)) {
            (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) => {
                self.children.push((name.to_string(), Some(body.stream())));
                at + 3
            }
            (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(_))) => {
                self.children.push((name.to_string(), None));
                at + 3
            }
            _ => at + 1,
        }
    }

    fn read_path(&mut self, tokens: &[TokenTree], start: usize, top: bool) -> usize {
        const DECLARING: [&str; 8] = ["struct", "enum", "fn", "trait", "type", "const", "static", "union"];
        let mut path = vec![tokens[start].to_string()];
        let mut at = start + 1;
        while is_colons(tokens, at) && is_ident(tokens.get(at + 2)) {
            path.push(tokens[at + 2].to_string());
            at += 3;
        }
        if top && start > 0 && DECLARING.contains(&tokens[start - 1].to_string().as_str()) {
            self.module.declared.insert(path[0].clone());
        }
        self.module.named.push((tokens[start].span().start().line, path));
        at
    }

    fn read_use(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let end = item_end(tokens, start - 1);
        self.read_use_tree(&tokens[start..end - 1], &[]);
        end
    }

    /// One tree of a `use`, without its semicolon.
    fn read_use_tree(&mut self, tokens: &[TokenTree], before: &[String]) {
        let mut path = before.to_vec();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Ident(word) if word == "as" => break,
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    return self.read_use_group(group, &path);
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    self.module.named.push((token.span().start().line, path.clone()));
                    return self.module.globs.push(path);
                }
                _ => {}
            }
            at += 1;
        }
        let Some(last) = path.last() else { return };
        let name = tokens.get(at + 1).map_or(last.clone(), ToString::to_string);
        let line = tokens[0].span().start().line;
        self.module.imports.entry(name).or_default().push(path.clone());
        self.module.named.push((line, path));
    }

    fn read_use_group(&mut self, group: &Group, path: &[String]) {
        let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
        for tree in tokens.split(is_comma).filter(|tree| !tree.is_empty()) {
            self.read_use_tree(tree, path);
        }
    }
}

/// Behind the item that begins here: behind its semicolon or its body, or the comma behind a field.
fn item_end(tokens: &[TokenTree], start: usize) -> usize {
    let word = |at: usize| tokens.get(at).map_or(String::new(), ToString::to_string);
    let first = (start..tokens.len()).map(word).find(|word| !word.starts_with(['#', '[', '(']) && word != "pub");
    let first = first.unwrap_or_default();
    let has_body =
        ["fn", "impl", "mod", "struct", "enum", "trait", "unsafe", "const", "static"].contains(&first.as_str());
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => return at + 1,
            TokenTree::Punct(punct) if punct.as_char() == ',' && !has_body && first != "use" => return at + 1,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && first != "use" => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Whether this is the bracket of `#[cfg(test)]`.
fn is_for_tests(attribute: Option<&TokenTree>) -> bool {
    attribute.is_some_and(|attribute| attribute.to_string().replace(' ', "") == "[cfg(test)]")
}

fn is_ident(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Ident(_)))
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(at) && is_colon(at + 1)
}
