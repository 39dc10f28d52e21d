package server_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goStatements lists the functions that start goroutines without a service, and when each goroutine
// ends. All other goroutines are started by lifecycle.Run.Go, or by a sync.WaitGroup that is waited
// for.
var goStatements = map[string]string{
	"cmd/parleyd.run": "they end with the process",
	"internal/cluster/remote.Writer.cancelIfSilent": "ends with the forward",
	"internal/queue/consume.New":                    "steps each engine once",
	"internal/queue/topics.Catalog.heal":            "ends within loadTimeout; it serves all who wait, so it outlives its caller",
	"internal/queue/topics.Catalog.load":            "ends within loadTimeout; it serves all who wait, so it outlives its caller",
	"internal/rpc.serveBidi":                        "ends with the stream",
	"internal/store/embedded.committer.start":       "ends with the store; a disk that fails may stop it for good, so Close can't always wait",
	"internal/store/mongostore.Store.disconnect":    "ends within the driver's connect timeout, which Close does not wait for",
	"internal/store/mongostore.fence.wait":          "ends when nobody waits for a fence any more",
	"internal/store/mongostore.newSaver":            "ends with the feed",
}

// folder holds the parsed files of one folder.
type folder struct {
	code, tests []*ast.File
}

// folders returns the server's folders by path relative to this one, without folders that only
// tests use.
func folders(t *testing.T) map[string]*folder {
	t.Helper()
	all := map[string]*folder{}
	files := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasSuffix(entry.Name(), "test") || strings.HasPrefix(entry.Name(), "test")) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if all[dir] == nil {
			all[dir] = &folder{}
		}
		if strings.HasSuffix(path, "_test.go") {
			all[dir].tests = append(all[dir].tests, file)
		} else {
			all[dir].code = append(all[dir].code, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestServices checks that every type with a method Start is a lifecycle.Service with a stress
// test, that no constructor starts goroutines, and that only functions in goStatements have a go
// statement.
func TestServices(t *testing.T) {
	t.Parallel()
	found, unowned := 0, map[string]bool{}
	for dir, src := range folders(t) {
		stressed := stressTests(src.tests)
		for _, name := range embedders(src.code) {
			found++
			if !stressed[name] {
				t.Errorf("%s.%s is a service without a test that calls lifecycletest.Stress[*%[2]s]", dir, name)
			}
		}
		for _, f := range functions(src.code) {
			name := f.typeName
			switch {
			case dir == "internal/lifecycle":
			case name != "" && f.Name.Name == "Start":
				found++
				if !takesContext(f.FuncDecl) || !slices.ContainsFunc(functions(src.code), func(o function) bool {
					return o.typeName == name && o.Name.Name == "Stop" && takesContext(o.FuncDecl)
				}) {
					t.Errorf("%s.%s has a Start and is no lifecycle.Service", dir, name)
				}
				if !stressed[name] {
					t.Errorf("%s.%s is a service without a test that calls lifecycletest.Stress[*%[2]s]", dir, name)
				}
			case name == "" && isConstructor(f.Name.Name) && starts(f.Body):
				t.Errorf("%s.%s starts goroutines: that is for Start", dir, f.Name.Name)
			}
			if full := dir + "." + strings.TrimPrefix(name+"."+f.Name.Name, "."); hasGoStatement(f.Body) {
				unowned[full] = true
				if goStatements[full] == "" {
					t.Errorf("%s has a go statement: use lifecycle.Run.Go, or say in goStatements when it ends", full)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d services: the test does not see them", found)
	}
	for name := range goStatements {
		if !unowned[name] {
			t.Errorf("goStatements names %s, which has none", name)
		}
	}
}

// function is a function with a body, or a method. typeName is the method's type, or empty.
type function struct {
	*ast.FuncDecl

	typeName string
}

func functions(files []*ast.File) []function {
	var all []function
	for _, file := range files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			name := ""
			if f.Recv != nil {
				name = typeName(f.Recv.List[0].Type)
			}
			all = append(all, function{f, name})
		}
	}
	return all
}

// typeName returns the last identifier of a type such as *feed.Feeder or Call[Req, Res].
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// embedders returns the struct types that are services because they embed *cluster.Handlers.
func embedders(files []*ast.File) []string {
	var names []string
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					if len(f.Names) == 0 && typeName(f.Type) == "Handlers" {
						names = append(names, spec.Name.Name)
					}
				}
			}
			return false
		})
	}
	return names
}

// stressTests returns the types for which tests call lifecycletest.Stress.
func stressTests(files []*ast.File) map[string]bool {
	types := map[string]bool{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(*ast.IndexExpr); ok {
				if f, ok := e.X.(*ast.SelectorExpr); ok && typeName(f.X) == "lifecycletest" && f.Sel.Name == "Stress" {
					types[typeName(e.Index)] = true
				}
			}
			return true
		})
	}
	return types
}

// takesContext reports whether a method is a func(context.Context) error.
func takesContext(f *ast.FuncDecl) bool {
	in, out := f.Type.Params, f.Type.Results
	return in.NumFields() == 1 && typeName(in.List[0].Type) == "Context" && out.NumFields() == 1 && typeName(out.List[0].Type) == "error"
}

func isConstructor(name string) bool {
	return slices.ContainsFunc([]string{"New", "Open", "Connect", "Setup", "new", "open", "connect"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// starts reports whether a function calls a method Go, such as sync.WaitGroup's.
func starts(body *ast.BlockStmt) bool {
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Go" {
				found = true
			}
		}
		return !found
	})
	return found
}

func hasGoStatement(body *ast.BlockStmt) bool {
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			found = true
		}
		return !found
	})
	return found
}
