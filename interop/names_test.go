package interop_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// api returns the descriptors of the proto files of the package parley.v1.
func api() []protoreflect.FileDescriptor {
	var files []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(
		parleyv1.File_parley_v1_message_proto.Package(),
		func(f protoreflect.FileDescriptor) bool {
			files = append(files, f)
			return true
		})
	return files
}

// classes returns the names of the top-level classes that protoc, grpc-java, grpc-kotlin and
// connect-kotlin generate from a file. The value of each is the proto element or file that it is
// generated from.
func classes(f protoreflect.FileDescriptor) map[string]string {
	all := map[string]string{}
	outer := f.Options().(*descriptorpb.FileOptions).GetJavaOuterClassname()
	for _, suffix := range []string{"", "Kt", "KtKt"} {
		all[outer+suffix] = f.Path()
	}
	for m := range each(f.Messages()) {
		for _, suffix := range []string{"", "OrBuilder", "Kt", "KtKt"} {
			all[string(m.Name())+suffix] = string(m.FullName())
		}
	}
	for e := range each(f.Enums()) {
		all[string(e.Name())] = string(e.FullName())
	}
	for s := range each(f.Services()) {
		for _, suffix := range []string{"", "Grpc", "GrpcKt", "Client", "ClientInterface"} {
			all[string(s.Name())+suffix] = string(s.FullName())
		}
	}
	return all
}

// each iterates over a list of descriptors.
func each[D any](list interface {
	Len() int
	Get(i int) D
},
) func(yield func(D) bool) {
	return func(yield func(D) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}

// TestJavaPackages checks that each proto file has the Go and Java options that plain protoc needs
// to generate code.
func TestJavaPackages(t *testing.T) {
	t.Parallel()
	files := api()
	if len(files) < 8 {
		t.Fatalf("only %d files", len(files))
	}
	for _, f := range files {
		o := f.Options().(*descriptorpb.FileOptions)
		if o.GetGoPackage() != "github.com/parleyhq/parley/gen/go/parley/v1;parleyv1" || o.GetJavaPackage() != "dev.parley.v1" ||
			!o.GetJavaMultipleFiles() || o.GetJavaOuterClassname() == "" {
			t.Errorf("%s: %v", f.Path(), o)
		}
	}
}

// TestClassNames checks that no two generated Java or Kotlin classes have the same name, regardless
// of case, which some file systems ignore. None may have the name of a class in
// testdata/classes.txt, which sources often use.
func TestClassNames(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/classes.txt")
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]string{}
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			theirs[line[strings.LastIndexByte(line, '.')+1:]] = line
		}
	}
	for _, name := range []string{"String", "List", "Target", "Message", "Channel", "Status", "ResponseMessage"} {
		if theirs[name] == "" {
			t.Errorf("the list lacks %s", name)
		}
	}

	ours := map[string]string{}
	for _, f := range api() {
		all := classes(f)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if class := theirs[name]; class != "" {
				t.Errorf("the class %s of %s has the name of %s", name, all[name], class)
			}
			lower := strings.ToLower(name)
			if other := ours[lower]; other != "" {
				t.Errorf("the class %s of %s collides with one of %s", name, all[name], other)
			}
			ours[lower] = all[name]
		}
	}
}

// TestKotlinBuilders checks that no message's Kotlin builder function has the name of a Kotlin
// keyword or of a function that is visible in every Kotlin source.
func TestKotlinBuilders(t *testing.T) {
	t.Parallel()
	taken := strings.Fields(`
		also apply arrayOf arrayOfNulls assert booleanArrayOf buildList buildMap buildSet buildString byteArrayOf charArrayOf check
		checkNotNull compareBy compareValues doubleArrayOf emptyArray emptyList emptyMap emptySequence emptySet enumValueOf enumValues
		error floatArrayOf generateSequence hashMapOf hashSetOf intArrayOf iterator lazy lazyOf let linkedMapOf linkedSetOf listOf
		longArrayOf mapOf maxOf minOf mutableListOf mutableMapOf mutableSetOf naturalOrder print println readLine readln repeat require
		requireNotNull reverseOrder run runCatching sequence sequenceOf setOf shortArrayOf sortedMapOf sortedSetOf suspend synchronized
		takeIf takeUnless to use with
		as break class continue do else false for fun if in interface is null object package return super this throw true try typealias
		typeof val var when while`)
	for _, f := range api() {
		for m := range each(f.Messages()) {
			name := string(m.Name())
			if builder := strings.ToLower(name[:1]) + name[1:]; slices.Contains(taken, builder) {
				t.Errorf("the builder of %s in Kotlin is called %s", m.FullName(), builder)
			}
		}
	}
}
