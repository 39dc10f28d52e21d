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

// Load reads a configuration: the defaults, then the file at path, then the PARLEY_ variables of
// environ, which has the form of os.Environ. An empty path means no file. The error lists all
// unknown keys and malformed variables; if there are none, all values of a wrong type; if there are
// none, everything that Validate reports.
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

// Override returns base with the PARLEY_ variables of environ applied. It reads and checks them as
// Load does.
func Override(base Config, environ []string) (Config, error) {
	cfg, err := parse(base, nil, environ)
	if err != nil {
		return Config{}, fmt.Errorf("configuration (environment):\n%w", err)
	}
	return cfg, nil
}

// parse applies the file's data and then the variables to base, and validates the result.
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

// parseFile returns the file's values by key path.
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

// EnvName returns the name of the variable that overrides key.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Keys returns the paths of all keys, sorted.
func Keys() []string {
	k := koanf.New(".")
	_ = k.Load(structs.Provider(Default(), "yaml"), nil) // a struct always loads
	return slices.Sorted(maps.Keys(k.All()))
}

// parseEnv returns the variables' values by key path, and an error for each unknown or malformed
// variable.
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

// foreign reports whether a PARLEY_ variable is not part of the configuration: those of Parley's
// clients, and those that Kubernetes sets in every pod for a Service named parley.
func foreign(name string) bool {
	return name == "PARLEY_ADDR" || name == "PARLEY_TOKEN" || name == "PARLEY_CA_FILE" ||
		strings.HasPrefix(name, "PARLEY_SERVICE_") || name == "PARLEY_PORT" || strings.HasPrefix(name, "PARLEY_PORT_")
}

// parseValue parses a variable's text as the type of the default def.
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

// noFractions rejects a fractional number for an integer key. The decoder would otherwise truncate
// it silently.
func noFractions(from, to reflect.Type, v any) (any, error) {
	if from.Kind() == reflect.Float64 && to.Kind() == reflect.Int {
		if f, ok := v.(float64); ok && f != float64(int(f)) {
			return nil, fmt.Errorf("%v is not a whole number", f)
		}
	}
	return v, nil
}
