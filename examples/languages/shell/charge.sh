#!/usr/bin/env bash
# Carries one command out: it charges cards, in a SQLite database.
#
#     charge.sh do|undo DATABASE < command
#
# The command may also be in NATS_REQUEST_BODY, where the nats command puts it; CAME is when it came, in µs since 1970.
# Prints the result and ends with 0; or prints "CODE words" and ends with 1; or, when the time is over, is silent and ends
# with 2.
set -euo pipefail
export LC_ALL=C # EPOCHREALTIME has a dot

input_max=65536 # bytes of a do
margin=250000   # µs that an answer may take to leave: a process of its own sends it
verb=$1 database=$2
came=${CAME:-${EPOCHREALTIME/./}}

refuse() {
    # `nats reply` would answer an undo that failed as one that has succeeded: after its time that is not read.
    if [[ -v NATS_REQUEST_BODY && -v until && $verb == undo ]]; then until over; do sleep 0.2; done; fi
    echo "$*"
    exit 1
}

# A file and not a variable, which cannot hold every byte.
body=$(mktemp)
trap 'rm -f "$body"' EXIT
if [[ -v NATS_REQUEST_BODY ]]; then printf %s "$NATS_REQUEST_BODY"; else cat; fi >"$body"

# Lines: ok, key, cents, card, until when in µs; or one line, CODE words. An undo is never refused for its input.
# shellcheck disable=SC2016
read_command='
  def want(condition; words): if condition then . else error(words) end;
  def micros: capture("^(?<s>[^.]+)(?<f>\\.[0-9]+)?Z$") | (.s + "Z" | fromdateiso8601) + (if .f then "0" + .f | tonumber else 0 end) | . * 1e6;
  try (
    want(length == 1 and (.[0] | type) == "object"; "400 not a command: want one object") | .[0]
    | want(.v == 1; "501 another version of a command, want 1")
    | want(([.task, .type, .step, .key] | all(type == "string")) and ("\(.task) \(.type) \(.step) \(.key)"
        | test("\\A([A-Za-z0-9_~-]{1,255}) [A-Za-z0-9_-]{1,64} ([A-Za-z0-9_-]{1,64}) \\1/\\2/[0-9]{1,10}\\z"));
        "400 task, type, step: want names; key: want <task>/<step>/<round>")
    | want((.left_ms | type) == "number" and (.complete_by | type) == "string"; "400 left_ms, complete_by: want a number and a time")
    | ([.left_ms * 1000 + $came, (.complete_by | micros)] | min | floor) as $until
    | (if (.input | type) == "object" then .input else {} end) as $input
    | want($verb == "undo" or (($input.cents | type) == "number" and $input.cents > 0 and $input.cents < 1e12 and $input.cents == ($input.cents | floor));
        "422 cents: want a whole number from 1 to 999999999999")
    | "ok", .key, (if $verb == "do" then $input.cents else 0 end), ($input.card | if . == "slow" then . else "" end), $until
  ) catch (if type == "string" and test("^[45][0-9][0-9] ") then . else "400 not a command" end)'
command=$(jq -rs --arg verb "$verb" --argjson came "$came" "$read_command" "$body" 2>/dev/null) || refuse 400 not a command: want JSON
{ read -r state && [[ $state == ok ]] && read -r key && read -r cents && read -r card && read -r until; } <<<"$command" || refuse "$command"

over() { ((${EPOCHREALTIME/./} >= until - margin)); }
over && exit 2

# ask runs statements in one transaction, and waits while another has the database.
ask() {
    sqlite3 -bail -cmd '.timeout 10000' "$database" "BEGIN IMMEDIATE; $1 COMMIT;" 2>&1
}

# The effect and what is known of its key are committed together. Whatever is in the key is text, not SQL.
key="'${key//\'/\'\'}'"
if [[ $verb == "do" ]]; then
    (($(wc -c <"$body") <= input_max)) || refuse "413 the command is over $input_max bytes"
    [[ $card != slow ]] || sleep 0.1 # the bank thinks
    said=$(ask "
        INSERT INTO ledger (key, result) VALUES ($key, json_object('number', 'r-' || $key, 'cents', $cents)) ON CONFLICT DO NOTHING;
        INSERT INTO charges (key, cents) SELECT $key, $cents WHERE changes() = 1;
        SELECT coalesce(result, '') FROM ledger WHERE key = $key;") || refuse "500 the database: ${said//$'\n'/ }"
else
    said=$(ask "
        INSERT INTO ledger (key) VALUES ($key) ON CONFLICT DO UPDATE SET result = NULL;
        DELETE FROM charges WHERE key = $key;") || refuse "500 the database: ${said//$'\n'/ }"
fi
over && exit 2
[[ $verb == undo || -n $said ]] || refuse 410 the key was undone
printf %s "$said"
