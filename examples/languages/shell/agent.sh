#!/usr/bin/env bash
# An agent in shell, with the nats command and nothing of Duly's: it charges cards, in a SQLite database.
#
#     ./agent.sh DATABASE [AGENT]       NATS_URL, DULY_NAMESPACE
set -euo pipefail
export LC_ALL=C

database=$(realpath -- "${1:?usage: agent.sh DATABASE [AGENT]}") agent=${2:-payment.charge} namespace=${DULY_NAMESPACE:-duly}
running_max=4 # commands at work at a time
unset NATS_REQUEST_BODY
cd "$(dirname "${BASH_SOURCE[0]}")"
./tables.sh "$database"

# answer carries one command out, and answers it once or, when its time is over, not at all.
answer() {
    local message=$1 came=$2 verb reply said status=0
    verb=$(jq -r '.Subject | split(".")[1]' <<<"$message")
    reply=$(jq -r .Reply <<<"$message")
    said=$(jq -rj '.Data // ""' <<<"$message" | base64 -d | CAME=$came ./charge.sh "$verb" "$database") || status=$?
    [[ -n $reply && $status != 2 ]] || return 0
    if ((status == 0)); then
        printf %s "$said" | nats pub --quiet --no-templates --force-stdin "$reply"
    else
        [[ $said == [45][0-9][0-9]' '* ]] || said="500 $said"
        nats pub --quiet --no-templates "$reply" '' -H "Nats-Service-Error:${said:4:400}" -H "Nats-Service-Error-Code:${said:0:3}" </dev/null
    fi
}

# serve takes messages from the nats command, a NUL behind each, and ends with it.
serve() {
    local message came
    local -i running=0
    while IFS= read -r -d '' message; do
        came=${EPOCHREALTIME/./}
        if [[ $message == *"\"$ready\""* ]]; then
            [[ -e $folder/ready ]] || echo "agent $agent is ready"
            : >"$folder/ready"
            continue
        fi
        if ((++running > running_max)); then
            wait -n || true
            running+=-1
        fi
        answer "$message" "$came" &
    done
    wait # what it has is answered
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/messages"
ready=_INBOX.ready.$$.$RANDOM # the last subject: what comes here shows that all are subscribed to
nats sub "$namespace.do.$agent" "$namespace.undo.$agent" "$ready" --queue q --dump=- >"$folder/messages" &
listener=$!
trap 'kill "$listener"' TERM INT
serve <"$folder/messages" &
server=$!
until [[ -e $folder/ready ]]; do
    kill -0 "$listener" # or it has ended, and said why
    nats pub --quiet "$ready" ready </dev/null || sleep 0.5
    sleep 0.1
done
wait "$server" || wait "$server" # a signal ends the first
