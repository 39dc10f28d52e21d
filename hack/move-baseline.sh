#!/bin/sh
# move-baseline.sh BUF...: makes the current protos the baseline that check-breaking.sh compares
# with. It fails, and changes nothing, if they would break a client of the baseline. Without a
# baseline it creates the first one.
set -eu
cd "$(dirname "$0")/.."
baseline=proto/v1.binpb

[ ! -e "$baseline" ] || hack/check-breaking.sh '' "$@"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$@" build proto --exclude-source-info -o "$tmp/v1.binpb"
mv "$tmp/v1.binpb" "$baseline"
