# Five things that are refused in five ways, each with its own word for how it went. $1 is a directory outside of the session, $2 a port that
# somebody listens on.
try() {
    name=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "$name passes"; else echo "$name fails"; fi
}
try write sh -c 'echo x > "$0/made/file"' "$1"
try read cat "$1/secret"
try connect bash -c 'exec 3<>/dev/tcp/127.0.0.1/$0' "$2"
# Of a process's own memory (process_vm_readv): refused by the filter, and by nothing else.
try syscall perl -e 'exit(syscall(`uname -m` =~ /x86/ ? 310 : 270, $$, 0, 0, 0, 0, 0) == 0 ? 0 : 1)'
try socket bash -c 'exec 3<>/dev/udp/127.0.0.1/9'
