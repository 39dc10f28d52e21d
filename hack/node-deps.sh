#!/bin/sh
# Sets up what all TypeScript code requires: the packages of package-lock.json in node_modules, and
# the built SDK in sdk/ts/dist, which the page, the examples and the conformance tests use.
# Installed packages are not changed, so a second run needs no network. Node itself must be on the
# PATH.
#
# node-deps.sh packages: installs only the packages. Code generation requires them before the SDK
# can be built.
set -eu
cd "$(dirname "$0")/.."

if ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2>/dev/null; then
	echo "node-deps: Node 20 or newer must be on the PATH, with npm" >&2
	exit 1
fi
# npm writes its own lockfile last, so its time shows whether the packages are up to date.
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
	npm ci --no-audit --no-fund
	touch node_modules/.package-lock.json
fi
[ "${1:-}" = packages ] || npm run --silent build -w sdk/ts
