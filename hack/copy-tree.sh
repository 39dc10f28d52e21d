#!/bin/sh
# copy-tree.sh DIRECTORY: copies this repository's files, with uncommitted changes, into DIRECTORY,
# which it creates. It copies the files that git has or would add, and no ignored ones.
set -eu
cd "$(dirname "$0")/.."

mkdir -p "$1"
git -c core.quotepath=off ls-files -co --exclude-standard | while IFS= read -r file; do
	[ ! -e "$file" ] || printf '%s\n' "$file"
done | tar -cf - -T - | tar -xf - -C "$1"
