//! "Did you mean ...?": the valid word nearest to a mistyped one.

/// The candidate nearest to `word`, or none if nothing is near enough to be what was meant. Case does not count.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A word far longer than any name is nobody's slip of the finger, and distance costs the product of lengths.
    const WORD_CHARS_MAX: usize = 64;
    let word: Vec<char> = word.to_lowercase().chars().collect();
    if word.is_empty() || word.len() > WORD_CHARS_MAX {
        return None;
    }
    let part: String = word.iter().collect();

    candidates
        .into_iter()
        .filter_map(|candidate| {
            let letters: Vec<char> = candidate.to_lowercase().chars().collect();
            let distance = distance(&word, &letters);
            let near = distance == 1 || 5 * distance <= 2 * word.len().max(letters.len());
            // Half a name is a common way to remember it: `effort`, `query-buffer-limit`.
            let inside = word.len() >= 4 && candidate.to_lowercase().contains(&part);
            (near || inside).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours cost one each.
/// Source: Damerau, "A technique for computer detection and correction of spelling errors", CACM 1964.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substitution = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substitution.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let d = |a: &str, b: &str| {
            let letters = |word: &str| word.chars().collect::<Vec<_>>();
            distance(&letters(a), &letters(b))
        };
        assert_eq!(d("", ""), 0);
        assert_eq!(d("", "abc"), 3);
        assert_eq!(d("port", "port"), 0);
        assert_eq!(d("prot", "port"), 1);
        assert_eq!(d("maxclient", "maxclients"), 1);
        assert_eq!(d("kitten", "sitting"), 3);
    }

    #[test]
    fn finds_what_was_meant_or_nothing() {
        let names = ["port", "maxclients", "active-expire-effort", "hz"];
        assert_eq!(nearest("PROT", names), Some("port"));
        assert_eq!(nearest("max-clients", names), Some("maxclients"));
        assert_eq!(nearest("effort", names), Some("active-expire-effort"));
        assert_eq!(nearest("hx", names), Some("hz"));
        assert_eq!(nearest("cluster-enabled", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), names), None);
    }
}
