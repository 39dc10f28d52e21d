#!/bin/sh
# Sets up what the tests in interop/ require besides Python with pip, Node, a JDK and Maven: the
# packages of the clients, and protoc with its plugin for grpc-java in .cache/interop/bin. Existing
# parts are not changed, so a second run needs no network.
set -eu
PROTOC=com.google.protobuf:protoc:4.35.1
PROTOBUF_JAVA=com.google.protobuf:protobuf-java:4.35.1
GRPC_JAVA=io.grpc:protoc-gen-grpc-java:1.79.0
DEPENDENCY_PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:3.9.0
cd "$(dirname "$0")/.."

hack/python-deps.sh interop interop/python/requirements.txt

# npm writes its own lockfile last, so its time shows whether the packages are up to date.
if [ ! -e interop/node/node_modules/.package-lock.json ] ||
	[ interop/node/package-lock.json -nt interop/node/node_modules/.package-lock.json ]; then
	npm ci --prefix interop/node --no-audit --no-fund
	touch interop/node/node_modules/.package-lock.json
fi

case $(uname -sm) in
"Linux x86_64") platform=linux-x86_64 ;;
"Linux aarch64") platform=linux-aarch_64 ;;
"Darwin x86_64") platform=osx-x86_64 ;;
"Darwin arm64") platform=osx-aarch_64 ;;
*)
	echo "interop-deps: no protoc for $(uname -sm)" >&2
	exit 1
	;;
esac
bin=.cache/interop/bin
mkdir -p "$bin"
tmp=$(mktemp -d .cache/interop/fetch.XXXXXX)
trap 'rm -rf "$tmp"' EXIT

fetch() { # fetch ARTIFACT NAME: downloads a program from Maven as .cache/interop/bin/NAME-VERSION, and links NAME to it
	version=${1##*:}
	if [ ! -x "$bin/$2-$version" ]; then
		mvn -B -q -Dstyle.color=never "$DEPENDENCY_PLUGIN:copy" -Dartifact="$1:exe:$platform" -DoutputDirectory="$PWD/$tmp"
		chmod +x "$tmp/$2-$version-$platform.exe"
		mv "$tmp/$2-$version-$platform.exe" "$bin/$2-$version"
	fi
	ln -sf "$2-$version" "$bin/$2"
}
fetch "$PROTOC" protoc
fetch "$GRPC_JAVA" protoc-gen-grpc-java

# protoc's own protos, in the folder where protoc searches for them. protoc's releases have them
# next to the program; Maven has them in this jar.
if [ "$(cat .cache/interop/include/version 2>/dev/null)" != "$PROTOBUF_JAVA" ]; then
	# The plugin leaves files in the current directory.
	(cd "$tmp" && mvn -B -q -Dstyle.color=never "$DEPENDENCY_PLUGIN:unpack" -Dartifact="$PROTOBUF_JAVA" \
		-DoutputDirectory="$PWD/include" -Dmdep.unpack.includes='google/protobuf/**/*.proto')
	echo "$PROTOBUF_JAVA" >"$tmp/include/version"
	rm -rf .cache/interop/include
	mv "$tmp/include" .cache/interop/include
fi

# Maven's plugins resolve dependencies only when they run, so a build without sources fetches them
# all. The tests build offline.
if ! cmp -s interop/java/pom.xml .cache/interop/pom.xml; then
	mkdir -p "$tmp/empty/src/main/java" "$tmp/empty/src/main/kotlin"
	cp interop/java/pom.xml "$tmp/empty"
	echo 'class Empty' >"$tmp/empty/src/main/kotlin/Empty.kt"
	echo 'class Nothing {}' >"$tmp/empty/src/main/java/Nothing.java"
	mvn -B -q -Dstyle.color=never -f "$tmp/empty/pom.xml" process-classes -Dgenerated="$PWD/$tmp/empty" -Dbuild="$PWD/$tmp/empty/target"
	cp interop/java/pom.xml .cache/interop/pom.xml
fi
