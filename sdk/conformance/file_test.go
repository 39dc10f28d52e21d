package conformance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"gopkg.in/yaml.v3"
)

// scenario is one entry of the scenario file.
type scenario struct {
	// Name is unique. Proves contains names of rules of sdk/SPEC.md.
	Name   string   `yaml:"name"`
	Proves []string `yaml:"proves"`
	// Nodes is the number of addresses that clients know; 0 means 1. Behind each address is a
	// proxy, and behind all of them one server, or with Fleet a server each.
	Nodes int  `yaml:"nodes"`
	Fleet bool `yaml:"fleet"`
	// AllProtocols plays the scenario in all protocols of the agent's SDK, instead of only in the
	// first one. It has no effect under -short.
	AllProtocols bool `yaml:"all_protocols"`
	// Short is set for scenarios that `go test -short` plays too, in one protocol.
	Short bool `yaml:"short"`
	// Heartbeat is the server's heartbeat interval. Env contains further environment variables of the
	// server.
	Heartbeat string            `yaml:"heartbeat"`
	Env       map[string]string `yaml:"env"`
	// Clients are created before the first step, each with a token of the user of its name.
	Clients []string  `yaml:"clients"`
	Steps   yaml.Node `yaml:"steps"`

	steps []step
}

// step is one step of a scenario. In the file it is a map: its first key is the action, with the
// arguments as its value, and the other keys are the modifiers.
type step struct {
	line   int
	action string
	args   *yaml.Node
	mods   modifiers
}

// modifiers are the keys of a step besides its action: the expected result, and how to execute the
// step.
type modifiers struct {
	// Want is compared with the result, if set, and Error with the error. Without Error the step must
	// not fail, with it the step must fail.
	Want  yaml.Node `yaml:"want"`
	Error yaml.Node `yaml:"error"`
	// Took is compared with the milliseconds from a command to its answer.
	Took yaml.Node `yaml:"took"`
	// Save stores the result in a variable of this name.
	Save string `yaml:"save"`
	// Begin is a name for the command, for `await` and `cancel`. With it the step does not wait for
	// the command.
	Begin string `yaml:"begin"`
	// Eventually repeats the step until the result matches, but not a step that fails.
	Eventually bool `yaml:"eventually"`
	// Within bounds the duration of the step. The default is stepLimit, except for blocks, which have
	// none.
	Within time.Duration `yaml:"within"`
}

func (m *modifiers) wantsError() bool { return m.Error.Kind != 0 }

// loadScenarios reads a scenario file. It returns an error for an unknown key or action.
func loadScenarios(path string) ([]*scenario, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var all []*scenario
	decoder := yaml.NewDecoder(in)
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	names := make(map[string]bool)
	for _, s := range all {
		if s.Name == "" || names[s.Name] || len(s.Proves) == 0 {
			return nil, fmt.Errorf("scenario %q: requires a unique name, and the rules that it proves", s.Name)
		}
		names[s.Name] = true
		if s.steps, err = parseSteps(&s.Steps); err != nil {
			return nil, fmt.Errorf("scenario %q: %w", s.Name, err)
		}
	}
	return all, nil
}

func parseSteps(list *yaml.Node) ([]step, error) {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, fmt.Errorf("line %d: want a list of steps", list.Line)
	}
	all := make([]step, len(list.Content))
	for i, n := range list.Content {
		if n.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("line %d: want a step", n.Line)
		}
		all[i] = step{line: n.Line, action: n.Content[0].Value, args: n.Content[1]}
		if !knownAction(all[i].action) {
			return nil, fmt.Errorf("line %d: unknown action %q", n.Line, all[i].action)
		}
		rest := yaml.Node{Kind: yaml.MappingNode, Content: n.Content[2:]}
		if err := decodeStrictly(&rest, &all[i].mods); err != nil {
			return nil, fmt.Errorf("line %d: %w", n.Line, err)
		}
	}
	return all, nil
}

// decodeStrictly decodes a node into a struct and returns an error for keys that the struct does
// not have. A node's own Decode ignores them, and marshalling it for another decoder would lose the
// tags.
func decodeStrictly(n *yaml.Node, into *modifiers) error {
	for i := 0; i < len(n.Content); i += 2 {
		switch key := n.Content[i].Value; key {
		case "want", "error", "took", "save", "begin", "eventually", "within":
		default:
			return fmt.Errorf("unknown key %q", key)
		}
	}
	return n.Decode(into)
}

// pattern is an expected value that is not compared for equality. Its tag is one of !any, !none,
// !min, !max, !between, !match, !not, !len and !sub.
type pattern struct {
	tag string
	arg any
}

// MarshalJSON returns a JSON string with the tag and the argument, as in the file.
func (p pattern) MarshalJSON() ([]byte, error) {
	return json.Marshal(fmt.Sprintf("%s %s", p.tag, show(p.arg)))
}

// value converts a node to plain Go values, with its variables expanded.
func value(n *yaml.Node, vars func(name string) (any, error)) (any, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var plain any
	switch n.Kind {
	case yaml.MappingNode:
		all := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			v, err := value(n.Content[i+1], vars)
			if err != nil {
				return nil, err
			}
			all[n.Content[i].Value] = v
		}
		plain = all
	case yaml.SequenceNode:
		all := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := value(item, vars)
			if err != nil {
				return nil, err
			}
			all[i] = v
		}
		plain = all
	case yaml.ScalarNode:
		v, err := scalar(n, vars)
		if err != nil {
			return nil, err
		}
		plain = v
	default:
		return nil, errors.New("an empty value")
	}
	if tag := n.Tag; len(tag) > 1 && tag[0] == '!' && tag[1] != '!' {
		return pattern{tag: tag, arg: plain}, nil
	}
	return plain, nil
}

func scalar(n *yaml.Node, vars func(name string) (any, error)) (any, error) {
	untagged := *n
	if len(n.Tag) > 1 && n.Tag[1] != '!' {
		untagged.Tag = ""
	}
	var v any
	if err := untagged.Decode(&v); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	text, ok := v.(string)
	if !ok {
		return v, nil
	}
	v, err := expand(text, vars)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	return v, nil
}
