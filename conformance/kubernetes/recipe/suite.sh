# The tests as a Job inside a cluster: of this machine, or a user's own by KUBECONFIG.
# shellcheck shell=bash disable=SC2154

# An image of the tests and kubectl, both static, as a docker archive under the name localhost/casemate-conformance:1.
suite_image() { # file
    local target folder program
    build
    target=$(rustc -vV | sed -n 's/^host: //p')
    folder=$(mktemp -d)
    # The target has to be named, or the flag would reach the compiler's own plug-ins.
    program=$(cd "$here/.." && cargo test --quiet -p casemate-cluster --test cluster --no-run --message-format json --target "$target" \
        --config 'build.rustflags=["-C","target-feature=+crt-static"]' --target-dir target/static |
        sed -n 's/.*"name":"cluster".*"executable":"\([^"]*\)".*/\1/p')
    [ -x "$program" ] || die 70 'the tests do not build, see above'
    cp "$program" "$folder/suite"
    cp "$bin/kubectl" "$folder/kubectl"
    archive "$folder" localhost/casemate-conformance:1 '["/suite","--show-output"]' "$1"
    rm -rf "$folder"
}

# How the cluster is asked; the trap of `suite` still needs it when the function is over.
ask=()

# With KUBECONFIG it is that cluster, by the kubectl in PATH; else the one that runs here.
suite() { # image
    ask=(kubectl)
    local test_image=${CASEMATE_CLUSTER_IMAGE:-busybox:1}
    if [ -z "${KUBECONFIG:-}" ]; then
        need_root
        need_running
        ask=(as_administrator kubectl) test_image=${CASEMATE_CLUSTER_IMAGE:-localhost/busybox:1}
    fi
    ask+=(--namespace casemate-conformance)
    # The Job of an earlier run that was cut off would be taken for this one's.
    "${ask[@]}" delete --filename "$manifests/suite.yaml" --ignore-not-found || die 70 'the remains of an earlier run do not go'
    trap forget_suite EXIT
    sed -e "s|@SUITE@|$1|; s|@TEST@|$test_image|; s|@SUPERVISOR@|${CASEMATE_SUPERVISOR_IMAGE:-}|" "$manifests/suite.yaml" |
        "${ask[@]}" apply --filename - || die 70 'the cluster does not take the Job'
    say 'waiting for the Job, 20 minutes at most'
    local ended= begun=$SECONDS
    until [ -n "$ended" ] || [ $((SECONDS - begun)) -gt 1200 ]; do
        sleep 2
        ended=$("${ask[@]}" get job suite --output 'jsonpath={.status.conditions[?(@.status=="True")].type}')
    done
    "${ask[@]}" logs job/suite || "${ask[@]}" describe pods
    case $ended in
    *Complete*) say 'passed' ;;
    '') die 75 'the Job has not ended' ;;
    *) die 1 "the Job: $ended" ;;
    esac
}

forget_suite() {
    "${ask[@]}" delete --filename "$manifests/suite.yaml" --wait=false >/dev/null 2>&1 ||
        say "the Job's objects are left: kubectl delete --filename $manifests/suite.yaml"
}
