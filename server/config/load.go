package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
	"gopkg.in/yaml.v3"
)

const envPrefix = "PARLEY_"

// Load reads a configuration: the defaults, then the file at path (none if path is empty), then the variables of
// environ that begin with PARLEY_, as os.Environ gives them. Its error tells everything that is wrong. It validates
// what holds for every server; ValidateServe has what only production needs.
func Load(path string, environ []string) (Config, error) {
	var data []byte
	if path != "" {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return Config{}, fmt.Errorf("read configuration: %w", err)
		}
	}
	cfg, err := parse(Default(), data, environ)
	if err != nil {
		if path == "" {
			path = "environment"
		}
		return Config{}, fmt.Errorf("configuration (%s):\n%w", path, err)
	}
	return cfg, nil
}

// Override gives base with the variables of environ over it, as Load reads and checks them.
func Override(base Config, environ []string) (Config, error) {
	cfg, err := parse(base, nil, environ)
	if err != nil {
		return Config{}, fmt.Errorf("configuration (environment):\n%w", err)
	}
	return cfg, nil
}

// parse puts the file's data and the variables over base.
func parse(base Config, data []byte, environ []string) (Config, error) {
	k := koanf.New(".")
	if err := k.Load(structs.Provider(base, "yaml"), nil); err != nil {
		return Config{}, fmt.Errorf("defaults: %w", err)
	}
	known := k.All()
	file, err := parseFile(data)
	if err != nil {
		return Config{}, err
	}
	errs := unknownKeys(file, known)
	fromEnv, envErrs := parseEnv(environ, known)
	errs = append(errs, envErrs...)
	if len(errs) > 0 {
		return Config{}, errors.Join(errs...)
	}
	for _, layer := range []map[string]any{file, fromEnv} {
		for _, key := range slices.Sorted(maps.Keys(layer)) {
			if err := k.Set(key, layer[key]); err != nil {
				return Config{}, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	var cfg Config
	err = k.UnmarshalWithConf("", &cfg, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName:    "yaml",
		Result:     &cfg,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(mapstructure.StringToTimeDurationHookFunc(), noFractions),
	}})
	if err != nil {
		return Config{}, err
	}
	if err := cfg.Validate(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// parseFile gives the file's values by their paths. A section without content is as good as none.
func parseFile(data []byte) (map[string]any, error) {
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), koanfyaml.Parser()); err != nil {
		return nil, fmt.Errorf("not a YAML mapping: %w", err)
	}
	return k.All(), nil
}

func unknownKeys(file, known map[string]any) []error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(file)) {
		if _, ok := known[key]; ok {
			continue
		}
		if isSection(key, known) {
			if empty(file[key]) {
				delete(file, key)
				continue
			}
			errs = append(errs, fmt.Errorf("%s: is a section, not a value", key))
			continue
		}
		errs = append(errs, fmt.Errorf("%s: unknown key", key))
	}
	return errs
}

func empty(v any) bool {
	m, ok := v.(map[string]any)
	return v == nil || ok && len(m) == 0
}

func isSection(key string, known map[string]any) bool {
	for k := range known {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// EnvName gives the variable that overrides a key.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Keys gives the path of every key, sorted.
func Keys() []string {
	k := koanf.New(".")
	_ = k.Load(structs.Provider(Default(), "yaml"), nil) // a struct always loads
	return slices.Sorted(maps.Keys(k.All()))
}

// parseEnv gives the overrides by their keys' paths.
func parseEnv(environ []string, known map[string]any) (map[string]any, []error) {
	byName := make(map[string]string, len(known))
	for key := range known {
		byName[EnvName(key)] = key
	}
	values := make(map[string]any)
	var errs []error
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || foreign(name) {
			continue
		}
		key, ok := byName[name]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: unknown variable", name))
			continue
		}
		v, err := parseValue(value, known[key])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		values[key] = v
	}
	return values, errs
}

// foreign reports variables that begin like ours and are others': the clients' own, and those that Kubernetes sets in
// every pod for a Service named parley.
func foreign(name string) bool {
	return name == "PARLEY_ADDR" || name == "PARLEY_TOKEN" || name == "PARLEY_CA_FILE" ||
		strings.HasPrefix(name, "PARLEY_SERVICE_") || name == "PARLEY_PORT" || strings.HasPrefix(name, "PARLEY_PORT_")
}

// parseValue reads a variable's text as the kind of value that the default has.
func parseValue(text string, def any) (any, error) {
	switch reflect.TypeOf(def).Kind() {
	case reflect.String:
		return text, nil
	case reflect.Slice:
		items := []string{}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return items, nil
	default:
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil || v == nil {
			return nil, errors.New("is not a plain value") // the YAML error would print the value
		}
		return v, nil
	}
}

// noFractions refuses a number with a fraction for a whole one, which would be cut without a word.
func noFractions(from, to reflect.Type, v any) (any, error) {
	if from.Kind() == reflect.Float64 && to.Kind() == reflect.Int {
		if f, ok := v.(float64); ok && f != float64(int(f)) {
			return nil, fmt.Errorf("%v is not a whole number", f)
		}
	}
	return v, nil
}
