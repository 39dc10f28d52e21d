package interop_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
)

// validate is the field number of the buf.validate extensions in the options of fields, messages
// and oneofs.
const validate = 1159

// made is the bundle that `make protos` builds, in a directory that TestMain removes.
var made struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(made.dir)
	os.Exit(code)
}

// bundle returns the directory of the bundle, and the paths of its protos relative to it.
func bundle(t *testing.T) (dir string, protos []string) {
	t.Helper()
	made.once.Do(func() {
		if made.dir, made.err = os.MkdirTemp("", "parley-interop"); made.err != nil {
			return
		}
		if made.err = os.Mkdir(filepath.Join(made.dir, "bin"), 0o700); made.err == nil {
			_, made.err = buf("generate", "--template", "buf.gen.protos.yaml", "--output", made.dir)
		}
	})
	if made.err != nil {
		t.Fatal(made.err)
	}
	dir = filepath.Join(made.dir, "bin", "protos")
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".proto") {
			protos = append(protos, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil || len(protos) == 0 {
		t.Fatalf("no protos in the bundle: %v", err)
	}
	return dir, protos
}

// TestBundle checks that plain protoc parses the bundle, and that its protos equal those of this
// repository, with every comment but without the validation rules.
func TestBundle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	set := filepath.Join(t.TempDir(), "set.binpb")
	protoc(t, "--include_source_info", "--descriptor_set_out="+set)
	got := files(t, set)

	original := filepath.Join(t.TempDir(), "original.binpb")
	if _, err := buf("build", "proto", "--as-file-descriptor-set", "-o", original); err != nil {
		t.Fatal(err)
	}
	want := files(t, original)
	stripped := 0
	for _, f := range want {
		f.Dependency = slices.DeleteFunc(f.GetDependency(), func(d string) bool { return d == "buf/validate/validate.proto" })
		stripped += strip(f.ProtoReflect())
	}
	if stripped == 0 {
		t.Error("the protos have no validation rule")
	}

	if len(got) != len(want) {
		t.Errorf("%d protos in the bundle, %d in the source", len(got), len(want))
	}
	for name, f := range want {
		g := got[name]
		if g == nil {
			t.Errorf("the bundle lacks %s", name)
			continue
		}
		if diff := cmp.Diff(comments(f), comments(g)); diff != "" {
			t.Errorf("comments of %s (-source +bundle):\n%s", name, diff)
		}
		f.SourceCodeInfo, g.SourceCodeInfo = nil, nil
		if diff := cmp.Diff(f, g, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-source +bundle):\n%s", name, diff)
		}
	}
}

// files reads a descriptor set from path and returns those of its files that are of the package
// parley.v1, by name.
func files(t *testing.T, path string) map[string]*descriptorpb.FileDescriptorProto {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	all := map[string]*descriptorpb.FileDescriptorProto{}
	for _, f := range set.GetFile() {
		if f.GetPackage() == "parley.v1" {
			all[f.GetName()] = f
		}
	}
	return all
}

// strip removes the validation rules from a descriptor and all descriptors in it, and options that
// are then empty. It returns how many rules it removed.
func strip(m protoreflect.Message) int {
	n := 0
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil:
		case fd.Name() == "options":
			n += stripOptions(m, fd)
		case fd.IsList():
			for i := range v.List().Len() {
				n += strip(v.List().Get(i).Message())
			}
		default:
			n += strip(v.Message())
		}
		return true
	})
	return n
}

func stripOptions(m protoreflect.Message, fd protoreflect.FieldDescriptor) int {
	options, n := m.Mutable(fd).Message(), 0
	options.Range(func(option protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if option.Number() == validate {
			options.Clear(option)
			n++
		}
		return true
	})
	if proto.Size(options.Interface()) == 0 {
		m.Clear(fd)
	}
	return n
}

// comments returns the comments of a file without line breaks, by the descriptor path of the
// commented element. It omits those of validation rules.
func comments(f *descriptorpb.FileDescriptorProto) map[string]string {
	all := map[string]string{}
	for _, l := range f.GetSourceCodeInfo().GetLocation() {
		text := strings.Join(append(l.GetLeadingDetachedComments(), l.GetLeadingComments(), l.GetTrailingComments()), " ")
		if words := strings.Fields(text); len(words) > 0 && !slices.Contains(l.GetPath(), validate) {
			all[fmt.Sprint(l.GetPath())] = strings.Join(words, " ")
		}
	}
	return all
}

// TestBundleZip checks that the zip file has the same content as the directory.
func TestBundleZip(t *testing.T) {
	t.Parallel()
	dir, _ := bundle(t)
	z, err := zip.OpenReader(filepath.Join(dir, "..", "parley-protos.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var zipped []string
	for _, f := range z.File {
		zipped = append(zipped, f.Name)
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs", f.Name)
		}
	}
	var there []string
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			there = append(there, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(zipped)
	slices.Sort(there)
	if diff := cmp.Diff(there, zipped); diff != "" || !slices.Contains(there, "LICENSE") || !slices.Contains(there, "README.md") {
		t.Errorf("(-directory +zip):\n%s", diff)
	}
}
