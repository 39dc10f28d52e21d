#!/bin/sh
# fuzz.sh REGEXP TIME: runs each fuzz target whose name matches for TIME, one after another, because
# Go fuzzes one target of one package at a time. It fails on the first finding, which Go stores as a
# test case under the package's testdata/fuzz.
set -eu
cd "$(dirname "$0")/.."

found=0
for file in $(git ls-files -co --exclude-standard '*_test.go'); do
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | grep -E -- "$1" || true); do
		found=1
		echo "== $name in $(dirname "$file")"
		go test -run='^$' -fuzz="^$name\$" -fuzztime="$2" "./$(dirname "$file")"
	done
done
if [ "$found" = 0 ]; then
	echo "fuzz: no target matches $1" >&2
	exit 1
fi
