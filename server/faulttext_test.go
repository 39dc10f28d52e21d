package server_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// engines matches names that no client may read, such as redis: which engines (databases, brokers)
// a server uses is the operator's business and may change.
var engines = regexp.MustCompile(`(?i)redis|mongo|\bnats\b|jetstream|pebble|\blua\b`)

// makers are the functions of package fault that create errors for clients.
var makers = []string{"New", "Wrap", "Invalid", "OverLimit", "Full"}

// faultTexts finds the texts of faults in one package's files.
type faultTexts struct {
	t     *testing.T
	fset  *token.FileSet
	files []*ast.File
	// own are the package's functions that pass a text from their caller to one of makers.
	own []string
	// found is the number of texts of faults that check has found.
	found int
}

// TestFaultTextsNameNoEngine checks that no text of a fault in the source, which clients read,
// matches engines.
func TestFaultTextsNameNoEngine(t *testing.T) {
	t.Parallel()
	packages := make(map[string]*faultTexts)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		p := packages[filepath.Dir(path)]
		if p == nil {
			p = &faultTexts{t: t, fset: token.NewFileSet()}
			packages[filepath.Dir(path)] = p
		}
		file, err := parser.ParseFile(p.fset, path, nil, 0)
		p.files = append(p.files, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range packages {
		p.findOwn()
		p.check()
		found += p.found
	}
	if found < 200 {
		t.Errorf("only %d texts were found", found)
	}
}

// findOwn fills own with the package's functions that pass a parameter to one of makers or to
// another such function.
func (p *faultTexts) findOwn() {
	for before := -1; before < len(p.own); {
		before = len(p.own)
		for _, file := range p.files {
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if ok && f.Body != nil && !slices.Contains(p.own, f.Name.Name) && p.passesOn(f) {
					p.own = append(p.own, f.Name.Name)
				}
			}
		}
	}
}

func (p *faultTexts) passesOn(f *ast.FuncDecl) bool {
	params := make(map[string]bool)
	for _, field := range f.Type.Params.List {
		if typ, ok := field.Type.(*ast.Ident); ok && typ.Name == "string" {
			for _, name := range field.Names {
				params[name.Name] = true
			}
		}
	}
	found := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && p.isMaker(call) {
			for _, arg := range call.Args {
				if name, ok := arg.(*ast.Ident); ok && params[name.Name] {
					found = true
				}
			}
		}
		return !found
	})
	return found
}

// isMaker reports whether a call creates a fault.
func (p *faultTexts) isMaker(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		of, ok := f.X.(*ast.Ident)
		return ok && of.Name == "fault" && slices.Contains(makers, f.Sel.Name) || slices.Contains(p.own, f.Sel.Name)
	case *ast.Ident:
		return slices.Contains(p.own, f.Name)
	}
	return false
}

// check checks the texts passed to makers and those in literals of fault.Error.
func (p *faultTexts) check() {
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if p.isMaker(n) {
					for _, arg := range n.Args {
						p.checkText(arg)
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Msg" {
					p.checkText(n.Value)
				}
			}
			return true
		})
	}
}

// checkText checks every string literal of a text, including the arguments of a Sprintf call.
func (p *faultTexts) checkText(arg ast.Expr) {
	ast.Inspect(arg, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			return ok && f.Sel.Name == "Sprintf" // other calls create a cause, which no client reads, or no text
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(n.Value)
			if err != nil {
				p.t.Error(err)
			}
			p.found++
			if engines.MatchString(text) {
				p.t.Errorf("%s: a client may read %q", p.fset.Position(n.Pos()), text)
			}
		}
		return true
	})
}
