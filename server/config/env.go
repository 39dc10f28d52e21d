package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	envPrefix = "PARLEY_"
	// envFile is the suffix of variables that hold the path of a file with the value.
	envFile = "_FILE"
)

// others are variables with the prefix PARLEY_ that are not keys: those of clients, and the path of
// the configuration file.
var others = []string{"PARLEY_ADDR", "PARLEY_TOKEN", "PARLEY_CA_FILE", "PARLEY_CONFIG"}

// kubernetes matches the variables that every pod has for a Service named parley or
// parley-<something>. The last group matches if the name ends in PORT: such a name alone is
// ambiguous, but Kubernetes' value for it is always a URL.
var kubernetes = regexp.MustCompile(
	`^PARLEY_(?:[A-Z0-9_]+?_)??(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_PROTO|_PORT|_ADDR)?|(PORT))$`)

// EnvName returns the variable that overrides a key.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// EnvKey returns the key that the variable name sets, directly or from a file. ok is false if there
// is no such variable.
func EnvKey(name string) (key string, ok bool) {
	v, ok := variables(flatten(Default()))[name]
	return v.key, ok
}

// variable describes a variable, which holds the value of a key or, if file is set, the path of a
// file with the value.
type variable struct {
	key  string
	file bool
}

// variables returns all variables by name.
func variables(known map[string]any) map[string]variable {
	vars := make(map[string]variable, len(known))
	for key, def := range known {
		vars[EnvName(key)] = variable{key: key}
		if isSecret(def) {
			vars[EnvName(key)+envFile] = variable{key: key, file: true}
		}
	}
	return vars
}

// isSecret reports whether a key with this default may be read from a file.
func isSecret(def any) bool {
	switch def.(type) {
	case Secret, SecretURL:
		return true
	}
	return false
}

// envSettings returns the values that environ's variables set, in the order of environ. It reports
// errors, such as unknown variables, to c.
func envSettings(environ []string, known map[string]any, c *checker) []setting {
	vars := variables(known)
	var settings []setting
	setBy := make(map[string]string) // key -> variable
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		v, ok := vars[name]
		if !ok {
			if strings.HasPrefix(name, envPrefix) && !foreign(name, text) {
				c.unknownVariable(name)
			}
			continue
		}
		if other := setBy[v.key]; other != "" && other != name {
			c.checkf(false, min(name, other), "%s is also set: unset one of them", max(name, other))
			continue
		}
		setBy[v.key] = name
		value, err := v.parse(text, known[v.key])
		if err != nil {
			c.errs = append(c.errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		settings = append(settings, setting{key: v.key, source: name, value: value})
	}
	return settings
}

func (c *checker) unknownVariable(name string) {
	replacement := ""
	for old, key := range renamed {
		if name == EnvName(old) {
			replacement = EnvName(key)
		}
	}
	c.unknown(name, "unknown variable", replacement)
}

// foreign reports whether a variable that is not a key belongs to something other than the
// configuration. PARLEY_REDIS_PORT=6380 does not: Kubernetes would set a URL, so it is a mistake.
func foreign(name, text string) bool {
	if slices.Contains(others, name) {
		return true
	}
	m := kubernetes.FindStringSubmatch(name)
	return m != nil && (m[1] == "" || strings.Contains(text, "://"))
}

// parse converts the text of a variable to a value for its key, whose default is def. If v.file is
// set, it reads the value from the file that text names. Errors never contain the value.
func (v variable) parse(text string, def any) (any, error) {
	switch {
	case v.file:
		return readSecret(text)
	case reflect.TypeOf(def).Kind() == reflect.String:
		return text, nil
	case itemKeys[v.key] != nil:
		return v.parseYAML(text, def)
	case reflect.TypeOf(def).Kind() == reflect.Slice:
		items := []string{}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return items, nil
	default:
		return v.parseYAML(text, def)
	}
}

func (v variable) parseYAML(text string, def any) (value any, err error) {
	if err := yaml.Unmarshal([]byte(text), &value); err != nil || value == nil {
		return nil, errors.New("must be " + form(v.key, def)) // the YAML error would print the value
	}
	return value, nil
}

// readSecret returns the content of a file without its final newline.
func readSecret(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return text, nil
}
