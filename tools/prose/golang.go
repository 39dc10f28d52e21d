package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// golang returns the blocks of a Go file: its comments and, except in tests, its messages. It
// returns none for generated code.
func golang(name, src string) ([]block, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	g := goFile{fset: fset, docs: map[*ast.CommentGroup]doc{}, tests: strings.HasSuffix(name, "_test.go")}
	ast.Inspect(file, g.visit)
	for _, group := range file.Comments {
		g.group(group)
	}
	return g.done, nil
}

// A goFile collects the blocks of one Go file.
type goFile struct {
	blocks

	fset  *token.FileSet
	docs  map[*ast.CommentGroup]doc
	tests bool
}

// A doc is the declaration of a doc comment.
type doc struct {
	names    []*ast.Ident
	function bool
}

// visit records the declaration that n documents and adds the messages in n, for ast.Inspect.
func (g *goFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		g.docs[n.Doc] = doc{[]*ast.Ident{n.Name}, true}
	case *ast.InterfaceType:
		for _, f := range n.Methods.List {
			g.docs[f.Doc] = doc{f.Names, len(f.Names) > 0}
		}
	case *ast.StructType:
		for _, f := range n.Fields.List {
			g.docs[f.Doc] = doc{f.Names, false}
			g.docs[f.Comment] = doc{f.Names, false}
		}
	case *ast.ValueSpec:
		g.docs[n.Doc] = doc{n.Names, false}
	case *ast.TypeSpec:
		g.docs[n.Doc] = doc{[]*ast.Ident{n.Name}, false}
	case *ast.GenDecl:
		for _, spec := range n.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && !n.Lparen.IsValid() {
				g.docs[n.Doc] = doc{v.Names, false}
			}
		}
	case *ast.ImportSpec:
		return false
	case *ast.Field:
		if n.Tag != nil {
			ast.Inspect(n.Type, g.visit)
			return false
		}
	case *ast.BasicLit:
		if n.Kind == token.STRING && !g.tests {
			g.message(n)
		}
	}
	return true
}

// message adds a string literal that has at least three words and only one line. Shorter ones are
// names, and ones with more lines are documents.
func (g *goFile) message(lit *ast.BasicLit) {
	text, err := strconv.Unquote(lit.Value)
	text = strings.TrimSpace(text)
	if err != nil || strings.Count(text, " ") < 2 || strings.Contains(text, "\n") {
		return
	}
	g.end()
	g.add(g.fset.Position(lit.Pos()).Line, text)
	g.end()
}

// directive matches a directive such as //go:embed or //nolint:name.
var directive = regexp.MustCompile(`^//(nolint|[a-z0-9]+:[a-z0-9])`)

// group adds the blocks of a comment group. Of a directive such as //nolint it adds only the
// reason, which follows a second pair of slashes.
func (g *goFile) group(group *ast.CommentGroup) {
	first := len(g.done)
	line, lines := 0, []string(nil)
	flush := func() {
		g.comment(line, lines)
		lines = nil
	}
	for _, c := range group.List {
		at := g.fset.Position(c.Pos()).Line
		text := c.Text
		switch {
		case directive.MatchString(text):
			flush()
			_, reason, _ := strings.Cut(text[2:], "//")
			g.comment(at, []string{reason})
			continue
		case strings.HasPrefix(text, "/*"):
			flush()
			g.comment(at, strings.Split(strings.TrimSuffix(text[2:], "*/"), "\n"))
			continue
		case lines == nil:
			line = at
		}
		lines = append(lines, strings.TrimPrefix(text[2:], " "))
	}
	flush()
	if first < len(g.done) {
		g.done[first].subject(g.docs[group])
	}
}

// subject hides the name that begins a doc comment, because a rule could take a name such as told
// for a word. For a function it sets verb, unless the name is a plural such as headers, which has
// no verb of the third person.
func (b *block) subject(d doc) {
	for _, name := range d.names {
		rest, ok := strings.CutPrefix(b.text, name.Name)
		if !ok || !strings.HasPrefix(rest, " ") {
			continue
		}
		b.text = strings.Repeat(hidden, len(name.Name)) + rest
		if d.function && !strings.HasSuffix(name.Name, "s") {
			b.verb = len(name.Name) + 1
		}
		return
	}
}
