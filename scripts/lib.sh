# What scripts/setup, scripts/quickstart and scripts/test share; sourced by them.

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# step TEXT COMMAND…: runs the command and says every few seconds how far it is; its output is shown only when it fails.
step() {
    local text=$1 log began=$SECONDS status=0 worker beat
    shift
    log=$(mktemp)
    printf '==> %s\n' "$text"
    "$@" >"$log" 2>&1 </dev/null &
    worker=$!
    (
        while sleep 5 9>&- >/dev/null 2>&1; do
            printf '    %s s: %s\n' $((SECONDS - began)) "$(tail -n 1 "$log" | tr -d '\r' | cut -c 1-110)"
        done
    ) &
    beat=$!
    wait "$worker" || status=$?
    kill "$beat" 2>/dev/null || true
    wait "$beat" 2>/dev/null || true
    if [ "$status" != 0 ]; then
        tail -n 60 "$log" >&2
        rm -f "$log"
        fail "$text: failed with exit code $status"
    fi
    rm -f "$log"
}
