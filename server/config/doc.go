package config

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Doc returns the reference of every key in Markdown: its variables, its default, and the comment
// of the example. An error means that the program was built with a broken example.
func Doc() (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(example, &document); err != nil {
		return "", fmt.Errorf("read the example: %w", err)
	}
	var b strings.Builder
	b.WriteString("# Configuration\n\n" + text(document.HeadComment) + "\n")
	writeSection(&b, "", document.Content[0])
	return b.String(), nil
}

// writeSection writes a table of the keys below path, and then the sections below it.
func writeSection(b *strings.Builder, path string, node *yaml.Node) {
	known := flatten(Default())
	header := "\n| key | variable | default | meaning |\n|---|---|---|---|\n"
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if value.Kind == yaml.MappingNode {
			continue
		}
		key := path + name.Value
		names := "`" + EnvName(key) + "`"
		if isSecret(known[key]) {
			names += ", `" + EnvName(key) + envFile + "`"
		}
		def := value.Value
		if value.Kind == yaml.SequenceNode || def == "" {
			def = "none"
		}
		fmt.Fprintf(b, "%s| `%s` | %s | %s | %s |\n", header, key, names, def, text(name.HeadComment))
		header = ""
	}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if value.Kind != yaml.MappingNode {
			continue
		}
		b.WriteString("\n## " + path + name.Value + "\n")
		if comment := text(name.HeadComment); comment != "" {
			b.WriteString("\n" + comment + "\n")
		}
		writeSection(b, path+name.Value+".", value)
	}
}

// text returns a YAML comment as one line for a Markdown table: without #, and with | escaped.
func text(comment string) string {
	lines := strings.Split(comment, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
	}
	return strings.ReplaceAll(strings.Join(lines, " "), "|", `\|`)
}
