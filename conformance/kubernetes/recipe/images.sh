# Images of Pods without a registry and without a container engine: docker archives of one layer, the same bytes each time.
# shellcheck shell=bash disable=SC2154

build_images() { # folder, that of programs
    local images=$1 root
    mkdir -p "$images"
    root=$(mktemp -d)
    mkdir -p "$root"/{bin,dev,etc,proc,sys,tmp,usr}
    chmod 1777 "$root/tmp"
    cp "$busybox" "$root/bin/busybox"
    # The container of every Pod that holds its namespaces: it has nothing to do but to be there.
    archive "$root" localhost/pause:1 '["/bin/busybox","sleep","infinity"]' "$images/pause.tar"
    local applet
    for applet in $("$root/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    printf 'root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\nuser:x:1000:\n' >"$root/etc/group"
    archive "$root" localhost/busybox:1 '["/bin/sh"]' "$images/busybox.tar"
    rm -rf "$root"
    root=$(mktemp -d)
    cp "$2/dns" "$root/dns"
    archive "$root" localhost/dns:1 '["/dns"]' "$images/dns.tar"
    rm -rf "$root"
}

# A busybox that needs no library: the machine's own where it is one.
find_busybox() {
    busybox=$(command -v busybox || true)
    { [ -n "$busybox" ] && is_static "$busybox"; } || busybox=$cache/busybox/bin/busybox
}

# ldd leaves 1 where there is nothing to list.
is_static() { { LC_ALL=C ldd "$1" 2>&1 || true; } | grep -qE 'not a dynamic executable|statically linked'; }

# Debian's, without installing it: it would take the place of one that is there.
fetch_busybox() {
    find_busybox
    [ -e "$busybox" ] && return
    say 'fetching busybox'
    rm -rf "$cache/busybox.new"
    mkdir "$cache/busybox.new"
    (cd "$cache/busybox.new" && timeout -k 10 600 apt-get -o Acquire::Retries=3 update -q &&
        timeout -k 10 600 apt-get -o Acquire::Retries=3 download -q busybox-static && dpkg-deb -x ./*.deb .) \
        >>"$cache/logs/apt.log" 2>&1 || die 69 "busybox-static is not to be had, see $cache/logs/apt.log"
    # Where /bin is a link, packages have it in /usr.
    [ -e "$cache/busybox.new/bin" ] || ln -s usr/bin "$cache/busybox.new/bin"
    rm -rf "$cache/busybox"
    mv "$cache/busybox.new" "$cache/busybox"
    [ -x "$busybox" ] || die 69 "busybox-static has no busybox"
}

# Writes a docker archive (moby's image specification 1.2: manifest.json, the configuration, one layer).
archive() { # folder, name, command as JSON, file
    local work layer config architecture
    work=$(mktemp -d)
    tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/layer.tar" .
    layer=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
    case $(uname -m) in
    aarch64) architecture=arm64 ;;
    *) architecture=amd64 ;;
    esac
    printf '{"architecture":"%s","os":"linux","config":{"Env":["PATH=/bin"],"Cmd":%s},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "$architecture" "$3" "$layer" >"$work/config"
    config=$(sha256sum "$work/config" | cut -d ' ' -f 1).json
    mv "$work/config" "$work/$config"
    printf '[{"Config":"%s","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$config" "$2" >"$work/manifest.json"
    tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$4" "$config" layer.tar manifest.json
    rm -rf "$work"
}

# Makes an image of a folder and gives it to every node.
make_image() { # name, folder
    local file
    file=$(mktemp)
    archive "$2" "$1" '[]' "$file"
    load_images "$file"
    rm "$file"
}

# Imports archives into every node's containerd.
load_images() { # file...
    local file node guard=(timeout -k 5 300)
    for node in "$run"/nodes/*; do
        for file in "$@"; do
            file=$(realpath -e "$file") || die 66 "no such file: $file"
            inside ctr --address "/run/nodes/${node##*/}/containerd.sock" --namespace k8s.io images import "$file" >>"$run/logs/images.log" 2>&1 ||
                { tail -n 5 "$run/logs/images.log" >&2; die 70 "${node##*/}'s containerd does not take $file"; }
        done
    done
}
