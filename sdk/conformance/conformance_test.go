// Package conformance_test plays sdk/conformance/scenarios.yaml with each SDK against a real
// server, and checks the results. Agents execute the commands with each SDK: see PROTOCOL.md.
package conformance_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// slots bounds the number of scenarios that run at once, of all SDKs together.
var slots = make(chan struct{}, 6)

// TestGo plays the scenarios with the Go SDK. Except under -short, its agent runs under the race
// detector.
func TestGo(t *testing.T) {
	t.Parallel()
	flags := []string{"-race"}
	if testing.Short() {
		flags = nil
	}
	bin, err := rig.Build(t.Context(), "./sdk/conformance/agent", "conformance-agent-go", flags...)
	if err != nil {
		t.Fatal(err)
	}
	playAll(t, []string{bin})
}

// TestTypeScript plays the scenarios with the TypeScript SDK, in Node.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	for path, hint := range map[string]string{
		"sdk/ts/conformance/agent.js": "the agent is missing",
		"sdk/ts/dist/index.js":        "the SDK is not built: npm run build --workspace sdk/ts",
	} {
		if _, err := os.Stat(filepath.Join(root(t), path)); err != nil {
			t.Fatalf("%s: %v", hint, err)
		}
	}
	playAll(t, []string{"node", "sdk/ts/conformance/agent.js"})
}

func playAll(t *testing.T, agentCommand []string) {
	t.Helper()
	scenarios, err := loadScenarios("scenarios.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parleydBinary(); err != nil {
		t.Fatal(err)
	}
	protocols := greet(t, agentCommand)
	for _, s := range scenarios {
		if testing.Short() && !s.Short {
			continue
		}
		spoken := protocols[:1]
		if s.AllProtocols && !testing.Short() {
			spoken = protocols
		}
		for _, p := range spoken {
			t.Run(s.Name+"/"+p, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				play(t, s, p, agentCommand)
			})
		}
	}
}

// greet starts an agent, asks it for the wire protocols that its SDK speaks, and returns them.
func greet(t *testing.T, agentCommand []string) []string {
	t.Helper()
	var protocols []string
	t.Run("hello", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := startAgent(t, agentCommand).call(ctx, "hello", struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		list, _ := got.Result["protocols"].([]any)
		for _, p := range list {
			if name, ok := p.(string); ok {
				protocols = append(protocols, name)
			}
		}
	})
	if len(protocols) == 0 {
		t.Fatal("the agent speaks no protocol")
	}
	return protocols
}

// ruleName matches a rule's name in sdk/SPEC.md, which is in square brackets.
var ruleName = regexp.MustCompile(`\[([a-z][a-z-]+)\]`)

// TestEveryNamedRuleIsProved checks that each rule name in sdk/SPEC.md is listed by at least one
// scenario as proved, and that scenarios list no other names.
func TestEveryNamedRuleIsProved(t *testing.T) {
	t.Parallel()
	spec, err := os.ReadFile(filepath.Join("..", "SPEC.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, m := range ruleName.FindAllStringSubmatch(string(spec), -1) {
		named[m[1]] = true
	}
	scenarios, err := loadScenarios("scenarios.yaml")
	if err != nil {
		t.Fatal(err)
	}
	proved := make(map[string]bool)
	for _, s := range scenarios {
		for _, rule := range s.Proves {
			proved[rule] = true
			if !named[rule] {
				t.Errorf("scenario %q proves %q, which sdk/SPEC.md does not name", s.Name, rule)
			}
		}
	}
	for rule := range named {
		if !proved[rule] {
			t.Errorf("no scenario proves %q", rule)
		}
	}
}
