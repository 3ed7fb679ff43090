//! Takes credentials out of text that other programs wrote (the tail of git's stderr) and out of URLs.

/// Replaces the userinfo of every URL in a text by `***`.
#[must_use]
pub fn urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| c == '/' || c == '\'' || c == '"' || c.is_whitespace())
            .unwrap_or(after.len());
        let (authority, tail) = after.split_at(end);
        match authority.rfind('@') {
            Some(host) => {
                out.push_str("***");
                out.push_str(&authority[host..]);
            }
            None => out.push_str(authority),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn userinfo_is_replaced_and_nothing_else_changes() {
        let text =
            "fatal: unable to access 'https://me:s3cret@h.example/r.git/': a@b https://ok/x@y";
        let clean = "fatal: unable to access 'https://***@h.example/r.git/': a@b https://ok/x@y";
        assert_eq!(urls(text), clean);
        assert_eq!(urls("http://tok@en@h:8080"), "http://***@h:8080");
        assert_eq!(urls("no url"), "no url");
    }
}
