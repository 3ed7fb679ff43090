# The tests as a Job inside a cluster: of this machine, or a user's own by KUBECONFIG.
# shellcheck shell=bash disable=SC2154

# An image of the tests and kubectl, both static, as a docker archive under the name localhost/casemate-conformance:1.
suite_image() { # file
    local target folder program
    build
    target=$(rustc -vV | sed -n 's/^host: //p')
    folder=$(mktemp -d)
    # The target has to be named, or the flag would reach the compiler's own plug-ins.
    program=$(cd "$here/.." && cargo test --quiet -p casemate-cluster --test cluster --no-run --message-format json-render-diagnostics --target "$target" \
        --config 'build.rustflags=["-C","target-feature=+crt-static"]' --target-dir target/static |
        sed -n 's/.*"name":"cluster".*"executable":"\([^"]*\)".*/\1/p')
    [ -x "$program" ] || die 70 'the tests do not build, see above'
    cp "$program" "$folder/suite"
    cp "$bin/kubectl" "$folder/kubectl"
    archive "$folder" localhost/casemate-conformance:1 '["/suite","--show-output"]' "$1"
    rm -rf "$folder"
}

# How the cluster is asked and what this run's objects are called; the trap of `suite` still needs them when the function is over.
ask=() suite_name=

# With KUBECONFIG it is that cluster, by the kubectl in PATH; else the one that runs here.
suite() { # image
    ask=(timeout -k 5 60 kubectl)
    local test_image=${CASEMATE_CLUSTER_IMAGE:-busybox:1}
    if [ -z "${KUBECONFIG:-}" ]; then
        need_root
        need_running
        ask=(as_administrator kubectl) test_image=${CASEMATE_CLUSTER_IMAGE:-localhost/busybox:1}
    fi
    local guard=(timeout -k 5 60)
    # Of a name that no other run has: neither its end nor its log is taken for this one's, nor are this one's rights taken away.
    suite_name=casemate-conformance-$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
    trap forget_suite EXIT
    suite_objects "$1" "$test_image" | "${ask[@]}" create --filename - || die 70 'the cluster does not take the Job'
    ask+=(--namespace "$suite_name")
    say 'waiting for the Job, 20 minutes at most'
    local ended= begun=$SECONDS
    until [ -n "$ended" ] || [ $((SECONDS - begun)) -gt 1200 ]; do
        sleep 2
        # An API server that does not answer for once is asked again.
        ended=$("${ask[@]}" get job suite --output 'jsonpath={.status.conditions[?(@.status=="True")].type}') || true
    done
    "${ask[@]}" logs job/suite || "${ask[@]}" describe pods || true
    case $ended in
    *Complete*) say 'passed' ;;
    '') die 75 'the Job has not ended' ;;
    *) die 1 "the Job: $ended" ;;
    esac
}

suite_objects() { # image of the suite, image that it tests with
    sed -e "s|@NAME@|$suite_name|; s|@SUITE@|$1|; s|@TEST@|$2|; s|@SUPERVISOR@|${CASEMATE_SUPERVISOR_IMAGE:-}|; s|@WORKER@|${CASEMATE_WORKER_IMAGE:-}|" "$manifests/suite.yaml"
}

forget_suite() {
    local guard=(timeout -k 5 60)
    suite_objects - - | "${ask[@]}" delete --filename - --ignore-not-found --wait=false >/dev/null 2>&1 ||
        say "objects are left: kubectl delete namespace,clusterrole,clusterrolebinding $suite_name"
}
