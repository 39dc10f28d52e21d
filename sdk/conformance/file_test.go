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
	// Name is unique, and Proves names rules of sdk/SPEC.md.
	Name   string   `yaml:"name"`
	Proves []string `yaml:"proves"`
	// Nodes is how many addresses clients know, 1 if 0. Behind each stands a proxy, and behind all of them one server, or
	// with Fleet a server each.
	Nodes int  `yaml:"nodes"`
	Fleet bool `yaml:"fleet"`
	// Protocols are those that the scenario is played in; the agent's first if there are none, and all if All.
	AllProtocols bool `yaml:"all_protocols"`
	// Short is set for those that are played under `go test -short`, in one protocol.
	Short bool `yaml:"short"`
	// Heartbeat is the server's interval, and Env more of its configuration.
	Heartbeat string            `yaml:"heartbeat"`
	Env       map[string]string `yaml:"env"`
	// Clients are made before the first step, each with the token of the user of its name.
	Clients []string  `yaml:"clients"`
	Steps   yaml.Node `yaml:"steps"`

	steps []step
}

// step is one thing to do. It stands in the file as a map whose first key is the action.
type step struct {
	line   int
	action string
	args   *yaml.Node
	mods   modifiers
}

// modifiers say what is to come of a step.
type modifiers struct {
	// Want is what the result must be like, Error what the error; without Error there must be none.
	Want  yaml.Node `yaml:"want"`
	Error yaml.Node `yaml:"error"`
	// Took is how long a command must have taken until its answer came, in milliseconds.
	Took yaml.Node `yaml:"took"`
	// Save keeps the result as a variable.
	Save string `yaml:"save"`
	// Begin leaves the command under way, under a name for `await` and `cancel`.
	Begin string `yaml:"begin"`
	// Eventually repeats the step until it is as wanted.
	Eventually bool `yaml:"eventually"`
	// Within bounds the step.
	Within time.Duration `yaml:"within"`
}

func (m *modifiers) wantsError() bool { return m.Error.Kind != 0 }

// loadScenarios reads the file, and refuses what is not understood.
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
			return nil, fmt.Errorf("scenario %q: wants a name of its own, and rules that it proves", s.Name)
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

// decodeStrictly decodes a node into a struct and refuses keys that the struct has not. A node's own Decode passes over
// them, and marshalling it for another decoder would lose the tags.
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

// pattern is a wanted value that is not plain equality: !any, !none, !min, !max, !between, !match, !not, !len, !sub.
type pattern struct {
	tag string
	arg any
}

// MarshalJSON writes a pattern as it stands in the file.
func (p pattern) MarshalJSON() ([]byte, error) {
	return json.Marshal(fmt.Sprintf("%s %s", p.tag, show(p.arg)))
}

// value makes plain Go of a node, with the variables put in.
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
