//! Where casemate keeps its things on one machine, by what the environment says. Pure.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Below a user's home, where no variable says otherwise.
pub const BELOW_HOME: &str = ".local/state/casemate";

/// Each place that the variables name, the one that is used first: `CASEMATE_HOME`, `XDG_STATE_HOME`, `HOME`. An empty variable is none.
pub fn named(variable: &dyn Fn(&str) -> Option<OsString>) -> impl Iterator<Item = PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let all = [
        set("CASEMATE_HOME"),
        set("XDG_STATE_HOME").map(|state| state.join("casemate")),
        set("HOME").map(|home| home.join(BELOW_HOME)),
    ];
    all.into_iter().flatten()
}

/// The home of a user id in the text of passwd(5), whatever `HOME` says.
#[must_use]
pub fn of_user(passwd: &str, uid: u32) -> Option<&Path> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_theirs = fields.nth(2)?.parse() == Ok(uid);
        is_theirs.then(|| fields.nth(2).map(Path::new)).flatten().filter(|home| home.is_absolute())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_that_is_used_comes_first_and_an_empty_variable_is_none() {
        let of = |set: &[(&str, &str)]| -> Vec<PathBuf> {
            let set: Vec<_> =
                set.iter().map(|(k, v)| ((*k).to_owned(), OsString::from(v))).collect();
            let found =
                move |name: &str| set.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
            named(&found).collect()
        };
        let home = PathBuf::from("/h/.local/state/casemate");
        assert_eq!(
            of(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")]),
            [PathBuf::from("/x/casemate"), home.clone()]
        );
        assert_eq!(
            of(&[("HOME", "/h"), ("CASEMATE_HOME", "/c")]),
            [PathBuf::from("/c"), home.clone()]
        );
        assert_eq!(of(&[("HOME", "/h"), ("CASEMATE_HOME", "")]), [home]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn a_users_home_is_the_one_that_passwd_says() {
        let text = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\nodd:x:7\nnone:x:8:8:::\n";
        assert_eq!(of_user(text, 1000), Some(Path::new("/home/me")));
        assert_eq!((of_user(text, 7), of_user(text, 8), of_user(text, 9)), (None, None, None));
    }
}
