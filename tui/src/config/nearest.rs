//! The word that somebody probably meant.

/// The one of `words` nearest to `word`, if one is near: a slip or two, fewer in short words.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = words.into_iter().map(|other| (distance(word, other), other)).min()?;
    (near.0 <= word.chars().count().div_ceil(3).min(3)).then_some(near.1)
}

/// A question for the end of a message: `; did you mean `x`?`, or nothing.
#[must_use]
pub fn did_you_mean(word: Option<&str>) -> String {
    word.map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

/// Characters to put in, take out, change or swap with a neighbour to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        for (a, b, steps) in
            [("", "abc", 3), ("theme", "theme", 0), ("tehme", "theme", 1), ("thme", "theme", 1)]
        {
            assert_eq!(distance(a, b), steps, "{a} {b}");
        }
    }

    #[test]
    fn only_near_words_are_offered() {
        let words = ["theme", "mouse", "keys"];
        assert_eq!(nearest("themes", words), Some("theme"));
        assert_eq!(nearest("muose", words), Some("mouse"));
        assert_eq!(nearest("colour", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest("x", []), None);
    }
}
