#!/bin/sh
# check-page.sh: fails unless clients/pages/dist matches, file by file, the build of its source. It
# builds into a temporary directory and compares, so it does not need a commit or change a file.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
npm run --silent build -w clients/pages -- --outDir "$tmp/dist" --logLevel warn
if ! diff -rq clients/pages/dist "$tmp/dist"; then
	echo "check-page: clients/pages/dist is not what its source builds: run make page and commit what it changes" >&2
	exit 1
fi
