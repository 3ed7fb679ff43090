//! Mounts as a kubelet and a container runtime make them, around a program under test.

use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;

/// A Pod's own token at its usual place, with a plain file beside it, and below `$1`:
///
/// | path | is |
/// |---|---|
/// | `token` | the volume of a Secret |
/// | `key` | a single file of it (`subPath`) |
/// | `bound` | the usual place, mounted once more |
/// | `link` | a link to the usual place |
/// | `config` | the volume of a ConfigMap |
/// | `hidden/secret` | the volume of a Secret, in a directory that its owner has closed |
/// | `cache` | an `emptyDir` in memory, in which somebody has made what looks like a Secret's link |
const MOUNTS: &str = r#"
set -e
fill() {
    mkdir -p "$1/..2026_02_01_15_04_05.123"
    echo sentinel > "$1/..2026_02_01_15_04_05.123/value"
    ln -sfn ..2026_02_01_15_04_05.123 "$1/..data"
    ln -sfn ..data/value "$1/value"
    chmod -R a+rX "$1"
}
volume() {
    mkdir -p "$1"
    mount -t tmpfs tmpfs "$1"
    fill "$1"
    mount -o remount,bind,ro "$1"
}
mount -t tmpfs tmpfs /run
chmod 755 /run
volume /run/secrets/kubernetes.io/serviceaccount
echo sentinel > /run/secrets/plain
volume "$1/token"
mkdir -p "$1/hidden"
mount -t tmpfs tmpfs "$1/hidden"
volume "$1/hidden/secret"
chmod 000 "$1/hidden"
touch "$1/key"
mount --bind "$1/token/..data/value" "$1/key"
mount -o remount,bind,ro "$1/key"
mkdir -p "$1/bound" "$1/config" "$1/cache"
mount --bind /run/secrets "$1/bound"
ln -sfn /run/secrets "$1/link"
fill "$1/config"
mount --bind "$1/config" "$1/config"
mount -o remount,bind,ro "$1/config"
mount -t tmpfs tmpfs "$1/cache"
fill "$1/cache"
shift
exec "$@"
"#;

/// What comes before a program to run it among such mounts, below this directory; `None` where nobody may mount here.
pub(crate) fn before(directory: &Path) -> Option<Vec<String>> {
    let own: &[&str] = if geteuid().is_root() {
        &["unshare", "--mount"]
    } else {
        &["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    };
    let mut works = Command::new(own[0]);
    works.args(&own[1..]).args(["mount", "-t", "tmpfs", "x", "/run"]);
    if !works.status().is_ok_and(|status| status.success()) {
        println!("SKIP: unshare(1) gives no mounts of one's own here");
        return None;
    }
    let script = ["sh", "-c", MOUNTS, "sh", directory.to_str()?];
    Some(own.iter().chain(&script).map(|word| (*word).to_owned()).collect())
}
