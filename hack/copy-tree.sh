#!/bin/sh
# copy-tree.sh DIRECTORY: makes the directory a copy of this repository's files as they are now: those that git has or would add.
set -eu
cd "$(dirname "$0")/.."

mkdir -p "$1"
git -c core.quotepath=off ls-files -co --exclude-standard | while IFS= read -r file; do
	[ ! -e "$file" ] || printf '%s\n' "$file"
done | tar -cf - -T - | tar -xf - -C "$1"
