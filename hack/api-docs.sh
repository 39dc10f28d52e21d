#!/bin/sh
# api-docs.sh DIRECTORY BUF...: generates the API reference from the comments of the protos, as
# Markdown in DIRECTORY.
set -eu
cd "$(dirname "$0")/.."
out=$1
shift

hack/python-deps.sh apidocs hack/apidocs/requirements.txt
PYTHONPATH=$PWD/.cache/python/apidocs
export PYTHONPATH

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp -R hack/apidocs/sabledocs.toml hack/apidocs/templates "$tmp"
"$@" build proto --as-file-descriptor-set -o "$tmp/set.binpb"
python3 hack/apidocs/describe.py <"$tmp/set.binpb" >"$tmp/api.binpb"
(cd "$tmp" && python3 -m sabledocs >log) || {
	cat "$tmp/log" >&2
	exit 1
}
mkdir -p "$out"
for page in "$tmp"/out/[!_]*.md; do
	cp "$page" "$out"
done
