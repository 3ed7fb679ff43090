#!/bin/sh
# Git as its users use it, inside a session: one line for each operation, `ok NAME` or `FAILED NAME: what was said`.
# Run in the worktree; $1 is the URL of the directory that the remotes are served from.
served=$1

try() { # name function
    if said=$(set -e; "$2" 2>&1); then echo "ok $1"; else echo "FAILED $1: $said"; fi
}
# `set -e` is off within a condition, so each step says for itself that the rest depends on it.
same() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; return 1; }; }
commit() { echo "$1" >>"$1" && git add "$1" && git commit -qm "$1"; }
subject() { git log -1 --format=%s "$@"; }

add_commit() { commit a && same "$(subject)" a && same "$(git status --porcelain)" ''; }
amend() { echo more >>a && git commit -qam x && git commit -q --amend -m amended && same "$(subject)" amended; }
rebase() {
    git checkout -q -b side HEAD~1 && commit s1 && commit s2 && git rebase -q - &&
        same "$(git log -3 --format=%s | tr '\n' ' ')" 's2 s1 amended '
}
squash() {
    GIT_SEQUENCE_EDITOR='sed -i 2s/pick/fixup/' git rebase -q -i HEAD~2 &&
        same "$(git log -2 --format=%s | tr '\n' ' ')" 's1 amended ' && [ -e s2 ]
}
conflict() {
    git checkout -q -b left && echo left >both && git add both && git commit -qm left &&
        git checkout -q -b right HEAD~1 && echo right >both && git add both && git commit -qm right || return 1
    if git merge -q left; then echo 'no conflict'; return 1; fi
    echo both >both && git add both && git commit -qm merged && same "$(git rev-list --merges --count HEAD)" 1
}
cherry_pick() { git checkout -q side && git cherry-pick left >/dev/null && same "$(cat both)" left; }
revert() { git revert --no-edit HEAD >/dev/null && [ ! -e both ]; }
stash() {
    echo changed >>a && echo new >untracked && git stash push -q -u && same "$(git status --porcelain)" '' &&
        git stash pop -q && same "$(cat untracked)" new && git checkout -q a && rm untracked
}
tag() { git tag -a v1 -m one && same "$(git describe)" v1; }
notes() { git notes add -m noted && same "$(git notes show)" noted; }
blame() { git blame -p a | grep -q '^author ' && git log -p --follow a | grep -q '^+a$'; }
bisect() {
    git bisect start HEAD HEAD~2 >/dev/null && git bisect run true | grep -q 'first bad commit' && git bisect reset
}
gc() { git gc -q --prune=now && git fsck --no-progress && git count-objects -v | grep -q '^packs: [1-9]'; }
worktrees() {
    git worktree add -q "$HOME/beside" -b beside && (cd "$HOME/beside" && commit b) &&
        git worktree add -q "$TMPDIR/detached" --detach && same "$(git worktree list | wc -l)" 3 &&
        git worktree remove "$HOME/beside" && git worktree remove "$TMPDIR/detached" && same "$(subject beside)" b
}
branch_delete() { git branch -q -D beside left right && ! git rev-parse -q --verify beside; }
clean() { echo x >junk && git clean -qfdx && [ ! -e junk ]; }
push() {
    git push -q origin side:refs/heads/from-session &&
        same "$(git ls-remote origin refs/heads/from-session | cut -f1)" "$(git rev-parse side)"
}
push_large() {
    # Above http.postBuffer (1 MiB) Git sends in chunks.
    head -c 3000000 /dev/urandom >large && git add large && git commit -qm large &&
        git push -q origin side:from-session && git reset -q --hard HEAD~1
}
force_push() { git push -q --force-with-lease origin side:from-session; }
fetch() {
    git clone -q "$served/sample.git" "$HOME/second" &&
        (cd "$HOME/second" && git checkout -q -b theirs && commit t && git push -q origin theirs) &&
        git fetch -q origin theirs && same "$(subject FETCH_HEAD)" t
}
pull() { git pull -q --rebase origin theirs && same "$(git merge-base HEAD FETCH_HEAD)" "$(git rev-parse FETCH_HEAD)"; }
delete_remote() { git push -q origin :theirs && same "$(git ls-remote origin theirs)" ''; }
shallow() {
    git clone -q --depth 1 "$served/sample.git" "$HOME/shallow" && (cd "$HOME/shallow" && git fetch -q --unshallow)
}
partial() {
    git clone -q --filter=blob:none "$served/sample.git" "$HOME/partial" &&
        same "$(git -C "$HOME/partial" show HEAD~1:README)" 'sample'
}
submodule_add() {
    git submodule --quiet add "$served/part.git" part && git commit -qm 'a part' && same "$(cat part/README)" 'a part'
}
submodule_clone() {
    git push -q origin side:with-part && git clone -q -b with-part --recurse-submodules "$served/sample.git" "$HOME/whole" &&
        same "$(cat "$HOME/whole/part/README")" 'a part'
}
submodule_commit() {
    (cd part && git checkout -q -b mine && commit p && git push -q origin mine) && git add part &&
        git commit -qm 'a newer part' && same "$(git submodule status | cut -c1)" ' '
}
submodule_remove() { git submodule --quiet deinit -f part && git rm -q part && git commit -qm 'no part'; }
lfs_pointer() {
    # A pointer as the large-file extension writes it, and no such extension here: it stays what it is.
    same "$(head -n 1 weights.bin)" 'version https://git-lfs.github.com/spec/v1' &&
        same "$(git check-attr filter weights.bin)" 'weights.bin: filter: lfs' &&
        same "$(git status --porcelain)" '' && git checkout -q HEAD~1 2>/dev/null && git checkout -q side &&
        rm weights.bin && git checkout -q weights.bin && same "$(git hash-object weights.bin)" "$(git rev-parse HEAD:weights.bin)"
}
hook() { mkdir -p .git/hooks && printf '%s\n' '#!/bin/sh' "$2" >".git/hooks/$1" && chmod +x ".git/hooks/$1"; }
hooks() {
    hook pre-commit 'echo pre >>"$HOME/hooked"' && hook commit-msg 'echo "Signed: hook" >>"$1"' &&
        hook post-commit 'id -u >>"$HOME/hooked"' && commit h &&
        same "$(cat "$HOME/hooked")" "pre
$(id -u)" && git log -1 --format=%B | grep -q '^Signed: hook$'
}
refusing_hook() { hook pre-commit 'exit 1' && ! commit never && git reset -q --hard; }
hooks_path() {
    rm -r .git/hooks && mkdir -p "$HOME/hooks" && printf '#!/bin/sh\ntouch "$HOME/by-path"\n' >"$HOME/hooks/pre-push" &&
        chmod +x "$HOME/hooks/pre-push" && git config core.hooksPath "$HOME/hooks" &&
        git push -q --force origin side:from-session && [ -e "$HOME/by-path" ]
}
filter() {
    git config filter.up.clean 'tr a-z A-Z' && git config filter.up.smudge 'tr A-Z a-z' &&
        echo '*.up filter=up' >>.gitattributes && echo low >x.up && git add .gitattributes x.up && git commit -qm up &&
        same "$(git show HEAD:x.up)" LOW && rm x.up && git checkout -q x.up && same "$(cat x.up)" low
}

for operation in add_commit amend rebase squash conflict cherry_pick revert stash tag notes blame bisect gc worktrees \
    branch_delete clean push push_large force_push fetch pull delete_remote shallow partial submodule_add \
    submodule_clone submodule_commit submodule_remove lfs_pointer hooks refusing_hook hooks_path filter; do
    try "$operation" "$operation"
done
