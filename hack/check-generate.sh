#!/bin/sh
# check-generate.sh BUF...: fails unless gen/ is, file by file, what buf generates from proto/. It generates beside the
# tree and compares, so it neither needs a commit nor changes a file.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$@" generate --output "$tmp"
if ! diff -ru -x package.json -x node_modules gen "$tmp/gen"; then
	echo "check-generate: gen/ is not what proto/ generates: run make generate and commit what it changes" >&2
	exit 1
fi
