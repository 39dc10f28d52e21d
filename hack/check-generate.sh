#!/bin/sh
# check-generate.sh BUF...: fails unless gen/, internal/gen/ and docs/api/ match, file by file, the
# output generated from the protos. It generates into a temporary directory and compares, so it does
# not need a commit or change a file.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$@" generate --output "$tmp"
"$@" generate --template buf.gen.cluster.yaml --output "$tmp"
hack/api-docs.sh "$tmp/docs/api" "$@"
for dir in gen internal/gen docs/api; do
	if ! diff -ru -x go.mod -x go.sum -x package.json -x node_modules "$dir" "$tmp/$dir"; then
		echo "check-generate: $dir is not what is generated from the protos: run make generate and commit what it changes" >&2
		exit 1
	fi
done
