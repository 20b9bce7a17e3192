#!/usr/bin/env bash
# The shortest agent in shell: `nats reply`. It cannot refuse and cannot be silent, see README.md: for trying things out.
#
#     ./reply.sh DATABASE [AGENT]       NATS_URL, DULY_NAMESPACE
set -euo pipefail

database=$(realpath -- "${1:?usage: reply.sh DATABASE [AGENT]}") agent=${2:-payment.charge} namespace=${DULY_NAMESPACE:-duly}
cd "$(dirname "${BASH_SOURCE[0]}")"
./tables.sh "$database"

folder=$(mktemp -d)
trap 'kill "${agents[@]}" 2>/dev/null; rm -rf "$folder"' EXIT
trap 'exit 0' TERM INT
agents=()
for verb in "do" "undo"; do
    mkfifo "$folder/$verb"
    nats reply "$namespace.$verb.$agent" --queue q --command "./charge.sh $verb '$database'" >/dev/null 2>"$folder/$verb" &
    agents+=($!)
    exec {said}<"$folder/$verb"
    grep -q -m 1 Listening <&"$said"
    cat <&"$said" >/dev/null &
    agents+=($!)
done
echo "agent $agent is ready"
wait
